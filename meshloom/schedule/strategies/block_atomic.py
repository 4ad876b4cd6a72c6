"""block_atomic: blocks of consecutive elements, all at once; targets inside one block are updated plainly, and only
targets that several blocks share use atomics. One launch."""

from __future__ import annotations

from meshloom.kernel.model import Output
from meshloom.native.tiles import shared_targets
from meshloom.schedule.code import ElementCode, Pass, Phase, merged, row_name
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.shared_blocks import Merge, simt_arrays, simt_phases
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.block_color import block_offsets
from meshloom.schedule.strategies.direct import visiting
from meshloom.schedule.verify import check_block_atomic


class BlockAtomic(Strategy):
    name = "block_atomic"
    deterministic = False  # sums at shared targets depend on who comes first
    plan_has_blocks = True
    summary = "blocks of elements; atomics only for targets that blocks share"

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        offsets = block_offsets(topology.elements, block)
        rows, targets = topology.conflicts()
        spaces = sorted(set(topology.spaces.values()))
        flags = {
            f"shared{space}": shared_targets(offsets, topology.visit, a, t)
            for space, a, t in zip(spaces, rows, targets, strict=True)
        }
        inside, sizes = simt_arrays(topology, offsets) if simt else (visiting(topology), {})
        arrays = inside | flags | {"block_offsets": offsets}
        return Plan(self.name, block, arrays, sizes | {"n_blocks": len(offsets) - 1})

    def check(self, plan: Plan, topology: Topology) -> None:
        check_block_atomic(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        phases, scratch = simt_phases(spec, _merge(spec)) if simt else ((_serial_phase(spec, plan),), ())
        return [Pass("blocks", "n_blocks", phases, blocked=True, scratch=scratch, reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        moved = work.compulsory + work.again + work.added_again
        shared = (1.05 - 1 / max(work.loads, 1.0)) * work.elements * work.components
        return Cost(moved, work.flops, atomics=shared, updates=2 * work.elements * work.components)


def _serial_phase(spec: LoopSpec, plan: Plan) -> Phase:
    """The elements of a block one after the other, with atomics only where another block may be at the same target."""
    code = ElementCode(spec, spec.outputs)

    def sink(output: Output, value: str) -> list[str]:
        param = spec.params[output.param]
        if not param.racy or param.map is None:
            return code.plain(output, value)
        shared = f"shared{spec.maps[param.map].target}[{row_name(param.map, output.slot)}]"
        return [f"if ({shared}) {{", *code.atomic(output, value), "} else {", *code.plain(output, value), "}"]

    body = code.lines(sink, element="visit[i]" if "visit" in plan.arrays else "i")
    return Phase("block_offsets[b]", "block_offsets[b + 1]", body)


def _merge(spec: LoopSpec) -> Merge:
    def merge(param: int, place: str, value: str, target: str) -> list[str]:
        described = spec.params[param]
        assert described.map is not None
        plain = f"{place} = {merged(described, place, value)};"
        flag = f"shared{spec.maps[described.map].target}[{target}]"
        return [f"if ({flag}) ml_atomic_{described.mode.combine}(&{place}, {value}); else {plain}"]

    return merge
