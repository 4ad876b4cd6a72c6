"""Contraction in nests: what ``kernel/contract.py`` is for graphs of kernels, for what a nest computes itself, such as
the solve along a line. Compilers may not do it: see there."""

from __future__ import annotations

from dataclasses import replace

from meshloom.kernel.expr import C_TYPES
from meshloom.schedule.nest.nodes import (
    Binary,
    Body,
    Call,
    Cast,
    Expr,
    Grouped,
    Let,
    NestNode,
    PairOf,
    Select,
    Store,
    Unary,
    Value,
    call,
)
from meshloom.schedule.nest.walk import rewritten

_REALS = [name for dtype, name in C_TYPES.items() if dtype.kind == "f"]


def fma(a: Value, b: Value, c: Value) -> Call:
    """a*b + c of floating-point numbers in one rounding, where the target has that and the loop is not strict."""
    return call("ml_fma", a, b, c)


def contracted(body: Body) -> Body:
    """The same statements with products taken into the sums that they are terms of, in every floating-point number that
    is stored or named: of two products the second. What kernels compute is left as it is: there every operation has a
    name of its own."""
    made: Body = rewritten(body, _taken_in)
    return made


def _taken_in(node: NestNode) -> NestNode | None:
    """A statement with sums contracted; None: those that are in it."""
    match node:
        case Store(place, Binary("*", a, b), "+" | "-" as sign):
            return Store(place, fma(-a if sign == "-" else a, b, place))
        case Store(place, value, operator):
            return Store(place, _sum(value), operator)
        case Let(ctype, named) if ctype in _REALS or isinstance(ctype, PairOf):
            return replace(node, named=tuple([(name, _sum(value)) for name, value in named]))
        case Expr() | Let():
            return node  # conditions, places and numbers of elements: whole numbers
    return None


def _sum(node: Expr) -> Expr:
    """A value with sums contracted, arguments first; what is looked up is not looked into."""
    match node:
        case Binary("+" | "-" as sign, left, right):
            left, right = _sum(left), _sum(right)
            if isinstance(right, Binary) and right.operator == "*":
                return fma(-right.left if sign == "-" else right.left, right.right, left)
            if isinstance(left, Binary) and left.operator == "*":
                return fma(left.left, left.right, -right if sign == "-" else right)
            return Binary(sign, left, right)
        case Binary("*" | "/" as operator, left, right):
            return Binary(operator, _sum(left), _sum(right))
        case Select(condition, yes, no):
            return Select(condition, _sum(yes), _sum(no))
        case Unary() | Grouped() | Cast():
            return replace(node, of=_sum(node.of))
    return node
