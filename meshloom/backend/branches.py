"""Which operations of a program may run at the same time, found from what each of them reads and writes.

Pure functions: nothing here knows a device. ``cuda/graph.py`` makes the branches of a graph from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from meshloom.backend.base import Bound
from meshloom.mesh.core import Field

Range = tuple[int, int]


@dataclass(frozen=True)
class BranchPart:
    """Some memory: all of it, or of a grid's field the points with first <= index < last along every axis."""

    memory: Hashable
    box: tuple[Range, ...] | None = None

    def meets(self, other: BranchPart) -> bool:
        """Is there a value that both have?"""
        if self.memory != other.memory:
            return False
        if self.box is None or other.box is None:
            return True
        return all(a[0] < b[1] and b[0] < a[1] for a, b in zip(self.box, other.box, strict=True))


@dataclass(frozen=True)
class Footprint:
    """What an operation reads and writes. What it writes need not stand in ``reads`` to be ordered."""

    reads: tuple[BranchPart, ...] = ()
    writes: tuple[BranchPart, ...] = ()

    @cached_property
    def _memories(self) -> tuple[frozenset[Hashable], frozenset[Hashable]]:
        """Of all that is touched, and of what is written."""
        written = frozenset(part.memory for part in self.writes)
        return written.union(part.memory for part in self.reads), written

    def conflicts(self, other: Footprint) -> bool:
        """Does one of the two write what the other one reads or writes?"""
        (touched, written), (also_touched, also_written) = self._memories, other._memories
        if touched.isdisjoint(also_written) and written.isdisjoint(also_touched):
            return False  # the usual answer, quickly
        mine = any(w.meets(x) for w in self.writes for x in (*other.reads, *other.writes))
        return mine or any(w.meets(x) for w in other.writes for x in self.reads)


# ----- what operations touch --------------------------------------------------------------------------------------
def footprint_of(bound: Bound, scratch: Iterable[Any]) -> Footprint:
    """Of a loop. ``scratch``: arrays of its executable, which two calls of it share; arrays go by identity."""
    reads = tuple(BranchPart(id(s.storage), _visited(bound, k)) for k, s in enumerate(bound.storages))
    writes = tuple(part for part, param in zip(reads, bound.spec.params, strict=True) if param.mode.writes)
    return Footprint(reads, (*writes, *(BranchPart(id(array)) for array in scratch)))


def footprint_of_whole(reads: Iterable[Any], writes: Iterable[Any]) -> Footprint:
    """Of an operation on whole fields and globals."""
    return Footprint(*(tuple(BranchPart(id(one.storage)) for one in those) for those in (reads, writes)))


def _visited(bound: Bound, param: int) -> tuple[Range, ...] | None:
    """The points in memory at which a loop over a box sees a field, or some more; None for all."""
    box, storage = bound.box, bound.storages[param]
    if box is None or not isinstance(storage, Field) or storage.set is not box.grid:
        return None
    offsets = bound.spec.params[param].offsets or ((0,) * box.grid.rank,)
    ranges = []
    for axis, (low, high) in enumerate(zip(box.stored_low, box.stored_high, strict=True)):
        steps = [one[axis] for one in offsets]
        round_the_end = box.grid.wraps[axis] and any(box.reaches_out(axis, step) for step in steps)
        ranges.append((0, box.grid.stored[axis]) if round_the_end else (low + min(steps), high + max(steps)))
    return tuple(ranges)


# ----- their order ------------------------------------------------------------------------------------------------
def dependencies(footprints: Sequence[Footprint | None]) -> list[tuple[int, ...]]:
    """For each operation the earlier ones that it has to wait for, latest first, without those that these wait for.

    An operation that cannot say what it touches (None) waits for all before it, and all behind it wait for it.
    """
    found: list[tuple[int, ...]] = []
    before: list[int] = []  # of each operation: all that must be done first, as bits
    for k, mine in enumerate(footprints):
        direct, known = [], 0
        for j in range(k - 1, -1, -1):  # what j waits for comes before it, so it is dropped in time
            theirs = footprints[j]
            if not known >> j & 1 and (mine is None or theirs is None or mine.conflicts(theirs)):
                direct.append(j)
                known |= before[j] | 1 << j
        found.append(tuple(direct))
        before.append(known)
    return found


@dataclass(frozen=True)
class Turn:
    """When an operation runs: after the one before it in its branch, and after some of other branches."""

    branch: int
    waits: tuple[int, ...] = ()


def in_branches(needed: Sequence[Sequence[int]], most: int) -> list[Turn]:
    """Operations dealt out to at most so many branches, from those that each waits for; the first goes to branch 0.

    One continues the branch of an operation that it waits for, where no other one has; else it takes a fresh branch,
    else one that ends with something it waits for anyway, else the one whose end is the longest ago.
    """
    found: list[Turn] = []
    before: list[int] = []  # of each operation: all that are done before it begins, as bits
    ends: dict[int, int] = {}  # of each branch: its last operation
    for k, needs in enumerate(needed):
        done = 0
        for j in needs:
            done |= before[j] | 1 << j
        continued = [found[j].branch for j in needs if ends[found[j].branch] == j]
        implied = [branch for branch, end in ends.items() if done >> end & 1]
        if continued:
            branch = continued[0]
        elif len(ends) < most:
            branch = len(ends)
        else:
            branch = implied[0] if implied else min(ends, key=ends.__getitem__)
        if branch in ends:
            done |= before[ends[branch]] | 1 << ends[branch]
        before.append(done)
        ends[branch] = k
        found.append(Turn(branch, tuple(j for j in needs if found[j].branch != branch)))
    return found


def levels(dealt: Sequence[Turn]) -> list[int]:
    """How long the chain that ends with each operation is: those of one level may run at the same time."""
    ends: dict[int, int] = {}  # of each branch: the level of its last operation
    found: list[int] = []
    for turn in dealt:
        found.append(1 + max([ends.get(turn.branch, 0), *(found[j] for j in turn.waits)]))
        ends[turn.branch] = found[-1]
    return found


def summary(dealt: Sequence[Turn]) -> str:
    """The graph in one line."""
    counts = Counter(levels(dealt))
    if len(counts) == len(dealt):
        return f"graph: {len(dealt)} operations one after the other"
    return f"graph: {len(dealt)} operations in {len(counts)} turns, up to {max(counts.values())} at the same time"
