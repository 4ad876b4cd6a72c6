"""What Krylov solvers do at one element, and what they decide: kernels."""

from __future__ import annotations

import numpy as np

from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.operation.loop import kernel

BROKEN = -1.0  # what stands for the residual where a method cannot go on


@kernel
def dot(a: Read, b: Read, total: Sum):
    total += np.sum(a * b)


@kernel
def subtract_from(b: Read, r: ReadWrite):
    r[...] = b - r


@kernel
def set_to(a: Read, b: Write):
    b[...] = a


@kernel
def gather(x: Read, y: Write):
    y[...] = x[0]


@kernel
def scatter(x: Read, y: Write):
    y[0] = x


@kernel
def add_to(z: Read, x: ReadWrite):
    x += z


@kernel
def add_scaled(z: Read, beta: Read, p: ReadWrite):
    p[...] = z + beta * p


@kernel
def multiply_entries(d: Read, r: Read, z: Write):
    z[...] = d * r


@kernel
def multiply_block(d: Read, r: Read, z: Write):
    z[...] = d @ r


@kernel
def note(number: Read, count: Read, value: Read, history: ReadWrite):
    history[...] = np.where(number == count, value, history)


# --- conjugate gradients ----------------------------------------------------------------------------------------------


@kernel
def cg_alpha(rz: Read, pq: Read, alpha: Write):
    alpha[...] = np.where(pq > 0.0, rz / pq, 0.0)


@kernel
def cg_step(alpha: Read, p: Read, q: Read, x: ReadWrite, r: ReadWrite, rr: Sum):
    x += alpha * p
    r -= alpha * q
    rr += np.sum(r * r)


@kernel
def cg_beta(rz_new: Read, rz: ReadWrite, beta: Write):
    beta[...] = np.where(rz > 0.0, rz_new / rz, 0.0)
    rz[...] = rz_new


@kernel
def left_to_do(rr: Read, pq: Read, left: Write, count: ReadWrite):
    left[...] = np.where((pq > 0.0) & np.isfinite(rr), rr, BROKEN)
    count += 1
