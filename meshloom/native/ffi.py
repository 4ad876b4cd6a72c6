"""Calling the native sources of this folder: compile at first use, hand over arrays, check what was handed over.

The C++ side trusts its arguments, so every index array passes through ``as_indices`` or ``as_order`` first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, RunError, ScheduleError, shown, whole_number
from meshloom.native import together
from meshloom.native.compiler import LOOP_FLAGS

MOST_TARGETS = 2**40  # as many as a set may have
_RUNTIME, _MEASURES = "runtime", "peaks"  # the first is loaded by itself; runs do not need the other
_OF_MOST_PLANS = ("incidence", "tiles")
_HERE = Path(__file__).parent
_INDEX_TYPES = (np.dtype(np.int32), np.dtype(np.int64))


@cache
def library(name: str) -> ctypes.CDLL:
    """The compiled ``<name>.cpp`` of this folder."""
    return together.load(_text(name), name, extra_flags=LOOP_FLAGS if name == _MEASURES else ())


def begin_early() -> None:
    """Begin to compile all of them where each has a core to itself: which ones a mesh and its plans will call nobody
    knows before they do, and each would then be waited for by itself. With fewer cores those that most plans of a CPU
    are made with, while a core has nothing else to do."""
    if library.cache_info().currsize:
        return
    names = libraries()
    for name in names if together.has_spare_cores(len(names)) else _OF_MOST_PLANS:
        together.begin_apart(_text(name), name)


def libraries() -> list[str]:
    """The names of all that ``library`` knows and that a run may need."""
    return sorted(file.stem for file in _HERE.glob("*.cpp") if file.stem not in (_RUNTIME, _MEASURES))


def _text(name: str) -> str:
    texts = [(_HERE / file).read_text(encoding="utf-8") for file in ("common.hpp", f"{name}.cpp")]
    return f'{texts[0]}\n#line 1 "{name}.cpp"\n{texts[1]}'


def call(name: str, function: str, *arguments: object) -> None:
    """Call ``function`` of ``library(name)``: arrays go as pointers, lists of arrays as tables of pointers."""
    status = getattr(library(name), function)(*map(_to_c, arguments))
    if status:
        raise RunError(f"{function} ran out of memory")


def _to_c(argument: object) -> object:
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(address(argument))
    if isinstance(argument, list):
        return (ctypes.c_void_p * len(argument))(*map(address, argument))
    if isinstance(argument, float):
        return ctypes.c_double(argument)
    return ctypes.c_int64(whole_number("a number for native code", argument, -(2**63), 2**63 - 1, error=MeshError))


def address(array: np.ndarray) -> int:
    """Where the values of an array begin: ScheduleError unless compiled code can walk through it."""
    if not isinstance(array, np.ndarray):
        raise ScheduleError(f"compiled code takes NumPy arrays in host memory, got {type(array).__name__}")
    if not (array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative and not array.dtype.hasobject):
        raise ScheduleError(
            f"compiled code takes arrays of numbers in one piece, aligned, in the byte order of the machine; got"
            f" {array.dtype.str} of shape {array.shape} with strides {array.strides}"
        )
    return int(array.ctypes.data)


def empty(size: int, dtype: type) -> np.ndarray:
    """An array for results; one line where there is no room for it."""
    try:
        return np.empty(size, dtype)
    except MemoryError:
        raise MeshError(f"{size:,} numbers of {np.dtype(dtype)} do not fit into memory; are there so many?") from None


def suffix(array: np.ndarray) -> str:
    """``"i32"`` or ``"i64"``: which version of a function takes this index array."""
    return "i32" if array.dtype == np.int32 else "i64"


def as_indices(indices: ArrayLike, n_targets: int) -> np.ndarray:
    """Indices as a contiguous (n, arity) array of int32 or int64, every one in [0, n_targets)."""
    n_targets = whole_number("the number of targets", n_targets, 0, MOST_TARGETS, error=MeshError)
    array = _integers(indices, "indices")
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or array.shape[1] < 1:
        raise MeshError(f"indices have shape {array.shape}, expected (n, arity) with arity from 1")
    _check_range(array, n_targets, "index")
    # Numbers of rows and targets are kept in the type of the indices.
    needs_64_bits = max(n_targets, len(array)) >= 2**31
    return np.ascontiguousarray(array, np.int64 if needs_64_bits else None)


def _integers(values: ArrayLike, what: str) -> np.ndarray:
    """Values as an array of int32 or int64; they are whole numbers to begin with, or there are none."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise MeshError(f"{what} must be an array of integers, got {shown(values)}") from None
    if array.dtype in _INDEX_TYPES:
        return array
    if array.size and (array.dtype.kind not in "iu" or array.max() > np.iinfo(np.int64).max):
        raise MeshError(f"{what} must be integers of at most 64 bits, got {array.dtype}")
    return array.astype(np.int64)


def as_order(order: ArrayLike, n: int) -> np.ndarray:
    """Element numbers in [0, n) as a contiguous int64 array."""
    array = np.ascontiguousarray(_integers(order, "an order"), np.int64)
    if array.ndim != 1:
        raise MeshError(f"an order has shape {array.shape}, expected one dimension")
    _check_range(array, n, "element")
    return array


def as_permutation(order: ArrayLike, n: int) -> np.ndarray:
    """``as_order``, holding every number of [0, n) once."""
    array = as_order(order, n)
    if len(array) != n or (n and np.bincount(array, minlength=n).max() > 1):
        raise MeshError(f"an order of {n} elements must hold every number from 0 to {n - 1} once")
    return array


def as_offsets(offsets: ArrayLike, n: int) -> np.ndarray:
    """Block offsets 0 = o[0] <= o[1] <= ... <= o[nb] = n as a contiguous int64 array."""
    array = np.ascontiguousarray(_integers(offsets, "block offsets"), np.int64)
    if array.ndim != 1 or len(array) < 1 or array[0] != 0 or array[-1] != n or (np.diff(array) < 0).any():
        raise MeshError(f"block offsets must rise from 0 to {n}, the number of elements in blocks")
    return array


def same_type(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The index arrays in one common type, the wider one where they differ."""
    common = np.dtype(np.int64) if any(a.dtype == np.int64 for a in arrays) else np.dtype(np.int32)
    return [np.ascontiguousarray(a, common) for a in arrays]


def _check_range(array: np.ndarray, limit: int, what: str) -> None:
    if array.size and (array.min() < 0 or array.max() >= limit):
        where = np.unravel_index(int(np.argmax((array < 0) | (array >= limit))), array.shape)
        place = ", slot ".join(str(int(i)) for i in where)
        raise MeshError(f"{what} {array[where]} at row {place} is out of range: there are {limit}")
