"""What products of sparse matrices and inverses of their diagonals do at one entry: kernels."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from meshloom.kernel.access import Inc, Read, Write
from meshloom.operation.loop import Kernel, kernel


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
