"""The files of a run by name: which of those in a folder are its own, and which a kill left half-written; and paths as
a person types them."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path

from meshloom.process.atomic_write import HALF_WRITTEN
from meshloom.process.ranks import as_launched

CONFIG, MONITORS, CHECKPOINT, SERIES, PICTURE = "run.toml", "monitors.csv", "checkpoint.h5", "fields.pvd", "picture.png"
REPORT, FACTS = "report.html", "report.json"  # the page of a run, and what it is made of besides other files
PROBES, INTEGRALS, SURFACES = "probes.csv", "integrals.csv", "surface.pvd"
_OWN_FILES = (CONFIG, MONITORS, CHECKPOINT, SERIES, FACTS, REPORT, PICTURE, PROBES, INTEGRALS, SURFACES)
_PATTERNS = ("chart_*.csv", "chart_*.png", "map_*.png", "fields_[0-9]*.vt[iru]", "fields_[0-9]*.pvt[iru]",
             "surface_[0-9]*.vtu")  # fmt: skip
_FIELDS = re.compile(r"(?:fields|surface)_(\d+)(?:_\d+)?\.p?vt[iru]")  # or one of their pieces
_PROBE = re.compile(r"\.probe\.\d+")
_NOT_IN_FILES = '%/\\:*?"<>|'  # of names; on one system or another
_LONGEST_NAME = 150  # bytes of it; a file name may have 255, also the longer one that is written next to it


def own_files(folder: Path) -> list[Path]:
    """The files of a run that are there now."""
    known = [folder / name for name in _OWN_FILES] + [p for one in _PATTERNS for p in sorted(folder.glob(one))]
    return [path for path in known if path.is_file() or path.is_symlink()]


def half_written(folder: Path) -> list[Path]:
    """What writers of a run's files leave next to them when they are killed; nobody else's."""
    return [path for path in sorted(folder.glob(".*")) if _is_half_written(path.name)]


def _is_half_written(name: str) -> bool:
    unfinished = HALF_WRITTEN.fullmatch(name)
    if unfinished is None:
        return _PROBE.fullmatch(name) is not None
    return unfinished["name"] in _OWN_FILES or any(fnmatchcase(unfinished["name"], one) for one in _PATTERNS)


def probe_name(process: int) -> str:
    """A file that is made to see whether files can be made."""
    return f".probe.{process}"


def fields_name(iteration: int) -> str:
    """The fields after so many iterations; the ending depends on what they live on."""
    return f"fields_{iteration:07d}"


def surface_name(iteration: int) -> str:
    """The faces of boundary groups after so many iterations."""
    return f"surface_{iteration:07d}"


def fields_after(folder: Path, iteration: int) -> list[Path]:
    """The files of fields of later iterations."""
    found = [(_FIELDS.fullmatch(path.name), path) for path in sorted(folder.glob("*_*"))]
    return [path for match, path in found if match and int(match[1]) > iteration]


def file_name(name: str) -> str:
    """Any name as part of the name of a file: an ordinary one is itself, and different ones stay different."""
    text = "".join(c if c.isprintable() and c not in _NOT_IN_FILES else _percent(c) for c in name)
    if len(text.encode()) <= _LONGEST_NAME:
        return text
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{text.encode()[:_LONGEST_NAME].decode(errors='ignore')}-{digest}"


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))


def as_typed(path: str, encoding: str | None) -> str:
    """A path for a command line, in one line. What the terminal cannot show is spelled out, as shells read it."""
    try:
        path.encode(encoding or "ascii")
        if path.isprintable():
            return shlex.quote(path)
    except UnicodeError:
        pass
    letters = (chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02x}" for b in os.fsencode(path))
    return f"$'{''.join(letters)}'"


def restart_command(checkpoint: Path, encoding: str | None = "utf-8") -> str:
    """What a person types to go on from the checkpoint of a case's run, on as many ranks."""
    return as_launched(f"meshloom run --restart {as_typed(str(checkpoint), encoding)}")
