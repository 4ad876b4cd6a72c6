"""Symmetric Gauss-Seidel by colors (LU-SGS): z close to A^-1 r, for matrices of numbers or of blocks.

With A = L + D + U, where L holds the entries at columns whose color comes before that of the row and U those behind,
z = (D + U)^-1 D (D + L)^-1 r. Rows of one color share no entry, so each is one loop: down through the colors
z = D^-1 r - (D^-1 L) z, and up again z = z - (D^-1 U) z. What the loops read, D^-1 and the entries times it, is kept
next to the matrix, color by color and side by side, and is made again where the matrix has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import DTypeLike

from meshloom.errors import MeshError, SolveError, instance, whole_number
from meshloom.exclusion import exclusive
from meshloom.kernel.access import Max, Read, ReadWrite, Write
from meshloom.linalg.colored_order import colored
from meshloom.linalg.iteration import steps_of
from meshloom.linalg.krylov_kernels import add_to, multiply_block, multiply_entries, subtract_from
from meshloom.linalg.map_matrix import MapMatrix
from meshloom.linalg.matrix import Matrix, library
from meshloom.linalg.poisson import floating
from meshloom.linalg.row_storage import few_widths, some_rows
from meshloom.mesh.assigned import MOST_LISTED
from meshloom.mesh.core import Field, Global, Map, Set
from meshloom.native.algorithms import distinct
from meshloom.native.cholesky import Sparse
from meshloom.operation.loop import kernel
from meshloom.recording import MAKE_BEFORE, refuse_in_program

MOST_SWEEPS = 100
MOST_BLOCK = 1024
LARGEST_ERROR = 0.1  # of the diagonal of D^-1 D: beyond it no digit of the inverse is known, whatever the units are


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a color with as many entries each on one side of the diagonal, ``slots`` leads to these; rows with fewer
    than others have a count of their own, and zeros in the ``values`` that are left over."""

    rows: Set
    slots: Map
    columns: Map
    counts: Field
    values: Field


