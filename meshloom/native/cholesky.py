"""Incomplete Cholesky factors of sparse symmetric matrices, in compiled code (``cholesky.cpp``).

Matrices are ``Sparse``: rows by offsets, columns ascending, every entry on the diagonal there and positive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.errors import MeshError
from meshloom.native import ffi
from meshloom.native.ffi import as_indices, as_offsets, as_order, call, suffix
from meshloom.records import dataclass

FACTORED, BROKE_DOWN, NO_ROOM = range(3)
FIRST_ROOM = 2  # for so many times the entries of A; twice as much where it does not do


@dataclass(frozen=True)
class Sparse:
    """Row k has ``values[offsets[k]:offsets[k + 1]]`` at ``columns``, both (entries,); ``offsets`` (n + 1,) int64."""

    offsets: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    @staticmethod
    def checked(offsets: np.ndarray, columns: np.ndarray, values: np.ndarray) -> Sparse:
        """In the types that compiled code takes, every column one of the rows."""
        n = len(offsets) - 1
        found = as_indices(columns, n).reshape(-1) if len(columns) else np.empty(0, np.int32)
        if values.shape != found.shape:
            raise MeshError(f"a matrix of {len(found)} columns has as many values, got {values.shape}")
        return Sparse(as_offsets(offsets, len(found)), found, np.ascontiguousarray(values, np.float64))

    @staticmethod
    def of(matrix: Any) -> Sparse:
        """From a square matrix of ``scipy.sparse`` in CSR, whose columns become ascending."""
        matrix.sort_indices()
        return Sparse.checked(matrix.indptr, matrix.indices, matrix.data)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def rows(self) -> np.ndarray:
        """(entries,): the row of each."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @property
    def diagonal(self) -> np.ndarray:
        """(n,): the entries on it."""
        return self.values[self.columns == self.rows]

    def where(self, chosen: np.ndarray) -> Sparse:
        """Those entries alone for which ``chosen`` (entries,) is true."""
        return Sparse(_starts(self.rows[chosen], len(self)), self.columns[chosen], self.values[chosen])

    def scaled(self, scale: np.ndarray) -> Sparse:
        """Rows and columns times ``scale`` (n,)."""
        return Sparse(self.offsets, self.columns, self.values * scale[self.rows] * scale[self.columns])

    def transposed(self) -> Sparse:
        order = np.argsort(self.columns, kind="stable")
        rows = self.rows[order].astype(self.columns.dtype)
        return Sparse(_starts(self.columns, len(self)), rows, self.values[order])


def _starts(rows: np.ndarray, n: int) -> np.ndarray:
    """(n + 1,): where each row begins among entries that are in their order, from the rows of these."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])


@dataclass(frozen=True)
class Factors:
    """A is about L D L^T: ``above`` is L^T without its diagonal of ones, by rows, and ``pivots`` (n,) is D."""

    above: Sparse
    pivots: np.ndarray


def factored(a: Sparse, stages: np.ndarray, *, fill: int | None, drop: float, shift: float) -> Factors | int:
    """The factors of A with its diagonal times 1 + ``shift``, or the row where a pivot is not positive. ``fill``: the
    level up to which entries are kept; None: those above ``drop``, scaled by the diagonal. ``stages`` (n,) int32: none
    is made between two rows of one."""
    if stages.shape != (len(a),) or stages.dtype != np.int32:
        raise MeshError(f"a matrix of {len(a)} rows has as many stages, int32, got {stages.dtype} {stages.shape}")
    n, room = len(a), FIRST_ROOM * len(a.columns) + 16
    offsets, pivots, verdict = ffi.empty(n + 1, np.int64), ffi.empty(n, np.float64), np.zeros(2, np.int64)
    level = -1 if fill is None else fill
    while True:
        columns, factors = ffi.empty(room, a.columns.dtype.type), ffi.empty(room, np.float64)
        call("cholesky", f"factor_{suffix(a.columns)}", n, a.offsets, a.columns, a.values, np.ascontiguousarray(stages),
             level, float(drop), float(shift), room, offsets, columns, factors, pivots, verdict)  # fmt: skip
        if verdict[0] != NO_ROOM:
            break
        room *= 2
    if verdict[0] == BROKE_DOWN:
        return int(verdict[1])
    many = int(offsets[n])
    return Factors(Sparse(offsets, columns[:many].copy(), factors[:many].copy()), pivots)


def diagonal_factored(a: Sparse, *, shift: float) -> np.ndarray | int:
    """The pivots (n,) where the entries next to the diagonal stay as they are, or the row where one is not positive."""
    pivots, verdict = ffi.empty(len(a), np.float64), np.zeros(2, np.int64)
    call("cholesky", f"diagonal_alone_{suffix(a.columns)}", len(a), a.offsets, a.columns, a.values, float(shift),
         pivots, verdict)  # fmt: skip
    return int(verdict[1]) if verdict[0] == BROKE_DOWN else pivots


def colors_in_turn(a: Sparse, block_offsets: np.ndarray, order: np.ndarray, many: int) -> np.ndarray | None:
    """Colors (blocks,) int32, so many of them in turn, of blocks of rows ``order[block_offsets[b]:...]``, such that
    blocks of one color have no entry in common; None where the greedy way finds none for a block."""
    rows = as_order(order, len(a))
    blocks = as_offsets(block_offsets, len(rows))
    block_of, failed = ffi.empty(len(a), np.int64), np.zeros(1, np.int64)
    block_of[rows] = np.repeat(np.arange(len(blocks) - 1), np.diff(blocks))
    colors = np.full(len(blocks) - 1, -1, np.int32)
    call("cholesky", f"color_in_turn_{suffix(a.columns)}", len(colors), blocks, rows, block_of, a.offsets, a.columns,
         many, colors, failed)  # fmt: skip
    return colors if failed[0] < 0 else None
