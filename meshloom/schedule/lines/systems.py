"""Tridiagonal systems along lines whose coefficients differ from point to point: how lines are cut up, and the plan.

They come factored (``SystemsAlong``): forwards h_i = c_i h_{i-1} + inverse_i f_i with c = -inverse lower, backwards
x_i = d_i x_{i+1} + h_i with d = -inverse upper. Each point needs its own coefficients only, so these are read once, as
the right-hand side is, and whole lines are written once.

On a GPU a thread owns a segment of a line in registers. What a segment makes of what comes in is one multiplication and
one addition, (product, share): every thread finds these two, shows them to the others in shared memory, and adds up
the shares of the segments before its own, nearest first, until their product no longer counts in this precision; around
a periodic line at most once, since all further turns are one division. Then it goes along its segment knowing what
comes in. A line that no block can hold is swept by one thread (``swept``), forwards into memory and backwards. On a CPU
a thread sweeps along some lines side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from meshloom.records import dataclass
from meshloom.schedule.choice.candidate import Candidate, rank
from meshloom.schedule.lines.along import SystemsAlong
from meshloom.schedule.lines.spec import LineGeometry, LinePlan, LineSpec, LineTiling
from meshloom.schedule.plan.declare import ANY, REALS, Array, PlanNumber, Reals, holds, maybe
from meshloom.target import SHARED_ROW, Target

SWEPT = "swept"
_WISHES = ("points", "tile", "registers")
_NO_ROOM = "a block has not the threads, or not the shared memory"


@dataclass(frozen=True, eq=False)
class SystemsPlan(LinePlan):
    """Tiles of lines, each by one thread of a CPU or one block of a GPU."""

    lower: Reals | None = holds(Array(REALS, ANY), "entries below the diagonal, where all lines have the same", maybe)
    upper: Reals | None = holds(Array(REALS, ANY), "entries above the diagonal, where all lines have the same", maybe)
    rows: int = holds(PlanNumber(), "rows of a thread's buffers (CPU)")
    window: int = holds(PlanNumber(), "segments of a line (GPU)")
    padded: int = holds(PlanNumber(), "entries of a contiguous line in shared memory (GPU)")
    across: int = holds(PlanNumber(), "tiles of lines next to each other")
    tiles: int = holds(PlanNumber(), "tiles in all")
    lines: int = holds(PlanNumber(), "how many there are")


def tilings(
    spec: LineSpec, lines: LineGeometry, wish: Mapping[str, int], target: Target
) -> tuple[Candidate[LineTiling], ...]:
    """How lines may be cut up on a GPU, ranked; what was asked for first, where it fits."""
    found = gpu_tilings(spec, lines, target)
    usual, wished = found[0].what, {k: v for k, v in wish.items() if k in _WISHES}
    if usual.kind == SWEPT or not wished:
        return found
    made = replace(usual, **wished)  # type: ignore[arg-type]
    return rank([Candidate(made, declined=None if _fits(spec, lines, made, target) else _NO_ROOM), *found])


def gpu_tilings(spec: LineSpec, lines: LineGeometry, target: Target) -> tuple[Candidate[LineTiling], ...]:
    """Of contiguous lines short segments; of others longer ones, so that few have to be looked at where lines hardly
    decay, rows of a tile that are whole cache lines, and half of the threads that a block may have at most; longer
    segments, and narrower tiles, where these are too few."""
    numbers = target.gpu.systems
    if lines.contiguous:
        tries = [("contiguous", points, 1) for points in numbers.contiguous_points]
    else:
        row = max(numbers.least_row, target.cache_line // (spec.dtype.itemsize * _side_by_side(spec)))
        tries = [("strided", points, tile) for tile in (row, row // 2) for points in numbers.strided_points]
    offered = []
    for most in (target.block_threads // 2, target.block_threads):
        for kind, points, tile in tries:
            points = min(points, max(numbers.least_points, 1 << (lines.length - 1).bit_length()))
            made = LineTiling(kind, points, tile=tile, threads=most)
            declined = _too_much(spec, lines, made, target)
            tiled = made if declined else replace(made, tile=_widened(spec, lines, made, target))
            offered.append(Candidate(tiled, declined=declined))
    return rank([*offered, Candidate(LineTiling(SWEPT, 1, 0, 1))])


def _too_much(spec: LineSpec, lines: LineGeometry, tiling: LineTiling, target: Target) -> str | None:
    """Why lines cannot be cut so; None where they can."""
    numbers, filled = target.gpu.systems, tiling.points * len(spec.operands)
    cells = tiling.segments(lines.length) * tiling.tile
    if filled > numbers.most_numbers and tiling.points > numbers.few_points:
        return f"{filled} numbers in a thread, more than {numbers.most_numbers}"
    if cells > tiling.threads:
        return f"{cells} threads in a block, more than {tiling.threads}"
    return None if _fits(spec, lines, tiling, target) else _NO_ROOM


def _side_by_side(spec: LineSpec) -> int:
    """Numbers of a point that lie side by side, at most."""
    return max((one.dim for one in spec.params if not one.is_global and one.layout.kind == "aos"), default=1)


def _widened(spec: LineSpec, lines: LineGeometry, tiling: LineTiling, target: Target) -> int:
    """Lines of a block, more where they are short."""
    tile, there = tiling.tile, lines.outer if lines.contiguous else lines.lanes
    while 2 * tile * tiling.segments(lines.length) <= target.gpu.systems.line_threads and tile < there:
        if not _fits(spec, lines, replace(tiling, tile=2 * tile), target):
            break
        tile *= 2
    return tile


def _fits(spec: LineSpec, lines: LineGeometry, tiling: LineTiling, target: Target) -> bool:
    """Has a block the threads and the shared memory for lines so cut?"""
    cells = tiling.segments(lines.length) * tiling.tile
    carries = 4 * cells
    values = len(spec.operands) * tiling.tile * _padded(lines, tiling, spec.dtype) if tiling.kind == "contiguous" else 0
    return cells <= target.block_threads and (carries + values) * spec.dtype.itemsize <= target.shared


def _padded(lines: LineGeometry, tiling: LineTiling, dtype: np.dtype) -> int:
    """Entries of a contiguous line in shared memory; one is left out after each segment, so that segments side by side
    lie in different banks, and lines side by side follow on."""
    segments, banks = tiling.segments(lines.length), SHARED_ROW // dtype.itemsize
    least = segments * (tiling.points + 1)
    return least + (segments - least) % banks


def plan(name: str, spec: LineSpec, lines: LineGeometry, target: Target) -> SystemsPlan:
    """Tables, padded to whole segments, and how lines are dealt out."""
    tiling, systems, segments = spec.tiling, spec.systems, spec.tiling.segments(lines.length)
    assert systems is not None
    rows = lines.length if not target.is_simt else segments * tiling.points
    adjacent = lines.outer if lines.contiguous else lines.lanes
    across = -(-adjacent // tiling.tile)
    block = 1 if not target.is_simt else segments * tiling.tile
    if tiling.kind == SWEPT:
        block = target.gpu.systems.swept_threads
    lower, upper = (_table(systems, which, rows, spec.dtype) for which in ("lower", "upper"))
    return SystemsPlan(
        name, block, lines.places, lower, upper, lines.length + 2, segments, _padded(lines, tiling, spec.dtype), across,
        across * (1 if lines.contiguous else lines.outer), lines.count,
    )  # fmt: skip


def _table(systems: SystemsAlong, which: str, rows: int, dtype: np.dtype) -> np.ndarray | None:
    if which in systems.varying:
        return None
    given = systems.table(which)
    return np.concatenate([given, np.full(rows - len(given), beyond(systems.periodic))]).astype(dtype)


def beyond(periodic: bool) -> int:
    """The entry next to the diagonal in rows beyond the end, whose inverse pivot is 1 and right-hand side 0: there
    everything passes around a periodic line, and a closed one is left alone."""
    return -1 if periodic else 0
