"""Replay of recorded operations in one native call, and the copy bandwidth of the machine (``runtime.cpp``)."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import ScheduleError, whole_number
from meshloom.native import threads as native_threads
from meshloom.native import together
from meshloom.native.ffi import address
from meshloom.native.machine import cpu_count

PATIENCE = 0.1  # seconds between looks at what else there is to do
TYPES = ("float64", "float32", "int64", "int32")  # of fields and globals


@cache
def library() -> ctypes.CDLL:
    """The runtime, compiled at first use."""
    found = together.load(_text(), "runtime")
    found.ml_copy.restype = ctypes.c_double
    found.ml_replay.restype = None
    return found


def begin() -> None:
    """Begin to compile it, among loops that are compiled at the same time."""
    if not library.cache_info().currsize:
        together.begin(_text(), "runtime")


def _text() -> str:
    return Path(__file__).with_name("runtime.cpp").read_text()


def _sizes(values: list[int]) -> list[int]:
    for value in values:
        if not -(2**63) <= value < 2**63:
            raise ScheduleError(f"compiled code counts in 64 bits, got {value}")
    return values


def _for_type(name: str, dtype: np.dtype) -> Any:
    """The version of a function of the runtime for values of a type."""
    if dtype.name not in TYPES:
        raise ScheduleError(f"{name}: values of {dtype} are not supported; allowed: {', '.join(TYPES)}")
    return library()[f"{name}_{dtype.name}"]


class NativeCall:
    """A native function with its tables: ``function(pointers, sizes)``. Keeps alive what the tables point to."""

    __slots__ = ("address", "call", "pinned", "pointers", "sizes")

    def __init__(self, function: ctypes._CFuncPtr, arrays: list[np.ndarray], sizes: list[int]):  # type: ignore[name-defined]
        self.pinned = (function, arrays)
        self.pointers = (ctypes.c_void_p * max(len(arrays), 1))(*map(address, arrays))
        self.sizes = (ctypes.c_int64 * max(len(sizes), 1))(*_sizes(sizes))
        self.address = ctypes.c_void_p.from_address(ctypes.addressof(function)).value  # cast would make it hold itself
        self.call = function

    def __call__(self) -> None:
        self.call(self.pointers, self.sizes)


def fill_operation(target: np.ndarray, value: float) -> NativeCall:
    """Sets every entry of a flat array."""
    function = _for_type("ml_fill", target.dtype)
    return NativeCall(function, [target, np.array([value], target.dtype)], [target.size])


def copy_operation(source: np.ndarray, target: np.ndarray) -> NativeCall:
    """Sets a flat array to the values of another one of its type and size."""
    if source.dtype != target.dtype or source.size != target.size:
        raise ScheduleError(f"a copy of {source.size} {source.dtype} to {target.size} {target.dtype}")
    return NativeCall(_for_type("ml_assign", target.dtype), [target, source], [target.size])


def record_operation(source: np.ndarray, history: np.ndarray, cursor: np.ndarray, row: int) -> NativeCall:
    """Appends the values of ``source`` to ``history`` (float64) at ``cursor`` (int64) and moves it on by ``row``."""
    if history.dtype != np.float64 or cursor.dtype != np.int64 or cursor.size != 1 or not 0 <= source.size <= row:
        raise ScheduleError(f"a history takes float64, an int64 cursor and up to {row} values, got {source.size}")
    return NativeCall(_for_type("ml_record", source.dtype), [source, history, cursor], [source.size, row])


def compare_operation(left: np.ndarray, sign: int, right: np.ndarray, answer: np.ndarray) -> NativeCall:
    """Sets ``answer`` (1,) to whether the first value of ``left`` is <, <=, > or >= (0 to 3) that of ``right``."""
    types = [TYPES.index(one.dtype.name) if one.dtype.name in TYPES and one.size else -1 for one in (left, right)]
    if min(types) < 0 or sign not in range(4) or answer.dtype != np.int64 or answer.size != 1:
        raise ScheduleError(f"a comparison takes two numbers of {', '.join(TYPES)}, got {left.dtype} and {right.dtype}")
    return NativeCall(library().ml_compare, [left, right, answer], [*types, sign])


def replay(
    operations: list[NativeCall], times: int, seconds: np.ndarray, done: np.ndarray, enough: np.ndarray | None = None
) -> None:
    """All operations in order until ``done`` (1,) is ``times``, or one of them has set ``enough`` (1,); adds to
    ``seconds`` (one per operation).

    Python gets its turn after a whole replay every ``PATIENCE`` seconds: then a signal raises what its handler raises,
    and ``done`` says how many replays there were.
    """
    count = len(operations)
    if seconds.dtype != np.float64 or seconds.size < count or not 0 <= times < 2**63:
        raise ScheduleError(f"a replay of {count} operations, {times} times, with {seconds.size} clocks")
    addresses = (ctypes.c_void_p * count)(*(o.address for o in operations))
    pointers = (ctypes.c_void_p * count)(*(ctypes.addressof(o.pointers) for o in operations))
    sizes = (ctypes.c_void_p * count)(*(ctypes.addressof(o.sizes) for o in operations))
    enough = np.zeros(1, np.int64) if enough is None else enough
    if any(one.dtype != np.int64 or one.size != 1 for one in (done, enough)):
        raise ScheduleError("a replay counts in one number of 64 bits")
    limits = ctypes.c_int64(times), ctypes.c_double(PATIENCE), *(ctypes.c_void_p(address(x)) for x in (done, enough))
    tables = ctypes.c_int64(count), addresses, pointers, sizes, ctypes.c_void_p(address(seconds))
    native = library().ml_replay
    while done[0] < times and not enough[0]:
        native(*limits, *tables)


def copy_bandwidth(threads: int | None = None, megabytes: int = 128) -> float:
    """Bytes per second, read and written, of copying an array larger than the caches; measured once."""
    cores = cpu_count()
    used = cores if threads is None else whole_number("threads", threads, 1, max(1024, cores))
    n = whole_number("megabytes to copy", megabytes, 1, 2**16) * 2**20 // 8
    return _copy_bandwidth(1 if native_threads.serial() else used, n)


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
