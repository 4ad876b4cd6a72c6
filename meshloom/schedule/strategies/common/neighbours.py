"""Neighbour tables: what ``owner`` reads on a GPU instead of following offsets, entries and maps one after the other.

For targets with the usual number of incident elements (``degree``) everything the maps say about them stands in arrays,
so that one load replaces a chain of three. Two kinds:

- *by slot*: arrays of (degree, targets) shape; targets with another number of elements are marked (-2) and take the
  general way. Where cells of several kinds meet, the tables are as wide as the largest of them needs (``padded``):
  targets with fewer elements have gaps (-1), whose loads lead to element 0 and are not added.
- *symmetric*, where the kernel is (``symmetry.py``): first the own target's side, then the other's. The own
  target is known, so only the other one is kept, and every incident element looks the same. Arrays of (targets,
  degree) shape, so that a thread reads its share at once. Missing elements leave gaps (-1 for the other target); only
  targets with too many elements, or that are no ring where the others are, are marked (-2), listed, and take the
  general way. Where a ring stands in another order than that in which its elements are to be added, bits of a sorting
  network (``sorting_network.py``) say how what they give is brought into it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from meshloom.records import dataclass
from meshloom.schedule.nest.code import TARGET, ElementCode, row_of
from meshloom.schedule.nest.nodes import BOOL, Expr, Name, Number, Select, Statement, let
from meshloom.schedule.plan.declare import (
    ANY,
    NUMBERS,
    Array,
    Numbers,
    Part,
    Place,
    PlanNumber,
    Table,
    all_maps,
    holds,
    maybe,
    racy_maps,
    size,
    targets,
)
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.plan.verify import distinct
from meshloom.schedule.strategies.common.gather import GatherPlan, Incidence, entry_parts, roomy_degree, usual_degree
from meshloom.schedule.strategies.common.one_ring import find_one_rings
from meshloom.schedule.strategies.common.sorting_network import BITS, exchanges, in_order

GAP, IRREGULAR = -1, -2
VALID = Name("valid")  # is there an element at this place of a padded table?


# ----- what a plan holds ----------------------------------------------------------------------------------------
def _degree(place: Place) -> int:
    return place.inside(Incidence).degree


def _in_row(place: Place) -> int:
    """Entries that one of the maps has at the elements of a target."""
    return _degree(place) * place.rows.shape[1]


@dataclass(frozen=True, eq=False)
class SlotTables:
    """By slot: what stands at each of a target's elements, in arrays of (degree, targets) shape."""

    entry: Numbers = holds(
        Array(NUMBERS, _degree, targets), "entries: -1 gaps, -2 at targets that are not in the tables"
    )
    near: dict[int, Numbers] = holds(
        Table(Array(NUMBERS, _in_row, targets), all_maps), "for each map a row for each (element, slot)"
    )

    def check(self, plan: Plan, topology: Topology, m: int, found: TabledIncidence) -> None:
        """Tables say what offsets, entries and maps say."""
        counts, arity = np.diff(found.offsets), topology.maps[m][0].shape[1]
        listed = found.in_tables
        marked = (self.entry[:, ~listed] == IRREGULAR).all()
        demand(marked, plan, "a target with another number of elements is not marked in the neighbour table")
        for u, row in enumerate(self.entry):
            there = listed & (u < counts)
            expected = found.entries[found.offsets[:-1][there] + u]
            demand((row[there] == expected).all(), plan, "a neighbour table holds another entry than the incidence")
            demand((row[listed & ~there] == GAP).all(), plan, "a gap of the neighbour table is none")
            for k, rows in topology.rows().items():
                part = self.near[k].reshape(len(self.entry), -1, len(counts))[u]
                same = (rows[expected // arity] == part[:, there].T).all()
                demand(same, plan, f"a neighbour table has wrong rows of map {k}")
                inside = part.min(initial=0) >= 0 and part.max(initial=0) <= rows.max(initial=0)
                demand(inside, plan, f"a gap has no row of map {k} to load")


def _each(place: Place) -> int:
    return targets(place) * _degree(place)


def _each_in_row(place: Place) -> int:
    return targets(place) * _in_row(place)


def _turning_maps(place: Place) -> Collection[int]:
    m = place.numbers[0]
    return place.topology.swapped[m] - {m}


def _other_maps(place: Place) -> Collection[int]:
    return set(all_maps(place)) - {place.numbers[0]} - place.inside(SymmetricTables).ring.keys()


@dataclass(frozen=True, eq=False)
class SymmetricTables:
    """Of a symmetric gather: what a target sees from its own side, in arrays of (targets, degree) shape, flat."""

    near: Numbers = holds(Array(NUMBERS, _each), "the other target of each element: -1 gaps, -2 marked targets")
    entry: Numbers = holds(Array(NUMBERS, _each), "the entry of each element, -1 where there is none")
    ring: dict[int, Numbers] = holds(
        Table(Array(NUMBERS, _each), _turning_maps, some=True), "of a map that goes around the target what comes first"
    )
    rows: dict[int, Numbers] = holds(
        Table(Array(NUMBERS, _each_in_row), _other_maps), "of every other map its rows at the elements"
    )
    marked: Numbers | None = holds(Array(NUMBERS, ANY), "the targets that are not in the tables, if any", maybe)
    sorting: Numbers | None = holds(
        Array(BITS, targets), "of rings that add up in the order of elements, which comparators exchange", maybe
    )

    @size
    def n_marked(self) -> int | None:
        return None if self.marked is None else len(self.marked)

    def check(self, plan: Plan, topology: Topology, m: int, found: Incidence) -> None:
        """All entries of every target that is not marked, each once, seen from the target's side."""
        degree, targets = found.degree, topology.maps[m][1]
        table, near = self.entry.reshape(targets, degree), self.near.reshape(targets, degree)
        there = self._checked_marks(plan, table, near)
        filled, leads_to = table[there], _flat(topology.maps[m][0][: topology.elements])
        counts = np.einsum("tu->t", there.view(np.uint8))  # at most 8 each; much faster than a sum over short rows
        full = (counts == np.diff(found.offsets)) | (near[:, 0] == IRREGULAR)
        sound = full.all() and (not len(filled) or filled.max() < len(leads_to))
        sound = sound and distinct(filled, len(leads_to)) == len(filled)
        sound = sound and (leads_to[filled] == np.repeat(np.arange(targets, dtype=leads_to.dtype), counts)).all()
        demand(sound, plan, "a neighbour table holds another entry than the incidence")
        demand((near[there] == leads_to[filled ^ 1]).all(), plan, f"a neighbour table has wrong rows of map {m}")
        if topology.in_order:
            keys = added = _sort_keys(table)
            if self.sorting is not None:
                added = in_order(keys, self.sorting)
            sound = (added[:, 1:] >= added[:, :-1]).all()
            demand(sound, plan, "a neighbour table does not add up in the order of elements")
        for k in topology.rows():
            if k != m:
                self._check_rows(plan, topology, k, there, filled, k in topology.swapped[m])

    def _checked_marks(self, plan: Plan, table: np.ndarray, near: np.ndarray) -> np.ndarray:
        """(targets, degree): where the tables hold an element."""
        there, marked = table >= 0, near[:, 0] == IRREGULAR
        listed = np.empty(0, np.int32) if self.marked is None else self.marked
        same = np.array_equal(listed, np.flatnonzero(marked))
        demand(same, plan, "the list of marked targets does not fit the marks")
        apart = not there[marked].any() and (near[marked] == IRREGULAR).all()
        demand(apart, plan, "a marked target is in the tables too")
        demand(((near >= 0) == there).all(), plan, "a gap of the neighbour table is none, or the other way around")
        return there

    def _check_rows(
        self, plan: Plan, topology: Topology, k: int, there: np.ndarray, filled: np.ndarray, from_own_side: bool
    ) -> None:
        """The rows of map ``k`` are those of the elements, turned to the target's side where they are to be."""
        rows, element, side = topology.rows()[k], filled // 2, filled % 2
        turned = side if from_own_side else np.zeros_like(side)
        expected = np.where(turned[:, None] == 1, rows[element, ::-1], rows[element])
        if k in self.ring:
            ring = self.ring[k].reshape(there.shape)
            seen = np.stack([ring, np.roll(ring, -1, axis=1)], axis=2)
        else:
            seen = self.rows[k].reshape(*there.shape, -1)
        demand((seen[there] == expected).all(), plan, f"a neighbour table has wrong rows of map {k}")
        inside = seen.min(initial=0) >= 0 and seen.max(initial=0) <= rows.max(initial=0)
        demand(inside, plan, f"a gap has no row of map {k} to load")


@dataclass(frozen=True, eq=False)
class OwnRing:
    """A map of the targets themselves that names the nodes of their rings, in place of a table."""

    ring_of: int = holds(PlanNumber(), "the number of that map")
    ring_through: int = holds(PlanNumber(), "the map of the elements whose rings those are")
    turned: int = holds(PlanNumber(), "1 where they go around the other way, and hold the second end of each element")


def _regular(place: Place) -> bool | None:
    return _degree(place) > 0


@dataclass(frozen=True, eq=False)
class TabledIncidence(Incidence):
    """An incidence with the tables of the targets that have the usual number of elements, where there is one."""

    tables: SlotTables | SymmetricTables | None = holds(
        Part(SlotTables, SymmetricTables), "tables of neighbours", _regular
    )

    @size
    def degree(self) -> int:
        return roomy_degree(self.offsets)

    @property
    def padded(self) -> bool:
        """Are there tables by slot with gaps, for targets of several kinds?"""
        return self.degree != usual_degree(self.offsets)

    @property
    def in_tables(self) -> np.ndarray:
        """Which targets tables by slot have room for."""
        counts = np.diff(self.offsets)
        return counts <= self.degree if self.padded else counts == self.degree

    def check(self, plan: Plan, topology: Topology, m: int) -> None:
        super().check(plan, topology, m)
        if self.tables is not None:
            fits = isinstance(self.tables, SymmetricTables) == (m in topology.swapped)
            demand(fits, plan, "its neighbour tables are not of the kind for this kernel")
            self.tables.check(plan, topology, m, self)


def tabled(topology: Topology, m: int, found: Incidence, most_lost: float) -> TabledIncidence:
    """The incidence of racy map ``m`` with its tables; a ring may leave out ``most_lost`` of the targets, a share."""
    bare = TabledIncidence(found.offsets, found.entries, None)
    if bare.degree == 0:
        return bare
    tables = _symmetric_tables(topology, m, bare, most_lost) if m in topology.swapped else _by_slot(topology, m, bare)
    return replace(bare, tables=tables)


# ----- by slot --------------------------------------------------------------------------------------------------
def _by_slot(topology: Topology, m: int, found: TabledIncidence) -> SlotTables:
    table, _ = _padded(found.offsets, found.entries, found.degree)
    table[~found.in_tables] = IRREGULAR
    known, kind = np.maximum(table, 0), topology.index_type
    arity = topology.maps[m][0].shape[1]
    near = {}
    for k, rows in topology.rows().items():
        seen = rows[known // arity]  # (targets, degree, arity of k)
        near[k] = np.ascontiguousarray(seen.transpose(1, 2, 0).reshape(-1, len(table)), kind)
    return SlotTables(np.ascontiguousarray(table.T, kind), near)


def slot_rows(
    code: ElementCode, m: int, addresses: set[tuple[int, int, int]], plan: Plan, *, padded: bool
) -> list[Statement]:
    """Statements that give element ``e``, slot ``s`` and the rows of the ``u``-th incident element of target ``t``; in
    a padded table ``valid`` as well, and element 0 where there is none."""
    spec, tables, u, targets = code.spec, ("gathers", m, "tables"), Name("u"), Name(f"targets{m}")
    entry: Expr = part_of(plan, *tables, "entry")[u * targets + TARGET]
    made: list[Statement] = []
    if padded:
        stored = Name("stored")
        made += [let(stored.name, entry), let(VALID.name, stored > GAP, BOOL)]
        entry = Select(VALID, stored, Number(0))
    made += entry_parts(entry, spec.maps[m].arity)
    for k, slot in code.used_rows(addresses):
        place = (u * spec.maps[k].arity + slot) * targets + TARGET
        made.append(let(row_of(k, slot).name, part_of(plan, *tables, "near", k)[place]))
    return made


# ----- symmetric ------------------------------------------------------------------------------------------------
def _symmetric_tables(topology: Topology, m: int, bare: TabledIncidence, most_lost: float) -> SymmetricTables:
    table, fits = _padded(bare.offsets, bare.entries, bare.degree)
    others = {k: rows for k, rows in topology.rows().items() if k != m}
    seen = {k: _seen(rows, table, k in topology.swapped[m]) for k, rows in others.items()}
    rings: dict[int, np.ndarray] = {}
    for k in sorted(topology.swapped[m] - {m}):
        found = find_one_rings(seen[k][:, :, 0], seen[k][:, :, 1], table >= 0)
        if not rings and (fits & ~found.closed).sum() <= most_lost * len(table):
            fits &= found.closed
            table = np.where(found.place < 0, -1, np.take_along_axis(table, np.maximum(found.place, 0), axis=1))
            seen = {k: _seen(rows, table, k in topology.swapped[m]) for k, rows in others.items()}
            rings[k] = found.nodes
    table[~fits] = -1
    other = np.where(table < 0, GAP, other_side(topology.maps[m][0], np.maximum(table, 0)))
    other[~fits] = IRREGULAR

    def flat(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array, topology.index_type).reshape(-1)

    rest = {k: flat(rows) for k, rows in seen.items() if k not in rings}
    marked = None if fits.all() else flat(np.flatnonzero(~fits))
    around = {k: flat(nodes) for k, nodes in rings.items()}
    sorting = element_order(table) if rings and topology.in_order else None
    return SymmetricTables(flat(other), flat(table), around, rest, marked, sorting)


def element_order(table: np.ndarray) -> np.ndarray:
    """(targets,): how a sorting network brings a table of entries (targets, degree) into the order of elements."""
    return exchanges(_sort_keys(table))


def _sort_keys(table: np.ndarray) -> np.ndarray:
    """Entries; gaps come last."""
    return np.where(table < 0, np.iinfo(table.dtype).max, table)


def _padded(offsets: np.ndarray, entries: np.ndarray, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """(targets, degree): up to ``degree`` entries of each target, then -1; and which targets have no more than that."""
    counts = np.diff(offsets)
    fits = counts <= degree
    if not fits.all():  # of others keep as many as there is room for
        entries = entries[np.arange(len(entries)) - np.repeat(offsets[:-1], counts) < degree]
    table = np.full((len(counts), degree), -1, entries.dtype)
    table[np.arange(degree) < counts[:, None]] = entries  # both go target by target
    return table, fits


def _seen(rows: np.ndarray, table: np.ndarray, from_own_side: bool) -> np.ndarray:
    """(targets, degree, arity): rows of a map at the elements of a table, as seen from the target's side."""
    known = np.maximum(table, 0)
    if from_own_side and rows.shape[1] == 2:  # an entry and the one beside it
        return np.stack([_flat(rows)[known], other_side(rows, known)], axis=2)
    seen = rows[known // 2]
    return np.where((known % 2 == 1)[:, :, None], seen[:, :, ::-1], seen) if from_own_side else seen


def other_side(rows: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Of entries of a map with two slots what stands in the element's other one."""
    return _flat(rows)[entries ^ 1]


def _flat(rows: np.ndarray) -> np.ndarray:
    """The entries of a map: element * arity + slot is the place of each."""
    return np.ascontiguousarray(rows).reshape(-1)


@dataclass(frozen=True, eq=False)
class NeighbourPlan(GatherPlan):
    """With tables of neighbours, for threads that would wait for one look after the other."""

    gathers: Mapping[int, TabledIncidence] = holds(
        Table(Part(TabledIncidence), racy_maps), "what leads to the targets of each map, and tables of that"
    )


def symmetric_tables(found: Incidence) -> SymmetricTables | None:
    """The symmetric tables that an incidence comes with, if any."""
    tables = found.tables if isinstance(found, TabledIncidence) else None
    return tables if isinstance(tables, SymmetricTables) else None
