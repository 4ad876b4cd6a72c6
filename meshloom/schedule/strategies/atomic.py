"""atomic: one launch over the elements; the hardware makes every racy update indivisible."""

from __future__ import annotations

from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import COUNT, ElementCode, Pass, Phase
from meshloom.schedule.plan.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.direct import VisitPlan, visiting
from meshloom.target import CPU, Target


class AtomicStrategy(Strategy):
    name = "atomic"
    deterministic = False  # sums depend on who comes first
    summary = "one launch, hardware atomics"
    plans = VisitPlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        return VisitPlan(self.name, block, visiting(topology))

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(plan, VisitPlan)
        code = ElementCode(spec, spec.outputs)
        body = code.body(code.atomic, element=plan.element)
        return [Pass("elements", COUNT, (Phase(body),), reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        moved = work.compulsory + work.again + work.added_again
        added = work.elements * work.components
        return Cost(moved, work.flops, atomics=added, crowded=added * work.crowded, requests=work.requested)
