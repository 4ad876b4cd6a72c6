"""Combinations that cover all pairs: every value of every axis meets every value of every other one, in few tests.

A mistake that one value makes, or two together, shows in some combination of a covering design; the whole product only
says how often. Tests take the design in every run and the rest of the product as ``slow``.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest


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
        fresh = news(rows[place])
        if len(fresh) == -hoped:  # it can only have become less: nothing else has more
            met.update(fresh)
            found.add(rows[place])
        elif fresh:
            heapq.heappush(waiting, (-len(fresh), place))
    return frozenset(found)


def label(value: object) -> str:
    """What a value is called in the name of a test."""
    return "double" if value is np.float64 else "single" if value is np.float32 else str(value)


def every_value(**axes: Sequence[Any]) -> pytest.MarkDecorator:
    """As ``every_pair``, but in every run only as many rows as show each value once: where a pair tells nothing that
    its two values do not, as where the same text goes through another compiler."""
    return every_pair(strength=1, **axes)


def every_pair(
    together: Iterable[tuple[str, ...]] = (), strength: int = 2, **axes: Sequence[Any]
) -> pytest.MarkDecorator:
    """``pytest.mark.parametrize`` over the product of the axes: a covering design in every run, the rest ``slow``."""
    names = [*axes]
    chosen = covering(
        tuple(len(values) for values in axes.values()),
        frozenset(tuple(names.index(name) for name in group) for group in together),
        strength,
    )
    rows = []
    for numbers in product(*(range(len(values)) for values in axes.values())):
        row = [values[k] for values, k in zip(axes.values(), numbers, strict=True)]
        marks = () if numbers in chosen else (pytest.mark.slow,)
        rows.append(pytest.param(*row, id="-".join(map(label, row)), marks=marks))
    return pytest.mark.parametrize(names, rows)
