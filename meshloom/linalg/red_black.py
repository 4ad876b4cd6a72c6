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

from meshloom.kernel.access import Read, ReadWrite, Write
from meshloom.linalg.axis_cells import AxisCells
from meshloom.linalg.cell_level import Formula, leading
from meshloom.linalg.iteration import MOST_ITERATIONS, Iteration, Report, counting, numbers, steps_of
from meshloom.linalg.krylov import ONE
from meshloom.linalg.piccg_cells import OfCells
from meshloom.linalg.point_links import PointLinks
from meshloom.linalg.red_black_kernels import (
    BLACK,
    LINKS,
    NUMBERS,
    RED,
    WALLS,
    WIDTHS,
    kernels,
    points,
)
from meshloom.linalg.steps import BROKEN, note, set_to
from meshloom.mesh.core import Arg, Field, Global, Map, Set
from meshloom.operation.loop import kernel

STORED = 2**12  # cells whose neighbours are stored: more of them are worth code of their own
LEAST = 1e-13  # of an entry on the diagonal: a pivot below is rounding


@dataclass
class OfBothHalves(Iteration):
    """b is that of the black points; ``red_b`` of the red ones."""

    red_b: Field | None = None

    def _is_zero(self, b: Field) -> bool:
        return super()._is_zero(b) and self.red_b is not None and super()._is_zero(self.red_b)


