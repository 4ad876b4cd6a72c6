"""owner: iterate over the targets; for each incident element evaluate the part of the kernel that feeds this target.

No races, one launch, deterministic. Elements are evaluated once for every target they touch, which pays where
arithmetic is cheap compared with memory. Outputs that do not go through a racy map get a pass over the elements, after
the targets, so that everybody sees the values from before the loop.
"""

from __future__ import annotations

from meshloom.kernel.expr import Node
from meshloom.schedule.code import ElementCode, Pass, Phase
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.gather import Columns, accumulate, columns_of, over_targets, split_entry
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.direct import element_pass, visiting
from meshloom.schedule.strategies.staged import incidences


class Owner(Strategy):
    name = "owner"
    summary = "over the targets, recomputing what each incident element gives it"

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        arrays, sizes = incidences(topology)
        return Plan(self.name, block, visiting(topology) | arrays, sizes)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        targets = [
            _target_pass(spec, m, columns_of(spec, m), plan.sizes[f"degree{m}"] if simt else 0) for m in spec.racy_maps
        ]
        return targets + ([element_pass(spec, plan)] if spec.other_outputs else [])

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        repeated = work.incidences / max(work.elements, 1) + bool(spec.other_outputs)
        return Cost(work.compulsory + 4 * work.incidences + 8 * work.targets, work.flops * repeated)


def _target_pass(spec: LoopSpec, map_number: int, groups: tuple[Columns, ...], degree: int) -> Pass:
    arity = spec.maps[map_number].arity
    code = ElementCode(spec, ())
    names: dict[tuple[int, int], str] = {}

    def evaluate(slot: int | None) -> list[str]:
        """The slice of the kernel that a slot needs (None: all columns)."""
        wanted = [(g.param, k, g.nodes[k]) for g in groups for k in _needed(g, slot)]
        roots: list[Node] = [node for _, _, node in wanted]
        text, found = code.values(roots)
        names.update({(param, k): name for (param, k, _), name in zip(wanted, found, strict=True)})
        return [*code.rows(roots), *text]

    incident = [
        *split_entry(f"entries{map_number}", arity),
        *accumulate(spec, groups, arity, lambda p, k: names[p, k], evaluate),
    ]
    return Pass(
        f"targets{map_number}",
        f"targets{map_number}",
        (Phase("", "", over_targets(spec, groups, incident, f"offsets{map_number}", degree)),),
    )


def _needed(group: Columns, slot: int | None) -> list[int]:
    slots = group.use if slot is None else (group.use[slot],)
    return sorted({used[0] for comps in slots for used in comps if used})
