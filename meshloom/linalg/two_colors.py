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
from typing import Protocol

import numpy as np

from meshloom.errors import MeshError
from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.linalg.colored_order import ColoredOrder
from meshloom.linalg.iteration import MOST_ITERATIONS, Iteration, counting, numbers, steps_of
from meshloom.linalg.krylov import ONE
from meshloom.linalg.krylov_kernels import BROKEN, dot, note, set_to, subtract_from
from meshloom.linalg.ordered import Parts
from meshloom.linalg.row_storage import RowBlock, Storage, image, keep, reduce, subtract, unscaled_square
from meshloom.mesh.core import Field, Global, Set
from meshloom.native.cholesky import Sparse, diagonal_factored
from meshloom.operation.loop import kernel


@dataclass(frozen=True)
class Scalars:
    """The square ``rr`` of the residual, its products ``rz`` and ``rz_new`` with what the preconditioner makes of it,
    ``pq`` of the direction with its image, the square ``size`` of b, and the steps."""

    rr: Global
    rz: Global
    rz_new: Global
    pq: Global
    size: Global
    alpha: Global
    beta: Global

    def clear(self) -> None:
        """Before sums are made."""
        self.rr.value = self.rz.value = self.size.value = self.pq.value = 0.0


class ReducedSystem(Protocol):
    """S and its preconditioner as loops; x and b are those of the second color."""

    def start(self, x: Field, b: Field, s: Scalars) -> None:
        """x of the first color; the residual of x, the direction, and ``rr``, ``rz`` and ``size``."""

    def apply(self, x: Field, s: Scalars, k: int) -> None:
        """The image of the direction in step k of a program, and ``pq``."""

    def improve(self, x: Field, s: Scalars, k: int) -> None:
        """The new residual, ``rr`` and ``rz_new``."""

    def iterate(self, x: Field, s: Scalars, steps: int) -> None:
        """The new direction, in a program of so many steps."""

    def refresh(self, s: Scalars) -> None:
        """A solution that was interrupted has left everything as it was."""


@dataclass(kw_only=True)
class OfBothColors(Iteration):
    """b is that of the second color; ``first_b`` of the first."""

    first_b: Field

    def _is_zero(self, b: Field) -> bool:
        return super()._is_zero(b) and super()._is_zero(self.first_b)


def reduced_iteration(system: ReducedSystem, x: Parts, b: Parts, steps: int = 1) -> Iteration:
    """Conjugate gradients for the second color, so many steps as one program; x of the first is set in the end."""
    s = Scalars(*numbers(x[1], 7))
    left, target, *squares = numbers(x[1], 2 + steps)
    count, history = counting(x[1], steps)
    at = [Global(0, "at", dtype=np.int64) for _ in range(steps)]

    def start(x: Field, b: Field) -> None:
        system.start(x, b, s)
        set_to(ONE, s.rr, left)
        note(history.set, history.set.numbers, count, s.rr, history)

    def iterate(x: Field, b: Field) -> None:
        for k in range(steps):
            system.apply(x, s, k)
            reduced_alpha(ONE, left, target, s.rz, s.pq, s.alpha, s.rr, s.rz_new)
            system.improve(x, s, k)
            reduced_beta(ONE, target, s.rr, s.rz_new, s.pq, s.rz, s.beta, left, count, squares[k], at[k])
            system.iterate(x, s, steps)
        if steps == 2:
            note_two(history.set, *at, history.set.numbers, *squares, history)
        else:
            note(history.set, history.set.numbers, count, *squares, history)

    return OfBothColors(steps_of(start), steps_of(iterate), left, s.size, count, history, lambda: system.refresh(s),
                        steps, MOST_ITERATIONS, target, first_b=b[0])  # fmt: skip


def check_two_colors(a: Sparse, order: ColoredOrder, name: str) -> None:
    """MeshError where a pivot is not positive: a row of the second color with those of the first is a part of A whose
    factors are exact, so that A has no positive determinant there."""
    made = diagonal_factored(a, shift=0.0)
    if isinstance(made, int):
        raise MeshError(f"piccg: {name} is singular, or not positive definite: so are row {order.rows[made]} and those"
                        " that it has entries for, taken by themselves")  # fmt: skip


