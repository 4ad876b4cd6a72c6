"""A difference operator on one grid of cells, and the smoothing of errors: loops that look at neighbouring cells.

Cells are those of a grid without ghosts all of whose axes go around; where an axis ends, the link around it is 0. So
every neighbour that a loop looks at is a cell, sums over neighbours need no case, and maps may lead from one such grid
to another, as they do between the levels of a multigrid method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.kernel.access import Read, ReadWrite, Write
from meshloom.linalg.axis_cells import AxisCells
from meshloom.linalg.krylov_kernels import gather, scatter, set_to
from meshloom.mesh.core import Arg, Field, Global, Map, Set
from meshloom.mesh.grid import Grid
from meshloom.operation.loop import kernel

LARGEST = 2.0  # no eigenvalue of D^-1 A is above: the other entries of a row are together no larger than its diagonal
Formula = Callable[[Any], Sequence[Any]]  # of an element's number, or of an array of them: its targets


class CellLevel:
    """y = A x on a grid of cells, A the sum of the axes' operators.

    Loops read ``coefficients``. On ``even`` cells links are numbers, and a field of bits says where an axis ends: 4
    bytes of a cell. Else they are a field, in each cell its links to the cell before it along each axis, and last the
    diagonal of A.
    """

    def __init__(self, axes: Sequence[AxisCells], dtype: np.dtype, grid: Grid | None = None):
        self.axes = tuple(axes)
        self.shape = tuple(len(one) for one in axes)
        self.grid = Grid(self.shape, periodic=True, name="cells") if grid is None else grid
        self.dtype, self.even = dtype, all(one.uniform for one in axes)
        self.coefficients = self._numbers() if self.even else (self._field(),)
        self._step = _kernels(len(axes), self.even)

    def _field(self) -> Arg:
        rank = len(self.axes)
        values = np.stack([*(self.links_along(a) for a in range(rank)), self.diagonal], axis=-1)
        links = self.grid.field("links", rank + 1, dtype=self.dtype, data=values)
        return links[self.grid.offsets((0,) * rank, *(_unit(rank, a) for a in range(rank)))]

    def _numbers(self) -> tuple[Field, Global]:
        """(bits of each cell: bit 2 a is set where it is the first along a closed axis a, the next where it is the
        last; for each axis its link, and those to the walls at its ends)."""
        bits, numbers = np.zeros(self.shape, np.int32), []
        for a, one in enumerate(self.axes):
            area = prod(float(other.widths[0]) for b, other in enumerate(self.axes) if b != a)
            numbers += [area * float(one.links[-1]), area * one.wall(0), area * one.wall(-1)]
            for place, bit in () if one.periodic else ((0, 1), (-1, 2)):
                bits[(slice(None),) * a + (place,)] |= bit << 2 * a
        return (
            self.grid.field("ends", dtype=np.int32, data=bits),
            Global(np.array(numbers, self.dtype), "links", dtype=self.dtype),
        )

    def links_along(self, axis: int) -> np.ndarray:
        """The links of each cell to that before it, (*shape,)."""
        return self._times_areas(axis, self.axes[axis].links)

    def areas_along(self, axis: int) -> np.ndarray:
        """The areas of each cell's faces across an axis, (*shape,); constant along it."""
        return self._times_areas(axis, np.ones(self.shape[axis]))

    def excess_along(self, axis: int) -> np.ndarray:
        """What the diagonal of A has above the links of each cell along an axis, (*shape,)."""
        return self._sum([one.walls if a == axis else one.diagonal for a, one in enumerate(self.axes)])

    @property
    def diagonal(self) -> np.ndarray:
        """That of A, (*shape,)."""
        return self._sum([one.diagonal for one in self.axes])

    def _sum(self, values: Sequence[np.ndarray]) -> np.ndarray:
        return np.sum([self._times_areas(a, one) for a, one in enumerate(values)], axis=0)

    def _times_areas(self, axis: int, values: np.ndarray) -> np.ndarray:
        """Values along an axis times the widths along all others, (*shape,)."""
        return outer([values if a == axis else one.widths for a, one in enumerate(self.axes)])

    def inverse(self) -> np.ndarray:
        """(n, n), for few cells only; where A is singular its pseudo-inverse."""
        parts = [
            [one.dense if a == axis else np.diag(one.widths) for a, one in enumerate(self.axes)]
            for axis in range(len(self.axes))
        ]
        matrix = np.sum([reduce(np.kron, part) for part in parts], axis=0)
        n, size = len(matrix), float(np.trace(matrix)) / len(matrix)
        if not all(one.floating for one in self.axes):
            return _symmetric(np.linalg.inv(matrix))
        if size == 0.0:
            return np.zeros((n, n))
        constants = np.full((n, n), 1.0 / n)  # they alone have no image, so that with them it can be inverted
        return _symmetric(np.linalg.inv(matrix + size * constants) - constants / size)

    def apply(self, x: Field, y: Field) -> None:
        """y = A x."""
        self._step.apply(self.grid, x[self.grid.star(1)], y, *self.coefficients)

    def residual(self, x: Field, b: Field, r: Field) -> None:
        """r = b - A x."""
        self._step.residual(self.grid, x[self.grid.star(1)], b, r, *self.coefficients)

    def smooth(self, x: Field | None, b: Field, buffers: Sequence[Field], steps: int) -> tuple[Field, Field]:
        """So many steps towards A x = b, from zero where x is None. ``buffers``: fields that may be written, one of
        them x. Returns the result and the other one.

        Chebyshev polynomials of the fourth kind (J. Lottes, 2022), which need no least eigenvalue: the error is
        multiplied by a polynomial of D^-1 A, so that the same steps before and after keep a cycle symmetric.
        """
        now, other = (buffers[0], buffers[1]) if x is None or x is buffers[0] else (buffers[1], buffers[0])
        for k in range(1, steps + 1):
            pull = (8 * k - 4) / ((2 * k + 1) * LARGEST)
            carry = 0.0 if k == 1 else (2 * k - 3) / (2 * k + 1)
            if k == 1 and x is None:
                self._step.from_zero(self.grid, b, pull, now, *self.coefficients)
                continue
            first = k == 1 or (k == 2 and x is None)  # what is in the other field is no earlier step
            step = self._step.begin if first else self._step.go_on
            step(self.grid, now[self.grid.star(1)], b, carry, pull, other, *self.coefficients)
            now, other = other, now
        return now, other


