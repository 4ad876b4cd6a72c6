"""Sparse matrices on a grid: every point has an entry for each of some neighbours, and no index is stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from meshloom.errors import MeshError
from meshloom.ghosts import fill_ghosts
from meshloom.kernel.access import Read, Write
from meshloom.linalg.matrix import Matrix, block_of, library
from meshloom.linalg.product import check_operand, times
from meshloom.loop import Kernel, kernel
from meshloom.mesh.box import Index, Offsets
from meshloom.mesh.core import Arg, Field, Map
from meshloom.mesh.grid import Grid
from meshloom.mesh.recording import MAKE_BEFORE, READ_LATER, refuse_in_program
from meshloom.mesh.values import named


class GridMatrix(Matrix):
    """``ml.Matrix(grid, through=grid.star(1))``: the row of a point has an entry for the point at each offset, in their
    order. Behind the end of a periodic axis is its beginning (x gets it where there are ghosts); behind other ends are
    ghosts, whose values in x count.

    ``matrix[offsets]``, or ``matrix.values``, is the argument of kernels over the grid: ``m[k]`` is the entry for the
    offset number k (``m[k, a, b]`` in a block).
    """

    def __init__(self, rows: Grid, through: Offsets, *, columns: Map | None = None,
                 block: int | Sequence[int] = (1, 1), dtype: DTypeLike = np.float64, name: str = "matrix"):  # fmt: skip
        self.name = named("a matrix", name)
        refuse_in_program(f"making matrix {name}", MAKE_BEFORE)
        if through.grid is not rows or columns is not None:
            raise MeshError(f"matrix {name}: offsets of a grid make a matrix with that grid, and nothing else, as its"
                            " rows and columns")  # fmt: skip
        self.rows = self.columns = rows
        self.grid, self.offsets, self.block = rows, through, block_of(name, block)
        each = self.block if self.block != (1, 1) else ()
        self.values = rows.field(self.name, (through.arity, *each), dtype=dtype)

    def __getitem__(self, through: Any) -> Arg:
        if through is not self.offsets:
            raise MeshError(f"matrix {self.name}: index it with the offsets that it was made with, {self.offsets.name}")
        return self.values.direct

    @property
    def shape(self) -> tuple[int, int]:
        return prod(self.grid.shape) * self.block[0], prod(self.grid.shape) * self.block[1]

    def multiply(self, x: Field, y: Field) -> None:
        """y = A x, in one loop; inside a program this is recorded."""
        check_operand(self, x, "x")
        check_operand(self, y, "y")
        if any(self.grid.periodic):
            fill_ghosts(x, closed=None)
        _product(self.offsets.offsets, self.block != (1, 1))(self.grid, self.values, x[self.offsets], y)

    __call__ = multiply

    def inverse_diagonal(self, *, blocks: bool, into: Field | None = None) -> Field:
        origin = (0,) * self.grid.rank
        if origin not in self.offsets.offsets:
            raise MeshError(f"matrix {self.name} has no entry on the diagonal: {self.offsets.name}")
        whole_blocks = blocks and self.block != (1, 1)
        shape = self.block if whole_blocks else self.block[0]
        made = self.grid.field("inverse of the diagonal", shape, dtype=self.dtype) if into is None else into
        _inversion(self.offsets.offsets.index(origin), self.block != (1, 1), whole_blocks)(self.grid, self.values, made)
        return made

    def to_scipy(self) -> Any:
        """CSR, or BSR for blocks, of the grid's points in their order; entries at ghosts are left out."""
        refuse_in_program(f"reading matrix {self.name}", READ_LATER)
        sparse, points = library(), np.arange(prod(self.grid.shape)).reshape(self.grid.shape)
        values = self.values.numpy().reshape(points.size, self.offsets.arity, *self.block)
        places = np.stack([_neighbours(points, offset, self.grid.periodic) for offset in self.offsets.offsets], axis=1)
        row, slot = np.nonzero(places >= 0)
        column, data = places[row, slot], values[row, slot]
        order = np.lexsort((column, row))
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=points.size))])
        if self.block == (1, 1):
            return sparse.csr_matrix((data[order, 0, 0], column[order], starts), shape=self.shape)
        return sparse.bsr_matrix((data[order], column[order], starts), shape=self.shape)

    def assign(self, values: Any) -> None:
        """New values (*shape of the grid, offsets, *block)."""
        self.values.assign(values)

    def __repr__(self) -> str:
        blocks = "" if self.block == (1, 1) else f" of {self.block[0]} x {self.block[1]}"
        return f"Matrix({self.name}: {self.grid.name}, {self.offsets.arity} entries{blocks} a point)"


def _neighbours(points: np.ndarray, offset: Index, periodic: Sequence[bool]) -> np.ndarray:
    """For each point the number of that at an offset, -1 where there is none."""
    found = points
    for axis, step in enumerate(offset):
        found = np.roll(found, -step, axis)
        if step and not periodic[axis]:
            found = found.copy()
            outside = slice(-step, None) if step > 0 else slice(None, -step)
            found[(slice(None),) * axis + (outside,)] = -1
    return found.reshape(-1)


@cache
def _product(offsets: tuple[Index, ...], blocks: bool) -> Kernel:
    @kernel
    def multiply_on_grid(a: Read, x: Read, y: Write):
        y[...] = sum((times(a[k], x[offset]) if blocks else a[k] * x[offset]) for k, offset in enumerate(offsets))

    return multiply_on_grid


@cache
def _inversion(slot: int, blocks: bool, whole_blocks: bool) -> Kernel:
    @kernel
    def invert_on_grid(a: Read, inverse: Write):
        entry = a[slot]
        inverse[...] = np.linalg.inv(entry) if whole_blocks else 1.0 / (np.diagonal(entry) if blocks else entry)

    return invert_on_grid
