"""The airfoil step with numba: parallel loops, strict floating point, the same factored flux as the C++ peer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import sqrt

import numpy as np
from numba import get_num_threads, njit, prange, set_num_threads

from bench.peers.case import CFL, EPS, GAM, GM1, WALL, Airfoil, State, free_stream

Q0, Q1, Q2, Q3 = (float(v) for v in free_stream())


@njit(parallel=True)
def save_soln(q, qold):
    for i in prange(len(q)):
        for c in range(4):
            qold[i, c] = q[i, c]


@njit(inline="always")
def side(dx, dy, u, v, c):
    return abs(u * dy - v * dx) + c * sqrt(dx * dx + dy * dy)


@njit(parallel=True, error_model="numpy")
def adt_calc(x, nodes, q, adt):
    for i in prange(len(adt)):
        r = 1.0 / q[i, 0]
        u, v = r * q[i, 1], r * q[i, 2]
        c = sqrt(GAM * GM1 * (r * q[i, 3] - 0.5 * (u * u + v * v)))
        n0, n1, n2, n3 = nodes[i, 0], nodes[i, 1], nodes[i, 2], nodes[i, 3]
        x0, y0, x1, y1 = x[n0, 0], x[n0, 1], x[n1, 0], x[n1, 1]
        x2, y2, x3, y3 = x[n2, 0], x[n2, 1], x[n3, 0], x[n3, 1]
        total = side(x1 - x0, y1 - y0, u, v, c) + side(x2 - x1, y2 - y1, u, v, c)
        total += side(x3 - x2, y3 - y2, u, v, c) + side(x0 - x3, y0 - y3, u, v, c)
        adt[i] = total * (1.0 / CFL)


@njit(inline="always", error_model="numpy")
def face_flux(dx, dy, a0, a1, a2, a3, b0, b1, b2, b3, mu):
    ra, rb = 1.0 / a0, 1.0 / b0
    pa, va = GM1 * (a3 - 0.5 * ra * (a1 * a1 + a2 * a2)), 0.5 * ra * (a1 * dy - a2 * dx)
    pb, vb = GM1 * (b3 - 0.5 * rb * (b1 * b1 + b2 * b2)), 0.5 * rb * (b1 * dy - b2 * dx)
    p, ca, cb = 0.5 * (pa + pb), va + mu, vb - mu
    return (
        ca * a0 + cb * b0,
        ca * a1 + cb * b1 + p * dy,
        ca * a2 + cb * b2 - p * dx,
        ca * a3 + cb * b3 + (va * pa + vb * pb),
    )


@njit(inline="always", error_model="numpy")
def edge_flux(e, x, edge_nodes, a, b, q, adt):
    first, second = edge_nodes[e, 0], edge_nodes[e, 1]
    dx, dy = x[first, 0] - x[second, 0], x[first, 1] - x[second, 1]
    mu = 0.5 * EPS * (adt[a] + adt[b])
    return face_flux(dx, dy, q[a, 0], q[a, 1], q[a, 2], q[a, 3], q[b, 0], q[b, 1], q[b, 2], q[b, 3], mu)


@njit(parallel=True, error_model="numpy")
def res_calc_blocks(x, edge_nodes, edge_cells, q, adt, res, blocks, size):
    """One color: ``blocks`` are the numbers of its blocks of ``size`` edges."""
    edges = len(edge_nodes)
    for k in prange(len(blocks)):
        for e in range(blocks[k] * size, min((blocks[k] + 1) * size, edges)):
            a, b = edge_cells[e, 0], edge_cells[e, 1]
            f0, f1, f2, f3 = edge_flux(e, x, edge_nodes, a, b, q, adt)
            res[a, 0] += f0
            res[a, 1] += f1
            res[a, 2] += f2
            res[a, 3] += f3
            res[b, 0] -= f0
            res[b, 1] -= f1
            res[b, 2] -= f2
            res[b, 3] -= f3


@njit(parallel=True, error_model="numpy")
def flux_calc(x, edge_nodes, edge_cells, q, adt, flux):
    for e in prange(len(edge_nodes)):
        f0, f1, f2, f3 = edge_flux(e, x, edge_nodes, edge_cells[e, 0], edge_cells[e, 1], q, adt)
        flux[e, 0] = f0
        flux[e, 1] = f1
        flux[e, 2] = f2
        flux[e, 3] = f3


@njit(parallel=True)
def gather(offsets, entries, flux, res):
    for i in prange(len(res)):
        s0, s1, s2, s3 = res[i, 0], res[i, 1], res[i, 2], res[i, 3]
        for k in range(offsets[i], offsets[i + 1]):
            e = entries[k] >> 1
            sign = 1.0 - 2.0 * (entries[k] & 1)
            s0 += sign * flux[e, 0]
            s1 += sign * flux[e, 1]
            s2 += sign * flux[e, 2]
            s3 += sign * flux[e, 3]
        res[i, 0], res[i, 1], res[i, 2], res[i, 3] = s0, s1, s2, s3


@njit(error_model="numpy")
def bres_calc(x, bedge_nodes, bedge_cells, bound, q, adt, res):
    for e in range(len(bound)):
        first, second, i = bedge_nodes[e, 0], bedge_nodes[e, 1], bedge_cells[e]
        dx, dy = x[first, 0] - x[second, 0], x[first, 1] - x[second, 1]
        if bound[e] == WALL:
            p = GM1 * (q[i, 3] - 0.5 / q[i, 0] * (q[i, 1] * q[i, 1] + q[i, 2] * q[i, 2]))
            res[i, 1] += p * dy
            res[i, 2] -= p * dx
        else:
            f0, f1, f2, f3 = face_flux(dx, dy, q[i, 0], q[i, 1], q[i, 2], q[i, 3], Q0, Q1, Q2, Q3, EPS * adt[i])
            res[i, 0] += f0
            res[i, 1] += f1
            res[i, 2] += f2
            res[i, 3] += f3


@njit(parallel=True, error_model="numpy")
def update(qold, q, res, adt):
    rms = 0.0
    for i in prange(len(adt)):
        inverse = 1.0 / adt[i]
        for c in range(4):
            change = inverse * res[i, c]
            q[i, c] = qold[i, c] - change
            res[i, c] = 0.0
            rms += change * change
    return rms


def _color_blocks(edge_cells: np.ndarray, cells: int, size: int) -> list[np.ndarray]:
    """The block numbers of every color, greedily; not timed."""
    color = _greedy(edge_cells, cells, size)
    return [np.flatnonzero(color == c) for c in range(color.max() + 1)]


@njit
def _greedy(edge_cells, cells, size):
    blocks = -(-len(edge_cells) // size)
    color = np.full(blocks, -1)
    base, left = 0, blocks
    while left:
        used = np.zeros(cells, np.uint64)
        for b in range(blocks):
            if color[b] >= 0:
                continue
            rows = edge_cells[b * size : (b + 1) * size]
            taken = np.uint64(0)
            for e in range(len(rows)):
                taken |= used[rows[e, 0]] | used[rows[e, 1]]
            free = 0
            while free < 64 and (taken >> np.uint64(free)) & np.uint64(1):
                free += 1
            if free == 64:
                continue
            for e in range(len(rows)):
                used[rows[e, 0]] |= np.uint64(1) << np.uint64(free)
                used[rows[e, 1]] |= np.uint64(1) << np.uint64(free)
            color[b] = base + free
            left -= 1
        base += 64
    return color


class _Numba(ABC):
    name = "numba"

    def __init__(self, case: Airfoil, threads: int):
        self.case, self.state = case, State.initial(case.cells)
        self._threads = min(threads, get_num_threads())

    def reset(self) -> None:
        self.state.reset()

    def advance(self, iterations: int) -> np.ndarray:
        set_num_threads(self._threads)
        case, s, rms = self.case, self.state, np.zeros(iterations)
        for iteration in range(iterations):
            save_soln(s.q, s.qold)
            for _ in range(2):
                adt_calc(case.x, case.cell_nodes, s.q, s.adt)
                self.res_calc()
                bres_calc(case.x, case.bedge_nodes, case.bedge_cells, case.bound, s.q, s.adt, s.res)
                rms[iteration] = sqrt(update(s.qold, s.q, s.res, s.adt) / case.cells)
        return rms

    @abstractmethod
    def res_calc(self) -> None:
        """The residual loop, race-free in the variant's way."""


