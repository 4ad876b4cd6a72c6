"""box: the points of a box of a grid, each at its own, so nothing meets. Neighbours are found by arithmetic: a loop
reads no indices.

On a CPU the lines along the last axis are cut into segments, which go to threads and are vectorised. Near the ends of a
periodic axis a segment looks for neighbours at the other end; the rest of it does not ask. On a GPU a block of threads
covers a brick of the box, neighbouring threads at neighbouring points of the last axis, and each thread takes a small
tile of points whose loads are shared.
"""

from __future__ import annotations

from math import prod

from meshloom.mesh.box import Box
from meshloom.mesh.offsets import Index
from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import BLOCK, ITEM, Pass, Phase
from meshloom.schedule.nest.nodes import (
    INDEX,
    INT,
    UNSIGNED,
    Body,
    Cast,
    Expr,
    For,
    Grouped,
    If,
    Let,
    Name,
    Select,
    Statement,
    all_of,
    greatest,
    least,
    let,
    summed,
    value,
)
from meshloom.schedule.plan.declare import Listed, Part, Place, PlanNumber, holds
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import POINTS, Strategy
from meshloom.schedule.strategies.common.points import (
    VARIANTS,
    EdgeCode,
    PointCode,
    coordinate,
    far_steps,
    takes_single_points,
    tile_of,
    tiled,
)
from meshloom.target import CPU, Target

_ALIGNED = 16  # points: bricks of long lines begin at such multiples, so that warps read whole lines of the cache


def _not_last(place: Place) -> bool | None:
    box = place.topology.box
    return box is not None and place.numbers[-1] < box.grid.rank - 1


@dataclass(frozen=True, eq=False)
class Axis:
    """Where a box lies along one axis of its grid, in points from the first in memory."""

    low: int = holds(PlanNumber(), "its first point")
    end: int = holds(PlanNumber(), "behind its last point")
    n: int = holds(PlanNumber(), "points of the grid in memory")
    far: tuple[int, ...] = holds(
        Listed(PlanNumber(-(2**40))), "steps along it that are too far to be numbers in the text"
    )
    pitch: int | None = holds(PlanNumber(), "places in memory from point to point; of the last axis 1", _not_last)


@dataclass(frozen=True, eq=False)
class SegmentAxis(Axis):
    length: int = holds(PlanNumber(), "points of the box, for counting lines")


@dataclass(frozen=True, eq=False)
class BrickAxis(Axis):
    begin: int = holds(PlanNumber(), "where the first brick begins")
    shift: int = holds(PlanNumber(), "a brick has 2^shift threads along it")
    bricks: int = holds(PlanNumber(), "how many bricks cover the box")


@dataclass(frozen=True, eq=False)
class SegmentPlan(Plan):
    """Lines along the last axis in segments, which go to threads; ``block``: segments that one takes at a time."""

    axes: tuple[SegmentAxis, ...] = holds(Listed(Part(SegmentAxis)), "the axes of the grid")
    most: int = holds(PlanNumber(), "the last place of the grid in memory")
    edge_low: int = holds(PlanNumber(), "points of a line from here on have all neighbours along it at its low end,")
    edge_high: int = holds(PlanNumber(-(2**40)), "and up to here at its high end")
    segment: int = holds(PlanNumber(), "points of a segment")
    segments: int = holds(PlanNumber(), "segments of a line")
    lines: int = holds(PlanNumber(), "segments in all")

    def blocks(self, items: int) -> int:
        return super().blocks(self.lines)

    def check(self, topology: Topology) -> None:
        assert topology.box is not None
        shape = topology.box.shape
        covered = self.segments * self.segment >= shape[-1] and self.lines == prod(shape[:-1]) * self.segments
        demand(covered, self, f"it does not cover {topology.box}")


@dataclass(frozen=True, eq=False)
class BrickPlan(Plan):
    """The box in bricks, which go to blocks of threads."""

    axes: tuple[BrickAxis, ...] = holds(Listed(Part(BrickAxis)), "the axes of the grid")
    most: int = holds(PlanNumber(), "the last place of the grid in memory")
    brick: int = holds(PlanNumber(), "threads of a brick")
    bricks: int = holds(PlanNumber(), "bricks in all")

    def check(self, topology: Topology) -> None:
        assert topology.spec is not None
        covered = self.bricks == prod(one.bricks for one in self.axes) and all(
            one.begin <= one.low and one.begin + (one.bricks << one.shift) * t >= one.end
            for one, t in zip(self.axes, tile_of(topology.spec), strict=True)
        )
        demand(covered, self, f"it does not cover {topology.box}")


