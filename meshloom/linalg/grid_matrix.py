"""Sparse matrices on a grid: every point has an entry for each of some neighbours, and no index is stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from meshloom.errors import MeshError
from meshloom.kernel.access import Read, Write
from meshloom.library.ghosts import fill_ghosts
from meshloom.linalg.matrix import Matrix, block_of, made_through, times
from meshloom.mesh.core import Arg, Field, Map, Set
from meshloom.mesh.grid import Grid
from meshloom.mesh.offsets import Index, Offsets
from meshloom.mesh.values import named
from meshloom.operation.loop import Kernel, kernel
from meshloom.recording import MAKE_BEFORE, refuse_in_program

_OF_MAPS = ("entries", "row_of", "column_of", "diagonal")  # what matrices through maps have besides


@made_through(Offsets)
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

    def __getattr__(self, name: str) -> Any:
        if name in _OF_MAPS:
            raise MeshError(f"matrix {self.name} on grid {self.grid.name} stores no indices, so it has no {name}; its"
                            " entries are the components of matrix.values, and to_scipy() lists them")  # fmt: skip
        raise AttributeError(f"matrix {self.__dict__.get('name', '')} has no attribute {name}")

    def _multiply(self, x: Field, y: Field) -> None:
        if any(self.grid.periodic):
            fill_ghosts(x, closed=None)
        _product(self.offsets.offsets, self.block != (1, 1))(self.grid, self.values, x[self.offsets], y)

    def _on_diagonal(self) -> tuple[Set, int | None]:
        origin = (0,) * self.grid.rank
        if origin not in self.offsets.offsets:
            raise MeshError(f"matrix {self.name} has no entry on the diagonal: {self.offsets.name}")
        return self.grid, self.offsets.offsets.index(origin)

    def _listed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        points = np.arange(self.grid.size).reshape(self.grid.shape)
        values = self.values.numpy().reshape(points.size, self.offsets.arity, *self.block)
        places = np.stack([_neighbours(points, offset, self.grid.periodic) for offset in self.offsets.offsets], axis=1)
        row, slot = np.nonzero(places >= 0)
        return row, places[row, slot], values[row, slot]

    def __repr__(self) -> str:
        return f"Matrix({self.name}: {self.grid.name}, {self.offsets.arity} entries{self._blocks} a point)"


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