class Bridge:
    """Between the points of any grid, ghosts and padding apart, and the cells of the same shape."""

    def __init__(self, grid: Grid, cells: Grid):
        self.cells = cells
        self.same = grid is cells
        self._to_points = None if self.same else leading(cells, grid, lambda e: [point_of(grid, e)], "points")

    def into_cells(self, x: Field, y: Field) -> None:
        """y = x, a field of the cells from one of the grid."""
        if self._to_points is None:
            set_to(self.cells, x, y)
        else:
            gather(self.cells, x[self._to_points], y)

    def out_of_cells(self, x: Field, y: Field) -> None:
        """y = x, a field of the grid from one of the cells; its ghosts stay as they are."""
        if self._to_points is None:
            set_to(self.cells, x, y)
        else:
            scatter(self.cells, x, y[self._to_points])

    def through_cells(self, x: Field, y: Field, apply: Callable[[Field, Field], None], ends: Sequence[Field]) -> None:
        """y, which ``apply`` makes of x in the cells. ``ends``: two fields of these, unless they are the points."""
        if self.same:
            apply(x, y)
            return
        one, other = ends
        self.into_cells(x, one)
        apply(one, other)
        self.out_of_cells(other, y)


def leading(source: Set, target: Set, formula: Formula, name: str, stored: int | None = None) -> Map:
    """The map by a formula of the element's number; ``stored`` where sets have at most so many elements, because a
    formula is part of the code, which would be compiled for every size."""
    if source.total > (current().target.numbers.solvers.stored_maps if stored is None else stored):
        return Map.computed(source, target, formula, name)
    return Map(source, target, np.stack(formula(np.arange(source.total)), axis=1), name)


