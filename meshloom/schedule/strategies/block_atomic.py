"""block_atomic: blocks of consecutive elements, all at once; targets inside one block are updated plainly, and only
targets that several blocks share use atomics. One launch."""

from __future__ import annotations

from meshloom.kernel.model import Output
from meshloom.native.tiles import shared_targets
from meshloom.schedule.code import ElementCode, Pass, Phase, row_name
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.block_color import block_offsets
from meshloom.schedule.strategies.direct import visiting


class BlockAtomic(Strategy):
    name = "block_atomic"
    deterministic = False  # sums at shared targets depend on who comes first
    summary = "blocks of elements; atomics only for targets that blocks share"

    def plan(self, topology: Topology, block: int) -> Plan:
        offsets = block_offsets(topology.elements, block)
        arrays, targets = topology.conflicts()
        spaces = sorted(set(topology.spaces.values()))
        flags = {
            f"shared{space}": shared_targets(offsets, topology.visit, a, t)
            for space, a, t in zip(spaces, arrays, targets, strict=True)
        }
        return Plan(
            self.name, block, visiting(topology) | flags | {"block_offsets": offsets}, {"n_blocks": len(offsets) - 1}
        )

    def passes(self, spec: LoopSpec, plan: Plan) -> list[Pass]:
        code = ElementCode(spec, spec.outputs)

        def sink(output: Output, value: str) -> list[str]:
            param = spec.params[output.param]
            if not param.racy or param.map is None:
                return code.plain(output, value)
            shared = f"shared{spec.maps[param.map].target}[{row_name(param.map, output.slot)}]"
            return [f"if ({shared}) {{", *code.atomic(output, value), "} else {", *code.plain(output, value), "}"]

        body = code.lines(sink, element="visit[i]" if "visit" in plan.arrays else "i")
        phase = Phase("block_offsets[b]", "block_offsets[b + 1]", body)
        return [Pass("blocks", "n_blocks", (phase,), blocked=True, reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        shared = 0.05 * work.elements * work.components  # a guess for a good order; explain() shows the real share
        return Cost(work.compulsory, work.flops, atomics=shared, updates=2 * work.elements * work.components)
