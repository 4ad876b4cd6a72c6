"""The IR: a hash-consed graph of scalar operations.

Equal expressions are one object, so common subexpressions are shared by construction and comparing nodes is
comparing identities. Every node remembers the user's line that made it. One table, ``OPS``, says everything about
an operation: how NumPy computes it, how C spells it and what it costs. In which types it is computed NumPy says itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from meshloom.kernel.table import LOOKUPS, LookupTable, TableExtent, lookup_of
from meshloom.records import dataclass

BOOL, INT32, INT64, FLOAT32, FLOAT64 = (np.dtype(t) for t in ("bool", "int32", "int64", "float32", "float64"))
C_TYPES = {BOOL: "bool", INT32: "int32_t", INT64: "int64_t", FLOAT32: "float", FLOAT64: "double"}


@dataclass(frozen=True)
class Op:
    """One operation, in the types that NumPy computes it in (``types_of``).

    ``c``: how C spells it, by an operator or the name of a function. ``integer``: for integers, where that differs: in
    C, what leaves the range of a signed integer has no meaning; in NumPy it goes on at the other end.
    """

    numpy: Callable[..., Any]
    c: str
    kind: str  # flop kind: add mul div sqrt minmax special sign select
    integer: str = ""


def _where(c: Any, a: Any, b: Any) -> Any:
    return np.where(c, a, b)


OPS: dict[str, Op] = {
    "add": Op(np.add, "+", "add", "ml_wrapped_add"),
    "sub": Op(np.subtract, "-", "add", "ml_wrapped_sub"),
    "mul": Op(np.multiply, "*", "mul", "ml_wrapped_mul"),
    "div": Op(np.true_divide, "/", "div"),
    "floordiv": Op(np.floor_divide, "ml_floordiv", "div"),
    "mod": Op(np.remainder, "ml_mod", "div"),
    "neg": Op(np.negative, "-", "sign", "ml_wrapped_neg"),
    "abs": Op(np.absolute, "ml_abs", "sign"),
    "sign": Op(np.sign, "ml_sign", "sign"),
    "signbit": Op(np.signbit, "ml_signbit", "select"),
    "copysign": Op(np.copysign, "std::copysign", "sign"),
    "minimum": Op(np.minimum, "ml_min", "minmax"),
    "maximum": Op(np.maximum, "ml_max", "minmax"),
    "fmin": Op(np.fmin, "ml_fmin", "minmax"),
    "fmax": Op(np.fmax, "ml_fmax", "minmax"),
    "sqrt": Op(np.sqrt, "std::sqrt", "sqrt"),
    "cbrt": Op(np.cbrt, "ml_cbrt", "special"),
    "pow": Op(np.power, "ml_pow", "special"),
    "hypot": Op(np.hypot, "std::hypot", "special"),
    "arctan2": Op(np.arctan2, "std::atan2", "special"),
    "floor": Op(np.floor, "std::floor", "sign"),
    "ceil": Op(np.ceil, "std::ceil", "sign"),
    "trunc": Op(np.trunc, "std::trunc", "sign"),
    "rint": Op(np.rint, "std::nearbyint", "sign"),
    "isnan": Op(np.isnan, "std::isnan", "select"),
    "isinf": Op(np.isinf, "std::isinf", "select"),
    "isfinite": Op(np.isfinite, "std::isfinite", "select"),
    "lt": Op(np.less, "<", "select"),
    "le": Op(np.less_equal, "<=", "select"),
    "gt": Op(np.greater, ">", "select"),
    "ge": Op(np.greater_equal, ">=", "select"),
    "eq": Op(np.equal, "==", "select"),
    "ne": Op(np.not_equal, "!=", "select"),
    "and": Op(np.bitwise_and, "&", "select"),
    "or": Op(np.bitwise_or, "|", "select"),
    "xor": Op(np.bitwise_xor, "^", "select"),
    "invert": Op(np.invert, "~", "select"),
    "lshift": Op(np.left_shift, "ml_lshift", "select"),
    "rshift": Op(np.right_shift, "ml_rshift", "select"),
    "not": Op(np.logical_not, "!", "select"),
    "where": Op(_where, "?:", "select"),
} | {name: Op(function, f"ml_{name}", "select") for name, function in LOOKUPS.items()} | {
    name: Op(getattr(np, name), f"std::{c}", "special")
    for name, c in {
        "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10",
        "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos",
        "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    }.items()
}  # fmt: skip

#: What a sum becomes that takes a product in (``contract.py``), of a, b and c, in one rounding; all three are of one
#: floating-point type. NumPy has no such operation: the reference rounds the product by itself.
FUSED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "fma": lambda a, b, c: a * b + c,
    "fms": lambda a, b, c: a * b - c,
    "fnma": lambda a, b, c: c - a * b,
}

#: What operations of truth values are: NumPy adds them by "or" and multiplies them by "and".
_OF_TRUTHS = {
    "add": "or", "mul": "and", "minimum": "and", "maximum": "or", "fmin": "and", "fmax": "or", "invert": "not",
}  # fmt: skip
_ROUNDING = ("floor", "ceil", "trunc")
_CLASSES = ("isnan", "isinf", "isfinite", "signbit")

#: The type of an operand: that of a node or NumPy number, or ``int`` or ``float`` of a Python number, which is weak.
Kind = np.dtype | type


_DEFAULTS: dict[type, np.dtype] = {int: INT64, float: FLOAT64}


@cache
def types_of(op: str, kinds: tuple[Kind, ...], ufunc: Any = None) -> tuple[tuple[np.dtype, ...], np.dtype]:
    """The types that NumPy computes an operation in: those of the arguments, and that of the result.

    ``ufunc``: whose rules hold, where the operation serves several. TypeError, in one line, where NumPy has none or
    kernels do not know it.
    """
    if all(isinstance(k, type) for k in kinds):  # all of them weak: numbers of Python that came as arguments
        kinds = tuple(_DEFAULTS[k] for k in kinds)  # type: ignore[index]
    if op == "where":
        weak = {int: 1, float: 1.0}
        dtype = np.result_type(*(weak.get(k, k) for k in kinds[1:]))  # type: ignore[arg-type]
        resolved: tuple[np.dtype, ...] = (BOOL, dtype, dtype, dtype)
    else:
        rules: Any = ufunc or OPS[op].numpy
        try:
            resolved = rules.resolve_dtypes((*kinds, None))
        except TypeError as error:
            raise TypeError(f"{_spelled(op, ufunc)} of {_listed(kinds)} means nothing in NumPy") from error
        if op in _CLASSES and resolved[0] not in (FLOAT32, FLOAT64):
            resolved = (FLOAT64, BOOL)  # C asks floating-point numbers only
    if strange := [t for t in resolved if t not in C_TYPES]:
        raise TypeError(
            f"{_spelled(op, ufunc)} of {_listed(kinds)} is computed in {strange[0]} by NumPy, which kernels do not"
            " know; convert with astype first"
        )
    return resolved[:-1], resolved[-1]


def _spelled(op: str, ufunc: Any) -> str:
    return f"np.{getattr(ufunc or OPS[op].numpy, '__name__', op).lstrip('_')}"


def _listed(kinds: tuple[Kind, ...]) -> str:
    return " and ".join(k.__name__ if isinstance(k, type) else str(k) for k in kinds)


class Node:
    """One scalar value: ``op`` of ``args``; ``value`` holds a constant or the address of a parameter's entry.
    ``folded``: has a pass seen that nothing of it can be folded (``passes.py``)?"""

    __slots__ = ("__weakref__", "args", "dtype", "folded", "op", "value", "where")

    def __init__(self, op: str, args: tuple[Node, ...], dtype: np.dtype, value: Any, where: tuple[str, int] | None):
        self.op, self.args, self.dtype, self.value, self.where = op, args, dtype, value, where
        self.folded = False

    def __repr__(self) -> str:
        return self.shown(6)

    def shown(self, depth: int) -> str:
        """The expression down to some depth: graphs may be deep, and shared parts would be written often."""
        if self.args and not depth:
            return f"{self.op}(...)"
        return f"{self.op}({', '.join(a.shown(depth - 1) for a in self.args) if self.args else repr(self.value)})"


_interned: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()


def _intern(
    op: str, args: tuple[Node, ...], dtype: np.dtype, value: Any, where: tuple[str, int] | None, scope: int = 0
) -> Node:
    key = (op, args, dtype, None if value is None else repr(value), scope)  # repr keeps 0.0, -0.0, 0 and nan apart
    node = _interned.get(key)
    if node is None:
        node = _interned[key] = Node(op, args, dtype, value, where)
    return node


def const(value: Any, dtype: np.dtype) -> Node:
    """A literal of a type; the value is rounded to it, as a field of that type would.

    OverflowError where a Python integer does not fit an integer type, as in NumPy.
    """
    exact = isinstance(value, int) and dtype.kind == "i"
    return _intern("const", (), dtype, (dtype.type(value) if exact else convert(value, dtype)).item(), None)


def convert(values: Any, dtype: np.dtype) -> np.ndarray:
    """``values`` in another type, as NumPy's astype; floats that fit no integer become the smallest one.

    C leaves that open, and so does NumPy: x86-64 does it like this, other processors do not.
    """
    array = np.asarray(values)
    with np.errstate(all="ignore"):
        if array.dtype.kind != "f" or dtype.kind != "i":
            return array.astype(dtype)
        truncated, lowest = np.trunc(array), np.iinfo(dtype).min
        fits = (truncated >= float(lowest)) & (truncated < -float(lowest))
        return np.where(fits, np.where(fits, truncated, 0.0).astype(dtype), dtype.type(lowest))


def load(param: int, slot: int, comp: int, dtype: np.dtype, scope: int = 0) -> Node:
    """The value of a parameter at a slot of its map and a component.

    Leaves of different scopes (kernels) differ, and so does everything made of them: two kernels never share a
    node, whose line would be the other's.
    """
    return _intern("load", (), dtype, (param, slot, comp), None, scope)


def base(param: int, slot: int, comp: int, dtype: np.dtype, scope: int = 0) -> Node:
    """Stands for "what was there before" while tracing; no emitted program contains it."""
    return _intern("base", (), dtype, (param, slot, comp), None, scope)


#: Conversions that keep every value.
_EXACT = {(BOOL, t) for t in C_TYPES} | {(INT32, INT64), (INT32, FLOAT64), (FLOAT32, FLOAT64)}


def cast(node: Node, dtype: np.dtype) -> Node:
    """``node`` in another type; itself when it has it. What was only made wider before is converted at once."""
    if node.dtype is dtype and node.op != "cast":
        return node
    while node.op == "cast" and (node.args[0].dtype, node.dtype) in _EXACT:
        node = node.args[0]
    if node.dtype == dtype:
        return node
    if node.op == "const":
        return const(node.dtype.type(node.value), dtype)
    return _intern("cast", (node,), dtype, None, node.where)


def operate(op: str, args: Iterable[Node], where: tuple[str, int] | None = None) -> Node:
    """Apply an operation; arguments are promoted by NumPy's rules, then kept as they are (no simplification)."""
    nodes = tuple(args)
    return apply(op, nodes, *types_of(op, tuple(n.dtype for n in nodes)), where)


