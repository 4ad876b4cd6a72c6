"""Nests of line loops on a GPU: what a thread holds of a line, which lines a block has, where their operands come from
and where results go to, and the factors of a thread's segment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from meshloom.records import dataclass
from meshloom.schedule.lines.nest_parts import (
    ACROSS,
    CHUNK,
    CHUNKS,
    CORE,
    GROUP,
    J0,
    LANES,
    LENGTH,
    OUTER_LINE,
    OVERLAP,
    PER_GROUP,
    PLACE,
    POINT,
    SLOT,
    STEP,
    TILE,
    WINDOW,
    any_of,
    chained,
    higher_of,
    lets,
    line_start,
    lower_of,
)
from meshloom.schedule.lines.spec import Group, LinePointCode, LineSpec
from meshloom.schedule.nest.code import BLOCK, ELEMENT, Pass, Scratch
from meshloom.schedule.nest.nodes import (
    BOOL,
    INT,
    AddressOf,
    Block,
    Body,
    Cast,
    Expr,
    For,
    Grouped,
    If,
    Item,
    Name,
    Number,
    PairOf,
    PointerTo,
    Prefetch,
    Room,
    Select,
    Statement,
    Store,
    Switch,
    Thread,
    Threads,
    Value,
    call,
    let,
    value,
    variable,
)
from meshloom.schedule.plan.plan import Plan

LATER, ASKED = Name("later"), Name("r")
SOURCE, TARGET = Name("source"), Name("target")
#: The tile of lines and the part of them that a place in the launch means.
TILE_OF_PLACE = lets(tile=PLACE % ACROSS, chunk=Grouped(PLACE / ACROSS) % CHUNKS)

EDGE = Name("edge")  # is the thread's segment unlike the others?
_FACTORS, _KIND, _ENTRY = Name("factors"), Name("kind"), Name("s")
_SPECIALS, _SPECIAL, _WHICH = Name("specials"), Name("special"), Name("which")
_STEADY_LOW, _STEADY_HIGH = Name("steady_low"), Name("steady_high")
_TABLES = ("lower", "inverse", "upper")

ForGroup = Callable[[Group | None], Sequence[Statement]]  # of a group of operands; None: the block's, whichever it is


@dataclass(frozen=True)
class LineRows:
    """Rows of contiguous points: their number, and of row ``r`` statements, its first element, and its points."""

    count: Expr
    before: Sequence[Statement]
    element: Expr
    points: Expr


@dataclass
class LineNest(ABC):
    """A thread owns a segment ``slot`` of a line, which begins at point ``j0``, in registers."""

    spec: LineSpec
    plan: Plan

    def __post_init__(self) -> None:
        tiling = self.spec.tiling
        self.m, self.tile = tiling.points, tiling.tile
        #: What a thread holds of a point: a number, or those of two lines side by side, which make wide loads.
        self.t = PairOf(self.spec.ctype) if tiling.pair else self.spec.ctype
        self.code = LinePointCode(self.spec, self.plan)

    @abstractmethod
    def made(self) -> Pass:
        """The pass over all tiles of lines."""

    @abstractmethod
    def cell(self, slot: Expr) -> Expr:
        """The place among the carries of a segment of the thread's line."""

    @staticmethod
    def x(v: int, i: Value) -> Item:
        """Point i of the segment: right-hand side, later the solution, of operand v."""
        return Name(f"x{v}")[value(i)]

    def number(self, given: float) -> Number:
        return Number(self.spec.dtype.type(given).item(), self.spec.dtype)

    def rooms(self, names: Sequence[str], size: int) -> list[Statement]:
        """Arrays of a thread, in registers."""
        return [Room(self.t, name, value(size)) for name in names]

    def unrolled(self, *inside: Statement, start: int = 0, end: int | None = None) -> For:
        """For each point ``i`` of a segment."""
        return For("i", value(start), value(self.m if end is None else end), inside, INT, unroll=0)


