"""Numbers inside a kernel: which type NumPy sees in a symbol, a number or an array of them, and conversions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container
from types import CodeType, FrameType
from typing import Any, NoReturn, TypeVar

import numpy as np

from meshloom.errors import KernelError
from meshloom.kernel import expr
from meshloom.kernel.expr import BOOL, FLOAT64, INT64, Node

Where = tuple[str, int]

_HERE = os.path.dirname(os.path.abspath(__file__))
#: Frames of these files are not the user's: rooms that trace and call kernels, or whose objects a kernel may touch.
#: Rooms above them have kernels of their own.
_ROOMS = tuple(os.path.join(os.path.dirname(_HERE), room) for room in ("mesh", "operation", "backend", "recording"))
OWN_FOLDERS = (_HERE, *_ROOMS, os.path.dirname(os.path.abspath(np.__file__)))


_entrances: set[CodeType] = set()
F = TypeVar("F", bound=Callable[..., Any])


def enters_kernels(function: F) -> F:
    """Marks the function of the tracer that calls those of kernels: whoever has called it has no part in what these
    compute."""
    _entrances.add(function.__code__)
    return function


def kernel_line() -> Where | None:
    """File and line of what a kernel computes just now: of the innermost frame that is neither Meshloom's tracer nor
    NumPy's. None where no line of the kernel does, but the tracer by itself."""
    return _line(sys._getframe(1), _entrances)


def _line(frame: FrameType | None, end: Container[CodeType] = ()) -> Where | None:
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(OWN_FOLDERS):
            return code.co_filename, frame.f_lineno
        if code in end:
            return None
        frame = frame.f_back
    return None


def fail(message: str) -> NoReturn:
    """Raise a KernelError that names the user's line, in the kernel or, where that has none, the one that calls it."""
    where = _line(sys._getframe(1))
    place = f"{where[0]}:{where[1]}: " if where else ""
    raise KernelError(place + message)


class Value:
    """A scalar of the graph. ``Symbol`` adds what NumPy and Python can do with it."""

    __slots__ = ("node",)

    def __init__(self, node: Node):
        self.node = node

    @property
    def kind(self) -> expr.Kind:
        """The type that NumPy sees in it."""
        return self.node.dtype

    def to(self, dtype: np.dtype) -> Value:
        """In another type."""
        return type(self)(expr.cast(self.node, dtype))


#: What NumPy takes Python's numbers for when it makes an array of them.
_IN_ARRAYS: dict[expr.Kind, np.dtype] = {int: INT64, float: FLOAT64}


def known_type(dtype: Any) -> np.dtype:
    """A type by any of NumPy's names for it, if kernels compute with it."""
    found = np.dtype(dtype)
    if found not in expr.C_TYPES:
        fail(f"a kernel computes with {', '.join(map(str, expr.C_TYPES))}, not with {found}")
    return found


def check_kind(value: Any, dtype: np.dtype, what: str) -> None:
    """What is added to something, or computed in its place, must be of its kind: NumPy does not truncate there."""
    kind = type_of(value) or np.result_type(*(_IN_ARRAYS.get(k, k) for k in map(kind_of, objects(value).flat)))
    if not np.can_cast(kind, dtype, "same_kind"):
        fail(
            f"{what} is {dtype} and cannot take {kind} in by combining: digits would be lost term by term; make it a"
            " float, or convert with astype first"
        )


def kind_of(value: Any) -> expr.Kind:
    """The type of a number; int or float for those of Python, which are weak."""
    if isinstance(value, Value):
        return value.kind
    if isinstance(value, np.generic):
        return value.dtype
    if isinstance(value, np.ndarray) and value.ndim == 0 and plain(value).dtype != object:
        return value.dtype
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int | float):
        return int if isinstance(value, int) else float
    remedy = "; pass it as an argument of the loop" if hasattr(value, "check_visible") else ""
    fail(f"a kernel computes with numbers, not with {type(value).__name__}{remedy}")


def type_of(value: Any) -> np.dtype | None:
    """The type that NumPy's array of these symbols and numbers has; None where all are Python's, which are weak."""
    if isinstance(value, np.ndarray) and plain(value).dtype != object:
        return value.dtype
    kinds = {kind_of(v) for v in (plain(value).flat if isinstance(value, np.ndarray) else (value,))}
    typed = [k for k in kinds if isinstance(k, np.dtype)]
    return np.result_type(*typed) if typed else None


def to_node(value: Any, dtype: np.dtype) -> Node:
    """A node for a symbol or a number, in a type."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return to_node(value[()], dtype)
    kind_of(value)
    if isinstance(value, Value):
        return value.to(dtype).node
    try:
        return expr.const(value, dtype)
    except OverflowError as error:
        fail(f"{error}; use np.int64({value}) where that is meant")


def in_type(value: Any, dtype: np.dtype) -> Any:
    """Symbols and numbers, or an array of them, in a type: as an array of that type would keep them."""
    if isinstance(value, np.ndarray):
        result = np.empty(value.shape, object)
        for index in np.ndindex(value.shape):
            result[index] = in_type(plain(value)[index], dtype)
        return result
    if isinstance(value, Value):
        return value.to(dtype)
    kind_of(value)
    return dtype.type(value) if isinstance(value, int) and dtype.kind == "i" else expr.convert(value, dtype)[()]


def uniform(array: np.ndarray) -> np.ndarray:
    """Symbols and numbers of different types in their common one, as NumPy does when it makes an array of them.

    Python's numbers count as int64 and float64 there: weak are only those that stand by themselves.
    """
    kinds = {kind_of(v) for v in array.flat}
    types = {_IN_ARRAYS.get(k, k) for k in kinds}
    if not kinds or (kinds == types and len(kinds) == 1):
        return array
    made: np.ndarray = in_type(array, np.result_type(*types))
    return made


def typed(value: Any) -> np.ndarray:
    """Anything as an array of symbols and numbers of one type, as NumPy does for the arguments of its functions."""
    return uniform(objects(value))


def widened(array: Any, dtype: np.dtype) -> np.ndarray:
    """Integers and truth values in a wider type, floats as they are."""
    values = objects(array)
    found = type_of(values)
    return values if found is None or found.kind == "f" else in_type(values, dtype)


def plain(value: Any) -> Any:
    """The plain array under a subclass (a view), anything else as it is."""
    return value.view(np.ndarray) if isinstance(value, np.ndarray) and type(value) is not np.ndarray else value


def objects(value: Any) -> np.ndarray:
    """Anything as an object array of symbols and numbers, without NumPy looking inside symbols."""
    if isinstance(value, np.ndarray) and type(value) is not np.ndarray and plain(value).dtype == object:
        return plain(value)  # an array of symbols, which has one type
    if isinstance(value, np.ndarray):
        return uniform(value) if value.dtype == object else _typed(value)
    if isinstance(value, list | tuple):
        rows = [objects(v) for v in value]
        result = np.empty((len(rows), *rows[0].shape) if rows else (0,), object)
        for k, row in enumerate(rows):
            result[k] = row[()] if row.ndim == 0 else row
        return uniform(result)
    result = np.empty((), object)
    result[()] = value
    return result


def _typed(array: np.ndarray) -> np.ndarray:
    """An array of numbers as an object array of NumPy's numbers, which keep their type."""
    result = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        result[index] = array[index]
    return result
