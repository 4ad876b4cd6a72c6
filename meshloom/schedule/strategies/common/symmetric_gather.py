"""Code for ``owner`` on a GPU where the kernel is symmetric: every incident element seen from the target's own side.

What depends on the target alone is computed once; all loads are under way before the first element is computed. The
tables are those of ``neighbours.py``.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from meshloom.kernel.count import loads
from meshloom.kernel.expr import BOOL as BOOLS
from meshloom.kernel.expr import C_TYPES, Node, topological
from meshloom.kernel.model import Output
from meshloom.records import dataclass
from meshloom.schedule.choice.symmetry import rounded_by_side, seen_alike, swapped_maps
from meshloom.schedule.nest import graph
from meshloom.schedule.nest.code import ELEMENT, INDEX, TARGET, ElementCode, Entry, accumulated, row_of
from meshloom.schedule.nest.nodes import (
    BOOL,
    INT,
    Block,
    Body,
    Cast,
    Expr,
    For,
    If,
    LoadRow,
    Name,
    Number,
    Piece,
    Room,
    RowOf,
    Select,
    Statement,
    Store,
    Type,
    let,
    summed,
)
from meshloom.schedule.nest.walk import substituted
from meshloom.schedule.plan.plan import Plan, part_of
from meshloom.schedule.spec import Address, LoopSpec
from meshloom.schedule.strategies.common.gather import AT, SLOT, accumulator, incident, split_entry
from meshloom.schedule.strategies.common.neighbours import (
    GAP,
    IRREGULAR,
    VALID,
    OwnRing,
    SymmetricTables,
    TabledIncidence,
)
from meshloom.schedule.strategies.common.sorting_network import comparators

#: The number of an element of the target, the target's row of ``near`` there, and: is the target in the tables?
AROUND, NEAR, LISTED = Name("v"), Name("near"), Name("listed")


@dataclass(frozen=True)
class SymmetricGather:
    """What the elements of map ``m`` give to target ``t``."""

    spec: LoopSpec
    m: int
    degree: int
    plan: Plan  # whose ``gathers`` have the tables
    tables: SymmetricTables
    outputs: tuple[Output, ...]  # to slot 0, the own side
    along: OwnRing | None = None  # a map of the targets that names the ring's nodes

    @classmethod
    def of(
        cls, spec: LoopSpec, m: int, plan: Plan, found: TabledIncidence, along: OwnRing | None = None
    ) -> SymmetricGather:
        assert isinstance(found.tables, SymmetricTables)
        return cls(spec, m, found.degree, plan, found.tables, _to_own_side(spec, m), along)

    @property
    def turned(self) -> bool:
        """Do rings go around the other way, and hold the second end of each element?"""
        return self.along is not None and bool(self.along.turned)

    def loading(self, known: dict[Node, Expr]) -> list[Statement]:
        """Statements that load all that the elements need. ``listed`` tells whether the target is in the tables; if
        not, its accumulators are of no use. ``known`` is extended by the values of the target alone that have got a
        name."""
        code, roots = ElementCode(self.spec, ()), [o.value for o in self.outputs]
        own = self._known_to_target(roots)
        needed = {a for n in topological(roots) if n not in own for a in n.args} | set(roots)
        edge = [n for n in own if n in needed and n.op != "const"]
        before = [let(row_of(self.m, 0).name, TARGET), *code.whole_rows(edge), *code.values(edge, known)[0]]
        near = self.table(NEAR.name, self.degree, self.tables.near.dtype, self.named("near"))
        return [near, let(LISTED.name, self._listed, BOOL), *self.fetched.statements, *before]

    def adding(self, known: dict[Node, Expr]) -> list[Statement]:
        """Statements that merge the elements into the accumulators, which must be declared; see ``loading``."""
        fetch, roots = self.fetched, [o.value for o in self.outputs]
        computed, values = graph.statements(roots, lambda n: fetch.values[n.value], known=dict(known),
                                            arrays=fetch.code.array_of)  # fmt: skip
        if self.tables.sorting is not None:
            return self._adding_in_order(computed, values)
        added = If(VALID, tuple(_add(self.spec, o, one) for o, one in zip(self.outputs, values, strict=True)))
        valid = let(VALID.name, Piece(NEAR, AROUND) > GAP, BOOL)
        return [around(self.degree, (valid, *computed, added))]

    def _adding_in_order(self, computed: list[Statement], values: list[Expr]) -> list[Statement]:
        """The same of rings, in the order of elements: all are evaluated as they stand, a sorting network moves what
        they give, in registers, gaps to the end, and as many are added as there are."""
        given = [Name(f"given{o.param}_{o.comp}") for o in self.outputs]
        room = [Room(C_TYPES[o.value.dtype], one.name, Number(self.degree))
                for o, one in zip(self.outputs, given, strict=True)]  # fmt: skip
        kept = (Store(one[AROUND], value) for one, value in zip(given, values, strict=True))
        sorting = let("sorting", self.named("sorting")[TARGET], "unsigned")
        moved = [self._comparator(bit, *pair, given) for bit, pair in enumerate(comparators(self.degree))]
        present = let("present", summed(Select(Piece(NEAR, Number(v)) > GAP, Number(1), Number(0))
                                        for v in range(self.degree)), INT)  # fmt: skip
        added = If(Name("present") > AROUND, tuple(_add(self.spec, o, one[AROUND])
                                                   for o, one in zip(self.outputs, given, strict=True)))  # fmt: skip
        return [sorting, present, *room, around(self.degree, (*computed, *kept)), *moved, around(self.degree, (added,))]

    def _comparator(self, bit: int, low: int, high: int, given: list[Name]) -> Block:
        """What two elements give changes places, where that bit says so."""
        exchange, first = Name("exchange"), Name("first")
        made: list[Statement] = [let(exchange.name, (Name("sorting") >> bit & 1).differs(0), BOOL)]
        for output, one in zip(self.outputs, given, strict=True):
            exchanged = (let(first.name, one[low], C_TYPES[output.value.dtype]),
                         Store(one[low], Select(exchange, one[high], first)),
                         Store(one[high], Select(exchange, first, one[high])))  # fmt: skip
            made.append(Block(exchanged))
        return Block(tuple(made))

    @cached_property
    def fetched(self) -> Fetch:
        """Everything that the elements load."""
        roots = [o.value for o in self.outputs]
        own = set(self._known_to_target(roots))
        return Fetch(self, [n for n in topological(roots) if n.op == "load" and n not in own])

    def named(self, *path: str | int) -> Expr:
        """A table of the plan."""
        return part_of(self.plan, "gathers", self.m, "tables", *path)

    def table(self, name: str, width: int, dtype: np.dtype, array: Expr) -> Statement:
        """The target's row of a table with ``width`` entries for each."""
        ctype = C_TYPES[dtype]
        return let(name, LoadRow(ctype, width, array + TARGET * width), RowOf(ctype, width))

    @property
    def _listed(self) -> Expr:
        """Is the target in the tables?"""
        return Number(True, BOOLS) if self.tables.marked is None else Piece(NEAR, Number(0)).differs(IRREGULAR)

    def _known_to_target(self, roots: list[Node]) -> list[Node]:
        """Nodes that need nothing but the target's own values, globals and constants, in order."""
        own: dict[Node, None] = {}
        for node in topological(roots):
            if node.op == "load":
                param, slot, _ = node.value
                if self.spec.params[param].is_global or (self.spec.params[param].map == self.m and slot == 0):
                    own[node] = None
            elif all(a in own for a in node.args):
                own[node] = None
        return list(own)


