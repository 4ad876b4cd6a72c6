"""The data-flow graph of a recorded program: who writes which values, who reads them, and how far away.

Every write makes a new version of a field or global. A replay follows a replay, so the graph is a cycle: what the end
of the list writes, its beginning reads in the next replay. Whether an operation may move past another one, whether a
value is needed, or a store is dead, are questions to this graph, which is made of the operations alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, product
from types import MappingProxyType
from typing import NamedTuple

from meshloom.errors import ProgramError, one_line, shown
from meshloom.mesh.core import Field, Global
from meshloom.mesh.grid import Grid
from meshloom.operation.dataflow_svg import Arrow, svg
from meshloom.operation.domain import EVERYWHERE, INSIDE, Extent, Part, Region, contains, overlap, without
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.records import dataclass

#: How far an operation looks from its element to the value that it accesses, the nearest first.
DISTANCES = SAME, OFFSETS, LINE, MAP, ALL_ELEMENTS = ("same element", "offsets", "line", "map", "whole")
Storage = Field | Global
Which = str | int | Operation  # of a program: by its name, which all calls have, its position, or as itself


class DataAccess(NamedTuple):
    """What an operation does with a field or global. ``reads``: looks at values of before, increments included;
    ``writes``: changes some in ``region``; ``covers``: all of them there, each at its own element. ``exact``: are all
    values of the region touched, and not only some of them?"""

    position: int
    storage: Storage
    reads: bool
    writes: bool
    covers: bool
    distance: str
    region: Region
    exact: bool = True


@dataclass(frozen=True)
class Version:
    """The values of a field or global between two writes. ``defined_at``: the position of the operation that makes it,
    None for what is there before the first replay; ``read_at``: positions of those that read it, or write to a part of
    it and so keep the rest; of the next replay those at most at ``defined_at``."""

    storage: Storage
    number: int
    defined_at: int | None
    read_at: tuple[int, ...] = ()

    @property
    def lasts(self) -> bool:
        """May it be looked at after a replay?"""
        return not (isinstance(self.storage, Field) and self.storage.temporary)

    def __str__(self) -> str:
        return f"{self.storage.name}.{self.number}"


@dataclass(frozen=True)
class Dependence:
    """Why an operation has to wait for another one. ``kind``: flow (it reads what that writes), anti (it writes what
    that reads) or output (both write). ``replays``: 0 within a replay, 1 from one to the next. ``producer_at``,
    ``consumer_at``: their positions, since an operation may be called more than once."""

    kind: str
    field: Storage
    producer: Operation
    consumer: Operation
    distance: str
    replays: int
    producer_at: int
    consumer_at: int

    def __str__(self) -> str:
        later = ", in the next replay" if self.replays else ""
        return f"{self.producer.name} -> {self.consumer.name}: {self.kind} of {self.field.name}, {self.distance}{later}"

    def __repr__(self) -> str:
        """Short, since many of them are shown at once."""
        return f"Dependence({self})"


class Dataflow:
    """The operations of a program, in order, and what passes between them. ``carried``: where they are those between
    two calls, temporary fields whose values live across one, each with whether somebody looks at it behind them."""

    carried: Mapping[Field, bool] = MappingProxyType({})

    def __init__(self, operations: Sequence[Operation], carried: Mapping[Field, bool] = carried):
        self.operations, self.carried = tuple(operations), carried

    def with_operations(self, operations: Sequence[Operation]) -> Dataflow:
        """Others that do the same."""
        return Dataflow(operations, self.carried)

    def is_temporary(self, one: Storage) -> bool:
        """Is it a field that has no values before a replay, nor behind it?"""
        return isinstance(one, Field) and one.temporary and one not in self.carried

    @cached_property
    def accesses(self) -> dict[Storage, list[DataAccess]]:
        """Of each field and global, in the order of the operations."""
        found: dict[Storage, list[DataAccess]] = {}
        for position, operation in enumerate(self.operations):
            for one in operation.operands:
                found.setdefault(one.storage, []).append(_access(position, operation, one))
        return found

    @cached_property
    def _touching(self) -> dict[Storage, list[int]]:
        """Of each field and global the positions of operations that use it."""
        found: dict[Storage, list[int]] = {}
        for position, operation in enumerate(self.operations):
            for one in dict.fromkeys(operation.storages):
                found.setdefault(one, []).append(position)
        return found

    @cached_property
    def _uses(self) -> list[list[tuple[list[DataAccess], int]]]:
        """Of each operation its accesses: those of the same field or global, and its place among them."""
        found: list[list[tuple[list[DataAccess], int]]] = [[] for _ in self.operations]
        for accesses in self.accesses.values():
            for number, one in enumerate(accesses):
                found[one.position].append((accesses, number))
        return found

    def accessed(self, position: int, end: int) -> Iterator[DataAccess]:
        """What operations from a position on, before ``end``, do with fields and globals."""
        return (accesses[number] for uses in self._uses[position:end] for accesses, number in uses)

    # ----- of all operations, in whatever order they run ----------------------------------------------------------
    @cached_property
    def storages(self) -> tuple[Storage, ...]:
        """Fields and globals that they use, each once."""
        return tuple(self._touching)

    @cached_property
    def written(self) -> tuple[Storage, ...]:
        """What they change, each once."""
        return tuple(dict.fromkeys(one for operation in self.operations for one in operation.writes))

    @cached_property
    def read(self) -> tuple[Storage, ...]:
        """What they need to know, each once (``Operation.reads``)."""
        return tuple(dict.fromkeys(one for operation in self.operations for one in operation.reads))

    # ----- dependences --------------------------------------------------------------------------------------------
    def dependences(self, first: Which | None = None, then: Which | None = None) -> tuple[Dependence, ...]:
        """Those of one operation on an earlier one: by name, position or the operations themselves; unsaid: of all."""
        everything = range(len(self.operations))
        producers, consumers = (everything if one is None else self._positions(one) for one in (first, then))
        return tuple(
            one for (a, b), found in self._dependences.items() if a in producers and b in consumers for one in found
        )

    def between(self, first: Which, then: Which) -> tuple[Dependence, ...]:
        """Those of one operation on another, by name, position or the operations themselves: of all calls of both."""
        pairs = product(self._positions(first), self._positions(then))
        return tuple(one for pair in pairs for one in self._dependences.get(pair, ()))

    def may_swap(self, first: Which, then: Which) -> bool:
        """May two neighbours of one replay run in the other order, whichever of them comes first?"""
        both = (*self.between(first, then), *self.between(then, first))
        return not any(one.replays == 0 for one in both)

    def into(self, position: int, since: int = 0) -> Iterator[tuple[str, DataAccess, DataAccess]]:
        """What the operation at a position has to wait for within a replay, among those from ``since`` on: the kind of
        dependence, the earlier access and its own."""
        for accesses, number in self._uses[position]:
            for kind, earlier, replays in _earlier(accesses, number):
                if replays or earlier.position < since:
                    break
                yield kind, earlier, accesses[number]

    def waits(self) -> list[set[int]]:
        """Of each operation the earlier ones of a replay that it has to wait for; not all that these wait for."""
        return [set(self._waited_for(k)) for k in range(len(self.operations))]

    def _waited_for(self, position: int) -> Iterator[int]:
        """The search ends at a write of all that is touched: whoever touched it before, the writer has waited for."""
        for accesses, number in self._uses[position]:
            for _, earlier, replays in _earlier(accesses, number):
                if replays:
                    break
                yield earlier.position
                if earlier.writes and contains(earlier.region, accesses[number].region):
                    break

    @cached_property
    def _dependences(self) -> dict[tuple[int, int], list[Dependence]]:
        found: dict[tuple[int, int], dict[tuple[str, Storage, int], Dependence]] = {}
        for accesses in self.accesses.values():
            for kind, a, b, replays in _pairs(accesses):
                key, of = (kind, a.storage, replays), found.setdefault((a.position, b.position), {})
                distance = max(a.distance, b.distance, key=DISTANCES.index)
                if key in of:
                    distance = max(distance, of[key].distance, key=DISTANCES.index)
                ends = self.operations[a.position], self.operations[b.position]
                of[key] = Dependence(kind, a.storage, *ends, distance, replays, a.position, b.position)
        return {pair: list(found[pair].values()) for pair in sorted(found)}

    def _positions(self, which: Which) -> Sequence[int]:
        """Where an operation is called; ProgramError for what is none of this program."""
        if type(which) is int:
            found = [which] if 0 <= which < len(self.operations) else []
        else:
            name = which if isinstance(which, str) else None
            found = [k for k, one in enumerate(self.operations) if one is which or one.name == name]
        if not found:
            named = f"operation {which}" if isinstance(which, str | int) else shown(which)
            there = ", ".join(dict.fromkeys(one.name for one in self.operations))
            raise ProgramError(one_line(f"{named} is not in this program; there are {there}"))
        return found

    # ----- values -------------------------------------------------------------------------------------------------
    @cached_property
    def versions(self) -> tuple[Version, ...]:
        """Of each field and global what is there at first, and one for every operation that writes it."""
        return tuple(one for versions in self._versions.values() for one in versions)

    @cached_property
    def _versions(self) -> dict[Storage, list[Version]]:
        return {one: _versions_of(one, accesses) for one, accesses in self.accesses.items()}

    def definitions(self, one: Storage, position: int, end: int) -> list[int]:
        """Operations from a position on, before ``end``, that make a new version of a field or global."""
        made = (version.defined_at for version in self._versions.get(one, ()))
        return [k for k in made if k is not None and position <= k < end]

    def changed_by(self, one: Storage, position: int, end: int) -> Operation | None:
        """The first of them; None where what is there before ``end`` is the version of before the position."""
        return next((self.operations[k] for k in self.definitions(one, position, end)), None)

    def uses(self, one: Storage, position: int) -> list[int]:
        """The def-use chain of the version that the operation at a position makes: those behind it, to the end of the
        replay, that look at it."""
        (made,) = [version for version in self._versions[one] if version.defined_at == position]
        return [k for k in made.read_at if k > position and self.operations[k].needs(one)]

    def exposed_uses(self) -> Iterator[tuple[Operation, Storage]]:
        """What operations look at before any of the replay has written to it: a value of before (upward exposed)."""
        for k, operation in enumerate(self.operations):
            for one in dict.fromkeys(operation.storages):
                if k in self._versions[one][0].read_at and operation.needs(one):
                    yield operation, one

    def written_region(self, one: Storage, position: int, end: int) -> Region:
        """Where operations from a position on, before ``end``, write to a field; everywhere if that is not one box."""
        found = {access.region for access in self.accessed(position, end) if access.storage is one and access.writes}
        return found.pop() if len(found) == 1 else EVERYWHERE

    def next_use(self, one: Storage, position: int) -> int:
        """The first operation from a position on that uses a field or global; behind the last one where none does."""
        return next((k for k in self._touching.get(one, ()) if k >= position), len(self.operations))

    def consumers(self, one: Storage, position: int, region: Region = EVERYWHERE) -> list[int]:
        """Operations from a position on, to the end of the replay, that read the value that is there before it, or
        write to a part of it and so keep the rest. ``region``: where it was written."""
        behind = [k for k in self._touching.get(one, ()) if k >= position]
        return [k for k in self._readers(one, behind, region) if k is not None]

    def is_live(self, one: Storage, position: int, region: Region = EVERYWHERE) -> bool:
        """Will a value that is there before the operation at a position be read before it is replaced? ``region``:
        where it was written. After a replay a user may look at any field and global but temporary ones, and the next
        replay at these."""
        temporary = self.is_temporary(one)
        touching = self._touching.get(one, ())
        rest, again = ([k for k in touching if (k >= position) == here] for here in (True, False))
        for k in self._readers(one, (*rest, *(again if temporary else ())), region):
            return k is not None
        return not temporary and (not isinstance(one, Field) or self.carried.get(one, True))

    def is_read_first(self, one: Storage, region: Region = EVERYWHERE) -> bool:
        """Does a replay look at a value that was there before it?"""
        return any(k is not None for k in islice(self._readers(one, self._touching.get(one, ()), region), 1))

    def _readers(self, one: Storage, positions: Sequence[int], region: Region) -> Iterator[int | None]:
        """Those of some operations, in this order, that read a value; None, as the last, where it is replaced."""
        for k in positions:
            if self.operations[k].defines(one, region):
                yield None
                return
            if one in self.operations[k].reads:
                yield k

    def temporaries_across_calls(self) -> set[Field]:
        """Temporary fields that a function of Python's leaves alone and somebody reads behind it, or that it uses."""
        calls = [(k, one) for k, one in enumerate(self.operations) if one.domain.is_call]
        used = {s for _, one in calls for s in one.temporary_fields if not one.defines(s)}
        written = [(a, field) for field, accesses in self.accesses.items() for a in accesses
                   if a.writes and isinstance(field, Field) and field.temporary]  # fmt: skip
        return used | {field for a, field in written
                       if any(a.position < k and self.consumers(field, k, a.region) for k, _ in calls)}  # fmt: skip

    def uniform_at_end(self) -> dict[Field, float]:
        """Fields that are one number everywhere when a replay ends, by the last write to each: the next one finds that.
        Not temporary ones, whose values end with the replay, nor those that other ranks write to."""
        found: dict[Field, float] = {}
        for one, accesses in self.accesses.items():
            writers = [access.position for access in accesses if access.writes]
            if isinstance(one, Field) and writers and not one.temporary and not one.set.halo:
                value = number_set(self.operations[writers[-1]], one)
                if value is not None:
                    found[one] = value
        return found

    def ended_by(self, one: Field) -> Operation | None:
        """The first call behind which a temporary field has no values."""
        touching = (self.operations[k] for k in self._touching.get(one, ()))
        return next((each for each in touching if each.domain.is_call and each.defines(one)), None)

    def undefined(self) -> Iterator[tuple[Operation, Field]]:
        """Temporary fields of which an operation reads values that nothing has written in the same replay."""
        for one, accesses in self.accesses.items():
            if isinstance(one, Field) and one.temporary:
                written: list[Region] = []
                for position in self._touching[one]:
                    operation, mine = self.operations[position], [a for a in accesses if a.position == position]
                    if operation.domain.is_call and operation.defines(one):  # it ends here
                        written.clear()
                        continue
                    reads = [_as_box(one, a) for a in mine if a.reads]
                    if operation.needs(one) and not all(_is_written(region, written) for region in reads):
                        yield operation, one
                    written += [a.region if a.covers else EVERYWHERE for a in mine if a.writes]

    def __str__(self) -> str:
        """The operations in order, what each reads, by version, and what it makes."""
        read: dict[int, list[str]] = {}
        made: dict[int | None, list[str]] = {}
        for version in self.versions:
            made.setdefault(version.defined_at, []).append(str(version))
            for k in version.read_at:
                later = version.defined_at is not None and version.defined_at >= k
                read.setdefault(k, []).append(f"{version}{' (of the replay before)' if later else ''}")
        said = []
        for k, one in enumerate(self.operations):
            parts = [f"{k}  {one.name} over {one.over}"]
            parts += [f"reads {', '.join(read[k])}"] if k in read else []
            parts += [f"makes {', '.join(made[k])}"] if k in made else []
            said.append(", ".join(parts))
        return "\n".join(said)

    def svg(self, groups: Sequence[Sequence[Operation]] = ()) -> str:
        """The graph as a picture. ``groups``: operations that run as one loop get a frame."""
        texts = [(one.name, f"over {one.over}") for one in self.operations]
        rows = [[k for k, one in enumerate(self.operations) if one in group] for group in groups]
        return svg(texts, list(self._arrows()), rows)

    def _arrows(self) -> Iterator[Arrow]:
        """Who reads what whom makes; those to the next replay lead back."""
        for version in self.versions:
            first = version.defined_at
            if first is None:
                continue
            for consumer in version.read_at:
                flows = [d for d in self.between(first, consumer) if d.kind == "flow" and d.field is version.storage]
                far = next((d.distance for d in flows), "same element")  # no flow where the rest of it is kept
                yield Arrow(first, consumer, str(version) if far == "same element" else f"{version} ({far})")

    def _repr_html_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"Dataflow({len(self.operations)} operations, {len(self.versions)} versions)"


