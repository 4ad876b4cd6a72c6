"""Tridiagonal systems along the lines of a grid with coefficients of their own, factored once: ``LineSystems``."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.errors import MeshError, instance, shown, yes_or_no
from meshloom.linalg.factors import LineFactors, inverse_pivots
from meshloom.linalg.lines import line_loop
from meshloom.linalg.poisson import floating
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid
from meshloom.mesh.values import named
from meshloom.recording import MAKE_BEFORE, refuse_in_program

Given = float | np.ndarray | Field


class LineSystems(LineFactors):
    """Along every line of ``grid`` along ``axis`` a tridiagonal system: lower x(before) + diag x + upper x(behind) = f.

    Each coefficient is a number, an array (n,) along the axis, or one of the grid's shape or a field of it, where lines
    differ. Factors are made once, in double, of what is given then, and kept in ``dtype``; ``solve`` reads one number
    of them at a point, and the entries beside the diagonal where these are given at points. At the ends of a closed
    line what would stick out does not count. ``periodic``: as the grid says, unless told otherwise.
    """

    def __init__(self, grid: Grid, axis: int, lower: Given, diag: Given, upper: Given, *, periodic: bool | None = None,
                 dtype: Any = np.float64, name: str = "systems"):  # fmt: skip
        name = named("LineSystems", name)
        refuse_in_program(f"making {name} along lines", MAKE_BEFORE)
        instance(f"{name}: grid", grid, Grid, error=MeshError)
        axis, kind = grid.axis(axis), floating(name, dtype)
        around = grid.periodic[axis] if periodic is None else yes_or_no(f"{name}: periodic", periodic, error=MeshError)
        below, middle, above = (
            _lines(f"{name}: {word}", grid, axis, one)
            for word, one in (("lower", lower), ("diag", diag), ("upper", upper))
        )
        if not around:
            below, above = _without(below, 0), _without(above, -1)
        full = np.broadcast_to(middle, np.moveaxis(np.empty(grid.shape), axis, 0).shape)
        found = inverse_pivots(name, below, full, above, periodic=around)
        _check_size(name, found, kind)

        def kept(word: str, lines: np.ndarray) -> Field | np.ndarray:
            if lines.size == len(lines):
                return lines.reshape(-1)
            return grid.field(word, dtype=kind, data=np.moveaxis(lines, 0, axis))

        inverse = grid.field("inverse", dtype=kind, data=np.moveaxis(found, 0, axis))
        super().__init__(name, grid, axis, around, inverse, kept("lower", below), kept("upper", above))

    def solve(self, f: Field, x: Field) -> None:
        """Solve for all components of f, reading it and the factors once and writing x once; x may be f. Inside a
        program this is recorded."""
        line_loop(self.grid, self.axis, self, f, x, name=self.name)

    def __repr__(self) -> str:
        kind = "periodic" if self.periodic else "closed"
        return f"LineSystems({kind} lines of {self.grid.name} along axis {self.axis}: {', '.join(self.varying)} vary)"


def _lines(who: str, grid: Grid, axis: int, given: Given) -> np.ndarray:
    """A coefficient as an array (n, *lines), or (n, 1, ...) where all lines have the same."""
    if isinstance(given, Field):
        if given.set is not grid or given.dim != 1:
            raise MeshError(f"{who}: field {given.name} must live on {grid.name} and have one component")
        given = grid.shaped(given)
    try:
        values = np.array(given, np.float64)
    except (TypeError, ValueError):
        values = np.full(0, np.nan)
    n, alone = grid.shape[axis], (1,) * (grid.rank - 1)
    if values.ndim == 0:
        values = np.full(n, values)
    if values.shape != grid.shape and values.shape != (n,):
        raise MeshError(f"{who} must be a number, an array ({n},) or one of the grid's shape {grid.shape}, got"
                        f" {shown(given)}")  # fmt: skip
    if not np.isfinite(values).all():
        raise MeshError(f"{who} has values that are not finite")
    if values.shape == grid.shape and grid.rank > 1:
        return np.moveaxis(values, axis, 0)
    return values.reshape(n, *alone)


def _check_size(name: str, inverse: np.ndarray, dtype: np.dtype) -> None:
    """MeshError where one over a pivot, or what counts beside it, is no number of a type with all its digits."""
    known = np.finfo(dtype)
    if not ((np.abs(inverse) >= known.tiny) & (np.abs(inverse) <= known.eps * known.max)).all():
        size = 1.0 / float(np.abs(inverse).max()), 1.0 / float(np.abs(inverse).min())
        raise MeshError(f"{name}: pivots from {size[0]:.3g} to {size[1]:.3g} are too small or too large for {dtype};"
                        " scale the equations")  # fmt: skip


def _without(lines: np.ndarray, row: int) -> np.ndarray:
    """The same with nothing in a row."""
    found = lines.copy()
    found[row] = 0.0
    return found