@dataclass
class BlockNest(LineNest):
    """What all tilings for operators share that is not arithmetic."""

    level: int = 0  # 1: leave the ends of a part in ``ends``; 2: take those of the neighbours from there

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reach = self.spec.reach
        self.count = self.spec.tiling.group or len(self.spec.operands)  # of operands that a block solves
        self.factors = SegmentFactors(self.spec, self.code)

    def wrapped(self, j: Expr) -> Expr:
        """Row j, which may lie a little outside the line, as a row of it."""
        if not self.spec.periodic:
            return higher_of(0, lower_of(j, LENGTH - 1))
        row = Grouped(j)
        return lower_of(Select(row < 0, row + LENGTH, Select(row >= LENGTH, row - LENGTH, row)), LENGTH - 1)

    def block_place(self) -> list[Statement]:
        """Which group, tile and window a block has. Blocks that read the same points follow each other."""
        where, count = let("place", BLOCK), len(self.spec.groups)
        if self.spec.single and count > 1:
            where = lets(group=BLOCK / PER_GROUP, place=BLOCK - GROUP * PER_GROUP)
        elif count > 1:
            where = lets(place=BLOCK / count, group=BLOCK - PLACE * count)
        return [where, *(self._pointers() if self.spec.single else []), TILE_OF_PLACE]

    def each(self, made: ForGroup) -> list[Statement]:
        """Statements that depend on the block's operands, where blocks have different ones and it is not just a
        pointer."""
        groups = self.spec.groups
        if len(groups) == 1 or self.spec.single:
            return list(made(None))
        return [Switch(GROUP, tuple(tuple(made(members)) for members in groups), total=True)]

    def _pointers(self) -> list[Statement]:
        """Where the operand and the result of the block begin."""
        loads = [self.code.begins(param, comp) for param, _, comp in (node.value for node in self.spec.operands)]
        stores = [self.code.begins(one.param, one.comp) for one in self.spec.results]
        source, target = PointerTo(self.t, fixed=True), PointerTo(self.t)
        return [self._pointer(source, SOURCE, loads), self._pointer(target, TARGET, stores)]

    @staticmethod
    def _pointer(ctype: PointerTo, name: Name, places: Sequence[Expr]) -> Statement:
        found: Expr = AddressOf(places[-1])
        for v in reversed(range(len(places) - 1)):
            found = Select(GROUP.equals(v), AddressOf(places[v]), found)
        return variable(name.name, Cast(ctype, Grouped(found)), ctype)

    # ----- asking for values before they are needed ---------------------------------------------------------------
    @abstractmethod
    def rows_asked(self) -> LineRows:
        """The rows of contiguous points that a block takes."""

    def prefetched(self) -> list[Statement]:
        """Ask for the operands of a place that comes so much later, which will be in the cache then; its blocks for
        several groups share the work."""
        if not self.spec.tiling.prefetch:
            return []
        rows = self.rows_asked()

        def fetch(only: Group | None) -> list[Statement]:
            groups, places = self.spec.groups, [SOURCE[ELEMENT]] if self.spec.single else self.code.touched()
            mine = places if only is None else places[groups.index(only) :: len(groups)]
            return [let("e", rows.element), *(Prefetch(place, rows.points, self.t) for place in mine)]

        asked = For("r", Thread(), rows.count, (*rows.before, *self.each(fetch)), step=Threads())
        later = let("later", PLACE + self.spec.tiling.prefetch)
        return [If(LATER < PER_GROUP, (let("place", LATER), TILE_OF_PLACE, asked), given=later)]

    def strided_rows(self) -> LineRows:
        """``rows_asked`` of lines whose points lie apart: for each of their points those of a tile."""
        row = higher_of(0, lower_of((CHUNK * CORE - OVERLAP) * self.m + ASKED, LENGTH - 1))
        before = [let("o", PLACE / (ACROSS * CHUNKS))]
        element = line_start(OUTER_LINE) + TILE * self.tile + row * STEP
        return LineRows(WINDOW * self.m, before, element, lower_of(self.tile, LANES - TILE * self.tile))

    # ----- operands and results -----------------------------------------------------------------------------------
    def operands(self, element: Expr, only: Group | None = None) -> tuple[list[Statement], list[Expr]]:
        """Statements and values at a point, as many as a block solves: the last group may want some zeros."""
        if self.spec.single:
            return [let("e", element)], [SOURCE[ELEMENT]]
        computed, found = self.code.operands(element, only)
        return computed, found + [self.number(0.0)] * (self.count - len(found))

    def stores(
        self, element: Expr, inside: Expr, results: Sequence[Expr], only: Group | None, *point: Statement
    ) -> list[Statement]:
        """The results of a thread's points i brought to the fields, where ``inside`` holds; ``point`` comes before.

        What they are merged with is read for several points before any is written: the compiler cannot know that a
        store does not change what the next load reads, so one point after the other would wait for memory each time.
        """
        if self.spec.single:
            return [self.unrolled(*point, If(inside, (Store(TARGET[element], results[0]),), bare=True))]
        merged = self.code.merged(only)
        if not merged:
            return [self.unrolled(*point, If(inside, tuple(self.code.after(element, results, only))))]
        made: list[Statement] = []
        for start in range(0, self.m, self.spec.tiling.batch):
            end = min(start + self.spec.tiling.batch, self.m)
            old = {k: Name(f"old{k}")[POINT - start] for k in merged}
            read = (let("e", element), *(Store(old[k], place) for k, place in merged.items()))
            write = tuple(self.code.after(element, results, only, old))
            bodies: tuple[Body, Body] = (read, write)
            both = (self.unrolled(*point, If(inside, body), start=start, end=end) for body in bodies)
            made.append(Block((*self.rooms([f"old{k}" for k in merged], end - start), *both)))
        return made


