"""Krylov solvers: conjugate gradients, BiCGStab and GMRES of any linear operator, each iteration one program.

An operator is a ``Matrix``, or whatever can be called as ``operator(x, y)`` and makes y from x by loops: a program with
two parameters, or a function. Everything that decides is computed by loops over a single element, so an iteration needs
nothing of Python, and ``Program.repeat`` asks for the end where the loops run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.loop import kernel
from meshloom.mesh.core import Field

Operator = Callable[[Field, Field], Any]
MOST_ITERATIONS = 10**6
BROKEN = -1.0  # what stands for the residual where the method cannot go on


@dataclass(frozen=True)
class Report:
    """How a solver ended. ``history`` (iterations + 1,): norms of the residual, as multiples of that of b, the first one
    before anything was done; ``residual`` is the last. ``reason`` says in words why it stopped."""

    converged: bool
    iterations: int
    residual: float
    history: np.ndarray
    reason: str

    def __repr__(self) -> str:
        return f"Report({self.reason} after {self.iterations} iterations, residual {self.residual:.2e})"


# --- what happens at one element --------------------------------------------------------------------------------------


@kernel
def dot(a: Read, b: Read, total: Sum):
    total += np.sum(a * b)


@kernel
def subtract_from(b: Read, r: ReadWrite):
    r[...] = b - r


@kernel
def copy(a: Read, b: Write):
    b[...] = a


@kernel
def advance(alpha: Read, p: Read, q: Read, x: ReadWrite, r: ReadWrite, rr: Sum):
    x += alpha * p
    r -= alpha * q
    rr += np.sum(r * r)


@kernel
def direct(z: Read, beta: Read, p: ReadWrite):
    p[...] = z + beta * p


@kernel
def multiply(d: Read, r: Read, z: Write):
    z[...] = d * r


# --- what is decided --------------------------------------------------------------------------------------------------


@kernel
def step_length(rz: Read, pq: Read, alpha: Write):
    alpha[...] = np.where(pq > 0.0, rz / pq, 0.0)


@kernel
def next_direction(rz_new: Read, rz: ReadWrite, beta: Write):
    beta[...] = np.where(rz > 0.0, rz_new / rz, 0.0)
    rz[...] = rz_new


@kernel
def left_to_do(rr: Read, pq: Read, left: Write, count: ReadWrite):
    left[...] = np.where((pq > 0.0) & np.isfinite(rr), rr, BROKEN)
    count += 1


@kernel
def note(number: Read, count: Read, rr: Read, history: ReadWrite):
    history[...] = np.where(number == count, rr, history)
