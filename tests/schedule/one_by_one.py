"""A strategy for tests, in one file and with a plan of its own: one element after the other, the last one first.

Nobody knows about it but the registry: its plan is checked, kept on disk and handed to generated code by what it
declares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import COUNT, ITEM, ElementCode, Pass, Phase
from meshloom.schedule.plan.declare import NUMBERS, OFFSETS, Array, Numbers, Offsets, Place, elements, holds
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.plan.verify import check_offsets, check_permutation
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.target import CPU, Target


def _turns(place: Place) -> int:
    return elements(place) + 1


@dataclass(frozen=True, eq=False)
class OneByOnePlan(Plan):
    """A launch for every element."""

    backwards: Numbers = holds(Array(NUMBERS, elements), "the elements from the last to the first")
    turns: Offsets = holds(Array(OFFSETS, _turns), "where each launch begins among them, and the end")

    def check(self, topology: Topology) -> None:
        check_permutation(self, "backwards", self.backwards, topology.elements)
        check_offsets(self, "turns", self.turns, topology.elements)
        demand((np.diff(self.turns) == 1).all(), self, "two elements have one turn")


class OneByOne(Strategy):
    name = "one_by_one"
    deterministic = True
    summary = "one element after the other"
    plans = OneByOnePlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        backwards = np.arange(topology.elements - 1, -1, -1, dtype=topology.index_type)
        return OneByOnePlan(self.name, block, backwards, np.arange(topology.elements + 1))

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        code = ElementCode(spec, spec.outputs)
        body = code.body(code.plain, element=part_of(plan, "backwards")[ITEM])
        return [Pass("elements", COUNT, (Phase(body),), colors=part_of(plan, "turns"), reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        return Cost(work.compulsory, work.flops, launches=work.elements)
