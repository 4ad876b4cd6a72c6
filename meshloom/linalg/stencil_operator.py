"""Operators on the points of a grid that link each point with its neighbours along the axes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshloom.linalg.axis_cells import AxisCells
from meshloom.linalg.grid_matrix import GridMatrix
from meshloom.linalg.poisson import Poisson
from meshloom.mesh.grid import Grid


@dataclass(frozen=True, eq=False)
class PointLinks:
    """On ``cells``, a grid that goes round: (*shape,) the ``diagonal`` of A, and for each axis minus the entry of each
    point for that ``before`` it, 0 where there is none. ``axes``: of a Poisson operator, where it is one."""

    name: str
    cells: Grid
    dtype: np.dtype
    diagonal: np.ndarray
    before: tuple[np.ndarray, ...]
    axes: tuple[AxisCells, ...] = ()

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Along which axes what is behind an end is the beginning. Of a matrix always: it is asked for its links."""
        return tuple(one.periodic for one in self.axes) if self.axes else (True,) * len(self.cells.shape)


def of_poisson(poisson: Poisson) -> PointLinks | None:
    """None where two colors do not do."""
    level = poisson.level
    if not _two_colors([one.periodic for one in poisson.axes], level.shape):
        return None
    before = tuple(level.links_along(axis) for axis in range(len(level.shape)))
    return PointLinks(poisson.name, level.grid, poisson.dtype, level.diagonal, before, poisson.axes)


def of_matrix(matrix: GridMatrix) -> PointLinks | None:
    """None where two colors do not do, or a point is linked with others than its neighbours along the axes."""
    offsets, grid = [tuple(one) for one in matrix.offsets.offsets], matrix.grid
    if any(sum(map(abs, one)) > 1 for one in offsets) or not _two_colors(grid.periodic, grid.shape):
        return None
    if any(p and n <= 2 for p, n in zip(grid.periodic, grid.shape, strict=True)):
        return None  # the points before and behind are one
    values, before = matrix.values.numpy().reshape(*grid.shape, len(offsets)).astype(np.float64), []
    for axis in range(len(grid.shape)):
        offset = tuple(-1 if a == axis else 0 for a in range(len(grid.shape)))
        found = -values[..., offsets.index(offset)] if offset in offsets else np.zeros(grid.shape)
        if not grid.periodic[axis]:
            found[(slice(None),) * axis + (0,)] = 0.0
        before.append(found)
    diagonal = values[..., offsets.index((0,) * len(grid.shape))]
    cells = Grid(grid.shape, periodic=True, name="cells")
    return PointLinks(f"matrix {matrix.name}", cells, matrix.dtype, diagonal, tuple(before))


def _two_colors(periodic: Sequence[bool], shape: Sequence[int]) -> bool:
    """Have neighbours different colors, because no axis goes round after an odd number of points?"""
    return not any(p and n % 2 and n > 1 for p, n in zip(periodic, shape, strict=True))