def apply(op: str, nodes: tuple[Node, ...], types: tuple[np.dtype, ...], result: np.dtype, where: Any = None) -> Node:
    """An operation in the types that ``types_of`` gave."""
    nodes = tuple(cast(n, t) for n, t in zip(nodes, types, strict=True))
    if types[0] == BOOL and op != "where":
        if op == "abs":
            return nodes[0]
        op = _OF_TRUTHS.get(op, op)
    if op in _ROUNDING and types[0].kind in "bi":
        return nodes[0]
    return _intern(op, nodes, result, None, where)


def rebuild(node: Node, args: tuple[Node, ...]) -> Node:
    """The same operation on other arguments of the same types."""
    if args == node.args:
        return node
    return _intern(node.op, args, node.dtype, node.value, node.where)


def fused(op: str, args: tuple[Node, Node, Node], where: tuple[str, int] | None = None) -> Node:
    """An operation of ``FUSED``."""
    return _intern(op, args, args[0].dtype, None, where)


def index(k: Node, extent: TableExtent, where: Any = None) -> Node:
    """The entry that an index, an integer, is of so many: one that there is, whatever k is."""
    return _intern("index", (cast(k, INT64),), INT64, extent, where)


def pick(k: Node, entries: Sequence[Node], where: Any = None) -> Node:
    """One of several values of one type, by an ``index`` of so many; constants become a table."""
    dtype = entries[0].dtype
    if k.op == "const":
        return entries[k.value]
    if all(one.op == "const" for one in entries):
        return entry(LookupTable(np.array([one.value for one in entries], dtype)), k, where)
    return _intern("pick", (k, *entries), dtype, None, where)


