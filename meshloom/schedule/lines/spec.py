"""A line loop without its data, and where its lines lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace

import numpy as np

from meshloom.errors import ScheduleError, nearest, whole_number
from meshloom.kernel.count import loads
from meshloom.kernel.expr import C_TYPES, FLOAT64, Node
from meshloom.kernel.model import Output
from meshloom.mesh.grid import Grid
from meshloom.records import dataclass
from meshloom.schedule.lines.along import OperatorAlong, SystemsAlong
from meshloom.schedule.nest.code import ElementCode
from meshloom.schedule.nest.nodes import Expr, Name, Number, Statement, Store, let
from meshloom.schedule.nest.reduce import combined
from meshloom.schedule.plan.declare import Part, PlanNumber, holds
from meshloom.schedule.plan.plan import Plan, part_of
from meshloom.schedule.spec import LoopSpec
from meshloom.target import SHARED_ROW

Group = tuple[int, ...]  # numbers of operands


@dataclass(frozen=True)
class LineTiling:
    """How a line loop is cut up; everything here is part of the generated text.

    ``kind``: "strided" or "contiguous" lines. On a GPU a thread owns ``points`` consecutive points of a line and adds
    the carries of ``carries`` segments before and behind; ``tile`` contiguous points (strided) or ``tile`` lines
    (contiguous) go to one block. On a CPU ``tile`` lines go side by side.
    """

    kind: str = "strided"
    points: int = 16
    carries: int = 0
    tile: int = 16
    shared: bool = False  # lines that are not contiguous go through shared memory, too
    pair: bool = False  # a thread takes two lines side by side (strided)
    side: int = 1  # operands solved side by side there
    group: int = 0  # so many operands have blocks of their own; 0: all together
    registers: int = 0  # that a thread should do with; 0: as the compiler likes
    threads: int = 1024  # of a block, at most
    exchange: bool = False  # threads give operands at the ends of their segments to their neighbours (strided)
    batch: int = 4  # results merged with what is there: of so many points that is read before any is written
    prefetch: int = 0  # places: ask for the operands of the block that comes so much later while solving
    special: bool = False  # segments unlike the others are few: their factors are kept in shared memory
    levels: int = 1  # 2: parts of a line are solved by themselves, joined by their ends, and solved again
    most: int = 1024  # segments of a contiguous line that a block has room for, at most

    def __str__(self) -> str:
        """What is not as usual."""
        return " ".join(f"{one.name}={value}" for one in fields(self)
                        if (value := getattr(self, one.name)) != one.default)  # fmt: skip

    def in_words(self, lines: int, points: int, *, is_simt: bool) -> str:
        """For a person, of so many lines of so many points. ``is_simt``: is it for a GPU?"""
        tile = min(self.tile, lines)
        if not is_simt:
            return f"{self.kind} lines{f'; side by side: {tile}' if tile > 1 else ''}"
        said = {"kind", "points", "carries", "tile", *(["most"] if self.most >= self.threads else [])}
        others = [f"{f.name}={getattr(self, f.name)}" for f in fields(self)
                  if f.name not in said and getattr(self, f.name) != f.default]  # fmt: skip
        segment = min(self.points, points)
        cut = f"points to a thread: {segment}, carries from segments: {self.carries}, lines to a block: {tile}"
        return ", ".join([f"{self.kind} lines; {cut}", *others])

    def segments(self, length: int) -> int:
        """Of a line of so many points."""
        return -(-length // self.points)

    def spaced(self, dtype: np.dtype) -> int:
        """Rows of shared memory left out after each segment: one keeps segments side by side in different banks, which
        lines side by side that fill all banks are anyway."""
        return int(self.kind == "contiguous" or self.tile * dtype.itemsize < SHARED_ROW)


#: What may be asked of a tiling, from and to; "transposed" is for the method "thomas".
TUNING = {
    "points": (1, 256), "tile": (1, 1024), "prefetch": (0, 2**20), "registers": (0, 255), "threads": (32, 1024),
    "batch": (1, 256), "side": (1, 64), "shared": (0, 1), "pair": (0, 1), "exchange": (0, 1), "group": (1, 1024),
    "carries": (0, 1024), "transposed": (0, 1),
}  # fmt: skip


def as_tuning(loop: str, wish: Mapping[str, int] | None) -> dict[str, int]:
    """Entries of a tiling that somebody asks for, checked."""
    found = {}
    for key, value in (wish or {}).items():
        if key not in TUNING:
            raise ScheduleError(f"line loop {loop}: unknown tuning '{key}'{nearest(str(key), TUNING)}")
        given = int(value) if isinstance(value, bool) and TUNING[key] == (0, 1) else value
        found[key] = whole_number(f"line loop {loop}: {key}", given, *TUNING[key], error=ScheduleError)
    return found


@dataclass(frozen=True)
class LineSpec(LoopSpec):
    """A line loop: ``operands`` at a point from the parameters there, then the operators, then ``results``.

    With ``systems`` there are no operators: behind the right-hand sides the operands are the coefficients that these
    have at every point. In the values of ``results`` a load of parameter ``len(params)`` is the result of that
    component; ``combines`` says for each how it is merged into what is there ("" stored, "add" added).
    """

    operands: tuple[Node, ...] = ()
    results: tuple[Output, ...] = ()
    combines: tuple[str, ...] = ()
    operators: tuple[OperatorAlong, ...] = ()
    dtype: np.dtype = FLOAT64
    axis: int = 0
    plain: bool = False  # neither before nor after: operands are loads and results are stores
    tiling: LineTiling = field(default=LineTiling())
    systems: SystemsAlong | None = None

    @property
    def formulas(self) -> tuple[Node, ...]:
        return (*super().formulas, *self.operands, *(o.value for o in self.results))

    @property
    def values(self) -> int:
        """How many operands are solved for."""
        return len(self.operands) - (len(self.systems.varying) if self.systems else 0)

    def coefficient(self, name: str) -> int | None:
        """Which operand a coefficient of the systems is; None where all lines have the same."""
        varying = self.systems.varying if self.systems else ()
        return self.values + varying.index(name) if name in varying else None

    @property
    def ctype(self) -> str:
        return C_TYPES[self.dtype]

    @property
    def periodic(self) -> bool:
        return self.systems.periodic if self.systems else self.operators[0].matrix.periodic

    @property
    def reach(self) -> int:
        """Points to either side of a segment that its right-hand sides use."""
        return max((one.stencil.reach for one in self.operators), default=0)

    @property
    def distinct(self) -> list[OperatorAlong]:
        """The operators, each once."""
        found: list[OperatorAlong] = []
        for one in self.operators:
            if one not in found:
                found.append(one)
        return found

    @property
    def groups(self) -> list[Group]:
        """The operands that blocks of their own take together."""
        count = len(self.operands)
        size = self.tiling.group or count
        return [tuple(range(first, min(first + size, count))) for first in range(0, count, size)]

    @property
    def shares(self) -> list[list[int]]:
        """For each operand the results (by number) that its solution alone gives; all at the first where some need
        several."""
        owners = [{c for p, _, c in loads([o.value]) if p == len(self.params)} for o in self.results]
        if any(len(one) > 1 for one in owners):
            return [list(range(len(owners)))] + [[] for _ in self.operands[1:]]
        return [[k for k, one in enumerate(owners) if (one or {0}) == {v}] for v in range(len(self.operands))]

    @property
    def separable(self) -> bool:
        """May every operand be solved by itself, in any order? No result needs two of them, none reads what another
        one's result changes, and all have one operator."""
        shares, here = self.shares, len(self.params)
        if len(self.distinct) > 1 or len(self.operands) == 1 or not all(shares):
            return False
        for v, own in enumerate(shares):
            written = {(self.results[k].param, self.results[k].comp) for k in own}
            other = [self.operands[u] for u in range(len(shares)) if u != v]
            other += [self.results[k].value for u, mine in enumerate(shares) if u != v for k in mine]
            if written & {(p, c) for p, _, c in loads(other) if p != here}:
                return False
        return True

    @property
    def single(self) -> bool:
        """Does a block take one operand, just loaded, to one result, just stored, with points side by side in both?"""
        alone = self.tiling.group == 1 or len(self.operands) == 1
        return alone and self.plain and all(p.dim == 1 or p.layout.kind == "soa" for p in self.params)

    def number(self, operand: int) -> int:
        """Which of ``distinct`` an operand has."""
        return self.distinct.index(self.operators[operand])


