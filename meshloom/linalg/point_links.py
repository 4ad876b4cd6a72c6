"""Operators on the points of a grid that link each point with its neighbours along the axes alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meshloom.linalg.axis_cells import AxisCells
from meshloom.linalg.grid_matrix import GridMatrix
from meshloom.linalg.poisson import Poisson
from meshloom.mesh.grid import Grid


@dataclass(frozen=True, eq=False)
class PointLinks:
    """On the points of ``grid``, whose ``cells`` are a grid of as many that goes around. A Poisson operator, or the
    entries of a matrix: ``values`` (*shape, offsets), for each point that at each of ``offsets``."""

    name: str
    grid: Grid
    cells: Grid
    dtype: np.dtype
    poisson: Poisson | None = None
    offsets: tuple[tuple[int, ...], ...] = ()
    values: np.ndarray | None = None

    @property
    def axes(self) -> tuple[AxisCells, ...]:
        """Of a Poisson operator."""
        return self.poisson.axes if self.poisson is not None else ()

    @property
    def periodic(self) -> tuple[bool, ...]:
        return tuple(one.periodic for one in self.axes) if self.axes else tuple(self.grid.periodic)

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Along which axes what is behind an end is the beginning. Of a matrix always: it is asked for its links."""
        return self.periodic if self.axes else (True,) * len(self.cells.shape)

    @property
    def two_colors(self) -> bool:
        """Have neighbours different colors, because no axis goes around after an odd number of points?"""
        return not any(p and n % 2 and n > 1 for p, n in zip(self.periodic, self.cells.shape, strict=True))

    @property
    def diagonal(self) -> np.ndarray:
        """(*shape,): that of A."""
        if self.poisson is not None:
            return self.poisson.level.diagonal
        assert self.values is not None
        return self.values[..., self.offsets.index((0,) * len(self.cells.shape))].astype(np.float64)

    @cached_property
    def before(self) -> tuple[np.ndarray, ...]:
        """For each axis (*shape,): minus the entry of each point for that before it; 0 where there is none."""
        if self.poisson is not None:
            return tuple(self.poisson.level.links_along(axis) for axis in range(len(self.axes)))
        rank = len(self.cells.shape)
        return tuple(self._entry(tuple(-1 if a == axis else 0 for a in range(rank)), axis) for axis in range(rank))

    def _entry(self, offset: tuple[int, ...], axis: int) -> np.ndarray:
        assert self.values is not None
        found = np.zeros(self.cells.shape)
        if offset in self.offsets:
            found -= self.values[..., self.offsets.index(offset)]
        if not self.grid.periodic[axis]:
            found[(slice(None),) * axis + (0,)] = 0.0
        return found


def of_poisson(poisson: Poisson) -> PointLinks:
    return PointLinks(poisson.name, poisson.grid, poisson.level.grid, poisson.dtype, poisson)


def of_matrix(matrix: GridMatrix) -> PointLinks | None:
    """None where a point is linked with others than its neighbours along the axes."""
    offsets = tuple(tuple(one) for one in matrix.offsets.offsets)
    if any(sum(map(abs, one)) > 1 for one in offsets):
        return None
    if any(p and n <= 2 for p, n in zip(matrix.grid.periodic, matrix.grid.shape, strict=True)):
        return None  # the points before and behind are one
    cells = Grid(matrix.grid.shape, periodic=True, name="cells")
    values = matrix.values.numpy().reshape(*matrix.grid.shape, len(offsets))
    return PointLinks(f"matrix {matrix.name}", matrix.grid, cells, matrix.dtype, None, offsets, values)
