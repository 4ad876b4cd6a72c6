"""box: the points of a box of a grid, each at its own, so nothing meets. Neighbours are found by arithmetic: a loop
reads no indices.

On a CPU the lines along the last axis are cut into segments, which go to threads and are vectorised. Near the ends of a
periodic axis a segment looks for neighbours at the other end; the rest of it does not ask. On a GPU a block of threads
covers a brick of the box, neighbouring threads at neighbouring points of the last axis, and each thread takes a small
tile of points whose loads are shared.
"""

from __future__ import annotations

from math import prod

from meshloom.errors import PlanError
from meshloom.mesh.box import Box as GridBox
from meshloom.mesh.box import Index
from meshloom.schedule.code import Line, Pass, Phase
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.points import VARIANTS, EdgeCode, PointCode, far_name, far_steps, tile_of, tiled
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy

_WARP_SHIFT = 5  # 32 threads next to each other along the last axis, where there are other axes
_ALIGNED = 16  # points: bricks of long lines begin at such multiples, so that warps read whole lines of the cache


class Box(Strategy):
    name = "box"
    summary = "points of a grid, their neighbours found by arithmetic"
    competes = False
    cpu_block = 8192
    gpu_block = 256
    variants = tuple(VARIANTS)

    def declines(self, spec: LoopSpec) -> str | None:
        return None if spec.box is not None else "the loop does not run over a box of a grid"

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        spec, box = topology.spec, topology.box
        assert spec is not None and box is not None
        sizes = _extent(spec, box)
        if simt:
            return Plan(self.name, block, sizes=sizes | _bricks(sizes, tile_of(spec), block))
        last = box.grid.rank - 1
        length = box.shape[last]
        segment = length if length <= 2 * block else block
        segments = -(-length // segment)
        lines = prod(box.shape[:last]) * segments
        return Plan(self.name, max(1, block // segment), sizes=sizes | _segments(spec, box) | {
            "segment": segment, "segments": segments, "lines": lines})  # fmt: skip

    def check(self, plan: Plan, topology: Topology) -> None:
        assert topology.spec is not None and topology.box is not None
        sizes, box = plan.sizes, topology.box
        if "lines" in sizes:
            last = box.grid.rank - 1
            covered = sizes["segments"] * sizes["segment"] >= box.shape[last]
            right = covered and sizes["lines"] == prod(box.shape[:last]) * sizes["segments"]
        else:
            tile = tile_of(topology.spec)
            right = sizes["bricks"] == prod(sizes[f"bricks{a}"] for a in range(len(tile))) and all(
                sizes[f"begin{a}"] <= sizes[f"low{a}"]
                and sizes[f"begin{a}"] + (sizes[f"bricks{a}"] << sizes[f"shift{a}"]) * t >= sizes[f"end{a}"]
                for a, t in enumerate(tile)
            )
        if not right:
            raise PlanError(f"plan of '{self.name}' (block {plan.block}) is wrong: it does not cover {box}")

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        if not simt:
            return [Pass("lines", "lines", (_segment_phase(spec),), reductions=spec.reductions)]
        phase = Phase("0", "brick", tuple(_tile_lines(spec)))
        return [Pass("bricks", "bricks", (phase,), blocked=True, reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        return Cost(work.compulsory, work.flops)


def _extent(spec: LoopSpec, box: GridBox) -> dict[str, int]:
    """Where the box lies in memory, and steps that are too far to be numbers in the text."""
    sizes: dict[str, int] = {}
    for a in range(box.grid.rank):
        sizes |= {f"low{a}": box.stored_low[a], f"end{a}": box.stored_high[a], f"n{a}": box.grid.stored[a]}
        sizes |= {far_name(a, k): step for k, step in enumerate(far_steps(spec, a))}
    sizes["most"] = box.grid.total - 1
    return sizes | {f"pitch{a}": stride for a, stride in enumerate(box.grid.strides[:-1])}


# ----- CPU --------------------------------------------------------------------------------------------------------
def _segments(spec: LoopSpec, box: GridBox) -> dict[str, int]:
    """Lengths for counting lines; points [edge_low, edge_high) of a line have all neighbours along it."""
    steps = [o[-1] for o in spec.offsets] or [0]
    edges = {"edge_low": max(0, -min(steps)), "edge_high": box.grid.stored[-1] - max(0, *steps, 0)}
    return edges | {f"length{a}": n for a, n in enumerate(box.shape)}


def _segment_phase(spec: LoopSpec) -> Phase:
    """A segment of a line: its ends where neighbours may be at the other end of the grid, and the rest."""
    assert spec.box is not None
    wraps, last = spec.box.wraps, spec.box.rank - 1
    x = f"x{last}"
    head = [f"const ml_index from = low{last} + i % segments * segment, to = ml_min(from + segment, end{last});"]
    if last == 1:
        head.append("const ml_index x0 = low0 + i / segments;")
    elif last == 2:
        head += ["const ml_index line = i / segments;",
                 "const ml_index x0 = low0 + line / length1, x1 = low1 + line % length1;"]  # fmt: skip
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
def _bricks(extent: dict[str, int], tile: Index, block: int) -> dict[str, int]:
    """The threads of a block as a brick of 2^shift threads along each axis, and how many bricks cover the box."""
    last = len(tile) - 1
    begin = [extent[f"low{a}"] for a in range(last + 1)]
    if extent[f"end{last}"] - begin[last] >= 4 * _ALIGNED:
        begin[last] -= begin[last] % _ALIGNED
    else:
        begin[last] -= begin[last] % tile[last]
    needed = [-(-(extent[f"end{a}"] - begin[a]) // t) for a, t in enumerate(tile)]  # threads along each axis
    left, shifts = block.bit_length() - 1, [0] * (last + 1)
    for a in (last, *range(last - 1, -1, -1), last):  # what is left over goes to the last axis again
        most = left if last == 0 or any(shifts) else min(left, _WARP_SHIFT)
        more = min(most, max((needed[a] - 1).bit_length() - shifts[a], 0))
        shifts[a] += more
        left -= more
    sizes = {"brick": 1 << sum(shifts)}
    for a in range(last + 1):
        count = -(-needed[a] // (1 << shifts[a]))
        sizes |= {f"begin{a}": begin[a], f"shift{a}": shifts[a], f"bricks{a}": count}
    return sizes | {"bricks": prod(sizes[f"bricks{a}"] for a in range(last + 1))}


def _tile_lines(spec: LoopSpec) -> list[str]:
    """What thread i of brick b does: its tile at once, with care where a part of it is outside."""
    assert spec.box is not None
    tile, wraps = tile_of(spec), spec.box.wraps
    lines = _thread_lines(tile)
    if prod(tile) == 1:
        single = PointCode(spec, spec.outputs, wraps)
        inside = " && ".join(f"x{a} >= low{a} && x{a} < end{a}" for a in range(len(tile)))
        return [*lines, f"if ({inside}) {{", *single.lines(single.plain), "}"]
    whole = tiled(spec, tile)
    middle, edge = PointCode(whole, whole.outputs, wraps, tile), EdgeCode(whole, wraps, tile)
    inside = " && ".join(f"x{a} >= low{a} && x{a} + {t} <= end{a}" for a, t in enumerate(tile))
    touched = " && ".join(f"x{a} + {t} > low{a} && x{a} < end{a}" for a, t in enumerate(tile))
    return [*lines, f"if ({inside}) {{", *middle.lines(middle.plain), f"}} else if ({touched}) {{",
            *edge.lines(edge.plain), "}"]  # fmt: skip


def _thread_lines(tile: Index) -> list[str]:
    """The corner of the thread's tile; division only for the brick, which all threads of a block share."""
    last = len(tile) - 1
    lines = ["const ml_unsigned number = (ml_unsigned)b;"] if last else []
    brick = {0: "b"}
    if last == 1:
        brick = {1: "(ml_index)(number % (ml_unsigned)bricks1)", 0: "(ml_index)(number / (ml_unsigned)bricks1)"}
    elif last == 2:
        lines.append("const ml_unsigned slab = number / (ml_unsigned)bricks2;")
        brick = {2: "(ml_index)(number % (ml_unsigned)bricks2)", 1: "(ml_index)(slab % (ml_unsigned)bricks1)",
                 0: "(ml_index)(slab / (ml_unsigned)bricks1)"}  # fmt: skip
    before = ""
    for a in range(last, -1, -1):
        thread = f"(i >> ({before}))" if before else "i"
        thread = f"({thread} & ((1 << shift{a}) - 1))" if a else thread
        scale = f" * {tile[a]}" if tile[a] > 1 else ""
        lines.append(f"const ml_index x{a} = begin{a} + (({brick[a]} << shift{a}) + {thread}){scale};")
        before = f"{before} + shift{a}" if before else f"shift{a}"
    return lines