class NumbaBlockColor(_Numba):
    """Blocks of contiguous edges, colored."""

    def __init__(self, case: Airfoil, threads: int, block: int = 8192):
        super().__init__(case, threads)
        self.block, self.name = block, f"numba block coloring, {block}"
        self._colors = _color_blocks(case.edge_cells, case.cells, block)

    def res_calc(self) -> None:
        case, s = self.case, self.state
        for blocks in self._colors:
            res_calc_blocks(case.x, case.edge_nodes, case.edge_cells, s.q, s.adt, s.res, blocks, self.block)


class NumbaGather(_Numba):
    """Fluxes to an array, then a sum over the edges of every cell."""

    name = "numba gather"

    def __init__(self, case: Airfoil, threads: int):
        super().__init__(case, threads)
        ends = case.edge_cells.reshape(-1)
        self._offsets = np.zeros(case.cells + 1, np.int64)
        np.cumsum(np.bincount(ends, minlength=case.cells), out=self._offsets[1:])
        self._entries = np.argsort(ends, kind="stable").astype(np.int32)
        self._flux = np.zeros((case.edges, 4))

    def res_calc(self) -> None:
        case, s = self.case, self.state
        flux_calc(case.x, case.edge_nodes, case.edge_cells, s.q, s.adt, self._flux)
        gather(self._offsets, self._entries, self._flux, s.res)
