"""Poisson's equation on the cells of a grid: the operator of -div grad p by finite volumes, and its right-hand side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from meshloom.errors import MeshError, instance, shown
from meshloom.exclusion import exclusive, unowned
from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.linalg.axis_cells import DIRICHLET, NEUMANN, AxisCells
from meshloom.linalg.boundary_conditions import BoundaryConditions, cells_of, conditions_of
from meshloom.linalg.cell_level import Bridge, CellLevel, outer, plain
from meshloom.linalg.iteration import Report
from meshloom.linalg.matrix import library
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Field, Global
from meshloom.mesh.grid import Grid
from meshloom.mesh.values import named
from meshloom.operation.loop import kernel
from meshloom.recording import MAKE_BEFORE, outside_program, refuse_in_program


class Poisson(NoCopy):
    """A of A p = b, the finite volumes of -div grad p = f: what flows out of a cell through its faces, differences of
    neighbouring values over the distance of their centres, is f times its volume. A is symmetric.

    The points of ``grid`` are the centres of cells. Edges lie halfway between them, and at closed ends as far outside,
    unless ``edges`` has them: for each axis (n + 1,), or None. ``low`` and ``high``: what holds at the two sides, one
    for all axes or one for each: "dirichlet" or "neumann" (value or slope 0), ``Dirichlet(value)``,
    ``Neumann(slope)``; a periodic axis has no sides.

    ``poisson(x, y)`` makes y = A x, and ``poisson.right_hand_side(f, b)`` makes b, with what is given at the sides;
    inside a program both are recorded. Ghosts of x do not count. Without a Dirichlet side A is ``singular``:
    constants have no residual, and what b adds up to must be 0 (``right_hand_side`` leaves it as it is; the solvers of
    this operator take it out and say so).
    """

    @exclusive
    def __init__(self, grid: Grid, low: BoundaryConditions = NEUMANN, high: BoundaryConditions = NEUMANN, *,
                 edges: Sequence[ArrayLike | None] | None = None, dtype: DTypeLike = np.float64,
                 name: str = "poisson"):  # fmt: skip
        self.name = named("a Poisson operator", name)
        self.grid = instance(f"{name}: grid", grid, Grid, error=MeshError)
        refuse_in_program(f"making operator {name}", MAKE_BEFORE)
        self.dtype = floating(name, dtype)
        given = {"low": low, "high": high}
        self._conditions = {which: conditions_of(name, grid, which, one) for which, one in given.items()}
        self.axes = tuple(cells_of(name, grid, edges, self._conditions["low"], self._conditions["high"]))
        _check_sizes(name, self.axes, self.dtype)
        self.level = CellLevel(self.axes, self.dtype, grid if plain(grid) else None)
        self.bridge = Bridge(grid, self.level.grid)
        names = () if self.bridge.same else ("x in cells", "y in cells")
        self._ends = [self.level.grid.field(which, dtype=self.dtype) for which in names]

    @cached_property
    def singular(self) -> bool:
        """Is no side Dirichlet?"""
        return all(one.floating for one in self.axes)

    @exclusive
    def __call__(self, x: Field, y: Field) -> None:
        """y = A x; inside a program this is recorded."""
        self.check_both(self.name, "; y must be another one", x=x, y=y)
        self.bridge.through_cells(x, y, self.level.apply, self._ends)

    @exclusive
    def right_hand_side(self, f: Field, b: Field) -> None:
        """b = f times the volumes of the cells, and what is given at the sides; inside a program this is recorded."""
        self.check_both(self.name, "; b must be another one", f=f, b=b)
        integrate(self.grid, self.volumes, f, self.from_sides, b)

    @cached_property
    def volumes(self) -> Field:
        """Of the cells."""
        return self._made("volumes", lambda: outer([one.widths for one in self.axes]))

    @cached_property
    def diagonal(self) -> Field:
        """That of A."""
        return self._made("diagonal", lambda: self.level.diagonal)

    @cached_property
    def from_sides(self) -> Field:
        """What values and slopes at the sides add to b."""
        return self._made("from the sides", self._from_sides)

    @unowned
    def _made(self, name: str, values: Callable[[], np.ndarray]) -> Field:
        with outside_program():
            return self.grid.field(name, dtype=self.dtype, data=values())

    def _from_sides(self) -> np.ndarray:
        found = np.zeros(self.grid.shape)
        for axis, one in enumerate(self.axes):
            area = outer([np.ones(1) if a == axis else other.widths for a, other in enumerate(self.axes)])
            for which, place, link in (("low", 0, one.to_walls[0]), ("high", -1, one.to_walls[1])):
                side = self._conditions[which][axis]
                if side.kind in (DIRICHLET, NEUMANN):
                    weight = link if side.kind == DIRICHLET else 1.0
                    at = (slice(None),) * axis + ([place],)
                    found[at] += weight * area * side.value
        return found

    def to_scipy(self) -> Any:
        """A as ``scipy.sparse`` has it (CSR), for the points in the order of ``numpy()``."""
        sparse, found = library(), 0
        for axis in range(len(self.axes)):
            parts = (one.sparse(sparse) if a == axis else sparse.diags(one.widths) for a, one in enumerate(self.axes))
            found = found + reduce(sparse.kron, parts, sparse.eye(1))
        return sparse.csr_matrix(found)

    def check(self, field: Field, what: str) -> None:
        """MeshError unless a field is one of numbers on the grid, of the operator's type."""
        if not isinstance(field, Field):
            raise MeshError(f"{self.name}: {what} must be a Field, got {type(field).__name__}")
        if field.set is not self.grid or field.components or field.dtype != self.dtype:
            raise MeshError(f"{self.name}: {what} must be a field of single numbers of type {self.dtype} on grid"
                            f" {self.grid.name}, got {field!r}")  # fmt: skip

    def check_both(self, who: str, hint: str = "", **fields: Field) -> None:
        """MeshError unless two fields, by name, are such, and not one."""
        for what, field in fields.items():
            self.check(field, what)
        one, other = fields.values()
        if one is other:
            raise MeshError(f"{who}: {' and '.join(fields)} are the same field, {one.name}{hint}")

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.grid.shape))
        return f"Poisson({self.name}: {size}{', singular' if self.singular else ''})"


