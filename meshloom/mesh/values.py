"""Values that a person gives, as those of one of the types that fields have.

Casting is NumPy's "same_kind": integers may become floating numbers, and a type a narrower one of its kind; floating
numbers never become integers, and what is no real number (complex, text, None, objects, masked entries) nothing at all.
Integers that do not fit are refused. As in NumPy, doubles beyond single precision become infinite.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from meshloom.errors import MeshError, is_text, shown
from meshloom.native import machine

FIELD_DTYPES = tuple(np.dtype(t) for t in ("float32", "float64", "int32", "int64"))
#: In the order of preference: the first that holds every value of a type.
_HOLDING = tuple(np.dtype(t) for t in ("int32", "int64", "float32", "float64"))
_KINDS = "biuf"


def as_bytes(values: np.ndarray) -> np.ndarray:
    """The memory of values, one behind the other, as bytes (n,)."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def as_array(values: ArrayLike, what: str) -> np.ndarray:
    """``values`` as an array of real numbers. ``what`` they are of begins the message: "field q"."""
    ma = sys.modules.get("numpy.ma")  # which takes its time to import: nobody has masked values who has not
    if ma is not None and isinstance(values, ma.MaskedArray) and ma.getmaskarray(values).any():
        raise MeshError(f"{what}: masked entries have no value; fill them first, as in data.filled(0.0)")
    try:
        array = np.asarray(values)
    except MeshError:
        raise
    except Exception as problem:  # NumPy's own, of lists of unequal length, or of somebody's __array__
        raise MeshError(f"{what}: expected an array of numbers, got {shown(values)}: {problem}") from None
    if array.dtype.kind in _KINDS:
        return array
    if not isinstance(values, np.ndarray) and array.size and all(type(one) is int for one in array.flat):
        return _from_large_ints(array, what)
    hint = "; take its .real or .imag" if array.dtype.kind == "c" else ""
    kind = f"{array.dtype} values" if array.dtype != object else "Python objects"
    raise MeshError(f"{what}: expected real numbers, got {kind} such as {_example(array)}{hint}")


def same_kind(values: ArrayLike, dtype: np.dtype, what: str) -> np.ndarray:
    """``values`` as an array of ``dtype``, cast as the module's docstring says, or MeshError."""
    array = as_array(values, what)
    if array.dtype == dtype:
        return array
    if dtype.kind == "i":
        _check_integers(array, dtype, what)
    with np.errstate(over="ignore", under="ignore"):
        return array.astype(dtype)


def whole_numbers(values: ArrayLike, what: str) -> np.ndarray:
    """``values`` as an array of integers (no bools), of whatever type they are; an empty array passes."""
    array = as_array(values, what)
    if array.dtype.kind not in "iu" and array.size:
        raise MeshError(f"{what} must be integers, got {array.dtype}")
    return array if array.dtype.kind in "iu" else array.astype(np.int64)


def field_dtype(dtype: DTypeLike | None, values: ArrayLike | None, what: str) -> np.dtype:
    """The given type; else the first of int32, int64, float32, float64 that holds those of ``values``; else float64."""
    if dtype is None:
        if values is None:
            return np.dtype(np.float64)
        found = as_array(values, what).dtype.newbyteorder("=")
        if found == np.uint64:  # NumPy calls float64 safe for it, which it is not
            return np.dtype(np.int64)
        return next((t for t in _HOLDING if np.can_cast(found, t)), np.dtype(np.float64))
    return known_dtype(dtype, FIELD_DTYPES, f"{what}: type")


def known_dtype(dtype: DTypeLike, allowed: tuple[np.dtype, ...], what: str) -> np.dtype:
    """``dtype`` as one of the ``allowed``, or MeshError that begins with ``what``."""
    try:
        chosen = np.dtype(dtype).newbyteorder("=")
    except Exception:  # NumPy raises several kinds
        chosen = np.dtype(object)
    if chosen not in allowed:
        name = shown(dtype) if chosen.kind == "O" else str(chosen)
        raise MeshError(f"{what} {name} is not supported; allowed: {', '.join(map(str, allowed))}")
    return chosen


def _from_large_ints(array: np.ndarray, what: str) -> np.ndarray:
    """Python's whole numbers (an array of objects) that no integer of NumPy holds."""
    try:
        return array.astype(np.float64)
    except OverflowError:
        largest = shown(max(array.flat, key=abs))
        raise MeshError(f"{what}: {largest} is larger than every number that a field can hold") from None


def _check_integers(array: np.ndarray, dtype: np.dtype, what: str) -> None:
    if array.dtype.kind == "f":
        raise MeshError(
            f"{what} holds {dtype}, got {array.dtype} such as {_example(array)}; make it float64, or give it integers,"
            f" as np.rint(data).astype('{dtype}') does"
        )
    limits = np.iinfo(dtype)
    if array.dtype.kind != "b" and array.size and (array.min() < limits.min or array.max() > limits.max):
        wrong = array[(array < limits.min) | (array > limits.max)][0]
        wider = "; int64 holds more" if dtype == np.int32 else ""
        raise MeshError(f"{what} holds {dtype}, {limits.min} to {limits.max}, got {wrong}{wider}")


def _example(array: np.ndarray) -> str:
    """One of the values: the first that is the reason to refuse them, where there is one."""
    flat = array.reshape(-1)
    if array.dtype.kind == "f":
        flat = np.concatenate((flat[flat != np.rint(flat)], flat))
    elif array.dtype == object:
        flat = np.array([x for x in flat if not isinstance(x, int | float)] or list(flat), object)
    elif array.dtype.kind == "c":
        flat = np.concatenate((flat[flat.imag != 0], flat))
    return shown(flat[0].item() if isinstance(flat[0], np.generic) else flat[0]) if len(flat) else "none"


@contextmanager
def enough_memory(what: str, values: int, itemsize: int) -> Iterator[None]:
    """MeshError, in one line, where so many values do not fit into memory: systems promise more than they have."""
    try:
        if values * itemsize > machine.memory():
            raise MemoryError
        yield
    except MemoryError:
        size = f"{values * itemsize / 1e9:,.1f} GB"
        raise MeshError(f"{what}: {values:,} values need {size}, more memory than can be had here") from None


def named(what: str, name: object) -> str:
    """A name, if it is a string; ``what`` has it: "a field"."""
    if not isinstance(name, str):
        raise MeshError(f"{what} has a name, a string; got {shown(name)}")
    if not is_text(name):
        raise MeshError(f"{what} has a name that files can hold: {shown(name)} has NUL or half a character in it")
    return name


def one_number(value: Any, dtype: np.dtype, what: str) -> Any:
    """``value`` as a Python number that the type holds."""
    number = same_kind(value, dtype, what)
    if number.ndim:
        raise MeshError(f"{what}: expected one number, got an array of shape {number.shape}")
    return number.item()


def index_dtype(targets: int, dtype: DTypeLike | None, name: str) -> np.dtype:
    """The type of a map's entries: as small as it may be unless asked for."""
    if dtype is None:
        return np.dtype(np.int32 if targets < 2**31 else np.int64)
    chosen = known_dtype(dtype, (np.dtype(np.int32), np.dtype(np.int64)), f"map {name}: index type")
    if targets > np.iinfo(chosen).max + 1:
        raise MeshError(f"map {name}: int32 cannot name all {targets} elements of its target; use int64")
    return chosen
