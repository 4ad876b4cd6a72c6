"""Incomplete Cholesky factors of sparse matrices as loops: z close to A^-1 r, by two sweeps through the stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from meshloom.errors import MeshError
from meshloom.linalg.colored_order import ColoredOrder
from meshloom.linalg.row_storage import (
    IMAGE,
    SCALE_AND_SUBTRACT,
    SUBTRACT,
    SUBTRACT_AND_SCALE,
    Storage,
    stages,
    start_sums,
    sums_for,
    turned,
)
from meshloom.mesh.core import Field, Set
from meshloom.native.cholesky import Factors, Sparse, factored

FIRST_SHIFT = 1e-3  # where a pivot breaks down; twice as much each time
LARGEST_SHIFT = 1e6
T = TypeVar("T")


@dataclass(frozen=True)
class Fill:
    """What is kept next to the entries of A: those up to a ``level``, or, where that is None, above ``drop``."""

    level: int | None
    drop: float


def with_shift(make: Callable[[float], T | int], shift: float, name: str) -> tuple[T, float]:
    """What ``make(shift)`` gives, with the shift raised until it is no number of a row where a pivot breaks down, and
    the shift that it took."""
    row = -1
    while shift <= LARGEST_SHIFT:
        made = make(shift)
        if not isinstance(made, int):
            return made, shift
        row, shift = made, max(2.0 * shift, FIRST_SHIFT)
    raise MeshError(f"piccg: {name} has no incomplete factorisation: a pivot breaks down at place {row} of the order,"
                    f" with the diagonal raised by {LARGEST_SHIFT:g} times itself")  # fmt: skip


def factors_of(a: Sparse, order: ColoredOrder, fill: Fill, shift: float, name: str) -> tuple[Factors, float]:
    """The factors of a matrix in its order, and the shift that they took."""
    of_rows = np.repeat(np.arange(len(order.starts) - 1, dtype=np.int32), np.diff(order.starts))
    return with_shift(lambda now: factored(a, of_rows, fill=fill.level, drop=fill.drop, shift=now), shift, name)


class Sweeps:
    """z = L^-T D^-1 L^-1 r for fields of the rows in their order."""

    def __init__(self, ordered: Set, order: ColoredOrder, factors: Factors, storage: Storage, dtype: np.dtype):
        self.ordered = ordered
        self._down = stages(ordered, turned(factors.above), order.starts, storage)
        self._up = stages(ordered, factors.above, order.starts, storage)
        self._inverse = ordered.field("inverse", dtype=storage.dtype, data=1.0 / factors.pivots)
        self._sums = sums_for([*self._down, *self._up], ordered, dtype)

    def __call__(self, r: Field, z: Field) -> None:
        """Loops that a program records. Rows that no later one looks at are done with on the way down."""
        start_sums(self._sums)
        for down, up in zip(self._down, self._up, strict=True):
            if up.empty:
                down.run(SUBTRACT_AND_SCALE, z, self._sums, r, self._inverse, z)
            else:
                down.run(SUBTRACT, z, self._sums, r, z)
        start_sums(self._sums)
        for up in reversed(self._up):
            if not up.empty:
                up.run(SCALE_AND_SUBTRACT, z, self._sums, self._inverse, z)


class Product:
    """y = A x for fields of the rows in their order."""

    def __init__(self, ordered: Set, a: Sparse, storage: Storage):
        offsets = a.offsets - np.arange(len(a) + 1)  # without the diagonal
        self._rows = stages(ordered, Sparse(offsets, *_beside(a)), np.array([0, len(a)]), storage)
        self._diagonal = ordered.field("diagonal", dtype=storage.dtype, data=diagonal_of(a))
        self._sums = sums_for(self._rows, ordered, storage.dtype)

    def __call__(self, x: Field, y: Field) -> None:
        start_sums(self._sums)
        for one in self._rows:
            one.run(IMAGE, x, self._sums, x, self._diagonal, y)


def diagonal_of(a: Sparse) -> np.ndarray:
    """(n,): its entries on the diagonal."""
    return a.values[a.columns == np.repeat(np.arange(len(a)), np.diff(a.offsets))]


def _beside(a: Sparse) -> tuple[np.ndarray, np.ndarray]:
    """Columns and values of the entries next to the diagonal."""
    beside = a.columns != np.repeat(np.arange(len(a)), np.diff(a.offsets))
    return a.columns[beside], a.values[beside]
