"""staged: a first pass writes the increments of every element to a temporary array, a second pass over the targets adds
up what belongs to each. No races, deterministic; the price is one write and some reads of the increments.
How the array is laid out: ``stage.py``."""

from __future__ import annotations

import numpy as np

from meshloom.schedule.code import ElementCode, Pass, Phase
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.gather import Columns, over_targets, split_entry, staging, unroll, usual_degree
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.stage import Stage, staged_columns
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.direct import visiting
from meshloom.schedule.verify import check_gather

ROWS = "n"  # of each slot: one for every element


class Staged(Strategy):
    name = "staged"
    summary = "increments to a temporary array, then a gather by target"

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        arrays, sizes = incidences(topology)
        return Plan(self.name, block, visiting(topology) | arrays, sizes)

    def check(self, plan: Plan, topology: Topology) -> None:
        check_gather(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        groups = [(m, staged_columns(spec, m)) for m in spec.racy_maps]
        columns = [c for _, members in groups for c in members]
        element = "visit[i]" if "visit" in plan.arrays else "i"
        code = ElementCode(spec, spec.other_outputs)
        body = (f"const ml_index e = {element};", *staging(code, columns, "e", Stage(spec, ROWS).stores))
        first = Pass(
            "elements", "n", (Phase("", "", body, independent="visit" not in plan.arrays),), reductions=spec.reductions
        )
        return [
            first,
            *(gather_pass(spec, m, members, plan.sizes[f"degree{m}"] if simt else 0) for m, members in groups),
        ]

    def temporaries(self, spec: LoopSpec) -> list[tuple[str, np.dtype, int]]:
        return [
            (f"stage{c.param}", spec.params[c.param].dtype, len(c.nodes))
            for m in spec.racy_maps
            for c in staged_columns(spec, m)
        ]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        moved = work.compulsory + 2 * work.staged + 4 * work.incidences + 8 * work.targets
        moved += work.again + work.staged_again
        return Cost(moved, work.flops, launches=2, visits=work.targets, requests=work.requested)


def incidences(topology: Topology) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Plan arrays ``offsets<m>`` and ``entries<m>`` of every racy map, and ``degree<m>``, their usual number."""
    arrays, sizes = {}, {}
    for m in topology.maps:
        arrays[f"offsets{m}"], arrays[f"entries{m}"] = topology.incidence(m)
        sizes[f"degree{m}"] = usual_degree(arrays[f"offsets{m}"])
    return arrays, sizes


def gather_pass(spec: LoopSpec, map_number: int, groups: tuple[Columns, ...], degree: int) -> Pass:
    """A pass over the targets of a map that merges the staged columns."""
    arity, offsets = spec.maps[map_number].arity, f"offsets{map_number}"
    incident = [*split_entry(f"entries{map_number}", arity), *Stage(spec, ROWS).merge(groups, arity, "e")]
    return Pass(
        f"gather{map_number}",
        f"targets{map_number}",
        (Phase("", "", over_targets(spec, groups, incident, offsets, unroll(incident, offsets, degree))),),
    )