class ColoredSGS:
    """A preconditioner for a square Matrix through a map, with blocks of at most 6 x 6: ``sgs(r, z)`` makes z, by loops
    that a program records. Solvers look at the matrix again in every ``solve``; by hand ``refresh`` does.

    ``sweeps``: as many symmetric sweeps, each beyond the first with a product. ``in_turn``: so many neighbours follow
    each other, and blocks of them are colored: with as many times the loops each row knows more of those before it,
    which takes fewer iterations. ``dtype``: in which the factors are kept (that of the matrix, unless said): float32
    halves what is read of them. ``colors`` and ``stages``: how many it took.
    """

    @exclusive
    def __init__(self, of: Matrix, *, sweeps: int = 1, in_turn: int = 1, dtype: DTypeLike | None = None):
        refuse_in_program("making a preconditioner", MAKE_BEFORE)
        instance("lu_sgs: what it is made of", of, Matrix, error=MeshError)
        self.matrix = matrix = check_served("lu_sgs", of)
        self.sweeps = whole_number("lu_sgs: sweeps", sweeps, 1, MOST_SWEEPS, error=MeshError)
        self.dtype = matrix.dtype if dtype is None else floating("lu_sgs", dtype)
        size = matrix.block if matrix._invertible_blocks() else 1
        self.inverse = matrix.rows.field("inverse of the diagonal", size, dtype=self.dtype)
        rows_in_turn = whole_number("lu_sgs: in_turn", in_turn, 1, MOST_BLOCK, error=MeshError)
        stage, self.stages, self.colors = _stages_of(matrix, rows_in_turn)
        present = np.zeros(matrix.rows.total, bool)
        present[matrix.row_of.indices[matrix.diagonal.members.indices[:, 0], 0]] = True
        self._parts = [some_rows(matrix.rows, np.flatnonzero((stage == c) & present)) for c in range(self.stages)]
        self._down, self._up = (list(self._stage_rows(stage, above=above)) for above in (False, True))
        self._worst, self._version = Global(0, "singular", dtype=np.int64), -1
        self._make = steps_of(self._factor)
        self.refresh()

    def _stage_rows(self, stage: np.ndarray, *, above: bool) -> Iterator[list[_Rows]]:
        """For each stage the rows that have entries at columns of stages behind it (``above``), or before it."""
        row, column = self.matrix.row_of.indices[:, 0], self.matrix.column_of.indices[:, 0]
        chosen = np.flatnonzero(stage[column] > stage[row] if above else stage[column] < stage[row])
        chosen = chosen[np.argsort(row[chosen], kind="stable")]
        lengths = np.bincount(row[chosen], minlength=self.matrix.rows.total)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        if lengths.max(initial=0) > MOST_LISTED:
            raise MeshError(f"lu_sgs: row {int(np.argmax(lengths))} of matrix {self.matrix.name} has"
                            f" {lengths.max()} entries on one side of the diagonal, {MOST_LISTED} at most are"
                            " served; use 'block_jacobi'")  # fmt: skip
        by_stage = np.argsort(stage, kind="stable")
        ends = np.searchsorted(stage[by_stage], np.arange(self.stages + 1))
        for begin, end in pairwise(ends):
            rows = by_stage[begin:end]
            rows = rows[lengths[rows] > 0]
            width = few_widths(lengths[rows])
            yield [self._rows(rows[width == one], int(one), starts, chosen, column) for one in distinct(width)]

    def _rows(self, numbers: np.ndarray, width: int, starts: np.ndarray, chosen: np.ndarray,
              column: np.ndarray) -> _Rows:  # fmt: skip
        part = some_rows(self.matrix.rows, numbers)
        counts = (starts[numbers + 1] - starts[numbers]).astype(np.int32)
        place = starts[numbers][:, None] + np.minimum(np.arange(width), counts[:, None] - 1)
        slots = chosen[place]
        shape = (width, *self.matrix.block) if self.matrix.block != (1, 1) else width
        return _Rows(part, Map(part, self.matrix.entries, slots, "entries"),
                     Map(part, self.matrix.rows, column[slots], "columns"), part.field("counts", data=counts),
                     part.field("entries by inverse", shape, dtype=self.dtype))  # fmt: skip

    @exclusive
    def refresh(self) -> None:
        """Look at the matrix again; SolveError where a block on the diagonal is singular."""
        if self._version == self.matrix.values.version:
            return
        self._make()
        if self._worst.value:
            self._version = -1
            raise SolveError(f"lu_sgs: the diagonal of matrix {self.matrix.name} cannot be inverted at row"
                             f" {self._singular()}")  # fmt: skip
        self._version = self.matrix.values.version

    def _factor(self) -> None:
        """D^-1 and the entries times it, as loops."""
        matrix, blocks = self.matrix, self.matrix.block != (1, 1)
        matrix.inverse_diagonal(blocks=True, into=self.inverse)
        self._worst.value = 0
        check = check_block if blocks else check_entry
        check(matrix.diagonal, matrix.values, self.inverse[matrix.row_of], self._worst)
        for group in (one for stage in (*self._down, *self._up) for one in stage):
            scale = scale_blocks if blocks else scale_entries
            scale(group.rows, group.counts, matrix.values[group.slots], self.inverse, group.values)

    def _singular(self) -> int:
        """The first row, by number, that makes ``_worst`` what it is."""
        numbers = self.matrix.diagonal.members.indices[:, 0]
        rows = self.matrix.row_of.indices[numbers, 0]
        blocks, inverse = self.matrix.values.numpy()[numbers], self.inverse.numpy()[rows]
        size = self.matrix.block[0]
        with np.errstate(all="ignore"):
            ones = np.einsum("nij,nji->ni", inverse.reshape(-1, size, size), blocks.reshape(-1, size, size))
        wrong = ~(np.abs(ones - 1.0) < LARGEST_ERROR).all(axis=1)
        return int(rows[wrong].min())

    @exclusive
    def __call__(self, r: Field, z: Field) -> None:
        """z = M^-1 r."""
        self._sweep(r, z)
        if self.sweeps == 1:
            return
        left, change = z.like("left"), z.like("change")
        for _ in range(self.sweeps - 1):
            self.matrix.multiply(z, left)
            subtract_from(r.set, r, left)
            self._sweep(left, change)
            add_to(r.set, change, z)

    def _sweep(self, r: Field, z: Field) -> None:
        blocks = self.matrix.block != (1, 1)
        alone, down, up = (
            (multiply_block, down_blocks, up_blocks) if blocks else (multiply_entries, down_entries, up_entries)
        )
        for part, groups in zip(self._parts, self._down, strict=True):
            if sum(len(one.rows) for one in groups) < len(part):
                alone(part, self.inverse, r, z)  # of which the others are set again
            for one in groups:
                down(one.rows, one.values, z[one.columns], self.inverse, r, z)
        for groups in reversed(self._up):
            for one in groups:
                up(one.rows, one.values, z[one.columns], z)

    def __repr__(self) -> str:
        many = f"{self.colors} colors, {self.stages} stages"
        return f"ColoredSGS({self.matrix.name}: {many}, sweeps {self.sweeps}, {self.dtype})"


