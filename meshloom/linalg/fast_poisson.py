"""Poisson's equation solved directly: transforms along the axes, and tridiagonal systems along the one that has none.

Whatever the operator along an axis only multiplies needs no solving there. So all axes but one are transformed, and for
each combination of their vectors one tridiagonal system along the last is left; or nothing but a division, where there
are fast transforms for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshloom.backend import current
from meshloom.errors import MeshError, instance
from meshloom.exclusion import exclusive
from meshloom.linalg.axis_cells import AxisCells
from meshloom.linalg.batched_fft import BatchedFFT
from meshloom.linalg.cell_level import outer
from meshloom.linalg.in_programs import called_in_programs
from meshloom.linalg.iteration import TOLERANCE, Report, check_alone, check_tolerance
from meshloom.linalg.poisson import Poisson, check_held, rounding
from meshloom.linalg.solid_cells import Solids, solid_mask
from meshloom.linalg.spectral_solve import SpectralSolve
from meshloom.linalg.transforms import Waves, Where, fast, transform_of
from meshloom.mesh.box import AXES
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Field
from meshloom.recording import MAKE_BEFORE, refuse_in_program

MOST_TIMES = 3  # that what rounding has left is solved for again
SAFE = 1e140  # the square of a number of this size, or of one over it, is one with room to spare


class FastPoisson(NoCopy):
    """``FastPoisson(poisson).solve(x, b)``: A x = b without iterations, whatever x was.

    Axes with cells of one width that are periodic, or have like ends, are transformed by FFT, cosines or sines. Of the
    others the longest closed one is solved along; what is left, stretched cells along a second axis, say, is
    transformed by a matrix, n^2 operations for a line of n cells. Where A is singular b counts without what it adds up
    to, and x has no mean.

    ``solid``: a mask (*shape,) of cells into which nothing flows, whatever holds at their sides. Then A is the operator
    on the others, the fluid, with no slope at the faces of solids; inside them b does not count and x is 0. This takes
    two solves instead of one, and a matrix of all faces between fluid and solid, made once by as many solves.
    """

    name = "fast_poisson"

    @exclusive
    def __init__(self, poisson: Poisson, solid: ArrayLike | None = None):
        refuse_in_program("making a fast Poisson solver", MAKE_BEFORE)
        check_alone("fast_poisson")
        self.poisson = instance("fast_poisson: the operator", poisson, Poisson, error=MeshError)
        axes = poisson.axes
        self.along = _solved_along(axes)
        waves = [a for a, one in enumerate(axes) if fast(one) and one.periodic and a != self.along]
        order = [a for a in range(len(axes)) if a != self.along and a not in waves] + waves
        _check_squares([axes[a] for a in order], poisson.dtype)
        first_wave = waves[0] if waves else None
        self._transforms = [
            (a, transform_of(f"fast_poisson: axis {AXES[a]}", axes[a], poisson.dtype, real=a == first_wave))
            for a in order
        ]
        mask = None if solid is None else solid_mask(solid, poisson.grid.shape)
        self._solids = None if mask is None else Solids(poisson, mask)

    @staticmethod
    def most_by_matrix() -> int:
        """Cells along an axis that is transformed by a matrix, up to which that is faster than multigrid is here."""
        return current().target.numbers.solvers.by_matrix

    @cached_property
    def _parts(self) -> Where:
        """Of each cell its part of the volume of all; solids have none."""
        if self._solids is not None:
            return Where(self._solids.parts)
        parts = outer([one.widths / one.widths.sum() for one in self.poisson.axes])
        return Where(parts.astype(self.poisson.dtype))

    @cached_property
    def _image(self) -> Field:
        """Room for A x."""
        return self.poisson.grid.field("image", dtype=self.poisson.dtype)

    @cached_property
    def _sources(self) -> Field:
        """Room for a right-hand side that is no field."""
        return self.poisson.grid.field("sources", dtype=self.poisson.dtype)

    @property
    def singular(self) -> bool:
        """Is no value held at any side of the fluid?"""
        return self.poisson.singular if self._solids is None else self._solids.singular

    @cached_property
    def _spectral_solve(self) -> SpectralSolve:
        """Where the shares of the transforms' vectors are divided, or solved for, axis after axis."""
        values = [np.zeros(1)] * len(self.poisson.axes)
        for a, one in self._transforms:
            values[a] = one.values
        scale = float(np.prod([one.scale for _, one in self._transforms]))
        return self._spectral_solve_of(
            reduce(np.add.outer, values, np.zeros(())), self.along, scale,
            waves=any(isinstance(one, Waves) for _, one in self._transforms),
        )  # fmt: skip

    def _spectral_solve_of(self, values: np.ndarray, along: int | None, scale: float, *, waves: bool) -> SpectralSolve:
        """``along``: which axis of the values that is that is solved along."""
        cells = None if along is None or self.along is None else (along, self.poisson.axes[self.along])
        return SpectralSolve(values, cells, scale, self.poisson.dtype, waves=waves, singular=self.poisson.singular)

    @cached_property
    def _batched(self) -> tuple[BatchedFFT, SpectralSolve] | None:
        """How all axes are transformed in one batch on a GPU, and the same for the shares as they come out there."""
        batched = None
        if self.along is not None:
            batched = BatchedFFT.of(self.poisson.grid, dict(self._transforms), self.poisson.dtype)
        if batched is None:
            return None
        along = 0 if batched.moved else self.along
        return batched, self._spectral_solve_of(batched.values(), along, batched.scale, waves=not batched.apart)

    @exclusive
    @called_in_programs
    def solve_only(self, x: Field, b: Field) -> None:
        """Set x to A^-1 b, and nothing else: no norms, no residual, no report, for those who solve in every step. What
        is no number in b is none anywhere in x. Where A is singular, as ``solve``."""
        self._check(x, b)
        self._put(x, b)
        x.changed()

    def _put(self, x: Field, b: Any) -> None:
        """x = A^-1 b, a field or an array (*shape,) where loops run; of a singular A the one without a mean, of what b
        has next to what no solution has."""
        if self._solids is None:
            self._put_whole(x, b)
        else:
            self._solids.put(_points(x), _array(b), lambda _, sources: self._put_whole(x, sources))

    def _put_whole(self, x: Field, b: Any) -> None:
        """The same without solids."""
        on_device = self._batched if current().target.is_simt else None
        if on_device is None:
            _points(x)[...] = self.solved(_array(b))
            return
        if not isinstance(b, Field):
            _to_loops(self._sources)
            _points(self._sources)[...] = b
            b = self._sources
        batched, spectral = on_device
        batched.forwards(b, spectral.field)
        spectral.solve_in_place(spectral.memory)
        batched.backwards(spectral.field, x)

    def _check(self, x: Field, b: Field) -> None:
        self.poisson.check_both(self.name, x=x, b=b)
        b.check_readable()
        _to_loops(x, b)

    @exclusive
    @called_in_programs
    def solve(self, x: Field, b: Field, *, tol: float = TOLERANCE) -> Report:
        """Set x. ``converged`` says whether the norm of b - A x, computed anew, is at most ``tol`` times that of b;
        ``iterations`` how often it took: once, and again where rounding has left more. Inside a program it is called at
        every replay, as is ``solve_only``."""
        poisson, tol = self.poisson, check_tolerance(self.name, tol)
        self._check(x, b)
        _to_loops(self._image)
        given = _points(b)
        right = given if self._solids is None else self._solids.in_fluid(given)
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(right.sum(dtype=np.float64))
            size = float(abs(right).sum(dtype=np.float64)) if self.singular else 0.0
        norm = self._norm(right)
        if not np.isfinite(norm) or (self.singular and not np.isfinite(size)):
            return Report(False, 0, float("nan"), np.full(1, np.nan), "values that are not finite")
        right, norm = self._possible(right, total, norm)
        if norm == 0.0:
            x.assign(0.0)
            report = Report(True, 0, 0.0, np.zeros(1), "b is zero, and so is x")
            return report.without(total, size, poisson.dtype)
        history = self._improve(x, b if right is given else right, right, norm, tol)
        converged = history[-1] <= tol
        reason = "converged" if converged else f"stalled: rounding in {poisson.dtype} leaves no smaller residual"
        if not np.isfinite(history[-1]):  # b is, but what it is transformed to is not
            reason = "values that are not finite"
        report = Report(bool(converged), len(history) - 1, history[-1], np.array(history), reason)
        return report.without(total, size, poisson.dtype) if self.singular else report

    def _improve(self, x: Field, left: Any, right: Any, norm: float, tol: float) -> list[float]:
        """Set x; the norm of the residual before, and after every time, as a multiple of that of b. ``left``: what is
        solved for at first, the array ``right`` or the field that has it."""
        history = [1.0]
        for _ in range(MOST_TIMES):
            before = _points(x).copy() if len(history) > 1 else None
            self._put(x, left)
            if before is not None:
                _points(x)[...] += before
            x.changed()
            left = right - self._image_of(x)
            now = self._norm(left) / norm
            if before is not None and not now < history[-1]:
                _points(x)[...] = before
                x.changed()
                break
            history.append(now)
            if now <= tol:
                break
        return history

    def _image_of(self, x: Field) -> Any:
        """A x, as an array."""
        self.poisson(x, self._image)
        image = _points(self._image)
        return image if self._solids is None else self._solids.image(_points(x), image)

    @exclusive
    def solved(self, b: Any) -> Any:
        """``_put_whole`` axis after axis, for arrays of any library; what it returns may lie where the next will."""
        for axis, transform in self._transforms:
            b = transform.forwards(b, axis)
        b = self._spectral_solve.solved(b)
        for axis, transform in reversed(self._transforms):
            b = transform.backwards(b, axis)
        return b

    def _possible(self, right: Any, total: float, norm: float) -> tuple[Any, float]:
        """The right-hand side without what no solution has, and its norm; 0 where only rounding is left."""
        if not self.singular:
            return right, norm
        right = right - self._parts.like(right) * total
        left = self._norm(right)
        return right, left if left > rounding(self.poisson.dtype) * norm else 0.0

    @staticmethod
    def _norm(array: Any) -> float:
        """In double, and safe from squares that are too large or too small."""
        low, high = float(array.min()), float(array.max())
        if not np.isfinite(low + high):
            return float("nan")
        largest = max(-low, high)
        if largest == 0.0:
            return 0.0
        if array.dtype == np.float64 and 1.0 / SAFE < largest < SAFE:  # squares can be added up as they are
            flat = array.ravel()
            return float(flat.dot(flat)) ** 0.5
        return largest * float(((array / largest).astype(np.float64) ** 2).sum() ** 0.5)

    def __repr__(self) -> str:
        how = [f"{AXES[a]} {one.word}" for a, one in self._transforms]
        how += [] if self.along is None else [f"{AXES[self.along]} solved"]
        how += [] if self._solids is None else [f"around solids with {len(self._solids.faces)} faces"]
        return f"FastPoisson({self.poisson.name}: {', '.join(how)})"


