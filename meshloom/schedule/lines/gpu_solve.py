"""Nests of line loops on a GPU: the right-hand sides of a segment's rows, from the operands around it, the solve in
registers, and the exchange of carries and ends of parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from meshloom.schedule.lines.along import Offsets
from meshloom.schedule.lines.gpu_block import EDGE, BlockNest, pivot
from meshloom.schedule.lines.nest_parts import (
    CELLS,
    CHUNK,
    CHUNKS,
    CORE,
    GROUP,
    J0,
    LENGTH,
    MINE,
    POINT,
    ROW,
    SLOT,
    SUM,
    WINDOW,
    J,
    Q,
    any_of,
    chained,
    closure_row,
    for_each,
    lets,
    lower_of,
    neighbours,
    right_hand_side,
)
from meshloom.schedule.lines.tables import closure_width
from meshloom.schedule.nest.code import Scratch
from meshloom.schedule.nest.nodes import (
    INT,
    Barrier,
    Block,
    Body,
    Cast,
    Expr,
    For,
    Grouped,
    If,
    Item,
    Let,
    Name,
    Select,
    Skip,
    Statement,
    Store,
    Value,
    all_of,
    let,
    no,
    summed,
    value,
    variable,
)

#: In shared memory: what segments give to those behind and before them.
FORWARD_CARRIES, BACKWARD_CARRIES = Name("forward_carries"), Name("backward_carries")
_ENDS, _CARRY, _WEIGHT, _FROM, _PART = map(Name, ("ends", "carry", "weight", "t", "part"))
_AT, _END, _LAST, _NEXT_END, _SHARE = map(Name, ("at", "end", "last", "next_end", "share"))
MOST_UNROLLED = 8  # carries


class NearRow(NamedTuple):
    """A row at an end, by its number in the tables, whose operands are all around its segment: kept under a ``name``
    while these change, of the segment ``where`` this holds, point ``i``."""

    row: int
    name: str
    where: Expr
    i: int
    stencil: Offsets


class SegmentNest(BlockNest):
    """x from the operands f of a segment and of ``reach`` points at either side."""

    @abstractmethod
    def line_number(self) -> Expr:
        """The number of a thread's line."""

    @staticmethod
    def f(v: int, i: Value) -> Item:
        """Operand v; those before the segment come first."""
        return Name(f"f{v}")[value(i)]

    @abstractmethod
    def operand_added(self, v: int, at: Expr, coefficient: Expr) -> list[Statement]:
        """Statements that add operand v at row j + ``at`` + q, times its coefficient, to ``sum``."""

    def right_hand_sides(self, v: int) -> list[Statement]:
        """Rows at the ends of a closed line first, while f is all there."""
        near, stencil = self._near_rows(v), self.spec.operators[v].stencil
        made: list[Statement] = []
        if near:
            named = tuple((name, value(0)) for name in sorted({one.name for one in near}))
            made.append(Let(self.t, named, fixed=False))
        for one in near:
            terms = [self.number(c) * self.f(v, one.i + o + self.reach) for o, c in one.stencil.items()]
            made.append(If(one.where, (Store(Name(one.name), summed(terms)),), bare=True))
        right = right_hand_side(stencil, lambda o: self.f(v, POINT + (self.reach + o)), self.spec.dtype)
        made.append(self.unrolled(Store(self.x(v, POINT), right)))
        made += [If(one.where, (Store(self.x(v, one.i), Name(one.name)),), bare=True) for one in near]
        return [*made, self.beyond(v)]

    def _near_rows(self, v: int) -> list[NearRow]:
        """Those at the low end, and at the high one where the last segment is full and not the first, too."""
        stencil, m, reach = self.spec.operators[v].stencil, self.m, self.reach
        low, full = len(stencil.low), self._last_is_full
        rows = [NearRow(k, f"end{k}", J0.equals(k // m * m), k % m, row) for k, row in enumerate(stencil.low)]
        rows += [NearRow(low + d, f"end{d}", full, m - 1 - d, row) for d, row in enumerate(stencil.high)]
        return [one for one in rows if one.i >= 0 and one.i + min(one.stencil) + reach >= 0
                and one.i + max(one.stencil) < m + reach]  # fmt: skip

    @property
    def _last_is_full(self) -> Expr:
        return all_of([(J0 + self.m).equals(LENGTH), J0.differs(0)])

    def beyond(self, v: int) -> Statement:
        """Rows at the ends that are not ``_near_rows``, and 0 in rows beyond the line."""
        row = J0 + POINT
        inside = row < LENGTH if self.spec.periodic else all_of([row >= 0, row < LENGTH])
        zeros = self.unrolled(Store(self.x(v, POINT), Select(inside, self.x(v, POINT), Cast(self.t, value(0)))))
        return If(EDGE, (*self._far_rows(v), zeros))

    def _far_rows(self, v: int) -> list[Statement]:
        far, stencil = self._far(v), self.spec.operators[v].stencil
        if not far:
            return []
        width = closure_width(stencil)
        closure, at = (self.code.table(self.spec.number(v), word) for word in ("closure", "closure_at"))
        added = self.operand_added(v, at[ROW], closure[ROW * width + Q])
        elsewhere = any_of([J < J0, J >= J0 + self.m, no(Grouped(any_of(map(Grouped, far))))])
        keep = Store(self.x(v, POINT), Select((J0 + POINT).equals(J), SUM, self.x(v, POINT)))
        return [for_each(ROW, 0, len(stencil.closures),
                         let("j", closure_row(len(stencil.low))),
                         If(elsewhere, (Skip(),), bare=True),
                         variable("sum", 0, self.t), for_each(Q, 0, width, *added, ctype=INT),
                         self.unrolled(keep), ctype=INT)]  # fmt: skip

    def _far(self, v: int) -> list[Expr]:
        """Conditions, one of which holds for a row of the tables that has to be summed."""
        stencil, near = self.spec.operators[v].stencil, {one.row for one in self._near_rows(v)}
        return [all_of([ROW.equals(r), no(self._last_is_full)]) if r in near else ROW.equals(r)
                for r in range(len(stencil.closures)) if r not in near or r >= len(stencil.low)]  # fmt: skip

    # ----- the solve ----------------------------------------------------------------------------------------------
    def carries(self, operands: int) -> tuple[Scratch, ...]:
        """Shared memory for what segments give each other, of so many operands at a time, and for factors."""
        both = (Scratch(self.t, one.name, operands * CELLS) for one in (FORWARD_CARRIES, BACKWARD_CARRIES))
        return (*both, *self.factors.room())

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
        k, m, count = self.spec.number(v), self.m, self.spec.tiling.carries
        carries, products, turn = (FORWARD_CARRIES, "forward", 0) if forward else (BACKWARD_CARRIES, "backward", 1)
        before, behind = neighbours(_FROM, WINDOW)
        collect = (
            Store(_FROM, before if forward else behind),
            Store(_CARRY, _WEIGHT * carries[self._share(operands, v, _FROM)], "+"),
            Store(_WEIGHT, self.code.table(k, products)[CHUNK * CORE + _FROM], "*"),
        )
        unroll = 0 if count <= MOST_UNROLLED else None
        around = Store(_CARRY, self.code.table(k, "turn")[turn], "*")
        i = POINT if forward else m - 1 - POINT
        table = self.factors.at("lower" if forward else "upper", k, i)
        edge = (variable("part", _CARRY, self.t),
                self.unrolled(Store(_PART, -table, "*"), Store(self.x(v, i), _PART, "+")))  # fmt: skip
        lower, _, upper = self.spec.operators[v].matrix.constants
        factor, points = -(lower if forward else upper), range(m) if forward else reversed(range(m))
        inner = tuple(Store(self.x(v, i), self.number(factor ** (p + 1)) * _CARRY, "+") for p, i in enumerate(points))
        return Block((
            variable("carry", 0, self.t), variable("weight", 1, self.spec.ctype), variable("t", SLOT),
            For("q", value(0), value(count), collect, INT, unroll=unroll),
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
            total = For("q", value(0), 2 * CHUNKS, (Store(_NEXT_END, term, "+"),), bare=True)
            return variable("next_end", 0, self.t), let("at", self._ends_of_line(v)), total

        (before, behind), low, high = neighbours(CHUNK, CHUNKS), joints[2 * CHUNK], joints[2 * CHUNK + 1]
        share = Store(self.x(v, POINT), Select((J0 + POINT).equals(_LAST), _SHARE, value(0)), "-")
        own = all_of([_LAST >= J0, _LAST < J0 + self.m, high.differs(0)])
        first = all_of([SLOT.equals(0), low.differs(0)])
        return [
            If(first, (*end(before * 2 + 1), Store(self.x(v, 0), low * _NEXT_END, "-"))),
            If(own, (*end(behind * 2), let("share", high * _NEXT_END, self.t), self.unrolled(share)),
               given=let("last", self._last_row())),
        ]  # fmt: skip
