"""Nests of line loops on a GPU through shared memory: operands are evaluated once at every point, however many there
are.

Contiguous lines go this way so that loads and stores are coalesced; lines whose points lie apart do where several
operands come from the same fields, which are then read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from meshloom.schedule.lines.gpu_block import ForGroup, LineRows
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
    PADDED,
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
    OUTER,
    OUTER_LINE,
    ROW,
    START,
    STEP,
    SUM,
    J,
    Q,
    chained,
    for_each,
    higher_of,
    lets,
    line_start,
    lower_of,
)
from meshloom.schedule.nest.code import Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import (
    BOOL,
    INT,
    Barrier,
    Block,
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
    all_of,
    let,
    value,
)

LINE, WANTED, FIRST, ROW_OF_BLOCK = map(Name, ("line", "wanted", "first", "row_of_block"))
A, H, WISH, ASKED, PLACE_OF_A = map(Name, ("a", "h", "wish", "r", "place_of_a"))
BEGIN, HOP, STRIDE, LINE_EXTENT = map(Name, ("begin", "hop", "stride", "line_extent"))


class SharedNest(SegmentNest):
    """Several lines of a block in shared memory: loaded, solved operand after operand, stored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        stencils = [one.stencil for one in self.spec.distinct]
        far = [abs(o) for s in stencils for row in s.closures for o in row]
        self.halo = max([self.reach, *far])
        self.contiguous, self.gap = self.spec.form.kind == "contiguous", self.spec.form.spaced(self.spec.dtype)
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

    def beside(self, offset: Expr) -> Expr:
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
        side = max(1, self.spec.form.side)
        together = [range(first, min(first + side, self.count)) for first in range(0, self.count, side)]
        solved = Block((*self._solving(), *(self._solve(operands) for operands in together)))
        factors = (*self.factors.loaded(), *self.factors.pivots())
        body = (*self._where(), *factors, *self._load(), *self.prefetched(), solved)
        if self.level != 1 and not self.straight:
            body += (Barrier(), self._store())
        scratch = tuple(Scratch(self.t, f"s{v}", self.tile * PADDED) for v in range(self.count))
        cells = min(side, self.count) * CELLS
        carries = (Scratch(self.t, one.name, cells) for one in (FORWARD_CARRIES, BACKWARD_CARRIES))
        scratch += (*carries, *self.factors.room())
        return Pass("lines", TILES, (Phase(body, of_block=True),), blocked=True, scratch=scratch)

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
        beside = [*self._side_by_side(), self._wanted, self._mine(OWN.equals(SLOT))] if self.contiguous else []
        return [*beside, let("j0", FIRST + SLOT * self.m), *self.factors.segment()]

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
            place = self.kept(v, self.beside(Grouped(POINT - reach)))
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

    def operand_sum(self, v: int, width: int, coefficient: Expr) -> list[Statement]:
        at = self.code.table(self.spec.number(v), "closure_at")
        least, most = -self.halo, WINDOW * self.m + (self.halo - 1)
        return [for_each(Q, 0, width,
                         let("wish", J - FIRST + at[ROW] + Q),
                         let("a", higher_of(least, lower_of(WISH, most))),
                         Store(SUM, coefficient * self.kept(v, self.position(A)), "+"), ctype=INT)]  # fmt: skip

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
