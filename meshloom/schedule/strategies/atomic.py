"""atomic: one launch over the elements; the hardware makes every racy update indivisible."""

from __future__ import annotations

from meshloom.schedule.code import ElementCode, Pass, Phase
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.direct import visiting
from meshloom.schedule.verify import check_direct


class Atomic(Strategy):
    name = "atomic"
    deterministic = False  # sums depend on who comes first
    summary = "one launch, hardware atomics"

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        return Plan(self.name, block, visiting(topology))

    def check(self, plan: Plan, topology: Topology) -> None:
        check_direct(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        code = ElementCode(spec, spec.outputs)
        body = code.lines(code.atomic, element="visit[i]" if "visit" in plan.arrays else "i")
        return [Pass("elements", "n", (Phase("", "", body),), reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        moved = work.compulsory + work.again + work.added_again
        added = work.elements * work.components
        return Cost(moved, work.flops, atomics=added, crowded=added * work.crowded, requests=work.requested)