def incident_seen(spec: LoopSpec, m: int, plan: Plan) -> Body:
    """Statements that merge the entry at ``x`` into the accumulators, for targets that are not in tables. Where ranks
    must have the same bits it is seen from the target's own side here, too: which targets are in tables differs there.
    """
    swapped = swapped_maps(spec, m)
    if swapped is None or not (spec.reproducible and rounded_by_side(spec, m)):
        return incident(spec, m, plan)
    stored = ElementCode(spec, ()).entry

    def entry(k: int, slot: int) -> Expr:
        return Select(SLOT.equals(0), stored(k, slot), stored(k, 1 - slot)) if k in swapped else stored(k, slot)

    return _from_own_side(spec, m, plan, entry)


def incident_alike(spec: LoopSpec, m: int, plan: Plan) -> Body:
    """The same for a thread by itself: from the target's own side wherever that gives the same bits, so that no branch
    leads to a slot, which nobody could predict, and what depends on the target alone is computed once."""
    if not seen_alike(spec, m):
        return incident(spec, m, plan)
    swapped, stored = swapped_maps(spec, m), ElementCode(spec, ()).entry

    def entry(k: int, slot: int) -> Expr:
        if swapped is None or k not in swapped:
            return stored(k, slot)
        if k == m:
            return part_of(plan, "gathers", m, "others")[AT] if slot else TARGET
        own = Cast(INDEX, SLOT)
        return Name(f"m{k}")[ELEMENT * 2 + (1 - own if slot else own)]

    return _from_own_side(spec, m, plan, entry)


def _from_own_side(spec: LoopSpec, m: int, plan: Plan, entry: Entry) -> Body:
    """The entry at ``x`` of a map of two slots, whose rows are ``entry``."""
    outputs, code = _to_own_side(spec, m), ElementCode(spec, (), entry)
    roots = [o.value for o in outputs]
    computed, values = code.values(roots)
    return (*split_entry(part_of(plan, "gathers", m, "entries"), 2), *code.rows(roots), *computed,
            *(_add(spec, o, value) for o, value in zip(outputs, values, strict=True)))  # fmt: skip


