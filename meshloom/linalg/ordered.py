"""What PICCG solves with: a symmetric matrix in an order of colors, with its factors; stored rows, or a stencil."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

import numpy as np

from meshloom.linalg.cell_level import Bridge
from meshloom.linalg.iteration import Iteration, Report
from meshloom.linalg.poisson import InCells, Poisson
from meshloom.mesh.core import Field, Set
from meshloom.mesh.grid import Grid

Parts = tuple[Field, ...]  # a field in order: one for each part of the rows


class Ordered(ABC):
    """x and b are put in order once for a solution, which goes on with those of the last part of the rows."""

    rows: Set
    dtype: np.dtype
    colors: int
    shift: float
    _x: Parts
    _b: Parts

    @abstractmethod
    def _bring(self, given: Field, parts: Parts, *, inverse: bool) -> None:
        """Put x (``inverse``) or b in order; where the system is scaled x is by the inverse of what b is scaled by."""

    @abstractmethod
    def _take(self, x: Field) -> None:
        """Put x back."""

    @abstractmethod
    def _iteration(self, most: int) -> Iteration:
        """Conjugate gradients for at most so many iterations."""

    @abstractmethod
    def _close(self) -> None:
        """x close to A^-1 b, both in order."""

    def solve(self, x: Field, b: Field, tol: float, most: int) -> Report:
        """Improve x until the norm of b - A x is at most ``tol`` times that of b."""
        self._bring(x, self._x, inverse=True)
        self._bring(b, self._b, inverse=False)
        report = self._iteration(most).solve(self._x[-1], self._b[-1], tol, most)
        if np.isfinite(report.residual):
            self._take(x)
        return report

    def make_close(self, r: Field, z: Field) -> None:
        """z close to A^-1 r; inside a program this is recorded."""
        self._bring(r, self._b, inverse=False)
        self._close()
        self._take(z)

    def bytes_per_iteration(self) -> int:
        """What the loops of an iteration have to load and store."""
        one = self._iteration(0)
        return sum(step.compulsory for step in one.iterate.bind(self._x[-1], self._b[-1]).loops) // one.steps


class OnGrid:
    """The same for the points of a grid by ``inner``, whose rows are cells of its shape that go round and have no
    ghosts: see ``InCells``."""

    def __init__(self, inner: Ordered, grid: Grid, poisson: Poisson | None = None):
        assert isinstance(inner.rows, Grid)
        self.inner, self.rows, self.dtype, self.colors, self.shift = inner, grid, inner.dtype, inner.colors, inner.shift
        self._cells = InCells(Bridge(grid, inner.rows), inner.dtype, poisson)

    def solve(self, x: Field, b: Field, tol: float, most: int) -> Report:
        return self._cells.solve(x, b, partial(self.inner.solve, tol=tol, most=most))

    def make_close(self, r: Field, z: Field) -> None:
        cells = self._cells
        cells.bridge.through_cells(r, z, self.inner.make_close, (cells.b, cells.x))

    def bytes_per_iteration(self) -> int:
        return self.inner.bytes_per_iteration()

    def __str__(self) -> str:
        return str(self.inner)
