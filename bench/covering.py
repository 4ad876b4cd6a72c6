"""Combinations that cover all pairs: every value of every axis meets every value of every other one, in few runs."""

from __future__ import annotations

import heapq
import random
from functools import cache
from itertools import combinations, product


@cache
def covering(
    sizes: tuple[int, ...], together: frozenset[tuple[int, ...]], strength: int = 2
) -> frozenset[tuple[int, ...]]:
    """Some of the product of axes with so many values each, as tuples of their numbers: whatever two values of two
    axes (of ``strength`` axes) meet in one of them, and so do all values of the axes that stand ``together`` in a
    tuple.

    Greedy: always the combination in which most meet that have not met; ties by dice that always fall the same.
    """
    groups = {*combinations(range(len(sizes)), min(strength, len(sizes))), *together}
    rows = [*product(*map(range, sizes))]
    random.Random(0).shuffle(rows)
    met: set[tuple[tuple[int, int], ...]] = set()

    def news(row: tuple[int, ...]) -> list[tuple[tuple[int, int], ...]]:
        return [one for group in groups if (one := tuple((axis, row[axis]) for axis in group)) not in met]

    waiting = [(-len(groups), place) for place in range(len(rows))]  # already a heap
    found: set[tuple[int, ...]] = set()
    while waiting:
        hoped, place = heapq.heappop(waiting)
        new = news(rows[place])
        if len(new) == -hoped:  # it can only have become less: nothing else has more
            met.update(new)
            found.add(rows[place])
        elif new:
            heapq.heappush(waiting, (-len(new), place))
    return frozenset(found)
