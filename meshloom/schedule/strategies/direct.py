"""direct: no two elements meet, so the elements are simply visited in parallel. Chosen whenever a loop has no race.

Where elements look at nothing but their own, a thread of a GPU may take several (``vectors.py``).
"""

from __future__ import annotations

from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import Pass
from meshloom.schedule.plan.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import ELEMENTS, Strategy
from meshloom.schedule.strategies.common.vectors import vector_pass
from meshloom.schedule.strategies.common.visits import VisitPlan, element_pass, visiting
from meshloom.target import CPU, Target


class Direct(Strategy):
    name = "direct"
    deterministic = True
    summary = "no element meets another: a plain parallel loop"
    competes = False
    serves = frozenset({ELEMENTS})
    plans = VisitPlan

    def declines(self, spec: LoopSpec) -> str | None:
        return "elements meet through a map, so it would race" if spec.racy_outputs else None

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        return VisitPlan(self.name, block, visiting(topology))

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(plan, VisitPlan)
        return [vector_pass(spec) if spec.per_thread.count > 1 else element_pass(spec, plan)]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        return Cost(work.compulsory, work.flops)
