"""direct: no two elements meet, so the elements are simply visited in parallel. Chosen whenever a loop has no race.

Where elements look at nothing but their own, a thread of a GPU may take several (``vectors.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import COUNT, ITEM, ElementCode, Pass, Phase
from meshloom.schedule.nest.nodes import Expr
from meshloom.schedule.plan.declare import NUMBERS, Array, Numbers, elements, holds, ordered
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.verify import check_given_visit
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.common.vectors import vector_pass
from meshloom.target import CPU, Target


@dataclass(frozen=True, eq=False)
class VisitPlan(Plan):
    """Elements in the order that was asked for."""

    visit: Numbers | None = holds(Array(NUMBERS, elements), "the element at each position, where ordered", ordered)

    def check(self, topology: Topology) -> None:
        check_given_visit(self, self.visit, topology)

    @property
    def element(self) -> Expr:
        """The element at position ``i``."""
        return visited_element(self, self.visit)


class Direct(Strategy):
    name = "direct"
    summary = "no element meets another: a plain parallel loop"
    competes = False
    plans = VisitPlan

    def declines(self, spec: LoopSpec) -> str | None:
        return "elements meet through a map, so it would race" if spec.racy_outputs else None

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        return VisitPlan(self.name, block, visiting(topology))

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(plan, VisitPlan)
        return [vector_pass(spec) if spec.share.elements > 1 else element_pass(spec, plan)]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        return Cost(work.compulsory, work.flops)


def visiting(topology: Topology) -> Numbers | None:
    """The order of visit as a plan holds it; None when elements are visited in their own."""
    return None if topology.order is None else topology.order.astype(topology.index_type)


def visited_element(plan: Plan, visit: Numbers | None) -> Expr:
    """The element at position ``i`` of a plan's ``visit``, if it has one."""
    return ITEM if visit is None else part_of(plan, "visit")[ITEM]


def element_pass(spec: LoopSpec, plan: VisitPlan) -> Pass:
    """A pass over the elements for the outputs where none meets another."""
    code = ElementCode(spec, spec.other_outputs)
    body = code.body(code.plain, element=plan.element)
    return Pass("elements", COUNT, (Phase(body, independent=plan.visit is None),), reductions=spec.reductions)
