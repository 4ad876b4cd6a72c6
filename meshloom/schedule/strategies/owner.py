"""owner: iterate over the targets; for each incident element evaluate the part of the kernel that feeds this target.

No races, one launch, deterministic. Elements are evaluated once for every target they touch, which pays where
arithmetic is cheap compared with memory. Outputs that do not go through a racy map get a pass over the elements, after
the targets, so that everybody sees the values from before the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshloom.kernel.count import loads
from meshloom.kernel.expr import Node
from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.choice.symmetry import seen_alike
from meshloom.schedule.nest.code import ITEM, TARGET, ElementCode, Pass, Phase
from meshloom.schedule.nest.nodes import INT, Body, Expr, For, If, Let, Name, Number, let
from meshloom.schedule.plan.declare import NUMBERS, Array, Numbers, Part, Place, Table, entries, holds, racy_maps
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import GATHERS, Strategy
from meshloom.schedule.strategies.common.gather import (
    GatherPlan,
    Incidence,
    columns_of,
    incidences,
    load_accumulators,
    over_targets,
    slices,
    store_accumulators,
)
from meshloom.schedule.strategies.common.neighbours import (
    IRREGULAR,
    VALID,
    NeighbourPlan,
    SymmetricTables,
    TabledIncidence,
    other_side,
    slot_rows,
    symmetric_tables,
    tabled,
)
from meshloom.schedule.strategies.common.symmetric_gather import (
    LISTED,
    SymmetricGather,
    incident_alike,
    incident_seen,
)
from meshloom.schedule.strategies.common.visits import element_pass, visiting
from meshloom.target import CPU, Target


def _is_alike(place: Place) -> bool:
    return place.numbers[0] in place.topology.alike


@dataclass(frozen=True, eq=False)
class SidedIncidence(Incidence):
    """With the other side of each element, where a kernel treats both alike: one look leads to the neighbour."""

    others: Numbers | None = holds(
        Array(NUMBERS, entries), "of each entry the target in the element's other slot", _is_alike
    )

    @classmethod
    def of(cls, topology: Topology, m: int, found: Incidence) -> SidedIncidence:
        others = other_side(topology.maps[m][0], found.entries) if m in topology.alike else None
        return cls(found.offsets, found.entries, others)

    def check(self, plan: Plan, topology: Topology, m: int) -> None:
        super().check(plan, topology, m)
        same = self.others is None or (self.others == other_side(topology.maps[m][0], self.entries)).all()
        demand(same, plan, f"what it takes for the other side of map {m} is another target")


@dataclass(frozen=True, eq=False)
class SidedPlan(GatherPlan):
    """For a thread by itself."""

    gathers: Mapping[int, SidedIncidence] = holds(
        Table(Part(SidedIncidence), racy_maps), "what leads to the targets of each map, and their neighbours"
    )


class Owner(Strategy):
    name = "owner"
    deterministic = True
    summary = "over the targets, recomputing what each incident element gives it"
    in_order = at_targets = True
    serves = frozenset({GATHERS})
    plans, plans_together = SidedPlan, NeighbourPlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        found, visit = incidences(topology), visiting(topology)
        if not target.is_simt:
            sided = {m: SidedIncidence.of(topology, m, one) for m, one in found.items()}
            return SidedPlan(self.name, block, visit, sided)
        most_lost = target.gpu.neighbours.most_lost
        tables = {m: tabled(topology, m, one, most_lost) for m, one in found.items()}
        return NeighbourPlan(self.name, block, visit, tables)

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(plan, GatherPlan)
        targets = [one for m in spec.racy_maps for one in _target_passes(spec, m, plan, target.is_simt)]
        return targets + ([element_pass(spec, plan)] if spec.other_outputs else [])

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        repeated = work.incidences / max(work.elements, 1) + bool(spec.other_outputs)
        branches = not all(seen_alike(spec, m) for m in spec.racy_maps)
        reloaded = 1.0 if branches else self.fitted(target, "alike")
        moved = work.compulsory + 4 * work.incidences + 8 * work.targets
        moved += reloaded * self.fitted(target, "reload") * work.reload_gathers
        moved += reloaded * self.fitted(target, "maps") * work.reload_maps
        # Threads that ask for much at every visit need many registers, so fewer of them run at a time.
        crowding = max(1.0, work.gathered / max(work.incidences, 1) / self.fitted(target, "roomy_visit"))
        requests = self.fitted(target, "scattered") * crowding * work.gathered
        passed = self.fitted(target, "entry") * work.incidences if branches else 0.0
        return Cost(moved, work.flops * repeated, visits=work.targets, requests=requests, passed=passed)


def _target_passes(spec: LoopSpec, m: int, plan: GatherPlan, is_simt: bool) -> list[Pass]:
    groups, arity, found = columns_of(spec, m), spec.maps[m].arity, plan.gathers[m]
    code = ElementCode(spec, ())
    offsets = part_of(plan, "gathers", m, "offsets")
    roots = [n for g in groups for n in g.nodes]
    if (tables := symmetric_tables(found)) is not None:
        return [replace(_symmetric_pass(spec, m, plan, found), extra_items=_marked(spec, m, plan, tables))]
    regular = None
    if is_simt and isinstance(found, TabledIncidence) and found.degree:
        rows = (*slot_rows(code, m, loads(roots), plan, padded=found.padded), *code.whole_rows(roots))
        parts = slices(spec, code, groups, arity)
        body = (*rows, *(_if_there(parts) if found.padded else parts))
        loop = For("u", Number(0), Number(found.degree), body, INT, unroll=0)
        if found.padded and found.in_tables.all():  # then nobody takes the general way, which costs registers
            before, after = load_accumulators(spec, groups), store_accumulators(spec, groups)
            return [_over_all(m, (let("t", ITEM), *before, loop, *after))]
        regular = If(part_of(plan, "gathers", m, "tables", "entry")[TARGET] > IRREGULAR, (loop,))
    visited = (incident_seen if is_simt else incident_alike)(spec, m, plan)
    return [_over_all(m, over_targets(spec, groups, visited, offsets, regular))]


def _if_there(parts: Body) -> Body:
    """What an element gives, added only where there is one; loaded in any case, so that no load waits for another."""
    values = tuple(one for one in parts if isinstance(one, Let))
    return (*values, If(VALID, tuple(one for one in parts if not isinstance(one, Let))))


def _over_all(m: int, body: Body) -> Pass:
    """A pass over all targets of a map."""
    return Pass(f"targets{m}", Name(f"targets{m}"), (Phase(body),))


def _marked(spec: LoopSpec, m: int, plan: GatherPlan, tables: SymmetricTables) -> tuple[Expr, Phase] | None:
    """The targets that are not in the tables, the general way."""
    if tables.marked is None:
        return None
    offsets, marked = part_of(plan, "gathers", m, "offsets"), part_of(plan, "gathers", m, "tables", "marked")
    body = over_targets(spec, columns_of(spec, m), incident_seen(spec, m, plan), offsets, target=marked[ITEM])
    return part_of(plan, "gathers", m, "tables", "n_marked"), Phase(body)


def _symmetric_pass(spec: LoopSpec, m: int, plan: GatherPlan, found: Incidence) -> Pass:
    """Symmetric kernels on a GPU: the tables' targets, each by one thread."""
    assert isinstance(found, TabledIncidence)
    groups, gather = columns_of(spec, m), SymmetricGather.of(spec, m, plan, found)
    known: dict[Node, Expr] = {}
    gathered = (*gather.loading(known), *gather.adding(known))
    stores = If(LISTED, tuple(store_accumulators(spec, groups)))
    return _over_all(m, (let("t", ITEM), *load_accumulators(spec, groups), *gathered, stores))
