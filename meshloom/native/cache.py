"""The cache on disk: where it is, and how files and arrays get into it without ever being seen half-written.

Everything in the cache can be made again, so nothing here is an error: what cannot be read is absent, what cannot be
written is not cached, with a word about why. Files are written under a unique temporary name next to their place and
renamed; a reader sees the old file, the new file or none.

What lies there is run and followed, so it must be our own (``ownership.py``): where others may write, where there is no
home folder, or where a pipe or a link stands in place of a file, nothing is believed, and a folder of this process
alone takes the place of the cache.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO
from weakref import WeakSet

import numpy as np

from meshloom.native import eviction
from meshloom.native.ownership import distrust, own_file
from meshloom.process.atomic_write import replacing
from meshloom.process.children import still_wanted
from meshloom.process.signals import undo_if_stopped

_NOWHERE = Path(os.devnull, "meshloom")  # nothing is there, nothing can be put there
_LOCK_SECONDS = 300.0  # a builder that takes longer is taken for dead; waiting is an economy, not a need
_private: list[Path] = []  # the last one is in use
_told: set[str] = set()


def tell(message: str) -> None:
    """A warning, once per process."""
    if message not in _told:
        _told.add(message)
        warnings.warn(message, stacklevel=3)


# ---- places -----------------------------------------------------------------------------------------------------


def wanted_root() -> Path | None:
    """``$MESHLOOM_CACHE``, else ``$XDG_CACHE_HOME/meshloom``, else ``~/.cache/meshloom``; None without a home."""
    if own := os.environ.get("MESHLOOM_CACHE"):
        return _expanded(own)
    if os.path.isabs(xdg := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(xdg, "meshloom")
    return _expanded("~/.cache/meshloom")


def _expanded(path: str) -> Path | None:
    """With ~ replaced; None where nobody knows what it stands for."""
    full = os.path.expanduser(path)
    with suppress(FileNotFoundError):  # of a working directory that is gone
        return None if full.startswith("~") else Path(os.path.abspath(full))
    return None


def refusal() -> str | None:
    """Why the wanted cache is not used; None where it is."""
    root = wanted_root()
    if root is None:
        return "there is no home folder to keep compiled code in; set MESHLOOM_CACHE to a folder that is yours"
    if reason := distrust(root):
        return f"the cache {root} is not used: {reason}; correct that or set MESHLOOM_CACHE to a folder that is yours"
    return None


def cache_root() -> Path:
    """The folder of the cache, or one of this process alone where that is not to be believed. Not made."""
    if reason := refusal():
        tell(f"{reason}; until then everything is made again in each process")
        return private_root()
    found = wanted_root()
    assert found is not None
    return found


def cache_dir(kind: str) -> Path:
    """The folder for one kind of cached things (``"code"``, ``"plans"``), made where that is possible."""
    folder = cache_root() / kind
    _make(folder)
    if reason := distrust(folder):
        tell(f"the cache {folder} is not used: {reason}")
        folder = private_root() / kind
        _make(folder)
    return folder


def _make(folder: Path) -> str | None:
    """A folder for this user alone, with all above it that are missing; why that is impossible."""
    try:
        for one in reversed([one for one in (folder, *folder.parents) if not os.path.lexists(one)]):
            with suppress(FileExistsError):
                one.mkdir(0o700)
    except OSError as error:
        return error.strerror or str(error)
    return None


def private_root() -> Path:
    """A folder of this process alone, gone when it ends; another one where somebody has removed it."""
    if not _private or not _private[-1].is_dir():
        _private.append(_made_private())
    return _private[-1]


def _made_private() -> Path:
    """Where code may be run from, if there is such a place; nowhere at all where nothing can be written."""
    made = []
    for parent in dict.fromkeys((_temporary(), "/var/tmp", "/dev/shm")):
        with suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="meshloom-cache-", dir=parent))
            atexit.register(_remove, folder, os.getpid())
            undo_if_stopped(folder, partial(_remove, folder, os.getpid()))
            if workers := sys.modules.get("multiprocessing.util"):  # whose forked children end without atexit
                workers.Finalize(None, _remove, (folder, os.getpid()), exitpriority=0)
            made.append(folder)
            if unusable(folder) is None and distrust(folder) is None:
                return folder
    return made[0] if made else _NOWHERE


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return "/tmp"


def _remove(folder: Path, owner: int) -> None:
    """At exit of the process that made it (not of its forks), unless a log was left for the user to read."""
    if os.getpid() == owner and not any(folder.rglob("*.log")):
        shutil.rmtree(folder, ignore_errors=True)


def unusable(folder: Path) -> str | None:
    """Why compiled code cannot be put into a folder and run there; None where it can."""
    if reason := _make(folder):
        return reason
    if not runs_code(folder):
        return "its file system forbids to run code from it (noexec)"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 16))
    except OSError as error:
        return error.strerror or str(error)
    return None


def runs_code(folder: Path) -> bool:
    """May libraries in this folder be loaded? Some file systems are mounted so that they may not."""
    if not hasattr(os, "statvfs"):
        return True
    try:
        return not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
    except OSError:
        return True


# ---- files ------------------------------------------------------------------------------------------------------


@contextmanager
def storing(path: Path) -> Iterator[Path]:
    """``replacing`` for a file of the cache: nobody else may write it, and what is too much is evicted then."""
    with replacing(path) as temporary:
        yield temporary
        os.chmod(temporary, 0o600)
        with suppress(OSError):
            path.rmdir()  # an empty folder in its place; anything else but a folder is replaced
    eviction.once(path.parent.parent)


@contextmanager
def kept_if_possible(path: Path) -> Iterator[Path]:
    """``storing`` where a failure costs nothing but time: one word about it."""
    try:
        with storing(path) as temporary:
            yield temporary
    except OSError as error:
        reason = _make(path.parent) or error.strerror or error
        tell(f"the cache {path.parent.parent} cannot be written ({reason}); what is made is not kept")


def opened(path: Path) -> BinaryIO | None:
    """A file of the cache to read, noted as used now; None where there is none, or one that is not ours to believe.

    Never waits: a pipe, a device, a link or a folder in its place is none.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        number = os.open(path, flags)
    except OSError:
        return None
    if not own_file(os.fstat(number)):
        os.close(number)
        return None
    with suppress(OSError, NotImplementedError):
        os.utime(number if os.utime in os.supports_fd else path)
    return open(number, "rb")


