"""What products of sparse matrices and inverses of their diagonals do at one entry: kernels, and their checks."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from meshloom.errors import MeshError, shown
from meshloom.kernel.access import Inc, Read, Write
from meshloom.kernel.dense import LARGEST
from meshloom.mesh.core import Field
from meshloom.operation.loop import Kernel, kernel

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


@cache
def inversion(slot: int | None, blocks: bool, whole_blocks: bool) -> Kernel:
    """The kernel that inverts an entry: all of a value, or one slot of it; of a block all of it, or its diagonal."""

    @kernel
    def invert_diagonal(a: Read, inverse: Write):
        entry = a if slot is None else a[slot]
        inverse[...] = np.linalg.inv(entry) if whole_blocks else 1.0 / (np.diagonal(entry) if blocks else entry)

    return invert_diagonal


def invertible_blocks(matrix: Matrix) -> bool:
    """Has it blocks of more than one number? MeshError where kernels cannot invert them."""
    rows, columns = matrix.block
    if rows != columns or rows > LARGEST:
        wrong = f"these are {rows} x {columns}; use 'jacobi', which needs the diagonals alone, or a function of r and z"
        raise MeshError(f"matrix {matrix.name}: square blocks of at most {LARGEST} x {LARGEST} are inverted, {wrong}")
    return rows > 1


def check_operand(matrix: Matrix, one: Field, which: str) -> None:
    """MeshError unless a field can be x, or y, in y = A x."""
    on, size = (matrix.columns, matrix.block[1]) if which == "x" else (matrix.rows, matrix.block[0])
    if not isinstance(one, Field) or one.set is not on or one.components != ((size,) if size > 1 else ()):
        raise MeshError(f"matrix {matrix.name}: {which} must be a field of {size} on {on.name}, got {shown(one)}")
