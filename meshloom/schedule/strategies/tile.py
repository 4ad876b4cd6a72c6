"""tile: overlapped tiles. A block owns a range of targets, evaluates every element that touches them once into memory
of its own, sums, and writes each target once.

No races, one launch, deterministic; only elements between two tiles are evaluated twice. Other outputs get a pass over
the elements, after the targets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshloom.native.tiles import tiles
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import BLOCK, ITEM, ElementCode, Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import Name, least, let
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
from meshloom.schedule.plan.form import demand
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.verify import check_incidence, check_offsets
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.common.gather import (
    Columns,
    over_targets,
    split_entry,
    stage_of,
    staging,
    unroll,
    usual_degree,
)
from meshloom.schedule.strategies.common.stage import Stage, staged_columns
from meshloom.schedule.strategies.direct import VisitPlan, element_pass, visiting
from meshloom.target import CPU, Target


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
        arity, elements, starts, local = indices.shape[1], self.tile_elements, self.tile_offsets, self.local
        check_offsets(plan, "tile_offsets", starts, len(elements))
        fits = self.tile == plan.block and self.tiles == -(-targets // plan.block)
        demand(fits, plan, "the number or size of tiles does not fit the targets")
        inside = not len(elements) or (elements.min() >= 0 and elements.max() < topology.elements)
        demand(inside, plan, "a tile holds an element out of bounds")
        lengths = np.diff(starts)
        tile_of_element = np.repeat(np.arange(self.tiles), lengths)
        rising = (np.diff(elements.astype(np.int64)) > 0) | (np.diff(tile_of_element) > 0)
        demand(rising.all(), plan, "a tile does not list its elements once, ascending")
        check_offsets(plan, "offsets", self.offsets, len(local))
        tile_of_entry = np.repeat(np.arange(targets) // plan.block, np.diff(self.offsets))
        local_numbers = local.astype(np.int64)
        inside = ((local_numbers >= 0) & (local_numbers // arity < lengths[tile_of_entry])).all()
        demand(inside, plan, "a local number is out of bounds")
        touching = elements[starts[tile_of_entry] + local_numbers // arity].astype(np.int64)
        found = touching * arity + local_numbers % arity
        check_incidence(plan, topology, m, self.offsets, found)


@dataclass(frozen=True, eq=False)
class TilePlan(VisitPlan):
    """For each racy map tiles of its targets."""

    tiled: dict[int, Tiles] = holds(Table(Part(Tiles), racy_maps), "the tiles of each racy map")

    def check(self, topology: Topology) -> None:
        super().check(topology)
        for m, one in self.tiled.items():
            one.check(self, topology, m)


class Tile(Strategy):
    name = "tile"
    plan_has_blocks = True
    summary = "a block owns targets and evaluates every element that touches them once"
    in_order = True
    plans = TilePlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        found = {}
        for m, (indices, _) in topology.maps.items():
            offsets, entries = topology.incidence(m)
            made = tiles(offsets, entries, indices.shape[1], topology.elements, block)
            found[m] = Tiles(offsets, block, made.offsets, made.elements, made.local)
        return TilePlan(self.name, block, visiting(topology), found)

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(plan, TilePlan)
        targets = [_tile_pass(spec, m, staged_columns(spec, m), plan, target.together) for m in spec.racy_maps]
        return targets + ([element_pass(spec, plan)] if spec.other_outputs else [])

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        again = work.tiles + bool(spec.other_outputs)
        # ``tiles`` is for larger blocks; smaller ones share more elements with others.
        elements = self.fitted(target, "shared") * target.numbers.block(self.name) * work.tiles
        shared = elements * work.staged / max(work.targets, 1)
        waiting = self.fitted(target, "waiting")  # at the barrier nobody asks for anything
        moved = work.compulsory + 8 * work.incidences + 8 * work.targets
        moved += again * work.gathered_again + work.mapped_again
        return Cost(moved, work.flops * again, shared=shared, visits=work.targets,
                    requests=waiting * again * work.requested)  # fmt: skip


def _tile_pass(spec: LoopSpec, m: int, groups: tuple[Columns, ...], plan: TilePlan, together: bool) -> Pass:
    def named(word: str) -> Name:
        return part_of(plan, "tiled", m, word)

    degree, offsets, first = plan.tiled[m].degree if together else 0, named("offsets"), named("tile_offsets")
    arity, stage = spec.maps[m].arity, Stage(spec, named("largest"), apart=together)
    own = (let("e", named("tile_elements")[ITEM]), let("l", ITEM - first[BLOCK]))
    body = (*own, *staging(ElementCode(spec, ()), groups, Name("l"), stage.stores))
    evaluate = Phase(body, first[BLOCK], first[BLOCK + 1], independent=True)
    incident = (*split_entry(named("local"), arity, "l"), *stage.merge(groups, arity, Name("l")))
    gather = Phase(
        over_targets(spec, groups, incident, offsets, unroll(incident, offsets, degree)),
        BLOCK * named("tile"),
        least((BLOCK + 1) * named("tile"), Name(f"targets{m}")),
    )
    scratch = tuple(
        Scratch(spec.params[g.param].ctype, stage_of(g).name, named("largest") * len(g.nodes)) for g in groups
    )
    return Pass(named("tiles").name, named("tiles"), (evaluate, gather), blocked=True, scratch=scratch)
