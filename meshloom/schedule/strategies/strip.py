"""strip: a thread does a strip of elements one after the other; what it has found for a target that the next element
shares waits in a register, what neighbouring threads have for one target is joined, and only the rest is atomic.

The plan (``chains.py``) finds strips and slots that meet often, and nothing in it has to be right: targets are compared
when the loop runs. Three quarters of the updates of hexahedra at their nodes disappear. On a CPU it is ``atomic``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshloom.kernel.model import Output
from meshloom.schedule.chains import Meetings, best_strips
from meshloom.schedule.code import ElementCode, Pass, Phase, merged, row_name
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.declare import (
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
from meshloom.schedule.form import demand
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.atomic import Atomic
from meshloom.schedule.verify import check_offsets, check_permutation
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
        kept, beside = [pair.slot for pair in found.kept], _slots((*found.lower, *found.upper))
        for group in (kept, [pair.other for pair in found.kept], beside, _slots(found.ends)):
            demand(len(set(group)) == len(group), self, "a slot is in two pairs")
        given = {pair.other for pair in (*found.lower, *found.upper)}
        demand(not given & set(kept), self, "what is kept is given away")


def _slots(pairs: Sequence[Pair]) -> list[int]:
    return [slot for pair in pairs for slot in pair]


class Strip(Atomic):
    name = "strip"
    summary = "strips of elements, joined in registers and between neighbouring threads, then hardware atomics"

    plans_together = StripPlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        if not target.together:
            return super().plan(topology, block)
        strips, meetings = best_strips([rows[topology.visit] for rows, _ in topology.maps.values()])
        found = topology.visit[strips.elements].astype(topology.index_type)
        return StripPlan(self.name, block, found, strips.offsets, dict(zip(topology.maps, meetings, strict=True)))

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        if not target.together:
            return super().passes(spec, plan, target=target)
        assert isinstance(plan, StripPlan)
        body = StripCode(spec, {m: plan.meetings[m] for m in spec.racy_maps}).lines()
        return [Pass("strips", "n_strips", (Phase("", "", tuple(body), together=True),), reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        moved = work.compulsory + 4 * work.elements + work.again + work.added_again
        added = 0.9 * (1 - work.beside) * work.elements * work.components
        return Cost(moved, work.flops, atomics=added, crowded=added * work.crowded, requests=work.requested)


@dataclass
class StripCode:
    """The statements of a strip. ``values`` names what each output is worth, as joining goes on."""

    spec: LoopSpec
    meetings: dict[int, Meetings]
    values: dict[Address, str] = field(default_factory=dict)
    given: dict[Address, str] = field(default_factory=dict)  # conditions under which a neighbour has taken a value

    def lines(self) -> list[str]:
        code = ElementCode(self.spec, self.spec.outputs)
        roots = [o.value for o in code.outputs]
        text, names = code.values(roots)
        self.values = {_address(o): name for o, name in zip(code.outputs, names, strict=True)}
        joined = [*self._take_what_waits(), *self._take_from_neighbours()]
        return [
            "const ml_index front = at - (ml_index)threadIdx.x;",  # of the block, whose threads stay together
            *self._declared(),
            "ml_index count = n_strips, next = strips[ml_min(at, count - 1)];",
            "for (ml_index step = 0; step < n_steps && front < count; ++step) {",
            "const bool here = inside && at < count, beside = followed && at + 1 < count;",
            "const ml_index e = next;",
            "if (step + 1 < n_steps) {",  # asked for now, needed later
            "count = steps[step + 2] - steps[step + 1];",
            "next = strips[steps[step + 1] + ml_min(at, count - 1)];",
            "}",
            *code.rows(roots, code.outputs), *text, *joined,
            "if (here) {", *self._sunk(code), *self._wait(), "}",
            "}",
            *self._last(),
        ]  # fmt: skip

    # --- along the strip ---

    def _waiting(self) -> Iterator[tuple[int, int, int, list[tuple[Output, str]]]]:
        """(map, slot that waits, slot of the next element that takes it, [(output that waits, its variable)])."""
        for m, found in self.meetings.items():
            for slot, taker in found.kept:
                waits = [(o, f"k{o.param}_{slot}_{o.comp}") for o in self.spec.racy_outputs
                         if self.spec.params[o.param].map == m and o.slot == slot
                         and any(_address(t) == (o.param, taker, o.comp) for t in self.spec.racy_outputs)]  # fmt: skip
                if waits:
                    yield m, slot, taker, waits

    def _declared(self) -> list[str]:
        lines = []
        for m, slot, _, waits in self._waiting():
            lines.append(f"ml_index kept{m}_{slot} = -1;")
            lines += [f"{self.spec.params[o.param].ctype} {name} = 0;" for o, name in waits]
        return lines

    def _take_what_waits(self) -> list[str]:
        """A slot takes what waits for its target; what waits for another one is added there now."""
        lines, taken = [], {}
        for m, slot, taker, waits in self._waiting():
            kept = f"kept{m}_{slot}"
            lines.append(f"const bool linked{m}_{taker} = {kept} == {row_name(m, taker)};")
            lines += [f"if (here && !linked{m}_{taker} && {kept} >= 0) {{", *self._added(kept, waits), "}"]
            for o, name in waits:
                address = (o.param, taker, o.comp)
                new = f"l{o.param}_{taker}_{o.comp}"
                merged = self._merged(o, self.values[address], name)
                lines.append(f"const {self._type(o)} {new} = linked{m}_{taker} ? {merged} : {self.values[address]};")
                taken[address] = new
        self.values |= taken
        return lines

    def _wait(self) -> list[str]:
        lines = []
        for m, slot, _, waits in self._waiting():
            lines.append(f"kept{m}_{slot} = {row_name(m, slot)};")
            lines += [f"{name} = {self.values[_address(o)]};" for o, name in waits]
        return lines

    def _last(self) -> list[str]:
        """What waits at the end of a strip; the next strip's may go to the same target."""
        lines, sinks = [], []
        waiting = {(m, slot): waits for m, slot, _, waits in self._waiting()}
        ends = {(m, pair) for m, found in self.meetings.items() for pair in found.ends}
        ends = {(m, pair) for m, pair in ends if {(m, slot) for slot in pair} <= waiting.keys()}
        givers = {(m, g): t for m, (t, g) in ends}
        for m, (taker, giver) in sorted(ends):
            mine, other = f"kept{m}_{taker}", f"kept{m}_{giver}"
            lines += [
                f"const ml_index after{m}_{taker} = ml_from({other}, own_lane + 1);",
                f"const ml_index before{m}_{giver} = ml_from({mine}, own_lane - 1);",
                f"const bool end{m}_{taker} = followed && after{m}_{taker} == {mine};",
                f"const bool gone{m}_{giver} = own_lane > 0 && before{m}_{giver} == {other};",
            ]
            offered = {(o.param, o.comp): name for o, name in waiting[m, giver]}
            for o, name in waiting[m, taker]:
                if (o.param, o.comp) in offered:
                    lines += [f"{self._type(o)} x{name} = ml_from({offered[o.param, o.comp]}, own_lane + 1);",
                              f"if (end{m}_{taker}) {name} = {self._merged(o, name, f'x{name}')};"]  # fmt: skip
        for (m, slot), waits in waiting.items():
            taken = {(o.param, o.comp) for o, _ in waiting[m, givers[m, slot]]} if (m, slot) in givers else set()
            still = f"inside && kept{m}_{slot} >= 0"
            for wanted, when in ((False, still), (True, f"{still} && !gone{m}_{slot}")):
                chosen = [(o, name) for o, name in waits if ((o.param, o.comp) in taken) is wanted]
                sinks += [f"if ({when}) {{", *self._added(f"kept{m}_{slot}", chosen), "}"] if chosen else []
        return [*lines, *sinks]

    # --- between neighbouring threads ---

    def _take_from_neighbours(self) -> list[str]:
        """Threads show each other what they have; everybody asks, also those who will not use the answer."""
        lines: list[str] = []
        for m, found in self.meetings.items():
            for taker, giver in found.lower:
                lines += self._taken(m, taker, giver, "+", "-", "beside", "own_lane > 0")
            for taker, giver in found.upper:
                lines += self._taken(m, taker, giver, "-", "+", "own_lane > 0", "beside")
        return lines

    def _taken(self, m: int, taker: int, giver: int, towards: str, back: str, has: str, had: str) -> list[str]:
        mine, other, took, gave = row_name(m, taker), row_name(m, giver), f"take{m}_{taker}", f"given{m}_{giver}"
        pairs = [(a, (a[0], taker, a[2])) for a in self.values if a[1] == giver and self._goes_through(m, a)]
        pairs = [(a, t) for a, t in pairs if t in self.values]
        if not pairs:
            return []
        lines = [f"const ml_index r{took} = ml_from({other}, own_lane {towards} 1);",
                 f"const ml_index r{gave} = ml_from({mine}, own_lane {back} 1);",
                 f"const bool {took} = here && {has} && r{took} == {mine};",
                 f"const bool {gave} = here && {had} && r{gave} == {other};"]  # fmt: skip
        for address, target in pairs:
            param, new = self.spec.params[target[0]], f"j{target[0]}_{taker}_{target[2]}"
            offer = f"ml_from(({param.ctype}){self.values[address]}, own_lane {towards} 1)"
            both = merged(param, self.values[target], f"{new}_other")
            lines += [f"const {param.ctype} {new}_other = {offer};",
                      f"const {param.ctype} {new} = {took} ? {both} : {self.values[target]};"]  # fmt: skip
            self.values[target] = new
            self.given[address] = gave
        return lines

    # --- to memory ---

    def _sunk(self, code: ElementCode) -> list[str]:
        """Everything that neither waits nor was given away."""
        waits = {_address(o) for *_, outputs in self._waiting() for o, _ in outputs}
        lines = []
        for o in code.outputs:
            if (address := _address(o)) not in waits:
                sunk = code.atomic(o, self.values[address])
                lines += [f"if (!{self.given[address]}) {{", *sunk, "}"] if address in self.given else sunk
        return lines

    def _added(self, row: str, waits: Sequence[tuple[Output, str]]) -> list[str]:
        places = [self.spec.access(o.param).at(row, o.comp) for o, _ in waits]
        return [f"ml_atomic_{self.spec.params[o.param].mode.combine}(&{place}, {name});"
                for (o, name), place in zip(waits, places, strict=True)]  # fmt: skip

    def _goes_through(self, m: int, address: Address) -> bool:
        param = self.spec.params[address[0]]
        return param.racy and param.map == m

    def _merged(self, output: Output, mine: str, other: str) -> str:
        param = self.spec.params[output.param]
        return merged(param, mine, other)

    def _type(self, output: Output) -> str:
        return self.spec.params[output.param].ctype


def _address(output: Output) -> Address:
    return output.param, output.slot, output.comp
