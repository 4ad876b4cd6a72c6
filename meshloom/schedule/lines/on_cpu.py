"""Line loops on a CPU: a thread takes some lines side by side and goes along them, forwards and backwards.

Operands and results of the lines, and coefficients of their own where they have such, lie in buffers of the thread,
point by point and the lines next to each other, so that every sweep is a loop over vectors. Fields are read once and
written once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshloom.records import dataclass
from meshloom.schedule.choice.candidate import Candidate, rank
from meshloom.schedule.lines.along import OperatorAlong
from meshloom.schedule.lines.nest_parts import (
    ACROSS,
    AT,
    LANES,
    LENGTH,
    OUTER,
    OUTER_LINE,
    ROW,
    ROWS,
    START,
    STEP,
    SUM,
    J,
    L,
    Q,
    along_line,
    closure_row,
    for_each,
    lets,
    line_start,
    lower_of,
    pass_over_tiles,
    right_hand_side,
)
from meshloom.schedule.lines.spec import LineGeometry, LinePlan, LinePointCode, LineSpec, LineTiling
from meshloom.schedule.lines.tables import OperatorTables, closure_tables, closure_width, decay_points
from meshloom.schedule.nest.code import BLOCK, Pass, Scratch
from meshloom.schedule.nest.nodes import (
    Block,
    Expr,
    For,
    Grouped,
    Let,
    Name,
    Select,
    Statement,
    Store,
    Value,
    let,
    offset_by,
    value,
    variable,
)
from meshloom.schedule.plan.declare import REALS, Array, Listed, Part, PlanNumber, Reals, holds, maybe
from meshloom.schedule.plan.plan import Plan, part_of
from meshloom.target import Target

WORK = "work"  # the buffer of what the sweep forwards leaves
#: What the nest declares: the first line of a tile, how many there are, factors of a row; of systems what a value that
#: comes in is multiplied by at a point, its sign turned.
BEGIN, HERE, FACTOR, INVERSE, T = map(Name, ("begin", "here", "factor", "inverse", "t"))


def tilings(spec: LineSpec, lines: LineGeometry, target: Target) -> tuple[Candidate[LineTiling], ...]:
    """Lines that go side by side: as many as keep the buffers in the cache; ranked."""
    numbers, row = target.cpu.lines, lines.length * spec.dtype.itemsize
    there = lines.lanes * (lines.outer if lines.contiguous else 1)
    most, least = numbers.most_contiguous if lines.contiguous else max(numbers.side_by_side), min(numbers.side_by_side)

    def declined(tile: int) -> str | None:
        if tile > least and tile * row > numbers.buffer:
            return f"a buffer of {tile * row:,} B, more than {numbers.buffer:,}"
        return f"there are {there} lines" if tile > least and tile >= 2 * there else None

    kind, widths = "contiguous" if lines.contiguous else "strided", {min(tile, most) for tile in numbers.side_by_side}
    return rank(Candidate(LineTiling(kind, 1, 0, t), declined=declined(t)) for t in sorted(widths, reverse=True))


@dataclass(frozen=True, eq=False)
class SweepTables(OperatorTables):
    """Of one operator, for lines of some length: tables (length,) and what periodic lines need."""

    warm: int | None = holds(
        PlanNumber(), "of periodic lines the points after which what came before is forgotten", maybe
    )
    turn: Reals | None = holds(Array(REALS, 2), "what a carry is multiplied by for further turns of the line", maybe)


@dataclass(frozen=True, eq=False)
class SweepPlan(LinePlan):
    """Tiles of lines side by side, each by one thread."""

    operators: tuple[SweepTables, ...] = holds(Listed(Part(SweepTables)), "of each distinct operator")
    rows: int = holds(PlanNumber(), "rows of a thread's buffers")
    tiles: int = holds(PlanNumber(), "tiles of lines")
    across: int = holds(PlanNumber(), "tiles next to each other")


def plan(name: str, spec: LineSpec, lines: LineGeometry) -> SweepPlan:
    """Tables of the factors, and how many tiles there are."""
    tile = spec.tiling.tile
    across = -(-lines.lanes // tile)
    tiles = -(-lines.count // tile) if lines.contiguous else across * lines.outer
    rows, found = lines.length + 2 * spec.reach + 2, tuple(_tables(spec, one, lines.length) for one in spec.distinct)
    return SweepPlan(name, 1, lines.places, found, rows, tiles, across)


def _tables(spec: LineSpec, operator: OperatorAlong, length: int) -> SweepTables:
    lower, inverse, upper = operator.matrix.factors(length).T
    warm, turned = None, None
    if spec.periodic:
        constants = operator.matrix.constants[0], operator.matrix.constants[2]
        warm = min(length, max(decay_points(abs(c), spec.dtype) for c in constants))
        further = [1.0 / (1.0 - (-c) ** length) if warm == length else 1.0 for c in constants]
        turned = np.array(further, spec.dtype)
    first, second, third = (np.ascontiguousarray(t, spec.dtype) for t in (lower, inverse * operator.scale, upper))
    return SweepTables(first, second, third, *closure_tables(operator.stencil, spec.dtype), warm, turned)


class SweepNest:
    """What a thread does with a tile of lines; ``l`` numbers them, ``j`` the points of a line."""

    def __init__(self, spec: LineSpec, plan: Plan):
        self.spec, self.w, self.t, self.code = spec, spec.tiling.tile, spec.ctype, LinePointCode(spec, plan)
        self.first = spec.reach + 1  # rows of a buffer before that of the first point
        self.contiguous = spec.tiling.kind == "contiguous"

    def made(self) -> Pass:
        """One pass over tiles of lines."""
        body = (*self._where(), *self._load(), *map(self._solved, range(self.spec.values)), *self._store())
        buffers = [f"s{v}" for v in range(len(self.spec.operands))]
        buffers += [WORK] if self.spec.periodic or not self.spec.systems else []
        return pass_over_tiles(body, (Scratch(self.t, name, ROWS * self.w) for name in buffers))

    def _where(self) -> list[Statement]:
        if self.contiguous:
            return [let("begin", BLOCK * self.w), let("here", lower_of(self.w, OUTER - BEGIN))]
        return [
            lets(o=BLOCK / ACROSS, begin=Grouped(BLOCK % ACROSS) * self.w),
            let("here", lower_of(self.w, LANES - BEGIN)),
            let("start", line_start(OUTER_LINE) + BEGIN),
        ]

    def _points(self, inside: Sequence[Statement]) -> list[Statement]:
        """For all points of the lines; the loop over neighbours is inside."""
        if self.contiguous:
            along = for_each(J, 0, LENGTH, *inside, independent=True)
            return [for_each(L, 0, HERE, let("o", BEGIN + L), let("start", line_start(OUTER_LINE)), along)]
        return [along_line(let("row", START + J * STEP), for_each(L, 0, HERE, *inside, independent=True))]

    @property
    def _element(self) -> Expr:
        return START + J if self.contiguous else ROW + L

    def _at(self, buffer: str, row: Value) -> Expr:
        """Row of a buffer, of line ``l``."""
        return Name(buffer)[(value(row) + self.first) * self.w + L]

    def _load(self) -> list[Statement]:
        computed, found = self.code.operands(self._element)
        return self._points([*computed, *(Store(self._at(f"s{v}", J), one) for v, one in enumerate(found))])

    def _store(self) -> list[Statement]:
        results = [self._at(f"s{v}", J) for v in range(len(self.spec.operands))]
        return self._points(self.code.after(self._element, results))

    def _lanes(self, *inside: Statement) -> Statement:
        """For all lines of the tile, also those that are not there."""
        return for_each(L, 0, self.w, *inside, independent=True)

    def _solved(self, v: int) -> Statement:
        """Right-hand side, forwards and backwards for one operand; the results take the place of the operands."""
        stencil, k = self.spec.operators[v].stencil, self.spec.number(v)
        low, high = len(stencil.low), len(stencil.high)
        right = right_hand_side(stencil, lambda o: self._at(f"s{v}", offset_by(J, o)), self.spec.dtype)
        here, behind = self._at(WORK, J), self._at(WORK, J - 1)
        factor = let("factor", self.code.table(k, "lower")[J], self.t)
        body = [*self._wrap(v), *self._carry_in(k, right), *self._closures(v, k)]
        body.append(for_each(J, low, LENGTH - high, factor, self._lanes(Store(here, right - FACTOR * behind))))
        if high:
            known = self._lanes(Store(here, here - FACTOR * behind))
            body.append(for_each(J, LENGTH - high, LENGTH, factor, known))
        return Block((*body, *self._backward(v, k)))

    def _wrap(self, v: int) -> list[Statement]:
        """Copies of the operands beyond both ends of a periodic line."""
        reach, buffer = self.spec.operators[v].stencil.reach, f"s{v}"
        if not reach or not self.spec.periodic:
            return []
        behind = Store(self._at(buffer, LENGTH + J), self._at(buffer, J))
        before = Store(self._at(buffer, -1 - J), self._at(buffer, LENGTH - 1 - J))
        return [for_each(J, 0, reach, self._lanes(behind, before))]

    def _carry_in(self, k: int, right: Expr) -> list[Statement]:
        """What comes before the first point: nothing, or on a periodic line what the points before it leave."""
        before = self._at(WORK, -1)
        nothing = self._lanes(Store(before, value(0)))
        if not self.spec.periodic:
            return [nothing]
        factor = let("factor", self.code.table(k, "lower")[J], self.t)
        step = self._lanes(Store(before, right - FACTOR * before))
        around = self._lanes(Store(before, self.code.table(k, "turn")[0], "*"))
        return [nothing, for_each(J, LENGTH - self.code.table(k, "warm"), LENGTH, factor, step), around]

    def _closures(self, v: int, k: int) -> list[Statement]:
        """Right-hand sides of the rows at the ends; those at the low end go on at once."""
        stencil = self.spec.operators[v].stencil
        if not stencil.closures:
            return []
        low, width = len(stencil.low), closure_width(stencil)
        closure, closure_at, lower = (self.code.table(k, word) for word in ("closure", "closure_at", "lower"))
        term = Store(SUM, closure[ROW * width + Q] * self._at(f"s{v}", J + AT + Q), "+")
        forward = Select(ROW < low, SUM - lower[J] * self._at(WORK, J - 1), SUM)
        return [for_each(ROW, 0, len(stencil.closures),
                         lets(j=closure_row(low), at=closure_at[ROW]),
                         for_each(L, 0, self.w, variable("sum", 0, self.t),
                                  for_each(Q, 0, width, term, bare=True),
                                  Store(self._at(WORK, J), forward)))]  # fmt: skip

    def _backward(self, v: int, k: int) -> list[Statement]:
        buffer, past_the_end = f"s{v}", self._at(f"s{v}", LENGTH)
        own = self._at(WORK, J) * INVERSE
        factors = Let(self.t, tuple((name, self.code.table(k, table)[J])
                                    for name, table in (("factor", "upper"), ("inverse", "inverse"))))  # fmt: skip

        def sweep(first: Expr, place: Expr, behind: Expr) -> For:
            step = self._lanes(Store(place, own - FACTOR * behind))
            return for_each(J, first, 0, factors, step, down=True)

        made: list[Statement] = [self._lanes(Store(past_the_end, value(0)))]
        if self.spec.periodic:
            made += [sweep(self.code.table(k, "warm") - 1, past_the_end, past_the_end),
                     self._lanes(Store(past_the_end, self.code.table(k, "turn")[1], "*"))]  # fmt: skip
        return [*made, sweep(LENGTH - 1, self._at(buffer, J), self._at(buffer, J + 1))]


class SystemsSweep(SweepNest):
    """The same for systems with coefficients of their own, which lie in buffers, too."""

    def _coefficient(self, name: str) -> Expr:
        """At point ``j`` of line ``l``; one that all lines have was named before."""
        v = self.spec.coefficient(name)
        return FACTOR if v is None else self._at(f"s{v}", J)

    def _along(self, name: str, *step: Statement, down: bool) -> Statement:
        """A step for each point, of all lines side by side; ``name``: of the coefficient next to the diagonal."""
        alike = self.spec.coefficient(name) is None
        shared = [let("factor", part_of(self.code.plan, name)[J], self.t)] if alike else []
        return along_line(*shared, self._lanes(*step), down=down)

    def _solved(self, v: int) -> Statement:
        """Forwards and backwards for one operand; the results take the place of the right-hand sides."""
        here, before, behind = (self._at(f"s{v}", row) for row in (J, J - 1, J + 1))
        inverse, lower, upper = map(self._coefficient, ("inverse", "lower", "upper"))
        forward = self._along("lower", Store(here, inverse * (here - lower * before)), down=False)
        backward = self._along("upper", Store(here, here - inverse * upper * behind), down=True)
        first = self._at(f"s{v}", -1), self._at(f"s{v}", LENGTH)
        return Block((*self._comes_in("lower", first[0], inverse * here, down=False), forward,
                      *self._comes_in("upper", first[1], here, down=True), backward))  # fmt: skip

    def _comes_in(self, name: str, place: Expr, own: Expr, *, down: bool) -> list[Statement]:
        """What is there before the first point: nothing, or around a periodic line what all of it leaves: its share
        over 1 less its product."""
        if not self.spec.periodic:
            return [self._lanes(Store(place, value(0)))]
        share, product = self._at(WORK, 0), self._at(WORK, 1)
        t = let("t", self._coefficient("inverse") * self._coefficient(name), self.t)
        turn = self._along(name, t, Store(share, own - T * share), Store(product, -T, "*"), down=down)
        return [self._lanes(Store(share, value(0)), Store(product, value(1))), turn,
                self._lanes(Store(place, share / (1 - product)))]  # fmt: skip
