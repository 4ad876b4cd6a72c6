"""The IR: a hash-consed graph of scalar operations.

Equal expressions are one object, so common subexpressions are shared by construction and comparing nodes is
comparing identities. Every node remembers the user's line that made it. One table, ``OPS``, says everything about
an operation: how NumPy computes it, how C spells it, what it costs and what type it gives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

BOOL, INT32, INT64, FLOAT32, FLOAT64 = (np.dtype(t) for t in ("bool", "int32", "int64", "float32", "float64"))
C_TYPES = {BOOL: "bool", INT32: "int32_t", INT64: "int64_t", FLOAT32: "float", FLOAT64: "double"}


@dataclass(frozen=True)
class Op:
    """One operation. ``result``: "same" promoted type of the arguments, "float" at least float, "bool"."""

    numpy: Callable[..., Any]
    c: str
    kind: str  # flop kind: add mul div sqrt minmax special sign select
    result: str = "same"


def _where(c: Any, a: Any, b: Any) -> Any:
    return np.where(c, a, b)


OPS: dict[str, Op] = {
    "add": Op(np.add, "{0} + {1}", "add"),
    "sub": Op(np.subtract, "{0} - {1}", "add"),
    "mul": Op(np.multiply, "{0} * {1}", "mul"),
    "div": Op(np.true_divide, "{0} / {1}", "div", "float"),
    "floordiv": Op(np.floor_divide, "ml_floordiv({0}, {1})", "div"),
    "mod": Op(np.remainder, "ml_mod({0}, {1})", "div"),
    "neg": Op(np.negative, "-{0}", "sign"),
    "abs": Op(np.absolute, "ml_abs({0})", "sign"),
    "sign": Op(np.sign, "ml_sign({0})", "sign"),
    "copysign": Op(np.copysign, "std::copysign({0}, {1})", "sign", "float"),
    "minimum": Op(np.minimum, "ml_min({0}, {1})", "minmax"),
    "maximum": Op(np.maximum, "ml_max({0}, {1})", "minmax"),
    "sqrt": Op(np.sqrt, "std::sqrt({0})", "sqrt", "float"),
    "cbrt": Op(np.cbrt, "ml_cbrt({0})", "special", "float"),
    "pow": Op(np.power, "ml_pow({0}, {1})", "special"),
    "hypot": Op(np.hypot, "std::hypot({0}, {1})", "special", "float"),
    "arctan2": Op(np.arctan2, "std::atan2({0}, {1})", "special", "float"),
    "floor": Op(np.floor, "std::floor({0})", "sign", "float"),
    "ceil": Op(np.ceil, "std::ceil({0})", "sign", "float"),
    "trunc": Op(np.trunc, "std::trunc({0})", "sign", "float"),
    "rint": Op(np.rint, "std::nearbyint({0})", "sign", "float"),
    "isnan": Op(np.isnan, "std::isnan({0})", "select", "bool"),
    "isinf": Op(np.isinf, "std::isinf({0})", "select", "bool"),
    "isfinite": Op(np.isfinite, "std::isfinite({0})", "select", "bool"),
    "lt": Op(np.less, "{0} < {1}", "select", "bool"),
    "le": Op(np.less_equal, "{0} <= {1}", "select", "bool"),
    "gt": Op(np.greater, "{0} > {1}", "select", "bool"),
    "ge": Op(np.greater_equal, "{0} >= {1}", "select", "bool"),
    "eq": Op(np.equal, "{0} == {1}", "select", "bool"),
    "ne": Op(np.not_equal, "{0} != {1}", "select", "bool"),
    "and": Op(np.bitwise_and, "{0} & {1}", "select"),
    "or": Op(np.bitwise_or, "{0} | {1}", "select"),
    "xor": Op(np.bitwise_xor, "{0} ^ {1}", "select"),
    "not": Op(np.logical_not, "!{0}", "select", "bool"),
    "where": Op(_where, "{0} ? {1} : {2}", "select"),
} | {
    name: Op(getattr(np, name), f"std::{c}({{0}})", "special", "float")
    for name, c in {
        "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10",
        "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos",
        "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    }.items()
}  # fmt: skip

#: Leaves of the graph besides "const": values that come from a parameter.
LEAVES = ("const", "load", "base")


class Node:
    """One scalar value: ``op`` of ``args``; ``value`` holds a constant or the address of a parameter's entry."""

    __slots__ = ("__weakref__", "args", "dtype", "op", "value", "where")

    def __init__(self, op: str, args: tuple[Node, ...], dtype: np.dtype, value: Any, where: tuple[str, int] | None):
        self.op, self.args, self.dtype, self.value, self.where = op, args, dtype, value, where

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.args)) if self.args else repr(self.value)
        return f"{self.op}({inner})"


