"""What a multigrid cycle does on a level before and after the correction from the next: errors become smooth.

Point by point where cells are alike. Where they are stretched, long here and flat there, every cell is linked strongly
along one axis or another, and what is not smoothed along it stays: so whole lines are solved, along one axis after the
other. Their systems are tridiagonal with coefficients of their own in every cell, and factored once: a solve is one
operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from meshloom.kernel.access import Read, ReadWrite, Write
from meshloom.linalg.cell_level import CellLevel
from meshloom.linalg.factors import link_factors
from meshloom.linalg.lines import line_loop
from meshloom.mesh.core import Field
from meshloom.operation.loop import kernel

DAMPING = 0.8  # of what lines say: with 1 axes that are alike disturb each other


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
        self._buffers = [level.grid.field(name, dtype=level.dtype) for name in ("smooth", "smoother")]

    def before(self, b: Field) -> tuple[Field, Field]:
        return self.level.smooth(None, b, self._buffers, self.steps)

    def after(self, x: Field, b: Field) -> Field:
        return self.level.smooth(x, b, self._buffers, self.steps)[0]


class LineSmoothing(Smoothing):
    """The lines along one axis after the other, so many times; afterwards in the opposite order."""

    def __init__(self, level: CellLevel, times: int):
        self.level = level
        lines = [CellLines(level, axis) for axis, n in enumerate(level.shape) if n > 1]
        self._order = lines * times
        self._x, self._r = (level.grid.field(name, dtype=level.dtype) for name in ("smooth", "residual"))

    def before(self, b: Field) -> tuple[Field, Field]:
        first, *rest = self._order
        first.improve(b, self._x, from_zero=True)
        self._sweep(rest, b)
        return self._x, self._r

    def after(self, x: Field, b: Field) -> Field:
        self._sweep(self._order[::-1], b)
        return x

    def _sweep(self, order: list[CellLines], b: Field) -> None:
        for lines in order:
            self.level.residual(self._x, b, self._r)
            lines.improve(self._r, self._x, from_zero=False)


class CellLines:
    """x + DAMPING T^-1 r: T has the diagonal of A and its links along one axis, that is the tridiagonal systems of all
    lines along it.

    All cells of a line have the same areas along it. Divided by these, the links of all lines are the same.
    """

    def __init__(self, level: CellLevel, axis: int):
        cells, areas = level.axes[axis], level.areas_along(axis)
        excess = np.moveaxis(level.excess_along(axis) / areas, axis, 0)
        self.grid, self._axis = level.grid, axis
        self._factors = link_factors("lines", level.grid, axis, cells.links, excess.__getitem__,
                                     periodic=cells.periodic, dtype=level.dtype)  # fmt: skip
        self._weights = level.grid.field("weights", dtype=level.dtype, data=DAMPING / areas)

    def improve(self, r: Field, x: Field, *, from_zero: bool) -> None:
        """x = DAMPING T^-1 r ``from_zero``, else added to x; one operation."""
        line_loop(self.grid, self._axis, self._factors, (r, self._weights), x, before=weigh,
                  after=set_by_lines if from_zero else improve_by_lines, values=1)  # fmt: skip


# --- kernels ----------------------------------------------------------------------------------------------------------


@kernel
def weigh(r: Read, weight: Read, f: Write):
    f[...] = weight * r


@kernel
def set_by_lines(y: Read, x: Write):
    x[...] = y


@kernel
def improve_by_lines(y: Read, x: ReadWrite):
    x += y
