"""Blocks of elements where the items of a block run at the same time (a GPU): ``block_color`` and ``block_atomic``.

A block keeps the increments of its own targets in memory of its own (shared memory). Four phases, a barrier after each:
clear; evaluate every element into a stage; add the staged values color by color (elements of one color share no
target); merge the block's targets into memory, where the two strategies differ: plainly, because blocks of other colors
wait, or with atomics for the targets that several blocks share.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meshloom.kernel.access import identity
from meshloom.kernel.emit import literal
from meshloom.native.algorithms import thread_colors
from meshloom.native.tiles import block_targets
from meshloom.schedule.code import ElementCode, Phase, Scratch, merged, negated
from meshloom.schedule.gather import Columns, columns_of, staging
from meshloom.schedule.plan import Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.stage import Stage

Merge = Callable[[int, str, str, str], list[str]]  # (parameter, place, value, target) -> statements


def simt_arrays(topology: Topology, offsets: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Plan arrays and sizes: elements of each block sorted by thread color, and the targets of each block."""
    rows, counts = topology.conflicts()
    colors = thread_colors(offsets, topology.visit, rows, counts)[topology.visit]
    block_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    visit = np.ascontiguousarray(topology.visit[np.lexsort((colors, block_of))]).astype(topology.index_type)
    starts, positions = _color_ranges(colors, block_of, offsets)
    arrays = {"visit": visit, "color_starts": starts, "color_positions": positions}
    sizes: dict[str, int] = {}
    for space, one, targets in zip(sorted(set(topology.spaces.values())), rows, counts, strict=True):
        made = block_targets(offsets, visit, one, targets)
        arrays |= {f"own_offsets{space}": made.offsets, f"own{space}": made.targets, f"place{space}": made.local}
        sizes[f"most{space}"] = int(np.diff(made.offsets).max(initial=0))
    return arrays, sizes


def _color_ranges(colors: np.ndarray, block_of: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``starts[b] .. starts[b+1]`` are the entries of ``positions`` that belong to block b: its color boundaries."""
    blocks = len(offsets) - 1
    per_block = np.zeros(blocks, np.int64)
    np.maximum.at(per_block, block_of, colors.astype(np.int64) + 1)
    starts = np.concatenate([[0], np.cumsum(per_block + 1)]).astype(np.int64)
    positions = np.zeros(starts[-1], np.int64)
    np.add.at(positions, starts[block_of] + colors + 1, 1)
    positions[starts[:-1]] = offsets[:-1]
    for_each = np.cumsum(positions)  # running sums restart at each block: subtract what came before it
    before = for_each[starts[:-1]] - offsets[:-1] if blocks else np.zeros(0, np.int64)
    return starts, for_each - np.repeat(before, per_block + 1)


def simt_phases(spec: LoopSpec, merge: Merge) -> tuple[tuple[Phase, ...], tuple[Scratch, ...]]:
    """The four phases and the memory they share."""
    columns = [c for m in spec.racy_maps for c in columns_of(spec, m)]
    spaces = sorted({spec.maps[m].target for m in spec.racy_maps})
    inside = {s: [c for c in columns if _space(spec, c) == s] for s in spaces}
    phases = [_clear(spec, s, inside[s]) for s in spaces]
    phases.append(_evaluate(spec, columns))
    phases.append(_accumulate(spec, columns))
    phases += [_merge_phase(spec, s, inside[s], merge) for s in spaces]
    scratch = [
        Scratch(spec.params[c.param].ctype, f"sum{c.param}", f"most{_space(spec, c)} * {len(c.components)}")
        for c in columns
    ]
    scratch += [Scratch(spec.params[c.param].ctype, f"stage{c.param}", f"block * {len(c.nodes)}") for c in columns]
    return tuple(phases), tuple(scratch)


def _space(spec: LoopSpec, columns: Columns) -> int:
    number = spec.params[columns.param].map
    assert number is not None
    return spec.maps[number].target


def _stage(spec: LoopSpec) -> Stage:
    return Stage(spec, "block", apart=True)


def _sum_at(spec: LoopSpec, columns: Columns, place: str, comp: int) -> str:
    """Where a component of a target's sum is kept: components apart, so that threads use different memory banks."""
    number = columns.components.index(comp)
    most = f"most{_space(spec, columns)}"
    return f"sum{columns.param}[{number} * {most} + {place}]" if number else f"sum{columns.param}[{place}]"


def _clear(spec: LoopSpec, space: int, columns: list[Columns]) -> Phase:
    body = []
    for c in columns:
        param = spec.params[c.param]
        zero = literal(identity(param.mode.combine, param.dtype), param.dtype)
        body += [f"{_sum_at(spec, c, 'i', comp)} = {zero};" for comp in c.components]
    return Phase("0", f"own_offsets{space}[b + 1] - own_offsets{space}[b]", tuple(body), independent=True)


def _evaluate(spec: LoopSpec, columns: list[Columns]) -> Phase:
    staged = staging(ElementCode(spec, spec.other_outputs), columns, "l", _stage(spec).stores)
    body = ("const ml_index e = visit[i];", "const ml_index l = i - block_offsets[b];", *staged)
    return Phase("block_offsets[b]", "block_offsets[b + 1]", body, independent=True)


def _accumulate(spec: LoopSpec, columns: list[Columns]) -> Phase:
    """Elements of color ``c`` of the block: no two of them share a target."""
    body = ["const ml_index l = i - block_offsets[b];"]
    for c in columns:
        param = spec.params[c.param]
        start, width = _columns_of_map(spec, param.map)
        for slot, uses in enumerate(c.use):
            if not any(uses):
                continue
            place = f"p{c.param}_{slot}"
            body.append(f"const ml_index {place} = place{_space(spec, c)}[i * {width} + {start + slot}];")
            for comp, use in enumerate(uses):
                if use:
                    target = _sum_at(spec, c, place, comp)
                    value = _stage(spec).at(c, "l", use[0])
                    value = negated(value, param.dtype) if use[1] < 0 else value
                    body.append(f"{target} = {merged(param, target, value)};")
    return Phase("color_positions[color_starts[b] + c]", "color_positions[color_starts[b] + c + 1]", tuple(body),
                 repeat="color_starts[b + 1] - color_starts[b] - 1")  # fmt: skip


def _columns_of_map(spec: LoopSpec, number: int | None) -> tuple[int, int]:
    """Where a map's slots start among all racy maps into its target set, and how many there are in all."""
    assert number is not None
    members = [m for m in spec.racy_maps if spec.maps[m].target == spec.maps[number].target]
    arities = [spec.maps[m].arity for m in members]
    return sum(arities[: members.index(number)]), sum(arities)


def _merge_phase(spec: LoopSpec, space: int, columns: list[Columns], merge: Merge) -> Phase:
    body = [f"const ml_index t = own{space}[own_offsets{space}[b] + i];"]
    for c in columns:
        for comp in c.components:
            body += merge(c.param, spec.access(c.param).at("t", comp), _sum_at(spec, c, "i", comp), "t")
    return Phase("0", f"own_offsets{space}[b + 1] - own_offsets{space}[b]", tuple(body), independent=True)
