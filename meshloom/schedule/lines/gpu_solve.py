"""Nests of line loops on a GPU: the solve in registers, and the exchange of carries and ends of parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from meshloom.schedule.lines.gpu_factors import EDGE, pivot
from meshloom.schedule.lines.gpu_names import CELLS, CHUNK, CHUNKS, CORE, GROUP, J0, MINE, POINT, SLOT, WINDOW
from meshloom.schedule.lines.gpu_rows import RightHandNest
from meshloom.schedule.lines.terms import LENGTH, Q, chained, lets, lower_of
from meshloom.schedule.nest.code import Pass
from meshloom.schedule.nest.nodes import (
    INT,
    Barrier,
    Block,
    Body,
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

#: In shared memory: what segments give to those behind and before them.
FORWARD_CARRIES, BACKWARD_CARRIES = Name("forward_carries"), Name("backward_carries")
_ENDS, _CARRY, _WEIGHT, _FROM, _PART = map(Name, ("ends", "carry", "weight", "t", "part"))
_AT, _END, _LAST, _BESIDE, _SHARE = map(Name, ("at", "end", "last", "beside", "share"))
MOST_UNROLLED = 8  # carries


class SegmentNest(RightHandNest):
    """A thread owns a segment ``slot`` of a line, which begins at point ``j0``."""

    @abstractmethod
    def made(self) -> Pass:
        """The pass over all tiles of lines."""

    @abstractmethod
    def cell(self, slot: Expr) -> Expr:
        """The place among the carries of a segment of the thread's line."""

    @abstractmethod
    def line_number(self) -> Expr:
        """The number of a thread's line."""

    def solve(self, operands: Sequence[int]) -> list[Statement]:
        """Right-hand sides x of some operands to solutions x, side by side."""
        made: list[Statement] = []
        for v in operands:
            made += self._joined(v) if self.level == 2 else []
        for v in operands:
            given = FORWARD_CARRIES[self._share(operands, v, SLOT)]
            made += [self._forward(v), Store(given, self.x(v, self.m - 1))]
        made.append(Barrier())
        for v in operands:
            given = BACKWARD_CARRIES[self._share(operands, v, SLOT)]
            made += [self._carry(v, operands, forward=True), self._backward(v), Store(given, self.x(v, 0))]
        made.append(Barrier())
        for v in operands:
            made.append(self._carry(v, operands, forward=False))
            made += self._left(v) if self.level == 1 else []
        return made

    def _share(self, operands: Sequence[int], v: int, slot: Expr) -> Expr:
        """The place of a carry where several operands are solved side by side."""
        number, cell = operands.index(v), self.cell(slot)
        return chained(number * CELLS, cell) if number else cell

    def _forward(self, v: int) -> Statement:
        lower, before = self.number(self.spec.operators[v].matrix.constants[0]), self.x(v, POINT - 1)
        own = self.factors.at("lower", self.spec.number(v), POINT)
        edge, inner = (self.unrolled(Store(self.x(v, POINT), factor * before, "-"), start=1) for factor in (own, lower))
        return If(EDGE, (edge,), (inner,))

    def _backward(self, v: int) -> Statement:
        k, last, i = self.spec.number(v), self.m - 1, self.m - 2 - POINT

        def sweep(end: Expr, inverse: Expr, upper: Expr) -> Body:
            step = Store(self.x(v, i), self.x(v, i) * inverse - upper * self.x(v, i + 1))
            return Store(self.x(v, last), end, "*"), self.unrolled(step, end=last)

        at, upper = self.factors.at, self.number(self.spec.operators[v].matrix.constants[2])
        edge = sweep(at("inverse", k, value(last)), at("inverse", k, i), at("upper", k, i))
        return If(EDGE, edge, sweep(pivot(k), pivot(k), upper))

    def _carry(self, v: int, operands: Sequence[int], *, forward: bool) -> Statement:
        """What comes in from the neighbours, and what that changes in the segment."""
        k, m = self.spec.number(v), self.m
        carries, products, turn = (FORWARD_CARRIES, "forward", 0) if forward else (BACKWARD_CARRIES, "backward", 1)
        move = Select(_FROM.equals(0), WINDOW - 1, _FROM - 1) if forward else (
            Select(_FROM.equals(WINDOW - 1), value(0), _FROM + 1))  # fmt: skip
        collect = (
            Store(_FROM, move),
            Store(_CARRY, _WEIGHT * carries[self._share(operands, v, _FROM)], "+"),
            Store(_WEIGHT, self.code.table(k, products)[CHUNK * CORE + _FROM], "*"),
        )
        unroll = 0 if self.k <= MOST_UNROLLED else None
        around = Store(_CARRY, self.code.table(k, "turn")[turn], "*")
        i = POINT if forward else m - 1 - POINT
        table = self.factors.at("lower" if forward else "upper", k, i)
        edge = (variable("part", _CARRY, self.t),
                self.unrolled(Store(_PART, -table, "*"), Store(self.x(v, i), _PART, "+")))  # fmt: skip
        lower, _, upper = self.spec.operators[v].matrix.constants
        factor, points = -(lower if forward else upper), range(m) if forward else reversed(range(m))
        inner = tuple(Store(self.x(v, i), self.number(factor ** (p + 1)) * _CARRY, "+") for p, i in enumerate(points))
        return Block((
            variable("carry", 0, self.t), variable("weight", 1, self.number_type), variable("t", SLOT),
            For("q", value(0), value(self.k), collect, INT, unroll=unroll),
            *([around] if self.spec.periodic else []), If(EDGE, edge, inner),
        ))  # fmt: skip

    # ----- two levels ---------------------------------------------------------------------------------------------
    def _ends_of_line(self, v: int) -> Expr:
        """Where the ends of the parts of the thread's line begin in ``ends``."""
        number = GROUP if len(self.spec.groups) > 1 else value(v)  # groups are of one operand then
        return (Grouped(self.line_number()) * len(self.spec.operands) + number) * 2 * CHUNKS

    def _last_row(self) -> Expr:
        return lower_of((CHUNK + 1) * WINDOW * self.m, LENGTH) - 1

    def _left(self, v: int) -> list[Statement]:
        """The first and last values of a part, for its neighbours."""
        first = If(SLOT.equals(0), (Store(_ENDS[_AT], self.x(v, 0)),), bare=True)
        last = If((J0 + POINT).equals(_END), (Store(_ENDS[_AT + 1], self.x(v, POINT)),), bare=True)
        where = lets(at=self._ends_of_line(v) + 2 * CHUNK, end=self._last_row())
        return [If(MINE, (where, first, self.unrolled(last)))]

    def _joined(self, v: int) -> list[Statement]:
        """The right-hand sides of the first and last rows of a part, without the share of its neighbours' ends."""
        joined, joints = (self.code.table(self.spec.number(v), "ends", word) for word in ("joined", "joints"))

        def end(row: Expr) -> Body:
            term = joined[Grouped(row) * 2 * CHUNKS + Q] * _ENDS[_AT + Q]
            total = For("q", value(0), 2 * CHUNKS, (Store(_BESIDE, term, "+"),), bare=True)
            return variable("beside", 0, self.t), let("at", self._ends_of_line(v)), total

        before = Select(CHUNK.equals(0), CHUNKS - 1, CHUNK - 1) * 2 + 1
        behind = Select(CHUNK.equals(CHUNKS - 1), value(0), CHUNK + 1) * 2
        low, high = joints[2 * CHUNK], joints[2 * CHUNK + 1]
        share = Store(self.x(v, POINT), Select((J0 + POINT).equals(_LAST), _SHARE, value(0)), "-")
        own = all_of([_LAST >= J0, _LAST < J0 + self.m, high.differs(0)])
        return [
            If(all_of([SLOT.equals(0), low.differs(0)]), (*end(before), Store(self.x(v, 0), low * _BESIDE, "-"))),
            If(own, (*end(behind), let("share", high * _BESIDE, self.t), self.unrolled(share)),
               given=let("last", self._last_row())),
        ]  # fmt: skip
