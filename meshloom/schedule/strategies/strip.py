"""strip: a thread does a strip of elements one after the other; what it has found for a target that the next element
shares waits in a register, what neighbouring threads have for one target is joined, and only the rest is atomic.

The plan (``strip_decomposition.py``) finds strips and slots that meet often, and nothing in it has to be right: targets
are compared when the loop runs. Three quarters of the updates of hexahedra at their nodes disappear. On a CPU it is
``atomic``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np

from meshloom.kernel.model import Output
from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import (
    AT,
    FOLLOWED,
    INSIDE,
    LANE,
    ElementCode,
    Pass,
    Phase,
    accumulated,
    merged,
    row_of,
)
from meshloom.schedule.nest.nodes import (
    BOOL,
    INDEX,
    Atomic,
    Body,
    Cast,
    Expr,
    For,
    If,
    Let,
    Name,
    Number,
    Select,
    Shuffle,
    Statement,
    Store,
    Thread,
    all_of,
    least,
    let,
    no,
    variable,
)
from meshloom.schedule.plan.declare import (
    ANY,
    NUMBERS,
    OFFSETS,
    Array,
    Numbers,
    Offsets,
    Pair,
    Part,
    Table,
    elements,
    holds,
    racy_maps,
    size,
)
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.plan.verify import check_offsets, check_permutation
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.common.atomics import Atomics, Taking, exchanged
from meshloom.schedule.strategies.common.strip_decomposition import Meetings, best_strips
from meshloom.target import CPU, Target

Address = tuple[int, int, int]  # parameter, slot, component


@dataclass(frozen=True, eq=False)
class StripPlan(Plan):
    """``strips[steps[k] + s]`` is the element that strip s does in step k; longer strips come first."""

    strips: Numbers = holds(Array(NUMBERS, elements), "elements step by step, in a step strip by strip")
    steps: Offsets = holds(Array(OFFSETS, ANY), "where each step begins among them, and the end")
    meetings: dict[int, Meetings] = holds(Table(Part(Meetings), racy_maps), "slots of each racy map that meet")

    @size
    def n_strips(self) -> int:
        return int(self.steps[1]) if len(self.steps) > 1 else 0

    @size
    def n_steps(self) -> int:
        return len(self.steps) - 1

    def check(self, topology: Topology) -> None:
        """Every element is in one strip, and no thread takes what another one has kept or given away."""
        check_permutation(self, "strips", self.strips, topology.elements)
        check_offsets(self, "steps", self.steps, topology.elements)
        demand((np.diff(np.diff(self.steps)) <= 0).all(), self, "a strip goes on after its end")
        for m, found in self.meetings.items():
            self._check_meetings(m, found, topology.maps[m][0].shape[1])

    def _check_meetings(self, m: int, found: Meetings, arity: int) -> None:
        for pairs in (found.kept, found.lower, found.upper, found.ends):
            demand(all(slot < arity for pair in pairs for slot in pair), self, f"a slot of map {m} does not exist")
        kept, across = [pair.slot for pair in found.kept], _slots((*found.lower, *found.upper))
        for group in (kept, [pair.other for pair in found.kept], across, _slots(found.ends)):
            demand(len(set(group)) == len(group), self, "a slot is in two pairs")
        given = {pair.other for pair in (*found.lower, *found.upper)}
        demand(not given & set(kept), self, "what is kept is given away")


def _slots(pairs: Sequence[Pair]) -> list[int]:
    return [slot for pair in pairs for slot in pair]


class Strip(Atomics):
    name = "strip"
    summary = "strips of elements, joined in registers and between neighbouring threads, then hardware atomics"

    plans_together = StripPlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        if not target.is_simt:
            return super().plan(topology, block)
        rows = [indices[topology.visit] for indices, _ in topology.maps.values()]
        strips, meetings = best_strips(rows, target.gpu.strips)
        found = topology.visit[strips.elements].astype(topology.index_type)
        return StripPlan(self.name, block, found, strips.offsets, dict(zip(topology.maps, meetings, strict=True)))

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        if not target.is_simt:
            return super().passes(spec, plan, target=target)
        assert isinstance(plan, StripPlan)
        body = StripCode(spec, plan, {m: plan.meetings[m] for m in spec.racy_maps}).body()
        count = part_of(plan, "n_strips")
        return [Pass("strips", count, (Phase(body, exchanges=True),), reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        moved = work.compulsory + 4 * work.elements + work.reload_reads + work.reload_updates
        added = self.fitted(target, "atomics") * (1 - work.target_reuse) * work.elements * work.components
        return Cost(moved, work.flops, atomics=added, contended=added * work.contention, requests=work.requested)


#: Where the block begins, the strips of this step and the next element; has the strip an element in this step, and the
#: next one?
FRONT, STRIPS, NEXT, HERE, NEXT_STRIP = (Name(word) for word in ("front", "count", "next", "here", "next_strip"))


@dataclass
class StripCode:
    """The statements of a strip. ``values`` has what each output is worth, as joining goes on."""

    spec: LoopSpec
    plan: StripPlan
    meetings: dict[int, Meetings]
    values: dict[Address, Expr] = field(default_factory=dict)
    given: dict[Address, Expr] = field(default_factory=dict)  # conditions under which a neighbour has taken a value

    def body(self) -> Body:
        code = ElementCode(self.spec, self.spec.outputs)
        roots = [o.value for o in code.outputs]
        computed, values = code.values(roots)
        self.values = {_address(o): value for o, value in zip(code.outputs, values, strict=True)}
        joined = [*self._take_what_waits(), *self._take_from_neighbours()]
        turn = (*self._next_element(), *code.rows(roots, code.outputs), *computed, *joined,
                If(HERE, (*self._stores(code), *self._wait())))  # fmt: skip
        first = least(AT, STRIPS - 1)
        return (
            let(FRONT.name, AT - Thread()),  # of the block, whose threads stay together
            *self._declared(),
            Let(INDEX, ((STRIPS.name, self._of("n_strips")), (NEXT.name, self._of("strips")[first])), fixed=False),
            For("step", Number(0), self._of("n_steps"), turn, also=FRONT < STRIPS),
            *self._last(),
        )

    def _of(self, word: str) -> Expr:
        return part_of(self.plan, word)

    def _next_element(self) -> Body:
        """The element of this step; that of the next one is asked for now and needed later."""
        step, steps, strips = Name("step"), self._of("steps"), self._of("strips")
        there = (HERE.name, all_of([INSIDE, AT < STRIPS])), (NEXT_STRIP.name, all_of([FOLLOWED, AT + 1 < STRIPS]))
        ask = (Store(STRIPS, steps[step + 2] - steps[step + 1]),
               Store(NEXT, strips[steps[step + 1] + least(AT, STRIPS - 1)]))  # fmt: skip
        return Let(BOOL, there), let("e", NEXT), If(step + 1 < self._of("n_steps"), ask)

    # --- along the strip ---

    def _waiting(self) -> Iterator[tuple[int, int, int, list[tuple[Output, Name]]]]:
        """(map, slot that waits, slot of the next element that takes it, [(output that waits, its variable)])."""
        for m, found in self.meetings.items():
            for slot, taker in found.kept:
                waits = [(o, Name(f"k{o.param}_{slot}_{o.comp}")) for o in self.spec.racy_outputs
                         if self.spec.params[o.param].map == m and o.slot == slot
                         and any(_address(t) == (o.param, taker, o.comp) for t in self.spec.racy_outputs)]  # fmt: skip
                if waits:
                    yield m, slot, taker, waits

    def _declared(self) -> list[Statement]:
        made: list[Statement] = []
        for m, slot, _, waits in self._waiting():
            made.append(variable(_kept(m, slot).name, -1))
            made += [variable(one.name, 0, self._type(o)) for o, one in waits]
        return made

    def _take_what_waits(self) -> list[Statement]:
        """A slot takes what waits for its target; what waits for another one is added there now."""
        made: list[Statement] = []
        taken: dict[Address, Expr] = {}
        for m, slot, taker, waits in self._waiting():
            kept, linked = _kept(m, slot), Name(f"linked{m}_{taker}")
            made.append(let(linked.name, kept.equals(row_of(m, taker)), BOOL))
            made.append(If(all_of([HERE, no(linked), kept >= 0]), self._added(kept, waits)))
            for o, one in waits:
                address = (o.param, taker, o.comp)
                both = merged(self.spec.params[o.param], self.values[address], one)
                new = Name(f"l{o.param}_{taker}_{o.comp}")
                made.append(let(new.name, Select(linked, both, self.values[address]), self._type(o)))
                taken[address] = new
        self.values |= taken
        return made

    def _wait(self) -> list[Statement]:
        made: list[Statement] = []
        for m, slot, _, waits in self._waiting():
            made.append(Store(_kept(m, slot), row_of(m, slot)))
            made += [Store(one, self.values[_address(o)]) for o, one in waits]
        return made

    def _last(self) -> list[Statement]:
        """What waits at the end of a strip; the next strip's may go to the same target."""
        made: list[Statement] = []
        waiting = {(m, slot): waits for m, slot, _, waits in self._waiting()}
        ends = {(m, pair) for m, found in self.meetings.items() for pair in found.ends}
        ends = {(m, pair) for m, pair in ends if {(m, slot) for slot in pair} <= waiting.keys()}
        for m, (taker, giver) in sorted(ends):
            end = Name(f"end{m}_{taker}")
            takes = Taking(_kept(m, taker), Name(f"after{m}_{taker}"), end, LANE + 1, (FOLLOWED,))
            gives = Taking(_kept(m, giver), Name(f"before{m}_{giver}"), _gone(m, giver), LANE - 1, (LANE > 0,))
            made += exchanged(takes, gives)
            offered = {(o.param, o.comp): one for o, one in waiting[m, giver]}
            for o, one in waiting[m, taker]:
                if (o.param, o.comp) in offered:
                    theirs = Name(f"x{one.name}")
                    made += [variable(theirs.name, Shuffle(offered[o.param, o.comp], LANE + 1), self._type(o)),
                             If(end, (accumulated(self.spec.params[o.param], one, theirs),), bare=True)]  # fmt: skip
        givers = {(m, g): t for m, (t, g) in ends}
        for (m, slot), waits in waiting.items():
            taken = {(o.param, o.comp) for o, _ in waiting[m, givers[m, slot]]} if (m, slot) in givers else set()
            still = [INSIDE, _kept(m, slot) >= 0]
            for wanted, when in ((False, still), (True, [*still, no(_gone(m, slot))])):
                chosen = [(o, one) for o, one in waits if ((o.param, o.comp) in taken) is wanted]
                made += [If(all_of(when), self._added(_kept(m, slot), chosen))] if chosen else []
        return made

    # --- between neighbouring threads ---

    def _take_from_neighbours(self) -> list[Statement]:
        """Threads show each other what they have; everybody asks, also those who will not use the answer."""
        made: list[Statement] = []
        for m, found in self.meetings.items():
            for taker, giver in found.lower:
                made += self._taken(m, taker, giver, (LANE + 1, LANE - 1), (NEXT_STRIP, LANE > 0))
            for taker, giver in found.upper:
                made += self._taken(m, taker, giver, (LANE - 1, LANE + 1), (LANE > 0, NEXT_STRIP))
        return made

    def _taken(
        self, m: int, taker: int, giver: int, lanes: tuple[Expr, Expr], there: tuple[Expr, Expr]
    ) -> list[Statement]:
        """``lanes``: the one that is taken from, and the one that takes from this; ``there``: have they an element?"""
        pairs = [(a, (a[0], taker, a[2])) for a in self.values if a[1] == giver and self._goes_through(m, a)]
        pairs = [(a, t) for a, t in pairs if t in self.values]
        if not pairs:
            return []
        took, gave = Name(f"take{m}_{taker}"), Name(f"given{m}_{giver}")
        takes = Taking(row_of(m, taker), Name(f"r{took.name}"), took, lanes[0], (HERE, there[0]))
        gives = Taking(row_of(m, giver), Name(f"r{gave.name}"), gave, lanes[1], (HERE, there[1]))
        made = exchanged(takes, gives)
        for address, target in pairs:
            param, new = self.spec.params[target[0]], Name(f"j{target[0]}_{taker}_{target[2]}")
            offer, value = Name(f"{new.name}_other"), self.values[target]
            made += [let(offer.name, Shuffle(Cast(param.ctype, self.values[address]), lanes[0]), param.ctype),
                     let(new.name, Select(took, merged(param, value, offer), value), param.ctype)]  # fmt: skip
            self.values[target] = new
            self.given[address] = gave
        return made

    # --- to memory ---

    def _stores(self, code: ElementCode) -> list[Statement]:
        """Everything that neither waits nor was given away."""
        waits = {_address(o) for *_, outputs in self._waiting() for o, _ in outputs}
        made: list[Statement] = []
        for o in code.outputs:
            if (address := _address(o)) not in waits:
                additions = code.atomic(o, self.values[address])
                made += [If(no(self.given[address]), tuple(additions))] if address in self.given else additions
        return made

    def _added(self, row: Expr, waits: Sequence[tuple[Output, Name]]) -> Body:
        return tuple(
            Atomic(self.spec.access(o.param).at(row, o.comp), self.spec.params[o.param].mode.combine, one)
            for o, one in waits
        )

    def _goes_through(self, m: int, address: Address) -> bool:
        param = self.spec.params[address[0]]
        return param.racy and param.map == m

    def _type(self, output: Output) -> str:
        return self.spec.params[output.param].ctype


def _kept(m: int, slot: int) -> Name:
    """The target that what a slot has found waits for, -1 for none."""
    return Name(f"kept{m}_{slot}")


def _gone(m: int, slot: int) -> Name:
    """Has a neighbour taken what waits at the end of a strip?"""
    return Name(f"gone{m}_{slot}")


def _address(output: Output) -> Address:
    return output.param, output.slot, output.comp
