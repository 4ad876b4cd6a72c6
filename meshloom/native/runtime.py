"""Replay of recorded operations in one native call, and the copy bandwidth of the machine (``runtime.cpp``)."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import numpy as np

from meshloom.errors import whole
from meshloom.native.compiler import load

PATIENCE = 0.1  # seconds between looks at what else there is to do


@cache
def library() -> ctypes.CDLL:
    """The runtime, compiled at first use."""
    found = load(Path(__file__).with_name("runtime.cpp").read_text(), "runtime")
    found.ml_copy.restype = ctypes.c_double
    found.ml_replay.restype = None
    return found


class Operation:
    """A native function with its tables: ``function(pointers, sizes)``. Keeps alive what the tables point to."""

    __slots__ = ("address", "call", "keep", "pointers", "sizes")

    def __init__(self, function: ctypes._CFuncPtr, arrays: list[np.ndarray], sizes: list[int]):  # type: ignore[name-defined]
        self.keep = (function, arrays)
        self.pointers = (ctypes.c_void_p * max(len(arrays), 1))(*(a.ctypes.data for a in arrays))
        self.sizes = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
        self.address = ctypes.cast(function, ctypes.c_void_p).value
        self.call = function

    def __call__(self) -> None:
        self.call(self.pointers, self.sizes)


def fill_operation(target: np.ndarray, value: float) -> Operation:
    """Sets every entry of a flat array."""
    function = library()[f"ml_fill_{target.dtype}"]
    return Operation(function, [target, np.array([value], target.dtype)], [target.size])


def record_operation(source: np.ndarray, history: np.ndarray, cursor: np.ndarray, row: int) -> Operation:
    """Appends the values of ``source`` to ``history`` (float64) at ``cursor`` (int64) and moves it on by ``row``."""
    return Operation(library()[f"ml_record_{source.dtype}"], [source, history, cursor], [source.size, row])


def replay(operations: list[Operation], times: int, seconds: np.ndarray, done: np.ndarray) -> None:
    """All operations in order until ``done`` (1,) is ``times``; adds to ``seconds`` (one per operation).

    Python gets its turn after a whole replay every ``PATIENCE`` seconds: then a signal raises what its handler raises,
    and ``done`` says how many replays there were.
    """
    count = len(operations)
    addresses = (ctypes.c_void_p * count)(*(o.address for o in operations))
    pointers = (ctypes.c_void_p * count)(*(ctypes.addressof(o.pointers) for o in operations))
    sizes = (ctypes.c_void_p * count)(*(ctypes.addressof(o.sizes) for o in operations))
    limits = ctypes.c_int64(times), ctypes.c_double(PATIENCE), ctypes.c_void_p(done.ctypes.data)
    tables = ctypes.c_int64(count), addresses, pointers, sizes, ctypes.c_void_p(seconds.ctypes.data)
    native = library().ml_replay
    while done[0] < times:
        native(*limits, *tables)


def copy_bandwidth(threads: int | None = None, megabytes: int = 128) -> float:
    """Bytes per second, read and written, of copying an array larger than the caches; measured once."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    used = cores if threads is None else whole("threads", threads, 1, max(1024, cores))
    return _copy_bandwidth(used, whole("megabytes to copy", megabytes, 1, 2**16) * 2**20 // 8)


@cache
def _copy_bandwidth(used: int, n: int) -> float:
    """The same of arrays of ``n`` doubles."""
    source, target = np.ones(n), np.zeros(n)
    best = library().ml_copy(
        ctypes.c_void_p(target.ctypes.data),
        ctypes.c_void_p(source.ctypes.data),
        ctypes.c_int64(n),
        ctypes.c_int64(7),
        ctypes.c_int64(used),
    )
    return 16 * n / best
