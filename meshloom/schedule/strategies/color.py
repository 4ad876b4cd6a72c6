"""color: elements that share a target get different colors; one launch per color, plain updates.

Greedy, in the order of visit: each element takes the smallest color that none of its neighbours has (algorithm 4 of the
graph-coloring paper). Elements of a color are kept in ascending order, so the result does not depend on threads.

The elements of a color lie far apart, so their rows of the maps and their own data are read in pieces. The variant
``indices`` keeps a copy of the maps in the order of colors. Data of the elements are never copied: nobody tells a loop
when a field changes, and a copy made before every run would cost more than it saves. On a mesh whose faces are numbered
by color (the ordering ``color``) maps and data lie right by themselves, and no element has to be looked up.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from meshloom.native.algorithms import color_elements
from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import COUNT, ITEM, ElementCode, Entry, Pass, Phase
from meshloom.schedule.plan.declare import (
    ANY,
    NUMBERS,
    OFFSETS,
    Array,
    Numbers,
    Offsets,
    Place,
    Table,
    all_maps,
    elements,
    holds,
    maybe,
)
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.plan.verify import check_offsets, lost_stamps, visited
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.common.visits import visited_element
from meshloom.target import CPU, Target


@dataclass(frozen=True, eq=False)
class ColorPlan(Plan):
    """Elements color by color; no two of a color share a target."""

    color_offsets: Offsets = holds(Array(OFFSETS, ANY), "where each color begins among the positions, and the end")
    visit: Numbers | None = holds(
        Array(NUMBERS, elements), "the element at each position, where elements are not numbered by color", maybe
    )

    @property
    def n_colors(self) -> int:
        return len(self.color_offsets) - 1

    def check(self, topology: Topology) -> None:
        visit = visited(self, self.visit, topology)
        check_offsets(self, "color_offsets", self.color_offsets, topology.elements)
        for rows, targets in zip(*topology.conflicts(), strict=True):
            for color, (first, last) in enumerate(pairwise(self.color_offsets)):
                members = visit[first:last].astype(np.int64)
                lost = lost_stamps(members, rows[members], targets)
                demand(not lost.any(), self, f"two elements of color {color} share a target")


def _arity(place: Place) -> int:
    return place.rows.shape[1]


@dataclass(frozen=True, eq=False)
class IndexedColorPlan(ColorPlan):
    """With a copy of every map in the order of colors."""

    by_color: dict[int, Numbers] = holds(
        Table(Array(NUMBERS, _arity, elements), all_maps), "of each map its rows at the positions, slot by slot"
    )

    def check(self, topology: Topology) -> None:
        super().check(topology)
        visit = visited(self, self.visit, topology)
        for m, rows in topology.rows().items():
            same = np.array_equal(self.by_color[m], rows[visit].T)
            demand(same, self, f"by_color does not hold the rows of map {m} in the order of visit")


class Color(Strategy):
    name = "color"
    deterministic = True
    summary, plans = "global coloring, one launch per color", ColorPlan
    variants = ("plain", "indices")

    def plan_type(self, *, target: Target = CPU, variant: str = "plain") -> type[Plan]:
        return self.plans if variant == "plain" else IndexedColorPlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        rows, targets = topology.conflicts()
        visit = topology.visit
        visited = [np.ascontiguousarray(a[visit]) for a in rows] if topology.order is not None else rows
        colors = color_elements(visited, targets)
        counts = np.bincount(colors) if len(colors) else np.zeros(0, np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        by_color = visit[np.argsort(colors, kind="stable")].astype(topology.index_type)
        looked_up = (np.diff(by_color) < 0).any()  # else elements are numbered by color: position and element are one
        return ColorPlan(self.name, block, offsets, by_color if looked_up else None)

    def varied(self, variant: str, plan: Plan, topology: Topology) -> Plan:
        """``indices``: with the rows of every map in the order of colors."""
        assert isinstance(plan, ColorPlan)
        if variant == "plain":
            return plan
        visit = slice(topology.elements) if plan.visit is None else plan.visit
        tables = {m: np.ascontiguousarray(rows[visit].T) for m, rows in topology.rows().items()}
        return IndexedColorPlan(plan.strategy, plan.block, plan.color_offsets, plan.visit, tables)

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(plan, ColorPlan)
        code = ElementCode(spec, spec.outputs, _in_tables(plan) if isinstance(plan, IndexedColorPlan) else None)
        body = code.body(code.plain, element=visited_element(plan, plan.visit))
        colors = part_of(plan, "color_offsets")
        return [Pass("elements", COUNT, (Phase(body),), colors=colors, reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        colors = max(2, round(work.incidences / max(work.targets, 1)) + 2)
        moved = work.compulsory * colors / self.fitted(target, "reused")
        moved += self.fitted(target, "reload") * (work.reload_reads + work.reload_updates)
        return Cost(moved, work.flops, updates=work.elements * work.components, launches=colors)


def _in_tables(plan: IndexedColorPlan) -> Entry:
    """The entry of a map for the element at position ``i``: neighbouring positions read neighbouring entries."""
    return lambda number, slot: part_of(plan, "by_color", number)[slot * COUNT + ITEM if slot else ITEM]
