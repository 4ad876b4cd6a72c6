"""color: elements that share a target get different colors; one launch per color, plain updates.

Greedy, in the order of visit: each element takes the smallest color that none of its neighbours has (algorithm 4 of the
graph-coloring paper). Elements of a color are kept in ascending order, so the result does not depend on threads.

The elements of a color lie far apart, so their rows of the maps and their own data are read in pieces. The variant
``indices`` keeps a copy of the maps in the order of colors. Data of the elements are never copied: nobody tells a loop
when a field changes, and a copy made before every run would cost more than it saves. On a mesh whose faces are numbered
by color (the ordering ``color``) maps and data lie right by themselves, and no element has to be looked up.
"""

from __future__ import annotations

from dataclasses import replace

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
    variants = ("plain", "indices")

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        rows, targets = topology.conflicts()
        visit = topology.visit
        visited = [np.ascontiguousarray(a[visit]) for a in rows] if topology.order is not None else rows
        colors = color_elements(visited, targets)
        counts = np.bincount(colors) if len(colors) else np.zeros(0, np.int64)
        arrays = {"color_offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)}
        by_color = visit[np.argsort(colors, kind="stable")].astype(topology.index_type)
        if (np.diff(by_color) < 0).any():  # else elements are numbered by color, and position and element are one
            arrays["visit"] = by_color
        return Plan(self.name, block, arrays, {"n_colors": len(counts)})

    def varied(self, variant: str, plan: Plan, topology: Topology) -> Plan:
        """``indices``: tables ``by_color<m>`` (arity, n) of the rows of every map in the order of colors."""
        if variant == "plain":
            return plan
        visit = plan.arrays.get("visit", slice(topology.elements))
        tables = {f"by_color{m}": np.ascontiguousarray(rows[visit].T) for m, rows in topology.rows().items()}
        return replace(plan, arrays=plan.arrays | tables)

    def check(self, plan: Plan, topology: Topology) -> None:
        check_color(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        tables = any(name.startswith("by_color") for name in plan.arrays)
        code = ElementCode(spec, spec.outputs, _in_table if tables else None)
        body = code.lines(code.plain, element="visit[i]" if "visit" in plan.arrays else "i")
        return [Pass("elements", "n", (Phase("", "", body),), colors="color_offsets", reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        colors = max(2, round(work.incidences / max(work.targets, 1)) + 2)
        moved = work.compulsory * colors / 3 + work.again + work.added_again
        return Cost(moved, work.flops, updates=work.elements * work.components, launches=colors)


def _in_table(number: int, slot: int) -> str:
    """The entry of a map for the element at position ``i``: neighbouring positions read neighbouring entries."""
    return f"by_color{number}[{f'{slot} * n + i' if slot else 'i'}]"
