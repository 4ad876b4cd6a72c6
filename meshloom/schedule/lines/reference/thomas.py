"""thomas: LU factored once, a thread goes along a line, there and back; as it lies or through a transposed copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshloom.schedule.lines.along import OperatorAlong
from meshloom.schedule.lines.reference.classic import (
    Classic,
    ClassicPlan,
    CornerTables,
    corner_tables,
    operand,
    start_of,
    stored,
)
from meshloom.schedule.lines.spec import LineForm, LineGeometry, LinePointCode, LineSpec
from meshloom.schedule.lines.terms import LENGTH, J, Q, X, for_each, lets
from meshloom.schedule.nest.code import BLOCK, ITEM, Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import (
    Block,
    Expr,
    For,
    Grouped,
    If,
    Name,
    Select,
    Statement,
    Store,
    all_of,
    let,
    value,
    variable,
)
from meshloom.schedule.plan.declare import PlanNumber, holds
from meshloom.schedule.spec import LoopSpec
from meshloom.target import Target

EDGE = 32  # of the squares that are transposed
#: Numbers of the plan; the solution on the way forwards and, of a periodic line, at its high end and mixed with that.
LINES, SQUARES, ALONG = map(Name, ("lines", "squares", "along"))
FORWARD, HIGH, MIXED = map(Name, ("g", "high", "mixed"))
#: A point of a square, its row and, with ``q``, its column; the corner of the square.
S, P, ACROSS, DOWN = map(Name, ("s", "p", "across", "down"))
WORK, SQUARE = Name("work")[J * LINES + ITEM], Name("square")[P * (EDGE + 1) + Q]


@dataclass(frozen=True, eq=False)
class SquaresPlan(ClassicPlan):
    """Lines, and the squares of points in which they are transposed."""

    squares: int = holds(PlanNumber(), "in all")
    along: int = holds(PlanNumber(), "along a line")


class Thomas(Classic):
    """Every line by one thread. Contiguous lines, whose points neighbouring threads would read far apart, are
    transposed before and after; ``tuning={"transposed": 0}`` reads them as they lie."""

    plans = SquaresPlan
    name = "thomas"
    summary = "LU factors, one thread goes along a line"

    def form(self, spec: LineSpec, lines: LineGeometry, wish: Mapping[str, int], *, target: Target) -> LineForm:
        transposed = wish.get("transposed", int(lines.contiguous))
        return LineForm("transposed" if transposed else "strided", 1, 0, 1)

    def tables(self, operator: OperatorAlong, n: int) -> CornerTables:
        return corner_tables(operator, n)

    def counts(self, lines: LineGeometry) -> dict[str, Any]:
        along, beside = -(-lines.length // EDGE), -(-lines.count // EDGE)
        return {"squares": along * beside, "along": along}

    def temporaries(self, spec: LoopSpec) -> list[tuple[str, np.dtype, int]]:
        assert isinstance(spec, LineSpec)
        return [("work", spec.dtype, 1)]

    def passes_of(self, spec: LineSpec, code: LinePointCode, v: int, *, target: Target) -> list[Pass]:
        load, found = operand(code, v)
        if spec.form.kind == "strided":
            return [_Sweeps(spec, code, v).made((start_of(ITEM),), load, found, stored(code, v, X))]
        return [
            _transposed(spec, [*load, Store(SQUARE, found)], Store(WORK, SQUARE), load=True),
            _Sweeps(spec, code, v).made((), (), WORK, [Store(WORK, X)]),
            _transposed(spec, stored(code, v, SQUARE), Store(SQUARE, WORK), load=False),
        ]


@dataclass(frozen=True)
class _Sweeps:
    """Forwards into ``work``, which has the lines side by side, and backwards."""

    spec: LineSpec
    code: LinePointCode
    v: int

    def _table(self, table: str) -> Name:
        return self.code.table(self.spec.number(self.v), table)

    def made(
        self, start: Sequence[Statement], load: Sequence[Statement], found: Expr, store: Sequence[Statement]
    ) -> Pass:
        t = self.spec.ctype
        step = Store(FORWARD, found - self._table("lower")[J] * FORWARD)
        forward = for_each(J, 0, LENGTH, *load, step, Store(WORK, FORWARD))
        back = Store(X, WORK * self._table("inverse")[J] - self._table("upper")[J] * X)
        body = (*start, variable("g", 0, t), forward, variable("x", 0, t))
        ends = self._corrected(back, store) if self.spec.periodic else [_backwards(back, *store)]
        return Pass("sweeps", LINES, (Phase((*body, *ends)),))

    def _corrected(self, back: Statement, store: Sequence[Statement]) -> list[Statement]:
        """What the ends of a periodic line add is known when all of it is solved."""
        t = self.spec.ctype
        last = Store(HIGH, Select(J.equals(LENGTH - 1), X, HIGH))
        solution = let("x", WORK - self._table("corner")[J] * MIXED, t)
        mixed = let("mixed", X + self._table("mix")[0] * HIGH, t)
        return [variable("high", 0, t), _backwards(back, Store(WORK, X), last), mixed,
                for_each(J, 0, LENGTH, solution, *store)]  # fmt: skip


def _backwards(*body: Statement) -> For:
    return replace(for_each(J, LENGTH - 1, 0, *body), down=True)


def _transposed(spec: LineSpec, at_fields: Sequence[Statement], at_work: Statement, *, load: bool) -> Pass:
    """Squares of points between the fields, along the lines, and ``work``, across them."""
    along = _in_square(lets(p=S / EDGE, q=S % EDGE, i=ACROSS + P, j=DOWN + Q), start_of(ITEM), *at_fields)
    across = _in_square(lets(q=S / EDGE, p=S % EDGE, i=ACROSS + P, j=DOWN + Q), at_work)
    phases = (along, across) if load else (across, along)
    scratch = (Scratch(spec.ctype, "square", value(EDGE * (EDGE + 1))),)
    return Pass("transposed", SQUARES, phases, blocked=True, scratch=scratch)


def _in_square(point: Statement, *body: Statement) -> Phase:
    """A phase over the points ``s`` of the block's square: ``point`` says which is p, q there, i, j on the lines."""
    corner = lets(across=Grouped(BLOCK / ALONG) * EDGE, down=Grouped(BLOCK % ALONG) * EDGE)
    inside = If(all_of([ITEM < LINES, J < LENGTH]), body)
    return Phase((corner, let("s", ITEM), Block((point, inside))), value(0), value(EDGE * EDGE))
