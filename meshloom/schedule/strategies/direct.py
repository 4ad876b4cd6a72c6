"""direct: no two elements meet, so the elements are simply visited in parallel. Chosen whenever a loop has no race.

Where elements look at nothing but their own, a thread of a GPU may take several (``vectors.py``).
"""

from __future__ import annotations

import numpy as np

from meshloom.schedule.code import ElementCode, Pass, Phase
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.vectors import vector_pass
from meshloom.schedule.verify import check_direct


class Direct(Strategy):
    name = "direct"
    summary = "no element meets another: a plain parallel loop"
    competes = False

    def declines(self, spec: LoopSpec) -> str | None:
        return "elements meet through a map, so it would race" if spec.racy_outputs else None

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        return Plan(self.name, block, visiting(topology))

    def check(self, plan: Plan, topology: Topology) -> None:
        check_direct(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        return [vector_pass(spec) if spec.share.elements > 1 else element_pass(spec, plan)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        return Cost(work.compulsory, work.flops)


def visiting(topology: Topology) -> dict[str, np.ndarray]:
    """The plan array ``visit`` when elements are not visited in their own order."""
    return {} if topology.order is None else {"visit": topology.order.astype(topology.index_type)}


def element_pass(spec: LoopSpec, plan: Plan) -> Pass:
    """A pass over the elements for the outputs where none meets another."""
    code = ElementCode(spec, spec.other_outputs)
    ordered = "visit" in plan.arrays
    body = code.lines(code.plain, element="visit[i]" if ordered else "i")
    return Pass("elements", "n", (Phase("", "", body, independent=not ordered),), reductions=spec.reductions)
