"""PICCG in stencil form, of a Poisson operator or a matrix on a grid: two colors, and no stored indices.

Red-black incomplete Cholesky factors with Eisenstat's trick are conjugate gradients on the black points, once the red
ones are eliminated, with the diagonal of what is left as their preconditioner (see ``two_colors``): half the points,
and about half the iterations of plain conjugate gradients.

Bytes. Plain conjugate gradients move 11 numbers of each point in an iteration: 2 for the product, 6 for x and the
residual, 3 for the direction: 88 bytes in double. Here a number of a black point is 4 bytes of each point:

    new direction p' = g r + beta p at a black point and, from its neighbours, what that makes of the red ones, t;
    x += alpha p of the last iteration, as p is there         reads r, g, p, x   writes p', x, t     28
    new residual r -= alpha (F p' - E^T t)                    reads p', t, r, g  writes r            20

48 bytes, or 44 with g, the pivots, in single precision, so with half the iterations 3.7 or 4 times fewer. The direction
is made where it is read, at the black neighbours of a red point, so it goes to a second field, and two iterations are
one program.

Storage: two points along each axis are a cell, with a component for each black point of it and another field for the
red ones. So no load fetches a point that is skipped, as every second one of a whole grid would be, no index has to ask
for the parity of a row, and neighbours are in the cell or the next one. Where the number of points is odd the last cell
is filled up by points without links. Maps from cell to cell are computed. Coefficients of a Poisson operator are arrays
along the axes; those of a matrix are 24 bytes of each point on two axes in each of the two loops, and 32 on three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.linalg.axis_cells import AxisCells
from meshloom.linalg.cell_level import Formula, leading
from meshloom.linalg.grid_matrix import GridMatrix
from meshloom.linalg.iteration import Iteration
from meshloom.linalg.krylov_kernels import set_to
from meshloom.linalg.ordered import Ordered, Parts
from meshloom.linalg.poisson import Poisson
from meshloom.linalg.red_black_kernels import BLACK, LINKS, NUMBERS, RED, WALLS, WIDTHS, kernels, points
from meshloom.linalg.two_colors import Scalars, reduced_iteration
from meshloom.mesh.core import Arg, Field, Map, Set
from meshloom.mesh.grid import Grid

LEAST = 1e-13  # of an entry on the diagonal: a pivot below is rounding


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


class RedBlack(Ordered):
    """``precision``: of the pivots that are stored, one for each black point. Parts are the red points, which are
    eliminated, and the black ones."""

    colors, shift = 2, 0.0

    def __init__(self, links: PointLinks, precision: np.dtype | None):
        self.rows, self.dtype, self.name, self.shape = links.cells, links.dtype, links.name, links.cells.shape
        self._half = tuple(-(-n // 2) for n in self.shape)
        many = 2 ** (len(self.shape) - 1)
        self.cells, self._do = Set(prod(self._half), "cells of two points"), kernels(len(self.shape), bool(links.axes))
        self._around = self._leading(self.cells, lambda e: _around(e, self._half, links.wraps), "cells around")
        self._points = self._leading(links.cells, lambda e: _points(e, self._half, self.shape), "points")
        self._cell_of = self._leading(self.cells, self._cell_formula, "cell", links.cells)
        self._coefficients = self._along(links.axes) if links.axes else self._at_points(links)
        self._g = self._field("pivots", _split(_pivots(links), BLACK), precision)
        self._x, self._b = (tuple(self._field(name, many) for _ in (RED, BLACK)) for name in ("x", "b"))
        self._p = tuple(self._field("direction", many) for _ in range(2))
        self._r, self._t = (self._field(name, many) for name in ("residual", "eliminated"))
        self._which = links.cells.field("which", dtype=np.int32, data=_which(self.shape))
        self._iterations: dict[int, Iteration] = {}

    def _iteration(self, most: int) -> Iteration:
        """Of two steps in one program: one alone, for an odd number of them, has to copy the direction back."""
        steps = 2 if most % 2 == 0 else 1
        if steps not in self._iterations:
            self._iterations[steps] = reduced_iteration(self, self._x, self._b, steps)
        return self._iterations[steps]

    def _close(self) -> None:
        (red, black), (red_b, black_b), of = self._x, self._b, self._coefficients
        self._do.over_diagonal(self.cells, red_b, self._t, *of)
        self._do.close_black(self.cells, black_b, self._t[self._around], self._g, black, *of)
        self._do.solve_red(self.cells, black[self._around], red_b, red, *of)

    def start(self, x: Field, b: Field, s: Scalars) -> None:
        cells, do, of, around = self.cells, self._do, self._coefficients, self._around
        red, red_b = self._x[0], self._b[0]
        do.last_step(cells, s.alpha, self._p[0], x)
        do.solve_red(cells, x[around], red_b, red, *of)
        s.clear()
        s.beta.value = 0.0
        self.refresh(s)
        do.black_residual(cells, x, red[around], b, self._g, self._r, s.rr, s.rz, s.size, *of)
        do.red_residual(cells, x[around], red, red_b, s.rr, s.size, *of)

    def apply(self, x: Field, s: Scalars, k: int) -> None:
        r, g, p = (one[self._around] for one in (self._r, self._g, self._p[k]))
        self._do.new_direction(self.cells, s.alpha, s.beta, r, g, p, self._p[1 - k], x, self._t, s.pq,
                               *self._coefficients)  # fmt: skip

    def improve(self, x: Field, s: Scalars, k: int) -> None:
        self._do.new_residual(self.cells, s.alpha, self._p[1 - k], self._t[self._around], self._g, self._r, s.rr,
                              s.rz_new, *self._coefficients)  # fmt: skip

    def iterate(self, x: Field, s: Scalars, steps: int) -> None:
        if steps == 1:
            set_to(self.cells, self._p[1], self._p[0])

    def refresh(self, s: Scalars) -> None:
        s.alpha.value = 0.0
        self._p[0].fill(0.0)

    def _bring(self, given: Field, parts: Parts, *, inverse: bool) -> None:
        red, black = parts
        self._do.into_halves(self.cells, given[self._points], black, red, *self._coefficients)

    def _take(self, x: Field) -> None:
        red, black = self._x
        self._do.out_of_halves(x.set, self._which, black[self._cell_of], red[self._cell_of], x)

    def _field(self, name: str, data: Any, dtype: np.dtype | None = None) -> Field:
        """A number for each point of a color in each cell: zeros, or (cells, points)."""
        many, values = (data, None) if isinstance(data, int) else (data.shape[1], data)
        values = values[:, 0] if values is not None and many == 1 else values
        return self.cells.field(name, many, dtype=dtype or self.dtype, data=values, layout="soa" if many > 1 else None)

    def _along(self, axes: Sequence[AxisCells]) -> tuple[Arg, ...]:
        """The numbers along each axis."""
        found = []
        for a, (axis, half) in enumerate(zip(axes, self._half, strict=True)):
            places = Set(half, "along the axis")
            held = places.field("along", NUMBERS, dtype=self.dtype, data=_numbers(axis, half), layout="soa")
            found.append(held[self._leading(places, self._along_axis(a), "place along the axis")])
        return tuple(found)

    def _along_axis(self, axis: int) -> Formula:
        return lambda e: [_index(e, self._half, axis)]

    def _at_points(self, links: PointLinks) -> tuple[Arg, ...]:
        """The numbers of each cell, of all of its points."""
        values = _numbers_of_cells(links)
        held = self.cells.field("coefficients", values.shape[1], dtype=self.dtype, data=values, layout="soa")
        return (held[self._around],)

    def _leading(self, target: Set, formula: Formula, name: str, source: Set | None = None) -> Map:
        """The map from a cell, or an element of a ``source``, by a formula of its number."""
        return leading(source or self.cells, target, formula, name, current().target.numbers.solvers.stored_cells)

    def _cell_formula(self, e: Any) -> list[Any]:
        return [_place([_index(e, self.shape, a) // 2 for a in range(len(self.shape))], self._half)]

    def __str__(self) -> str:
        return f"{self.name}: {' x '.join(map(str, self.shape))}, red and black"


def _around(e: Any, half: Sequence[int], wraps: Sequence[bool]) -> list[Any]:
    """The cell of a number itself, and the one before and behind along each axis; behind an end, where there are no
    links, any: itself. Chosen, and not put together from indices, which would take longer."""
    found = [e]
    for a, many in enumerate(half):
        index, stride = _index(e, half, a), prod(half[a + 1 :])
        round_it = (many - 1) * stride if wraps[a] else 0
        found.append(np.where(index > 0, e - stride, e + round_it))
        found.append(np.where(index < many - 1, e + stride, e - round_it))
    return found


def _index(e: Any, shape: Sequence[int], axis: int) -> Any:
    """Along an axis, of the element of a number."""
    stride = prod(shape[axis + 1 :])
    found = e // stride if stride > 1 else e
    return found % shape[axis] if axis else found


def _points(e: Any, half: Sequence[int], shape: Sequence[int]) -> list[Any]:
    """The points of the cell of a number; in place of those that only fill it up the last one."""
    index = [_index(e, half, a) for a in range(len(half))]
    return [
        _place([np.clip(2 * i + s, 0, n - 1) for i, s, n in zip(index, one, shape, strict=True)], shape)
        for one in product((0, 1), repeat=len(shape))
    ]


def _place(index: Sequence[Any], shape: Sequence[int]) -> Any:
    found = 0
    for i, n in zip(index, shape, strict=True):
        found = found * n + i
    return found


def _which(shape: Sequence[int]) -> np.ndarray:
    """(*shape,): for each point which of the black ones of its cell it is, or behind them which of the red ones."""
    order = [*points(len(shape), BLACK), *points(len(shape), RED)]
    found = np.zeros(shape, np.int32)
    for k, one in enumerate(order):
        found[tuple(slice(s, None, 2) for s in one)] = k
    return found


def _numbers(axis: AxisCells, half: int) -> np.ndarray:
    """(half, NUMBERS): for each two points their links to the one before, to each other and to the one behind; their
    widths; their links to walls. 0 for a point that only fills up."""
    n, found = len(axis), np.zeros((half, NUMBERS))
    filled = np.zeros((3, 2 * half + 1))
    for row, values in enumerate((axis.links, axis.widths, axis.walls)):
        filled[row, :n] = values
    if axis.periodic:
        filled[0, n] = axis.links[0]
    for k in range(3):
        found[:, LINKS + k] = filled[0, k : k + 2 * half : 2]
    for k in range(2):
        found[:, WIDTHS + k], found[:, WALLS + k] = filled[1, k : 2 * half : 2], filled[2, k : 2 * half : 2]
    return found


def _pivots(links: PointLinks) -> np.ndarray:
    """(*shape,): one over what is left on the diagonal at each point when its neighbours are eliminated."""
    diagonal = np.where(links.diagonal > 0.0, links.diagonal, 1.0)
    left = diagonal.copy()
    for axis, before in enumerate(links.before):
        left -= before**2 / np.roll(diagonal, 1, axis)
        left -= np.roll(before, -1, axis) ** 2 / np.roll(diagonal, -1, axis)
    return 1.0 / np.where(left > LEAST * diagonal, left, diagonal)


def _numbers_of_cells(links: PointLinks) -> np.ndarray:
    """(cells, numbers): what ``AtPoints`` finds in a cell."""
    to_each = [np.roll(before, -step, axis) for axis, before in enumerate(links.before) for step in (0, 1)]
    walls = links.diagonal - np.sum(to_each, axis=0)
    red = np.stack([_split(one, RED) for one in to_each], axis=-1)  # (cells, red points, neighbours)
    return np.concatenate([red.reshape(len(red), -1), *(_split(walls, color) for color in (RED, BLACK))], axis=1)


def _split(values: np.ndarray, color: int) -> np.ndarray:
    """(cells, points) of a color from (*shape,); 0 for points that only fill up."""
    filled = np.pad(values, [(0, n % 2) for n in values.shape])
    return np.stack([filled[tuple(slice(s, None, 2) for s in one)].ravel() for one in points(values.ndim, color)], -1)