class Means:
    """For singular operators: takes what b adds up to out of it, and the mean out of x, both fields of the cells."""

    def __init__(self, poisson: Poisson):
        level = poisson.level
        parts = outer([one.widths / one.widths.sum() for one in level.axes])  # of the whole: sums stay small
        self.grid, self.parts = level.grid, level.grid.field("parts", dtype=poisson.dtype, data=parts)
        self._sum, self._size = (Global(0.0, which, dtype=poisson.dtype) for which in ("sum", "size"))

    def out_of_right_hand_side(self, b: Field) -> tuple[float, float]:
        """Returns what b adds up to, and what its absolute values do. Where only rounding would be left b is zero."""
        total, size = self._added_up(b)
        take_out(self.grid, self.parts, self._sum, b)
        if self._added_up(b)[1] <= rounding(b.dtype) * size:
            b.fill(0.0)
        return total, size

    def _added_up(self, b: Field) -> tuple[float, float]:
        self._sum.value = self._size.value = 0.0
        add_up(self.grid, b, self._sum, self._size)
        return float(self._sum.value), float(self._size.value)

    def out_of_residual(self, r: Field) -> None:
        """What it adds up to is rounding, which no correction makes less; inside a program this is recorded."""
        self._sum.value = 0.0
        add_up_alone(self.grid, r, self._sum)
        shift_by_mean(self.grid, self._sum, 1.0 / self.grid.size, r)

    def out_of_solution(self, x: Field) -> None:
        self._sum.value = 0.0
        add_up_weighted(self.grid, self.parts, x, self._sum)
        shift_by_mean(self.grid, self._sum, 1.0, x)


class InCells:
    """Systems for fields of a grid, solved in its cells. Where ``poisson`` is singular b counts without what it adds up
    to, and x has no mean."""

    def __init__(self, bridge: Bridge, dtype: np.dtype, poisson: Poisson | None):
        self.bridge, self.dtype = bridge, dtype
        self.x, self.b = (bridge.cells.field(name, dtype=dtype) for name in ("x", "b"))
        self.means = Means(poisson) if poisson is not None and poisson.singular else None

    def solve(self, x: Field, b: Field, by: Callable[[Field, Field], Report]) -> Report:
        """Improve x ``by`` a solver for fields of the cells."""
        self.bridge.into_cells(x, self.x)
        self.bridge.into_cells(b, self.b)
        left_out = (0.0, 0.0) if self.means is None else self.means.out_of_right_hand_side(self.b)
        report = by(self.x, self.b)
        if np.isfinite(report.residual):
            if self.means is not None:
                self.means.out_of_solution(self.x)
            self.bridge.out_of_cells(self.x, x)
        return report.without(*left_out, self.dtype)


def rounding(dtype: np.dtype) -> float:
    """As a part of what it was, what is left of a right-hand side by rounding alone."""
    return 100.0 * float(np.finfo(dtype).eps)


def _check_sizes(name: str, axes: Sequence[AxisCells], dtype: np.dtype) -> None:
    """MeshError where volumes, or areas over distances, are too large or too small for numbers of a type."""
    with np.errstate(all="ignore"):
        ends = np.array([[end(one.widths) for one in axes] for end in (np.min, np.max)])
        volumes = np.prod(ends, axis=1)
        links = volumes[:, None, None] / ends**2
        found, sums = np.append(links, volumes), volumes[1] * np.prod([len(one) for one in axes])
    check_held(name, "volumes and areas", np.append(found, sums), dtype)


def check_held(name: str, what: str, sizes: np.ndarray, dtype: np.dtype) -> None:
    """MeshError where sizes of cells are too large or too small for numbers of a type."""
    known = np.finfo(dtype)
    if not ((sizes > known.tiny) & (sizes < known.max)).all():
        raise MeshError(f"{name}: cells are so small or so large that {dtype} does not hold their {what};"
                        " measure lengths in another unit")  # fmt: skip


def floating(name: str, dtype: DTypeLike) -> np.dtype:
    """The type of an operator's numbers, as a person gives it."""
    try:
        found = np.dtype(dtype)
    except Exception:  # NumPy raises several kinds
        found = None
    if found is None or found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise MeshError(f"{name}: dtype must be float32 or float64, got {shown(dtype)}")
    return found


@kernel
def integrate(volume: Read, f: Read, side: Read, b: Write):
    b[...] = volume * f + side


@kernel
def add_up(b: Read, total: Sum, size: Sum):
    total += b
    size += np.abs(b)


@kernel
def add_up_alone(b: Read, total: Sum):
    total += b


@kernel
def add_up_weighted(part: Read, x: Read, total: Sum):
    total += part * x


@kernel
def take_out(part: Read, total: Read, b: ReadWrite):
    b -= part * total


@kernel
def shift_by_mean(total: Read, share: Read, x: ReadWrite):
    x -= total * share
