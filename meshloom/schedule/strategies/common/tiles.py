"""Tiles of targets with the elements that touch them: what ``tile`` visits, and fused loops on a CPU."""

from __future__ import annotations

import numpy as np

from meshloom.native.tiles import TileLists, read_tiles
from meshloom.records import dataclass
from meshloom.schedule.plan.declare import (
    ANY,
    NUMBERS,
    OFFSETS,
    Array,
    Numbers,
    Offsets,
    Part,
    PlanNumber,
    Table,
    entries,
    holds,
    one_more_than_targets,
    racy_maps,
    size,
)
from meshloom.schedule.plan.plan import Plan, Topology
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.plan.verify import check_incidence, check_offsets
from meshloom.schedule.strategies.common.gather import usual_degree
from meshloom.schedule.strategies.common.visits import VisitPlan


@dataclass(frozen=True, eq=False)
class Tiles:
    """Tiles of so many targets of one map, the elements that touch each, and the entries of each target among them."""

    offsets: Offsets = holds(Array(OFFSETS, one_more_than_targets), "where each target's entries begin, and the end")
    tile: int = holds(PlanNumber(1), "targets of a tile")
    tile_offsets: Offsets = holds(Array(OFFSETS, ANY), "where each tile's elements begin, and the end")
    tile_elements: Numbers = holds(Array(NUMBERS, ANY), "elements tile by tile, ascending in each")
    local: Numbers = holds(Array(NUMBERS, entries), "the entries: place of the element in the tile * arity + slot")

    @size
    def tiles(self) -> int:
        return len(self.tile_offsets) - 1

    @size
    def largest(self) -> int:
        return int(np.diff(self.tile_offsets).max(initial=0))

    @size
    def degree(self) -> int:
        return usual_degree(self.offsets)

    def check(self, plan: Plan, topology: Topology, m: int) -> None:
        indices, targets = topology.maps[m]
        check_offsets(plan, "tile_offsets", self.tile_offsets, len(self.tile_elements))
        fits = self.tile == plan.block and self.tiles == -(-targets // plan.block)
        demand(fits, plan, "the number or size of tiles does not fit the targets")
        check_offsets(plan, "offsets", self.offsets, len(self.local))
        lists = TileLists(self.tile_offsets, self.tile_elements, self.local)
        wrong, found = read_tiles(lists, self.offsets, targets, topology.elements, indices.shape[1], plan.block)
        demand(not wrong, plan, wrong)
        check_incidence(plan, topology, m, self.offsets, found)


@dataclass(frozen=True, eq=False)
class TilePlan(VisitPlan):
    """For each racy map tiles of its targets."""

    tiled: dict[int, Tiles] = holds(Table(Part(Tiles), racy_maps), "the tiles of each racy map")

    def check(self, topology: Topology) -> None:
        super().check(topology)
        for m, one in self.tiled.items():
            one.check(self, topology, m)