def point_of(grid: Grid, number: Any) -> Any:
    """Where the point of a number, counted without ghosts and padding, lies in memory: a formula."""
    place, shape = 0, grid.shape
    for a in range(len(shape)):
        index = number // prod(shape[a + 1 :]) % shape[a]
        place = place + (index + grid.first[a]) * grid.strides[a]
    return place


def plain(grid: Grid) -> bool:
    """Has a grid neither ends nor ghosts nor padding, as the cells of a level?"""
    return all(grid.wraps) and grid.places == grid.shape


def outer(factors: Sequence[np.ndarray]) -> np.ndarray:
    """The product of arrays, each of which goes along one axis."""
    return reduce(np.multiply.outer, factors, np.ones(()))


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    """Without what rounding made of it."""
    return 0.5 * (matrix + matrix.T)


def _unit(rank: int, axis: int, step: int = 1) -> tuple[int, ...]:
    return tuple(step if a == axis else 0 for a in range(rank))


# --- kernels ----------------------------------------------------------------------------------------------------------


@cache
def _kernels(rank: int, even: bool) -> SimpleNamespace:
    """What is done in a cell of so many axes; its ``coefficients`` come last."""
    here = (0,) * rank
    diagonal, image = _with_numbers(rank) if even else _with_a_field(rank)

    @kernel
    def apply_cells(x: Read, y: Write, *e: Read):
        y[...] = image(x, *e)

    @kernel
    def residual_of_cells(x: Read, b: Read, r: Write, *e: Read):
        r[...] = b - image(x, *e)

    @kernel
    def smooth_from_zero(b: Read, pull: Read, x: Write, *e: Read):
        x[...] = pull * b / diagonal(*e)

    @kernel
    def smooth_begin(x: Read, b: Read, carry: Read, pull: Read, new: Write, *e: Read):
        new[...] = x[here] + carry * x[here] + pull * (b - image(x, *e)) / diagonal(*e)

    @kernel
    def smooth_go_on(x: Read, b: Read, carry: Read, pull: Read, new: ReadWrite, *e: Read):
        new[...] = x[here] + carry * (x[here] - new) + pull * (b - image(x, *e)) / diagonal(*e)

    return SimpleNamespace(apply=apply_cells, residual=residual_of_cells, from_zero=smooth_from_zero,
                           begin=smooth_begin, go_on=smooth_go_on)  # fmt: skip


def _with_a_field(rank: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(the diagonal, A x) in a cell by a field of links."""
    here = (0,) * rank

    def diagonal(e: Any) -> Any:
        return e[here][rank]

    def image(x: Any, e: Any) -> Any:
        sides = [(a, _unit(rank, a, -1), _unit(rank, a)) for a in range(rank)]
        near = sum(e[here][a] * x[before] + e[behind][a] * x[behind] for a, before, behind in sides)
        return e[here][rank] * x[here] - near

    return diagonal, image


def _with_numbers(rank: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The same by bits and numbers."""
    here = (0,) * rank
    sides = [(a, end, _unit(rank, a, 2 * end - 1)) for a in range(rank) for end in (0, 1)]

    def at_end(bits: Any, axis: int, end: int) -> Any:
        return (bits & (1 << 2 * axis + end)) != 0

    def diagonal(bits: Any, links: Any) -> Any:
        return sum(np.where(at_end(bits, a, end), links[3 * a + 1 + end], links[3 * a]) for a, end, _ in sides)

    def image(x: Any, bits: Any, links: Any) -> Any:
        return sum(
            np.where(at_end(bits, a, end), links[3 * a + 1 + end] * x[here], links[3 * a] * (x[here] - x[there]))
            for a, end, there in sides
        )

    return diagonal, image
