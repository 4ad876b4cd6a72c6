"""block_color: blocks of consecutive elements; blocks that share a target get different colors.

Blocks of one color run at the same time, the elements inside one after the other; the colors follow each other. On a
CPU a block is run by one thread, so nothing inside it can race; a GPU also colors the elements of each block.
"""

from __future__ import annotations

import numpy as np

from meshloom.native.algorithms import color_blocks
from meshloom.schedule.code import ElementCode, Pass, Phase, merged
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.shared_blocks import Merge, simt_arrays, simt_phases
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.direct import visiting
from meshloom.schedule.verify import check_block_color


class BlockColor(Strategy):
    name = "block_color"
    plan_has_blocks = True
    summary = "blocks of elements, colored; plain updates inside a block"
    cpu_block = 16384

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        rows, targets = topology.conflicts()
        offsets = block_offsets(topology.elements, block)
        colors = color_blocks(offsets, topology.visit, rows, targets)
        counts = np.bincount(colors) if len(colors) else np.zeros(0, np.int64)
        inside, sizes = simt_arrays(topology, offsets) if simt else (visiting(topology), {})
        arrays = inside | {
            "block_list": np.argsort(colors, kind="stable").astype(np.int64),
            "color_offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            "block_offsets": offsets,
        }
        return Plan(self.name, block, arrays, sizes | {"n_colors": len(counts), "n_blocks": len(offsets) - 1})

    def check(self, plan: Plan, topology: Topology) -> None:
        check_block_color(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        phases, scratch = simt_phases(spec, _merge(spec)) if simt else ((serial_phase(spec, plan),), ())
        return [Pass("blocks", "n_blocks", phases, blocked=True, colors="color_offsets", block_number="block_list[k]",
                     scratch=scratch, reductions=spec.reductions)]  # fmt: skip

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        moved = 1.1 * work.compulsory + work.again + work.added_again
        return Cost(moved, work.flops, updates=work.elements * work.components, rounds=work.colors,
                    at_once=max(work.blocks, 1) / work.colors)  # fmt: skip


def block_offsets(elements: int, block: int) -> np.ndarray:
    """Offsets of blocks of ``block`` consecutive elements, the last one shorter."""
    return np.append(np.arange(0, elements, block, dtype=np.int64), np.int64(elements))


def serial_phase(spec: LoopSpec, plan: Plan) -> Phase:
    """The elements of a block one after the other: nothing can race."""
    code = ElementCode(spec, spec.outputs)
    body = code.lines(code.plain, element="visit[i]" if "visit" in plan.arrays else "i")
    return Phase("block_offsets[b]", "block_offsets[b + 1]", body)


def _merge(spec: LoopSpec) -> Merge:
    """Blocks of one color share no target: plain updates."""

    def merge(param: int, place: str, value: str, target: str) -> list[str]:
        described = spec.params[param]
        return [f"{place} = {merged(described, place, value)};"]

    return merge