def entry(table: LookupTable, k: Node, where: Any = None) -> Node:
    """An entry of a constant table, by an ``index`` of its size."""
    return _intern("entry", (k,), table.values.dtype, table, where)


def interval(table: LookupTable, x: Node, where: Any = None) -> Node:
    """The number of the last entry of an increasing table that is not above x, which is of its type; or else 0."""
    return _intern("interval", (x,), INT64, table, where)


def topological(roots: Iterable[Node]) -> tuple[Node, ...]:
    """Every node the roots need, arguments before users, in the order of first need."""
    return _ordered(tuple(roots))


@lru_cache(maxsize=64)  # passes go through the same graph several times, one after the other
def _ordered(roots: tuple[Node, ...]) -> tuple[Node, ...]:
    order: list[Node] = []
    seen: set[Node] = set()
    for root in roots:
        waiting = [] if root in seen else [(root, iter(root.args))]  # for those of its arguments that are left
        while waiting:
            node, left = waiting[-1]
            for one in left:
                if one not in seen:
                    waiting.append((one, iter(one.args)))
                    break
            else:
                waiting.pop()
                seen.add(node)
                order.append(node)
    return tuple(order)


def written(roots: Iterable[Node]) -> str:
    """A graph in words, one line for each node: equal for equal graphs, whoever made them."""
    numbers: dict[Node, int] = {}
    text_lines = []
    for node in topological(roots):
        text_lines.append(f"{node.op} {node.dtype.str} {node.value!r} {[numbers[a] for a in node.args]}")
        numbers[node] = len(numbers)
    return "\n".join(text_lines)


def function_of(node: Node) -> Callable[..., Any]:
    """What gives the value of an operation, by NumPy, from the values of its arguments (scalars or arrays)."""
    if node.op in LOOKUPS:
        return lookup_of(node.op, node.value)
    if node.op in FUSED:
        return FUSED[node.op]
    return partial(convert, dtype=node.dtype) if node.op == "cast" else OPS[node.op].numpy