# ----- accesses ---------------------------------------------------------------------------------------------------
def _access(position: int, operation: Operation, one: Operand) -> DataAccess:
    mode, (region, exact), called = one.mode, _region_and_exact(operation, one), operation.domain.is_call
    distance = ALL_ELEMENTS if called else _distance(one)
    at_own = operation.defines(one.storage) if called else one.pattern.map is None and not one.pattern.looks_around
    reads, writes = mode.reads or bool(mode.combine), mode.writes
    return DataAccess(position, one.storage, reads, writes, writes and at_own, distance, region, exact)


def _distance(one: Operand) -> str:
    if one.is_global:
        return ALL_ELEMENTS
    if one.pattern.along_line:
        return LINE
    if one.pattern.map is not None and not one.pattern.as_member:
        return MAP
    return OFFSETS if one.pattern.looks_around else SAME


def _region_and_exact(operation: Operation, one: Operand) -> tuple[Region, bool]:
    """Where an operation may touch a field: all of it, unless points of a box are named; and whether all values there
    are touched: not of an axis round whose end an operation looks."""
    field, domain = one.storage, operation.domain
    if not isinstance(field, Field) or one.pattern.map is not None or domain.all_memory or domain.is_call:
        return EVERYWHERE, True
    if not isinstance(field.set, Grid):
        return INSIDE if field.set.halo else EVERYWHERE, True
    if domain.along_lines:
        return ((0,) * field.set.rank, field.set.shape), True
    box = operation.box
    if box is None or box.grid is not field.set or (domain.part is None and not one.pattern.looks_around):
        return EVERYWHERE, True
    offsets = one.pattern.offsets.offsets if one.pattern.offsets is not None else ((0,) * box.grid.rank,)
    low, high, exact, everything = [], [], True, box.grid.everything
    for axis in range(box.grid.rank):
        steps = [offset[axis] for offset in offsets]
        rounds = box.grid.wraps[axis] and any(box.reaches_out(axis, step) for step in steps)
        low.append(everything.low[axis] if rounds else box.low[axis] + min(steps))
        high.append(everything.high[axis] if rounds else box.high[axis] + max(steps))
        exact = exact and not rounds
    return (tuple(low), tuple(high)), exact


