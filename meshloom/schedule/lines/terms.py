"""What the nests of all line loops are made of: names, places of points, right-hand sides of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from meshloom.schedule.lines.along import StencilAlong
from meshloom.schedule.nest.nodes import (
    INDEX,
    Binary,
    Call,
    Expr,
    For,
    Grouped,
    Let,
    Name,
    Number,
    Select,
    Statement,
    Value,
    call,
    summed,
    value,
)

#: The numbers of every plan of lines (``base.LinePlaces``).
LENGTH, STEP, LANES, OUTER, INNER = map(Name, ("length", "step", "lanes", "outer", "inner"))
OUTER_STEP, INNER_STEP, OFFSET = map(Name, ("outer_step", "inner_step", "offset"))
#: What nests of lines call lines that are not side by side, those that are, the first point of a line, points along it.
OUTER_LINE, L, START, J = map(Name, ("o", "l", "start", "j"))
#: Rows of a table, entries of these, the first offset of a row, what is summed, a solution.
ROW, Q, AT, SUM, X = map(Name, ("row", "q", "at", "sum", "x"))

ALONG_LINE = START + J * STEP


def line_start(o: Expr) -> Expr:
    """The number of a line's first point; ``o`` counts lines that are not side by side."""
    return OFFSET + Grouped(o / INNER) * OUTER_STEP + Grouped(o % INNER) * INNER_STEP


def start_of_line(number: Expr) -> Expr:
    """The number of a line's first point, where all lines are counted."""
    return line_start(Grouped(number / LANES)) + number % LANES


def closure_row(low: int) -> Expr:
    """The point that a row of the tables for the ends is about; ``low`` of these belong to the low one."""
    return Select(ROW < low, ROW, LENGTH - 1 - (ROW - low))


def lets(**named: Value) -> Let:
    """Names for places or numbers, in one declaration."""
    return Let(INDEX, tuple((name, value(one)) for name, one in named.items()))


def for_each(variable: Name, first: Value, last: Value, *body: Statement, ctype: str = INDEX) -> For:
    """The body for each ``variable`` of [first, last)."""
    return For(variable.name, value(first), value(last), body, ctype)


def any_of(conditions: Iterable[Expr]) -> Expr:
    """One of some conditions, at least one; later ones are asked only where the earlier do not hold."""
    first, *rest = conditions
    for one in rest:
        first = Binary("||", first, one)
    return first


def chained(start: Expr, more: Expr) -> Expr:
    """``start + more``, term by term from the left: no parentheses around the terms of ``more``."""
    if isinstance(more, Binary) and more.operator in ("+", "-"):
        return Binary(more.operator, chained(start, more.left), more.right)
    return start + more


def lower_of(a: Value, b: Value) -> Call:
    """The smaller of two places or numbers, whatever their types."""
    return call("ml_min", a, b, of_types=(INDEX,))


def higher_of(a: Value, b: Value) -> Call:
    """The larger one."""
    return call("ml_max", a, b, of_types=(INDEX,))


def right_hand_side(stencil: StencilAlong, at: Callable[[int], Expr], dtype: np.dtype) -> Expr:
    """That of an inner row; ``at(offset)``: the operand there. Mirrored coefficients share a product."""
    terms: list[Expr] = []
    for o, c in stencil.inner.items():
        mirrored = stencil.inner.get(-o)
        if o == 0:
            terms.append(at(0) if c == 1.0 else Number(c, dtype) * at(0))
        elif mirrored is not None and abs(mirrored) == abs(c):
            if o > 0:
                terms.append(Number(c, dtype) * (at(o) + at(-o) if mirrored == c else at(o) - at(-o)))
        else:
            terms.append(Number(c, dtype) * at(o))
    return summed(terms)
