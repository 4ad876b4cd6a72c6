"""Sparse matrices through maps: an entry for every pair of things that meet, assembled by kernels as fields are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from meshloom.errors import MeshError, instance
from meshloom.linalg.matrix import Matrix, add_block, add_entry, block_of, library, made_through
from meshloom.mesh.assigned import guide
from meshloom.mesh.core import Arg, Field, Map, Set, Subset
from meshloom.mesh.values import named
from meshloom.native.algorithms import distinct
from meshloom.recording import MAKE_BEFORE, refuse_in_program


@made_through(Map)
class MapMatrix(Matrix):
    """``ml.Matrix(rows, through=map)``: see ``Matrix``."""

    def __init__(self, rows: Set, through: Map, *, columns: Map | None = None,
                 block: int | Sequence[int] = (1, 1), dtype: DTypeLike = np.float64, name: str = "matrix"):  # fmt: skip
        self.name = named("a matrix", name)
        refuse_in_program(f"making matrix {name}", MAKE_BEFORE)
        across = through if columns is None else columns
        if not isinstance(through, Map) or not isinstance(across, Map):
            wrong = across if isinstance(through, Map) else through
            raise MeshError(f"matrix {name}: through must be a Map, or offsets of a grid, got {type(wrong).__name__}")
        _check_maps(name, rows, through, across)
        size = block_of(name, block)
        left, right = through.positions[: through.source.owned], across.positions[: through.source.owned]
        keys = left[:, :, None].astype(np.int64) * across.target.total + right[:, None, :]
        self._hold(rows, across.target, distinct(keys), size, dtype)
        for one in (through, across):
            one.kept_for(f"matrix {name} has its entries by it")

    def _hold(self, rows: Set, columns: Set, keys: np.ndarray, block: tuple[int, int], dtype: DTypeLike) -> None:
        """``keys``: row times number of columns plus column of each entry, by position, ascending."""
        self.rows, self.columns, self.block, self._keys = rows, columns, block, keys
        self.entries = Set(len(keys), f"entries of {self.name}")
        row, column = np.divmod(keys, max(columns.total, 1))
        self.row_of = Map(self.entries, rows, _numbers(rows, row), f"rows of {self.name}")
        guide(self.row_of)
        self.column_of = Map(self.entries, columns, _numbers(columns, column), f"columns of {self.name}")
        self.values = self.entries.field(self.name, block if block != (1, 1) else 1, dtype=dtype)
        self._places: dict[tuple[Map, Map], Map] = {}

    @classmethod
    def of_scipy(cls, given: Any, rows: Set | None, columns: Set | None, block: int | Sequence[int],
                 name: str) -> MapMatrix:  # fmt: skip
        """See ``Matrix.from_scipy``."""
        sparse = library()
        refuse_in_program(f"making matrix {named('a matrix', name)}", MAKE_BEFORE)
        if not sparse.issparse(given):
            raise MeshError(f"matrix {name}: from_scipy takes a sparse matrix of scipy, got {type(given).__name__}")
        if given.ndim != 2 or given.dtype.kind == "c":
            wrong = f"{given.ndim} axes" if given.ndim != 2 else f"complex numbers, {given.dtype}"
            raise MeshError(f"matrix {name}: from_scipy takes rows and columns of real numbers, got {wrong}")
        for one, what in ((rows, "rows"), (columns, "columns")):
            if one is not None:
                instance(f"matrix {name}: {what}", one, Set, error=MeshError)
        size = block_of(name, block)
        if given.shape[0] % size[0] or given.shape[1] % size[1]:
            raise MeshError(f"matrix {name}: {given.shape} cannot be cut into blocks of {size}")
        shape = given.shape[0] // size[0], given.shape[1] // size[1]
        square = columns is None and shape[0] == shape[1]
        rows = Set(shape[0], f"rows of {name}") if rows is None else rows
        columns = (rows if square else Set(shape[1], f"columns of {name}")) if columns is None else columns
        if (rows.total, columns.total) != shape:
            raise MeshError(f"matrix {name}: {shape[0]} x {shape[1]} blocks, but {rows.name} and {columns.name} have"
                            f" {rows.total} and {columns.total} elements")  # fmt: skip
        blocks = sparse.coo_matrix(given) if size == (1, 1) else sparse.bsr_matrix(given, blocksize=size).tocoo()
        made: MapMatrix = object.__new__(cls)
        made.name = name
        row, column = _positions(rows, blocks.row // size[0]), _positions(columns, blocks.col // size[1])
        keys = row.astype(np.int64) * columns.total + column
        dtype = blocks.data.dtype if blocks.data.dtype in (np.float32, np.float64) else np.float64
        made._hold(rows, columns, distinct(keys), size, dtype)
        values = np.zeros((len(made.entries), *size), dtype)
        np.add.at(values, (np.searchsorted(made._keys, keys), blocks.row % size[0], blocks.col % size[1]), blocks.data)
        made.values.assign(values.reshape(made.values.shape))
        return made

    def __getitem__(self, through: Map | tuple[Map, Map]) -> Arg:
        """For kernels: the entries at the rows and columns that a map, or a pair of maps, leads an element to."""
        pair = through if isinstance(through, tuple) else (through, through)
        if len(pair) != 2 or not all(isinstance(one, Map) for one in pair):
            raise MeshError(f"matrix {self.name}: index it with a map into {self.rows.name}, or a pair of maps")
        if pair not in self._places:
            self._places[pair] = self._found(*pair)
        return Arg(self.values, self._places[pair], slots=(pair[0].arity, pair[1].arity))

    def _found(self, left: Map, right: Map) -> Map:
        if left.target is not self.rows or right.target is not self.columns or left.source is not right.source:
            raise MeshError(f"matrix {self.name}: {left.name} and {right.name} must lead from one set to"
                            f" {self.rows.name} and {self.columns.name}")  # fmt: skip
        rows, columns = left.positions.astype(np.int64), right.positions
        keys = rows[:, :, None] * self.columns.total + columns[:, None, :]
        place = np.searchsorted(self._keys, keys)
        missing = self._keys[np.minimum(place, len(self._keys) - 1)] != keys if len(self._keys) else keys >= 0
        place[left.source.owned :] = 0  # copies of what others own: no loop adds there
        if missing[: left.source.owned].any():
            element, i, j = np.argwhere(missing)[0]
            number = _numbers(left.source, np.array([element]))[0]
            raise MeshError(f"matrix {self.name} has no entry for slots {i} and {j} of {left.name} at element {number}"
                            f" of {left.source.name}: make it through that map")  # fmt: skip
        for one in (left, right):
            one.kept_for(f"matrix {self.name} has its entries by it")
        numbered = left.source.by_number(place.reshape(len(place), left.arity * right.arity))
        return Map(left.source, self.entries, numbered, f"{self.name} by {left.name}")

    @cached_property
    def diagonal(self) -> Subset:  # type: ignore[override]
        """The part of ``entries`` on the diagonal."""
        if self.rows is not self.columns:
            raise MeshError(f"matrix {self.name} leads from {self.columns.name} to {self.rows.name}: no diagonal")
        row, column = np.divmod(self._keys, max(self.columns.total, 1))
        return self.entries.subset(np.flatnonzero(row == column), f"diagonal of {self.name}")

    def _multiply(self, x: Field, y: Field) -> None:
        y.fill(0.0)
        add = add_entry if self.block == (1, 1) else add_block
        add(self.entries, self.values, x[self.column_of], y[self.row_of])

    def _on_diagonal(self) -> tuple[Set, int | None]:
        part = self.diagonal
        if len(part) < self.rows.owned:
            present = np.zeros(self.rows.total, bool)
            present[self.row_of.indices[part.members.indices[:, 0], 0]] = True
            raise MeshError(f"matrix {self.name} has no entry on the diagonal at row {int(np.argmin(present))}")
        return part, None

    def _listed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.row_of.indices[:, 0], self.column_of.indices[:, 0], self.values.numpy()

    def __repr__(self) -> str:
        return f"Matrix({self.name}: {self.rows.name} x {self.columns.name}, {len(self.entries)} entries{self._blocks})"


def _numbers(one: Set, positions: np.ndarray) -> np.ndarray:
    return positions if one.numbering is None else one.numbering[positions]


def _positions(one: Set, numbers: np.ndarray) -> np.ndarray:
    return numbers if one.position is None else one.position[numbers]


def _check_maps(name: str, rows: Set, through: Map, across: Map) -> None:
    if not isinstance(rows, Set):
        raise MeshError(f"matrix {name}: rows must be a Set, got {type(rows).__name__}")
    if through.target is not rows:
        raise MeshError(f"matrix {name}: map {through.name} leads to {through.target.name}, not to {rows.name}")
    if across.source is not through.source:
        raise MeshError(f"matrix {name}: maps {through.name} and {across.name} start at different sets,"
                        f" {through.source.name} and {across.source.name}")  # fmt: skip
