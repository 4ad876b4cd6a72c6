"""Symbols: scalars and arrays that record what NumPy does with them.

A ``Symbol`` is a scalar that records operations; a ``SymbolArray`` is a NumPy array of symbols, so slicing,
broadcasting and unpacking are NumPy's own.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from meshloom.errors import KernelError
from meshloom.kernel import expr
from meshloom.kernel.expr import BOOL, FLOAT64, INT64, Node
from meshloom.kernel.model import Param

Where = tuple[str, int]

_UFUNCS: dict[Any, str] = {op.numpy: name for name, op in expr.OPS.items() if isinstance(op.numpy, np.ufunc)}
_UFUNCS |= {np.fabs: "abs", np.float_power: "pow"}
OWN_FOLDERS = (os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.abspath(np.__file__)))


def user_line() -> Where | None:
    """File and line of the innermost frame that is neither Meshloom's tracer nor NumPy's."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(OWN_FOLDERS):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def fail(message: str) -> NoReturn:
    """Raise a KernelError that names the user's line."""
    where = user_line()
    place = f"{where[0]}:{where[1]}: " if where else ""
    raise KernelError(place + message)


class Symbol:
    """A scalar value inside a kernel while it is traced."""

    __slots__ = ("node",)
    __hash__ = object.__hash__

    def __init__(self, node: Node):
        self.node = node

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply_function(func, args, kwargs)

    def __bool__(self) -> bool:
        fail(
            "a kernel cannot branch on a value known only at run time (`if`, `while`, `and`, `or`, min(), max());"
            " use np.where, np.minimum, np.maximum or & and | (np.maximum of np.array([...]): build it with np.stack)"
        )

    def _number(self) -> NoReturn:
        fail(
            "a value that is known only at run time cannot become a Python number here; use NumPy functions (np.sqrt,"
            " not math.sqrt) and build arrays with lists or np.stack instead of filling np.zeros"
        )

    def __float__(self) -> float:
        self._number()

    def __int__(self) -> int:
        self._number()

    def __index__(self) -> int:
        fail("a value that is known only at run time cannot be an index or a loop count; use a map, or np.where")

    def __setitem__(self, key: Any, value: Any) -> None:
        fail("a parameter that is Read is written here; annotate it Write, ReadWrite or Inc")

    def __repr__(self) -> str:
        return f"<symbol {self.node!r}>"

    # ndarray's look, for helper functions that take scalars and arrays alike
    shape = ()
    ndim = 0


def _binary(ufunc: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: Symbol, other: Any) -> Any:
        return NotImplemented if isinstance(other, np.ndarray) else apply_ufunc(ufunc, "__call__", (self, other), {})

    def backward(self: Symbol, other: Any) -> Any:
        return NotImplemented if isinstance(other, np.ndarray) else apply_ufunc(ufunc, "__call__", (other, self), {})

    return forward, backward


_ufunc: Any
for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}.items():  # fmt: skip
    _forward, _backward = _binary(_ufunc)
    setattr(Symbol, f"__{_name}__", _forward)
    setattr(Symbol, f"__r{_name}__", _backward)
for _name, _ufunc in {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
                      "eq": np.equal, "ne": np.not_equal}.items():  # fmt: skip
    setattr(Symbol, f"__{_name}__", _binary(_ufunc)[0])
for _name, _ufunc in {"neg": np.negative, "abs": np.absolute, "invert": np.logical_not}.items():
    setattr(Symbol, f"__{_name}__", lambda self, u=_ufunc: apply_ufunc(u, "__call__", (self,), {}))
setattr(Symbol, "__pos__", lambda self: self)  # noqa: B010  mypy reads +Symbol otherwise
for _ufunc, _name in list(_UFUNCS.items()):  # NumPy's loops over object arrays call methods: np.sqrt(np.array([s]))
    if _ufunc.nin == 1 and not hasattr(Symbol, _ufunc.__name__):
        setattr(Symbol, _ufunc.__name__, lambda self, u=_ufunc: apply_ufunc(u, "__call__", (self,), {}))


