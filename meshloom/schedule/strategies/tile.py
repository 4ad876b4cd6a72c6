"""tile: overlapped tiles. A block owns a range of targets, evaluates every element that touches them once into memory
of its own, sums, and writes each target once.

No races, one launch, deterministic; only elements between two tiles are evaluated twice. Other outputs get a pass over
the elements, after the targets.
"""

from __future__ import annotations

from meshloom.native.tiles import tiles
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import BLOCK, ITEM, ElementCode, Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import Name, least, let
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import CHUNKS, Strategy
from meshloom.schedule.strategies.common.gather import (
    Columns,
    over_targets,
    split_entry,
    stage_of,
    staging,
    unroll,
)
from meshloom.schedule.strategies.common.stage import Stage, staged_columns
from meshloom.schedule.strategies.common.tiles import TilePlan, Tiles
from meshloom.schedule.strategies.common.visits import element_pass, visiting
from meshloom.target import CPU, Target


class Tile(Strategy):
    name = "tile"
    plan_has_blocks = True
    deterministic = True
    summary = "a block owns targets and evaluates every element that touches them once"
    in_order = evaluates_first = True
    serves = frozenset({CHUNKS})
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
        targets = [_tile_pass(spec, m, staged_columns(spec, m), plan, target.is_simt) for m in spec.racy_maps]
        return targets + ([element_pass(spec, plan)] if spec.other_outputs else [])

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        evaluations = work.tiles + bool(spec.other_outputs)
        # ``tiles`` is for larger blocks; smaller ones share more elements with others.
        elements = self.fitted(target, "shared") * target.numbers.block(self.name) * work.tiles
        shared = elements * work.staged / max(work.targets, 1)
        waiting = self.fitted(target, "waiting")  # at the barrier nobody asks for anything, nor computes
        moved = work.compulsory + 8 * work.incidences + 8 * work.targets
        moved += self.fitted(target, "reload") * (evaluations * work.reload_gathers + work.reload_maps)
        return Cost(moved, waiting * evaluations * work.flops, shared=shared, visits=work.targets,
                    requests=waiting * evaluations * work.requested, passed=work.staged)  # fmt: skip


def _tile_pass(spec: LoopSpec, m: int, groups: tuple[Columns, ...], plan: TilePlan, is_simt: bool) -> Pass:
    def named(word: str) -> Name:
        return part_of(plan, "tiled", m, word)

    degree, offsets, first = plan.tiled[m].degree if is_simt else 0, named("offsets"), named("tile_offsets")
    arity, stage = spec.maps[m].arity, Stage(spec, named("largest"), apart=is_simt)
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