_interned: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()


def _intern(
    op: str, args: tuple[Node, ...], dtype: np.dtype, value: Any, where: tuple[str, int] | None, scope: int = 0
) -> Node:
    key = (op, args, dtype, repr(value), scope)  # repr keeps 0.0, -0.0, 0 and nan apart
    node = _interned.get(key)
    if node is None:
        node = _interned[key] = Node(op, args, dtype, value, where)
    return node


def const(value: Any, dtype: np.dtype) -> Node:
    """A literal of a type; the value is rounded to it, as a field of that type would."""
    return _intern("const", (), dtype, dtype.type(value).item(), None)


def load(param: int, slot: int, comp: int, dtype: np.dtype, scope: int = 0) -> Node:
    """The value of a parameter at a slot of its map and a component.

    Leaves of different scopes (kernels) differ, and so does everything made of them: two kernels never share a
    node, whose line would be the other's.
    """
    return _intern("load", (), dtype, (param, slot, comp), None, scope)


def base(param: int, slot: int, comp: int, dtype: np.dtype, scope: int = 0) -> Node:
    """Stands for "what was there before" while tracing; no emitted program contains it."""
    return _intern("base", (), dtype, (param, slot, comp), None, scope)


def cast(node: Node, dtype: np.dtype) -> Node:
    """``node`` in another type; itself when it has it."""
    if node.dtype == dtype:
        return node
    if node.op == "const":
        return const(node.value, dtype)
    return _intern("cast", (node,), dtype, None, node.where)


def operate(op: str, args: Iterable[Node], where: tuple[str, int] | None = None) -> Node:
    """Apply an operation; arguments are promoted by NumPy's rules, then kept as they are (no simplification)."""
    nodes = tuple(args)
    if op == "where":
        condition, *rest = nodes
        dtype = np.result_type(*(n.dtype for n in rest))
        return _intern(op, (cast(condition, BOOL), *(cast(n, dtype) for n in rest)), dtype, None, where)
    dtype = np.result_type(*(n.dtype for n in nodes))
    rule = OPS[op].result
    if rule == "float" and dtype.kind != "f":
        dtype = FLOAT64
    if op == "not":
        dtype = BOOL
    elif dtype == BOOL and op not in ("and", "or", "xor", "eq", "ne"):
        dtype = INT64
    nodes = tuple(cast(n, dtype) for n in nodes)
    return _intern(op, nodes, BOOL if rule == "bool" else dtype, None, where)


def rebuild(node: Node, args: tuple[Node, ...]) -> Node:
    """The same operation on other arguments of the same types."""
    if args == node.args:
        return node
    return _intern(node.op, args, node.dtype, node.value, node.where)


def with_value(node: Node, value: Any) -> Node:
    """The same operation with a mark for those who emit it; what it computes stays the same."""
    return _intern(node.op, node.args, node.dtype, value, node.where)


def topological(roots: Iterable[Node]) -> Iterator[Node]:
    """Every node the roots need, arguments before users, in the order of first need."""
    seen: set[Node] = set()
    for root in roots:
        stack = [(root, iter(root.args))]
        while stack:
            node, pending = stack[-1]
            if node in seen:
                stack.pop()
                continue
            child = next((a for a in pending if a not in seen), None)
            if child is None:
                seen.add(node)
                stack.pop()
                yield node
            else:
                stack.append((child, iter(child.args)))


def compute(node: Node, values: list[Any]) -> Any:
    """The value of an operation, by NumPy, from the values of its arguments (scalars or arrays)."""
    if node.op == "cast":
        return np.asarray(values[0]).astype(node.dtype)
    return OPS[node.op].numpy(*values)
