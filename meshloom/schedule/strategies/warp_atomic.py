"""warp_atomic: as ``atomic``, but neighbouring threads that hit the same target join their increments before.

The plan looks at which slots of consecutive elements lead to the same target (two hexahedra side by side share four
nodes) and pairs them: slot ``taker`` of an element takes what slot ``giver`` of the next one offers, if the two lead to
the same target, which is compared when the loop runs. Nothing knows how the mesh was made; only the order in which
elements are visited decides how often it pays. On a CPU there are no warps, and it is ``atomic``.
"""

from __future__ import annotations

from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import COUNT, FOLLOWED, INSIDE, LANE, ElementCode, Pass, Phase, merged, row_of
from meshloom.schedule.nest.nodes import Body, Cast, Expr, If, Name, Select, Shuffle, Statement, let, no
from meshloom.schedule.plan.declare import Pair, Pairs, Table, holds, racy_maps
from meshloom.schedule.plan.plan import Plan, Topology
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.common.atomics import Atomics, Taking, exchanged
from meshloom.schedule.strategies.common.strip_decomposition import pairs_beside
from meshloom.schedule.strategies.common.visits import VisitPlan, visiting
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


class WarpAtomic(Atomics):
    name = "warp_atomic"
    summary = "hardware atomics, after neighbouring threads have joined what goes to the same target"

    plans_together = WarpPlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        if not target.is_simt:
            return super().plan(topology, block)
        rows = {m: indices[topology.visit] for m, (indices, _) in topology.maps.items()}
        pairs = {m: pairs_beside(one, target.gpu.strips) for m, one in rows.items()}
        return WarpPlan(self.name, block, visiting(topology), pairs)

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        if not target.is_simt:
            return super().passes(spec, plan, target=target)
        assert isinstance(plan, WarpPlan)
        code = ElementCode(spec, spec.outputs)
        roots = [o.value for o in code.outputs]
        computed, values = code.values(roots)
        joined, values = _joined(spec, plan, values)
        sinks = If(INSIDE, _sinks(code, plan, values))
        body = (let("e", plan.element), *code.rows(roots, code.outputs), *computed, *joined, sinks)
        return [Pass("elements", COUNT, (Phase(body, exchanges=True),), reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        moved = work.compulsory + work.reload_reads + work.reload_updates
        added = (1 - work.target_reuse) * work.elements * work.components
        return Cost(moved, work.flops, atomics=added, contended=added * work.contention, requests=work.requested)


def _pairs(plan: WarpPlan, m: int | None) -> dict[int, int]:
    """Taker slot -> giver slot of a map."""
    return dict(plan.takes.get(m, ())) if m is not None else {}


def _joined(spec: LoopSpec, plan: WarpPlan, values: list[Expr]) -> tuple[list[Statement], list[Expr]]:
    """Statements that let takers take; the values after that, one for each output."""
    valued = {(o.param, o.slot, o.comp): value for o, value in zip(spec.outputs, values, strict=True)}
    made: list[Statement] = []
    for m in spec.racy_maps:
        changed = {(param, slot, comp) for param, slot, comp in valued if spec.params[param].map == m}
        for taker, giver in _pairs(plan, m).items():
            if not any((param, giver, comp) in changed for param, slot, comp in changed if slot == taker):
                continue
            takes = Taking(row_of(m, taker), Name(f"next{m}_{taker}"), _takes(m, taker), LANE + 1, (FOLLOWED,))
            gives = Taking(row_of(m, giver), Name(f"before{m}_{giver}"), _given(m, giver), LANE - 1, (LANE > 0,))
            made += exchanged(takes, gives)
    for (param, slot, comp), value in list(valued.items()):
        described = spec.params[param]
        pairs = _pairs(plan, described.map) if described.racy else {}
        offered = valued.get((param, pairs[slot], comp)) if slot in pairs else None
        if offered is None:
            continue
        joined, theirs = Name(f"j{param}_{slot}_{comp}"), Name(f"j{param}_{slot}_{comp}_next")
        both = Select(_takes(described.map, slot), merged(described, value, theirs), value)
        made += [
            let(theirs.name, Shuffle(Cast(described.ctype, offered), LANE + 1), described.ctype),
            let(joined.name, both, described.ctype),
        ]
        valued[param, slot, comp] = joined
    return made, [valued[o.param, o.slot, o.comp] for o in spec.outputs]


def _takes(m: int | None, slot: int) -> Name:
    """Does a slot take what the next element has?"""
    return Name(f"take{m}_{slot}")


def _given(m: int | None, slot: int) -> Name:
    """Has the element before taken what a slot has?"""
    return Name(f"given{m}_{slot}")


def _sinks(code: ElementCode, plan: WarpPlan, values: list[Expr]) -> Body:
    """Atomics for everything that was not given away."""
    made: list[Statement] = []
    taken_from = {(m, giver): taker for m in code.spec.racy_maps for taker, giver in _pairs(plan, m).items()}
    produced = {(o.param, o.slot, o.comp) for o in code.outputs}
    for o, value in zip(code.outputs, values, strict=True):
        m = code.spec.params[o.param].map
        taker = taken_from.get((m, o.slot)) if m is not None and code.spec.params[o.param].racy else None
        additions = code.atomic(o, value)
        gives = taker is not None and (o.param, taker, o.comp) in produced
        made += [If(no(_given(m, o.slot)), tuple(additions))] if gives else additions
    return tuple(made)
