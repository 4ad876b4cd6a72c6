"""color: elements that share a target get different colors; one launch per color, plain updates.

Greedy, in the order of visit: each element takes the smallest color that none of its neighbours has (algorithm 4 of the
graph-coloring paper). Elements of a color are kept in ascending order, so the result does not depend on threads.
"""

from __future__ import annotations

import numpy as np

from meshloom.native.algorithms import color_elements
from meshloom.schedule.code import ElementCode, Pass, Phase
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.verify import check_color


class Color(Strategy):
    name = "color"
    summary = "global coloring, one launch per color"

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        arrays, targets = topology.conflicts()
        visit = topology.visit
        colors = color_elements(
            [np.ascontiguousarray(a[visit]) for a in arrays] if topology.order is not None else arrays, targets
        )
        by_color = np.argsort(colors, kind="stable")
        counts = np.bincount(colors) if len(colors) else np.zeros(0, np.int64)
        return Plan(
            self.name,
            block,
            {
                "visit": visit[by_color].astype(topology.index_type),
                "color_offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            },
            {"n_colors": len(counts)},
        )

    def check(self, plan: Plan, topology: Topology) -> None:
        check_color(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        code = ElementCode(spec, spec.outputs)
        body = code.lines(code.plain, element="visit[i]")
        return [Pass("elements", "n", (Phase("", "", body),), colors="color_offsets", reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        colors = max(2, round(work.incidences / max(work.targets, 1)) + 2)
        return Cost(work.compulsory * colors / 3, work.flops, updates=work.elements * work.components, launches=colors)