def _solved_along(axes: Sequence[AxisCells]) -> int | None:
    """Of axes without a fast transform the longest closed one; where all have one, and there are several, the first of
    more than one cell: neighbouring lines lie side by side there, and solving takes fewer passes than transforming
    there and back."""
    slow = [a for a, one in enumerate(axes) if not fast(one) and not one.periodic]
    if slow:
        return max(slow, key=lambda a: len(axes[a]))
    several = [a for a, one in enumerate(axes) if len(one) > 1]
    return several[0] if len(several) > 1 and all(map(fast, axes)) else None


def _check_squares(axes: list[AxisCells], dtype: np.dtype) -> None:
    """MeshError where what is divided by along the axes, from a cell's width squared to that of the whole axis, is too
    large or too small for numbers of a type."""
    with np.errstate(all="ignore"):
        squares = np.array([[one.widths.min() ** 2 / 16.0, one.widths.sum() ** 2] for one in axes])
    check_held("fast_poisson", "squared widths", squares, dtype)


def _to_loops(*fields: Field) -> None:
    """All of them to where loops run, so that arrays meet their like."""
    for one in fields:
        current().bring(one)


def _array(given: Any) -> Any:
    """The points of a field, or the array that is given."""
    return _points(given) if isinstance(given, Field) else given


def _points(field: Field) -> Any:
    """The memory of a field on a grid, as an array of its points: no copy."""
    return field.set.points_of(field.storage[: field.set.total])