class SymbolArray(np.ndarray):
    """An object array whose elements are symbols (or plain numbers)."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply_function(func, args, kwargs)

    def __index__(self) -> int:
        return self[()].__index__() if self.ndim == 0 else super().__index__()

    def __setitem__(self, key: Any, value: Any) -> None:
        param = owner_of(self)
        if param is not None and not param.mode.writes:
            fail(
                f"parameter {param.name} is {param.mode.__name__} but is written here;"
                " annotate it Write, ReadWrite or Inc"
            )
        if isinstance(value, list | tuple):
            value = _objects(value)
        if param is not None and param.mode.combine in ("minimum", "maximum"):
            ufunc = np.minimum if param.mode.combine == "minimum" else np.maximum
            value = apply_ufunc(ufunc, "__call__", (_plain(self)[key], value), {})
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        _plain(self)[key] = value


def _plain(value: Any) -> Any:
    """The object array under a SymbolArray (a view), anything else as it is."""
    return value.view(np.ndarray) if isinstance(value, SymbolArray) else value


def _objects(value: Any) -> np.ndarray:
    """Anything as an object array of symbols and numbers, without NumPy looking inside symbols."""
    if isinstance(value, np.ndarray):
        return _plain(value) if value.dtype == object else value.astype(object)
    if isinstance(value, list | tuple):
        rows = [_objects(v) for v in value]
        result = np.empty((len(rows), *rows[0].shape) if rows else (0,), object)
        for k, row in enumerate(rows):
            result[k] = row[()] if row.ndim == 0 else row
        return result
    result = np.empty((), object)
    result[()] = value
    return result


def _wrap(value: Any) -> Any:
    """Results as NumPy gives them: a scalar for zero dimensions, else an array of symbols."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value[()] if value.ndim == 0 else value.view(SymbolArray)
    if isinstance(value, tuple | list):
        return type(value)(_wrap(v) for v in value)
    return value


def to_node(value: Any, like: Sequence[np.dtype] = ()) -> Node:
    """A node for a symbol or a number. Numbers are weak: they take the type of what they meet."""
    if isinstance(value, Symbol):
        return value.node
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return to_node(value[()], like)
    if not isinstance(value, bool | int | float | np.number | np.bool_):
        fail(f"a kernel computes with numbers, not with {type(value).__name__}")
    if isinstance(value, bool | np.bool_):
        return expr.const(value, BOOL)
    integer = isinstance(value, int | np.integer)
    kinds = [d for d in like if d != BOOL]
    if kinds and (integer or any(d.kind == "f" for d in kinds)):
        return expr.const(value, np.result_type(*kinds))
    return expr.const(value, INT64 if integer else FLOAT64)


def scalar_operation(name: str, *operands: Any) -> Any:
    """One operation on scalars. Plain numbers among themselves are computed at once."""
    if not any(isinstance(v, Symbol) for v in operands):
        return expr.OPS[name].numpy(*operands)
    where = user_line()
    voters = operands[1:] if name == "where" else operands
    like = [v.node.dtype for v in voters if isinstance(v, Symbol)]
    return Symbol(expr.operate(name, (to_node(v, like) for v in operands), where))


@functools.cache
def _elementwise(name: str) -> Any:
    return np.frompyfunc(functools.partial(scalar_operation, name), len_arguments(name), 1)


def len_arguments(name: str) -> int:
    """How many arguments an operation takes."""
    numpy = expr.OPS[name].numpy
    return numpy.nin if isinstance(numpy, np.ufunc) else 3


def elementwise(name: str, *operands: Any) -> Any:
    """An operation on arrays of symbols, broadcast as NumPy does."""
    return _elementwise(name)(*(_objects(v) for v in operands))


