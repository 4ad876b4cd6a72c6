"""Symbols: scalars and arrays that record what NumPy does with them.

A ``Symbol`` is a scalar that records operations; a ``SymbolArray`` is a NumPy array of symbols, so slicing,
broadcasting and unpacking are NumPy's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from meshloom.kernel import dense, expr, lookup
from meshloom.kernel.expr import BOOL, FLOAT32, FLOAT64, INT64
from meshloom.kernel.model import Param, owner_of
from meshloom.kernel.operands import OF_SEQUENCES, named, positional
from meshloom.kernel.values import (
    Value,
    check_kind,
    fail,
    in_type,
    kernel_line,
    kind_of,
    known_type,
    objects,
    plain,
    to_node,
    type_of,
    typed,
    uniform,
    widened,
)  # fmt: skip

_UFUNCS: dict[Any, str] = {op.numpy: name for name, op in expr.OPS.items() if isinstance(op.numpy, np.ufunc)}
_UFUNCS |= {np.fabs: "abs", np.float_power: "pow"}


class Symbol(Value):
    """A scalar value inside a kernel while it is traced."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply_function(func, args, kwargs)

    def __bool__(self) -> bool:
        fail(
            "a kernel cannot branch on a value known only at run time (`if`, `while`, `and`, `or`, min(), max());"
            " use np.where, np.minimum, np.maximum or & and |"
        )

    def _number(self) -> NoReturn:
        fail(
            "a value that is known only at run time cannot become a Python number here; use NumPy functions (np.sqrt,"
            " not math.sqrt) and build arrays with lists or np.stack instead of filling np.zeros"
        )

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        fail(
            "NumPy cannot make an array of values that are known only at run time by itself here: of a list make"
            " np.stack([...]) or np.array([...]), and look a table up as np.asarray(table)[k]"
        )

    def __float__(self) -> float:
        self._number()

    def __int__(self) -> int:
        self._number()

    def __index__(self) -> int:
        fail(
            "a value that is known only at run time cannot be a loop count, nor say where something is set; an index of"
            " a Global it can be, or of an array that the kernel reads by name, of any other as np.asarray(table)[k]"
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        fail("a parameter that is Read is written here; annotate it Write, ReadWrite or Inc")

    def __repr__(self) -> str:
        return f"<symbol {self.node!r}>"

    def astype(self, dtype: Any) -> Symbol:
        """In another type, as NumPy's numbers."""
        return Symbol(expr.cast(self.node, known_type(dtype)))

    def conjugate(self) -> Symbol:
        """Itself: NumPy asks for it in np.vdot."""
        return self

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    # ndarray's look, for helper functions that take scalars and arrays alike
    shape = ()
    ndim = 0

    @property
    def dtype(self) -> np.dtype:
        return self.node.dtype


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
    "lshift": np.left_shift, "rshift": np.right_shift,
}.items():  # fmt: skip
    _forward, _backward = _binary(_ufunc)
    setattr(Symbol, f"__{_name}__", _forward)
    setattr(Symbol, f"__r{_name}__", _backward)
for _name, _ufunc in {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
                      "eq": np.equal, "ne": np.not_equal}.items():  # fmt: skip
    setattr(Symbol, f"__{_name}__", _binary(_ufunc)[0])
for _name, _ufunc in {"neg": np.negative, "abs": np.absolute, "invert": np.invert, "pos": np.positive}.items():
    setattr(Symbol, f"__{_name}__", lambda self, u=_ufunc: apply_ufunc(u, "__call__", (self,), {}))
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

    def __getitem__(self, key: Any) -> Any:
        if not lookup.is_symbolic(key):
            return super().__getitem__(key)
        param = owner_of(self)
        return looked_up(plain(self), key, "what is indexed here" if param is None else param.name)

    @property
    def dtype(self) -> np.dtype:
        """That of the values; NumPy itself sees objects."""
        return type_of(self) or np.dtype(object)

    def astype(self, dtype: Any, *others: Any, **named: Any) -> Any:
        """Every element in another type."""
        return _wrap(in_type(objects(self), known_type(dtype)))

    def __setitem__(self, key: Any, value: Any) -> None:
        param = owner_of(self)
        if param is not None and not param.mode.writes:
            fail(
                f"parameter {param.name} is {param.mode.shown} but is written here;"
                " annotate it Write, ReadWrite or Inc"
            )
        if isinstance(value, list | tuple):
            value = objects(value)
        dtype = param.dtype if param is not None else type_of(self)
        if param is not None and param.mode.combine:
            check_kind(value, param.dtype, _described(param))
        if param is not None and param.mode.combine in ("minimum", "maximum"):
            value = _offered(param, plain(self)[key], value)
        value = objects(value)
        into, made = plain(self), value if dtype is None else in_type(value, dtype)
        if isinstance(into[key], np.ndarray):
            into[key] = made
        else:
            into[key] = made[()] if made.ndim == 0 else made


