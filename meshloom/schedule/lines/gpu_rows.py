"""Nests of line loops on a GPU: the right-hand sides of a segment's rows, from the operands around it."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from meshloom.schedule.lines.along import Offsets
from meshloom.schedule.lines.gpu_block import BlockNest
from meshloom.schedule.lines.gpu_factors import EDGE
from meshloom.schedule.lines.gpu_names import J0, POINT
from meshloom.schedule.lines.tables import closure_width
from meshloom.schedule.lines.terms import LENGTH, ROW, SUM, J, Q, any_of, closure_row, for_each, right_hand_side
from meshloom.schedule.nest.nodes import (
    INT,
    Cast,
    Expr,
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


class NearRow(NamedTuple):
    """A row at an end whose operands are all around its segment: kept under a ``name`` while these change, of the
    segment ``where`` this holds, point ``i``."""

    name: str
    where: Expr
    i: int
    stencil: Offsets


class RightHandNest(BlockNest):
    """x from the operands f of a segment and of ``reach`` points at either side."""

    @staticmethod
    def x(v: int, i: Value) -> Item:
        """Point i of the segment: right-hand side, later the solution, of operand v."""
        return Name(f"x{v}")[value(i)]

    @staticmethod
    def f(v: int, i: Value) -> Item:
        """Operand v; those before the segment come first."""
        return Name(f"f{v}")[value(i)]

    @abstractmethod
    def operand_sum(self, v: int, width: int, coefficient: Expr) -> list[Statement]:
        """Statements that add a closure row of operand v at row j to ``sum``; ``coefficient``: that of entry ``q``."""

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
        stencil, m = self.spec.operators[v].stencil, self.m
        rows = [NearRow(f"end{k}", self._begins(k), k % m, row) for k, row in enumerate(stencil.low)]
        rows += [NearRow(f"end{d}", self._last_is_full, m - 1 - d, row) for d, row in enumerate(stencil.high)]
        return [one for one in rows if one.i >= 0 and self._around(one.i, one.stencil)]

    def _begins(self, row: int) -> Expr:
        """Has the thread the segment of this row?"""
        return J0.equals(row // self.m * self.m)

    @property
    def _last_is_full(self) -> Expr:
        return all_of([(J0 + self.m).equals(LENGTH), J0.differs(0)])

    def _around(self, i: int, row: Offsets) -> bool:
        return i + min(row) + self.reach >= 0 and i + max(row) < self.m + self.reach

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
        width, closure = closure_width(stencil), self.code.table(self.spec.number(v), "closure")
        elsewhere = any_of([J < J0, J >= J0 + self.m, no(Grouped(any_of(map(Grouped, far))))])
        keep = Store(self.x(v, POINT), Select((J0 + POINT).equals(J), SUM, self.x(v, POINT)))
        return [for_each(ROW, 0, len(stencil.closures),
                         let("j", closure_row(len(stencil.low))),
                         If(elsewhere, (Skip(),), bare=True),
                         variable("sum", 0, self.t), *self.operand_sum(v, width, closure[ROW * width + Q]),
                         self.unrolled(keep), ctype=INT)]  # fmt: skip

    def _far(self, v: int) -> list[Expr]:
        """Conditions, one of which holds for a row of the tables that has to be summed."""
        stencil, m, near = self.spec.operators[v].stencil, self.m, {(one.where, one.i) for one in self._near_rows(v)}
        low = len(stencil.low)
        far: list[Expr] = [ROW.equals(r) for r in range(low) if (self._begins(r), r % m) not in near]
        for d in range(len(stencil.high)):
            known, own = (self._last_is_full, m - 1 - d) in near, ROW.equals(low + d)
            far.append(all_of([own, no(self._last_is_full)]) if known else own)
        return far
