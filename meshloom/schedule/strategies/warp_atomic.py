"""warp_atomic: as ``atomic``, but neighbouring threads that hit the same target join their increments before.

The plan looks at which slots of consecutive elements lead to the same target (two hexahedra side by side share four
nodes) and pairs them: slot ``taker`` of an element takes what slot ``giver`` of the next one offers, if the two lead to
the same target, which is compared when the loop runs. Nothing knows how the mesh was made; only the order in which
elements are visited decides how often it pays. On a CPU there are no warps, and it is ``atomic``.
"""

from __future__ import annotations

from meshloom.schedule.chains import pairs_beside
from meshloom.schedule.code import ElementCode, Pass, Phase, merged, row_name
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.atomic import Atomic
from meshloom.schedule.strategies.direct import visiting
from meshloom.schedule.verify import check_pairs


class WarpAtomic(Atomic):
    name = "warp_atomic"
    summary = "hardware atomics, after neighbouring threads have joined what goes to the same target"

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        sizes: dict[str, int] = {}
        for m, (indices, _) in topology.maps.items() if simt else ():
            for taker, giver in pairs_beside(indices[topology.visit]):
                sizes[f"takes{m}_{taker}"] = giver
        return Plan(self.name, block, visiting(topology), sizes)

    def check(self, plan: Plan, topology: Topology) -> None:
        check_pairs(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        if not simt:
            return super().passes(spec, plan, simt=False)
        code = ElementCode(spec, spec.outputs)
        roots = [o.value for o in code.outputs]
        text, names = code.values(roots)
        element = "visit[i]" if "visit" in plan.arrays else "i"
        joined, names = _joined(spec, plan, names)
        body = (f"const ml_index e = {element};", *code.rows(roots, code.outputs), *text, *joined,
                "if (inside) {", *_sinks(code, plan, names), "}")  # fmt: skip
        return [Pass("elements", "n", (Phase("", "", body, together=True),), reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        moved = work.compulsory + work.again + work.added_again
        added = (1 - work.beside) * work.elements * work.components
        return Cost(moved, work.flops, atomics=added, crowded=added * work.crowded, requests=work.requested)


def _pairs(plan: Plan, m: int | None) -> dict[int, int]:
    """Taker slot -> giver slot of a map."""
    start = f"takes{m}_"
    return {int(name.removeprefix(start)): giver for name, giver in plan.sizes.items() if name.startswith(start)}


def _joined(spec: LoopSpec, plan: Plan, names: list[str]) -> tuple[list[str], list[str]]:
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


def _sinks(code: ElementCode, plan: Plan, names: list[str]) -> list[str]:
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
