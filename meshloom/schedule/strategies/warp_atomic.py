"""warp_atomic: as ``atomic``, but neighbouring threads that hit the same target join their increments before.

The plan looks at which slots of consecutive elements lead to the same target (two hexahedra side by side share four
nodes) and pairs them: slot ``taker`` of an element takes what slot ``giver`` of the next one offers, if the two lead to
the same target, which is compared when the loop runs. Nothing knows how the mesh was made; only the order in which
elements are visited decides how often it pays. On a CPU there are no warps, and it is ``atomic``.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshloom.schedule.chains import pairs_beside
from meshloom.schedule.code import ElementCode, Pass, Phase, merged, row_name
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.declare import Pair, Pairs, Table, holds, racy_maps
from meshloom.schedule.form import demand
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.atomic import Atomic
from meshloom.schedule.strategies.direct import VisitPlan, visiting
from meshloom.target import CPU, Target


@dataclass(frozen=True, eq=False)
class WarpPlan(VisitPlan):
    """For each racy map slots that take from the next element what it has for the same target."""

    takes: dict[int, tuple[Pair, ...]] = holds(Table(Pairs(), racy_maps), "(taker, giver) of each racy map")

    def check(self, topology: Topology) -> None:
        """Slots that are paired exist, and none is in two pairs: nobody takes what has been given away."""
        super().check(topology)
        for m, pairs in self.takes.items():
            slots, arity = [slot for pair in pairs for slot in pair], topology.maps[m][0].shape[1]
            fits = len(set(slots)) == len(slots) and max(slots, default=0) < arity
            demand(fits, self, f"a slot of map {m} is in two pairs, or does not exist")


class WarpAtomic(Atomic):
    name = "warp_atomic"
    summary = "hardware atomics, after neighbouring threads have joined what goes to the same target"

    plans_together = WarpPlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        if not target.together:
            return super().plan(topology, block)
        rows = {m: indices[topology.visit] for m, (indices, _) in topology.maps.items()}
        return WarpPlan(self.name, block, visiting(topology), {m: pairs_beside(one) for m, one in rows.items()})

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        if not target.together:
            return super().passes(spec, plan, target=target)
        assert isinstance(plan, WarpPlan)
        code = ElementCode(spec, spec.outputs)
        roots = [o.value for o in code.outputs]
        text, names = code.values(roots)
        joined, names = _joined(spec, plan, names)
        body = (f"const ml_index e = {plan.element};", *code.rows(roots, code.outputs), *text, *joined,
                "if (inside) {", *_sinks(code, plan, names), "}")  # fmt: skip
        return [Pass("elements", "n", (Phase("", "", body, together=True),), reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        moved = work.compulsory + work.again + work.added_again
        added = (1 - work.beside) * work.elements * work.components
        return Cost(moved, work.flops, atomics=added, crowded=added * work.crowded, requests=work.requested)


def _pairs(plan: WarpPlan, m: int | None) -> dict[int, int]:
    """Taker slot -> giver slot of a map."""
    return dict(plan.takes.get(m, ())) if m is not None else {}


def _joined(spec: LoopSpec, plan: WarpPlan, names: list[str]) -> tuple[list[str], list[str]]:
    """Statements that let takers take; the names of the values after that, one for each output."""
    named = {(o.param, o.slot, o.comp): name for o, name in zip(spec.outputs, names, strict=True)}
    lines = []
    for m in spec.racy_maps:
        changed = {(param, slot, comp) for param, slot, comp in named if spec.params[param].map == m}
        for taker, giver in _pairs(plan, m).items():
            if not any((param, giver, comp) in changed for param, slot, comp in changed if slot == taker):
                continue
            mine, other = row_name(m, taker), row_name(m, giver)
            lines += [  # everybody asks, also those who will not use the answer
                f"const ml_index next{m}_{taker} = ml_from({other}, own_lane + 1);",
                f"const ml_index before{m}_{giver} = ml_from({mine}, own_lane - 1);",
                f"const bool take{m}_{taker} = followed && next{m}_{taker} == {mine};",
                f"const bool given{m}_{giver} = own_lane > 0 && before{m}_{giver} == {other};",
            ]
    for (param, slot, comp), name in list(named.items()):
        described = spec.params[param]
        pairs = _pairs(plan, described.map) if described.racy else {}
        offered = named.get((param, pairs[slot], comp)) if slot in pairs else None
        if offered is None:
            continue
        new = f"j{param}_{slot}_{comp}"
        lines.append(f"const {described.ctype} {new}_next = ml_from(({described.ctype}){offered}, own_lane + 1);")
        both = merged(described, name, f"{new}_next")
        lines.append(f"const {described.ctype} {new} = take{described.map}_{slot} ? {both} : {name};")
        named[param, slot, comp] = new
    return lines, [named[o.param, o.slot, o.comp] for o in spec.outputs]


def _sinks(code: ElementCode, plan: WarpPlan, names: list[str]) -> list[str]:
    """Atomics for everything that was not given away."""
    lines = []
    taken_from = {(m, giver): taker for m in code.spec.racy_maps for taker, giver in _pairs(plan, m).items()}
    produced = {(o.param, o.slot, o.comp) for o in code.outputs}
    for o, name in zip(code.outputs, names, strict=True):
        m = code.spec.params[o.param].map
        taker = taken_from.get((m, o.slot)) if m is not None and code.spec.params[o.param].racy else None
        sunk = code.atomic(o, name)
        gives = taker is not None and (o.param, taker, o.comp) in produced
        lines += [f"if (!given{m}_{o.slot}) {{", *sunk, "}"] if gives else sunk
    return lines
