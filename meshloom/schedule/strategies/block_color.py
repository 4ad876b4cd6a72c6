"""block_color: blocks of consecutive elements; blocks that share a target get different colors.

Blocks of one color run at the same time, the elements inside one after the other; the colors follow each other. On a
CPU a block is run by one thread, so nothing inside it can race; a GPU also colors the elements of each block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshloom.native.algorithms import color_blocks
from meshloom.schedule.code import ElementCode, Pass, Phase, merged
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.declare import (
    ANY,
    NUMBERS,
    OFFSETS,
    Array,
    Numbers,
    Offsets,
    Part,
    Place,
    elements,
    holds,
    ordered,
    size,
)
from meshloom.schedule.form import demand
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.shared_blocks import (
    Merge,
    SharedBlocks,
    block_numbers,
    check_blocks,
    phases_together,
    shared_blocks,
)
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.direct import visiting
from meshloom.schedule.verify import check_given_visit, check_offsets, check_permutation, lost_stamps
from meshloom.target import CPU, Target


def _blocks(place: Place) -> int:
    return place.inside(ColoredBlocks).n_blocks


@dataclass(frozen=True, eq=False)
class ColoredBlocks(Plan):
    """Blocks of positions, color by color; no two blocks of a color share a target."""

    block_offsets: Offsets = holds(Array(OFFSETS, ANY), "where each block begins among the positions, and the end")
    block_list: Numbers = holds(Array(NUMBERS, _blocks), "the blocks, color by color")
    color_offsets: Offsets = holds(Array(OFFSETS, ANY), "where each color begins among them, and the end")

    @size
    def n_blocks(self) -> int:
        return len(self.block_offsets) - 1

    @size
    def n_colors(self) -> int:
        return len(self.color_offsets) - 1

    def blocks(self, items: int) -> int:
        return super().blocks(items) + self.n_colors

    def check_colors(self, topology: Topology, visit: np.ndarray) -> None:
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
class SerialColoredBlocks(ColoredBlocks):
    """The elements of a block one after the other."""

    visit: Numbers | None = holds(Array(NUMBERS, elements), "the element at each position, where ordered", ordered)

    def check(self, topology: Topology) -> None:
        check_blocks(self, self.block_offsets, topology)
        self.check_colors(topology, check_given_visit(self, self.visit, topology))


@dataclass(frozen=True, eq=False)
class SharedColoredBlocks(ColoredBlocks):
    """The elements of a block at the same time."""

    inside: SharedBlocks = holds(Part(SharedBlocks), "what the threads of a block share")

    def check(self, topology: Topology) -> None:
        check_blocks(self, self.block_offsets, topology)
        self.inside.check(self, topology, self.block_offsets)
        self.check_colors(topology, self.inside.visit)


class BlockColor(Strategy):
    name = "block_color"
    plan_has_blocks = True
    summary = "blocks of elements, colored; plain updates inside a block"
    cpu_block = 16384
    plans, plans_together = SerialColoredBlocks, SharedColoredBlocks

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        rows, targets = topology.conflicts()
        offsets = block_offsets(topology.elements, block)
        colors = color_blocks(offsets, topology.visit, rows, targets)
        counts = np.bincount(colors) if len(colors) else np.zeros(0, np.int64)
        listed = np.argsort(colors, kind="stable").astype(np.int64)
        colored = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        if target.together:
            return SharedColoredBlocks(self.name, block, offsets, listed, colored, shared_blocks(topology, offsets))
        return SerialColoredBlocks(self.name, block, offsets, listed, colored, visiting(topology))

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        if target.together:
            phases, scratch = phases_together(spec, plan, _merge(spec))
        else:
            phases, scratch = (_serial_phase(spec, plan),), ()
        return [Pass("blocks", "n_blocks", phases, blocked=True, colors="color_offsets", block_number="block_list[k]",
                     scratch=scratch, reductions=spec.reductions)]  # fmt: skip

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        moved = 1.1 * work.compulsory + work.again + work.added_again
        return Cost(moved, work.flops, updates=work.elements * work.components, rounds=work.colors,
                    at_once=max(work.blocks, 1) / work.colors)  # fmt: skip


def block_offsets(elements: int, block: int) -> np.ndarray:
    """Offsets of blocks of ``block`` consecutive elements, the last one shorter."""
    return np.append(np.arange(0, elements, block, dtype=np.int64), np.int64(elements))


def _serial_phase(spec: LoopSpec, plan: Plan) -> Phase:
    """The elements of a block one after the other: nothing can race."""
    assert isinstance(plan, SerialColoredBlocks)
    code = ElementCode(spec, spec.outputs)
    body = code.lines(code.plain, element="i" if plan.visit is None else "visit[i]")
    return Phase("block_offsets[b]", "block_offsets[b + 1]", body)


def _merge(spec: LoopSpec) -> Merge:
    """Blocks of one color share no target: plain updates."""

    def merge(param: int, place: str, value: str, target: str) -> list[str]:
        described = spec.params[param]
        return [f"{place} = {merged(described, place, value)};"]

    return merge