def number_set(operation: Operation, one: Field) -> float | None:
    """The number that an operation sets all of a field to; None where it does not."""
    if operation.domain.along_lines or not operation.domain.covers(one, EVERYWHERE):
        return None
    outputs = [o for o in operation.graph.outputs if operation.storages[o.param] is one]
    if any(operation.operands[o.param].mode.combine for o in outputs):
        return None
    values = {o.value for o in outputs}  # nodes: 0.0 and -0.0 are two
    if len(values) != 1 or len(outputs) != one.dim or outputs[0].value.op != "const":
        return None
    number: float = outputs[0].value.value
    return number


def _versions_of(storage: Storage, accesses: Sequence[DataAccess]) -> list[Version]:
    """Those of one field or global, in order."""
    writers: list[int | None] = [None, *dict.fromkeys(one.position for one in accesses if one.writes)]
    read: list[list[int]] = [[] for _ in writers]
    by_position: dict[int, list[DataAccess]] = {}
    for one in accesses:
        by_position.setdefault(one.position, []).append(one)
    now = 0  # which version is there, of the first replay
    for position, mine in by_position.items():
        replaces = any(one.covers and one.region is EVERYWHERE for one in mine)
        if not replaces or any(one.reads for one in mine):
            before = {now, len(writers) - 1} if now == 0 else {now}  # the last one, from the second replay on
            for number in before:
                read[number].append(position)
        now += any(one.writes for one in mine)
    numbered = zip(writers, read, strict=True)
    return [Version(storage, k, at, tuple(readers)) for k, (at, readers) in enumerate(numbered)]


