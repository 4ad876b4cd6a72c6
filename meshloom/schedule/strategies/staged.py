"""staged: a first pass writes the increments of every element to a temporary array, a second pass over the targets adds
up what belongs to each. No races, deterministic; the price is one write and some reads of the increments.
How the array is laid out: ``stage.py``."""

from __future__ import annotations

from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import COUNT, ELEMENT, ElementCode, Pass, Phase
from meshloom.schedule.nest.nodes import Name, let
from meshloom.schedule.plan.emitter import Temporary
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import ASSIGNED, Strategy
from meshloom.schedule.strategies.common.gather import (
    Columns,
    GatherPlan,
    incidences,
    over_targets,
    split_entry,
    stage_of,
    staging,
    unroll,
)
from meshloom.schedule.strategies.common.stage import Stage, staged_columns
from meshloom.schedule.strategies.common.visits import visiting
from meshloom.target import CPU, Target

ROWS = COUNT  # of each slot: one for every element


class Staged(Strategy):
    name = "staged"
    deterministic = True
    summary = "increments to a temporary array, then a gather by target"
    in_order = evaluates_first = True
    serves = frozenset({ASSIGNED})
    plans = GatherPlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        return GatherPlan(self.name, block, visiting(topology), incidences(topology))

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(plan, GatherPlan)
        groups = [(m, staged_columns(spec, m)) for m in spec.racy_maps]
        columns = [c for _, members in groups for c in members]
        code = ElementCode(spec, spec.other_outputs)
        body = (let("e", plan.element), *staging(code, columns, ELEMENT, Stage(spec, ROWS).stores))
        phase = Phase(body, independent=plan.visit is None)
        first = Pass("elements", COUNT, (phase,), reductions=spec.reductions)
        return [first, *(gather_pass(spec, m, members, plan, target.is_simt) for m, members in groups)]

    def temporaries(self, spec: LoopSpec, plan: Plan) -> list[Temporary]:
        return [
            (stage_of(c).name, spec.params[c.param].dtype, ROWS * len(c.nodes))
            for m in spec.racy_maps
            for c in staged_columns(spec, m)
        ]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        moved = work.compulsory + 2 * work.staged + 4 * work.incidences + 8 * work.targets
        moved += work.reload_reads + self.fitted(target, "reload") * work.reload_stage
        requests = self.fitted(target, "scattered") * work.requested
        return Cost(moved, work.flops, launches=2, visits=work.targets, requests=requests, passed=work.staged)


def gather_pass(spec: LoopSpec, map_number: int, groups: tuple[Columns, ...], plan: GatherPlan, is_simt: bool) -> Pass:
    """A pass over the targets of a map that merges the staged columns."""
    arity, degree = spec.maps[map_number].arity, plan.gathers[map_number].degree if is_simt else 0
    offsets, entries = (part_of(plan, "gathers", map_number, word) for word in ("offsets", "entries"))
    incident = (*split_entry(entries, arity), *Stage(spec, ROWS).merge(groups, arity, ELEMENT))
    phase = Phase(over_targets(spec, groups, incident, offsets, unroll(incident, offsets, degree)))
    return Pass(f"gather{map_number}", Name(f"targets{map_number}"), (phase,))