def content(path: Path) -> bytes | None:
    """What a file of the cache holds, as ``opened``."""
    file = opened(path)
    if file is None:
        return None
    with file, suppress(OSError):
        return file.read()
    return None


@contextmanager
def building(path: Path) -> Iterator[None]:
    """Waits while somebody else makes the same file, so that the ranks of a run, and threads, compile it once.

    Only an economy: without locks (some network file systems) everybody compiles and the last rename wins.
    """
    try:
        import fcntl

        flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW  # a pipe in its place must not make us wait
        lock = open(os.open(path.with_suffix(".lock"), flags, 0o600), "wb")  # noqa: SIM115 - held over the yield
    except (ImportError, OSError):
        yield
        return
    with lock:
        _locks.add(lock)
        give_up = time.monotonic() + _patience
        while time.monotonic() < give_up:
            still_wanted()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        yield


_locks: WeakSet[BinaryIO] = WeakSet()  # that threads of this process have, or wait for
_patience = _LOCK_SECONDS


def _forked() -> None:
    """In a new process, which holds what threads held that are not there: a file, which is closed, and ends of pipes,
    for which these wait until it ends. So it waits for nobody."""
    global _patience
    for lock in list(_locks):
        lock.close()
        _patience = 0.0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


# ---- arrays -----------------------------------------------------------------------------------------------------


def load_arrays(kind: str, key: str) -> dict[str, np.ndarray] | None:
    """The arrays stored under ``key``, or None where there are none or the file is damaged.

    They are what somebody wrote there, no more: the caller checks that they mean what they should.
    """
    path = _array_file(kind, key)
    file = opened(path)
    if file is None:
        return None
    with file:
        try:
            with zipfile.ZipFile(file) as archive:
                return {name.removesuffix(".npy"): _read(archive, name) for name in archive.namelist()}
        except OSError:
            return None
        except Exception:  # a file may hold anything, and the readers of zip and numpy fail in many ways
            remove(path)
            return None


def store_arrays(kind: str, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Keep ``arrays`` (any names, no object arrays) under ``key``; not kept where that is impossible."""
    path = _array_file(kind, key)
    plain = {name: np.asanyarray(array) for name, array in arrays.items()}
    for name, array in plain.items():
        if array.dtype.hasobject:
            raise TypeError(f"array {name!r} of {kind}/{key} holds Python objects; only plain numbers can be cached")
    with kept_if_possible(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in plain.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


def remove(path: Path) -> None:
    """A file of the cache that is of no use, gone where that is possible."""
    with suppress(OSError):
        path.unlink()


def _array_file(kind: str, key: str) -> Path:
    if not re.fullmatch(r"[\w.\-]+", key):
        raise ValueError(f"cache key {key!r} cannot be a file name; use letters, digits, '.', '_' and '-'")
    return cache_dir(kind) / f"{key}.npz"


def _read(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ValueError("nothing is compressed here")  # and so nothing unpacks to more than the file is long
    with archive.open(name) as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read()  # to the end, where the checksum is compared
        return array
