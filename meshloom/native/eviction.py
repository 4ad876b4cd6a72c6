"""What the cache holds, how much that may be, and what goes when it is more: least recently used first.

Only what Meshloom itself has named is seen here; other files in the cache are left alone. A library that another
process has loaded stays in its memory when its file goes. What was used a moment ago stays, since its user may be
about to load it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from meshloom.process.atomic_write import HALF_WRITTEN
from meshloom.records import dataclass

LIMIT = 2 * 10**9  # bytes, unless MESHLOOM_CACHE_LIMIT says otherwise
SPARED = 600.0  # seconds after its last use for which nothing goes by itself
ABANDONED = 3600.0  # seconds after which what somebody was writing is litter
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_KEYED = r"(?P<entry>[\w.+\-]+-[0-9a-f]{32})"
#: kind -> (what one entry is and what more of them are, the names of their files)
KINDS = {
    # .h, .gch and .sum: headers that earlier versions had the compiler read ahead
    "code": (("library", "libraries"), re.compile(rf"{_KEYED}\.(so|cpp|log|lock|h|h\.gch|sum)")),
    "plans": (("plan", "plans"), re.compile(r"(?P<entry>[0-9a-f]{64})\.npz")),
    "cuda": (("GPU program", "GPU programs"), re.compile(rf"{_KEYED}\.(cubin|log|lock)")),
    "compiler": (("compiler tried", "compilers tried"), re.compile(r"(?P<entry>[0-9a-f]{32})\.json")),
}
_HALF_TRIED = re.compile(r"probe-\w{8}")
_looked = False


@dataclass(frozen=True)
class Entry:
    """What was made at one time from one source: its files, their size in bytes, when they were last used."""

    kind: str
    files: tuple[Path, ...]
    size: int
    used: float


def entries(root: Path) -> list[Entry]:
    """All entries of a cache, the least recently used first."""
    found = [one for kind in KINDS for one in _entries(root, kind)]
    return sorted(found, key=lambda one: one.used)


def _entries(root: Path, kind: str) -> list[Entry]:
    groups: dict[str, list[os.DirEntry[str]]] = {}
    for file in _listed(root / kind):
        if named := KINDS[kind][1].fullmatch(file.name):
            groups.setdefault(named["entry"], []).append(file)
    found = []
    for files in groups.values():
        facts = [(Path(file.path), status) for file in files if (status := _plain(file)) is not None]
        if facts:
            size, used = sum(s.st_size for _, s in facts), max(s.st_mtime for _, s in facts)
            found.append(Entry(kind, tuple(path for path, _ in facts), size, used))
    return found


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []


def _plain(file: os.DirEntry[str]) -> os.stat_result | None:
    with suppress(OSError):
        status = file.stat(follow_symlinks=False)
        return status if stat.S_ISREG(status.st_mode) else None
    return None


def limit() -> int:
    """Bytes that the cache may hold: ``MESHLOOM_CACHE_LIMIT``, such as 500M or 4G."""
    wanted = os.environ.get("MESHLOOM_CACHE_LIMIT", "").strip()
    if not wanted:
        return LIMIT
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", wanted, re.IGNORECASE | re.ASCII)
    if match is None:
        warnings.warn(f"MESHLOOM_CACHE_LIMIT is {wanted[:40]!r}, not a size such as 500M or 2G; using 2G", stacklevel=2)
        return LIMIT
    return int(float(match[1]) * _UNITS[match[2].lower()])


def once(root: Path) -> None:
    """Let go what is too much, at the first call of a process only: it looks at every file."""
    global _looked
    if not _looked:
        _looked = True
        shrink(root, limit())


def shrink(root: Path, most: int) -> int:
    """Remove the least recently used entries until no more than ``most`` bytes are left; how many went."""
    now, held = time.time(), entries(root)
    total, gone = sum(one.size for one in held), 0
    for one in held:
        if total <= most or now - one.used < SPARED:
            break
        _unlink(one.files)
        total, gone = total - one.size, gone + 1
    _sweep(root, now)
    return gone


def clear(root: Path) -> list[Entry]:
    """Remove every entry, and the folders where nothing else is left; what has gone."""
    held = entries(root)
    for one in held:
        _unlink(one.files)
    _sweep(root, time.time())
    for folder in (*(root / kind for kind in KINDS), root):
        with suppress(OSError):
            folder.rmdir()
    return [one for one in held if not any(map(os.path.lexists, one.files))]


def _sweep(root: Path, now: float) -> None:
    """What processes that were killed have left half done."""
    for kind in KINDS:
        for file in _listed(root / kind):
            with suppress(OSError):
                if now - file.stat(follow_symlinks=False).st_mtime < ABANDONED:
                    continue
                if HALF_WRITTEN.fullmatch(file.name) and _plain(file):
                    os.unlink(file.path)
                elif _HALF_TRIED.fullmatch(file.name) and file.is_dir(follow_symlinks=False):
                    shutil.rmtree(file.path, ignore_errors=True)


def _unlink(files: Iterable[Path]) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink()