class RedBlack(OfCells):
    """Of a Poisson operator, or a matrix on a grid. ``precision``: of the pivots that are stored, one for each black
    point."""

    colors, shift = 2, 0.0

    def __init__(self, links: PointLinks, precision: np.dtype | None):
        super().__init__(links.grid, links.cells, links.dtype, links.poisson)
        self.links, shape = links, links.cells.shape
        self._half = tuple(-(-n // 2) for n in shape)
        rank, many = len(shape), 2 ** (len(shape) - 1)
        self.cells, self._do = Set(prod(self._half), "cells of two points"), kernels(rank, bool(links.axes))
        self._around = self._leading(self.cells, lambda e: _around(e, self._half, links.wraps), "cells around")
        self._points = self._leading(links.cells, lambda e: _points(e, self._half, shape), "points")
        self._cell_of = leading(links.cells, self.cells, self._cell_formula, "cell", STORED)
        self._coefficients = self._along() if links.axes else self._at_points()
        pivots = _split(_pivots(links), BLACK)
        self._g = self._field("pivots", pivots, self.dtype if precision is None else precision)
        self._x, self._b, self._r = ([self._field(name, many) for _ in (BLACK, RED)] for name in ("x", "b", "r"))
        self._p, self._t = [self._field("direction", many) for _ in range(2)], self._field("eliminated", many)
        self._which = links.cells.field("which", dtype=np.int32, data=_which(shape))
        self._iterations: dict[int, Iteration] = {}

    def solve_cells(self, x: Field, b: Field, tol: float, most: int) -> Report:
        self._bring(x, self._x)
        self._bring(b, self._b)
        steps = 2 if most % 2 == 0 else 1
        if steps not in self._iterations:
            self._iterations[steps] = self._iteration(steps)
        report = self._iterations[steps].solve(self._x[BLACK], self._b[BLACK], tol, most)
        self._take(self._x, x)
        return report

    def make_close_cells(self, r: Field, z: Field) -> None:
        self._bring(r, self._r)
        close, (black, red) = self._x, self._r
        self._do.over_diagonal(self.cells, red, self._t, *self._coefficients)
        self._do.close_black(self.cells, black, self._t[self._around], self._g, close[BLACK], *self._coefficients)
        self._do.solve_red(self.cells, close[BLACK][self._around], red, close[RED], *self._coefficients)
        self._take(close, z)

    def bytes_per_iteration(self) -> int:
        one = self._iterations.setdefault(2, self._iteration(2))
        return sum(step.compulsory for step in one.iterate.bind(self._x[BLACK], self._b[BLACK]).loops) // one.steps

    def _iteration(self, steps: int) -> Iteration:
        """So many iterations as one program: an odd number has to copy the direction back."""
        cells, do, of, around, g = self.cells, self._do, self._coefficients, self._around, self._g
        r, t, (first, second) = self._r[BLACK], self._t, self._p
        rr, rz, rz_new, pq, size, alpha, beta, left, target, *after = numbers(r, 9 + steps)
        count, history = counting(r, steps)
        at = [Global(0, "at", dtype=np.int64) for _ in range(steps)]

        def start(x: Field, b: Field) -> None:
            do.last_step(cells, alpha, first, x)
            do.solve_red(cells, x[around], self._b[RED], self._x[RED], *of)
            rr.value = rz.value = size.value = alpha.value = beta.value = pq.value = 0.0
            first.fill(0.0)
            do.black_residual(cells, x, self._x[RED][around], b, g, r, rr, rz, size, *of)
            do.red_residual(cells, x[around], self._x[RED], self._b[RED], rr, size, *of)
            set_to(ONE, rr, left)
            note(history.set, history.set.numbers, count, rr, history)

        def step(x: Field, old: Field, new: Field, k: int) -> None:
            do.new_direction(cells, alpha, beta, r[around], g[around], old[around], new, x, t, pq, *of)
            red_black_alpha(ONE, left, target, rz, pq, alpha, rr, rz_new)
            do.new_residual(cells, alpha, new, t[around], g, r, rr, rz_new, *of)
            red_black_beta(ONE, target, rr, rz_new, pq, rz, beta, left, count, after[k], at[k])

        def iterate(x: Field, b: Field) -> None:
            step(x, first, second, 0)
            if steps == 2:
                step(x, second, first, 1)
                note_two(history.set, *at, history.set.numbers, *after, history)
            else:
                set_to(cells, second, first)
                note(history.set, history.set.numbers, count, after[0], history)

        def refresh() -> None:
            alpha.value = 0.0  # a solution that was interrupted has left it as it was
            first.fill(0.0)

        return OfBothHalves(steps_of(start), steps_of(iterate), left, size, count, history, refresh, steps,
                            MOST_ITERATIONS, target, red_b=self._b[RED])  # fmt: skip

    def _bring(self, x: Field, halves: Sequence[Field]) -> None:
        self._do.into_halves(self.cells, x[self._points], *halves, *self._coefficients)

    def _take(self, halves: Sequence[Field], x: Field) -> None:
        self._do.out_of_halves(x.set, self._which, *(one[self._cell_of] for one in halves), x)

    def _field(self, name: str, data: Any, dtype: np.dtype | None = None) -> Field:
        """A number for each point of a color in each cell: zeros, or (cells, points)."""
        many, values = (data, None) if isinstance(data, int) else (data.shape[1], data)
        values = values[:, 0] if values is not None and many == 1 else values
        return self.cells.field(name, many, dtype=dtype or self.dtype, data=values, layout="soa" if many > 1 else None)

    def _along(self) -> tuple[Arg, ...]:
        """The numbers along each axis."""
        half, found = self._half, []
        for a, axis in enumerate(self.links.axes):
            places = Set(half[a], "along the axis")
            held = places.field("along", NUMBERS, dtype=self.dtype, data=_numbers(axis, half[a]), layout="soa")
            found.append(held[self._leading(places, self._along_axis(a), "place along the axis")])
        return tuple(found)

    def _along_axis(self, axis: int) -> Formula:
        return lambda e: [_index(e, self._half, axis)]

    def _at_points(self) -> tuple[Arg, ...]:
        """The numbers of each cell, of all of its points."""
        values = _numbers_of_cells(self.links)
        held = self.cells.field("coefficients", values.shape[1], dtype=self.dtype, data=values, layout="soa")
        return (held[self._around],)

    def _leading(self, target: Set, formula: Formula, name: str) -> Map:
        """The map from a cell by a formula of its number."""
        return leading(self.cells, target, formula, name, STORED)

    def _cell_formula(self, e: Any) -> list[Any]:
        shape, half, place = self.links.cells.shape, self._half, 0
        for a in range(len(shape)):
            place = place * half[a] + _index(e, shape, a) // 2
        return [place]

    def __str__(self) -> str:
        return f"{self.links.name}: {' x '.join(map(str, self.links.cells.shape))}, red and black"


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


# --- decisions: as few loops over a single element as there can be, since an iteration takes little time --------------


# Once the end is reached, a step that still follows in the program changes nothing.


@kernel
def red_black_alpha(left: Read, target: Read, rz: Read, pq: Read, alpha: Write, rr: Write, rz_new: Write):
    alpha[...] = np.where(left <= target, 0.0, np.where(pq > 0.0, rz / pq, 0.0))
    rr[...] = 0.0
    rz_new[...] = 0.0


@kernel
def red_black_beta(target: Read, rr: Read, rz_new: Read, pq: ReadWrite, rz: ReadWrite, beta: Write, left: ReadWrite,
                   count: ReadWrite, square: Write, at: Write):  # fmt: skip
    there = left <= target  # not where it is no number
    number = count + np.where(there, 0, 1)
    left[...] = np.where(there, left, np.where((pq > 0.0) & np.isfinite(rr), rr, BROKEN))
    beta[...] = np.where(rz > 0.0, rz_new / rz, 0.0)
    rz[...] = rz_new
    pq[...] = 0.0
    count[...] = number
    square[...] = rr
    at[...] = number


@kernel
def note_two(at_first: Read, at_last: Read, number: Read, first: Read, last: Read, history: ReadWrite):
    history[...] = np.where(number == at_last, last, np.where(number == at_first, first, history))