class TwoColors:
    """Stored rows in the order of two stages, whose sets are ``parts``. They are scaled: rows and columns of the first
    by 1 / sqrt(D), of the second by 1 / sqrt(pivot), so that the preconditioner is 1."""

    def __init__(self, order: ColoredOrder, a: Sparse, pivots: np.ndarray, storage: Storage):
        n, cut, dtype, scale = len(a), int(order.starts[1]), storage.dtype, 1.0 / np.sqrt(pivots)
        self.parts = first, second = Set(cut, "rows of the first color"), Set(n - cut, "rows of the second color")
        off_diagonal = a.scaled(scale).where(a.columns != a.rows)
        ends, middle = off_diagonal.offsets, off_diagonal.offsets[cut]
        to_first = Sparse(ends[: cut + 1], off_diagonal.columns[:middle] - cut, off_diagonal.values[:middle])
        to_second = Sparse(ends[cut:] - middle, off_diagonal.columns[middle:], off_diagonal.values[middle:])
        self._first = RowBlock(first, second, to_first, (0, cut), storage)
        self._second = RowBlock(second, first, to_second, (0, n - cut), storage)
        self.scales = (first.field("scale", dtype=dtype, data=scale[:cut]),
                       second.field("scale", dtype=dtype, data=scale[cut:]))  # fmt: skip
        self._diagonal = second.field("diagonal", dtype=dtype, data=(a.diagonal * scale**2)[cut:])
        self._t = first.field("eliminated", dtype=dtype)
        self._r, self._p, self._q = (second.field(name, dtype=dtype) for name in ("residual", "direction", "image"))

    def make_close(self, r: Parts, z: Parts) -> None:
        self._second.run(subtract, r[0], r[1], z[1])
        self._first.run(subtract, z[1], r[0], z[0])

    def iteration(self, x: Parts, b: Parts) -> Iteration:
        self._first_x, self._first_b = x[0], b[0]
        return reduced_iteration(self, x, b)

    def start(self, x: Field, b: Field, s: Scalars) -> None:
        second, r = self.parts[1], self._r
        self._first.run(subtract, x, self._first_b, self._first_x)
        self._second.run(image, self._first_x, x, self._diagonal, r)
        subtract_from(second, b, r)
        s.clear()
        unscaled_square(second, self.scales[1], r, s.rr)
        for part, scale, one in zip(self.parts, self.scales, (self._first_b, b), strict=True):
            unscaled_square(part, scale, one, s.size)
        dot(second, r, r, s.rz)
        set_to(second, r, self._p)

    def apply(self, x: Field, s: Scalars, k: int) -> None:
        self._first.run(keep, self._p, self._t)
        self._second.run(reduce, self._t, self._p, self._diagonal, self._q, s.pq)

    def improve(self, x: Field, s: Scalars, k: int) -> None:
        reduced_step(self.parts[1], s.alpha, self._q, self.scales[1], self._r, s.rr, s.rz_new)

    def iterate(self, x: Field, s: Scalars, steps: int) -> None:
        reduced_direction(self.parts[1], s.alpha, s.beta, self._r, x, self._p)

    def refresh(self, s: Scalars) -> None:
        pass


# --- kernels: x is improved where the direction is read anyway --------------------------------------------------------


@kernel
def reduced_step(alpha: Read, q: Read, scale: Read, r: ReadWrite, rr: Sum, rz: Sum):
    r -= alpha * q
    rr += (r / scale) ** 2
    rz += r * r


@kernel
def reduced_direction(alpha: Read, beta: Read, r: Read, x: ReadWrite, p: ReadWrite):
    x += alpha * p
    p[...] = r + beta * p


# --- decisions: as few loops over a single element as there can be, since an iteration takes little time --------------


# Once the end is reached, a step that still follows in the program changes nothing.


@kernel
def reduced_alpha(left: Read, target: Read, rz: Read, pq: Read, alpha: Write, rr: Write, rz_new: Write):
    alpha[...] = np.where(left <= target, 0.0, np.where(pq > 0.0, rz / pq, 0.0))
    rr[...] = 0.0
    rz_new[...] = 0.0


@kernel
def reduced_beta(target: Read, rr: Read, rz_new: Read, pq: ReadWrite, rz: ReadWrite, beta: Write, left: ReadWrite,
                 count: ReadWrite, square: Write, at: Write):  # fmt: skip
    there = left <= target  # not where it is no number
    number = count + np.where(there, 0, 1)
    left[...] = np.where(there, left, np.where((pq > 0.0) & np.isfinite(rr), rr, BROKEN))
    beta[...] = np.where(rz > 0.0, rz_new / rz, 0.0)
    rz[...] = rz_new
    pq[...] = 0.0
    count[...] = number
    square[...] = rr
    at[...] = number


@kernel
def note_two(at_first: Read, at_last: Read, number: Read, first: Read, last: Read, history: ReadWrite):
    history[...] = np.where(number == at_last, last, np.where(number == at_first, first, history))
