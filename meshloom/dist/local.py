"""What this rank has of sets and maps: ordinary ones, for loops that are run here.

The rows of a set that are here lie in memory as they do in the whole: first those that loops visit, its own and its
exec halo together, ascending, so that a target adds up what it is given in the order of the whole mesh; then the import
halo. Sets that loops connect, and all of a mesh, are cut together, once, and keep the one ``Distribution`` that they
belong to. It knows the maps of all loops so far: where one comes that reaches further, owners stay and halos grow. Sets
whose halos stay as they were keep what is here of them, so that fields need not move, nor loops be made ready again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from meshloom.dist.distribute import owned
from meshloom.dist.halo import DistributedSet, ExchangeLists, distributed, off_rank
from meshloom.dist.ownership import everywhere
from meshloom.dist.usage import all_sets, link_of, sets_of_meshes, usage_of, with_origins
from meshloom.dist.verify import verify
from meshloom.dist.world import World
from meshloom.errors import MeshError
from meshloom.mesh.core import Field, Map, RestrictedMap, Set, Subset
from meshloom.mesh.layout import Layout
from meshloom.mesh.numbering import Rows
from meshloom.mesh.owner_mesh import lost_mesh
from meshloom.mesh.values import index_dtype
from meshloom.records import dataclass

KEPT = "ranks"  # where a set keeps its distribution
OWNERS = "owners"  # where a set keeps who owns its elements, if that is known before it is cut


class SetHere(Set):
    """What this rank has of a set."""

    exchanged = True


@dataclass(frozen=True, eq=False)
class Messages:
    """What this rank sends of a set, or receives: to or from each of the ``neighbours`` rows, by position here."""

    neighbours: tuple[int, ...] = ()
    rows: tuple[np.ndarray, ...] = ()


NOTHING = Messages()


class ByRank(NamedTuple):
    """The rows of a whole that have owners, in the order of these: so many, ``counts`` (ranks,), of each rank, and
    where they lie in the whole, ``rows``, ascending for each rank."""

    counts: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, owner: np.ndarray, ranks: int) -> ByRank:
        kind = np.uint16 if ranks <= np.iinfo(np.uint16).max else owner.dtype  # small numbers are sorted faster
        return cls(np.bincount(owner, minlength=ranks), np.argsort(owner.astype(kind, copy=False), kind="stable"))


@dataclass(frozen=True, eq=False)
class LocalSet:
    """``set``: it is visited by loops, ``here`` (total,) says where its rows lie in the whole, ``mine`` which of those
    that are visited this rank owns. ``everywhere``: every rank has the one element that there is. ``by_rank``: of a
    grid, which rows of the whole every rank owns."""

    set: Set
    here: np.ndarray
    mine: np.ndarray
    sends: Messages = NOTHING
    receives: Messages = NOTHING
    everywhere: bool = False
    by_rank: Callable[[], ByRank] | None = None
    _places: dict[tuple[Layout, int], tuple[tuple[np.ndarray, ...], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, local: Set, here: np.ndarray, mine: np.ndarray, total: int) -> LocalSet:
        """Without messages; of so many rows in the whole, which are named in 32 bits where that is enough."""
        kind = index_dtype(total, None, local.name)
        return cls(local, here.astype(kind), mine.astype(kind))

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
        place = np.full(int(self.here.max(initial=-1)) + 1, -1, self.here.dtype)  # to search takes longer
        place[self.here] = np.arange(len(self.here))
        found: np.ndarray = place[rows]
        assert (found >= 0).all(), f"what leads to {self.set.name} is here"
        return found

    def memory(self, layout: Layout, dim: int) -> np.ndarray:
        """(total, dim): where the values of a field lie in its memory."""
        total = self.set.total
        return layout.unpack(np.arange(layout.stride(total) * dim), total, dim)

    def places(self, layout: Layout, dim: int) -> tuple[tuple[np.ndarray, ...], ...]:
        """Where the values (rows, dim) of each message lie in the memory of a field: of those that are sent, and of
        those that are received."""
        if (layout, dim) not in self._places:
            at = self.memory(layout, dim)
            self._places[layout, dim] = tuple(tuple(at[rows] for rows in messages.rows)
                                              for messages in (self.sends, self.receives))  # fmt: skip
        return self._places[layout, dim]


class Distribution:
    """Sets that are cut together, as this rank sees them, for all loops so far: it grows with these.

    ``owners``: of the elements of every set. ``sets``: those whose halos are made. ``maps``: through which loops reach,
    and whether one writes there. ``uncompared``: sets and maps that ranks have not compared yet. Halos, and what is
    here of a set and of a map, are made when they are first asked for, and again where a loop has come that reaches
    further.

    Sets are kept by whoever uses them, and by the maps that halos depend on. So a part goes when nobody has it: each of
    its elements leads to itself, which no halo depends on, and where it is led by rows of a map of its set that whole
    map is there for the halos (``with_origins``).
    """

    owners: WeakKeyDictionary[Set, np.ndarray]
    sets: WeakKeyDictionary[Set, DistributedSet]
    maps: WeakKeyDictionary[Map, bool]
    uncompared: list[Set | Map]

    def __init__(self, world: World):
        self.world, self.uncompared = world, []
        self.owners, self.sets, self.maps = WeakKeyDictionary(), WeakKeyDictionary(), WeakKeyDictionary()
        self.versions: WeakKeyDictionary[Map, int] = WeakKeyDictionary()
        self._due: set[Set] = set()  # whose halos may have grown since they were made
        self._local: WeakKeyDictionary[Set, LocalSet] = WeakKeyDictionary()
        self._local_maps: WeakKeyDictionary[Map, Map] = WeakKeyDictionary()
        self._held: set[Map] = set()  # those that halos depend on: ranks would forget them at different times

    # ----- loops that come ------------------------------------------------------------------------------------------
    def serves(self, sets: Iterable[Set], maps: Mapping[Map, bool]) -> bool:
        """Has it all that loops need that reach each other so?"""
        return not self._changed(maps) and all(one in self.owners for one in sets)

    def _changed(self, maps: Mapping[Map, bool]) -> set[Map]:
        """Those that have not been reached through like this before."""
        return {one for one, updated in maps.items()
                if self.versions.get(one) != one.version or (updated and not self.maps[one])}  # fmt: skip

    def join(self, other: Distribution) -> None:
        """Have what another one has; sets belong to one."""
        self.owners |= other.owners
        self.maps |= other.maps
        self.uncompared += other.uncompared
        self.versions |= other.versions
        self.sets |= other.sets
        self._due |= other._due
        self._held |= other._held
        self._local |= other._local
        self._local_maps |= other._local_maps
        for one in other.owners:
            one.kept[KEPT] = self

    def grow(self, sets: Sequence[Set], maps: Mapping[Map, bool]) -> None:
        """Serve loops over these sets that reach each other through these maps, too."""
        changed, given = self._changed(maps), [one for one in maps if self.versions.get(one) != one.version]
        self.uncompared += given
        self._held |= {one for one in given if not (isinstance(one, RestrictedMap) or link_of(one, False).as_member)}
        self.maps |= {one: updated or self.maps.get(one, False) for one, updated in maps.items()}
        self.versions |= {one: one.version for one in given}
        moved = self._own(sets, {one: self.maps[one] for one in maps})
        changed |= {one for one in self.maps if moved & {one.source, one.target}}
        self._due |= moved | {one.target for one in self.maps if one.source in moved}  # which all ranks have looked at
        for source in {one.source for one in changed}:
            self._follow(source, changed)
        for one in given:
            self._local_maps.pop(one, None)

    def _follow(self, source: Set, changed: Collection[Map]) -> None:
        """Halos are due of a set, and of those that its elements lead to, where some of its maps have changed: all of
        them, unless elements lead to what their rank owns alone."""
        away = [one for one in self.maps if one.source is source]
        ends = {source, *(one.target for one in away)}
        made = {one for one in ends if one in self.sets}
        self._due |= ends - made
        if made and any(self._leads_off_rank(one) for one in away if one in changed or self.maps[one]):
            self._due |= made

    def _leads_off_rank(self, one: Map) -> bool:
        """Does it lead an element to one that another rank owns, or did it do so before it was given other indices?"""
        at, to = self.owners[one.source], self.owners[one.target]
        if everywhere(to) or everywhere(at):
            return not everywhere(to)
        return one.version > 0 or len(off_rank(link_of(one, False).rows, at, to)[0]) > 0

    def _own(self, sets: Sequence[Set], maps: Mapping[Map, bool]) -> set[Set]:
        """Cut those that are not, all sets of a mesh at once. Gives those that lived on every rank, and do so no
        longer."""
        if (parts := self._owned_as_parts(all_sets(sets, maps), maps)) is not None:
            self._take(parts)
            return set()
        used = usage_of([*sets, *sets_of_meshes(all_sets(sets, maps))], maps, known=self.owners)
        known = {one: owner for one in used.sizes
                 if (owner := self.owners.get(one, one.kept.get(OWNERS))) is not None}  # fmt: skip
        cutting = Rows.placement.cutting
        lost = (one for one in used.sizes if one not in known and lost_mesh(one))
        if not isinstance(cutting, str) and (first := next(lost, None)) is not None:
            raise MeshError(f"{first.name}: its mesh is gone, whose cells the given partition cuts: keep it as long"
                            " as loops use sets of it")  # fmt: skip
        found = owned(used, cutting, self.world.size, known)
        self._take(found)
        return {one for one, owner in known.items() if found[one] is not owner}

    def _take(self, found: Mapping[Set, np.ndarray]) -> None:
        """Know the owners of sets; ``uncompared`` are those of which none were known."""
        self.uncompared += [one for one in found if one not in self.owners and OWNERS not in one.kept]
        for one in found:
            one.kept[KEPT] = self
        self.owners |= found

    def _owned_as_parts(self, sets: Iterable[Set], maps: Iterable[Map]) -> dict[Set, np.ndarray] | None:
        """The owners of those of some sets that have none yet, where these are parts of others: nothing has to be found
        out for them. None where there is more to do."""
        if any(everywhere(self.owners[one.target]) for one in maps if one.target in self.owners):
            return None  # it may get an owner
        found: dict[Set, np.ndarray] = {}
        for one in (one for one in sets if one not in self.owners):
            owner = part_owner(one, self.owners)
            if owner is None:
                return None
            found[one] = owner
        return found

    # ----- what is here ---------------------------------------------------------------------------------------------
    def by_rank(self, one: Set) -> ByRank:
        """Which elements of a set every rank owns. Not kept: it is as large as the whole."""
        return ByRank.of(self.owners[one], self.world.size)

    def owned(self, one: Set) -> np.ndarray:
        """Where the elements of a set that this rank owns lie in the whole."""
        return positions_of(self.owners[one], self.world.rank)

    def halos(self, one: Set) -> DistributedSet:
        """A set over ranks, for all loops so far."""
        if one in self._due or one not in self.sets:
            self._make_halos(self._due | {one})
        return self.sets[one]

    def local(self, one: Set) -> LocalSet:
        """What is here of a set."""
        cut = self.halos(one)
        if one not in self._local:
            self._local[one] = _local_set(one, cut, self.world.rank)
        return self._local[one]

    def local_map(self, one: Map) -> Map:
        """A map for the elements that are visited here; what the others lead to is not known here."""
        source, target = self.local(one.source), self.local(one.target)
        if one not in self._local_maps:
            rows = np.zeros((source.set.total, one.arity), target.here.dtype)
            rows[: source.set.owned] = target.positions(one.positions[source.here[: source.set.owned]])
            self._local_maps[one] = Map(source.set, target.set, rows, one.name, dtype=one.index_type)
        return self._local_maps[one]

    def _make_halos(self, due: set[Set]) -> None:
        """Make those of some sets, by all maps from them and to them, and all others that begin where those do."""
        sources = {one.source for one in self.maps if due & {one.source, one.target}}
        links = [link_of(one, updated) for one, updated in self.maps.items() if one.source in sources]
        about = due.union(*((one.source, one.target) for one in links))
        sets = distributed({one: owner for one, owner in self.owners.items() if one in about}, links, self.world.size)
        if self.world.checks:
            verify(sets, links, self.world.size)
        for one in [one for one in self.owners if one in due]:  # in the same order on all ranks
            if one in self.sets and not _alike(self.sets[one], sets[one]):
                self._forget(one)
            self.sets[one] = sets[one]
        self._due = set()

    def _forget(self, one: Set) -> None:
        """What is here of a set whose halo has grown, on any rank, and of the maps that begin or end there."""
        self._local.pop(one, None)
        for map_ in [map_ for map_ in self._local_maps if one in (map_.source, map_.target)]:
            del self._local_maps[map_]


def distribution(world: World, sets: Sequence[Set], maps: Mapping[Map, bool]) -> Distribution:
    """That of some sets which loops connect by ``maps``, and of all that were connected with them before. ``maps``: is
    anything written through it?"""
    maps = with_origins(maps)
    before = dict.fromkeys(found for one in all_sets(sets, maps) if (found := one.kept.get(KEPT)) is not None)
    cut, *others = before or [Distribution(world)]
    for one in others:
        cut.join(one)
    if not cut.serves(sets, maps):
        cut.grow(sets, maps)
    return cut


def part_owner(one: Set, known: Mapping[Set, np.ndarray]) -> np.ndarray | None:
    """The owners of a part of a set whose owners are known, or of a part of such a part; None of any other set."""
    if one in known or not isinstance(one, Subset):
        return known.get(one)
    owner = part_owner(one.members.target, known)
    return None if owner is None else owner[one.members.positions[:, 0]]


def owned_alone(world: World, one: Set) -> np.ndarray:
    """Where the elements of a set that this rank owns lie in the whole. A part of a set that is cut is not cut for
    that: others need not ask, and would not know that there is one more to compare."""
    cut: Distribution | None = one.outermost.kept.get(KEPT)
    if cut is not None and one not in cut.owners and (owner := part_owner(one, cut.owners)) is not None:
        return positions_of(owner, world.rank)
    return distribution(world, [one], {}).owned(one)


def positions_of(owner: np.ndarray, rank: int) -> np.ndarray:
    """Where the elements that a rank owns lie."""
    return np.zeros(1, np.int64) if everywhere(owner) else np.flatnonzero(owner == rank)


def rows_by_rank(one: Set, on: LocalSet) -> ByRank:
    """Which rows of a set or grid, of which ``on`` is here, every rank owns."""
    if on.by_rank is not None:
        return on.by_rank()
    cut: Distribution = one.kept[KEPT]
    return cut.by_rank(one)


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
    executed, imported = (_merged([*_of_rank(layer.receives, rank).values(), own[:0]]) for layer in layers)
    visited = _merged([own, executed])
    here = np.concatenate([visited, imported])
    # maps lead somewhere, though nobody goes there, unless there is nothing at all
    rows = here if len(here) else np.zeros(min(1, len(cut.owner)), np.int64)
    mine = np.flatnonzero(cut.owner[visited] == rank)
    local = LocalSet.of(SetHere(len(visited), one.name, halo=len(rows) - len(visited)), rows, mine, one.total)
    sends, receives = (_messages([_of_rank(getattr(layer, side), rank) for layer in layers], local)
                       for side in ("sends", "receives"))  # fmt: skip
    return replace(local, sends=sends, receives=receives)


def _merged(lists: Sequence[np.ndarray]) -> np.ndarray:
    """Ascending lists as one that ascends."""
    return np.sort(np.concatenate(lists), kind="stable")  # which finds the lists, and merges them


def _of_rank(lists: ExchangeLists, rank: int) -> dict[int, np.ndarray]:
    """The rows that one rank sends or receives, by neighbour."""
    return {int(lists.neighbours[m]): lists.numbers[lists.offsets[m] : lists.offsets[m + 1]]
            for m in np.flatnonzero(lists.ranks == rank)}  # fmt: skip


def _messages(layers: Sequence[Mapping[int, np.ndarray]], local: LocalSet) -> Messages:
    """Both layers in one message for each neighbour."""
    neighbours, nothing = tuple(sorted({one for layer in layers for one in layer})), local.here[:0]
    numbers = [np.concatenate([layer.get(one, nothing) for layer in layers]) for one in neighbours]
    if not numbers:
        return NOTHING
    places, ends = local.positions(np.concatenate(numbers)), np.cumsum([0, *(len(one) for one in numbers)])
    return Messages(neighbours, tuple(places[first:last] for first, last in pairwise(ends)))
