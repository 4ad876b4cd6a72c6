"""The Navier-Stokes right-hand sides written down once more: NumPy, dense matrices, no kernels, nothing shared."""

from __future__ import annotations

import numpy as np

GAMMA = 1.4


def derivative_matrix(n: int, h: float, *, periodic: bool) -> np.ndarray:
    """Lele's sixth-order derivative with the closures of fourth order, (n, n)."""
    left, right = np.eye(n), np.zeros((n, n))
    for i in range(n):
        for offset, alpha, weight in ((1, 1 / 3, 7 / 9), (2, 0.0, 1 / 36)):
            left[i, (i + offset) % n] += alpha
            left[i, (i - offset) % n] += alpha
            right[i, (i + offset) % n] += weight
            right[i, (i - offset) % n] -= weight
    if not periodic:
        for i in (0, 1):
            for matrix, sign in ((left, 1.0), (right, -1.0)):
                row = np.zeros(n)
                if matrix is left:
                    row[:3] = (1.0, 3.0, 0.0) if i == 0 else (0.25, 1.0, 0.25)
                else:
                    row[:4] = (-17 / 6, 3 / 2, 3 / 2, -1 / 6) if i == 0 else (-3 / 4, 0.0, 3 / 4, 0.0)
                matrix[i], matrix[n - 1 - i] = row, sign * row[::-1]
    return np.linalg.solve(left, right) / h


class Reference:
    """dq/dt of q (d + 2, *shape); p = rho R T."""

    def __init__(self, shape, spacing, *, periodic, R, mu, prandtl, split=False):
        self.d, self.R, self.mu, self.split = len(shape), R, mu, split
        self.cp = GAMMA * R / (GAMMA - 1)
        self.k = mu * self.cp / prandtl
        self.spacing = spacing
        self.D = [derivative_matrix(n, h, periodic=periodic) for n, h in zip(shape, spacing, strict=True)]
        self.inner = [m.copy() for m in self.D]
        if not periodic:
            for m in self.inner:
                m[[0, -1]] = 0.0

    def apply(self, matrix, f, a):
        return np.moveaxis(np.tensordot(matrix, f, axes=(1, a)), 0, a)

    def primitive(self, q):
        rho, u = q[0], q[1:-1] / q[0]
        p = (GAMMA - 1) * (q[-1] - 0.5 * rho * (u * u).sum(axis=0))
        return rho, u, p, p / (rho * self.R)

    def gradients(self, q):
        """G[a, i] = du_i/dx_a with the temperature last."""
        _, u, _, T = self.primitive(q)
        return np.array([[self.apply(self.D[a], f, a) for f in (*u, T)] for a in range(self.d)])

    def stresses(self, G):
        grad = G[:, : self.d]
        tau = self.mu * (grad + grad.swapaxes(0, 1))
        for a in range(self.d):
            tau[a, a] -= 2 / 3 * self.mu * sum(grad[i, i] for i in range(self.d))
        return tau

    def interior(self, q):
        rho, u, p, T = self.primitive(q)
        G = self.gradients(q)
        tau = self.stresses(G)
        rate = np.zeros_like(q)
        for a in range(self.d):
            D = lambda f, a=a: self.apply(self.inner[a], f, a)  # noqa: E731
            m = rho * u[a]
            rate[0] -= D(m)
            for i in range(self.d):
                rest = (p if i == a else 0) - tau[a, i]
                if self.split:
                    rate[1 + i] -= 0.5 * (D(m * u[i]) + u[i] * D(m) + m * G[a, i]) + D(rest)
                else:
                    rate[1 + i] -= D(m * u[i] + rest)
            kinetic = 0.5 * (u * u).sum(axis=0)
            rest = m * kinetic - (u * tau[a]).sum(axis=0) - self.k * G[a, -1]
            if self.split:
                rate[-1] -= 0.5 * self.cp * (D(m * T) + T * D(m) + m * G[a, -1]) + D(rest)
            else:
                rate[-1] -= D(u[a] * (q[-1] + p) - m * kinetic + rest)
        return rate

    def add_outflow(self, rate, q, axis, high, p_far, pull):
        """Poinsot and Lele's terms on one side of a plane, in the variables of the paper: L1 to L5, d1 to d5."""
        G = self.gradients(q)
        tau = self.stresses(G)
        rho, u, p, _ = self.primitive(q)
        n = rate.shape[1 + axis]
        weights = np.array([-25 / 12, 4, -3, 4 / 3, -1 / 4]) / self.spacing[axis] * (-1 if high else 1)

        def at(f, k=0):
            return np.take(f, n - 1 - k if high else k, axis=axis)

        def dn(f):
            return sum(w * at(f, k) for k, w in enumerate(weights))

        t = 1 - axis
        r, un, ut, P = at(rho), at(u[axis]), at(u[t]), at(p)
        c = np.sqrt(GAMMA * P / r)
        out = 1 if high else -1
        L = {
            1: (un - c) * (dn(p) - r * c * dn(u[axis])), 2: un * (c * c * dn(rho) - dn(p)), 3: un * dn(u[t]),
            5: (un + c) * (dn(p) + r * c * dn(u[axis])),
        }  # fmt: skip
        for wave, speed in ((1, un - c), (2, un), (3, un), (5, un + c)):
            L[wave] = np.where(speed * out < 0, pull * (P - p_far) if wave in (1, 5) else 0.0, L[wave])
        d1 = (L[2] + (L[5] + L[1]) / 2) / c**2
        d2, d3, d4 = (L[5] + L[1]) / 2, (L[5] - L[1]) / (2 * r * c), L[3]
        force = dn(tau[axis, axis])
        add = {
            0: -d1,
            1 + axis: -(un * d1 + r * d3) + force,
            1 + t: -(ut * d1 + r * d4),
            3: -((un**2 + ut**2) / 2 * d1 + d2 / (GAMMA - 1) + r * un * d3 + r * ut * d4)
            + un * force + at(tau[axis, axis]) * at(G[axis, axis]) + at(tau[axis, t]) * at(G[axis, t]),
        }  # fmt: skip
        for component, values in add.items():
            side = [component, slice(None), slice(None)]
            side[1 + axis] = n - 1 if high else 0
            rate[tuple(side)] += values
