"""cgs and bicgstab: a block iterates on a line, its vectors in shared memory, until the residual is at rounding.

Rounding can keep the residual just above that and drive it up again: such a start is repeated up to the iteration where
it was smallest. A line on which nothing succeeds is filled with NaN, so that nobody takes it for solved.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from meshloom.schedule.lines.along import OperatorAlong
from meshloom.schedule.lines.nest_parts import LENGTH, LINES, J, X, along_line, any_of
from meshloom.schedule.lines.reference.direct import Classic, LineOperand, MatrixTables, start_of
from meshloom.schedule.lines.spec import LineGeometry, LineSpec
from meshloom.schedule.lines.tables import negligible
from meshloom.schedule.nest.code import BLOCK, Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import (
    INT,
    Barrier,
    Expr,
    For,
    Grouped,
    If,
    Leave,
    Let,
    Name,
    Number,
    Select,
    Skip,
    Statement,
    Store,
    Thread,
    Threads,
    all_of,
    call,
    let,
    no,
    value,
    variable,
)
from meshloom.target import Target

MOST_ITERATIONS = 500
SHORT = 32
MOST_STARTS = 9  # from the residual that rounding has left, repetitions included
ROOM = Name("room")  # shared memory for sums
#: Vectors: the solution, and of one start its right-hand side, the correction that it finds, what is left, the first of
#: these, and those of the method.
SOLUTION, RIGHT, CORRECTION, RESIDUAL, SHADOW = map(Name, ("s_y", "s_b", "s_x", "s_r", "s_0"))
P, U, V = map(Name, ("s_p", "s_u", "s_v"))
#: Squares of residuals: at the start, after it, at the very first one, at rounding, in an iteration, the smallest.
SIZE, NOW, FIRST_SIZE, LEAST, LEFT, SMALLEST = map(Name, ("size", "now", "first_size", "least", "left", "smallest"))
#: Iterations: that may be, the one where the residual was smallest, this one.
ROUNDS, UNTIL, ROUND = map(Name, ("rounds", "until", "round"))
#: Products and shares, as papers call them.
RHO, ALPHA, BETA, OMEGA = map(Name, ("rho", "alpha", "beta", "omega"))
ALONG, NEXT, TOP, BOTTOM = map(Name, ("along", "next", "top", "bottom"))


class _Krylov(Classic):
    vectors: tuple[str, ...] = ()
    threads = 128  # a power of two: sums are trees
    shared_values = threads + 32  # for these trees, and to begin every vector at a multiple of 16 bytes

    @property
    def shared_vectors(self) -> int:  # type: ignore[override]
        return len(self.vectors)

    def declines(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> str | None:
        ends = [row for one in spec.operators for row in (*one.matrix.low, *one.matrix.high)]
        if lines.length < SHORT and any(abs(b) <= abs(a) + abs(c) for a, b, c in ends):
            return f"on lines of less than {SHORT} points it needs rows dominated by their diagonal, also at the ends"
        return super().declines(spec, lines, target=target)

    def tables(self, operator: OperatorAlong, n: int) -> MatrixTables:
        below, middle, above = operator.matrix.rows(n).T
        return MatrixTables(below, middle, above, np.array([operator.scale]))

    def passes_of(self, one: LineOperand) -> list[Pass]:
        line = _Line(one.spec, one.code, one.v, one.is_simt)
        body = (*line.right_hand_side(), *line.limits(), self._starts(line), *line.result())
        scratch = [Scratch(line.t, f"s_{n}", LENGTH) for n in self.vectors]
        if line.is_simt:
            scratch.append(Scratch(line.t, ROOM.name, value(self.threads)))
        phase = Phase(body, of_block=True)
        return [Pass("iterated", LINES, (phase,), blocked=True, scratch=tuple(scratch))]

    def _starts(self, line: _Line) -> Statement:
        """Iterations from the residual that is left, again and again, until it is at rounding."""
        copies = [RESIDUAL, SHADOW, P, *([U] if "u" in self.vectors else [])]
        begin = line.loop(Store(CORRECTION[J], value(0)), *(Store(one[J], RIGHT[J]) for one in copies))
        sizes = Let(line.t, (("rho", SIZE), ("smallest", SIZE)), fixed=False)
        rest = line.loop(Store(RESIDUAL[J], RIGHT[J] - line.product(CORRECTION)))
        rest += line.total("now", _square(RESIDUAL))
        stuck = If(any_of([UNTIL.equals(0), UNTIL >= ROUNDS]), (Leave(),), bare=True)
        worse = If(no(NOW < SIZE), (stuck, Store(ROUNDS, UNTIL), Skip()))
        keep = line.loop(Store(SOLUTION[J], CORRECTION[J], "+"), Store(RIGHT[J], RESIDUAL[J]))
        body = (*begin, sizes, variable("until", 0, INT), self._rounds(line), *rest, worse,
                Store(SIZE, NOW), Store(ROUNDS, value(MOST_ITERATIONS)), *keep)  # fmt: skip
        return For("start_anew", value(0), value(MOST_STARTS), body, INT, also=SIZE > LEAST)

    def _rounds(self, line: _Line) -> Statement:
        """Iterations while the residual is neither at rounding nor far away, and where it was smallest."""
        better = If(LEFT < SMALLEST, (Store(SMALLEST, LEFT), Store(UNTIL, ROUND + 1)))
        near = LEFT < Number(1.0 / negligible(line.spec.dtype)) * SIZE
        done = If(no(all_of([LEFT > LEAST, near, RHO.differs(0)])), (Leave(),), bare=True)
        return For(ROUND.name, value(0), ROUNDS, (*self.iteration(line), better, done), INT)

    @abstractmethod
    def iteration(self, line: _Line) -> list[Statement]:
        """Statements of one iteration, which set ``left``, the square of the residual."""


class _Line(LineOperand):
    """What an iteration is made of: loops over the points of a block's line, products with A, sums."""

    def loop(self, *inside: Statement) -> list[Statement]:
        """For all points, which threads take together where there are several."""
        if not self.is_simt:
            return [along_line(*inside)]
        return [For("j", Thread(), LENGTH, inside, step=Threads()), Barrier()]

    def product(self, x: Expr) -> Expr:
        """A x at row j."""
        first, last = value(0), LENGTH - 1
        before, behind = (last, first) if self.spec.periodic else (first, last)
        below, middle, above = (self.table(word)[J] for word in ("below", "middle", "above"))
        low, high = Select(J > 0, J - 1, before), Select(J < LENGTH - 1, J + 1, behind)
        return Grouped(below * x[Grouped(low)] + middle * x[J] + above * x[Grouped(high)])

    def total(self, name: str, term: Expr) -> list[Statement]:
        """``name``: the sum of a term over the line."""
        found = Name(name)
        made = [variable(name, 0, self.t), *self.loop(Store(found, term, "+"))]
        return [*made, Store(found, call("ml_block_sum", found, ROOM))] if self.is_simt else made

    def right_hand_side(self) -> list[Statement]:
        """To shared memory, with nothing solved yet, and its size."""
        load, found = self.loaded()
        right = Store(RIGHT[J], found * self.table("scale")[0])
        loop = self.loop(*load, right, Store(SOLUTION[J], value(0)))
        return [start_of(BLOCK), *loop, *self.total("size", _square(RIGHT))]

    def limits(self) -> list[Statement]:
        """Squares of residuals: at rounding, and at the start; and the iterations that there may be."""
        close = negligible(self.spec.dtype) ** 2
        known = Let(self.t, (("least", Number(close) * SIZE), ("first_size", SIZE)))
        return [known, variable("rounds", MOST_ITERATIONS, INT)]

    def result(self) -> list[Statement]:
        """The solution to the fields, or that there is none."""
        lost = Number(float(np.finfo(self.spec.dtype).eps))
        found = Select(SIZE > lost * FIRST_SIZE, Number(np.nan, self.spec.dtype), SOLUTION[J])
        return self.loop(let("x", found, self.t), *self.stored(X))


