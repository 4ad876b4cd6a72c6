"""Values at the centre of the domain, and along the centrelines through it.

Where an axis has an even number of cells its middle is a face, and the value there the mean of its two cells.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.solvers.fractional_step.cells import CellGrid

Offsets = tuple[tuple[int, ...], ...]


class Centreline:
    """The cells along one axis through the middle of all others; without an axis the middle itself."""

    def __init__(self, cells: CellGrid, axis: int | None = None):
        self.cells, self.axis = cells, axis
        across = [range(1) if a == axis else range(2 - n % 2) for a, n in enumerate(cells.shape)]
        self.offsets: Offsets = tuple(product(*across))
        low = [0 if a == axis else (n - 1) // 2 for a, n in enumerate(cells.shape)]
        high = [n if a == axis else low[a] + 1 for a, n in enumerate(cells.shape)]
        self.box = cells.grid.box(low, high)

    def least(self, u: ml.Field, component: int, found: ml.Global) -> None:
        """The least of a component along the line; inside a program this is recorded."""
        found.value = np.inf
        _least(self.offsets, component)(self.box, u[self.cells.grid.offsets(*self.offsets)], found)

    def value(self, u: ml.Field, component: int, found: ml.Global) -> None:
        """A component in the middle; inside a program this is recorded."""
        found.value = 0.0
        _value(self.offsets, component)(self.box, u[self.cells.grid.offsets(*self.offsets)], found)

    def profile(self, u: ml.Field, component: int) -> np.ndarray:
        """A component along the line, (n,), outside of programs."""
        values = self.cells.grid.shaped(u)[..., component].astype(np.float64)
        for a, n in reversed(list(enumerate(self.cells.shape))):
            if a != self.axis:
                values = np.take(values, [(n - 1) // 2, n // 2], axis=a).mean(axis=a)
        return values


def _mean(u: Any, offsets: Offsets, component: int) -> Any:
    return sum(u[at][component] for at in offsets) / len(offsets)


@cache
def _least(offsets: Offsets, component: int) -> ml.Kernel:
    @ml.kernel
    def least_on_line(u: ml.Read, found: ml.Min):
        found[...] = _mean(u, offsets, component)

    return least_on_line


@cache
def _value(offsets: Offsets, component: int) -> ml.Kernel:
    @ml.kernel
    def value_in_middle(u: ml.Read, found: ml.Sum):
        found += _mean(u, offsets, component)

    return value_in_middle
