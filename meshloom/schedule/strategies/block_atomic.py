"""block_atomic: blocks of consecutive elements, all at once; targets inside one block are updated plainly, and only
targets that several blocks share use atomics. One launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.kernel.model import Output
from meshloom.native.tiles import shared_targets
from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import ElementCode, Sink, accumulated, row_of
from meshloom.schedule.nest.nodes import Atomic, Expr, If, Statement
from meshloom.schedule.plan.declare import FLAGS, Array, Flags, Place, Table, holds, spaces
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.plan.verify import lost_stamps
from meshloom.schedule.spec import LoopSpec, SpecParam
from meshloom.schedule.strategies.common.blocks import BlockPlan, BlocksTogether, BlockStrategy, SerialBlocks
from meshloom.schedule.strategies.common.shared_blocks import Merge, block_numbers
from meshloom.target import CPU, Target


def _targets(place: Place) -> int:
    """Of the target set with the last number."""
    into = place.topology.spaces.items()
    return next(place.topology.maps[m][1] for m, space in into if space == place.numbers[-1])


@dataclass(frozen=True, eq=False)
class MarkedBlocks(BlockPlan):
    """Marks at targets that several blocks share."""

    shared: dict[int, Flags] = holds(
        Table(Array(FLAGS, _targets), spaces), "of each target set a mark for each target that blocks share"
    )

    def check_between(self, topology: Topology, visit: np.ndarray) -> None:
        block_of = block_numbers(self.block_offsets)
        for space, rows, targets in zip(sorted(self.shared), *topology.conflicts(), strict=True):
            met = rows[visit]
            lost = lost_stamps(block_of, met, targets)
            demand(self.shared[space][met[lost]].all(), self, "a target shared by two blocks is not marked")


@dataclass(frozen=True, eq=False)
class SerialMarkedBlocks(MarkedBlocks, SerialBlocks):
    """Each by one thread."""


@dataclass(frozen=True, eq=False)
class MarkedBlocksTogether(MarkedBlocks, BlocksTogether):
    """Each by many threads."""


class BlockAtomic(BlockStrategy):
    name = "block_atomic"
    deterministic = False  # sums at shared targets depend on who comes first
    plans, plans_together = SerialMarkedBlocks, MarkedBlocksTogether
    summary = "blocks of elements; atomics only for targets that blocks share"

    def between(self, topology: Topology, offsets: np.ndarray) -> dict[str, Any]:
        into = sorted(set(topology.spaces.values()))
        found = zip(into, *topology.conflicts(), strict=True)
        return {"shared": {space: shared_targets(offsets, topology.visit, rows, count) for space, rows, count in found}}

    def sink(self, spec: LoopSpec, plan: Plan, code: ElementCode) -> Sink:
        """Atomics only where another block may be at the same target."""

        def sink(output: Output, value: Expr) -> list[Statement]:
            param = spec.params[output.param]
            if not param.racy:
                return code.plain(output, value)
            shared = _marks(spec, plan, param)[row_of(param.map, output.slot)]
            return [If(shared, tuple(code.atomic(output, value)), tuple(code.plain(output, value)))]

        return sink

    def merge(self, spec: LoopSpec, plan: Plan) -> Merge:
        def merge(param: SpecParam, place: Expr, value: Expr, target: Expr) -> Statement:
            shared, plain = _marks(spec, plan, param)[target], accumulated(param, place, value)
            return If(shared, (Atomic(place, param.mode.combine, value),), (plain,), bare=True)

        return merge

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        moved = work.compulsory + work.reload_reads + work.reload_updates
        shared = (self.fitted(target, "atomics") - 1 / max(work.loads, 1.0)) * work.elements * work.components
        return Cost(moved, work.flops, atomics=shared, updates=2 * work.elements * work.components)


def _marks(spec: LoopSpec, plan: Plan, param: SpecParam) -> Expr:
    """Which targets of a racy parameter blocks share."""
    assert param.map is not None
    return part_of(plan, "shared", spec.maps[param.map].target)
