"""GMRES: the residual is as small as it can be over a growing space of images, kept by an orthonormal basis.

A cycle of ``restart`` steps is one program: the basis is made orthogonal twice over (which is as good as one vector
after the other, and needs fewer loops), the small least-squares problem is turned upright by rotations as it grows, all
in loops over a single element. Preconditioned from the right, so the residual is that of the equations.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from meshloom.errors import ProgramError, whole
from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.linalg.krylov import (
    MOST_ITERATIONS,
    ONE,
    Operator,
    Preconditioner,
    Programs,
    Report,
    Solver,
    counting,
    like,
    numbers,
)
from meshloom.linalg.steps import BROKEN, dot, note, subtract_from
from meshloom.loop import Kernel, kernel
from meshloom.mesh.core import Field, Global
from meshloom.program import Program

GROUP = 4  # vectors of the basis that one loop looks at
MOST_STEPS = 100  # of a cycle


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
def add_to(z: Read, x: ReadWrite):
    x += z


@kernel
def begin(rr: Read, g: ReadWrite, scale: Write):
    norm = np.sqrt(rr)
    g[0] = norm
    scale[...] = np.where(rr > 0.0, 1.0 / norm, 0.0)


@kernel
def finite(rr: Read, left: Write):
    left[...] = np.where(np.isfinite(rr), rr, BROKEN)


@cache
def rotation(j: int) -> Kernel:
    """Step j: the new column, turned as those before, and the turn that takes its last entry away."""

    @kernel
    def rotate(norm: Read, turns: ReadWrite, g: ReadWrite, column: Write, scale: Write, rr: Write, count: ReadWrite,
               *projections: Read):  # fmt: skip
        entries = [entry for part in projections for entry in part]
        h = [entries[i] + entries[len(entries) // 2 + i] for i in range(j + 1)]  # of both passes
        for i in range(j):
            c, s = turns[2 * i], turns[2 * i + 1]
            h[i], h[i + 1] = c * h[i] + s * h[i + 1], c * h[i + 1] - s * h[i]
            column[i] = h[i]
        length = np.sqrt(h[j] * h[j] + norm)
        below = np.sqrt(norm)
        c, s = np.where(length > 0.0, h[j] / length, 1.0), np.where(length > 0.0, below / length, 0.0)
        column[j] = length
        turns[2 * j], turns[2 * j + 1] = c, s
        last = g[j] + 0.0
        g[j], g[j + 1] = c * last, -s * last
        rr[...] = (s * last) * (s * last)
        scale[...] = np.where(norm > 0.0, 1.0 / below, 0.0)
        count += 1

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
        self.restart = whole("gmres: restart", restart, 1, MOST_STEPS, error=ProgramError)

    def _programs(self, x: Field, b: Field, most: int) -> Programs:
        apply, make_close = self._applied(x), self._precondition(x)
        steps = max(1, min(self.restart, most))
        r, u = like(x, "residual"), like(x, "update")
        basis = [like(x, f"basis {k}") for k in range(steps + 1)]
        z = None if make_close is None else like(x, "close")
        rr, norm, size, scale, left = numbers(x, 5)
        turns, g, y = (Global(np.zeros(n, x.dtype), "numbers") for n in (2 * steps, steps + 1, steps))
        columns = [Global(np.zeros(j + 1, x.dtype), f"column {j}") for j in range(steps)]
        count, history = counting(x, steps)

        def residual() -> None:
            apply(x, r)
            subtract_from(x.set, b, r)
            rr.value = 0.0
            dot(x.set, r, r, rr)
            finite(ONE, rr, left)

        def start() -> None:
            residual()
            size.value = 0.0
            dot(x.set, b, b, size)
            note(history.set, history.set.numbers, count, rr, history)

        def close_to(v: Field) -> Field:
            if make_close is None or z is None:
                return v
            make_close(v, z)
            return z

        def cycle() -> None:
            begin(ONE, rr, g, scale)
            scaled(x.set, scale, r, basis[0])
            for j in range(steps):
                w = basis[j + 1]
                apply(close_to(basis[j]), w)
                parts = [part for _ in range(2) for part in _orthogonal(w, basis[: j + 1])]
                norm.value = 0.0
                dot(x.set, w, w, norm)
                rotation(j)(ONE, norm, turns, g, columns[j], scale, rr, count, *parts)
                rescale(x.set, scale, w)
                note(history.set, history.set.numbers, count, rr, history)
            solve_back(ONE, g, y, *columns)
            u.fill(0.0)
            for first in range(0, steps, GROUP):
                combination(first)(x.set, y, u, *basis[first : min(first + GROUP, steps)])
            add_to(x.set, close_to(u), x)
            residual()

        refresh = self._refresh(make_close)
        enough = MOST_ITERATIONS if steps == self.restart else steps
        return Programs(Program(start), Program(cycle), x, b, left, size, count, history, refresh, steps, enough)


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