def _by_function(function: Any) -> Any:
    @functools.wraps(function)
    def method(self: SymbolArray, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return method


for _name in ("mean", "cumsum", "var", "std", "trace", "clip"):  # an array's own would add up without looking at types
    setattr(SymbolArray, _name, _by_function(getattr(np, _name)))


def looked_up(array: np.ndarray, key: Any, name: str) -> Any:
    """``array[key]``, where the key has symbols in it."""
    return _wrap(_of_nodes(lookup.at(array, key, name)))


_of_nodes = np.frompyfunc(Symbol, 1, 1)


def _offered(param: Param, before: Any, value: Any) -> Any:
    """A value offered to a Min or Max, merged with what is there; beyond the type's integers it is the last one."""
    ufunc = np.minimum if param.mode.combine == "minimum" else np.maximum
    if param.dtype.kind == "i" and type_of(value) not in (None, param.dtype):
        ends = np.iinfo(param.dtype)
        value = in_type(_clip(value, np.int64(ends.min), np.int64(ends.max)), param.dtype)
    return apply_ufunc(ufunc, "__call__", (before, value), {})


def _wrap(value: Any) -> Any:
    """Results as NumPy gives them: a scalar for zero dimensions, else an array of symbols."""
    if isinstance(value, np.ndarray) and plain(value).dtype == object:
        return value[()] if value.ndim == 0 else value.view(SymbolArray)
    if isinstance(value, tuple | list):
        return type(value)(_wrap(v) for v in value)
    return value


def scalar_operation(name: str, ufunc: Any, *operands: Any) -> Any:
    """One operation on scalars, by the rules of a ufunc. Plain numbers among themselves are computed at once."""
    if not any(isinstance(v, Symbol) for v in operands):
        result = (ufunc or expr.OPS[name].numpy)(*operands)[()]  # np.where gives an array of no dimensions
        return result if any(isinstance(v, np.generic) for v in operands) else result.item()
    kinds = tuple(kind_of(v) for v in operands)
    try:
        types, result = expr.types_of(name, kinds, ufunc)
    except TypeError as error:
        fail(str(error))
    if name in _COMPARISONS and (truth := _beyond(name, operands, types[0])) is not None:
        return Symbol(expr.const(truth, BOOL))
    nodes = tuple(to_node(v, t) for v, t in zip(operands, types, strict=True))
    constant = nodes[-1].op == "const" and nodes[-1].value >= 0
    if name == "pow" and result.kind == "i" and (not constant or kinds[0] == BOOL):
        fail(
            "an integer to a power that is negative or known only at run time has no meaning for all values in NumPy;"
            " use a float base (x * 1.0), 1 << n for 2**n, or a constant exponent of at least 0"
        )
    return Symbol(expr.apply(name, nodes, types, result, kernel_line()))


_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _beyond(name: str, operands: Sequence[Any], dtype: np.dtype) -> bool | None:
    """The truth of comparing with a Python integer that no number of the type reaches: the same for all of them."""
    for v in operands:
        if type(v) is int and dtype.kind == "i" and not np.iinfo(dtype).min <= v <= np.iinfo(dtype).max:
            return bool(expr.OPS[name].numpy(*(w if w is v else 0 for w in operands)))
    return None


@functools.cache
def _elementwise(name: str, ufunc: Any) -> Any:
    return np.frompyfunc(functools.partial(scalar_operation, name, ufunc), len_arguments(name), 1)


def len_arguments(name: str) -> int:
    """How many arguments an operation takes."""
    numpy = expr.OPS[name].numpy
    return numpy.nin if isinstance(numpy, np.ufunc) else 3


def elementwise(name: str, *operands: Any, ufunc: Any = None) -> Any:
    """An operation on arrays of symbols, broadcast as NumPy does."""
    return _elementwise(name, ufunc)(*(objects(v) for v in operands))


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
        return np.matmul(*(objects(v) for v in inputs))
    if ufunc in _COMPOSED:
        return _composed(ufunc)(*(objects(v) for v in inputs))
    if ufunc not in _UFUNCS:
        fail(f"np.{ufunc.__name__} is not supported in a kernel")
    return elementwise(_UFUNCS[ufunc], *inputs, ufunc=ufunc)


def _truth(value: Any) -> Any:
    return value if kind_of(value) == BOOL else scalar_operation("ne", None, value, 0)


def _joined(name: str) -> Callable[..., Any]:
    return lambda a, b: scalar_operation(name, None, _truth(a), _truth(b))


def _times(factor: float) -> Callable[..., Any]:
    return lambda a: scalar_operation("mul", None, a if _floats(a) else scalar_operation("mul", None, a, 1.0), factor)


def _floats(value: Any) -> bool:
    return kind_of(value) in (float, FLOAT32, FLOAT64)


#: Functions that are said by operations of the table.
_COMPOSED: dict[Any, Callable[..., Any]] = {
    np.square: lambda a: scalar_operation("mul", None, a, a),
    np.reciprocal: lambda a: scalar_operation("div", None, 1.0, a),
    np.positive: lambda a: a,
    np.logical_and: _joined("and"),
    np.logical_or: _joined("or"),
    np.logical_xor: _joined("xor"),
    np.deg2rad: _times(np.pi / 180.0),
    np.radians: _times(np.pi / 180.0),
    np.rad2deg: _times(180.0 / np.pi),
    np.degrees: _times(180.0 / np.pi),
}


@functools.cache
def _composed(ufunc: Any) -> Any:
    """A composed function on arrays; refused where what it gives is not of the type that NumPy gives."""

    def of(*operands: Any) -> Any:
        if not any(isinstance(v, Symbol) for v in operands):
            return ufunc(*operands)
        result = _COMPOSED[ufunc](*operands)
        try:
            same = ufunc.resolve_dtypes((*map(kind_of, operands), None))[-1] == kind_of(result)
        except TypeError:
            same = False
        if not same:
            listed = " and ".join(map(str, map(kind_of, operands)))
            fail(f"np.{ufunc.__name__} of {listed} is not supported in a kernel; convert with astype first")
        return result

    return np.frompyfunc(of, ufunc.nin, 1)


def _reduce(ufunc: Any, array: Any, axis: Any = 0, keepdims: bool = False, **others: Any) -> Any:
    values = objects(array)
    logical = ufunc in (np.logical_and, np.logical_or, np.logical_xor)
    usual = {"where": (True,), "dtype": (bool, np.bool_) if logical else ()}
    wanted = [k for k, v in others.items() if v is not None and v is not np._NoValue and v not in usual.get(k, ())]
    if wanted or values.size == 0:
        fail(f"np.{ufunc.__name__}.reduce with {', '.join(wanted) or 'no values'} is not supported in a kernel")
    if ufunc in (np.add, np.multiply):
        values = widened(values, INT64)
    if logical:
        values = objects(np.frompyfunc(_truth, 1, 1)(values))
    axes = tuple(range(values.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for one in sorted((a % values.ndim for a in axes), reverse=True):
        values = objects(functools.reduce(lambda a, b: _call_ufunc(ufunc, (a, b)), np.moveaxis(values, one, 0)))
        if keepdims:
            values = np.expand_dims(values, one)
    return values


def _described(param: Param | None) -> str:
    return f"parameter {param.name}, which is {param.mode.shown}," if param else "what is computed in place here"


def _store(target: Any, result: Any) -> Any:
    """``out=`` and in-place operators: write through the array so that access modes are checked."""
    if not isinstance(target, SymbolArray):
        fail(
            "a value that is known only at run time cannot be stored in an array of plain numbers;"
            " build the array with a list or np.stack"
        )
    dtype = type_of(target)
    if dtype is not None:
        check_kind(result, dtype, _described(owner_of(target)))
    target[...] = result
    return target


# Functions that only move elements or use + and *: NumPy's own code for object arrays does the right thing.
_GENERIC = {
    np.sum, np.prod, np.dot, np.inner, np.outer, np.vdot, np.einsum, np.tensordot, np.cross, np.trace, np.cumsum,
    np.diff, np.stack, np.concatenate, np.hstack, np.vstack, np.column_stack, np.transpose, np.reshape,
    np.ravel, np.moveaxis, np.swapaxes, np.roll, np.flip, np.squeeze, np.expand_dims, np.broadcast_to, np.diagonal,
    np.diag, np.take, np.repeat, np.tile, np.split, np.array_split, np.atleast_1d, np.atleast_2d, np.copy, np.append,
    np.ones_like, np.zeros_like, np.broadcast_arrays, np.shape, np.ndim, np.size, np.insert, np.delete,
}  # fmt: skip


#: Functions that add up or multiply in a wider type than that of integers and truth values.
_WIDENING = {np.sum: INT64, np.prod: INT64, np.cumsum: INT64, np.trace: INT64}


#: Functions of small matrices, which NumPy leaves to LAPACK, and of tables.
_REPLACED: dict[Any, Callable[..., Any]] = {
    np.linalg.solve: dense.solve, np.linalg.inv: dense.inverse, np.linalg.det: dense.determinant,
    np.interp: lambda *args, **kwargs: _of_nodes(lookup.interp(*args, **kwargs)),
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
    if func in (np.mean, np.var, np.std):
        others = sorted({*kwargs} - ({"axis", "keepdims"} if func is np.mean else {"axis"}))
        if others or len(args) > 2:
            fail(f"np.{func.__name__} with {', '.join(others) or 'these arguments'} is not supported in a kernel")
        return _wrap({np.mean: _mean, np.var: _variance, np.std: _deviation}[func](*args, **kwargs))
    if func is np.linalg.norm and len(args) == 1 and not kwargs:
        flat = widened(args[0], FLOAT64).ravel()
        return _wrap(elementwise("sqrt", np.dot(flat, flat)))
    if func is np.cross and any(np.shape(a)[-1:] == (2,) for a in args):
        return _plane_cross(*args, **kwargs)
    if func in _REPLACED:
        return _wrap(_REPLACED[func](*args, **kwargs))
    if func not in _GENERIC:
        module = getattr(func, "__module__", "numpy").replace("numpy", "np", 1)
        fail(f"{module}.{getattr(func, '__name__', func)} is not supported in a kernel")
    if func is np.einsum and any(type_of(objects(a)) == BOOL for a in args[1:]):
        fail("np.einsum of truth values is not supported in a kernel; convert with astype first")
    if func in _WIDENING and args:
        args = (widened(args[0], _WIDENING[func]), *args[1:])
    if func in (np.zeros_like, np.ones_like) and len(args) == 1 and not kwargs:
        filled = np.full(np.shape(args[0]), int(func is np.ones_like), object)
        return _wrap(in_type(filled, type_of(typed(args[0])) or FLOAT64))
    dtype = known_type(kwargs.pop("dtype")) if func in OF_SEQUENCES and "dtype" in kwargs else None
    result = _wrap(func(*positional(func, args), **{k: named(k, v) for k, v in kwargs.items()}))
    if dtype is not None:
        check_kind(result, dtype, f"what np.{func.__name__} makes")
        return _wrap(in_type(plain(result), dtype))
    return _wrap(uniform(plain(result))) if isinstance(result, SymbolArray) else result


def _plane_cross(a: Any, b: Any, **others: Any) -> Any:
    """Of vectors in the plane: the number that the third component would be."""
    a, b = objects(a), objects(b)
    if others or a.shape[-1] != b.shape[-1]:
        what = ", ".join(others) or "a vector of two and one of three components"
        fail(f"np.cross with {what} is not supported in a kernel")
    return _wrap(elementwise("sub", elementwise("mul", a[..., 0], b[..., 1]), elementwise("mul", a[..., 1], b[..., 0])))


def _mean(array: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    values = widened(array, FLOAT64)
    total = _reduce(np.add, values, axis, keepdims=keepdims is True)
    return elementwise("div", total, values.size // total.size)


def _variance(array: Any, axis: Any = None) -> Any:
    difference = elementwise("sub", array, _mean(array, axis, keepdims=True))
    return _mean(elementwise("mul", difference, difference), axis)


def _deviation(array: Any, axis: Any = None) -> Any:
    return elementwise("sqrt", _variance(array, axis))


def _clip(value: Any, low: Any = None, high: Any = None) -> Any:
    for bound, name in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            value = elementwise(name, value, bound)
    return _wrap(objects(value))
