"""block_color: blocks of consecutive elements; blocks that share a target get different colors.

Blocks of one color run at the same time, the elements inside one after the other; the colors follow each other. On a
CPU a block is run by one thread, so nothing inside it can race; a GPU also colors the elements of each block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from meshloom.native.algorithms import color_blocks
from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import BLOCK, POSITION, Pass, Phase, accumulated
from meshloom.schedule.plan.declare import ANY, NUMBERS, OFFSETS, Array, Numbers, Offsets, Place, holds
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.plan.verify import check_offsets, check_permutation, lost_stamps
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import SERIAL
from meshloom.schedule.strategies.common.batches import in_batches, one_by_one, pays
from meshloom.schedule.strategies.common.blocks import BlockPlan, BlocksTogether, BlockStrategy, SerialBlocks
from meshloom.schedule.strategies.common.shared_blocks import Merge, block_numbers
from meshloom.schedule.strategies.common.visits import visited_element
from meshloom.target import CPU, Target


def _blocks(place: Place) -> int:
    return place.inside(ColoredBlocks).n_blocks


@dataclass(frozen=True, eq=False)
class ColoredBlocks(BlockPlan):
    """Blocks color by color; no two blocks of a color share a target."""

    block_list: Numbers = holds(Array(NUMBERS, _blocks), "the blocks, color by color")
    color_offsets: Offsets = holds(Array(OFFSETS, ANY), "where each color begins among them, and the end")

    @property
    def n_colors(self) -> int:
        return len(self.color_offsets) - 1

    def check_between(self, topology: Topology, visit: np.ndarray) -> None:
        check_permutation(self, "block_list", self.block_list, self.n_blocks)
        check_offsets(self, "color_offsets", self.color_offsets, self.n_blocks)
        block_of, color_of_block = block_numbers(self.block_offsets), np.empty(self.n_blocks, np.int64)
        color_of_block[self.block_list] = np.repeat(np.arange(self.n_colors), np.diff(self.color_offsets))
        color = color_of_block[block_of]
        for rows, targets in zip(*topology.conflicts(), strict=True):
            for c in range(self.n_colors):
                members = np.flatnonzero(color == c)
                lost = lost_stamps(block_of[members], rows[visit[members]], targets)
                demand(not lost.any(), self, f"two blocks of color {c} share a target")


@dataclass(frozen=True, eq=False)
class SerialColoredBlocks(ColoredBlocks, SerialBlocks):
    """Each by one thread."""


@dataclass(frozen=True, eq=False)
class ColoredBlocksTogether(ColoredBlocks, BlocksTogether):
    """Each by many threads."""


class BlockColor(BlockStrategy):
    name = "block_color"
    deterministic = True
    summary = "blocks of elements, colored; plain updates inside a block"
    serves = frozenset({SERIAL})
    plans, plans_together = SerialColoredBlocks, ColoredBlocksTogether

    def between(self, topology: Topology, offsets: np.ndarray) -> dict[str, Any]:
        colors = color_blocks(offsets, topology.visit, *topology.conflicts())
        counts = np.bincount(colors) if len(colors) else np.zeros(0, np.int64)
        colored = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return {"block_list": np.argsort(colors, kind="stable").astype(np.int64), "color_offsets": colored}

    def merge(self, spec: LoopSpec, plan: Plan) -> Merge:
        """Blocks of one color share no target: plain updates."""
        return lambda param, place, value, target: accumulated(param, place, value)

    def goes_in_vectors(self, spec: LoopSpec, target: Target) -> bool:
        in_batches = not target.is_simt and pays(spec, self.fitted(target, "batch_flops"))
        return in_batches or super().goes_in_vectors(spec, target)

    def serial_phase(self, spec: LoopSpec, plan: Plan, target: Target) -> Phase:
        """In batches where elements take much arithmetic."""
        assert isinstance(plan, SerialColoredBlocks)
        offsets, element = part_of(plan, "block_offsets"), visited_element(plan, plan.visit)
        first, last = offsets[BLOCK], offsets[BLOCK + 1]
        if not pays(spec, self.fitted(target, "batch_flops")):
            return Phase(one_by_one(spec, element), first, last)
        size = int(self.fitted(target, "batch"))
        return Phase(in_batches(spec, element, first, last, size), of_block=True)

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        colors, number = part_of(plan, "color_offsets"), part_of(plan, "block_list")[POSITION]
        made = super().passes(spec, plan, target=target)
        return [replace(one, colors=colors, block_number=number) for one in made]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        moved = self.fitted(target, "bytes") * work.compulsory + work.reload_reads + work.reload_updates
        return Cost(moved, work.flops, updates=work.elements * work.components, rounds=work.colors,
                    concurrent_blocks=max(work.blocks, 1) / work.colors)  # fmt: skip
