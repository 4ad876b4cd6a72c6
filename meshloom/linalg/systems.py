"""Tridiagonal systems along the lines of a grid with coefficients of their own, factored once: ``LineSystems``."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from meshloom.errors import MeshError, instance, shown, yes_or_no
from meshloom.kernel.access import Read, Write
from meshloom.library.ghosts import fill_ghosts
from meshloom.linalg.factors import COEFFICIENTS, FactorsAlong, LineFactors, inverse_pivots
from meshloom.linalg.lines import line_loop
from meshloom.linalg.poisson import floating
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid
from meshloom.mesh.values import named
from meshloom.operation.loop import Kernel, kernel
from meshloom.recording import MAKE_BEFORE, refuse_in_program

Given = float | np.ndarray | Field
ROUNDINGS = 8  # of a residual itself: three products, three sums, and f and the coefficients


@cache
def _residual(before: tuple[int, ...], here: tuple[int, ...], behind: tuple[int, ...]) -> Kernel:
    @kernel
    def line_residual(f: Read, rows: Read, x: Read, left: Write):
        left[...] = f - (rows[0] * x[before] + rows[1] * x[here] + rows[2] * x[behind])

    return line_residual


@kernel
def correct(found: Read, left: Read, x: Write):
    x[...] = found + left


def backward_error(rows: np.ndarray, inverse: np.ndarray) -> float:
    """Of periodic systems (n, *lines, 3) solved by their factors, the largest of all lines: by how much of their
    size their coefficients would have to differ for the solution to be exact. Right-hand sides are of random signs."""
    lower, diag, upper = np.moveaxis(rows, -1, 0)
    f = np.random.default_rng(0).choice([-1.0, 1.0], diag.shape) * np.abs(rows).max(axis=(0, -1))
    with np.errstate(all="ignore"):
        x = FactorsAlong(True, COEFFICIENTS, {}).solved(f, {"inverse": inverse, "lower": lower, "upper": upper})
        left = f - (lower * np.roll(x, 1, axis=0) + diag * x + upper * np.roll(x, -1, axis=0))
        size = np.abs(rows).sum(axis=-1).max(axis=0) * np.abs(x).max(axis=0) + np.abs(f).max(axis=0)
        return float(np.max(np.abs(left).max(axis=0) / size))


class LineSystems(LineFactors):
    """Along every line of ``grid`` along ``axis`` a tridiagonal system: lower x(before) + diag x + upper x(behind) = f.

    Each coefficient is a number, an array (n,) along the axis, or one of the grid's shape or a field of it, where lines
    differ. Factors are made once, in double, of what is given then, and kept in ``dtype``; ``solve`` reads one number
    of them at a point, and the entries next to the diagonal where these are given at points. At the ends of a closed
    line what would stick out does not count. ``periodic``: as the grid says, unless told otherwise.

    Where the diagonal does not dominate, going around a periodic line loses digits: how many is measured when factors
    are made, and ``solve`` then refines its solution once, which costs a second solve and a residual.
    """

    _rows: Field | None

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
        rows = np.stack(np.broadcast_arrays(below, full, above), axis=-1)
        lost = backward_error(rows, found) / float(np.finfo(np.float64).eps) if around else 0.0
        object.__setattr__(self, "_rows", None)
        if lost > ROUNDINGS and grid.periodic[axis]:
            at_points = grid.field("rows", 3, dtype=kind, data=np.moveaxis(rows, 0, axis))
            object.__setattr__(self, "_rows", at_points)
        elif lost > ROUNDINGS:
            said = f"{name}: solutions lose {np.log10(lost):.1f} digits, for the diagonal does not dominate"
            warnings.warn(f"{said}; axis {axis} of {grid.name}, if it were periodic, could refine them", stacklevel=2)

    @property
    def refines(self) -> bool:
        """Whether ``solve`` refines its solution, because a line loses digits."""
        return self._rows is not None

    def solve(self, f: Field, x: Field) -> None:
        """Solve for all components of f, reading it and the factors once and writing x once; x may be f. Where it
        ``refines``, all of that twice. Inside a program this is recorded."""
        if self._rows is None:
            line_loop(self.grid, self.axis, self, f, x, name=self.name)
            return
        found, left = f.like(f"{self.name}_solution"), f.like(f"{self.name}_residual")
        line_loop(self.grid, self.axis, self, f, found, name=self.name)
        fill_ghosts(found, closed=None)
        before, here, behind = (tuple(s * (a == self.axis) for a in range(self.grid.rank)) for s in (-1, 0, 1))
        near = found[self.grid.offsets(before, here, behind)]
        _residual(before, here, behind)(self.grid, f, self._rows, near, left)
        line_loop(self.grid, self.axis, self, left, left, name=f"{self.name}_refined")
        correct(self.grid, found, left, x)

    def __repr__(self) -> str:
        kind, varying = "periodic" if self.periodic else "closed", ", ".join(self.along.varying)
        return f"LineSystems({kind} lines of {self.grid.name} along axis {self.axis}: {varying} vary)"


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
    """MeshError where one over a pivot, or what counts next to it, is no number of a type with all its digits."""
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
