"""What the nests of all line loops are made of: names, places of points, loops, right-hand sides of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from meshloom.schedule.lines.along import StencilAlong
from meshloom.schedule.nest.code import Pass, Phase, Scratch
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

#: The numbers of every plan of lines (``spec.LinePlaces``), and those of plans that cut them into tiles or parts.
LENGTH, STEP, LANES, OUTER, INNER = map(Name, ("length", "step", "lanes", "outer", "inner"))
OUTER_STEP, INNER_STEP, OFFSET = map(Name, ("outer_step", "inner_step", "offset"))
TILES, ACROSS, LINES, ROWS = map(Name, ("tiles", "across", "lines", "rows"))
WINDOW, OVERLAP, CORE, CHUNKS = map(Name, ("window", "overlap", "core", "chunks"))
CELLS, PADDED, PER_GROUP = map(Name, ("cells", "padded", "per_group"))
#: What nests of lines call lines that are not side by side, those that are, the first point of a line, points along it.
OUTER_LINE, L, START, J = map(Name, ("o", "l", "start", "j"))
#: Rows of a table, entries of these, the first offset of a row, what is summed, a solution.
ROW, Q, AT, SUM, X = map(Name, ("row", "q", "at", "sum", "x"))
#: Of a block: its place in the launch, the group of operands, the tile of lines, and the window of these that it has.
PLACE, GROUP, TILE, CHUNK = map(Name, ("place", "group", "tile", "chunk"))
#: Of a thread: the segment that its number means and the one that it has, which begins at point ``j0`` of the line; one
#: of its points; its line in the block, and in the launch; and has it a line, and a segment of it, of its own?
OWN, SLOT, J0, POINT, LINE, WANTED, MINE = map(Name, ("own", "slot", "j0", "i", "line", "wanted", "mine"))

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


def neighbours(number: Expr, count: Expr) -> tuple[Expr, Expr]:
    """The number before one of so many that go round, and the one behind it."""
    return Select(number.equals(0), count - 1, number - 1), Select(number.equals(count - 1), value(0), number + 1)


def lets(**named: Value) -> Let:
    """Names for places or numbers, in one declaration."""
    return Let(INDEX, tuple((name, value(one)) for name, one in named.items()))


def for_each(variable: Name, first: Value, last: Value, *body: Statement, **more: Any) -> For:
    """The body for each ``variable`` of [first, last); ``more``: what else a ``For`` says."""
    return For(variable.name, value(first), value(last), body, **more)


def along_line(*body: Statement, down: bool = False) -> For:
    """The body for each point ``j`` of a line, from the first one on or, ``down``, from the last one."""
    return for_each(J, LENGTH - 1, 0, *body, down=True) if down else for_each(J, 0, LENGTH, *body)


def pass_over_tiles(body: Sequence[Statement], scratch: Iterable[Scratch]) -> Pass:
    """Every tile of lines by a block."""
    return Pass("lines", TILES, (Phase(tuple(body), of_block=True),), blocked=True, scratch=tuple(scratch))


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
