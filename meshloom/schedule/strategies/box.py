"""box: the points of a box of a grid, each at its own, so nothing meets. Neighbours are found by arithmetic: a loop
reads no indices.

On a CPU the lines along the last axis are cut into segments, which go to threads and are vectorised. Near the ends of a
periodic axis a segment looks for neighbours at the other end; the rest of it does not ask. On a GPU a block of threads
covers a brick of the box, neighbouring threads at neighbouring points of the last axis, and each thread takes a small
tile of points whose loads are shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from meshloom.mesh.box import Box as GridBox
from meshloom.mesh.box import Index
from meshloom.schedule.code import Line, Pass, Phase
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.declare import Listed, Number, Part, Place, holds
from meshloom.schedule.form import demand
from meshloom.schedule.plan import Plan, Topology, symbol
from meshloom.schedule.points import VARIANTS, EdgeCode, PointCode, far_steps, tile_of, tiled
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.target import CPU, Target

_ALIGNED = 16  # points: bricks of long lines begin at such multiples, so that warps read whole lines of the cache


def _not_last(place: Place) -> bool | None:
    box = place.topology.box
    return box is not None and place.numbers[-1] < box.grid.rank - 1


@dataclass(frozen=True, eq=False)
class Axis:
    """Where a box lies along one axis of its grid, in points from the first in memory."""

    low: int = holds(Number(), "its first point")
    end: int = holds(Number(), "behind its last point")
    n: int = holds(Number(), "points of the grid in memory")
    far: tuple[int, ...] = holds(Listed(Number(-(2**40))), "steps along it that are too far to be numbers in the text")
    pitch: int | None = holds(Number(), "places in memory from point to point; of the last axis 1", _not_last)


@dataclass(frozen=True, eq=False)
class SegmentAxis(Axis):
    length: int = holds(Number(), "points of the box, for counting lines")


@dataclass(frozen=True, eq=False)
class BrickAxis(Axis):
    begin: int = holds(Number(), "where the first brick begins")
    shift: int = holds(Number(), "a brick has 2^shift threads along it")
    bricks: int = holds(Number(), "how many bricks cover the box")


@dataclass(frozen=True, eq=False)
class SegmentPlan(Plan):
    """Lines along the last axis in segments, which go to threads; ``block``: segments that one takes at a time."""

    axes: tuple[SegmentAxis, ...] = holds(Listed(Part(SegmentAxis)), "the axes of the grid")
    most: int = holds(Number(), "the last place of the grid in memory")
    edge_low: int = holds(Number(), "points of a line from here on have all neighbours along it at its low end,")
    edge_high: int = holds(Number(-(2**40)), "and up to here at its high end")
    segment: int = holds(Number(), "points of a segment")
    segments: int = holds(Number(), "segments of a line")
    lines: int = holds(Number(), "segments in all")

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
    most: int = holds(Number(), "the last place of the grid in memory")
    brick: int = holds(Number(), "threads of a brick")
    bricks: int = holds(Number(), "bricks in all")

    def check(self, topology: Topology) -> None:
        assert topology.spec is not None
        covered = self.bricks == prod(one.bricks for one in self.axes) and all(
            one.begin <= one.low and one.begin + (one.bricks << one.shift) * t >= one.end
            for one, t in zip(self.axes, tile_of(topology.spec), strict=True)
        )
        demand(covered, self, f"it does not cover {topology.box}")


class Box(Strategy):
    name = "box"
    summary = "points of a grid, their neighbours found by arithmetic"
    competes = False
    cpu_block = 8192
    gpu_block = 256
    variants = tuple(VARIANTS)
    plans, plans_together = SegmentPlan, BrickPlan

    def declines(self, spec: LoopSpec) -> str | None:
        return None if spec.box is not None else "the loop does not run over a box of a grid"

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        spec, box = topology.spec, topology.box
        assert spec is not None and box is not None
        if target.together:
            return _bricks(self.name, _axes(spec, box), tile_of(spec), block, box.grid.total - 1, target.lanes)
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
        if not target.together:
            return [Pass("lines", "lines", (_segment_phase(spec, plan),), reductions=spec.reductions)]
        phase = Phase("0", "brick", tuple(_tile_lines(spec, plan)))
        return [Pass("bricks", "bricks", (phase,), blocked=True, reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        return Cost(work.compulsory, work.flops)


def _axes(spec: LoopSpec, box: GridBox) -> tuple[Axis, ...]:
    """Where the box lies in memory."""
    pitches = (*box.grid.strides[:-1], None)
    where = zip(box.stored_low, box.stored_high, box.grid.stored, pitches, strict=True)
    return tuple(Axis(low, end, n, tuple(far_steps(spec, a)), pitch) for a, (low, end, n, pitch) in enumerate(where))


# ----- CPU --------------------------------------------------------------------------------------------------------
def _named(plan: Plan, word: str) -> list[str]:
    """What generated code calls a number of each axis."""
    assert isinstance(plan, SegmentPlan | BrickPlan)
    return [symbol(plan, "axes", a, word) for a in range(len(plan.axes))]


def _segment_phase(spec: LoopSpec, plan: Plan) -> Phase:
    """A segment of a line: its ends where neighbours may be at the other end of the grid, and the rest."""
    assert spec.box is not None
    wraps, last = spec.box.wraps, spec.box.rank - 1
    x = f"x{last}"
    low, end, length = (_named(plan, word) for word in ("low", "end", "length"))
    head = [f"const ml_index from = {low[last]} + i % segments * segment, to = ml_min(from + segment, {end[last]});"]
    if last == 1:
        head.append(f"const ml_index x0 = {low[0]} + i / segments;")
    elif last == 2:
        head += ["const ml_index line = i / segments;",
                 f"const ml_index x0 = {low[0]} + line / {length[1]}, x1 = {low[1]} + line % {length[1]};"]  # fmt: skip
    inner = PointCode(spec, spec.outputs, (*wraps[:last], False), ahead=last)
    head += inner.steps(range(last))
    body = inner.lines(inner.plain)
    if not wraps[last]:
        return Phase("", "", tuple(head), line=Line(x, "from", "to", body))
    edge = PointCode(spec, spec.outputs, wraps, ahead=last)
    head += ["const ml_index near = ml_min(ml_max(from, edge_low), to), off = ml_max(ml_min(to, edge_high), near);",
             "for (int side = 0; side < 2; ++side)",
             f"for (ml_index {x} = side ? off : from, stop = side ? to : near; {x} < stop; ++{x}) {{",
             *edge.lines(edge.plain), "}"]  # fmt: skip
    return Phase("", "", tuple(head), line=Line(x, "near", "off", body))


# ----- GPU --------------------------------------------------------------------------------------------------------
def _bricks(name: str, axes: tuple[Axis, ...], tile: Index, block: int, most: int, lanes: int) -> BrickPlan:
    """The threads of a block as a brick of 2^shift threads along each axis, and how many bricks cover the box.

    Where there are other axes, the ``lanes`` of a warp are next to each other along the last one."""
    last = len(tile) - 1
    begin = [one.low for one in axes]
    if axes[last].end - begin[last] >= 4 * _ALIGNED:
        begin[last] -= begin[last] % _ALIGNED
    else:
        begin[last] -= begin[last] % tile[last]
    needed = [-(-(axes[a].end - begin[a]) // t) for a, t in enumerate(tile)]  # threads along each axis
    left, shifts = block.bit_length() - 1, [0] * (last + 1)
    for a in (last, *range(last - 1, -1, -1), last):  # what is left over goes to the last axis again
        free = left if last == 0 or any(shifts) else min(left, lanes.bit_length() - 1)
        more = min(free, max((needed[a] - 1).bit_length() - shifts[a], 0))
        shifts[a] += more
        left -= more
    counts = [-(-n // (1 << shift)) for n, shift in zip(needed, shifts, strict=True)]
    cut = tuple(BrickAxis(**vars(one), begin=b, shift=s, bricks=n)
                for one, b, s, n in zip(axes, begin, shifts, counts, strict=True))  # fmt: skip
    return BrickPlan(name, block, cut, most, 1 << sum(shifts), prod(counts))


def _tile_lines(spec: LoopSpec, plan: Plan) -> list[str]:
    """What thread i of brick b does: its tile at once, with care where a part of it is outside."""
    assert spec.box is not None
    tile, wraps = tile_of(spec), spec.box.wraps
    lines, low, end = _thread_lines(tile, plan), _named(plan, "low"), _named(plan, "end")
    if prod(tile) == 1:
        single = PointCode(spec, spec.outputs, wraps)
        inside = " && ".join(f"x{a} >= {low[a]} && x{a} < {end[a]}" for a in range(len(tile)))
        return [*lines, f"if ({inside}) {{", *single.lines(single.plain), "}"]
    whole = tiled(spec, tile)
    middle, edge = PointCode(whole, whole.outputs, wraps, tile), EdgeCode(whole, wraps, tile)
    inside = " && ".join(f"x{a} >= {low[a]} && x{a} + {t} <= {end[a]}" for a, t in enumerate(tile))
    touched = " && ".join(f"x{a} + {t} > {low[a]} && x{a} < {end[a]}" for a, t in enumerate(tile))
    return [*lines, f"if ({inside}) {{", *middle.lines(middle.plain), f"}} else if ({touched}) {{",
            *edge.lines(edge.plain), "}"]  # fmt: skip


def _thread_lines(tile: Index, plan: Plan) -> list[str]:
    """The corner of the thread's tile; division only for the brick, which all threads of a block share."""
    last = len(tile) - 1
    begin, shift, bricks = (_named(plan, word) for word in ("begin", "shift", "bricks"))
    lines = ["const ml_unsigned number = (ml_unsigned)b;"] if last else []
    brick = {0: "b"}
    if last == 1:
        across = f"(ml_unsigned){bricks[1]}"
        brick = {1: f"(ml_index)(number % {across})", 0: f"(ml_index)(number / {across})"}
    elif last == 2:
        along, across = f"(ml_unsigned){bricks[2]}", f"(ml_unsigned){bricks[1]}"
        lines.append(f"const ml_unsigned slab = number / {along};")
        brick = {2: f"(ml_index)(number % {along})", 1: f"(ml_index)(slab % {across})",
                 0: f"(ml_index)(slab / {across})"}  # fmt: skip
    before = ""
    for a in range(last, -1, -1):
        thread = f"(i >> ({before}))" if before else "i"
        thread = f"({thread} & ((1 << {shift[a]}) - 1))" if a else thread
        scale = f" * {tile[a]}" if tile[a] > 1 else ""
        lines.append(f"const ml_index x{a} = {begin[a]} + (({brick[a]} << {shift[a]}) + {thread}){scale};")
        before = f"{before} + {shift[a]}" if before else shift[a]
    return lines
