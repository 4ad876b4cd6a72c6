"""Conjugate gradients with incomplete Cholesky factors that keep the entries of A: Eisenstat's trick.

Where the factors are W D^-1 W^T with W = D + L, L the entries of A below its diagonal, A is W + W^T - K with
K = 2 D - diag A, so the split operator is W^-1 A W^-T p = t + W^-1 (p - K t) with t = W^-T p: one sweep up, one down,
and no product. Rows and columns are scaled by D^-1/2 at the start of a solution and back at its end, so that D is 1 in
between. An iteration reads each entry next to the diagonal once, half of what a product and two sweeps take.

The residual that is carried along is W^-1 r. Its norm, times what the two were to each other when the residual was last
computed, stands for that of r; where that says that the end is reached r is computed, and if need be it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.linalg.colored_order import ColoredOrder
from meshloom.linalg.iteration import Iteration, counting, numbers, steps_of
from meshloom.linalg.krylov import ONE
from meshloom.linalg.krylov_kernels import BROKEN, add_scaled, cg_alpha, cg_beta, dot, note, set_to, subtract_from
from meshloom.linalg.ordered import Parts
from meshloom.linalg.row_storage import RowBlock, Storage, add, image, inner, subtract, unscaled_square
from meshloom.mesh.core import Field, Global, Set
from meshloom.native.cholesky import Sparse
from meshloom.operation.loop import kernel
from meshloom.operation.program import Program

CAREFUL = 1.2  # times the residual that is expected: it is computed when it is likely to be small enough
STALE = 0.95  # of the last residual: where no more was gained, W^-1 r has lost touch with it
ROUNDS = 12


@dataclass(kw_only=True)
class Calibrated(Iteration):
    """``carried``: the square of what is carried along; ``check``: a program of x and b that makes ``true``, the square
    of the residual of x; ``ratio``: what is taken for true / carried."""

    carried: Global
    true: Global
    ratio: Global
    check: Program
    rounds: int = ROUNDS
    _last: float = np.inf

    def _started(self, x: Field, b: Field) -> np.ndarray:
        found = super()._started(x, b)
        self._last = float(self.true.value)
        self.ratio.value = self._last / max(float(self.carried.value), np.finfo(x.dtype).tiny)
        return found

    def _renewed(self, x: Field, b: Field) -> np.ndarray:
        self.check(x, b)
        found, carried = float(self.true.value), float(self.carried.value)
        if not (found <= STALE * self._last and carried > 0.0):
            return self._started(x, b)
        self._last = found
        self.ratio.value = CAREFUL * found / carried
        self.left.value = found
        return np.full(1, found)


class Eisenstat:
    """A in its order, scaled: fields x and b of its loops are those of the rows by ``scale``, x / scale and b scale."""

    def __init__(self, order: ColoredOrder, a: Sparse, pivots: np.ndarray, storage: Storage):
        ordered, scale = Set(len(a), "rows in order"), 1.0 / np.sqrt(pivots)
        scaled = a.scaled(scale)
        self._lower, self._upper = (RowBlock(ordered, ordered, scaled.where(chosen), order.starts, storage)
                                    for chosen in (a.columns < a.rows, a.columns > a.rows))  # fmt: skip
        self._scale, self._diagonal, self._twice = (
            ordered.field(name, dtype=storage.dtype, data=data)
            for name, data in (("scale", scale), ("diagonal", scaled.diagonal), ("K", 2.0 - scaled.diagonal))
        )
        self._half = ordered.field("half way", dtype=storage.dtype)
        self.parts, self.scales = (ordered,), (self._scale,)

    def _product(self, x: Field, y: Field) -> None:
        """y = A x."""
        self._lower.run(image, x, x, self._diagonal, y)
        self._upper.run(add, x, y)

    def _solve_lower(self, r: Field, z: Field) -> None:
        """z = W^-1 r."""
        self._lower.run(subtract, z, r, z)

    def _solve_upper(self, r: Field, z: Field) -> None:
        """z = W^-T r."""
        self._upper.run(subtract, z, r, z, backwards=True)

    def make_close(self, r: Parts, z: Parts) -> None:
        self._solve_lower(r[0], self._half)
        self._solve_upper(self._half, z[0])

    def iteration(self, x: Parts, b: Parts) -> Calibrated:
        rows, scale = self.parts[0], self._scale
        r, p, t, u = (x[0].like(name) for name in ("residual", "direction", "half image", "other half"))
        rr, rz, rz_new, pq, size, alpha, beta, left, ratio = numbers(r, 9)
        count, history = counting(r)

        def check(x: Field, b: Field) -> None:
            self._product(x, u)
            subtract_from(rows, b, u)
            rr.value = 0.0
            unscaled_square(rows, scale, u, rr)

        def start(x: Field, b: Field) -> None:
            check(x, b)
            size.value = rz.value = 0.0
            unscaled_square(rows, scale, b, size)
            self._solve_lower(u, r)
            set_to(rows, r, p)
            dot(rows, r, r, rz)
            set_to(ONE, rr, left)
            note(history.set, history.set.numbers, count, rr, history)

        def iterate(x: Field, b: Field) -> None:
            self._solve_upper(p, t)
            pq.value = 0.0
            self._lower.run(inner, u, p, self._twice, t, u, pq)
            cg_alpha(ONE, rz, pq, alpha)
            rz_new.value = 0.0
            split_step(rows, alpha, t, u, x, r, rz_new)
            cg_beta(ONE, rz_new, rz, beta)
            add_scaled(rows, r, beta, p)
            expected_left(ONE, rz, ratio, pq, left, count)
            note(history.set, history.set.numbers, count, left, history)

        return Calibrated(steps_of(start), steps_of(iterate), left, size, count, history, lambda: None,
                          carried=rz, true=rr, ratio=ratio, check=steps_of(check))  # fmt: skip


# --- kernels ----------------------------------------------------------------------------------------------------------


@kernel
def split_step(alpha: Read, t: Read, u: Read, x: ReadWrite, r: ReadWrite, rz: Sum):
    x += alpha * t
    r -= alpha * (t + u)
    rz += r * r


@kernel
def expected_left(rz: Read, ratio: Read, pq: Read, left: Write, count: ReadWrite):
    left[...] = np.where((pq > 0.0) & np.isfinite(rz), rz * ratio, BROKEN)
    count += 1
