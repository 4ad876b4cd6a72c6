"""Direct methods for A x = f, one operand after the other, a line as a whole.

thomas: LU factored once, a thread goes along a line, there and back; as it lies or through a transposed copy.
cyclic_reduction and pcr: a block solves a line in shared memory, in as many steps as the line has doublings.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from meshloom.records import dataclass
from meshloom.schedule.choice.candidate import Candidate
from meshloom.schedule.lines.along import OperatorAlong
from meshloom.schedule.lines.base import LineMethod
from meshloom.schedule.lines.nest_parts import (
    ALONG_LINE,
    LENGTH,
    LINES,
    J,
    Q,
    X,
    along_line,
    chained,
    higher_of,
    lets,
    lower_of,
    start_of_line,
)
from meshloom.schedule.lines.spec import LineGeometry, LinePlan, LinePointCode, LineSpec, LineTiling
from meshloom.schedule.lines.tables import FactorTables
from meshloom.schedule.nest.code import BLOCK, COUNT, ITEM, ROUND, Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import (
    BOOL,
    INDEX,
    Block,
    Body,
    Cast,
    Expr,
    Grouped,
    If,
    Let,
    Name,
    Select,
    Statement,
    Store,
    all_of,
    let,
    value,
    variable,
)
from meshloom.schedule.plan.declare import ANY, REALS, Array, Listed, Part, PlanNumber, Reals, holds
from meshloom.schedule.plan.emitter import Temporary
from meshloom.schedule.plan.plan import Plan, with_arrays
from meshloom.schedule.spec import LoopSpec
from meshloom.target import Target


@dataclass(frozen=True, eq=False)
class MatrixTables:
    """Rows of one operator's matrix."""

    below: Reals = holds(Array(REALS, ANY), "entries below the diagonal")
    middle: Reals = holds(Array(REALS, ANY), "the diagonal")
    above: Reals = holds(Array(REALS, ANY), "entries above the diagonal")
    scale: Reals = holds(Array(REALS, 1), "of the right-hand side")


@dataclass(frozen=True, eq=False)
class Corners:
    """The correction of a periodic line."""

    corner: Reals = holds(Array(REALS, ANY), "what the ends of a periodic line add to each point")
    mix: Reals = holds(Array(REALS, 1), "the share of the last point in that")


@dataclass(frozen=True, eq=False)
class CornerTables(Corners, FactorTables):
    """LU factors of one operator, the scale in the pivots."""


@dataclass(frozen=True, eq=False)
class RowTables(Corners, MatrixTables):
    """Rows without corners, those beyond the end being x = 0."""


Tables = CornerTables | MatrixTables


@dataclass(frozen=True, eq=False)
class ClassicPlan(LinePlan):
    """Tables of the operators, for methods that take a line as a whole."""

    operators: tuple[Tables, ...] = holds(
        Listed(Part(CornerTables, MatrixTables, RowTables)), "of each distinct operator"
    )
    lines: int = holds(PlanNumber(), "how many there are")
    padded_rows: int = holds(PlanNumber(), "rows that a line is padded to")


@dataclass(frozen=True)
class LineOperand:
    """One of those of a loop, at point ``j`` of the line that begins at ``start``."""

    spec: LineSpec
    code: LinePointCode
    v: int
    is_simt: bool

    @property
    def t(self) -> str:
        return self.spec.ctype

    def table(self, table: str) -> Name:
        """One of its operator's."""
        return self.code.table(self.spec.number(self.v), table)

    def loaded(self) -> tuple[list[Statement], Expr]:
        """Statements for it, and its value."""
        computed, found = self.code.operands(ALONG_LINE, (self.v,))
        return computed, found[0]

    def stored(self, result: Expr) -> list[Statement]:
        """Statements that bring what its solution gives to the fields."""
        return self.code.after(ALONG_LINE, [result], (self.v,))


