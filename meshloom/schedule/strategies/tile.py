"""tile: overlapped tiles. A block owns a range of targets, evaluates every element that touches them once into memory
of its own, sums, and writes each target once.

No races, one launch, deterministic; only elements between two tiles are evaluated twice. Other outputs get a pass over
the elements, after the targets.
"""

from __future__ import annotations

import numpy as np

from meshloom.native.tiles import tiles
from meshloom.schedule.code import ElementCode, Pass, Phase, Scratch
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.gather import (
    Columns,
    over_targets,
    split_entry,
    staging,
    unroll,
    usual_degree,
)
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.stage import Stage, staged_columns
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.direct import element_pass, visiting
from meshloom.schedule.verify import check_tile


class Tile(Strategy):
    name = "tile"
    plan_has_blocks = True
    summary = "a block owns targets and evaluates every element that touches them once"
    cpu_block = 8192
    gpu_block = 256

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        arrays = dict(visiting(topology))
        sizes: dict[str, int] = {}
        for m, (indices, _) in topology.maps.items():
            offsets, entries = topology.incidence(m)
            made = tiles(offsets, entries, indices.shape[1], topology.elements, block)
            arrays |= {
                f"offsets{m}": offsets,
                f"tile_offsets{m}": made.offsets,
                f"tile_elements{m}": made.elements,
                f"local{m}": made.local,
            }
            sizes |= {
                f"tiles{m}": len(made.offsets) - 1,
                f"largest{m}": int(np.diff(made.offsets).max(initial=0)),
                f"tile{m}": block,
                f"degree{m}": usual_degree(offsets),
            }
        return Plan(self.name, block, arrays, sizes)

    def check(self, plan: Plan, topology: Topology) -> None:
        check_tile(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        degrees = {m: plan.sizes[f"degree{m}"] if simt else 0 for m in spec.racy_maps}
        targets = [_tile_pass(spec, m, staged_columns(spec, m), degrees[m], simt) for m in spec.racy_maps]
        return targets + ([element_pass(spec, plan)] if spec.other_outputs else [])

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        again = work.tiles + bool(spec.other_outputs)
        # ``tiles`` is for larger blocks; smaller ones share more elements with others.
        shared = 1.25 * self.gpu_block * work.tiles * work.staged / max(work.targets, 1)
        waiting = 1.5  # at the barrier nobody asks for anything
        moved = work.compulsory + 8 * work.incidences + 8 * work.targets
        moved += again * work.gathered_again + work.mapped_again
        return Cost(moved, work.flops * again, shared=shared, visits=work.targets,
                    requests=waiting * again * work.requested)  # fmt: skip


def _tile_pass(spec: LoopSpec, m: int, groups: tuple[Columns, ...], degree: int, simt: bool) -> Pass:
    arity, stage = spec.maps[m].arity, Stage(spec, f"largest{m}", apart=simt)
    own = (f"const ml_index e = tile_elements{m}[i];", f"const ml_index l = i - tile_offsets{m}[b];")
    body = (*own, *staging(ElementCode(spec, ()), groups, "l", stage.stores))
    evaluate = Phase(f"tile_offsets{m}[b]", f"tile_offsets{m}[b + 1]", body, independent=True)
    incident = [*split_entry(f"local{m}", arity, "l"), *stage.merge(groups, arity, "l")]
    gather = Phase(
        f"b * tile{m}",
        f"ml_min((b + 1) * tile{m}, targets{m})",
        over_targets(spec, groups, incident, f"offsets{m}", unroll(incident, f"offsets{m}", degree)),
    )
    scratch = tuple(
        Scratch(spec.params[g.param].ctype, f"stage{g.param}", f"largest{m} * {len(g.nodes)}") for g in groups
    )
    return Pass(f"tiles{m}", f"tiles{m}", (evaluate, gather), blocked=True, scratch=scratch)
