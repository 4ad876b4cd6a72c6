"""What ``block_color`` and ``block_atomic`` share: blocks of consecutive elements.

On a CPU a block is run by one thread, its elements one after the other, so nothing inside it can race. Where threads
run together, those of a block add up in memory of their own first (``shared_blocks.py``). The strategies differ in what
they do about blocks that meet.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from meshloom.records import dataclass
from meshloom.schedule.nest.code import BLOCK, ElementCode, Pass, Phase, Sink
from meshloom.schedule.plan.declare import (
    ANY,
    NUMBERS,
    OFFSETS,
    Array,
    Numbers,
    Offsets,
    Part,
    elements,
    holds,
    ordered,
    size,
)
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.verify import check_given_visit
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.common.shared_blocks import (
    Merge,
    SharedBlocks,
    check_blocks,
    phases_together,
    shared_blocks,
)
from meshloom.schedule.strategies.common.visits import visited_element, visiting
from meshloom.target import CPU, Target


@dataclass(frozen=True, eq=False)
class BlockPlan(Plan):
    """Blocks of positions."""

    block_offsets: Offsets = holds(Array(OFFSETS, ANY), "where each block begins among the positions, and the end")

    @size
    def n_blocks(self) -> int:
        return len(self.block_offsets) - 1

    def check_between(self, topology: Topology, visit: np.ndarray) -> None:
        """Raise PlanError unless what the plan says about blocks that meet is right; ``visit``: elements in order."""


@dataclass(frozen=True, eq=False)
class SerialBlocks(BlockPlan):
    """The elements of a block one after the other."""

    visit: Numbers | None = holds(Array(NUMBERS, elements), "the element at each position, where ordered", ordered)

    def check(self, topology: Topology) -> None:
        check_blocks(self, self.block_offsets, topology)
        self.check_between(topology, check_given_visit(self, self.visit, topology))


@dataclass(frozen=True, eq=False)
class BlocksTogether(BlockPlan):
    """The elements of a block at the same time."""

    inside: SharedBlocks = holds(Part(SharedBlocks), "what the threads of a block share")

    def check(self, topology: Topology) -> None:
        check_blocks(self, self.block_offsets, topology)
        self.inside.check(self, topology, self.block_offsets)
        self.check_between(topology, self.inside.visit)


class BlockStrategy(Strategy):
    """Blocks of consecutive elements; subclasses say what is done where blocks meet."""

    plan_has_blocks = True
    plans: ClassVar[type[SerialBlocks]]
    plans_together: ClassVar[type[BlocksTogether]]

    @abstractmethod
    def between(self, topology: Topology, offsets: np.ndarray) -> dict[str, Any]:
        """What the plan holds about blocks that meet."""

    @abstractmethod
    def merge(self, spec: LoopSpec, plan: Plan) -> Merge:
        """How a block that runs together brings its sums to memory."""

    def sink(self, spec: LoopSpec, plan: Plan, code: ElementCode) -> Sink:
        """How a block that runs one element after the other does: plainly, unless said otherwise."""
        return code.plain

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        offsets = block_offsets(topology.elements, block)
        found = self.between(topology, offsets)
        if target.is_simt:
            inside = shared_blocks(topology, offsets)
            return self.plans_together(self.name, block, block_offsets=offsets, inside=inside, **found)
        return self.plans(self.name, block, block_offsets=offsets, visit=visiting(topology), **found)

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        if target.is_simt:
            phases, scratch = phases_together(spec, plan, self.merge(spec, plan))
        else:
            phases, scratch = (self.serial_phase(spec, plan, target),), ()
        count = part_of(plan, "n_blocks")
        return [Pass("blocks", count, phases, blocked=True, scratch=scratch, reductions=spec.reductions)]

    def serial_phase(self, spec: LoopSpec, plan: Plan, target: Target) -> Phase:
        """The elements of a block one after the other."""
        assert isinstance(plan, SerialBlocks)
        code, first = ElementCode(spec, spec.outputs), part_of(plan, "block_offsets")
        body = code.body(self.sink(spec, plan, code), element=visited_element(plan, plan.visit))
        return Phase(body, first[BLOCK], first[BLOCK + 1])


def block_offsets(elements: int, block: int) -> np.ndarray:
    """Offsets of blocks of ``block`` consecutive elements, the last one shorter."""
    return np.append(np.arange(0, elements, block, dtype=np.int64), np.int64(elements))
