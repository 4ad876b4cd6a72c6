"""GMRES: the residual is as small as it can be over a growing space of images, kept by an orthonormal basis.

A cycle of ``restart`` steps is one program: the basis is made orthogonal twice over (which is as good as one vector
after the other, and needs fewer loops), the small least-squares problem is turned upright by rotations as it grows, all
in loops over a single element. Preconditioned from the right, so the residual is that of the equations.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from meshloom.errors import ProgramError, whole_number
from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.linalg.iteration import MOST_ITERATIONS, Iteration, Report, counting, numbers, steps_of
from meshloom.linalg.krylov import ONE, Operator, Preconditioner, Solver
from meshloom.linalg.steps import BROKEN, add_to, dot, note, subtract_from
from meshloom.mesh.core import Field, Global
from meshloom.operation.loop import Kernel, kernel

GROUP = 4  # vectors of the basis that one loop looks at
MOST_STEPS = 100  # of a cycle
NOTHING_NEW = 100.0  # times the rounding of a number: what is left of an image, or of the residual, is then noise


@kernel
def project(w: Read, h: Sum, *basis: Read):
    for k, v in enumerate(basis):
        h[k] += np.sum(v * w)


@kernel
def take_off(h: Read, w: ReadWrite, *basis: Read):
    w -= sum(h[k] * v for k, v in enumerate(basis))


@kernel
def scaled(scale: Read, a: Read, b: Write):
    b[...] = scale * a


@kernel
def rescale(scale: Read, v: ReadWrite):
    v *= scale


@kernel
def begin(rr: Read, first: Write, g: ReadWrite, scale: Write, stopped: Write):
    norm = np.sqrt(rr)
    first[...] = rr
    g[0] = norm
    stopped[...] = 0.0
    scale[...] = np.where(rr > 0.0, 1.0 / norm, 0.0)


@kernel
def left_after(rr: Read, stopped: Read, left: Write):
    """What is left to do: nothing where the space is exhausted, whatever the residual is: it begins again from x."""
    left[...] = np.where(np.isfinite(rr), np.where(stopped > 0.0, 0.0, rr), BROKEN)


@cache
def rotation(j: int, rounding: float) -> Kernel:
    """Step j: the new column, turned as those before, and the turn that takes its last entry away.

    Where the image of the last vector lies in the space already, up to ``rounding`` of the ``largest`` image, or
    nothing else is left of the first residual, the space is as large as it gets (a "lucky breakdown"): the steps of the
    cycle after that change nothing, and do not count. A vector whose image is nothing but rounding (the operator is
    singular) takes no part.
    """

    @kernel
    def rotate(norm: Read, first: Read, largest: ReadWrite, rotations: ReadWrite, g: ReadWrite, column: Write,
               scale: Write, rr: ReadWrite, stopped: ReadWrite, count: ReadWrite, *projections: Read):  # fmt: skip
        over = stopped > 0.0
        entries = [entry for part in projections for entry in part]
        h = [entries[i] + entries[len(entries) // 2 + i] for i in range(j + 1)]  # of both passes
        all_of_it = np.maximum(largest, norm + sum(one * one for one in h))
        largest[...] = all_of_it
        noise = rounding * rounding * all_of_it
        within = norm <= noise
        new = np.where(within, 0.0, norm)
        for i in range(j):
            c, s = rotations[2 * i], rotations[2 * i + 1]
            h[i], h[i + 1] = c * h[i] + s * h[i + 1], c * h[i + 1] - s * h[i]
            column[i] = h[i]
        square = h[j] * h[j] + new
        length = np.sqrt(np.where(square <= noise, 0.0, square))
        below = np.sqrt(new)
        c, s = np.where(length > 0.0, h[j] / length, 1.0), np.where(length > 0.0, below / length, 0.0)
        column[j] = np.where(over, 0.0, length)
        rotations[2 * j], rotations[2 * j + 1] = c, s
        last = g[j] + 0.0
        g[j], g[j + 1] = c * last, -s * last
        rest = np.where(length > 0.0, s * last, last)
        last_one = over | within | (rest * rest <= rounding * rounding * first)
        rr[...] = np.where(over, rr, rest * rest)
        scale[...] = np.where(last_one, 0.0, 1.0 / below)
        count += np.where(over, 0, 1)
        stopped[...] = np.where(last_one, 1.0, 0.0)

    return rotate


@kernel
def solve_back(g: Read, y: Write, *columns: Read):
    found: list[Any] = [0.0] * len(columns)
    for i in reversed(range(len(columns))):
        rest = g[i] - sum((columns[k][i] * found[k] for k in range(i + 1, len(columns))), 0.0)
        found[i] = np.where(columns[i][i] != 0.0, rest / columns[i][i], 0.0)
        y[i] = found[i]


@cache
def combination(first: int) -> Kernel:
    """Vectors of the basis from the first on, each times its share."""

    @kernel
    def combine(y: Read, u: ReadWrite, *basis: Read):
        u += sum(y[first + k] * v for k, v in enumerate(basis))

    return combine


class GMRES(Solver):
    """For any operator; ``restart``: steps of a cycle, of which each keeps one more field. Cycles are done to their
    end: as many as ``at_most`` has room for."""

    name = "gmres"

    def __init__(self, operator: Operator, *, preconditioner: Preconditioner = None, restart: int = 20):
        super().__init__(operator, preconditioner=preconditioner)
        self.restart = whole_number("gmres: restart", restart, 1, MOST_STEPS, error=ProgramError)

    def _iteration(self, like_x: Field, most: int) -> Iteration:
        apply, make_close = self._applied(like_x), self._precondition(like_x)
        steps, rounding = max(1, min(self.restart, most)), NOTHING_NEW * float(np.finfo(like_x.dtype).eps)
        r, u = like_x.like("residual"), like_x.like("update")
        basis = [like_x.like(f"basis {k}") for k in range(steps + 1)]
        z = None if make_close is None else like_x.like("close")
        rr, first, largest, norm, size, scale, left, stopped = numbers(like_x, 8)
        rotations, g, y = (Global(np.zeros(n, like_x.dtype), "numbers") for n in (2 * steps, steps + 1, steps))
        columns = [Global(np.zeros(j + 1, like_x.dtype), f"column {j}") for j in range(steps)]
        count, history = counting(like_x, steps)

        def residual(x: Field, b: Field) -> None:
            apply(x, r)
            subtract_from(x.set, b, r)
            rr.value = 0.0
            dot(x.set, r, r, rr)
            left_after(ONE, rr, stopped, left)

        def start(x: Field, b: Field) -> None:
            stopped.value = 0.0
            residual(x, b)
            size.value = 0.0
            dot(x.set, b, b, size)
            note(history.set, history.set.numbers, count, rr, history)

        def close_to(v: Field) -> Field:
            if make_close is None or z is None:
                return v
            make_close(v, z)
            return z

        def cycle(x: Field, b: Field) -> None:
            begin(ONE, rr, first, g, scale, stopped)
            scaled(x.set, scale, r, basis[0])
            for j in range(steps):
                w = basis[j + 1]
                apply(close_to(basis[j]), w)
                parts = [part for _ in range(2) for part in _orthogonal(w, basis[: j + 1])]
                norm.value = 0.0
                dot(x.set, w, w, norm)
                turn = rotation(j, rounding)
                turn(ONE, norm, first, largest, rotations, g, columns[j], scale, rr, stopped, count, *parts)
                rescale(x.set, scale, w)
                note(history.set, history.set.numbers, count, rr, history)
            solve_back(ONE, g, y, *columns)
            u.fill(0.0)
            for k in range(0, steps, GROUP):
                combination(k)(x.set, y, u, *basis[k : min(k + GROUP, steps)])
            add_to(x.set, close_to(u), x)
            residual(x, b)

        def refresh() -> None:
            self._refresh(make_close)()
            largest.value = 0.0

        enough = MOST_ITERATIONS if steps == self.restart else steps
        return Iteration(steps_of(start), steps_of(cycle), left, size, count, history, refresh, steps, enough)


def _orthogonal(w: Field, basis: list[Field]) -> list[Global]:
    """Take off w what it has of some vectors; how much that was, group by group."""
    parts = []
    for first in range(0, len(basis), GROUP):
        group = basis[first : first + GROUP]
        h = Global(np.zeros(len(group), w.dtype), "projections")
        project(w.set, w, h, *group)
        parts.append(h)
    for first, h in zip(range(0, len(basis), GROUP), parts, strict=True):
        take_off(w.set, h, w, *basis[first : first + GROUP])
    return parts


def gmres(operator: Operator, x: Field, b: Field, *, tol: float = 1e-8, at_most: int | None = None,
          preconditioner: Preconditioner = None, restart: int = 20) -> Report:  # fmt: skip
    """Solve A x = b for any operator, from the x that is there, by cycles of ``restart`` steps: see ``Solver``."""
    return GMRES(operator, preconditioner=preconditioner, restart=restart).solve(x, b, tol=tol, at_most=at_most)
