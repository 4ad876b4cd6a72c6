"""Sparse matrices: what those through a map (``map_matrix``) and those of a grid (``grid_matrix``) have in common, and
what is done at one entry (SpMV, inverses of the diagonal)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, instance, shown, whole_number, yes_or_no
from meshloom.kernel.access import Inc, Read, Write
from meshloom.kernel.dense import LARGEST
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Arg, Field, Map, Set, Subset
from meshloom.mesh.offsets import Offsets
from meshloom.operation.loop import Kernel, kernel
from meshloom.recording import READ_LATER, refuse_in_program

LARGEST_BLOCK = 16
M = TypeVar("M", bound="type[Matrix]")
_KINDS: dict[type, type[Matrix]] = {}  # what entries are found by -> matrices of that kind


class Matrix(NoCopy):
    """Entries (row, column) for all pairs of elements that ``through``, a map into ``rows``, shows together; each is a
    number, or a ``block`` of them. ``columns``: a map from the same elements into the set of the columns, where that is
    another one. ``through`` may be offsets of a grid: ``GridMatrix``.

    ``matrix[map]`` is the argument of a kernel over the map's elements: ``m[i, j]`` is the entry at row ``map[i]`` and
    column ``map[j]`` (``m[i, j, a, b]`` in it, for blocks). ``matrix.multiply(x, y)`` makes y = A x.

    ``values`` is the field of what the entries hold. Through a map they are a set, ``entries``, row by row, ``row_of``
    and ``column_of`` are the maps that say where they are, and ``diagonal`` is the part of them on the diagonal.
    """

    # What the two kinds do differently raises here, and is not abstract: for a type checker ml.Matrix(...) makes one.
    name: str
    rows: Set
    columns: Set
    block: tuple[int, int]
    values: Field
    entries: Set
    row_of: Map
    column_of: Map
    diagonal: Subset

    def __new__(cls, rows: Any = None, through: Any = None, **_: Any) -> Matrix:
        """Offsets of a grid make a matrix that needs no indices: see ``grid_matrix``."""
        kind = Offsets if isinstance(through, Offsets) else Map  # which complains of anything else
        return super().__new__(_KINDS[kind] if cls is Matrix else cls)

    @staticmethod
    def from_scipy(given: Any, rows: Set | None = None, columns: Set | None = None, *,
                   block: int | Sequence[int] = (1, 1), name: str = "matrix") -> Matrix:  # fmt: skip
        """A matrix with the entries of a sparse one of ``scipy.sparse``, stored zeros included; sets are made unless
        they are given."""
        with_indices: Any = _KINDS[Map]
        made: Matrix = with_indices.of_scipy(given, rows, columns, block, name)
        return made

    def __getitem__(self, through: Any) -> Arg:
        """For kernels: the entries that belong to an element."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, those of the blocks counted."""
        return prod(self.rows.array_shape) * self.block[0], prod(self.columns.array_shape) * self.block[1]

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def fill(self, value: float) -> None:
        """Set every entry; inside a program this is recorded."""
        self.values.fill(value)

    def assign(self, values: ArrayLike) -> None:
        """New values, in the shape of ``values.numpy()``: (entries, *block) in the order of ``row_of`` and
        ``column_of``; on a grid (*shape, offsets, *block)."""
        self.values.assign(values)

    def multiply(self, x: Field, y: Field) -> None:
        """y = A x; inside a program this is recorded."""
        self._check_operand(x, "x")
        self._check_operand(y, "y")
        if x is y:
            raise MeshError(f"matrix {self.name}: x and y are the same field, {x.name}; y must be another one")
        self._multiply(x, y)

    __call__ = multiply

    def _check_operand(self, one: Field, which: str) -> None:
        """MeshError unless a field can be x, or y, in y = A x."""
        on, size = (self.columns, self.block[1]) if which == "x" else (self.rows, self.block[0])
        if not isinstance(one, Field) or one.set is not on or one.components != ((size,) if size > 1 else ()):
            raise MeshError(f"matrix {self.name}: {which} must be a field of {size} on {on.name}, got {shown(one)}")

    def _multiply(self, x: Field, y: Field) -> None:
        """The loops of a product."""
        raise NotImplementedError

    def __matmul__(self, x: Any) -> Any:
        raise MeshError(f"matrix {self.name}: a product needs a field to go to, {self.name}.multiply(x, y)")

    def inverse_diagonal(self, *, blocks: bool, into: Field | None = None) -> Field:
        """One over the entries on the diagonal, or the inverses of the blocks there, as a field of the rows."""
        wanted = yes_or_no(f"matrix {self.name}: blocks", blocks, error=MeshError)
        whole_blocks = wanted and self._invertible_blocks()
        shape = self.block if whole_blocks else self.block[0]
        on, slot = self._on_diagonal()
        if into is not None:
            instance(f"matrix {self.name}: what takes the inverse", into, Field, error=MeshError)
        made = self.rows.field("inverse of the diagonal", shape, dtype=self.dtype) if into is None else into
        target = made if on is self.rows else made[self.row_of]
        inversion(slot, self.block != (1, 1), whole_blocks)(on, self.values, target)
        return made

    def _invertible_blocks(self) -> bool:
        """Has it blocks of more than one number? MeshError where kernels cannot invert them."""
        rows, columns = self.block
        if rows != columns or rows > LARGEST:
            instead = "use 'jacobi', which needs the diagonals alone, or a function of r and z"
            raise MeshError(
                f"matrix {self.name}: square blocks of at most {LARGEST} x {LARGEST} are inverted, these are"
                f" {rows} x {columns}; {instead}"
            )
        return rows > 1

    def _on_diagonal(self) -> tuple[Set, int | None]:
        """What to loop over to see each entry on the diagonal once, and its slot in ``values``, where there are more
        than one; MeshError where one is missing."""
        raise NotImplementedError

    def to_scipy(self) -> Any:
        """The same entries as ``scipy.sparse`` has them, by number: CSR, or BSR for blocks. On a grid they are those of
        its points, in their order, and entries at ghosts are left out."""
        refuse_in_program(f"reading matrix {self.name}", READ_LATER)
        row, column, values = self._listed()
        order = np.lexsort((column, row))
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=prod(self.rows.array_shape)))])
        plain = self.block == (1, 1)
        data = values.reshape(len(row), *(() if plain else self.block))[order]
        make = library().csr_matrix if plain else library().bsr_matrix
        return make((data, column[order], starts), shape=self.shape)

    def _listed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, column, by number, and value of each entry."""
        raise NotImplementedError

    @property
    def _blocks(self) -> str:
        return "" if self.block == (1, 1) else f" of {self.block[0]} x {self.block[1]}"


def made_through(way: type) -> Callable[[M], M]:
    """Decorator of a class of matrices: ``Matrix(rows, through=...)`` makes one where it is given such a way."""

    def decorate(kind: M) -> M:
        _KINDS[way] = kind
        return kind

    return decorate


def library() -> Any:
    """``scipy.sparse``, loaded where it is used."""
    from scipy import sparse

    return sparse


def block_of(name: str, given: int | Sequence[int]) -> tuple[int, int]:
    """The size of a block, as a person gives it: one number, or rows and columns."""
    sizes = tuple(given) if isinstance(given, Sequence) else (given, given)
    if len(sizes) != 2:
        raise MeshError(f"matrix {name}: block is one size or two, got {shown(given)}")
    a, b = (whole_number(f"matrix {name}: block", one, 1, LARGEST_BLOCK, error=MeshError) for one in sizes)
    return a, b


# --- kernels ----------------------------------------------------------------------------------------------------------


def times(a: Any, x: Any) -> Any:
    """The product of a block and the components of a field, in kernels: one component is a number, and has no axis."""
    y = a @ x if np.ndim(x) else a[:, 0] * x
    return y if len(a) > 1 else y[0]


@kernel
def add_entry(a: Read, x: Read, y: Inc):
    y[0] += a * x[0]


@kernel
def add_block(a: Read, x: Read, y: Inc):
    y[0] += times(a, x[0])


@cache
def inversion(slot: int | None, blocks: bool, whole_blocks: bool) -> Kernel:
    """The kernel that inverts an entry: all of a value, or one slot of it; of a block all of it, or its diagonal."""

    @kernel
    def invert_diagonal(a: Read, inverse: Write):
        entry = a if slot is None else a[slot]
        inverse[...] = np.linalg.inv(entry) if whole_blocks else 1.0 / (np.diagonal(entry) if blocks else entry)

    return invert_diagonal
