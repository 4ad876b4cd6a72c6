"""block_atomic: blocks of consecutive elements, all at once; targets inside one block are updated plainly, and only
targets that several blocks share use atomics. One launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshloom.kernel.model import Output
from meshloom.native.tiles import shared_targets
from meshloom.schedule.code import ElementCode, Pass, Phase, merged, row_name
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.declare import (
    ANY,
    FLAGS,
    NUMBERS,
    OFFSETS,
    Array,
    Flags,
    Numbers,
    Offsets,
    Part,
    Place,
    Table,
    elements,
    holds,
    ordered,
    size,
    spaces,
)
from meshloom.schedule.form import demand
from meshloom.schedule.plan import Plan, Topology, symbol
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
from meshloom.schedule.strategies.block_color import block_offsets
from meshloom.schedule.strategies.direct import visiting
from meshloom.schedule.verify import check_given_visit, lost_stamps
from meshloom.target import CPU, Target


def _targets(place: Place) -> int:
    """Of the target set with the last number."""
    into = place.topology.spaces.items()
    return next(place.topology.maps[m][1] for m, space in into if space == place.numbers[-1])


@dataclass(frozen=True, eq=False)
class MarkedBlocks(Plan):
    """Blocks of positions, and marks at targets that several of them share."""

    block_offsets: Offsets = holds(Array(OFFSETS, ANY), "where each block begins among the positions, and the end")
    shared: dict[int, Flags] = holds(
        Table(Array(FLAGS, _targets), spaces), "of each target set a mark for each target that blocks share"
    )

    @size
    def n_blocks(self) -> int:
        return len(self.block_offsets) - 1

    def check_marks(self, topology: Topology, visit: np.ndarray) -> None:
        block_of = block_numbers(self.block_offsets)
        for space, rows, targets in zip(sorted(self.shared), *topology.conflicts(), strict=True):
            met = rows[visit]
            lost = lost_stamps(block_of, met, targets)
            demand(self.shared[space][met[lost]].all(), self, "a target shared by two blocks is not marked")


@dataclass(frozen=True, eq=False)
class SerialMarkedBlocks(MarkedBlocks):
    """The elements of a block one after the other."""

    visit: Numbers | None = holds(Array(NUMBERS, elements), "the element at each position, where ordered", ordered)

    def check(self, topology: Topology) -> None:
        check_blocks(self, self.block_offsets, topology)
        self.check_marks(topology, check_given_visit(self, self.visit, topology))


@dataclass(frozen=True, eq=False)
class SharedMarkedBlocks(MarkedBlocks):
    """The elements of a block at the same time."""

    inside: SharedBlocks = holds(Part(SharedBlocks), "what the threads of a block share")

    def check(self, topology: Topology) -> None:
        check_blocks(self, self.block_offsets, topology)
        self.inside.check(self, topology, self.block_offsets)
        self.check_marks(topology, self.inside.visit)


class BlockAtomic(Strategy):
    name = "block_atomic"
    deterministic = False  # sums at shared targets depend on who comes first
    plan_has_blocks = True
    plans, plans_together = SerialMarkedBlocks, SharedMarkedBlocks
    summary = "blocks of elements; atomics only for targets that blocks share"

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        offsets = block_offsets(topology.elements, block)
        rows, targets = topology.conflicts()
        into = sorted(set(topology.spaces.values()))
        flags = {
            space: shared_targets(offsets, topology.visit, a, t)
            for space, a, t in zip(into, rows, targets, strict=True)
        }
        if target.together:
            return SharedMarkedBlocks(self.name, block, offsets, flags, shared_blocks(topology, offsets))
        return SerialMarkedBlocks(self.name, block, offsets, flags, visiting(topology))

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        if target.together:
            phases, scratch = phases_together(spec, plan, _merge(spec, plan))
        else:
            phases, scratch = (_serial_phase(spec, plan),), ()
        return [Pass("blocks", "n_blocks", phases, blocked=True, scratch=scratch, reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        moved = work.compulsory + work.again + work.added_again
        shared = (1.05 - 1 / max(work.loads, 1.0)) * work.elements * work.components
        return Cost(moved, work.flops, atomics=shared, updates=2 * work.elements * work.components)


def _serial_phase(spec: LoopSpec, plan: Plan) -> Phase:
    """The elements of a block one after the other, with atomics only where another block may be at the same target."""
    assert isinstance(plan, SerialMarkedBlocks)
    code = ElementCode(spec, spec.outputs)

    def sink(output: Output, value: str) -> list[str]:
        param = spec.params[output.param]
        if not param.racy or param.map is None:
            return code.plain(output, value)
        shared = f"{symbol(plan, 'shared', spec.maps[param.map].target)}[{row_name(param.map, output.slot)}]"
        return [f"if ({shared}) {{", *code.atomic(output, value), "} else {", *code.plain(output, value), "}"]

    body = code.lines(sink, element="i" if plan.visit is None else "visit[i]")
    return Phase("block_offsets[b]", "block_offsets[b + 1]", body)


def _merge(spec: LoopSpec, plan: Plan) -> Merge:
    def merge(param: int, place: str, value: str, target: str) -> list[str]:
        described = spec.params[param]
        assert described.map is not None
        plain = f"{place} = {merged(described, place, value)};"
        flag = f"{symbol(plan, 'shared', spec.maps[described.map].target)}[{target}]"
        return [f"if ({flag}) ml_atomic_{described.mode.combine}(&{place}, {value}); else {plain}"]

    return merge