def apply_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What NumPy does for ``ufunc`` when a symbol is among the inputs."""
    out = kwargs.pop("out", None)
    if method == "reduce":
        result = _reduce(ufunc, inputs[0], **kwargs)
    elif method != "__call__" or kwargs:
        fail(
            f"np.{ufunc.__name__}{'' if method == '__call__' else '.' + method} with"
            f" {', '.join(kwargs) or 'these arguments'} is not supported in a kernel"
        )
    else:
        result = _call_ufunc(ufunc, inputs)
    if out is None:
        return _wrap(result)
    return _store(out[0], result)


def _call_ufunc(ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    if ufunc is np.matmul:
        return np.matmul(*(_objects(v) for v in inputs))
    if ufunc is np.square:
        return elementwise("mul", inputs[0], inputs[0])
    if ufunc is np.reciprocal:
        return elementwise("div", 1.0, inputs[0])
    if ufunc is np.positive:
        return _objects(inputs[0])
    if ufunc in (np.logical_and, np.logical_or):
        truth = [elementwise("ne", v, 0) for v in inputs]
        return elementwise("and" if ufunc is np.logical_and else "or", *truth)
    if ufunc not in _UFUNCS:
        fail(f"np.{ufunc.__name__} is not supported in a kernel")
    return elementwise(_UFUNCS[ufunc], *inputs)


def _reduce(ufunc: Any, array: Any, axis: Any = 0, keepdims: bool = False, **others: Any) -> Any:
    values = _objects(array)
    if any(v is not None and v is not np._NoValue for k, v in others.items() if k != "where") or values.size == 0:
        fail(f"np.{ufunc.__name__}.reduce with {', '.join(others) or 'no values'} is not supported in a kernel")
    axes = tuple(range(values.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for one in sorted((a % values.ndim for a in axes), reverse=True):
        values = np.asarray(
            functools.reduce(lambda a, b: _call_ufunc(ufunc, (a, b)), np.moveaxis(values, one, 0)), object
        )
        if keepdims:
            values = np.expand_dims(values, one)
    return values


def _store(target: Any, result: Any) -> Any:
    """``out=`` and in-place operators: write through the array so that access modes are checked."""
    if not isinstance(target, SymbolArray):
        fail(
            "a value that is known only at run time cannot be stored in an array of plain numbers;"
            " build the array with a list or np.stack"
        )
    target[...] = result
    return target


# Functions that only move elements or use + and *: NumPy's own code for object arrays does the right thing.
_GENERIC = {
    np.sum, np.prod, np.dot, np.inner, np.outer, np.vdot, np.einsum, np.tensordot, np.cross, np.trace, np.cumsum,
    np.mean, np.diff, np.stack, np.concatenate, np.hstack, np.vstack, np.column_stack, np.transpose, np.reshape,
    np.ravel, np.moveaxis, np.swapaxes, np.roll, np.flip, np.squeeze, np.expand_dims, np.broadcast_to, np.diagonal,
    np.diag, np.take, np.repeat, np.tile, np.split, np.array_split, np.atleast_1d, np.atleast_2d, np.copy, np.append,
    np.ones_like, np.zeros_like, np.broadcast_arrays, np.shape, np.ndim, np.size, np.insert, np.delete,
}  # fmt: skip


def apply_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What NumPy does for a function (not a ufunc) when a symbol is among the arguments."""
    if func is np.where and len(args) == 3 and not kwargs:
        return _wrap(elementwise("where", *args))
    if func in (np.max, np.min, np.amax, np.amin):
        return _wrap(_reduce(np.maximum if func in (np.max, np.amax) else np.minimum, *args, **{"axis": None} | kwargs))
    if func in (np.any, np.all):
        return _wrap(_reduce(np.logical_or if func is np.any else np.logical_and, *args, **{"axis": None} | kwargs))
    if func is np.clip:
        return _clip(*args, **kwargs)
    if func is np.linalg.norm and len(args) == 1 and not kwargs:
        flat = _objects(args[0]).ravel()
        return _wrap(elementwise("sqrt", np.dot(flat, flat)))
    if func is np.linalg.det:
        return _determinant(_objects(args[0]))
    if func not in _GENERIC:
        fail(f"np.{getattr(func, '__name__', func)} is not supported in a kernel")
    return _wrap(func(*_strip(args), **{k: _strip(v) for k, v in kwargs.items()}))


def _strip(value: Any) -> Any:
    if isinstance(value, Symbol):
        return _objects(value)
    if isinstance(value, tuple | list):
        return type(value)(_strip(v) for v in value)
    return _plain(value)


def _clip(value: Any, low: Any = None, high: Any = None) -> Any:
    for bound, name in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            value = elementwise(name, value, bound)
    return _wrap(np.asarray(value, object))


def _determinant(matrix: np.ndarray) -> Any:
    """By expansion along the first row; meant for the small matrices of geometry."""
    n = matrix.shape[0]
    if matrix.shape != (n, n):
        fail(f"np.linalg.det wants a square matrix, got {matrix.shape}")
    if n == 1:
        return matrix[0, 0]
    return sum((-1) ** k * matrix[0, k] * _determinant(np.delete(matrix[1:], k, axis=1)) for k in range(n))


# --- which parameter an array shows --------------------------------------------------------------------------------
params_by_array: dict[int, Param] = {}


def owner_of(array: SymbolArray) -> Param | None:
    """The parameter whose values an array shows, if any: views lead back to it, copies do not."""
    root: Any = array
    while isinstance(root, np.ndarray) and id(root) not in params_by_array:
        root = root.base
    return None if root is None else params_by_array.get(id(root))
