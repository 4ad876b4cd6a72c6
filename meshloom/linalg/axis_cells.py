"""Cells along one axis of a grid: their widths and links, coarser ones, and what goes between the two. Arrays only.

A difference operator on a grid of straight lines is a sum over the axes, in which one axis has its own links between
neighbouring cells and all others their widths. So everything about it is known axis by axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

DIRICHLET, NEUMANN, PERIODIC = "dirichlet", "neumann", "periodic"
ROUNDED = 64 * float(np.finfo(np.float64).eps)  # of a coordinate
WINDOW = 4  # cells that one of at least half as many takes anything from


@dataclass(frozen=True, eq=False)
class AxisCells:
    """``edges`` (n + 1,) and ``centres`` (n,), both ascending; ``low`` and ``high`` say what holds at the two ends: the
    value (DIRICHLET), the slope (NEUMANN), or PERIODIC for both."""

    edges: np.ndarray
    centres: np.ndarray
    low: str
    high: str

    def __len__(self) -> int:
        return len(self.centres)

    @property
    def periodic(self) -> bool:
        return self.low == PERIODIC

    @property
    def floating(self) -> bool:
        """Does nothing at its ends hold a value?"""
        return DIRICHLET not in (self.low, self.high)

    @cached_property
    def widths(self) -> np.ndarray:
        return np.diff(self.edges)

    @cached_property
    def uniform(self) -> bool:
        """Are all cells of one width, with their centres in the middle, but for rounding?"""
        even = np.linspace(self.edges[0], self.edges[-1], 2 * len(self) + 1)
        slack = ROUNDED * float(np.abs(self.edges[[0, -1]]).max())
        return bool(np.abs(self.edges - even[::2]).max() <= slack and np.abs(self.centres - even[1::2]).max() <= slack)

    @property
    def stretching(self) -> float:
        """The widest cell over the narrowest."""
        return float(self.widths.max() / self.widths.min())

    @cached_property
    def links(self) -> np.ndarray:
        """(n,): one over the distance between the centre of a cell and that before it; at the first cell that of the
        last one behind the end of a periodic axis, else 0."""
        found = np.zeros(len(self))
        found[1:] = 1.0 / np.diff(self.centres)
        if self.periodic and len(self) > 1:  # a cell alone has no link with itself
            found[0] = 1.0 / (self.centres[0] - self.edges[0] + self.edges[-1] - self.centres[-1])
        return found

    @cached_property
    def to_walls(self) -> tuple[float, float]:
        """One over the distance between the first centre and the low end, and the last and the high end."""
        return 1.0 / float(self.centres[0] - self.edges[0]), 1.0 / float(self.edges[-1] - self.centres[-1])

    @cached_property
    def diagonal(self) -> np.ndarray:
        """(n,): the sum of the links of a cell, that to a wall of given value included."""
        return self.links + np.roll(self.links, -1) + self.walls

    @cached_property
    def walls(self) -> np.ndarray:
        """(n,): the links of the first and last cell to an end whose value is given."""
        found = np.zeros(len(self))
        for place in (0, -1):
            found[place] += self.wall(place)
        return found

    def wall(self, place: int) -> float:
        """The link to the low end (0) or the high one (-1); 0 where its value is not given."""
        return self.to_walls[place] if (self.low, self.high)[place] == DIRICHLET else 0.0

    def sparse(self, library: Any) -> Any:
        """The operator along this axis, minus the second difference times the widths, by ``scipy.sparse``."""
        n, here = len(self), np.arange(len(self))
        before = library.coo_matrix((self.links, (here, (here - 1) % n)), shape=(n, n))
        return library.diags(self.diagonal) - before - before.T

    @cached_property
    def dense(self) -> np.ndarray:
        """(n, n): the operator along this axis, minus the second difference times the widths."""
        n, here = len(self), np.arange(len(self))
        found = np.diag(self.diagonal)
        np.subtract.at(found, (here, (here - 1) % n), self.links)
        np.subtract.at(found, ((here - 1) % n, here), self.links)
        return found

    def coarser(self) -> AxisCells:
        """Half as many cells, rounded up, along the same stretching."""
        n, m = len(self), -(-len(self) // 2)
        edges = np.interp(np.arange(m + 1) * n / m, np.arange(n + 1), self.edges)
        return AxisCells(edges, 0.5 * (edges[1:] + edges[:-1]), self.low, self.high)

    def interpolation(self, m: int) -> np.ndarray:
        """(n, 2): how much a cell takes of the two of m coarser ones around it, linear by index; what lies behind an
        end is the last cell itself, with its sign turned at a Dirichlet end."""
        place = (np.arange(len(self)) + 0.5) * m / len(self) - 0.5
        before = np.floor(place)
        weights = np.stack([before + 1.0 - place, place - before], axis=1)
        if not self.periodic:
            weights[before < 0, 0] *= _image(self.low)
            weights[before + 1 >= m, 1] *= _image(self.high)
        return weights

    def restriction(self, m: int) -> np.ndarray:
        """(m, WINDOW): the transpose of ``interpolation``: how much a coarser cell takes of each of the cells from
        ``first_below``."""
        n = len(self)
        seen = first_below(np.arange(m), n, m)[:, None] + np.arange(WINDOW)
        place = (seen + 0.5) * m / n - 0.5
        weights = _hat(place - np.arange(m)[:, None])
        if self.periodic:
            return weights
        weights[0] += _image(self.low) * _hat(place[0] + 1.0)
        weights[-1] += _image(self.high) * _hat(place[-1] - m)
        return np.where((seen >= 0) & (seen < n), weights, 0.0)


def first_below(j: Any, n: int, m: int) -> Any:
    """Of n cells the first that the coarser cell j of m, a number or an array, takes anything from; -2 at least."""
    return ((2 * j - 1) * n + 3 * m) // (2 * m) - 1


def first_above(i: Any, n: int, m: int) -> Any:
    """Of m coarser cells the first of the two around cell i of n; -1 at least."""
    return ((2 * i + 1) * m + n) // (2 * n) - 1


def _hat(distance: np.ndarray) -> np.ndarray:
    return np.maximum(1.0 - np.abs(distance), 0.0)


def _image(end: str) -> float:
    """What stands behind an end, as a multiple of what is before it."""
    return -1.0 if end == DIRICHLET else 1.0
