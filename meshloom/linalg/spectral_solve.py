"""Where Poisson's equation is left when all axes but one are transformed: one tridiagonal system along that axis for
each combination of the others' vectors, or one division where all axes are transformed."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.linalg.axis_cells import AxisCells
from meshloom.linalg.factors import link_factors
from meshloom.linalg.lines import line_loop
from meshloom.linalg.transforms import Where
from meshloom.mesh.grid import Grid

COMPLEX = {"float64": "complex128", "float32": "complex64"}


class SpectralSolve:
    """The shares of vectors: ``values``, what the operators along the transformed axes together multiply each with;
    there is one place along the axis that is solved ``along`` (its number and cells). What comes out is ``scale`` times
    what the operator's inverse gives. ``waves``: shares are complex, kept as pairs of numbers of ``dtype``.

    Where the operator is ``singular``, what no solution has is taken out of the constant vectors' share, and so is the
    mean of what comes out: both on one line, or in one number.
    """

    def __init__(self, values: np.ndarray, along: tuple[int, AxisCells] | None, scale: float, dtype: np.dtype,
                 *, waves: bool, singular: bool):  # fmt: skip
        self.axis = None if along is None else along[0]
        self.shape = tuple(len(along[1]) if along and a == self.axis else n for a, n in enumerate(values.shape))
        self.dtype, self.waves, self.singular = dtype, waves, singular
        self._constant = tuple(slice(None) if a == self.axis else 0 for a in range(values.ndim))
        if along is None:
            inverse = np.divide(scale, values, where=values > 0.0, out=np.zeros(values.shape))
            self._inverse = Where(inverse.astype(dtype))
        else:
            self._solve_along(*along, np.take(values, 0, along[0]), scale)

    def _solve_along(self, axis: int, cells: AxisCells, others: np.ndarray, scale: float) -> None:
        grid = Grid(self.shape, name="modes")
        self.field = grid.field("modes", 2 if self.waves else 1, dtype=self.dtype, layout="aos")
        self._part = Where((cells.widths / cells.widths.sum()).astype(self.dtype))
        held = np.where(others == 0.0, cells.diagonal[0] or 1.0, 0.0) if cells.floating else 0.0

        def excess(i: int) -> np.ndarray:
            """One that is singular is held at its first cell, where what it holds is nothing."""
            return (cells.walls[i] + others * cells.widths[i] + (held if i == 0 else 0.0)) / scale

        factors = link_factors("modes", grid, axis, cells.links / scale, excess, periodic=cells.periodic,
                               dtype=self.dtype)  # fmt: skip
        self._solve = partial(line_loop, grid, axis, factors, self.field, self.field, name="modes")

    @property
    def memory(self) -> Any:
        """Where shares are solved for, (*shape,): an array where loops run."""
        field = self.field
        current().bring(field)
        found = field.storage[: prod(self.shape) * field.dim]
        return (found.view(COMPLEX[self.dtype.name]) if self.waves else found).reshape(self.shape)

    def solved(self, shares: Any) -> Any:
        """What the operator's inverse gives, times the scale; ``shares`` stay as they are unless they are ``memory``,
        which holds the result."""
        if self.axis is None:
            return shares * self._inverse.like(shares)
        memory = self.memory
        if shares is not memory:
            memory[...] = shares
        self.solve_in_place(memory)
        return memory

    def solve_in_place(self, memory: Any) -> None:
        """What is in ``memory``."""
        part = self._part.like(memory)
        line = memory[self._constant]
        if self.singular:
            line -= part * line.sum()
        self.field.changed()
        self._solve()
        if self.singular:
            line -= (part * line).sum()
