"""PICCG on the cells of a grid: what is the same with and without a matrix that is stored by rows."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from meshloom.linalg.cell_level import Bridge
from meshloom.linalg.iteration import Report
from meshloom.linalg.multigrid import said
from meshloom.linalg.piccg_sparse import Method, Settings, SparseMethod
from meshloom.linalg.poisson import Means, Poisson
from meshloom.linalg.symmetric import Symmetric, entries_of
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid


class OfCells(Method):
    """x and b go from the points of a grid to its ``cells``, which go around and have no ghosts, and back. ``poisson``:
    where that is singular b counts without what it adds up to, and x has no mean."""

    def __init__(self, grid: Grid, cells: Grid, dtype: np.dtype, poisson: Poisson | None):
        self.rows, self.dtype = grid, dtype
        self._bridge = Bridge(grid, cells)
        self._cells = [cells.field(name, dtype=dtype) for name in ("x", "b")]
        self._means = Means(poisson) if poisson is not None and poisson.singular else None

    @abstractmethod
    def solve_cells(self, x: Field, b: Field, tol: float, most: int) -> Report:
        """The same for fields of the cells."""

    @abstractmethod
    def make_close_cells(self, r: Field, z: Field) -> None:
        """The same for fields of the cells."""

    def solve(self, x: Field, b: Field, tol: float, most: int) -> Report:
        in_x, in_b = self._cells
        self._bridge.into_cells(x, in_x)
        self._bridge.into_cells(b, in_b)
        left_out = (0.0, 0.0) if self._means is None else self._means.out_of_right_hand_side(in_b)
        report = self.solve_cells(in_x, in_b, tol, most)
        if np.isfinite(report.residual):
            if self._means is not None:
                self._means.out_of_solution(in_x)
            self._bridge.out_of_cells(in_x, x)
        return said(report, *left_out, self.dtype)

    def make_close(self, r: Field, z: Field) -> None:
        in_z, in_r = self._cells
        self._bridge.into_cells(r, in_r)
        self.make_close_cells(in_r, in_z)
        self._bridge.out_of_cells(in_z, z)


class ByMatrix(OfCells):
    """By the matrix of the operator."""

    def __init__(self, poisson: Poisson, settings: Settings):
        super().__init__(poisson.grid, poisson.level.grid, poisson.dtype, poisson)
        entries = entries_of(poisson.to_scipy(), poisson.name)
        given = Symmetric(entries, poisson.level.grid, self.dtype, poisson.name)
        self._inner = SparseMethod(given, settings, singular=poisson.singular)
        self.colors, self.shift = self._inner.colors, self._inner.shift

    def solve_cells(self, x: Field, b: Field, tol: float, most: int) -> Report:
        return self._inner.solve(x, b, tol, most)

    def make_close_cells(self, r: Field, z: Field) -> None:
        self._inner.make_close(r, z)

    def bytes_per_iteration(self) -> int:
        return self._inner.bytes_per_iteration()

    def __str__(self) -> str:
        return str(self._inner)
