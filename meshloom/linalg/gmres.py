"""GMRES: the residual is as small as it can be over a growing space of images, kept by an orthonormal basis.

A cycle has at most ``restart`` steps, and ends where the tolerance is met: the basis is made orthogonal twice over
(which is as good as one vector after the other, and needs fewer loops), the small least-squares problem is turned
upright by rotations as it grows, all in loops over a single element, so its residual is known after every step.
Preconditioned from the right, so the residual is that of the equations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.errors import ProgramError, whole_number
from meshloom.exclusion import exclusive
from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.linalg.iteration import (
    MOST_ITERATIONS,
    TOLERANCE,
    Iteration,
    Report,
    counting,
    inner_product,
    numbers,
    steps_of,
)
from meshloom.linalg.krylov import ONE, Operator, Preconditioner, Solver
from meshloom.linalg.krylov_kernels import BROKEN, add_to, note, subtract_from
from meshloom.mesh.core import Field, Global
from meshloom.operation.loop import Kernel, kernel
from meshloom.operation.program import Program

MOST_STEPS = 100  # of a cycle
RESTART = 20  # steps, unless a person asks for others
EXHAUSTED, ENOUGH = 1.0, 2.0  # why a cycle stopped: the space grows no more; the tolerance, or all steps there may be
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
def begin(rr: Read, first: Write, g: ReadWrite, scale: Write, stopped: Write, *columns: Write):
    norm = np.sqrt(rr)
    first[...] = rr
    g[0] = norm
    stopped[...] = 0.0
    scale[...] = np.where(rr > 0.0, 1.0 / norm, 0.0)
    for column in columns:  # steps that a cycle does not come to add nothing
        column[...] = 0.0


@kernel
def left_after(rr: Read, stopped: Read, left: Write):
    """What is left to do: nothing where the space is exhausted, whatever the residual is: it begins again from x."""
    left[...] = np.where(np.isfinite(rr), np.where(stopped == EXHAUSTED, 0.0, rr), BROKEN)


@cache
def rotation(j: int, rounding: float) -> Kernel:
    """Step j: the new column, turned as those before, and the turn that takes its last entry away.

    Where the image of the last vector lies in the space already, up to ``rounding`` of the ``largest`` image, or
    nothing else is left of the first residual, the space is as large as it gets (a "lucky breakdown"); where the
    residual has come to the ``target``, or there were as many steps as there may be, it is large enough. The steps of
    the cycle after that change nothing, and do not count. A vector whose image is nothing but rounding (the operator is
    singular) takes no part.
    """

    @kernel
    def rotate(norm: Read, first: Read, target: Read, limit: Read, largest: ReadWrite, rotations: ReadWrite,
               g: ReadWrite, column: Write, scale: Write, rr: ReadWrite, stopped: ReadWrite, count: ReadWrite,
               *projections: Read):  # fmt: skip
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
        exhausted = within | (rest * rest <= rounding * rounding * first)
        enough = (rest * rest <= target) | (count + 1 >= limit)
        last_one = over | exhausted | enough
        rr[...] = np.where(over, rr, rest * rest)
        scale[...] = np.where(last_one, 0.0, 1.0 / below)
        count += np.where(over, 0, 1)
        why = np.where(exhausted, EXHAUSTED, np.where(enough, ENOUGH, 0.0))
        stopped[...] = np.where(over, stopped, why)

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
    """For any operator; ``restart``: steps of a cycle at most, of which each keeps one more field."""

    name = "gmres"

    @exclusive
    def __init__(self, operator: Operator, *, preconditioner: Preconditioner = None, restart: int = RESTART):
        super().__init__(operator, preconditioner=preconditioner)
        self.restart = whole_number("gmres: restart", restart, 1, MOST_STEPS, error=ProgramError)

    def _iteration(self, like_x: Field, most: int) -> Iteration:
        steps = max(1, min(self.restart, most))
        work = _Arnoldi(self._applied(like_x), self._precondition(like_x), like_x, steps)

        def refresh() -> None:
            self._refresh(work.make_close)()
            work.largest.value = 0.0

        at_a_time = work.group if current().target.is_simt else 1  # a host that waits for a device asks less often
        ends = [*range(at_a_time, steps, at_a_time), steps]
        parts = [work.steps_from(begins, end) for begins, end in zip([0, *ends], ends, strict=False)]
        enough = MOST_ITERATIONS if steps == self.restart else steps
        return ArnoldiCycles(steps_of(work.start), parts[0], work.left, work.size, work.count, work.history, refresh,
                      most=enough, target=work.target, parts=parts, ends=ends, work=work,
                      improve=cache(work.improved_by))  # fmt: skip


class _Arnoldi:
    """The work space of cycles, and their steps as loops of x and b: ``basis``, an orthonormal one of the space so far,
    and the small least-squares problem."""

    def __init__(self, apply: Operator, make_close: Operator | None, x: Field, steps: int):
        self.apply, self.make_close, self.steps = apply, make_close, steps
        self.group = current().target.numbers.solvers.vectors
        self.rounding = NOTHING_NEW * float(np.finfo(x.dtype).eps)
        self.r, self.u = x.like("residual"), x.like("update")
        self.z = self.u if make_close is None else x.like("close")
        self.basis = [x.like(f"basis {k}") for k in range(steps + 1)]
        self.rr, self.first, self.largest, self.norm, self.size = numbers(x, 5)
        self.scale, self.left, self.stopped, self.target = numbers(x, 4)
        self.limit = Global(0, "steps", dtype=np.int64)
        lengths = 2 * steps, steps + 1, steps
        self.rotations, self.g, self.y = (Global(np.zeros(n, x.dtype), "numbers") for n in lengths)
        self.columns = [Global(np.zeros(j + 1, x.dtype), f"column {j}") for j in range(steps)]
        self.count, self.history = counting(x, steps)

    def start(self, x: Field, b: Field) -> None:
        """The residual of x."""
        self.stopped.value = 0.0
        self._residual(x, b)
        inner_product(b, b, self.size)
        note(self.history.set, self.history.set.numbers, self.count, self.rr, self.history)

    def _residual(self, x: Field, b: Field) -> None:
        self.apply(x, self.r)
        subtract_from(x.set, b, self.r)
        inner_product(self.r, self.r, self.rr)
        left_after(ONE, self.rr, self.stopped, self.left)

    def _close_to(self, v: Field) -> Field:
        if self.make_close is None:
            return v
        self.make_close(v, self.z)
        return self.z

    def steps_from(self, begins: int, ends: int) -> Program:
        """Steps of a cycle, the first of which begins it."""

        def some_steps(x: Field, b: Field) -> None:
            if begins == 0:
                begin(ONE, self.rr, self.first, self.g, self.scale, self.stopped, *self.columns)
                scaled(x.set, self.scale, self.r, self.basis[0])
            for j in range(begins, ends):
                self._grow(j, x)

        return steps_of(some_steps)

    def _grow(self, j: int, x: Field) -> None:
        """One more vector."""
        w = self.basis[j + 1]
        self.apply(self._close_to(self.basis[j]), w)
        parts = [part for _ in range(2) for part in _orthogonal(w, self.basis[: j + 1], self.group)]
        inner_product(w, w, self.norm)
        rotation(j, self.rounding)(
            ONE, self.norm, self.first, self.target, self.limit, self.largest, self.rotations, self.g, self.columns[j],
            self.scale, self.rr, self.stopped, self.count, *parts)  # fmt: skip
        rescale(x.set, self.scale, w)
        note(self.history.set, self.history.set.numbers, self.count, self.rr, self.history)

    def improved_by(self, vectors: int) -> Program:
        """The end of a cycle with so many vectors, whole groups of them: what they add to x, and its residual."""

        def improve(x: Field, b: Field) -> None:
            solve_back(ONE, self.g, self.y, *self.columns)
            self.u.fill(0.0)
            for k in range(0, min(vectors, self.steps), self.group):
                combination(k)(x.set, self.y, self.u, *self.basis[k : min(k + self.group, self.steps)])
            add_to(x.set, self._close_to(self.u), x)
            self._residual(x, b)

        return steps_of(improve)


@dataclass(kw_only=True)
class ArnoldiCycles(Iteration):
    """Steps of a cycle as ``parts``, programs of x and b, each of which ends at so many vectors (``ends``); then x is
    improved by those that there are, and the residual is computed anew."""

    parts: list[Program]
    ends: list[int]
    improve: Callable[[int], Program]
    work: _Arnoldi

    @property
    def programs(self) -> tuple[Program, ...]:
        return *super().programs, self._improved_by(self.ends[0])

    def _improved_by(self, vectors: int) -> Program:
        """By whole groups of vectors."""
        return self.improve(-(-vectors // self.work.group) * self.work.group)

    def _iterated(self, x: Field, b: Field, most: int) -> list[np.ndarray]:
        norms: list[np.ndarray] = []
        while most > 0 and not self._there():
            self.count.value, self.work.limit.value = 0, most
            vectors = self._grown(x, b)
            self._improved_by(vectors)(x, b)
            done = int(self.count.value)
            norms.append(self.history.numpy()[1 : done + 1])
            most -= done
            if float(self.left.value) < 0.0:  # what is not finite would not go away by being multiplied with 0
                for vector in self.work.basis:
                    vector.fill(0.0)
                break
        return norms

    def _grown(self, x: Field, b: Field) -> int:
        """Steps until one says that it was the last; the vectors there are then."""
        for part, end in zip(self.parts, self.ends, strict=True):
            part(x, b)
            if float(self.work.stopped.value):
                return end
        return self.ends[-1]


def _orthogonal(w: Field, basis: list[Field], size: int) -> list[Global]:
    """Take off w what it has of some vectors; how much that was, for each group of this size."""
    groups, parts = [basis[first : first + size] for first in range(0, len(basis), size)], []
    for group in groups:
        parts.append(Global(np.zeros(len(group), w.dtype), "projections"))
        project(w.set, w, parts[-1], *group)
    for group, h in zip(groups, parts, strict=True):
        take_off(w.set, h, w, *group)
    return parts


def gmres(operator: Operator, x: Field, b: Field, *, tol: float = TOLERANCE, at_most: int | None = None,
          preconditioner: Preconditioner = None, restart: int = RESTART) -> Report:  # fmt: skip
    """Solve A x = b for any operator, from the x that is there, in cycles of up to ``restart`` steps: ``Solver``."""
    return GMRES(operator, preconditioner=preconditioner, restart=restart).solve(x, b, tol=tol, at_most=at_most)
