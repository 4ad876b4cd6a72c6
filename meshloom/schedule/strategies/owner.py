"""owner: iterate over the targets; for each incident element evaluate the part of the kernel that feeds this target.

No races, one launch, deterministic. Elements are evaluated once for every target they touch, which pays where
arithmetic is cheap compared with memory. Outputs that do not go through a racy map get a pass over the elements, after
the targets, so that everybody sees the values from before the loop.
"""

from __future__ import annotations

from dataclasses import replace

from meshloom.kernel.count import loads
from meshloom.schedule.code import ElementCode, Pass, Phase
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.gather import (
    Columns,
    accumulate,
    columns_of,
    load_accumulators,
    over_targets,
    split_entry,
    store_accumulators,
)
from meshloom.schedule.neighbours import neighbour_tables, slot_rows
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.roles import RoleGather
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.direct import element_pass, visiting
from meshloom.schedule.strategies.staged import incidences
from meshloom.schedule.verify import check_owner

ROOMY_VISIT = 80  # bytes that a thread may ask for at a visit and leave room for others


class Owner(Strategy):
    name = "owner"
    summary = "over the targets, recomputing what each incident element gives it"
    gpu_block = 64

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        arrays, sizes = incidences(topology)
        if simt:
            for m in topology.maps:
                offsets, entries, degree = arrays[f"offsets{m}"], arrays[f"entries{m}"], sizes[f"degree{m}"]
                arrays |= neighbour_tables(topology, m, offsets, entries, degree)
                sizes |= {f"n_marked{m}": len(arrays[f"marked{m}"])} if f"marked{m}" in arrays else {}
        return Plan(self.name, block, visiting(topology) | arrays, sizes)

    def check(self, plan: Plan, topology: Topology) -> None:
        check_owner(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        targets = [one for m in spec.racy_maps for one in _target_passes(spec, m, plan, simt)]
        return targets + ([element_pass(spec, plan)] if spec.other_outputs else [])

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        repeated = work.incidences / max(work.elements, 1) + bool(spec.other_outputs)
        moved = work.compulsory + 4 * work.incidences + 8 * work.targets + work.gathered_again
        # Threads that ask for much at every visit need many registers, so fewer of them run at a time.
        crowding = max(1.0, work.gathered / max(work.incidences, 1) / ROOMY_VISIT)
        return Cost(moved, work.flops * repeated, visits=work.targets, requests=crowding * work.gathered)


def _target_passes(spec: LoopSpec, m: int, plan: Plan, simt: bool) -> list[Pass]:
    groups, arity = columns_of(spec, m), spec.maps[m].arity
    code, degree = ElementCode(spec, ()), plan.sizes[f"degree{m}"] if simt else 0
    roots = [n for g in groups for n in g.nodes]
    if f"near{m}" in plan.arrays:
        marked = over_targets(spec, groups, incident(spec, m), f"offsets{m}", target=f"marked{m}[i]")
        ahead = (f"n_marked{m}", Phase("", "", marked)) if f"marked{m}" in plan.arrays else None
        return [replace(_role_pass(spec, m, plan), ahead=ahead)]
    regular: list[str] = []
    if degree:
        body = [*slot_rows(code, m, loads(roots)), *code.whole_rows(roots), *_slices(spec, code, groups, arity)]
        loop = ["#pragma unroll", f"for (int u = 0; u < {degree}; ++u) {{", *body, "}"]
        regular = [f"if (entry{m}[t] >= 0) {{", *loop, "}"]
    phase = Phase("", "", over_targets(spec, groups, incident(spec, m), f"offsets{m}", regular))
    return [Pass(f"targets{m}", f"targets{m}", (phase,))]


def incident(spec: LoopSpec, m: int) -> list[str]:
    """Statements that merge the entry at ``x`` of map ``m``'s incidence into the accumulators."""
    groups, arity, code = columns_of(spec, m), spec.maps[m].arity, ElementCode(spec, ())
    rows = code.rows([n for g in groups for n in g.nodes])
    return [*split_entry(f"entries{m}", arity), *rows, *_slices(spec, code, groups, arity)]


def _role_pass(spec: LoopSpec, m: int, plan: Plan) -> Pass:
    """Symmetric kernels on a GPU: the tables' targets, each by one thread."""
    groups, gather = columns_of(spec, m), RoleGather.of(spec, m, plan)
    stores = ["if (listed) {", *store_accumulators(spec, groups), "}"]
    body = ("const ml_index t = i;", *load_accumulators(spec, groups), *gather.lines(), *stores)
    return Pass(f"targets{m}", f"targets{m}", (Phase("", "", body),))


def _slices(spec: LoopSpec, code: ElementCode, groups: tuple[Columns, ...], arity: int) -> list[str]:
    """For each slot the slice of the kernel that feeds it, merged into the accumulators."""
    names: dict[tuple[int, int], str] = {}

    def evaluate(slot: int | None) -> list[str]:
        wanted = [(g.param, k, g.nodes[k]) for g in groups for k in _needed(g, slot)]
        text, found = code.values([node for _, _, node in wanted])
        names.update({(param, k): name for (param, k, _), name in zip(wanted, found, strict=True)})
        return text

    return accumulate(spec, groups, arity, lambda p, k: names[p, k], evaluate)


def _needed(group: Columns, slot: int | None) -> list[int]:
    slots = group.use if slot is None else (group.use[slot],)
    return sorted({used[0] for comps in slots for used in comps if used})