@dataclass(frozen=True)
class SegmentFactors:
    """Most segments of a line have the same ones; where the others are few, all of theirs are kept in shared memory."""

    spec: LineSpec
    code: LinePointCode

    @property
    def _kept(self) -> bool:
        return self.spec.tiling.special

    @property
    def _per_operator(self) -> int:
        return len(_TABLES) * self.spec.tiling.points

    def room(self) -> tuple[Scratch, ...]:
        count = len(self.spec.distinct) * self._per_operator
        return (Scratch(self.spec.ctype, _FACTORS.name, count * _SPECIALS),) if self._kept else ()

    def loaded(self) -> list[Statement]:
        """All of them to shared memory."""
        if not self._kept:
            return []
        count = len(self.spec.distinct) * self._per_operator
        copy = Store(_FACTORS[_ENTRY], _SPECIAL[_ENTRY])
        return [For(_ENTRY.name, Thread(), _SPECIALS * count, (copy,), step=Threads(), bare=True)]

    def segment(self) -> list[Statement]:
        """Is the thread's segment unlike the others, and where are its factors?"""
        if not self._kept:
            m = self.spec.tiling.points
            outside = (J0 < _STEADY_LOW, J0 + m > _STEADY_HIGH)
            return [let("edge", any_of(outside), BOOL)]
        count, operators = self._per_operator, len(self.spec.distinct)
        first = _FACTORS + call("ml_max", _KIND - 1, 0) * (operators * count)
        kept = PointerTo(self.spec.ctype, fixed=True)
        pointers = (variable(f"own{k}", first + k * count, kept) for k in range(operators))
        return [let("kind", _WHICH[CHUNK * CORE + SLOT], INT), let("edge", _KIND.differs(0), BOOL), *pointers]

    def at(self, table: str, k: int, i: Expr) -> Expr:
        """Of point i of a segment that is not like the others; ``table``: lower, inverse or upper."""
        m = self.spec.tiling.points
        if not self._kept:
            return self.code.table(k, table)[chained(J0 + OVERLAP * m, i)]
        return Name(f"own{k}")[chained(value(_TABLES.index(table) * m), i)]

    def pivots(self) -> list[Statement]:
        """The inverse pivots of all other segments."""
        operators = range(len(self.spec.distinct))
        return [let(pivot(k).name, self.code.table(k, "steady")[0], self.spec.ctype) for k in operators]


def pivot(k: int) -> Name:
    """The inverse pivot of an operator far from the ends, scaled."""
    return Name(f"pivot{k}")