class Classic(LineMethod):
    """A method for A x = f alone."""

    plans: type[ClassicPlan] = ClassicPlan
    shared_vectors = 0  # values per point that a block keeps in shared memory; 0: none
    shared_values = 0  # besides these
    threads = 128

    def declines(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> str | None:
        if spec.systems:
            return "its coefficients are constant; only 'segmented' takes some that vary"
        if any(one.stencil.inner != {0: 1.0} or one.stencil.closures for one in spec.operators):
            return "it solves A x = f alone; only 'segmented' takes a stencil for the right-hand side"
        if len(spec.operands) > 1 and not spec.separable:
            return "it takes one operand after the other, but a result needs several of them"
        needed = (self.shared_vectors * self.rows(lines.length) + self.shared_values) * spec.dtype.itemsize
        if self.shared_vectors and target.is_simt and needed > target.shared:
            return (
                f"a line of {lines.length} points needs {needed:,} bytes of shared memory, a block has"
                f" {target.shared:,}"
            )
        return None

    def rows(self, length: int) -> int:
        """Rows that a line is padded to."""
        return length

    def tilings(
        self, spec: LineSpec, lines: LineGeometry, wish: Mapping[str, int], *, target: Target
    ) -> tuple[Candidate[LineTiling], ...]:
        return (Candidate(LineTiling(self.kind(lines, wish), 1, 0, 1)),)

    def kind(self, lines: LineGeometry, wish: Mapping[str, int]) -> str:
        """Of a tiling."""
        return "contiguous" if lines.contiguous else "strided"

    def plan(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> Plan:
        found = tuple(with_arrays(self.tables(one, lines.length), lambda t: np.ascontiguousarray(t, spec.dtype))
                      for one in spec.distinct)  # fmt: skip
        block, rows = self.threads if target.is_simt else 16, self.rows(lines.length)
        return self.plans(self.name, block, lines.places, found, lines.count, rows, **self.counts(lines))

    def counts(self, lines: LineGeometry) -> dict[str, Any]:
        """What the plan of a method declares besides ``ClassicPlan``, by the names of its fields."""
        return {}

    @abstractmethod
    def tables(self, operator: OperatorAlong, n: int) -> Tables:
        """Tables of an operator for lines of n points."""

    def line_passes(self, spec: LineSpec, plan: Plan, *, target: Target) -> list[Pass]:
        code = LinePointCode(spec, plan)
        each = [LineOperand(spec, code, v, target.is_simt) for v in range(len(spec.operands))]
        return [one for operand in each for one in self.passes_of(operand)]

    @abstractmethod
    def passes_of(self, one: LineOperand) -> list[Pass]:
        """The passes for one operand."""


def start_of(line: Expr) -> Let:
    """Where a line begins."""
    return let("start", start_of_line(line))


# --- thomas -----------------------------------------------------------------------------------------------------------

EDGE = 32  # of the squares that are transposed
#: Numbers of the plan; the solution on the way forwards and, of a periodic line, at its high end and mixed with that.
SQUARES, ALONG = map(Name, ("squares", "along"))
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

    def kind(self, lines: LineGeometry, wish: Mapping[str, int]) -> str:
        return "transposed" if wish.get("transposed", int(lines.contiguous)) else "strided"

    def tables(self, operator: OperatorAlong, n: int) -> CornerTables:
        made = operator.matrix.cornerless(n)
        lower, inverse, upper = made.factors.T
        return CornerTables(lower, inverse * operator.scale, upper, made.corner, np.array([made.mix]))

    def counts(self, lines: LineGeometry) -> dict[str, Any]:
        along, across = -(-lines.length // EDGE), -(-lines.count // EDGE)
        return {"squares": along * across, "along": along}

    def temporaries(self, spec: LoopSpec, plan: Plan) -> list[Temporary]:
        assert isinstance(spec, LineSpec)
        return [("work", spec.dtype, COUNT)]

    def passes_of(self, one: LineOperand) -> list[Pass]:
        load, found = one.loaded()
        if one.spec.tiling.kind == "strided":
            return [_sweeps(one, (start_of(ITEM),), load, found, one.stored(X))]
        return [
            _transposed(one, [*load, Store(SQUARE, found)], Store(WORK, SQUARE), load=True),
            _sweeps(one, (), (), WORK, [Store(WORK, X)]),
            _transposed(one, one.stored(SQUARE), Store(SQUARE, WORK), load=False),
        ]


def _sweeps(one: LineOperand, start: Sequence[Statement], load: Sequence[Statement], found: Expr,
            store: Sequence[Statement]) -> Pass:  # fmt: skip
    """Forwards into ``work``, which has the lines side by side, and backwards."""
    step = Store(FORWARD, found - one.table("lower")[J] * FORWARD)
    forward = along_line(*load, step, Store(WORK, FORWARD))
    back = Store(X, WORK * one.table("inverse")[J] - one.table("upper")[J] * X)
    body = (*start, variable("g", 0, one.t), forward, variable("x", 0, one.t))
    ends = _corrected(one, back, store) if one.spec.periodic else [along_line(back, *store, down=True)]
    return Pass("sweeps", LINES, (Phase((*body, *ends)),))


def _corrected(one: LineOperand, back: Statement, store: Sequence[Statement]) -> list[Statement]:
    """What the ends of a periodic line add is known when all of it is solved."""
    last = Store(HIGH, Select(J.equals(LENGTH - 1), X, HIGH))
    solution = let("x", WORK - one.table("corner")[J] * MIXED, one.t)
    mixed = let("mixed", X + one.table("mix")[0] * HIGH, one.t)
    return [variable("high", 0, one.t), along_line(back, Store(WORK, X), last, down=True), mixed,
            along_line(solution, *store)]  # fmt: skip


def _transposed(one: LineOperand, at_fields: Sequence[Statement], at_work: Statement, *, load: bool) -> Pass:
    """Squares of points between the fields, along the lines, and ``work``, across them."""
    along = _in_square(lets(p=S / EDGE, q=S % EDGE, i=ACROSS + P, j=DOWN + Q), start_of(ITEM), *at_fields)
    across = _in_square(lets(q=S / EDGE, p=S % EDGE, i=ACROSS + P, j=DOWN + Q), at_work)
    phases = (along, across) if load else (across, along)
    scratch = (Scratch(one.t, "square", value(EDGE * (EDGE + 1))),)
    return Pass("transposed", SQUARES, phases, blocked=True, scratch=scratch)


def _in_square(point: Statement, *body: Statement) -> Phase:
    """A phase over the points ``s`` of the block's square: ``point`` says which is p, q there, i, j on the lines."""
    corner = lets(across=Grouped(BLOCK / ALONG) * EDGE, down=Grouped(BLOCK % ALONG) * EDGE)
    inside = If(all_of([ITEM < LINES, J < LENGTH]), body)
    return Phase((corner, let("s", ITEM), Block((point, inside))), value(0), value(EDGE * EDGE))


# --- cyclic_reduction and pcr -----------------------------------------------------------------------------------------

_ROWS = ("below", "middle", "above")
BELOW, MIDDLE, ABOVE, RIGHT = map(Name, ("s_below", "s_middle", "s_above", "s_right"))  # in shared memory
#: Numbers of the plan.
PADDED_ROWS, DOUBLINGS = map(Name, ("padded_rows", "doublings"))
#: An equation, how far its neighbours are, the one behind and whether it is there, the solution of the one before.
K, H, UP, VALID, BEFORE = map(Name, ("k", "h", "up", "valid", "before"))
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
        made = operator.matrix.cornerless(n)
        all_rows = np.tile([0.0, 1.0, 0.0], (self.rows(n), 1))
        all_rows[:n] = made.rows
        all_rows[0, 0] = all_rows[n - 1, 2] = 0.0
        a, b, c = all_rows.T
        return RowTables(a, b, c, np.array([operator.scale]), made.corner, np.array([made.mix]))

    def counts(self, lines: LineGeometry) -> dict[str, Any]:
        return {"doublings": self.rows(lines.length).bit_length() - 1}

    def start(self, one: LineOperand) -> Phase:
        """Rows and right-hand sides of the block's line to shared memory."""
        load, found = one.loaded()
        rows = (Store(Name(f"s_{row}")[J], one.table(row)[J]) for row in _ROWS)
        right = Store(RIGHT[J], found * one.table("scale")[0])
        inside = If(J < LENGTH, (start_of(BLOCK), *load, right))
        return Phase((let("j", ITEM), *rows, Store(RIGHT[J], value(0)), inside), value(0), PADDED_ROWS)

    def finish(self, one: LineOperand, solution: Callable[[Expr], Expr]) -> Phase:
        """The solution at a row, corrected on a periodic line, to the fields."""
        x = solution(J)
        if one.spec.periodic:
            ends = solution(value(0)) + one.table("mix")[0] * solution(LENGTH - 1)
            x = x - one.table("corner")[J] * ends
        body = (let("j", ITEM), start_of(BLOCK), let("x", x, one.t), *one.stored(X))
        return Phase(body, value(0), LENGTH)

    def scratch(self, one: LineOperand, copies: int) -> tuple[Scratch, ...]:
        return tuple(Scratch(one.t, f"s_{n}", copies * PADDED_ROWS) for n in (*_ROWS, "right"))


class CyclicReduction(_Reduction):
    """Half of the unknowns is eliminated in each step, and found again on the way back. Threads that work are
    neighbours, as in the sum of a tree: equation k of a step belongs to thread k."""

    name = "cyclic_reduction"
    summary = "a line in shared memory, halved in every step"
    shared_vectors = 4

    def passes_of(self, one: LineOperand) -> list[Pass]:
        last = Store(RIGHT[PADDED_ROWS - 1], MIDDLE[PADDED_ROWS - 1], "/")
        phases = (
            self.start(one),
            Phase(_halved(one.t), value(0), PADDED_ROWS >> Grouped(ROUND + 1), repeat=DOUBLINGS),
            Phase((last,), value(0), value(1)),
            Phase(_found_again(one.t), value(0), Cast(INDEX, value(1)) << ROUND, repeat=DOUBLINGS),
            self.finish(one, lambda j: RIGHT[j]),
        )
        return [Pass("halved", LINES, phases, blocked=True, scratch=self.scratch(one, 1))]


def _halved(t: str) -> Body:
    """Equation ``k`` without its neighbours ``k - h`` and ``up``, which may not be there."""

    def there(one: Expr) -> Expr:
        return Select(VALID, one, value(0))

    alpha, gamma = -BELOW[K] / MIDDLE[K - H], there(-ABOVE[K] / MIDDLE[UP])
    return (
        lets(h=Cast(INDEX, value(1)) << ROUND, k=(ITEM + 1) * 2 * H - 1, up=K + H),
        let(VALID.name, UP < PADDED_ROWS, BOOL),
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

    def passes_of(self, one: LineOperand) -> list[Pass]:
        def solution(j: Expr) -> Expr:
            at = chained((DOUBLINGS & 1) * PADDED_ROWS, j)
            return Grouped(RIGHT[at] / MIDDLE[at])

        phases = (
            self.start(one),
            Phase(_reduced(one.t), value(0), PADDED_ROWS, repeat=DOUBLINGS),
            self.finish(one, solution),
        )
        return [Pass("reduced", LINES, phases, blocked=True, scratch=self.scratch(one, 2))]


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