def _square(of: Expr) -> Expr:
    return of[J] * of[J]


def _share_along(line: _Line) -> list[Statement]:
    """``alpha``: how far to go along v, the product of A and the direction."""
    stop = If(no(ALONG.differs(0)), (Leave(),), bare=True)
    return [*line.total("along", SHADOW[J] * V[J]), stop, let("alpha", RHO / ALONG, line.t)]


def _sizes(line: _Line) -> list[Statement]:
    """The square of the residual, and its product with the first one."""
    return [*line.total("left", _square(RESIDUAL)), *line.total("next", SHADOW[J] * RESIDUAL[J])]


class ConjugateGradientSquared(_Krylov):
    """CGS (Sonneveld 1989)."""

    name = "cgs"
    summary = "a line in shared memory, conjugate gradients squared"
    vectors = ("y", "b", "x", "r", "0", "p", "u", "v", "q")

    def iteration(self, line: _Line) -> list[Statement]:
        q = Name("s_q")
        direction = U[J] + BETA * (q[J] + BETA * P[J])
        return [
            *line.loop(Store(V[J], line.product(P))),
            *_share_along(line),
            *line.loop(Store(q[J], U[J] - ALPHA * V[J]), Store(V[J], U[J] + q[J])),
            *line.loop(Store(CORRECTION[J], ALPHA * V[J], "+"), Store(RESIDUAL[J], ALPHA * line.product(V), "-")),
            *_sizes(line),
            let("beta", NEXT / RHO, line.t),
            Store(RHO, NEXT),
            *line.loop(Store(U[J], RESIDUAL[J] + BETA * q[J]), Store(P[J], direction)),
        ]


class BiCgStab(_Krylov):
    """BiCGSTAB (van der Vorst 1992)."""

    name = "bicgstab"
    summary = "a line in shared memory, stabilised biconjugate gradients"
    vectors = ("y", "b", "x", "r", "0", "p", "v", "t")

    def iteration(self, line: _Line) -> list[Statement]:
        t, zero = Name("s_t"), value(0)
        beta = Select(OMEGA.differs(0), NEXT / RHO * (ALPHA / OMEGA), zero)
        return [
            *line.loop(Store(V[J], line.product(P))),
            *_share_along(line),
            *line.loop(Store(RESIDUAL[J], ALPHA * V[J], "-")),
            *line.loop(Store(t[J], line.product(RESIDUAL))),
            *line.total("top", t[J] * RESIDUAL[J]),
            *line.total("bottom", _square(t)),
            let("omega", Select(BOTTOM > 0, TOP / BOTTOM, zero), line.t),
            *line.loop(
                Store(CORRECTION[J], ALPHA * P[J] + OMEGA * RESIDUAL[J], "+"), Store(RESIDUAL[J], OMEGA * t[J], "-")
            ),
            *_sizes(line),
            let("beta", beta, line.t),
            Store(RHO, Select(OMEGA.differs(0), NEXT, zero)),
            *line.loop(Store(P[J], RESIDUAL[J] + BETA * (P[J] - OMEGA * V[J]))),
        ]
