"""What this rank has of sets and maps: ordinary ones, for loops that are run here.

The rows of a set that are here lie in memory as they do in the whole: first those that loops visit, its own and its
exec halo together, ascending, so that a target adds up what it is given in the order of the whole mesh; then the import
halo. Sets that loops connect are cut together, and keep the one ``Distribution`` that they belong to. It knows the maps
of all loops so far: one that reaches further makes another one, with the same owners and larger halos. Sets whose halos
stay as they were keep what is here of them, so that fields need not move, nor loops be made ready again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from meshloom.dist.distribute import distribute
from meshloom.dist.halo import DistributedSet, ExchangeLists
from meshloom.dist.ownership import everywhere
from meshloom.dist.usage import all_sets, usage_of
from meshloom.dist.verify import verify
from meshloom.dist.world import World
from meshloom.mesh.core import Field, Map, Set
from meshloom.mesh.layout import Layout

KEPT = "ranks"  # where a set keeps its distribution
HOW = "rcb"  # how cells of meshes are cut


class SetHere(Set):
    """What this rank has of a set."""

    exchanged = True


@dataclass(frozen=True, eq=False)
class Messages:
    """What this rank sends of a set, or receives: to or from each of the ``neighbours`` rows, by position here."""

    neighbours: tuple[int, ...] = ()
    rows: tuple[np.ndarray, ...] = ()


NOTHING = Messages()


@dataclass(frozen=True, eq=False)
class LocalSet:
    """``set``: it is visited by loops, ``here`` (total,) says where its rows lie in the whole, ``mine`` which of those
    that are visited this rank owns. ``everywhere``: every rank has the one element that there is."""

    set: Set
    here: np.ndarray
    mine: np.ndarray
    sends: Messages = NOTHING
    receives: Messages = NOTHING
    everywhere: bool = False
    _places: dict[tuple[Layout, int], tuple[tuple[np.ndarray, ...], ...]] = field(default_factory=dict)

    @property
    def visits_others(self) -> bool:
        """Do loops visit elements that other ranks own?"""
        return len(self.mine) < self.set.owned

    @cached_property
    def owned(self) -> Field:
        """1 at the elements that this rank owns, 0 at those of others."""
        mine = np.isin(np.arange(self.set.total), self.mine).astype(np.int32)
        return Field(self.set, f"owned {self.set.name}", data=mine, temporary=False)

    def positions(self, rows: np.ndarray) -> np.ndarray:
        """Where rows of the whole lie here, which all do."""
        order = np.argsort(self.here, kind="stable")
        at = np.minimum(np.searchsorted(self.here, rows, sorter=order), len(order) - 1)
        found = order[at]
        assert np.array_equal(self.here[found], rows), f"what leads to {self.set.name} is here"
        return found

    def places(self, layout: Layout, dim: int) -> tuple[tuple[np.ndarray, ...], ...]:
        """Where the values (rows, dim) of each message lie in the memory of a field: of those that are sent, and of
        those that are received."""
        if (layout, dim) not in self._places:
            total = self.set.total
            at = layout.unpack(np.arange(layout.stride(total) * dim), total, dim)
            self._places[layout, dim] = tuple(tuple(at[rows] for rows in messages.rows)
                                              for messages in (self.sends, self.receives))  # fmt: skip
        return self._places[layout, dim]


class Distribution:
    """Sets that are cut together, as this rank sees them, for all loops so far."""

    owners: dict[Set, np.ndarray]
    maps: dict[Map, bool]

    def __init__(self, world: World, sets: Iterable[Set], maps: Mapping[Map, bool], before: Sequence[Distribution]):
        known = {one: owner for found in before for one, owner in found.owners.items()}
        self.world, self.maps = world, {one: updated for found in before for one, updated in found.maps.items()}
        self.maps |= {one: updated or self.maps.get(one, False) for one, updated in maps.items()}
        self.versions = {one: one.version for one in self.maps}
        used = usage_of(dict.fromkeys([*known, *sets]), self.maps)
        self.sets: dict[Set, DistributedSet] = distribute(used, HOW, world.size, known)
        if world.checks:
            verify(self.sets, used.links, world.size)
        self.owners = {one: found.owner for one, found in self.sets.items()}
        self._local: dict[Set, LocalSet] = {}
        self._maps: dict[Map, Map] = {}
        for found in before:
            self._keep(found)
        for one in self.sets:
            one.kept[KEPT] = self

    def _keep(self, before: Distribution) -> None:
        """What is here of sets whose halos are the same on all ranks, which so find alike, and of maps between them."""
        self._local |= {one: local for one, local in before._local.items() if _alike(before.sets[one], self.sets[one])}
        for one, made in before._maps.items():
            kept = all(end in self._local for end in (one.source, one.target))
            if kept and before.versions[one] == self.versions[one]:
                self._maps[one] = made

    def serves(self, sets: Iterable[Set], maps: Mapping[Map, bool]) -> bool:
        """Has it all that loops need that reach each other so?"""
        known = all(one in self.maps and self.versions[one] == one.version and (self.maps[one] or not updated)
                    for one, updated in maps.items())  # fmt: skip
        return known and all(one in self.sets and one.kept.get(KEPT) is self for one in sets)

    def local(self, one: Set) -> LocalSet:
        """What is here of a set."""
        if one not in self._local:
            self._local[one] = _local_set(one, self.sets[one], self.world.rank)
        return self._local[one]

    def local_map(self, one: Map) -> Map:
        """A map for the elements that are visited here; what the others lead to is not known here."""
        if one not in self._maps:
            source, target = self.local(one.source), self.local(one.target)
            rows = np.zeros((source.set.total, one.arity), np.int64)
            rows[: source.set.owned] = target.positions(one.positions[source.here[: source.set.owned]])
            self._maps[one] = Map(source.set, target.set, rows, one.name, dtype=one.index_type)
        return self._maps[one]


def distribution(world: World, sets: Sequence[Set], maps: Mapping[Map, bool]) -> Distribution:
    """That of some sets which loops connect by ``maps``, and of all that were connected with them before. ``maps``: is
    anything written through it?"""
    together = all_sets(sets, maps)
    before = list(dict.fromkeys(found for one in together if (found := one.kept.get(KEPT)) is not None))
    if len(before) == 1 and before[0].serves(sets, maps):
        return before[0]
    return Distribution(world, sets, maps, before)


def _alike(one: DistributedSet, other: DistributedSet) -> bool:
    """Have all ranks the same of both?"""

    def arrays(of: DistributedSet) -> Iterator[np.ndarray]:
        yield of.owner
        for lists in (of.exec_halo.receives, of.import_halo.receives):
            yield from (lists.ranks, lists.neighbours, lists.offsets, lists.numbers)

    return all(map(np.array_equal, arrays(one), arrays(other)))


def _local_set(one: Set, cut: DistributedSet, rank: int) -> LocalSet:
    if everywhere(cut.owner):
        return LocalSet(Set(1, one.name), np.zeros(1, np.int64), np.arange(1), everywhere=True)
    own = np.flatnonzero(cut.owner == rank)
    layers = cut.exec_halo, cut.import_halo
    executed, imported = (np.sort(np.concatenate([*_of_rank(layer.receives, rank).values(), own[:0]]))
                          for layer in layers)  # fmt: skip
    visited = np.sort(np.concatenate([own, executed]))
    here = np.concatenate([visited, imported])
    # maps lead somewhere, though nobody goes there, unless there is nothing at all
    rows = here if len(here) else np.zeros(min(1, len(cut.owner)), np.int64)
    sends, receives = (_messages([_of_rank(getattr(layer, side), rank) for layer in layers], here)
                       for side in ("sends", "receives"))  # fmt: skip
    local = SetHere(len(visited), one.name, halo=len(rows) - len(visited))
    return LocalSet(local, rows, np.searchsorted(visited, own), sends, receives)


def _of_rank(lists: ExchangeLists, rank: int) -> dict[int, np.ndarray]:
    """The rows that one rank sends or receives, by neighbour."""
    return {int(lists.neighbours[m]): lists.numbers[lists.offsets[m] : lists.offsets[m + 1]]
            for m in np.flatnonzero(lists.ranks == rank)}  # fmt: skip


def _messages(layers: Sequence[Mapping[int, np.ndarray]], here: np.ndarray) -> Messages:
    """Both layers in one message for each neighbour."""
    neighbours = tuple(sorted({one for layer in layers for one in layer}))
    numbers = [np.concatenate([layer.get(one, here[:0]) for layer in layers]) for one in neighbours]
    order = np.argsort(here, kind="stable")
    return Messages(neighbours, tuple(order[np.searchsorted(here, one, sorter=order)] for one in numbers))
