"""Closing libraries that nobody holds: each takes five of the mappings that a process may have, 65,530 as a rule.

No thread is inside such a library: whoever calls a function holds it, and threads of OpenMP leave a region before it
ends. But they wait for the next one inside OpenMP's own library, which would go with the last of ours: so that one is
opened once more, for ever. What the loader has to keep, because a thread still has to destroy a buffer of it, it keeps.
"""

from __future__ import annotations

import _ctypes
import ctypes
import sys
from functools import cache
from typing import Any


class _Place(ctypes.Structure):
    """Dl_info: where an address belongs to."""

    _fields_ = (("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("symbol", ctypes.c_void_p))  # fmt: skip


def may_close(library: ctypes.CDLL) -> bool:
    """Is it safe to close a library? Sees to it that threads of OpenMP, if it has any, keep what they wait in."""
    if sys.platform != "linux":  # elsewhere nobody has tried
        return False
    try:
        known = _ctypes.dlsym(library._handle, "omp_get_num_threads")  # in the libraries that it needs, too
    except (OSError, UnicodeError):  # of a message about a path that is no text
        return True
    place = _Place()
    found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(known), ctypes.byref(place))
    # LLVM's keeps addresses in our libraries from one parallel region to the next: with that one, they stay open.
    return bool(found and place.file and b"libgomp" in place.file) and _kept(place.file)


def close(handle: int) -> None:
    """Close a library that ``may_close``."""
    if sys.platform == "linux":
        _ctypes.dlclose(handle)


@cache
def _kept(file: bytes) -> bool:
    """Open a library for as long as the process lives."""
    try:
        ctypes.CDLL(file.decode(errors="surrogateescape"))
    except OSError:
        return False
    return True


def function_of(library: ctypes.CDLL, name: str, *types: Any) -> Any:
    """A function without result that holds its library; those of ctypes hold themselves, too, until they are collected.

    ``types``: of its arguments.
    """
    found: Any = ctypes.CFUNCTYPE(None, *types)(entry(library, name))
    found.library = library
    return found


def entry(library: ctypes.CDLL, name: str) -> int:
    """Where a function begins."""
    if sys.platform != "win32":
        return _ctypes.dlsym(library._handle, name)
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0
