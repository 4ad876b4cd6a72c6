"""System headers, read once by the compiler for all generated code that begins with the same ones (precompiled).

They are most of what a compiler reads for a small kernel. The source stays whole: the headers are read ahead of it, and
its own ``#include`` finds that they have been. A compiler that makes no use of the form reads the header itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from meshloom.errors import CompilerError
from meshloom.native import cache

_INCLUDE = re.compile(r"^#include <[\w./]+>$", re.MULTILINE)
_useful: dict[Path, bool] = {}  # headers that this process has looked at: is there a form of them?
Make = Callable[[Path, Path], bool]  # header, form -> did the compiler make it?


def flags_for(source: str, folder: Path, facts: object, make: Make) -> tuple[str, ...]:
    """What to tell the compiler: to read the headers of ``source`` ahead, from ``folder``, where they are made if need
    be. ``facts``: all that the form depends on. No flags where there are no headers, or no form of them can be made.
    """
    lines = "\n".join(dict.fromkeys(_INCLUDE.findall(source))) + "\n"
    key = hashlib.sha256(repr((facts, lines)).encode()).hexdigest()[:32]
    header = folder / f"headers-{key}.h"
    if header not in _useful or (_useful[header] and not header.is_file()):
        try:
            if lines.strip() and not _is_whole(header, lines):
                _make(header, lines, make)
            _useful[header] = bool(cache.content(_form(header)))
        except (OSError, CompilerError):
            _useful[header] = False
    return ("-include", str(header)) if _useful[header] else ()


def forget(flags: tuple[str, ...]) -> None:
    """The compiler did better without them: this process does not try again, the next one makes them anew."""
    for header in map(Path, flags[1:]):
        _useful[header] = False
        cache.remove(_total(header))


def _is_whole(header: Path, lines: str) -> bool:
    """Whether the form is the one that was made; an empty one says that none can be."""
    form, total = cache.content(_form(header)), cache.content(_total(header))
    return form is not None and total == _digest(form) and cache.content(header) == lines.encode()


def _make(header: Path, lines: str, make: Make) -> None:
    with cache.storing(header) as temporary:
        temporary.write_text(lines)
    with cache.storing(_form(header)) as temporary:
        temporary.touch()
        if not make(header, temporary):  # compilers remove what they could not finish
            temporary.write_bytes(b"")
        total = _digest(temporary.read_bytes())
    with cache.storing(_total(header)) as temporary:
        temporary.write_bytes(total)


def _form(header: Path) -> Path:
    """Where compilers look for it."""
    return header.with_name(f"{header.name}.gch")


def _total(header: Path) -> Path:
    return header.with_suffix(".sum")


def _digest(content: bytes | None) -> bytes:
    return hashlib.sha256(content or b"").hexdigest().encode()