def _as_box(field: Field, read: DataAccess) -> Region:
    """All points of a grid as a box, unless some of them only may be read."""
    if not read.exact:
        return EVERYWHERE
    if read.region is not EVERYWHERE or read.distance != SAME or not isinstance(field.set, Grid):
        return read.region
    box = field.set.everything
    return box.low, box.high


def _is_written(region: Region, written: Sequence[Region]) -> bool:
    """May all values of a region have been written? A region that is no box may be, once something was."""
    if isinstance(region, Extent) or any(isinstance(one, Extent) for one in written):
        return bool(written)
    left: list[Part] = [region]
    for one in written:
        assert not isinstance(one, Extent)
        left = [rest for part in left for rest in without(part, one)]
    return not left


def _pairs(accesses: Sequence[DataAccess]) -> Iterator[tuple[str, DataAccess, DataAccess, int]]:
    """Kinds of dependence, the earlier access, the later one, and how many replays are between them."""
    for number, later in enumerate(accesses):
        for kind, earlier, replays in _earlier(accesses, number):
            yield kind, earlier, later, replays


def _earlier(accesses: Sequence[DataAccess], number: int) -> Iterator[tuple[str, DataAccess, int]]:
    """What one access of a field depends on, the latest first: the kind, the other access, the replays in between.
    Writes that cover all that it touches end the search: what lies before them is ordered by them."""
    later = accesses[number]
    for back in range(1, len(accesses) + 1):
        earlier, replays = accesses[number - back], int(number < back)
        if (earlier.position == later.position and not replays) or not overlap(earlier.region, later.region):
            continue
        if earlier.writes and later.reads:
            yield "flow", earlier, replays
        if earlier.reads and later.writes:
            yield "anti", earlier, replays
        if earlier.writes and later.writes:
            yield "output", earlier, replays
        if earlier.covers and contains(earlier.region, later.region):
            return
