"""Line loops on a GPU: a thread owns some consecutive points of a line, in registers. Here is how lines are cut up,
and the plan; the nests are in ``gpu_nests``.

It evaluates their right-hand sides, sweeps forwards with nothing coming in, hands what goes out to its neighbours
through shared memory, adds what really comes in, and does the same backwards. Lines that are not contiguous are taken
in tiles of contiguous points, so that loads are coalesced; contiguous lines go through shared memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from meshloom.kernel.count import flops_by_kind, loads
from meshloom.records import dataclass
from meshloom.schedule.lines.along import OperatorAlong
from meshloom.schedule.lines.gpu_nests import SharedNest, StridedNest
from meshloom.schedule.lines.segments import (
    FAR,
    Cut,
    SegmentTables,
    carries_needed,
    further_turns,
    joints,
    separate_tables,
    tables,
)
from meshloom.schedule.lines.spec import LineGeometry, LinePlan, LineSpec, LineTiling
from meshloom.schedule.lines.tables import OperatorTables, closure_tables
from meshloom.schedule.nest.code import Pass
from meshloom.schedule.plan.declare import (
    ANY,
    REALS,
    Array,
    Listed,
    Numbers,
    Part,
    PlanNumber,
    Reals,
    holds,
    maybe,
    size,
)
from meshloom.schedule.plan.plan import Plan
from meshloom.target import SHARED_ROW, GpuLineNumbers, Target

_WISHES = ("points", "tile", "prefetch", "registers", "threads", "batch", "side", "shared", "pair", "exchange")


def tiling(spec: LineSpec, lines: LineGeometry, wish: Mapping[str, int], target: Target) -> LineTiling:
    """How lines are cut up."""
    numbers = target.gpu.lines
    group = min(wish.get("group", _group(spec, lines, target)), len(spec.operands)) if spec.separable else 0
    spec = replace(spec, tiling=replace(spec.tiling, group=group))
    usual = (_contiguous_tiling if lines.contiguous else _strided_tiling)(spec, lines, target)
    wished: dict[str, Any] = {k: v for k, v in wish.items() if k in _WISHES}
    made = replace(usual, group=group, **wished)
    made = replace(made, pair=bool(made.pair) and _may_pair(replace(spec, tiling=made), lines))
    segments = made.segments(lines.length)
    if "tile" not in wish:
        made = replace(made, tile=_tile(spec, lines, segments, made, target))
    if lines.contiguous:  # a line, or a part of it, and others beside it: not more than a block can have
        made = replace(made, tile=min(made.tile, max(1, target.block_threads // min(segments, numbers.chunk_threads))))
    needed = _carries(replace(spec, tiling=made), lines)  # fewer would be wrong
    made = replace(made, carries=max(wish.get("carries", 0), needed))
    made = replace(made, exchange=bool(made.exchange) and _may_exchange(replace(spec, tiling=made), lines))
    made = _within_shared(replace(spec, tiling=made), lines, target)
    if _fits(replace(spec, tiling=made), lines, numbers):
        kinds, _ = special_segments(replace(spec, tiling=made), lines)
        return replace(made, special=not spec.periodic and int(kinds.max(initial=0)) <= numbers.most_special)
    made = replace(made, group=min(group, 1), shared=False, pair=False, levels=2)
    made = _within_shared(replace(spec, tiling=made), lines, target)
    return replace(made, carries=_most_segments(made))


def _group(spec: LineSpec, lines: LineGeometry, target: Target) -> int:
    """Operands that a block takes, where they may be solved by themselves: those that are made of the same values
    together, as many as there is room for in shared memory, so that these are read once; else each by itself."""
    numbers, points = target.gpu.lines, target.gpu.lines.several_points
    if not _through_shared(spec, lines, numbers):
        return 1
    segments, tile = min(-(-lines.length // points), numbers.chunk_threads), numbers.several_lines
    room = min(numbers.most_shared, target.shared)
    return max(1, room // ((segments + 2) * (points + 1) * (1 if lines.contiguous else tile) * spec.dtype.itemsize))


def _through_shared(spec: LineSpec, lines: LineGeometry, numbers: GpuLineNumbers) -> bool:
    """Are several operands made of the same values, on lines that are contiguous, or in a cache as a whole? Else tiles
    as narrow as shared memory wants them cost more than reading those values from the cache again and again."""
    read = [loads([one]) for one in spec.operands]
    common = len(set.union(*read)) < sum(map(len, read))
    return common and (lines.contiguous or not _large(spec, lines, numbers))


def _contiguous_tiling(spec: LineSpec, lines: LineGeometry, target: Target) -> LineTiling:
    """Many small blocks, and a look ahead where the cache cannot hold everything anyway."""
    numbers, double = target.gpu.lines, spec.dtype.itemsize == 8
    prefetch = numbers.prefetched_blocks * target.multiprocessors if _large(spec, lines, numbers) else 0
    threads = min(numbers.chunk_threads, target.block_threads)
    usual = LineTiling("contiguous", threads=threads, most=threads)
    if _together(spec) > 1:
        return replace(usual, points=_points(lines, numbers.several_points, numbers), prefetch=prefetch)
    points = _points(lines, numbers.points, numbers)
    short = "_short" if spec.periodic and double and points < numbers.points else ""
    kind = f"{'periodic_' if spec.periodic else ''}{'double' if double else 'single'}{short}"
    registers = numbers.registers[kind] if _light(spec, numbers) else 0
    return replace(usual, points=points, registers=registers, prefetch=prefetch if double and spec.plain else 0)


def _strided_tiling(spec: LineSpec, lines: LineGeometry, target: Target) -> LineTiling:
    """As many operands in registers as there are; of plain loops tiles whose rows are whole cache lines near each
    other, wider ones, with twice the numbers in a thread, where they are not. Pairs of lines make wide loads."""
    numbers, together, most = target.gpu.lines, _together(spec), target.block_threads
    if together > 1 and spec.separable and _through_shared(spec, lines, numbers):
        points = _points(lines, numbers.several_points, numbers)
        return LineTiling("strided", points, tile=numbers.several_lines, threads=most // 2, shared=True)
    if together > 1:
        several = numbers.points_of_operands
        points = _points(lines, several[min(bisect_left(numbers.operands, together), len(several) - 1)], numbers)
        share = 2 if together == 2 else numbers.share_of_many
        return LineTiling("strided", points, tile=numbers.tile, threads=most // share)
    if not spec.plain:
        light, points = _light(spec, numbers), _points(lines, numbers.points, numbers)
        threads, tile, registers = (most, numbers.light_tile, numbers.light_registers) if light else (
            most // 2, numbers.tile, 0)  # fmt: skip
        prefetched = light and _large(spec, lines, numbers)
        return LineTiling("strided", points, tile=tile, threads=threads, registers=registers, exchange=True,
                        prefetch=numbers.prefetched_points // (tile * lines.length) if prefetched else 0)  # fmt: skip
    return _plain_strided_tiling(spec, lines, target)


def _plain_strided_tiling(spec: LineSpec, lines: LineGeometry, target: Target) -> LineTiling:
    numbers, double, row = target.gpu.lines, spec.dtype.itemsize == 8, lines.step * spec.dtype.itemsize
    near = row < numbers.far_apart and row % target.cache_line == 0 and lines.length <= target.block_threads
    pair = _may_pair(spec, lines) and not (double and near)
    kind = f"{'double' if double else 'single'}_{'near' if near else 'far'}{'_pair' if pair else ''}"
    found = numbers.strided[kind]
    pays = double and near and spec.periodic and _large(spec, lines, numbers)
    return LineTiling("strided", _points(lines, found["points"], numbers), tile=found["tile"], pair=pair,
                    threads=target.block_threads // found["share"], registers=found["registers"],
                    prefetch=numbers.prefetched_near * target.multiprocessors if pays else 0)  # fmt: skip


def _large(spec: LineSpec, lines: LineGeometry, numbers: GpuLineNumbers) -> bool:
    """Is an operand larger than what a cache may hold?"""
    return lines.count * lines.length * spec.dtype.itemsize >= numbers.cache


def _may_pair(spec: LineSpec, lines: LineGeometry) -> bool:
    """Can a thread take two lines at a time? Values that are just loaded and stored may come in pairs."""
    return spec.single and not spec.tiling.shared and bool(lines.pairs)


def _may_exchange(spec: LineSpec, lines: LineGeometry) -> bool:
    """Are the points next to every segment of a line those of a segment next to it in the block?"""
    uncut = lines.length % spec.tiling.points == 0 and spec.tiling.segments(lines.length) <= _most_segments(spec.tiling)
    return uncut and not lines.contiguous and not spec.tiling.shared and spec.reach <= spec.tiling.points


def _light(spec: LineSpec, numbers: GpuLineNumbers) -> bool:
    """Does what is done at a point leave most registers to the segment?"""
    return all(sum(flops_by_kind([v]).values()) <= numbers.light for v in spec.operands)


def _points(lines: LineGeometry, most: int, numbers: GpuLineNumbers) -> int:
    """Points of a thread: not more than a short line has."""
    return max(numbers.least_points, min(most, 1 << (lines.length - 1).bit_length()))


def _together(spec: LineSpec) -> int:
    """Operands that a thread holds in its registers at a time."""
    return spec.tiling.group or len(spec.operands)


def _tile(spec: LineSpec, lines: LineGeometry, segments: int, tiling: LineTiling, target: Target) -> int:
    """Lines of a block: contiguous ones to fill it, others as many as make loads wide and still fit."""
    numbers = target.gpu.lines
    if lines.contiguous:
        room = target.shared_unasked // ((segments + 2) * (tiling.points + 1) * _together(spec) * spec.dtype.itemsize)
        threads = numbers.line_threads if _together(spec) == 1 else numbers.line_threads // 2
        return max(1, min(threads // segments, lines.outer, room))
    spec = replace(spec, tiling=tiling)
    lines = held(spec, lines)
    tile, blocks = tiling.tile, lines.count * len(spec.groups)
    least, wanted = numbers.narrow["pair" if tiling.pair else "single"], numbers.few_blocks * target.multiprocessors
    while tile > least and (tile * segments > tiling.threads or blocks < wanted * tile):
        tile //= 2
    while tile * segments < numbers.line_threads and tile < min(numbers.widest, lines.lanes):
        tile *= 2
    return tile


def _most_segments(tiling: LineTiling) -> int:
    """Segments of a line that a block can take."""
    return tiling.most if tiling.kind == "contiguous" else max(1, tiling.threads // tiling.tile)


def _within_shared(spec: LineSpec, lines: LineGeometry, target: Target) -> LineTiling:
    """The tiling, with smaller blocks where shared memory has no room for its own."""
    numbers = target.gpu.lines
    while _shared_bytes(spec, lines, numbers) > target.shared:
        if (smaller := _smaller(spec.tiling, numbers)) == spec.tiling:
            break
        spec = replace(spec, tiling=smaller)
    return spec.tiling


def _smaller(tiling: LineTiling, numbers: GpuLineNumbers) -> LineTiling:
    """A tiling that needs less shared memory; the same where there is none."""
    if tiling.exchange:
        return replace(tiling, exchange=False)
    if tiling.tile > 1:
        return replace(tiling, tile=tiling.tile // 2, threads=max(tiling.threads // 2, numbers.fewest_segments))
    if tiling.kind == "contiguous":
        return replace(tiling, most=max(_most_segments(tiling) // 2, numbers.fewest_segments))
    return replace(tiling, threads=max(tiling.threads // 2, numbers.fewest_segments))


def _shared_bytes(spec: LineSpec, lines: LineGeometry, numbers: GpuLineNumbers) -> int:
    """Shared memory of a block, at most: operands, what segments hand over, factors of segments unlike the others."""
    tiling, size, count = spec.tiling, spec.dtype.itemsize * (2 if spec.tiling.pair else 1), _together(spec)
    cut = cut_of(spec, lines)
    cells, special = cut.window * tiling.tile, 0 if spec.periodic else numbers.most_special
    factors = special * len(spec.distinct) * 3 * tiling.points
    if tiling.kind == "contiguous" or tiling.shared:
        values = count * tiling.tile * _padded(cut, tiling, spec.dtype) + 2 * min(max(1, tiling.side), count) * cells
    else:
        values = 2 * count * cells * (1 + (spec.reach if tiling.exchange else 0))
    return (values + factors) * size


def cut_of(spec: LineSpec, lines: LineGeometry) -> Cut:
    """How a line is cut: whole while it fits a block, else in windows that overlap by the carries (on two levels: that
    do not)."""
    tiling, segments, most = spec.tiling, spec.tiling.segments(lines.length), _most_segments(spec.tiling)
    if segments <= most or not tiling.carries:
        return Cut(lines.length, tiling.points, segments)
    overlap = 0 if tiling.levels == 2 else tiling.carries
    windows = -(-segments // max(most - 2 * overlap, 1))
    return Cut(lines.length, tiling.points, -(-segments // windows) + 2 * overlap, overlap)  # windows of one size


def _carries(spec: LineSpec, lines: LineGeometry) -> int:
    uncut = Cut(lines.length, spec.tiling.points, spec.tiling.segments(lines.length))
    return max(carries_needed(tables(one, uncut, spec.dtype), uncut, spec.dtype) for one in spec.distinct)


def _fits(spec: LineSpec, lines: LineGeometry, numbers: GpuLineNumbers) -> bool:
    """Is a line whole in a block, or are the overlaps of its parts small enough to be read again?"""
    cut = cut_of(spec, lines)
    return cut.chunks == 1 or numbers.most_overlap * cut.overlap <= cut.window


def special_segments(spec: LineSpec, lines: LineGeometry) -> tuple[np.ndarray, np.ndarray]:
    """For each segment of a line (and those next to it) its kind, 0 for those like most; and the factors of each kind,
    (kinds, operators, 3, points)."""
    cut = cut_of(spec, lines)
    found = [tables(one, cut, spec.dtype) for one in spec.distinct]
    m, count = cut.points, len(found[0].forward)
    rows = np.stack([np.stack([t.lower, t.inverse, t.upper]).reshape(3, count, m) for t in found]).transpose(2, 0, 1, 3)
    first, last = max(t.first for t in found), min(t.last for t in found)
    kinds, known, factors = np.zeros(count, np.int32), dict[bytes, int](), []
    for s in range(count):
        j0 = (s - cut.overlap) * m
        if j0 < first or j0 + m > last:
            key = rows[s].tobytes()
            if key not in known:
                known[key] = len(known) + 1
                factors.append(rows[s])
            kinds[s] = known[key]
    return kinds, np.array(factors or [np.zeros_like(rows[0])], spec.dtype)


def held(spec: LineSpec, lines: LineGeometry) -> LineGeometry:
    """The lines as threads take them: one by one, or in pairs."""
    paired = lines.pairs if spec.tiling.pair else None
    return paired or lines


def ends_per_point(spec: LineSpec) -> int:
    """Room for the ends of parts on two levels, two for each operand, by the points of a line."""
    longest = _most_segments(spec.tiling) * spec.tiling.points
    return -(-4 * len(spec.operands) // longest)  # a part may be half as long as it could be


@dataclass(frozen=True, eq=False)
class JointTables:
    """Of one operator, where parts of a line are solved by themselves and joined by their ends."""

    joined: Reals = holds(Array(REALS, ANY, ANY), "from the ends of parts solved by themselves to what they really are")
    joints: Reals = holds(Array(REALS, ANY), "the entries next to a part's first and last rows")


@dataclass(frozen=True, eq=False)
class WindowTables(OperatorTables):
    """Of one operator, for lines cut into segments: see ``segments.py``."""

    forward: Reals = holds(Array(REALS, ANY), "products over segments, forwards")
    backward: Reals = holds(Array(REALS, ANY), "products over segments, backwards")
    turn: Reals = holds(Array(REALS, 2), "what carries are multiplied by for further turns around the line")
    steady: Reals = holds(Array(REALS, 1), "the inverse pivot far from the ends, scaled")
    ends: JointTables | None = holds(Part(JointTables), "how parts of lines are joined, on two levels", maybe)


@dataclass(frozen=True, eq=False)
class SpecialSegments:
    """Segments unlike the others, where these are few."""

    which: Numbers = holds(Array(("int32",), ANY), "of each segment its kind, 0 for those like most")
    special: Reals = holds(Array(REALS, ANY, ANY, 3, ANY), "factors of each kind: (kinds, operators, 3, points)")


@dataclass(frozen=True, eq=False)
class WindowPlan(LinePlan):
    """Windows of segments of lines, tile by tile, each by one block of threads."""

    operators: tuple[WindowTables, ...] = holds(Listed(Part(WindowTables)), "of each distinct operator")
    unlike: SpecialSegments | None = holds(Part(SpecialSegments), "segments unlike the others", maybe)
    window: int = holds(PlanNumber(), "segments that a block takes of a line")
    overlap: int = holds(PlanNumber(), "of these at either side those that its neighbours take, too")
    core: int = holds(PlanNumber(), "those that are its own")
    chunks: int = holds(PlanNumber(), "windows of a line")
    across: int = holds(PlanNumber(), "tiles of lines next to each other")
    steady_low: int = holds(PlanNumber(-FAR), "rows from here on have constant factors,")
    steady_high: int = holds(PlanNumber(-FAR), "up to here")
    cells: int = holds(PlanNumber(), "segments of a tile")
    padded: int = holds(PlanNumber(), "entries of a line in shared memory")
    per_group: int = holds(PlanNumber(), "tiles for each group of operands")
    tiles: int = holds(PlanNumber(), "tiles in all")

    @size
    def specials(self) -> int:
        return 0 if self.unlike is None else len(self.unlike.special)


def plan(name: str, spec: LineSpec, lines: LineGeometry) -> WindowPlan:
    """Tables of the factors, and how lines are dealt out."""
    tiling, cut, taken = spec.tiling, cut_of(spec, lines), held(spec, lines)
    made = [(separate_tables if tiling.levels == 2 else tables)(one, cut, spec.dtype) for one in spec.distinct]
    across = -(-taken.outer // tiling.tile) if lines.contiguous else -(-taken.lanes // tiling.tile)
    per_group = across * cut.chunks * (1 if lines.contiguous else taken.outer)
    return WindowPlan(
        name, cut.window * tiling.tile, taken.places,
        tuple(_operator_tables(spec, cut, *both) for both in zip(spec.distinct, made, strict=True)),
        SpecialSegments(*special_segments(spec, lines)) if tiling.special else None,
        cut.window, cut.overlap, cut.core, cut.chunks, across,
        steady_low=max(one.first for one in made), steady_high=min(one.last for one in made),
        cells=cut.window * tiling.tile, padded=_padded(cut, tiling, spec.dtype), per_group=per_group,
        tiles=per_group * len(spec.groups),
    )  # fmt: skip


def _operator_tables(spec: LineSpec, cut: Cut, operator: OperatorAlong, made: SegmentTables) -> WindowTables:
    dtype, tiling = spec.dtype, spec.tiling
    return WindowTables(
        made.lower, made.inverse, made.upper, *closure_tables(operator.stencil, dtype),
        made.forward.astype(dtype), made.backward.astype(dtype),
        np.array(further_turns(made, cut, tiling.carries), dtype),
        np.array([operator.matrix.constants[1] * operator.scale], dtype),
        JointTables(*joints(operator, cut, dtype)) if tiling.levels == 2 else None,
    )  # fmt: skip


def _padded(cut: Cut, tiling: LineTiling, dtype: np.dtype) -> int:
    """Entries of a line in shared memory: segments of several lines, side by side, must lie in different banks."""
    banks = SHARED_ROW // dtype.itemsize
    wanted, least = max(1, banks // tiling.tile), (cut.window + 2) * (tiling.points + tiling.spaced(dtype))
    if tiling.kind != "contiguous":
        return least
    return least + (wanted - least) % banks


def passes(spec: LineSpec, plan: Plan) -> list[Pass]:
    """One pass over tiles of lines; on two levels, one for the ends of parts and one with the ends known."""
    kind = SharedNest if spec.tiling.kind == "contiguous" or spec.tiling.shared else StridedNest
    return [kind(spec, plan, level).made() for level in ((1, 2) if spec.tiling.levels == 2 else (0,))]