@dataclass(frozen=True)
class LinePlaces:
    """Lines along an axis: point j of line (o, i) is at offset + (o // inner) outer_step + (o % inner) inner_step +
    i + j step. ``lanes`` lines lie side by side (i), ``outer`` times."""

    length: int = holds(PlanNumber(), "points of a line")
    step: int = holds(PlanNumber(), "places from point to point")
    lanes: int = holds(PlanNumber(), "lines that lie side by side")
    outer: int = holds(PlanNumber(), "how often they do")
    inner: int = holds(PlanNumber(), "how often before the next outer step")
    outer_step: int = holds(PlanNumber(), "places from one such group to the next")
    inner_step: int = holds(PlanNumber(), "places inside a group")
    offset: int = holds(PlanNumber(), "the place of the first point")

    @property
    def contiguous(self) -> bool:
        return self.step == 1

    @property
    def count(self) -> int:
        return self.lanes * self.outer


@dataclass(frozen=True)
class LineGeometry(LinePlaces):
    """The same, where ``padding`` places behind are nobody's, which no generated code asks for."""

    padding: int = 0

    @property
    def places(self) -> LinePlaces:
        """For a plan."""
        return LinePlaces(**{f.name: getattr(self, f.name) for f in fields(LinePlaces)})

    @property
    def pairs(self) -> LineGeometry | None:
        """The same lines two by two, with pairs of points for points; None where they are not side by side so. The last
        one may have a place that is nobody's next to it."""
        lanes = self.lanes + (self.lanes % 2 if self.padding else 0)
        numbers = (self.step, lanes, self.outer_step, self.inner_step, self.offset)
        if any(one % 2 for one in numbers):
            return None
        step, lanes, outer_step, inner_step, offset = (one // 2 for one in numbers)
        return replace(self, step=step, lanes=lanes, outer_step=outer_step, inner_step=inner_step, offset=offset)


@dataclass(frozen=True, eq=False)
class LinePlan(Plan):
    """What the plans of all line loops have."""

    places: LinePlaces = holds(Part(LinePlaces), "where the lines are")

    def blocks(self, items: int) -> int:
        return super().blocks(self.places.count)


def geometry(grid: Grid, axis: int) -> LineGeometry:
    """Where the lines of a grid along an axis lie; axes next to each other in memory are taken as one."""
    last = grid.rank - 1
    offset = sum(first * s for first, s in zip(grid.first, grid.strides, strict=True))
    others = [(grid.shape[a], grid.strides[a]) for a in range(grid.rank) if a != axis]
    if axis != last:
        lanes, _ = others.pop()
        if others and axis != last - 1 and others[-1][1] == lanes:
            lanes *= others.pop()[0]
    else:
        lanes = 1
    if len(others) == 2 and others[0][1] == others[1][0] * others[1][1]:
        others = [(others[0][0] * others[1][0], others[1][1])]
    (outer, outer_step), (inner, inner_step) = [(1, 0), (1, 0), *others][-2:]
    padding = grid.places[last] - grid.first[last] - grid.shape[last] if axis != last and not grid.ghosts[last] else 0
    return LineGeometry(
        grid.shape[axis], grid.strides[axis], lanes, outer * inner, inner, outer_step, inner_step, offset, padding
    )


class LinePointCode(ElementCode):
    """Statements at one point ``e``: operands from the parameters, and what is done with the results."""

    spec: LineSpec

    def __init__(self, spec: LineSpec, plan: Plan):
        super().__init__(spec, ())
        self.plan = plan
        self._results: Sequence[Expr] = ()

    def table(self, operator: int, *path: str) -> Name:
        """A table or number of one of the operators."""
        return part_of(self.plan, "operators", operator, *path)

    def leaf(self, node: Node) -> Expr:
        if node.value[0] == len(self.spec.params):
            return self._results[node.value[2]]
        return super().leaf(node)

    def in_whole_row(self, param: int) -> bool:
        return param < len(self.spec.params) and super().in_whole_row(param)

    def operands(self, element: Expr, only: Group | None = None) -> tuple[list[Statement], list[Expr]]:
        """Statements for the operands (or ``only`` some) at a point, and their values."""
        return self._at_point(element, self.spec.operands if only is None else [self.spec.operands[v] for v in only])

    def _at_point(self, element: Expr, roots: Sequence[Node]) -> tuple[list[Statement], list[Expr]]:
        computed, found = self.values(roots)
        return [let("e", element), *self.whole_rows(roots), *computed], found

    def after(
        self, element: Expr, results: Sequence[Expr], only: Group | None = None, old: Mapping[int, Expr] | None = None
    ) -> list[Statement]:
        """Statements that bring the results to the fields; ``only``: what those of some operands give, which are then
        all that is known. ``old``: what ``merged`` places hold, where that was read before."""
        everything = tuple(range(len(self.spec.operands)))
        known = dict(zip(everything if only is None else only, results, strict=False))
        self._results = [known.get(v, Number(0)) for v in everything]
        chosen = self._chosen(only)
        made, found = self._at_point(element, [self.spec.results[k].value for k in chosen])
        for k, new in zip(chosen, found, strict=True):
            place, dtype = self._target(k), self.spec.params[self.spec.results[k].param].dtype
            made.append(Store(place, combined(self.spec.combines[k], (old or {}).get(k, place), new, dtype)))
        return made

    def merged(self, only: Group | None = None) -> dict[int, Expr]:
        """The results (by number) that are merged with what is there, and where that is, at point ``e``."""
        return {k: self._target(k) for k in self._chosen(only) if self.spec.combines[k]}

    def _chosen(self, only: Group | None) -> Sequence[int]:
        return range(len(self.spec.results)) if only is None else [k for v in only for k in self.spec.shares[v]]

    def _target(self, number: int) -> Expr:
        return self.place(self.spec.results[number].param, 0, self.spec.results[number].comp)

    def touched(self) -> list[Expr]:
        """What the operands read at point ``e``."""
        read = sorted(loads(self.spec.operands))
        return [self.place(*one) for one in read if not self.spec.params[one[0]].is_global]

    def begins(self, param: int, comp: int) -> Expr:
        """A component of a field at point 0."""
        return self.spec.access(param).at(Number(0), comp)
