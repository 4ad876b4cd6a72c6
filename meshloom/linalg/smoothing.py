"""What a multigrid cycle does on a level before and after the correction from the next: errors become smooth.

Point by point where cells are alike. Where they are stretched, long here and flat there, every cell is linked strongly
along one axis or another, and what is not smoothed along it stays: so whole lines are solved, along one axis after the
other. The systems of the lines are tridiagonal with coefficients of their own in every cell; they are solved by
parallel cyclic reduction, each of whose stages is one loop that looks so and so many cells ahead and back, with factors
that are made once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache

import numpy as np

from meshloom.kernel.access import Read, ReadWrite, Write
from meshloom.linalg.cell_level import CellLevel
from meshloom.mesh.core import Field
from meshloom.operation.loop import Kernel, kernel

DAMPING = 0.8  # of what lines say: with 1 axes that are alike disturb each other
NOTHING = 1e-17  # a link as a part of the diagonal that rounding would lose
MOST_STAGES = 64


class Smoothing(ABC):
    """``before`` and ``after`` are each other's transposes, so that a cycle is symmetric."""

    @abstractmethod
    def before(self, b: Field) -> tuple[Field, Field]:
        """(x, towards A x = b from zero; a field of the level that may be written)."""

    @abstractmethod
    def after(self, x: Field, b: Field) -> Field:
        """The field with what x, which ``before`` returned and the correction was added to, becomes."""


class PointSmoothing(Smoothing):
    """So many steps of ``CellLevel.smooth``."""

    def __init__(self, level: CellLevel, steps: int):
        self.level, self.steps = level, steps
        self._spare = [level.grid.field(name, dtype=level.dtype) for name in ("smooth", "smoother")]

    def before(self, b: Field) -> tuple[Field, Field]:
        return self.level.smooth(None, b, self._spare, self.steps)

    def after(self, x: Field, b: Field) -> Field:
        return self.level.smooth(x, b, self._spare, self.steps)[0]


class LineSmoothing(Smoothing):
    """The lines along one axis after the other, so many times; afterwards in the opposite order."""

    def __init__(self, level: CellLevel, times: int):
        self.level = level
        lines = [CellLines(level, axis) for axis, n in enumerate(level.shape) if n > 1]
        self._order = lines * times
        names = ("smooth", "reduced", "more reduced")
        self._x, *self._spare = (level.grid.field(name, dtype=level.dtype) for name in names)

    def before(self, b: Field) -> tuple[Field, Field]:
        first, *rest = self._order
        first.improve(b, self._x, self._spare, from_zero=True)
        self._sweep(rest, b)
        return self._x, self._spare[0]

    def after(self, x: Field, b: Field) -> Field:
        self._sweep(self._order[::-1], b)
        return x

    def _sweep(self, order: list[CellLines], b: Field) -> None:
        for lines in order:
            self.level.residual(self._x, b, self._spare[0])
            lines.improve(self._spare[0], self._x, self._spare, from_zero=False)


class CellLines:
    """x + DAMPING T^-1 r: T has the diagonal of A and its links along one axis, that is the tridiagonal systems of all
    lines along it.

    A stage of cyclic reduction takes the rows ``step`` cells before and behind a row, times its ``factors``, into it,
    so that it is linked to cells twice as far away; when no links are left, x is b over the diagonal.
    """

    def __init__(self, level: CellLevel, axis: int):
        self.grid, dtype = level.grid, level.dtype
        self.stages, inverse = reduction(level.links_along(axis), level.excess_along(axis), axis)
        self._factors = [self.grid.field("factors", 2, dtype=dtype, data=one) for _, one in self.stages]
        self._inverse = self.grid.field("inverse", dtype=dtype, data=inverse)
        self._axis = axis

    def improve(self, r: Field, x: Field, spare: list[Field], *, from_zero: bool) -> None:
        """``spare``: two fields that may be written, one of them perhaps r."""
        now, last = r, len(self.stages) - 1
        if not self.stages:
            _scaled(from_zero)(self.grid, self._inverse, DAMPING, r, x)
        for k, (step, _) in enumerate(self.stages):
            offsets = self.grid.offsets(*_places(self.grid.rank, self._axis, step))
            if k == last:
                _last_stage(self.grid.rank, self._axis, step, from_zero)(
                    self.grid, self._factors[k], now[offsets], self._inverse, DAMPING, x
                )
                return
            other = spare[1] if now is spare[0] else spare[0]
            _stage(self.grid.rank, self._axis, step)(self.grid, self._factors[k], now[offsets], other)
            now = other


def reduction(before: np.ndarray, excess: np.ndarray, axis: int) -> tuple[list[tuple[int, np.ndarray]], np.ndarray]:
    """([(step, factors (*shape, 2))], one over the last diagonal) of lines of a periodic array. ``before``: the links
    to the cell before (0 where a line begins); ``excess``: what the diagonal has above the links of a row, which adds
    up as rows do, so that nothing is lost where it is small."""
    n, step = before.shape[axis], 1
    behind = np.roll(before, -1, axis)
    stages: list[tuple[int, np.ndarray]] = []
    while len(stages) < MOST_STAGES:
        diagonal = excess + before + behind
        if max((before / diagonal).max(), (behind / diagonal).max()) <= NOTHING:
            break
        if step % n == 0:  # a cell is linked with itself, once round
            return stages, 1.0 / excess
        low = before / np.roll(diagonal, step, axis)
        high = behind / np.roll(diagonal, -step, axis)
        stages.append((step % n, np.stack([low, high], axis=-1)))
        excess = excess + low * np.roll(excess, step, axis) + high * np.roll(excess, -step, axis)
        before, behind = low * np.roll(before, step, axis), high * np.roll(behind, -step, axis)
        step = 2 * step
    return stages, 1.0 / (excess + before + behind)


def _places(rank: int, axis: int, step: int) -> tuple[tuple[int, ...], ...]:
    """The cell itself, that so many before it along an axis, and that behind it."""
    return tuple(tuple(s if a == axis else 0 for a in range(rank)) for s in (0, -step, step))


# --- kernels ----------------------------------------------------------------------------------------------------------


@cache
def _stage(rank: int, axis: int, step: int) -> Kernel:
    here, low, high = _places(rank, axis, step)

    @kernel
    def reduce_lines(factors: Read, b: Read, out: Write):
        out[...] = b[here] + factors[0] * b[low] + factors[1] * b[high]

    return reduce_lines


@cache
def _last_stage(rank: int, axis: int, step: int, from_zero: bool) -> Kernel:
    here, low, high = _places(rank, axis, step)

    @kernel
    def set_by_lines(factors: Read, b: Read, inverse: Read, damping: Read, x: Write):
        x[...] = damping * inverse * (b[here] + factors[0] * b[low] + factors[1] * b[high])

    @kernel
    def improve_by_lines(factors: Read, b: Read, inverse: Read, damping: Read, x: ReadWrite):
        x += damping * inverse * (b[here] + factors[0] * b[low] + factors[1] * b[high])

    return set_by_lines if from_zero else improve_by_lines


@cache
def _scaled(from_zero: bool) -> Kernel:
    @kernel
    def set_by_cells(inverse: Read, damping: Read, b: Read, x: Write):
        x[...] = damping * inverse * b

    @kernel
    def improve_by_cells(inverse: Read, damping: Read, b: Read, x: ReadWrite):
        x += damping * inverse * b

    return set_by_cells if from_zero else improve_by_cells
