"""Elements one after the other: the order in which they are visited, and a pass over those that meet no other."""

from __future__ import annotations

from meshloom.records import dataclass
from meshloom.schedule.nest.code import COUNT, ITEM, ElementCode, Pass, Phase
from meshloom.schedule.nest.nodes import Expr
from meshloom.schedule.plan.declare import NUMBERS, Array, Numbers, elements, holds, ordered
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.verify import check_given_visit
from meshloom.schedule.spec import LoopSpec


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
