"""cyclic_reduction and pcr: a block solves a line in shared memory, in as many steps as the line has doublings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meshloom.schedule.lines.along import OperatorAlong
from meshloom.schedule.lines.reference.classic import (
    Classic,
    ClassicPlan,
    RowTables,
    operand,
    row_tables,
    start_of,
    stored,
)
from meshloom.schedule.lines.spec import LineGeometry, LinePointCode, LineSpec
from meshloom.schedule.lines.terms import LENGTH, J, X, chained, higher_of, lets, lower_of
from meshloom.schedule.nest.code import BLOCK, ITEM, ROUND, Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import (
    BOOL,
    INDEX,
    Body,
    Cast,
    Expr,
    Grouped,
    If,
    Let,
    Name,
    Select,
    Store,
    let,
    value,
)
from meshloom.schedule.plan.declare import PlanNumber, holds
from meshloom.target import Target

_ROWS = ("below", "middle", "above")
BELOW, MIDDLE, ABOVE, RIGHT = map(Name, ("s_below", "s_middle", "s_above", "s_right"))  # in shared memory
#: Numbers of the plan.
LINES, PADDED_ROWS, DOUBLINGS = map(Name, ("lines", "padded_rows", "doublings"))
#: An equation, how far its neighbours are, the one behind and whether it is there, the solution of the one before.
K, H, UP, THERE, BEFORE = map(Name, ("k", "h", "up", "there", "before"))
#: Multiples of its neighbours that are added to it; the halves of memory that a step reads and writes.
ALPHA, GAMMA, OLD, NOW = map(Name, ("alpha", "gamma", "old", "now"))


@dataclass(frozen=True, eq=False)
class ReductionPlan(ClassicPlan):
    """A line in as many steps as it has doublings."""

    doublings: int = holds(PlanNumber(), "of one row to all")


class _Reduction(Classic):
    plans = ReductionPlan

    def rows(self, length: int) -> int:
        return 1 << (length - 1).bit_length()

    def tables(self, operator: OperatorAlong, n: int) -> RowTables:
        return row_tables(operator, n, self.rows(n))

    def counts(self, lines: LineGeometry) -> dict[str, Any]:
        return {"doublings": self.rows(lines.length).bit_length() - 1}

    def start(self, spec: LineSpec, code: LinePointCode, v: int) -> Phase:
        """Rows and right-hand sides of the block's line to shared memory."""
        k, (load, found) = spec.number(v), operand(code, v)
        rows = (Store(Name(f"s_{row}")[J], code.table(k, row)[J]) for row in _ROWS)
        right = Store(RIGHT[J], found * code.table(k, "scale")[0])
        inside = If(J < LENGTH, (start_of(BLOCK), *load, right))
        return Phase((let("j", ITEM), *rows, Store(RIGHT[J], value(0)), inside), value(0), PADDED_ROWS)

    def finish(self, spec: LineSpec, code: LinePointCode, v: int, solution: Callable[[Expr], Expr]) -> Phase:
        """The solution at a row, corrected on a periodic line, to the fields."""
        k, x = spec.number(v), solution(J)
        if spec.periodic:
            ends = solution(value(0)) + code.table(k, "mix")[0] * solution(LENGTH - 1)
            x = x - code.table(k, "corner")[J] * ends
        body = (let("j", ITEM), start_of(BLOCK), let("x", x, spec.ctype), *stored(code, v, X))
        return Phase(body, value(0), LENGTH)

    def scratch(self, spec: LineSpec, copies: int) -> tuple[Scratch, ...]:
        return tuple(Scratch(spec.ctype, f"s_{n}", copies * PADDED_ROWS) for n in (*_ROWS, "right"))


class CyclicReduction(_Reduction):
    """Half of the unknowns is eliminated in each step, and found again on the way back. Threads that work are
    neighbours, as in the sum of a tree: equation k of a step belongs to thread k."""

    name = "cyclic_reduction"
    summary = "a line in shared memory, halved in every step"
    shared_vectors = 4

    def passes_of(self, spec: LineSpec, code: LinePointCode, v: int, *, target: Target) -> list[Pass]:
        last = Store(RIGHT[PADDED_ROWS - 1], MIDDLE[PADDED_ROWS - 1], "/")
        phases = (
            self.start(spec, code, v),
            Phase(_halved(spec.ctype), value(0), PADDED_ROWS >> Grouped(ROUND + 1), repeat=DOUBLINGS),
            Phase((last,), value(0), value(1)),
            Phase(_found_again(spec.ctype), value(0), Cast(INDEX, value(1)) << ROUND, repeat=DOUBLINGS),
            self.finish(spec, code, v, lambda j: RIGHT[j]),
        )
        return [Pass("halved", LINES, phases, blocked=True, scratch=self.scratch(spec, 1))]


