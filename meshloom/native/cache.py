"""The cache on disk: where it is, and how files and arrays get into it without ever being seen half-written.

Everything in the cache can be made again, so nothing here is an error: what cannot be read is absent, what cannot be
written is not cached. Files are written under a unique temporary name beside their place and renamed; a reader sees
the old file, the new file or none.
"""

from __future__ import annotations

import os
import re
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from meshloom.process.signals import undone_if_stopped

_DAMAGED = (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, MemoryError)


def cache_root() -> Path:
    """``$MESHLOOM_CACHE``, else ``$XDG_CACHE_HOME/meshloom``, else ``~/.cache/meshloom``. Not created."""
    if own := os.environ.get("MESHLOOM_CACHE"):
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if os.path.isabs(xdg) else Path(os.path.expanduser("~/.cache")).absolute()) / "meshloom"


def cache_dir(kind: str) -> Path:
    """The directory for one kind of cached things (``"code"``, ``"plans"``), created where that is possible."""
    path = cache_root() / kind
    with suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A unique temporary path beside ``path`` to write to; renamed to ``path`` at the end, removed on any error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}.tmp")
    with undone_if_stopped(temporary.unlink):
        try:
            yield temporary
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def load_arrays(kind: str, key: str) -> dict[str, np.ndarray] | None:
    """The arrays stored under ``key``, or None where there are none or the file is damaged."""
    path = _array_file(kind, key)
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy"): _read(archive, name) for name in archive.namelist()}
    except OSError:
        return None
    except _DAMAGED:
        with suppress(OSError):
            path.unlink()
        return None


def store_arrays(kind: str, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Keep ``arrays`` (any names, no object arrays) under ``key``; silently not kept where that is impossible."""
    path = _array_file(kind, key)
    plain = {name: np.asanyarray(array) for name, array in arrays.items()}
    for name, array in plain.items():
        if array.dtype.hasobject:
            raise TypeError(f"array {name!r} of {kind}/{key} holds Python objects; only plain numbers can be cached")
    with suppress(OSError), replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in plain.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


def _array_file(kind: str, key: str) -> Path:
    if not re.fullmatch(r"[\w.\-]+", key):
        raise ValueError(f"cache key {key!r} cannot be a file name; use letters, digits, '.', '_' and '-'")
    return cache_dir(kind) / f"{key}.npz"


def _read(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read()  # to the end, where the checksum is compared
        return array
