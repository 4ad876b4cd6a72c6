"""The data-flow graph of a recorded program: who writes which values, who reads them, and how far away.

Every write makes a new version of a field or global. A replay follows a replay, so the graph is a cycle: what the end
of the list writes, its beginning reads in the next replay. Whether an operation may move past another one, whether a
value is needed, or a store is dead, are questions to this graph, which is made of the operations alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from meshloom.errors import ProgramError
from meshloom.mesh.core import Field, Global
from meshloom.mesh.grid import Grid
from meshloom.operation.dataflow_svg import svg
from meshloom.operation.domain import EVERYWHERE, INSIDE, Extent, Part, holds
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation

#: How far an operation looks from its element to the value that it accesses, the nearest first.
DISTANCES = SAME, OFFSETS, LINE, MAP, ONE_VALUE = ("same element", "offsets", "line", "map", "whole")
Region = Extent | Part  # which values of a field: of a grid those of a box may be named
Storage = Field | Global


class FieldUse(NamedTuple):
    """What an operation does with a field or global. ``reads``: looks at values of before, increments included;
    ``writes``: changes some in ``region``; ``covers``: all of them there, each at its own element."""

    position: int
    storage: Storage
    reads: bool
    writes: bool
    covers: bool
    distance: str
    region: Region


@dataclass(frozen=True)
class Version:
    """The values of a field or global between two writes. ``defined_at``: the position of the operation that makes it,
    None for what is there before the first replay; ``read_at``: positions of those that read it, of the next replay
    those at most at ``defined_at``."""

    storage: Storage
    number: int
    defined_at: int | None
    read_at: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.storage.name}.{self.number}"


@dataclass(frozen=True)
class Dependence:
    """Why an operation has to wait for another one. ``kind``: flow (it reads what that writes), anti (it writes what
    that reads) or output (both write). ``replays``: 0 within a replay, 1 from one to the next."""

    kind: str
    field: Storage
    producer: Operation
    consumer: Operation
    distance: str
    replays: int

    def __str__(self) -> str:
        later = ", in the next replay" if self.replays else ""
        return f"{self.producer.name} -> {self.consumer.name}: {self.kind} of {self.field.name}, {self.distance}{later}"


class Dataflow:
    """The operations of a program, in order, and what passes between them."""

    def __init__(self, operations: Sequence[Operation]):
        self.operations = tuple(operations)

    @cached_property
    def accesses(self) -> dict[Storage, list[FieldUse]]:
        """Of each field and global, in the order of the operations."""
        found: dict[Storage, list[FieldUse]] = {}
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

    # ----- dependences --------------------------------------------------------------------------------------------
    def dependences(self, first: str | int | Operation | None = None, then: str | int | Operation | None = None
                    ) -> tuple[Dependence, ...]:  # fmt: skip
        """Those of one operation on an earlier one: by name, position or the operations themselves; unsaid: of all."""
        producers, consumers = self._positions(first), self._positions(then)
        return tuple(
            one for (a, b), found in self._dependences.items() if a in producers and b in consumers for one in found
        )

    def may_swap(self, first: int, then: int) -> bool:
        """May two neighbours of one replay run in the other order?"""
        return not any(one.replays == 0 for one in self._dependences.get((first, then), ()))

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
                of[key] = Dependence(kind, a.storage, *ends, distance, replays)
        return {pair: list(found[pair].values()) for pair in sorted(found)}

    def _positions(self, which: str | int | Operation | None) -> set[int]:
        if which is None:
            return {*range(len(self.operations))}
        if isinstance(which, int) and not isinstance(which, bool):
            found = {which} & {*range(len(self.operations))}
        else:
            found = {k for k, one in enumerate(self.operations) if one is which or one.name == which}
        if not found:
            named = f"operation {which}" if isinstance(which, str | int) else repr(which)
            there = ", ".join(dict.fromkeys(one.name for one in self.operations))
            raise ProgramError(f"{named} is not in this program; there are {there}")
        return found

    # ----- values -------------------------------------------------------------------------------------------------
    @cached_property
    def versions(self) -> tuple[Version, ...]:
        """Of each field and global what is there at first, and one for every operation that writes it."""
        found: list[Version] = []
        for storage, accesses in self.accesses.items():
            writers = list(dict.fromkeys(one.position for one in accesses if one.writes))
            read: dict[int | None, list[int]] = {position: [] for position in (None, *writers)}
            for one in accesses:
                if one.reads:
                    within = any(k < one.position for k in writers if _meets(accesses, k, one))
                    for last in (_last_writer(accesses, one), None)[: 1 if within else 2]:
                        read[last] += [] if one.position in read[last] else [one.position]
            found += [Version(storage, k, p, tuple(read[p])) for k, p in enumerate((None, *writers))]
        return tuple(found)

    def is_live(self, one: Storage, position: int, region: Region = EVERYWHERE) -> bool:
        """Will a value that is there before the operation at a position be read before it is replaced? After a replay a
        user may look at any field and global but temporary ones, and the next replay at these."""
        temporary = isinstance(one, Field) and one.transient
        touching = self._touching.get(one, ())
        rest, again = ([k for k in touching if (k >= position) == here] for here in (True, False))
        for operation in (self.operations[k] for k in (*rest, *(again if temporary else ()))):
            if operation.defines(one, region):
                return False
            if one in operation.reads:
                return True
        return not temporary

    def undefined(self) -> Iterator[tuple[Operation, Field]]:
        """Temporary fields that an operation reads though nothing was written to them in the same replay."""
        for one, accesses in self.accesses.items():
            if isinstance(one, Field) and one.transient:
                for position in dict.fromkeys(a.position for a in accesses):
                    operation = self.operations[position]
                    if operation.needs(one):
                        yield operation, one
                    if any(a.writes for a in accesses if a.position == position):
                        break

    def __str__(self) -> str:
        """The operations in order, what each reads, by version, and what it makes."""
        said = []
        for k, one in enumerate(self.operations):
            read = [f"{v}{'' if v.defined_at is None or v.defined_at < k else ' (of the replay before)'}"
                    for v in self.versions if k in v.read_at]  # fmt: skip
            made = [str(v) for v in self.versions if v.defined_at == k]
            reads, makes = (", ".join(dict.fromkeys(names)) for names in (read, made))
            said.append(f"{k}  {one.name} over {one.over}" + (f", reads {reads}" if reads else "") + (
                f", makes {makes}" if makes else ""))  # fmt: skip
        return "\n".join(said)

    def svg(self, groups: Sequence[Sequence[Operation]] = ()) -> str:
        """The graph as a picture. ``groups``: operations that run as one loop get a frame."""
        return svg(self, groups)

    def _repr_html_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"Dataflow({len(self.operations)} operations, {len(self.versions)} versions)"


# ----- accesses ---------------------------------------------------------------------------------------------------
def _access(position: int, operation: Operation, one: Operand) -> FieldUse:
    mode, region, distance = one.mode, _region(operation, one), _distance(one)
    at_own = one.reach.map is None and not one.reach.looks_around and operation.domain.covers(one.storage, region)
    reads, writes = mode.reads or bool(mode.combine), mode.writes
    return FieldUse(position, one.storage, reads, writes, writes and at_own, distance, region)


def _distance(one: Operand) -> str:
    if one.is_global:
        return ONE_VALUE
    if one.reach.along_line:
        return LINE
    if one.reach.map is not None and not one.reach.as_member:
        return MAP
    return OFFSETS if one.reach.looks_around else SAME


def _region(operation: Operation, one: Operand) -> Region:
    """Where an operation may touch a field: all of it, unless points of a box are named."""
    field, box = one.storage, operation.box
    if not isinstance(field, Field) or one.reach.map is not None or operation.domain.all_memory:
        return EVERYWHERE
    if not isinstance(field.set, Grid):
        return INSIDE if field.set.halo else EVERYWHERE
    if box is None or box.grid is not field.set:
        return (0,) * field.set.rank, field.set.shape
    if operation.domain.part is None and not one.reach.looks_around:
        return EVERYWHERE
    offsets = one.reach.offsets.offsets if one.reach.offsets is not None else ((0,) * box.grid.rank,)
    low, high = [], []
    for axis in range(box.grid.rank):
        steps = [offset[axis] for offset in offsets]
        if box.grid.wraps[axis] and any(box.reaches_out(axis, step) for step in steps):
            return EVERYWHERE
        low.append(box.low[axis] + min(steps))
        high.append(box.high[axis] + max(steps))
    return tuple(low), tuple(high)


def _overlap(one: Region, other: Region) -> bool:
    """Is there a value in both?"""
    if isinstance(one, Extent) or isinstance(other, Extent):
        return True
    ends = zip(one[0], one[1], other[0], other[1], strict=True)
    return all(a < d and c < b for a, b, c, d in ends)


def _contains(outer: Region, inner: Region) -> bool:
    if outer is EVERYWHERE or outer == inner:
        return True
    return not isinstance(outer, Extent) and not isinstance(inner, Extent) and holds(outer, inner)


def _meets(accesses: Sequence[FieldUse], position: int, read: FieldUse) -> bool:
    """Does the operation at a position write values that another one reads?"""
    return any(a.writes and a.position == position and _overlap(a.region, read.region) for a in accesses)


def _last_writer(accesses: Sequence[FieldUse], read: FieldUse) -> int | None:
    """Who has last changed something of what an operation reads, in this replay or the one before."""
    found = [a.position for a in accesses if a.writes and _overlap(a.region, read.region)]
    before = [position for position in found if position < read.position]
    return max(before or found, default=None)


def _pairs(accesses: Sequence[FieldUse]) -> Iterator[tuple[str, FieldUse, FieldUse, int]]:
    """Kinds of dependence, the earlier access, the later one, and how many replays are between them. Writes that cover
    all that the later one touches end the search: what lies before them is ordered by them."""
    for number, later in enumerate(accesses):
        for back in range(1, len(accesses) + 1):
            earlier, replays = accesses[number - back], int(number < back)
            if (earlier.position == later.position and not replays) or not _overlap(earlier.region, later.region):
                continue
            if earlier.writes and later.reads:
                yield "flow", earlier, later, replays
            if earlier.reads and later.writes:
                yield "anti", earlier, later, replays
            if earlier.writes and later.writes:
                yield "output", earlier, later, replays
            if earlier.covers and _contains(earlier.region, later.region):
                break
