"""PICCG of a matrix with two colors: conjugate gradients on what is left when the rows of one color are eliminated.

Incomplete Cholesky factors of such a matrix, the first color first, keep the entries of A. Eisenstat's trick then
carries along a residual that is zero at the rows of the first color from the first iteration on, and leaves just this:
with A cut into (D, E; E^T, F), D and F diagonal, S = F - E^T D^-1 E with the pivots of the second color, which are the
diagonal of S, as its preconditioner. Vectors have as many numbers as there are rows of the second color, about half;
each entry next to the diagonal is read once. The residual of the whole is that of S, as the first color is solved for
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshloom.errors import MeshError
from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.linalg.colored_order import ColoredOrder
from meshloom.linalg.incomplete import diagonal_of
from meshloom.linalg.iteration import Iteration, counting, numbers, steps_of
from meshloom.linalg.krylov import ONE
from meshloom.linalg.row_storage import (
    IMAGE,
    REDUCE,
    SUBTRACT,
    SUM,
    RowKernels,
    RowStage,
    Storage,
    start_sums,
    sums_for,
    unscaled_square,
)
from meshloom.linalg.steps import BROKEN, dot, note, set_to, subtract_from
from meshloom.mesh.core import Field, Set
from meshloom.native.cholesky import Sparse, diagonal_factored
from meshloom.operation.loop import kernel


def check_two_colors(a: Sparse, order: ColoredOrder, name: str) -> None:
    """MeshError where a pivot is not positive: a row of the second color with those of the first is a part of A whose
    factors are exact, so that A has no positive determinant there."""
    made = diagonal_factored(a, shift=0.0)
    if isinstance(made, int):
        raise MeshError(f"piccg: {name} is singular, or not positive definite: so are row {order.rows[made]} and those"
                        " that it has entries for, taken by themselves")  # fmt: skip


@dataclass
class OfBothColors(Iteration):
    """b is that of the second color; ``first_b`` of the first."""

    first_b: Field | None = None

    def _is_zero(self, b: Field) -> bool:
        return super()._is_zero(b) and self.first_b is not None and super()._is_zero(self.first_b)


class TwoColors:
    """A in the order of two stages, whose rows are sets, ``parts``; x and b are a field of each. They are scaled: rows
    and columns of the first by 1 / sqrt(D), of the second by 1 / sqrt(pivot), so that the preconditioner is 1."""

    def __init__(self, order: ColoredOrder, a: Sparse, pivots: np.ndarray, storage: Storage):
        n, cut, dtype = len(a), int(order.starts[1]), storage.dtype
        self.parts = first, second = Set(cut, "rows of the first color"), Set(n - cut, "rows of the second color")
        scale, row = 1.0 / np.sqrt(pivots), np.repeat(np.arange(n), np.diff(a.offsets))
        beside, ends = a.columns != row, a.offsets - np.arange(n + 1)
        columns, values = a.columns[beside], (a.values * scale[row] * scale[a.columns])[beside]
        middle = int(ends[cut])
        to_first = Sparse(ends[: cut + 1], columns[:middle] - cut, values[:middle])
        to_second = Sparse(ends[cut:] - middle, columns[middle:], values[middle:])
        self._links = (
            RowStage(first, second, to_first, 0, cut, storage),
            RowStage(second, first, to_second, 0, n - cut, storage),
        )
        self._sums = tuple(sums_for([one], one.of, dtype) for one in self._links)
        self.scales = tuple(
            one.field("scale", dtype=dtype, data=part)
            for one, part in zip(self.parts, (scale[:cut], scale[cut:]), strict=True)
        )
        self._diagonal = second.field("diagonal", dtype=dtype, data=(diagonal_of(a) * scale**2)[cut:])
        self._t = first.field("eliminated", dtype=dtype)

    def _run(self, which: int, kernels: RowKernels, x: Field, *rest: object) -> None:
        """At the rows of a color, with the sum of its entries times x, a field of the other."""
        start_sums(self._sums[which])
        self._links[which].run(kernels, x, self._sums[which], *rest)

    def make_close(self, r: tuple[Field, ...], z: tuple[Field, ...]) -> None:
        """z close to A^-1 r, both scaled."""
        self._run(1, SUBTRACT, r[0], r[1], z[1])
        self._run(0, SUBTRACT, z[1], r[0], z[0])

    def iteration(self, x: tuple[Field, ...], b: tuple[Field, ...]) -> OfBothColors:
        """Conjugate gradients for the fields of the second color; x of the first is set at the end of a solution."""
        second, diagonal, scale, t = self.parts[1], self._diagonal, self.scales[1], self._t
        r, p, q = (x[1].like(name) for name in ("residual", "direction", "image"))
        rr, rz, rz_new, pq, size, alpha, beta, left = numbers(x[1], 8)
        count, history = counting(x[1])

        def start(x_second: Field, b_second: Field) -> None:
            self._run(0, SUBTRACT, x_second, b[0], x[0])
            self._run(1, IMAGE, x[0], x_second, diagonal, r)
            subtract_from(second, b_second, r)
            rr.value = rz.value = size.value = pq.value = 0.0
            unscaled_square(second, scale, r, rr)
            for part, of_part, one in zip(self.parts, self.scales, (b[0], b_second), strict=True):
                unscaled_square(part, of_part, one, size)
            dot(second, r, r, rz)
            set_to(second, r, p)
            set_to(ONE, rr, left)
            note(history.set, history.set.numbers, count, rr, history)

        def iterate(x_second: Field, b_second: Field) -> None:
            self._run(0, SUM, p, t)
            self._run(1, REDUCE, t, p, diagonal, q, pq)
            reduced_alpha(ONE, rz, pq, alpha, rr, rz_new)
            reduced_step(second, alpha, q, scale, r, rr, rz_new)
            reduced_beta(ONE, rr, rz_new, pq, rz, beta, left, count)
            reduced_direction(second, alpha, beta, r, x_second, p)
            note(history.set, history.set.numbers, count, rr, history)

        return OfBothColors(steps_of(start), steps_of(iterate), left, size, count, history, lambda: None, first_b=b[0])


# --- kernels: x is improved where the direction is read anyway, and decisions are few loops ---------------------------


@kernel
def reduced_step(alpha: Read, q: Read, scale: Read, r: ReadWrite, rr: Sum, rz: Sum):
    r -= alpha * q
    rr += (r / scale) ** 2
    rz += r * r


@kernel
def reduced_direction(alpha: Read, beta: Read, r: Read, x: ReadWrite, p: ReadWrite):
    x += alpha * p
    p[...] = r + beta * p


@kernel
def reduced_alpha(rz: Read, pq: Read, alpha: Write, rr: Write, rz_new: Write):
    alpha[...] = np.where(pq > 0.0, rz / pq, 0.0)
    rr[...] = 0.0
    rz_new[...] = 0.0


@kernel
def reduced_beta(rr: Read, rz_new: Read, pq: ReadWrite, rz: ReadWrite, beta: Write, left: Write, count: ReadWrite):
    left[...] = np.where((pq > 0.0) & np.isfinite(rr), rr, BROKEN)
    beta[...] = np.where(rz > 0.0, rz_new / rz, 0.0)
    rz[...] = rz_new
    pq[...] = 0.0
    count += 1
