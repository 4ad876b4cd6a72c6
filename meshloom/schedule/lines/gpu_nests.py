"""The nests of line loops for operators on a GPU: lines through shared memory, or straight into registers.

Through shared memory operands are evaluated once at every point, however many there are. Contiguous lines go this way
so that loads and stores are coalesced; lines whose points lie apart do where several operands come from the same
fields, which are then read once, and are else loaded into registers in tiles of contiguous points.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from meshloom.schedule.lines.gpu_block import ASKED, ForGroup, LineRows
from meshloom.schedule.lines.gpu_solve import SegmentNest
from meshloom.schedule.lines.nest_parts import (
    ACROSS,
    CELLS,
    CHUNK,
    CHUNKS,
    CORE,
    J0,
    LANES,
    LENGTH,
    LINE,
    MINE,
    OUTER,
    OUTER_LINE,
    OVERLAP,
    OWN,
    PADDED,
    PLACE,
    POINT,
    ROW,
    SLOT,
    START,
    STEP,
    SUM,
    TILE,
    WANTED,
    WINDOW,
    J,
    Q,
    chained,
    higher_of,
    lets,
    line_start,
    lower_of,
    neighbours,
    pass_over_tiles,
)
from meshloom.schedule.lines.spec import Group
from meshloom.schedule.nest.code import Pass, Scratch
from meshloom.schedule.nest.nodes import (
    BOOL,
    INDEX,
    INT,
    Barrier,
    Block,
    Cast,
    Expr,
    For,
    Grouped,
    If,
    Item,
    Name,
    Select,
    Statement,
    Store,
    Thread,
    UnsignedThread,
    all_of,
    let,
    value,
    variable,
)

FIRST, ROW_OF_BLOCK = map(Name, ("first", "row_of_block"))
A, H, WISH, PLACE_OF_A = map(Name, ("a", "h", "wish", "place_of_a"))
BEGIN, HOP, STRIDE, LINE_EXTENT = map(Name, ("begin", "hop", "stride", "line_extent"))
LANE, COLUMN, EDGES, BEFORE = map(Name, ("lane", "column", "edges", "before"))


class SharedNest(SegmentNest):
    """Several lines of a block in shared memory: loaded, solved operand after operand, stored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        stencils = [one.stencil for one in self.spec.distinct]
        far = [abs(o) for s in stencils for row in s.closures for o in row]
        self.halo = max([self.reach, *far])
        self.contiguous, self.gap = self.spec.tiling.kind == "contiguous", self.spec.tiling.spaced(self.spec.dtype)
        #: May solutions go from registers to the fields? Where points of lines side by side are, too, and no result
        #: needs two operands.
        self.straight = not self.contiguous and (self.spec.separable or len(self.spec.operands) == 1)

    def line_number(self) -> Expr:
        return WANTED if self.contiguous else OUTER_LINE * LANES + WANTED

    def cell(self, slot: Expr) -> Expr:
        return Grouped(slot) * self.tile + LINE

    def position(self, a: Expr) -> Expr:
        """Row in shared memory of local row a, which is not negative unless it is one of the halo before."""
        row = a + self.m
        return row + (Grouped(row) >> (self.m.bit_length() - 1)) if self.gap else row

    def row_from_first(self, offset: Expr) -> Expr:
        """Row in shared memory that is so far from the first one of the thread's segment, halo included."""
        m = self.m
        if not self.gap:
            return (SLOT + 1) * m + offset
        left_out = Select(offset < 0, value(-1), Select(offset < m, value(0), value(1))) if self.reach else value(0)
        return (SLOT + 1) * (m + 1) + offset + (Grouped(left_out) if self.reach else left_out)

    def kept(self, v: int, row: Expr) -> Item:
        """The operand (later the solution) v of the thread's line in a row of shared memory."""
        place = chained(LINE * PADDED, row) if self.contiguous else Grouped(row) * self.tile + LINE
        return Name(f"s{v}")[place]

    def made(self) -> Pass:
        side = max(1, self.spec.tiling.side)
        together = [range(first, min(first + side, self.count)) for first in range(0, self.count, side)]
        solved = Block((*self._solving(), *(self._solve(operands) for operands in together)))
        factors = (*self.factors.loaded(), *self.factors.pivots())
        body = (*self._where(), *factors, *self._load(), *self.prefetched(), solved)
        if self.level != 1 and not self.straight:
            body += (Barrier(), self._store())
        scratch = tuple(Scratch(self.t, f"s{v}", self.tile * PADDED) for v in range(self.count))
        return pass_over_tiles(body, scratch + self.carries(min(side, self.count)))

    def _where(self) -> list[Statement]:
        """The line and the first row that a thread loads and stores: neighbouring threads have neighbouring points."""
        if not self.contiguous:
            return [*self.block_place(), *self._side_by_side(), *self._line_place(), self._mine(OWN.equals(SLOT))]
        return [
            *self.block_place(),
            let("row_of_block", Thread() / WINDOW),
            let("line", lower_of(ROW_OF_BLOCK, self.tile - 1)),
            let("slot", Thread() - ROW_OF_BLOCK * WINDOW),
            *self._line_place(),
            self._mine(ROW_OF_BLOCK.equals(LINE)),
        ]

    def _line_place(self) -> list[Statement]:
        first, start = let("first", (CHUNK * CORE - OVERLAP) * self.m), line_start(OUTER_LINE)
        if self.contiguous:
            return [self._wanted, let("o", lower_of(WANTED, OUTER - 1)), let("start", start), first]
        start = start + lower_of(WANTED, LANES - 1)
        return [self._wanted, let("o", PLACE / (ACROSS * CHUNKS)), let("start", start), first]

    @property
    def _wanted(self) -> Statement:
        return let("wanted", TILE * self.tile + LINE)

    def rows_asked(self) -> LineRows:
        if not self.contiguous:
            return self.strided_rows()
        first, behind = higher_of(0, BEGIN), lower_of(BEGIN + WINDOW * self.m, LENGTH)
        before = [lets(o=TILE * self.tile + ASKED, begin=(CHUNK * CORE - OVERLAP) * self.m)]
        count = lower_of(self.tile, OUTER - TILE * self.tile)
        return LineRows(count, before, line_start(OUTER_LINE) + first, behind - first)

    def _mine(self, thread: Expr) -> Statement:
        """Has the thread a line of its own?"""
        return let("mine", all_of([thread, WANTED < (OUTER if self.contiguous else LANES)]), BOOL)

    def _side_by_side(self) -> list[Statement]:
        """Neighbouring threads have neighbouring lines."""
        return [lets(own=Thread() / self.tile, slot=lower_of(OWN, WINDOW - 1)), let("line", Thread() % self.tile)]

    def _solving(self) -> list[Statement]:
        """While lines are solved, segments of several lines lie side by side in a warp: those at the ends together."""
        own = [*self._side_by_side(), self._wanted, self._mine(OWN.equals(SLOT))] if self.contiguous else []
        return [*own, let("j0", FIRST + SLOT * self.m), *self.factors.segment()]

    def _element(self, row: Expr) -> Expr:
        return chained(START, row) if self.contiguous else START + Grouped(row) * STEP

    def _within(self, inside: ForGroup, outside: ForGroup, only: Group | None) -> list[Statement]:
        """``inside`` for whole lines, whose places are just counted up, else ``outside``."""
        stride, line_extent = (WINDOW, LENGTH) if self.contiguous else (WINDOW * STEP, LENGTH * STEP)
        hop = WINDOW + WINDOW / self.m if self.gap else WINDOW
        counted = (
            lets(row=self.position(SLOT), hop=hop),
            lets(begin=self._element(SLOT), stride=stride, line_extent=line_extent),
            *inside(only),
        )
        return [If(all_of([CHUNKS.equals(1), (WINDOW % self.m).equals(0)]), counted, tuple(outside(only)))]

    def _load(self) -> list[Statement]:
        def kept(row: Expr, element: Expr, only: Group | None) -> list[Statement]:
            load, found = self.operands(element, only)
            return [*load, *(Store(self.kept(v, row), one) for v, one in enumerate(found))]

        def anywhere(only: Group | None) -> list[Statement]:
            element = self._element(self.wrapped(FIRST + A))
            return [let("place_of_a", self.position(A)), *kept(PLACE_OF_A, element, only)]

        def inside(only: Group | None) -> list[Statement]:
            # Behind the end: any point of the line.
            around = Select(SLOT + POINT * WINDOW < LENGTH, value(0), LINE_EXTENT)
            return [self.unrolled(*kept(ROW + POINT * HOP, BEGIN + POINT * STRIDE - around, only))]

        def outside(only: Group | None) -> list[Statement]:
            return [self.unrolled(let("a", SLOT + POINT * WINDOW), *anywhere(only))]

        made = self.each(lambda only: self._within(inside, outside, only))
        if self.halo:
            row = Select(H < self.halo, H - self.halo, WINDOW * self.m + H - self.halo)
            body = (let("a", row), *self.each(anywhere))
            made.append(For("h", SLOT, value(2 * self.halo), body, step=WINDOW))
        return [*made, Barrier()]

    def _solve(self, operands: Sequence[int]) -> Statement:
        """Some operands side by side, from shared memory to where they belong."""
        m, reach = self.m, self.reach
        made: list[Statement] = []
        for v in operands:
            place = self.kept(v, self.row_from_first(Grouped(POINT - reach)))
            around = self.unrolled(Store(self.f(v, POINT), place), end=m + 2 * reach)
            right = Block((*self.rooms([f"f{v}"], m + 2 * reach), around, *self.right_hand_sides(v)))
            made += [*self.rooms([f"x{v}"], m), right]
        made += self.solve(operands)
        if self.straight and self.level != 1:
            return Block((*made, self._straight(operands)))
        row = (SLOT + 1) * (m + self.gap) + POINT
        return Block((*made, *(self.unrolled(Store(self.kept(v, row), self.x(v, POINT))) for v in operands)))

    def _straight(self, operands: Sequence[int]) -> Statement:
        """Solutions of some operands from registers to the fields; which operands these are, the group says."""

        def stored(v: int, group: Group | None) -> list[Statement]:
            own = (tuple(range(self.count)) if group is None else group)[v : v + 1]
            if not own:
                return []
            return self.stores(START + (J0 + POINT) * STEP, J0 + POINT < LENGTH, [self.x(v, POINT)], own)

        body = (one for v in operands for one in self.each(partial(stored, v)))
        return If(all_of([MINE, SLOT >= OVERLAP, SLOT < WINDOW - OVERLAP]), tuple(body))

    def operand_added(self, v: int, at: Expr, coefficient: Expr) -> list[Statement]:
        inside = higher_of(-self.halo, lower_of(WISH, WINDOW * self.m + (self.halo - 1)))
        return [let("wish", J - FIRST + at + Q), let("a", inside),
                Store(SUM, coefficient * self.kept(v, self.position(A)), "+")]  # fmt: skip

    def _store(self) -> Statement:
        m = self.m

        def stored(row: Expr, element: Expr, condition: Expr, only: Group | None, *point: Statement) -> list[Statement]:
            results = [self.kept(v, row) for v in range(self.count)]
            return self.stores(element, condition, results, only, *point)

        def inside(only: Group | None) -> list[Statement]:
            return stored(ROW + POINT * HOP, BEGIN + POINT * STRIDE, SLOT + POINT * WINDOW < LENGTH, only)

        def outside(only: Group | None) -> list[Statement]:
            own = all_of([A >= OVERLAP * m, A < (WINDOW - OVERLAP) * m, FIRST + A < LENGTH])
            point = let("a", SLOT + POINT * WINDOW)
            return stored(self.position(A), self._element(FIRST + A), own, only, point)

        return If(MINE, tuple(self.each(lambda only: self._within(inside, outside, only))))


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
        scratch = self.carries(self.count)
        if self.spec.tiling.exchange:
            scratch += (Scratch(self.t, EDGES.name, 2 * self.reach * self.count * CELLS),)
        return pass_over_tiles(body, scratch)

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
        known: list[Statement] = [Barrier()] if self.spec.tiling.special else []
        room = self.rooms([f"x{v}" for v in vs], m)
        if not reach and all(self._identity(v) for v in vs):
            return [*room, *self._loads(vs, "x"), *(self.beyond(v) for v in vs), *known]
        made = self.rooms([f"f{v}" for v in vs], m + 2 * reach)
        if self.spec.tiling.exchange:
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

        before, behind = neighbours(SLOT, WINDOW)
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

    def operand_added(self, v: int, at: Expr, coefficient: Expr) -> list[Statement]:
        def term(only: Group | None) -> list[Statement]:
            load, found = self.operands(START + self.wrapped(J + at + Q) * STEP, only)
            return [*load, Store(SUM, coefficient * found[v], "+")]

        return self.each(term)