def _to_own_side(spec: LoopSpec, m: int) -> tuple[Output, ...]:
    """What an element gives to the first of its two targets, its own side."""
    return tuple(o for o in spec.racy_outputs if spec.params[o.param].map == m and o.slot == 0)


def _add(spec: LoopSpec, output: Output, value: Expr) -> Statement:
    return accumulated(spec.params[output.param], accumulator(output.param, output.comp), value)


def around(degree: int, body: Body) -> For:
    """A loop over the elements of a target, unrolled."""
    return For(AROUND.name, Number(0), Number(degree), body, INT, unroll=0)


class Fetch:
    """Loads of everything that the elements need: statements, and each value at element ``v``."""

    def __init__(self, gather: SymmetricGather, wanted: list[Node]):
        self.gather, self.code, self.spec = gather, ElementCode(gather.spec, ()), gather.spec
        self.values: dict[Address, Expr] = {}
        self.statements: list[Statement] = []
        addresses = loads(wanted)
        by_param = {p: sorted(a for a in addresses if a[0] == p) for p in sorted({a[0] for a in addresses})}
        self._tables({self.spec.params[p].map for p in by_param})
        for param, mine in by_param.items():
            self._param(param, mine)

    def _tables(self, maps: set[int | None]) -> None:
        degree, tables, along = self.gather.degree, self.gather.tables, self.gather.along
        table, named = self.gather.table, self.gather.named
        for k in sorted(k for k in maps if k is not None and k != self.gather.m):
            if self._ring(k) and along is not None:
                ring = Name(f"m{along.ring_of}")
                self.statements.append(table(f"at{k}", degree, self.spec.maps[along.ring_of].dtype, ring))
            elif self._ring(k):
                self.statements.append(table(f"at{k}", degree, tables.ring[k].dtype, named("ring", k)))
            else:
                width = degree * self.spec.maps[k].arity
                self.statements.append(table(f"at{k}", width, tables.rows[k].dtype, named("rows", k)))
        if None in maps:
            self.statements.append(table("entry", degree, tables.entry.dtype, named("entry")))

    def around(self, param: int, position: int, comp: int) -> Expr | None:
        """What the ring holds at a position, for a parameter read through it; None if that is not loaded."""
        value = self.values.get((param, int(self.gather.turned), comp))
        return None if value is None else substituted(value, {AROUND.name: Number(position)})

    def _ring(self, k: int) -> bool:
        along = self.gather.along
        return k in self.gather.tables.ring or (along is not None and k == along.ring_through)

    def _param(self, param: int, addresses: list[Address]) -> None:
        k, slots = self.spec.params[param].map, sorted({slot for _, slot, _ in addresses})
        comps = sorted({comp for _, _, comp in addresses})
        if k is None:
            entry = Piece(Name("entry"), AROUND)
            self._array(param, 0, comps, Select(entry > 0, entry / 2, Number(0)))
        elif k == self.gather.m:
            other = Piece(NEAR, AROUND)
            self._array(param, 1, comps, Select(other > GAP, other, TARGET))
        elif self._ring(k):
            self._array(param, 0, comps, Piece(Name(f"at{k}"), AROUND), ring=True)
            at = {c: self.values[param, 0, c] for c in comps}
            near, far = (1, 0) if self.gather.turned else (0, 1)
            self.values |= {(param, near, c): at[c] for c in comps}
            self.values |= {(param, far, c): substituted(at[c], {AROUND.name: AROUND + 1}) for c in comps}
        else:
            for slot in slots:
                self._array(param, slot, comps, Piece(Name(f"at{k}"), AROUND * self.spec.maps[k].arity + slot))

    def _array(self, param: int, slot: int, comps: list[int], row: Expr, ring: bool = False) -> None:
        """Values of a parameter at all elements; on a ring one more, the first again."""
        access, degree, found = self.spec.access(param), self.gather.degree, Name("row")
        found_all = Name(f"all{param}_{slot}")
        parts: dict[Name, tuple[Type, Expr]]  # arrays, what they are of, and what comes into them
        if self.code.in_whole_row(param):
            parts = {found_all: (access.row_type, access.load_row(found))}
            self.values |= {(param, slot, c): Piece(found_all[AROUND], Number(c)) for c in comps}
        else:
            each = {c: Name(f"{found_all.name}_{c}") for c in comps}
            parts = {one: (self.spec.params[param].ctype, access.at(found, c)) for c, one in each.items()}
            self.values |= {(param, slot, c): one[AROUND] for c, one in each.items()}
        self.statements += [Room(kind, one.name, Number(degree + ring)) for one, (kind, _) in parts.items()]
        fill = (Store(one[AROUND], source) for one, (_, source) in parts.items())
        self.statements.append(around(degree, (let(found.name, row), *fill)))
        if ring:
            self.statements += [Store(one[degree], one[0]) for one in parts]
