"""The product of a sparse matrix and a field, and the inverse of its diagonal: loops over the entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshloom.errors import MeshError
from meshloom.kernel.access import Inc, Read, Write
from meshloom.loop import kernel
from meshloom.mesh.core import Field

if TYPE_CHECKING:
    from meshloom.linalg.matrix import Matrix


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


@kernel
def invert_entry(a: Read, inverse: Write):
    inverse[0] = 1.0 / a


@kernel
def invert_block(a: Read, inverse: Write):
    inverse[0] = np.linalg.inv(a)


@kernel
def invert_entries_of_block(a: Read, inverse: Write):
    inverse[0] = 1.0 / np.diagonal(a)


def check_operand(matrix: Matrix, one: Field, which: str) -> None:
    on, size = (matrix.columns, matrix.block[1]) if which == "x" else (matrix.rows, matrix.block[0])
    if not isinstance(one, Field) or one.set is not on or one.components != ((size,) if size > 1 else ()):
        raise MeshError(f"matrix {matrix.name}: {which} must be a field of {size} on {on.name}, got {one!r}")


def product(matrix: Matrix, x: Field, y: Field) -> None:
    """y = A x."""
    check_operand(matrix, x, "x")
    check_operand(matrix, y, "y")
    if x is y:
        raise MeshError(f"matrix {matrix.name}: x and y are the same field, {x.name}; y must be another one")
    y.fill(0.0)
    add = add_entry if matrix.block == (1, 1) else add_block
    add(matrix.entries, matrix.values, x[matrix.column_of], y[matrix.row_of])


def inverse_diagonal(matrix: Matrix, *, blocks: bool, into: Field | None = None) -> Field:
    """One over the entries on the diagonal, or the inverses of the blocks there, as a field of the rows."""
    part, size = matrix.diagonal, matrix.block
    if len(part) < matrix.rows.size:
        present = np.zeros(matrix.rows.total, bool)
        present[matrix.row_of.indices[part.members.indices[:, 0], 0]] = True
        raise MeshError(f"matrix {matrix.name} has no entry on the diagonal at row {int(np.argmin(present))}")
    whole_blocks = blocks and size != (1, 1)
    shape = size if whole_blocks else size[0]
    made = matrix.rows.field("inverse of the diagonal", shape, dtype=matrix.dtype) if into is None else into
    invert = invert_block if whole_blocks else invert_entry if size == (1, 1) else invert_entries_of_block
    invert(part, matrix.values, made[matrix.row_of])
    return made
