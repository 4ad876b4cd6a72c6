"""Operations of a program side by side: which branch of a graph each belongs to, from what it has to wait for.

Pure functions: nothing here knows a device. ``cuda/graph.py`` makes the branches of a graph from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from meshloom.records import dataclass


def reduced(waits: Sequence[Collection[int]]) -> list[tuple[int, ...]]:
    """For each operation the earlier ones that it has to wait for, latest first, without those that these wait for."""
    found: list[tuple[int, ...]] = []
    before: list[int] = []  # of each operation: all that must be done first, as bits
    for mine in waits:
        direct, known = [], 0
        for j in sorted(mine, reverse=True):  # what j waits for comes before it, so it is dropped in time
            if not known >> j & 1:
                direct.append(j)
                known |= before[j] | 1 << j
        found.append(tuple(direct))
        before.append(known)
    return found


@dataclass(frozen=True)
class StreamAssignment:
    """When an operation runs: after the one before it in its branch, and after some of other branches."""

    branch: int
    waits: tuple[int, ...] = ()


def in_streams(needed: Sequence[Sequence[int]], most: int) -> list[StreamAssignment]:
    """Operations dealt out to at most so many branches, from those that each waits for; the first goes to branch 0.

    One continues the branch of an operation that it waits for, where no other one has; else it takes a fresh branch,
    else one that ends with something it waits for anyway, else the one whose end is the longest ago.
    """
    found: list[StreamAssignment] = []
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
        found.append(StreamAssignment(branch, tuple(j for j in needs if found[j].branch != branch)))
    return found


def levels(assigned: Sequence[StreamAssignment]) -> list[int]:
    """How long the chain that ends with each operation is: those of one level may run at the same time."""
    ends: dict[int, int] = {}  # of each branch: the level of its last operation
    found: list[int] = []
    for assignment in assigned:
        found.append(1 + max([ends.get(assignment.branch, 0), *(found[j] for j in assignment.waits)]))
        ends[assignment.branch] = found[-1]
    return found


def summary(assigned: Sequence[StreamAssignment]) -> str:
    """The graph in one line."""
    counts = Counter(levels(assigned))
    if len(counts) == len(assigned):
        return f"graph: {len(assigned)} operations one after the other"
    return f"graph: {len(assigned)} operations in {len(counts)} turns, up to {max(counts.values())} at the same time"