def _halved(t: str) -> Body:
    """Equation ``k`` without its neighbours ``k - h`` and ``up``, which may not be there."""

    def there(one: Expr) -> Expr:
        return Select(THERE, one, value(0))

    alpha, gamma = -BELOW[K] / MIDDLE[K - H], there(-ABOVE[K] / MIDDLE[UP])
    return (
        lets(h=Cast(INDEX, value(1)) << ROUND, k=(ITEM + 1) * 2 * H - 1, up=K + H),
        let("there", UP < PADDED_ROWS, BOOL),
        Let(t, (("alpha", alpha), ("gamma", gamma))),
        Store(MIDDLE[K], ALPHA * ABOVE[K - H] + Grouped(there(GAMMA * BELOW[UP])), "+"),
        Store(RIGHT[K], ALPHA * RIGHT[K - H] + Grouped(there(GAMMA * RIGHT[UP])), "+"),
        Store(BELOW[K], ALPHA * BELOW[K - H]),
        Store(ABOVE[K], there(GAMMA * ABOVE[UP])),
    )


def _found_again(t: str) -> Body:
    """The solution of equation ``k`` from those of its neighbours."""
    rest = RIGHT[K] - BELOW[K] * BEFORE - ABOVE[K] * RIGHT[K + H]
    return (
        lets(h=PADDED_ROWS >> Grouped(ROUND + 1), k=ITEM * 2 * H + H - 1),
        let("before", Select(K >= H, RIGHT[K - H], value(0)), t),
        Store(RIGHT[K], rest / MIDDLE[K]),
    )


class ParallelCyclicReduction(_Reduction):
    """Every equation loses its neighbours in each step, until it stands alone: twice the shared memory, half the
    steps, no thread idle."""

    name = "pcr"
    summary = "a line in shared memory, every equation reduced in every step"
    shared_vectors = 8

    def passes_of(self, spec: LineSpec, code: LinePointCode, v: int, *, target: Target) -> list[Pass]:
        def solution(j: Expr) -> Expr:
            at = chained((DOUBLINGS & 1) * PADDED_ROWS, j)
            return Grouped(RIGHT[at] / MIDDLE[at])

        phases = (
            self.start(spec, code, v),
            Phase(_reduced(spec.ctype), value(0), PADDED_ROWS, repeat=DOUBLINGS),
            self.finish(spec, code, v, solution),
        )
        return [Pass("reduced", LINES, phases, blocked=True, scratch=self.scratch(spec, 2))]


def _reduced(t: str) -> Body:
    """Equation ``k`` without its neighbours ``h`` before and behind it: from the ``old`` half of memory to the other.
    Places in the old one: ``m`` of the neighbour before, ``o`` of the equation, ``p`` of the one behind."""
    m, o, p = map(Name, "mop")
    return (
        lets(h=Cast(INDEX, value(1)) << ROUND, old=(ROUND & 1) * PADDED_ROWS, now=PADDED_ROWS - OLD, k=ITEM),
        lets(m=OLD + higher_of(K - H, 0), o=OLD + K),
        let("p", OLD + lower_of(K + H, PADDED_ROWS - 1)),
        let("alpha", Select(K >= H, -BELOW[o] / MIDDLE[m], value(0)), t),
        let("gamma", Select(K + H < PADDED_ROWS, -ABOVE[o] / MIDDLE[p], value(0)), t),
        Store(MIDDLE[NOW + K], MIDDLE[o] + ALPHA * ABOVE[m] + GAMMA * BELOW[p]),
        Store(RIGHT[NOW + K], RIGHT[o] + ALPHA * RIGHT[m] + GAMMA * RIGHT[p]),
        Store(BELOW[NOW + K], ALPHA * BELOW[m]),
        Store(ABOVE[NOW + K], GAMMA * ABOVE[p]),
    )