def check_served(who: str, matrix: Matrix) -> MapMatrix:
    """MeshError unless it is a matrix that can be swept through by colors."""
    if not isinstance(matrix, MapMatrix):
        raise MeshError(f"{who}: matrix {matrix.name} is stored by the offsets of a grid; give one through a map, or"
                        " use 'block_jacobi'")  # fmt: skip
    matrix._invertible_blocks()
    matrix._on_diagonal()
    return matrix


def _stages_of(matrix: MapMatrix, block: int) -> tuple[np.ndarray, int, int]:
    """(rows,): the stage of each row by number, how many there are, and how many colors; rows that share an entry
    differ."""
    row, column, n = matrix.row_of.indices[:, 0], matrix.column_of.indices[:, 0], matrix.rows.total
    one = library().csr_matrix((np.ones(len(row)), (row, column)), shape=(n, n))
    linked = one + one.T + library().identity(n, format="csr")
    order = colored(Sparse.of(linked), colors=None, block=block, window=None)
    found = np.empty(n, np.int64)
    found[order.rows] = order.stages
    return found, len(order.starts) - 1, order.colors


# --- kernels ----------------------------------------------------------------------------------------------------------


@kernel
def check_block(a: Read, inverse: Read, worst: Max):
    ones = np.einsum("ij,ji->i", inverse[0], a)
    worst[...] = np.where(np.all(np.abs(ones - 1.0) < LARGEST_ERROR), 0, 1)


@kernel
def check_entry(a: Read, inverse: Read, worst: Max):
    worst[...] = np.where(np.abs(inverse[0] * a - 1.0) < LARGEST_ERROR, 0, 1)


@kernel
def scale_blocks(count: Read, a: Read, inverse: Read, values: Write):
    for k in range(len(a)):
        values[k] = np.where(k < count, inverse @ a[k], 0.0)


@kernel
def scale_entries(count: Read, a: Read, inverse: Read, values: Write):
    found = [np.where(k < count, inverse * a[k], 0.0) for k in range(len(a))]
    values[...] = found if len(a) > 1 else found[0]


@kernel
def down_blocks(w: Read, x: Read, inverse: Read, r: Read, z: Write):
    z[...] = inverse @ r - sum(w[k] @ x[k] for k in range(len(x)))


@kernel
def down_entries(w: Read, x: Read, inverse: Read, r: Read, z: Write):
    z[...] = inverse * r - np.sum(w * x)


@kernel
def up_blocks(w: Read, x: Read, z: ReadWrite):
    z -= sum(w[k] @ x[k] for k in range(len(x)))


@kernel
def up_entries(w: Read, x: Read, z: ReadWrite):
    z -= np.sum(w * x)
