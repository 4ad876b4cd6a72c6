"""The airfoil step in plain NumPy: whole-array operations, one temporary after the other."""

from __future__ import annotations

import numpy as np

from bench.peers.case import CFL, EPS, GAM, GM1, WALL, Airfoil, State, free_stream


def adt_calc(corners: np.ndarray, q: np.ndarray) -> np.ndarray:
    """adt (cells,) from the corners (cells, 4, 2) and the state (cells, 4)."""
    inverse = 1.0 / q[:, 0]
    u, v = inverse * q[:, 1], inverse * q[:, 2]
    c = np.sqrt(GAM * GM1 * (inverse * q[:, 3] - 0.5 * (u * u + v * v)))
    total = np.zeros(len(q))
    for k in range(4):
        d = corners[:, (k + 1) % 4] - corners[:, k]
        total += np.abs(u * d[:, 1] - v * d[:, 0]) + c * np.sqrt(d[:, 0] ** 2 + d[:, 1] ** 2)
    return total / CFL


def pressure(q: np.ndarray) -> np.ndarray:
    return GM1 * (q[:, 3] - 0.5 * (q[:, 1] ** 2 + q[:, 2] ** 2) / q[:, 0])


def flux(d: np.ndarray, a: np.ndarray, b: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """Flux (n, 4) from states a to b (n, 4) through faces with d = (dx, dy) and dissipation mu (n,)."""
    dx, dy = d[:, 0], d[:, 1]
    pa, pb = pressure(a), pressure(b)
    va, vb = 0.5 * (a[:, 1] * dy - a[:, 2] * dx) / a[:, 0], 0.5 * (b[:, 1] * dy - b[:, 2] * dx) / b[:, 0]
    f = (va + mu)[:, None] * a + (vb - mu)[:, None] * b
    p = 0.5 * (pa + pb)
    f[:, 1] += p * dy
    f[:, 2] -= p * dx
    f[:, 3] += va * pa + vb * pb
    return f


def scatter_add_at(res: np.ndarray, cells: np.ndarray, f: np.ndarray) -> None:
    np.add.at(res, cells, f)


def scatter_bincount(res: np.ndarray, cells: np.ndarray, f: np.ndarray) -> None:
    for c in range(f.shape[1]):
        res[:, c] += np.bincount(cells, f[:, c], len(res))


SCATTERS = {"bincount": scatter_bincount, "add.at": scatter_add_at}


class NumPy:
    """Vectorised NumPy; ``scatter`` says how increments are added, ``"bincount"`` or ``"add.at"``."""

    def __init__(self, case: Airfoil, scatter: str = "bincount"):
        self.name, self._scatter = f"NumPy {scatter}", SCATTERS[scatter]
        self.case, self.state = case, State.initial(case.cells)
        self._qinf = free_stream()

    def reset(self) -> None:
        self.state.reset()

    def advance(self, iterations: int) -> np.ndarray:
        case, s, rms = self.case, self.state, np.zeros(iterations)
        for iteration in range(iterations):
            s.qold[:] = s.q
            for _ in range(2):
                s.adt[:] = adt_calc(case.x[case.cell_nodes], s.q)
                self._res_calc()
                self._bres_calc()
                change = s.res / s.adt[:, None]
                np.subtract(s.qold, change, out=s.q)
                s.res[:] = 0.0
                rms[iteration] = np.sqrt(np.sum(change * change) / case.cells)
        return rms

    def _res_calc(self) -> None:
        case, s = self.case, self.state
        a, b = case.edge_cells[:, 0], case.edge_cells[:, 1]
        d = case.x[case.edge_nodes[:, 0]] - case.x[case.edge_nodes[:, 1]]
        f = flux(d, s.q[a], s.q[b], 0.5 * EPS * (s.adt[a] + s.adt[b]))
        self._scatter(s.res, a, f)
        self._scatter(s.res, b, -f)

    def _bres_calc(self) -> None:
        case, s = self.case, self.state
        cells, wall = case.bedge_cells, case.bound == WALL
        d = case.x[case.bedge_nodes[:, 0]] - case.x[case.bedge_nodes[:, 1]]
        q = s.q[cells]
        f = flux(d, q, np.broadcast_to(self._qinf, q.shape), EPS * s.adt[cells])
        p = pressure(q)
        f[wall] = np.stack([0 * p, p * d[:, 1], -p * d[:, 0], 0 * p], axis=1)[wall]
        np.add.at(s.res, cells, f)