class BoxStrategy(Strategy):
    name = "box"
    deterministic = True
    summary = "points of a grid, their neighbours found by arithmetic"
    competes = False
    serves = frozenset({POINTS})
    variants = tuple(VARIANTS)
    plans, plans_together = SegmentPlan, BrickPlan

    def declines(self, spec: LoopSpec) -> str | None:
        return None if spec.box is not None else "the loop does not run over a box of a grid"

    def block(self, target: Target, elements: int, spec: LoopSpec | None = None) -> int:
        long = target.is_simt and spec is not None and takes_single_points(spec)
        return int(self.fitted(target, "block_of_long")) if long else super().block(target, elements, spec)

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        spec, box = topology.spec, topology.box
        assert spec is not None and box is not None
        if target.is_simt:
            return _bricks(self.name, spec, box, block, target)
        length = box.shape[-1]
        segment = length if length <= 2 * block else block
        segments, steps = -(-length // segment), [o[-1] for o in spec.offsets] or [0]
        axes = tuple(SegmentAxis(**vars(one), length=n) for one, n in zip(_axes(spec, box), box.shape, strict=True))
        return SegmentPlan(
            self.name, max(1, block // segment), axes, box.grid.total - 1,
            edge_low=max(0, -min(steps)), edge_high=box.grid.stored[-1] - max(0, *steps, 0),
            segment=segment, segments=segments, lines=prod(box.shape[:-1]) * segments,
        )  # fmt: skip

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        if not target.is_simt:
            phase = Phase(_segment_body(spec, plan))
            return [Pass("lines", part_of(plan, "lines"), (phase,), reductions=spec.reductions)]
        phase = Phase(_tile_body(spec, plan), value(0), part_of(plan, "brick"))
        return [Pass("bricks", part_of(plan, "bricks"), (phase,), blocked=True, reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        return Cost(work.compulsory, work.flops)


def _axes(spec: LoopSpec, box: Box) -> tuple[Axis, ...]:
    """Where the box lies in memory."""
    pitches = (*box.grid.strides[:-1], None)
    where = zip(box.stored_low, box.stored_high, box.grid.stored, pitches, strict=True)
    return tuple(Axis(low, end, n, tuple(far_steps(spec, a)), pitch) for a, (low, end, n, pitch) in enumerate(where))


# ----- CPU --------------------------------------------------------------------------------------------------------
def _named(plan: Plan, word: str) -> list[Name]:
    """A number of each axis."""
    assert isinstance(plan, SegmentPlan | BrickPlan)
    return [part_of(plan, "axes", a, word) for a in range(len(plan.axes))]


def _segment_body(spec: LoopSpec, plan: Plan) -> Body:
    """A segment of a line: its ends where neighbours may be at the other end of the grid, and the rest."""
    assert spec.box is not None
    wraps, last = spec.box.wraps, spec.box.rank - 1
    begin, to, near, off = (Name(word) for word in ("from", "to", "near", "off"))
    inner = PointCode(spec, spec.outputs, (*wraps[:last], False), axes_stated_before=last)
    head = (*_segment(plan, last, begin, to), *inner.steps(range(last)))
    body = inner.body(inner.plain)
    if not wraps[last]:
        return (*head, _points(last, begin, to, body))
    low, high = part_of(plan, "edge_low"), part_of(plan, "edge_high")
    first = least(greatest(begin, low), to)
    return (*head, Let(INDEX, ((near.name, first), (off.name, greatest(least(to, high), near)))),
            _ends(spec, (begin, near), (off, to)), _points(last, near, off, body))  # fmt: skip


def _segment(plan: Plan, last: int, begin: Name, to: Name) -> list[Statement]:
    """Which points a segment has: [begin, to) along the last axis, one along the others."""
    low, end, length = (_named(plan, word) for word in ("low", "end", "length"))
    segments, segment, line = part_of(plan, "segments"), part_of(plan, "segment"), Name("line")
    first = low[last] + ITEM % segments * segment
    made: list[Statement] = [Let(INDEX, ((begin.name, first), (to.name, least(begin + segment, end[last]))))]
    if last == 1:
        made.append(let(coordinate(0).name, low[0] + ITEM / segments))
    elif last == 2:
        made.append(let(line.name, ITEM / segments))
        across = (coordinate(0).name, low[0] + line / length[1]), (coordinate(1).name, low[1] + line % length[1])
        made.append(Let(INDEX, across))
    return made


def _points(last: int, first: Expr, end: Expr, body: Body) -> For:
    """Points of a line that are independent of each other."""
    return For(coordinate(last).name, first, end, body, "int64_t", independent=True)


def _ends(spec: LoopSpec, low: tuple[Expr, Expr], high: tuple[Expr, Expr]) -> For:
    """Both ends of a segment, where neighbours are looked for at the other end of the grid."""
    assert spec.box is not None
    edge = PointCode(spec, spec.outputs, spec.box.wraps, axes_stated_before=spec.box.rank - 1)
    side, x = Name("side"), coordinate(spec.box.rank - 1)
    first, stop = Select(side, high[0], low[0]), Select(side, high[1], low[1])
    end = For(x.name, first, stop, edge.body(edge.plain), bound="stop")
    return For(side.name, value(0), value(2), (end,), INT, bare=True)


# ----- GPU --------------------------------------------------------------------------------------------------------
def _bricks(name: str, spec: LoopSpec, box: Box, block: int, target: Target) -> BrickPlan:
    """The threads of a block as a brick of 2^shift threads along each axis, and how many bricks cover the box.

    Where there are other axes, the lanes of a warp are next to each other along the last one."""
    axes, tile = _axes(spec, box), tile_of(spec)
    last, begin = len(tile) - 1, [one.low for one in axes]
    if axes[last].end - begin[last] >= target.gpu.points.long_lines:
        begin[last] -= begin[last] % _ALIGNED
    else:
        begin[last] -= begin[last] % tile[last]
    needed = [-(-(axes[a].end - begin[a]) // t) for a, t in enumerate(tile)]  # threads along each axis
    left, shifts = block.bit_length() - 1, [0] * (last + 1)
    for a in (last, *range(last - 1, -1, -1), last):  # what is left over goes to the last axis again
        free = left if last == 0 or any(shifts) else min(left, target.lanes.bit_length() - 1)
        more = min(free, max((needed[a] - 1).bit_length() - shifts[a], 0))
        shifts[a] += more
        left -= more
    counts = [-(-n // (1 << shift)) for n, shift in zip(needed, shifts, strict=True)]
    cut = tuple(BrickAxis(**vars(one), begin=b, shift=s, bricks=n)
                for one, b, s, n in zip(axes, begin, shifts, counts, strict=True))  # fmt: skip
    return BrickPlan(name, block, cut, box.grid.total - 1, 1 << sum(shifts), prod(counts))


def _tile_body(spec: LoopSpec, plan: Plan) -> Body:
    """What thread i of brick b does: its tile at once, with care where a part of it is outside."""
    assert spec.box is not None
    tile, wraps = tile_of(spec), spec.box.wraps
    corner, limits = _thread_corner(tile, plan), _limits(plan)
    if prod(tile) == 1:
        single = PointCode(spec, spec.outputs, wraps)
        inside = all_of(one for x, low, end in limits for one in (x >= low, x < end))
        return (*corner, If(inside, single.body(single.plain)))
    tiled_spec = tiled(spec, tile)
    middle, edge = PointCode(tiled_spec, tiled_spec.outputs, wraps, tile), EdgeCode(tiled_spec, wraps, tile)
    along = list(zip(limits, tile, strict=True))
    inside = all_of(one for (x, low, end), t in along for one in (x >= low, x + t <= end))
    touched = all_of(one for (x, low, end), t in along for one in (x + t > low, x < end))
    return (*corner, If(inside, middle.body(middle.plain), (If(touched, edge.body(edge.plain)),)))


def _limits(plan: Plan) -> list[tuple[Expr, Expr, Expr]]:
    """Along each axis the coordinate of the tile's corner, and where the box begins and ends."""
    ends = zip(_named(plan, "low"), _named(plan, "end"), strict=True)
    return [(coordinate(a), low, end) for a, (low, end) in enumerate(ends)]


def _thread_corner(tile: Index, plan: Plan) -> list[Statement]:
    """The corner of the thread's tile; division only for the brick, which all threads of a block share."""
    last = len(tile) - 1
    begin, shift = _named(plan, "begin"), _named(plan, "shift")
    made, brick = _brick_numbers(last, _named(plan, "bricks"))
    before: list[Expr] = []
    for a in range(last, -1, -1):
        thread: Expr = Grouped(ITEM >> Grouped(summed(before))) if before else ITEM
        thread = Grouped(thread & Grouped((value(1) << shift[a]) - 1)) if a else thread
        place: Expr = Grouped((brick[a] << shift[a]) + thread)
        made.append(let(coordinate(a).name, begin[a] + (place * tile[a] if tile[a] > 1 else place)))
        before.append(shift[a])
    return made


def _brick_numbers(last: int, bricks: list[Name]) -> tuple[list[Statement], dict[int, Expr]]:
    """The number of brick b along each axis, and statements that it needs."""
    number, slab = Name("number"), Name("slab")
    if last == 0:
        return [], {0: BLOCK}
    made: list[Statement] = [let(number.name, Cast(UNSIGNED, BLOCK), UNSIGNED)]
    across: Expr = Cast(UNSIGNED, bricks[1])
    if last == 1:
        return made, {1: Cast(INDEX, number % across), 0: Cast(INDEX, number / across)}
    along = Cast(UNSIGNED, bricks[2])
    made.append(let(slab.name, number / along, UNSIGNED))
    return made, {2: Cast(INDEX, number % along), 1: Cast(INDEX, slab % across), 0: Cast(INDEX, slab / across)}
