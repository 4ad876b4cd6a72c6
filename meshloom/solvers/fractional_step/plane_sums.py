"""Sums over planes of cells, as loops: axis after axis is folded until one line of cells is left.

Folding an axis of n cells into m adds those that lie m, 2 m, 3 m ... cells behind each of the first m. A few such loops
take the place of one reduction for every plane; each value is read once, and the order of the sums is always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.solvers.fractional_step.cells import CellGrid, along

MOST_AT_ONCE = 8  # cells that one loop adds up


@dataclass(frozen=True)
class Fold:
    """The first cells of an axis from ``low`` to ``high``, to which ``terms`` are added, ``step`` cells apart."""

    low: int
    high: int
    step: int
    terms: int


def folds(n: int) -> Iterator[tuple[Fold, ...]]:
    """How an axis of n cells is folded into one: for each time what is done side by side."""
    while n > 1:
        m = -(-n // MOST_AT_ONCE)
        terms = -(-n // m)
        full = n - (terms - 1) * m  # of the first m cells, those that all the terms are there for
        yield tuple(one for one in (Fold(0, full, m, terms), Fold(full, m, m, terms - 1)) if one.low < one.high)
        n = m


class PlaneSums:
    """Sums over all axes but one. ``sums``: a field of the cells that holds them in the first cell of each plane, as
    ``at_planes``, an argument of loops over ``planes``, shows it."""

    def __init__(self, cells: CellGrid, axis: int, values: int):
        self.cells, self.axis = cells, axis
        self.sums = cells.grid.field("plane_sums", values)
        self.planes = ml.Set(cells.shape[axis], "planes")
        place = [np.full(len(self.planes), first) for first in cells.grid.first]
        place[axis] = cells.grid.first[axis] + np.arange(len(self.planes))
        rows = np.ravel_multi_index(tuple(place), cells.grid.places)
        self._first_cells = ml.Map(self.planes, cells.grid, rows.reshape(-1, 1), "first cells of planes")

    @property
    def at_planes(self) -> ml.Arg:
        return self.sums[self._first_cells]

    def take(self, first_fold: Callable[[Any, tuple[tuple[int, ...], ...], ml.Field], None]) -> None:
        """Add up; inside a program this is recorded. ``first_fold(box, offsets, sums)`` sets the sums over cells at
        offsets from those of a box, for values that are not stored."""
        extents, begun = list(self.cells.shape), False
        for axis in (a for a in range(self.cells.rank) if a != self.axis):
            for together in folds(extents[axis]):
                for one in together:
                    low, high = [0] * self.cells.rank, list(extents)
                    low[axis], high[axis] = one.low, one.high
                    box = self.cells.grid.box(low, high)
                    offsets = tuple(along(self.cells.rank, axis, k * one.step) for k in range(one.terms))
                    if not begun:
                        first_fold(box, offsets, self.sums)
                    elif one.terms > 1:
                        _folded(offsets[1:])(box, self.sums[self.cells.grid.offsets(*offsets[1:])], self.sums)
                extents[axis], begun = together[-1].high, True


@cache
def _folded(offsets: tuple[tuple[int, ...], ...]) -> ml.Kernel:
    @ml.kernel
    def fold(others: ml.Read, sums: ml.ReadWrite):
        sums[...] = sums + sum(others[at] for at in offsets)

    return fold
