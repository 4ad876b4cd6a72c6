"""Nests of line loops on a GPU: lines whose points lie apart, loaded straight into registers."""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.schedule.lines.gpu_block import LineRows
from meshloom.schedule.lines.gpu_names import (
    ACROSS,
    CELLS,
    CHUNK,
    CHUNKS,
    CORE,
    J0,
    MINE,
    OVERLAP,
    OWN,
    PLACE,
    POINT,
    SLOT,
    TILE,
    TILES,
    WINDOW,
)
from meshloom.schedule.lines.gpu_solve import BACKWARD_CARRIES, FORWARD_CARRIES, SegmentNest
from meshloom.schedule.lines.spec import Group
from meshloom.schedule.lines.terms import (
    LANES,
    LENGTH,
    OUTER_LINE,
    ROW,
    START,
    STEP,
    SUM,
    J,
    Q,
    chained,
    for_each,
    lets,
    line_start,
    lower_of,
)
from meshloom.schedule.nest.code import Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import (
    BOOL,
    INDEX,
    INT,
    Barrier,
    Block,
    Cast,
    Expr,
    If,
    Item,
    Name,
    Select,
    Statement,
    Store,
    UnsignedThread,
    all_of,
    let,
    value,
    variable,
)

LANE, COLUMN, EDGES, BEFORE, BEGIN = map(Name, ("lane", "column", "edges", "before", "begin"))


class StridedNest(SegmentNest):
    """Tiles of contiguous points, so that loads are coalesced."""

    def line_number(self) -> Expr:
        return OUTER_LINE * LANES + COLUMN

    def cell(self, slot: Expr) -> Expr:
        return slot * self.tile + LANE

    def made(self) -> Pass:
        vs = range(self.count)
        body = [*self._where(), *self.factors.pivots(), *self._right_hand_sides(vs), *self.prefetched()]
        body += self.solve(vs)
        if self.level != 1:
            results = [self.x(v, POINT) for v in vs]

            def store(group: Group | None) -> list[Statement]:
                return self.stores(START + (J0 + POINT) * STEP, J0 + POINT < LENGTH, results, group)

            body.append(If(MINE, tuple(self.each(store))))
        scratch = tuple(Scratch(self.t, one.name, self.count * CELLS) for one in (FORWARD_CARRIES, BACKWARD_CARRIES))
        scratch += self.factors.room()
        if self.spec.form.exchange:
            scratch += (Scratch(self.t, EDGES.name, 2 * self.reach * self.count * CELLS),)
        return Pass("lines", TILES, (Phase(tuple(body), of_block=True),), blocked=True, scratch=scratch)

    def _where(self) -> list[Statement]:
        lane, own = UnsignedThread() % self.tile, UnsignedThread() / self.tile
        mine = all_of([OWN.equals(SLOT), COLUMN < LANES, SLOT >= OVERLAP, SLOT < WINDOW - OVERLAP])
        return [
            *self.block_place(),
            let("lane", Cast(INT, lane), INT),
            lets(own=Cast(INDEX, own), slot=lower_of(OWN, WINDOW - 1)),
            let("o", PLACE / (ACROSS * CHUNKS)),
            let("column", TILE * self.tile + LANE),
            let("start", line_start(OUTER_LINE) + lower_of(COLUMN, LANES - 1)),
            let("j0", (CHUNK * CORE - OVERLAP + SLOT) * self.m),
            let("mine", mine, BOOL),
            *self.factors.loaded(),
            *self.factors.segment(),
        ]

    def rows_asked(self) -> LineRows:
        return self.strided_rows()

    def _right_hand_sides(self, vs: Sequence[int]) -> list[Statement]:
        m, reach = self.m, self.reach
        known: list[Statement] = [Barrier()] if self.spec.form.special else []
        room = self.rooms([f"x{v}" for v in vs], m)
        if not reach and all(self._identity(v) for v in vs):
            return [*room, *self._loads(vs, "x"), *(self.beyond(v) for v in vs), *known]
        made = self.rooms([f"f{v}" for v in vs], m + 2 * reach)
        if self.spec.form.exchange:
            made += [*self._loads(vs, "f", first=reach, count=m), *self._exchanged(vs)]
            known = []
        else:
            made += self._loads(vs, "f", count=m + 2 * reach)
        made += [Block(tuple(self.right_hand_sides(v))) for v in vs]
        return [*room, Block(tuple(made)), *known]

    def _exchanged(self, vs: Sequence[int]) -> list[Statement]:
        """Operands at the ends of segments given to the neighbours, which need not evaluate them again."""
        m, reach = self.m, self.reach

        def edge(v: int, q: int, slot: Expr) -> Item:
            return EDGES[chained((2 * reach * v + q) * CELLS, self.cell(slot))]

        before = Select(SLOT.equals(0), WINDOW - 1, SLOT - 1)
        behind = Select(SLOT.equals(WINDOW - 1), value(0), SLOT + 1)
        given = [Store(edge(v, q, SLOT), self.f(v, reach + q if q < reach else m - reach + q))
                 for v in vs for q in range(2 * reach)]  # fmt: skip
        taken = [one for v in vs for q in range(reach)
                 for one in (Store(self.f(v, q), edge(v, reach + q, before)),
                             Store(self.f(v, m + reach + q), edge(v, q, behind)))]  # fmt: skip
        return [*given, Barrier(), *taken]

    def _loads(self, vs: Sequence[int], into: str, *, first: int = 0, count: int | None = None) -> list[Statement]:
        """Operands of the segment, and of ``reach`` points at either side where they are counted in, too; well inside a
        line without looking out. ``first``: the number of the first one in its array."""
        rows = self.m if count is None else count
        before = 0 if rows == self.m else self.reach

        def loads(element: Expr, *move: Statement) -> list[Statement]:
            def loaded(only: Group | None) -> list[Statement]:
                load, found = self.operands(element, only)
                keep = (Store(Name(f"{into}{v}")[POINT + first], one) for v, one in zip(vs, found, strict=True))
                return [self.unrolled(*load, *keep, *move, end=rows)]

            return self.each(loaded)

        if self.spec.periodic:
            around = Select(BEFORE < 0, BEFORE + LENGTH, Select(BEFORE >= LENGTH, BEFORE - LENGTH, BEFORE))
            on = Store(J, Select((J + 1).equals(LENGTH), value(0), J + 1))
            outside = [variable("j", around), *loads(START + J * STEP, on)]
        else:
            outside = loads(START + self.wrapped(BEFORE + POINT) * STEP)
        inside = [let("begin", START + BEFORE * STEP), *loads(BEGIN + POINT * STEP)]
        within = all_of([BEFORE >= 0, BEFORE + rows <= LENGTH])
        return [let("before", J0 - before), If(within, tuple(inside), tuple(outside))]

    def _identity(self, v: int) -> bool:
        return self.spec.operators[v].stencil.inner == {0: 1.0}

    def operand_sum(self, v: int, width: int, coefficient: Expr) -> list[Statement]:
        at = self.code.table(self.spec.number(v), "closure_at")
        point = START + self.wrapped(J + at[ROW] + Q) * STEP

        def term(only: Group | None) -> list[Statement]:
            load, found = self.operands(point, only)
            return [*load, Store(SUM, coefficient * found[v], "+")]

        return [for_each(Q, 0, width, *self.each(term), ctype=INT)]
