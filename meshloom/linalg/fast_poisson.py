"""Poisson's equation solved directly: transforms along the axes, and tridiagonal systems along the one that has none.

Whatever the operator along an axis only multiplies needs no solving there. So all axes but one are transformed, and for
each combination of their vectors one tridiagonal system along the last is left; or nothing but a division, where there
are fast transforms for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.errors import MeshError, instance
from meshloom.linalg.axis_cells import AxisCells
from meshloom.linalg.cell_level import outer
from meshloom.linalg.iteration import Report
from meshloom.linalg.krylov import check_tolerance
from meshloom.linalg.multigrid import said
from meshloom.linalg.poisson import Poisson, check_held, rounding
from meshloom.linalg.transforms import fast, libraries, transform_of
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Field
from meshloom.mesh.grid import AXES
from meshloom.recording import MAKE_BEFORE, refuse_in_program

MOST_TIMES = 3  # that what rounding has left is solved for again


class FastPoisson(NoCopy):
    """``FastPoisson(poisson).solve(x, b)``: A x = b without iterations, whatever x was.

    Axes with cells of one width that are periodic, or have like ends, are transformed by FFT, cosines or sines. Of the
    others the longest closed one is solved along; what is left, stretched cells along a second axis, say, is
    transformed by a matrix, n^2 operations for a line of n cells. Where A is singular b counts without what it adds up
    to, and x has no mean.
    """

    name = "fast_poisson"

    def __init__(self, poisson: Poisson):
        refuse_in_program("making a fast Poisson solver", MAKE_BEFORE)
        self.poisson = instance("fast_poisson: the operator", poisson, Poisson, error=MeshError)
        axes = poisson.axes
        slow = [a for a, one in enumerate(axes) if not fast(one) and not one.periodic]
        self.along = max(slow, key=lambda a: len(axes[a]), default=None)
        waves = [a for a, one in enumerate(axes) if fast(one) and one.periodic]
        order = [a for a in range(len(axes)) if a != self.along and a not in waves] + waves
        _check_squares([axes[a] for a in order], poisson.dtype)
        first_wave = waves[0] if waves else None
        self._transforms = [
            (a, transform_of(f"fast_poisson: axis {AXES[a]}", axes[a], poisson.dtype, real=a == first_wave))
            for a in order
        ]
        values: list[np.ndarray] = [np.zeros(1)] * len(axes)
        for a, one in self._transforms:
            values[a] = one.values
        together = _sum_of(values)
        self._lines = None if self.along is None else Lines(axes[self.along], self.along, together, poisson.dtype)
        self._inverse = _Where(np.divide(1.0, together, where=together > 0.0, out=np.zeros(together.shape))
                               .astype(poisson.dtype))  # fmt: skip
        self._parts = _Where(outer([one.widths / one.widths.sum() for one in axes]).astype(poisson.dtype))
        self._image = poisson.grid.field("image", dtype=poisson.dtype)

    def solve(self, x: Field, b: Field, *, tol: float = 1e-8) -> Report:
        """Set x. ``converged`` says whether the norm of b - A x, computed anew, is at most ``tol`` times that of b;
        ``iterations`` how often it took: once, and again where rounding has left more."""
        refuse_in_program("solving by transforms", "call it outside; ml.linalg.Multigrid has cycles that are recorded")
        poisson, tol = self.poisson, check_tolerance(self.name, tol)
        poisson.check(x, "x")
        poisson.check(b, "b")
        if x is b:
            raise MeshError(f"fast_poisson: x and b are the same field, {x.name}")
        b.check_readable()
        for one in (x, b, self._image):  # all of them where loops run, so that arrays meet their like
            one.move(current().place(one.storage))
        right = 1.0 * _points(b)
        with np.errstate(over="ignore", invalid="ignore"):
            total, size = (float(one.sum(dtype=np.float64)) for one in (right, abs(right)))
        norm = self._norm(right)
        if not np.isfinite(norm) or (poisson.singular and not np.isfinite(size)):
            return Report(False, 0, float("nan"), np.full(1, np.nan), "values that are not finite")
        right, norm = self._possible(right, total, norm)
        if norm == 0.0:
            x.assign(0.0)
            return said(Report(True, 0, 0.0, np.zeros(1), "b is zero, and so is x"), total, size, poisson.dtype)
        history = self._improve(x, right, norm, tol)
        converged = history[-1] <= tol
        reason = "converged" if converged else f"stalled: rounding in {poisson.dtype} leaves no smaller residual"
        report = Report(bool(converged), len(history) - 1, history[-1], np.array(history), reason)
        return said(report, total, size, poisson.dtype) if poisson.singular else report

    def once(self, x: Field, b: Field) -> None:
        """Set x as ``solve`` does, and look at nothing: for many small systems, where others see how well x fits."""
        refuse_in_program("solving by transforms", "call it outside; ml.linalg.Multigrid has cycles that are recorded")
        self.poisson.check(x, "x")
        self.poisson.check(b, "b")
        if x is b:
            raise MeshError(f"fast_poisson: x and b are the same field, {x.name}")
        b.check_readable()
        for one in (x, b):
            one.move(current().place(one.storage))
        right = _points(b)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.poisson.singular:
                right = right - self._parts.like(right) * float(right.sum())
            _points(x)[...] = self._without_mean(self.solved(right))
        x.changed()

    def _improve(self, x: Field, right: Any, norm: float, tol: float) -> list[float]:
        """Set x; the norm of the residual before, and after every time, as a multiple of that of b."""
        found, left, history = 0.0 * right, right, [1.0]
        for _ in range(MOST_TIMES):
            found = self._without_mean(found + self.solved(left))
            before = _points(x).copy() if len(history) > 1 else None
            _points(x)[...] = found
            x.changed()
            self.poisson(x, self._image)
            left = right - _points(self._image)
            now = self._norm(left) / norm
            if before is not None and not now < history[-1]:
                _points(x)[...] = before
                x.changed()
                break
            history.append(now)
            if now <= tol:
                break
        return history

    def solved(self, b: Any) -> Any:
        """A^-1 b for an array (*shape,) of NumPy or CuPy; of a singular A one of the solutions."""
        for axis, transform in self._transforms:
            b = transform.forwards(b, axis)
        b = b * self._inverse.like(b) if self._lines is None else self._lines.solved(b)
        for axis, transform in reversed(self._transforms):
            b = transform.backwards(b, axis)
        return b

    def _possible(self, right: Any, total: float, norm: float) -> tuple[Any, float]:
        """The right-hand side without what no solution has, and its norm; 0 where only rounding is left."""
        if not self.poisson.singular:
            return right, norm
        right = right - self._parts.like(right) * total
        left = self._norm(right)
        return right, left if left > rounding(self.poisson.dtype) * norm else 0.0

    def _without_mean(self, x: Any) -> Any:
        if not self.poisson.singular:
            return x
        return x - float((self._parts.like(x) * x).sum())

    @staticmethod
    def _norm(array: Any) -> float:
        """In double, and safe from squares that are too large or too small."""
        largest = float(abs(array).max())
        if largest == 0.0 or not np.isfinite(largest):
            return largest
        return largest * float(((array / largest).astype(np.float64) ** 2).sum() ** 0.5)

    def __repr__(self) -> str:
        how = [f"{AXES[a]} {one.word}" for a, one in self._transforms]
        how += [] if self.along is None else [f"{AXES[self.along]} solved"]
        return f"FastPoisson({self.poisson.name}: {', '.join(how)})"


def _check_squares(axes: list[AxisCells], dtype: np.dtype) -> None:
    """MeshError where what is divided by along the axes, from a cell's width squared to that of the whole axis, is too
    large or too small for numbers of a type."""
    with np.errstate(all="ignore"):
        squares = np.array([[one.widths.min() ** 2 / 16.0, one.widths.sum() ** 2] for one in axes])
    check_held("fast_poisson", "squared widths", squares, dtype)


class Lines:
    """Tridiagonal systems along one axis, one for each combination of the other axes' vectors: the operator along the
    axis plus ``others`` times the widths. Thomas' method for all of them at once; one that is singular is held at its
    first cell, where what it holds is nothing if the system has a solution at all."""

    def __init__(self, cells: AxisCells, axis: int, others: np.ndarray, dtype: np.dtype):
        self.axis, self.links = axis, cells.links
        held = np.where(others == 0.0, cells.diagonal[0] or 1.0, 0.0) if cells.floating else 0.0
        inverse: list[np.ndarray] = []
        for i, link in enumerate(cells.links):
            diagonal = cells.diagonal[i] + others * cells.widths[i] + (held if i == 0 else 0.0)
            inverse.append(1.0 / (diagonal - (link * link * inverse[-1] if i else 0.0)))
        self._inverse = _Where(np.stack([np.take(one, 0, axis) for one in inverse]).astype(dtype))

    def solved(self, b: Any) -> Any:
        arrays = libraries(b)[0]
        inverse, lines = self._inverse.like(b), arrays.moveaxis(b, self.axis, 0).copy()
        n = len(lines)
        for i in range(1, n):
            lines[i] += float(self.links[i]) * inverse[i - 1] * lines[i - 1]
        lines[n - 1] *= inverse[n - 1]
        for i in range(n - 2, -1, -1):
            lines[i] += float(self.links[i + 1]) * lines[i + 1]
            lines[i] *= inverse[i]
        return arrays.moveaxis(lines, 0, self.axis)


class _Where:
    """An array of constants, copied once to where arrays lie that it meets."""

    def __init__(self, array: np.ndarray):
        self._copies: dict[Any, Any] = {np: array}

    def like(self, array: Any) -> Any:
        arrays = libraries(array)[0]
        if arrays not in self._copies:
            self._copies[arrays] = arrays.asarray(self._copies[np])
        return self._copies[arrays]


def _points(field: Field) -> Any:
    """The memory of a field on a grid, as an array of its points: no copy."""
    return field.set.points_of(field.storage[: field.set.total])


def _sum_of(values: list[np.ndarray]) -> np.ndarray:
    found = np.zeros((1,) * len(values))
    for a, one in enumerate(values):
        found = found + one.reshape([-1 if b == a else 1 for b in range(len(values))])
    return found
