"""Loops of the zoo with numba: parallel loops, strict floating point, the same arithmetic as the C++ peers.

Of each loop: ``element`` computes the values of one, ``scatter`` adds them to its targets, ``keep`` puts them into an
array, ``gathered`` and ``pulled`` are what a target adds up of such an array, or of its neighbours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
from numba import get_num_threads, njit, prange, set_num_threads

from bench.peers.zoo import OWNED, STORED, Case, Peer, blocks_tried

GAM, LAMBDA, MU = 1.4, 1.2, 0.8

inlined = njit(inline="always", error_model="numpy")


@inlined
def add3(f, t, x, y, z):
    f[t, 0] += x
    f[t, 1] += y
    f[t, 2] += z


@inlined
def put3(values, e, k, x, y, z):
    values[e, k] = x
    values[e, k + 1] = y
    values[e, k + 2] = z


# --- tetrahedra ---------------------------------------------------------------------------------------------------


@inlined
def tetrahedron(e, x, u, nodes):
    n0, n1, n2, n3 = nodes[e, 0], nodes[e, 1], nodes[e, 2], nodes[e, 3]
    px, py, pz, u0 = x[n0, 0], x[n0, 1], x[n0, 2], u[n0]
    ax, ay, az = x[n1, 0] - px, x[n1, 1] - py, x[n1, 2] - pz
    bx, by, bz = x[n2, 0] - px, x[n2, 1] - py, x[n2, 2] - pz
    cx, cy, cz = x[n3, 0] - px, x[n3, 1] - py, x[n3, 2] - pz
    ux, uy, uz = by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx
    vx, vy, vz = cy * az - cz * ay, cz * ax - cx * az, cx * ay - cy * ax
    wx, wy, wz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    scale = 1.0 / (6.0 * (ax * ux + ay * uy + az * uz))
    d1, d2, d3 = scale * (u[n1] - u0), scale * (u[n2] - u0), scale * (u[n3] - u0)
    sx, sy, sz = ux * d1 + vx * d2 + wx * d3, uy * d1 + vy * d2 + wy * d3, uz * d1 + vz * d2 + wz * d3
    r1, r2, r3 = ux * sx + uy * sy + uz * sz, vx * sx + vy * sy + vz * sz, wx * sx + wy * sy + wz * sz
    return -(r1 + r2 + r3), r1, r2, r3


@inlined
def scatter_tetrahedron(e, v, nodes, r, _):
    r[nodes[e, 0]] += v[0]
    r[nodes[e, 1]] += v[1]
    r[nodes[e, 2]] += v[2]
    r[nodes[e, 3]] += v[3]


@inlined
def keep_tetrahedron(e, v, values):
    values[e, 0], values[e, 1], values[e, 2], values[e, 3] = v


@njit(parallel=True)
def gathered_tetrahedra(offsets, entries, values, r):
    for t in prange(len(r)):
        total = r[t]
        for k in range(offsets[t], offsets[t + 1]):
            total += values[entries[k] >> 2, entries[k] & 3]
        r[t] = total


# --- hexahedra ----------------------------------------------------------------------------------------------------


@inlined
def slopes(rows, n0, n1, n2, n3, n4, n5, n6, n7, c):
    a0, a1, a2, a3 = rows[n0, c], rows[n1, c], rows[n2, c], rows[n3, c]
    b0, b1, b2, b3 = rows[n4, c], rows[n5, c], rows[n6, c], rows[n7, c]
    s0, s1, t0, t1 = a0 + a1, a2 + a3, b0 + b1, b2 + b3
    first = ((a1 - a0) + (a2 - a3)) + ((b1 - b0) + (b2 - b3))
    return first, (s1 - s0) + (t1 - t0), (t0 + t1) - (s0 + s1)


@inlined
def pushed(ux, uy, uz, vx, vy, vz, wx, wy, wz, x, y, z):
    """What stress (x, y, z) does to corners 6, 7, 4 and 5; their opposites get the negatives."""
    p, q, r = ux * x + uy * y + uz * z, vx * x + vy * y + vz * z, wx * x + wy * y + wz * z
    return r + p + q, r - p + q, r - p - q, r + p - q


@inlined
def hexahedron(e, x, d, nodes):
    n0, n1, n2, n3 = nodes[e, 0], nodes[e, 1], nodes[e, 2], nodes[e, 3]
    n4, n5, n6, n7 = nodes[e, 4], nodes[e, 5], nodes[e, 6], nodes[e, 7]
    xa, xb, xc = slopes(x, n0, n1, n2, n3, n4, n5, n6, n7, 0)
    ya, yb, yc = slopes(x, n0, n1, n2, n3, n4, n5, n6, n7, 1)
    za, zb, zc = slopes(x, n0, n1, n2, n3, n4, n5, n6, n7, 2)
    fa, fb, fc = slopes(d, n0, n1, n2, n3, n4, n5, n6, n7, 0)
    ga, gb, gc = slopes(d, n0, n1, n2, n3, n4, n5, n6, n7, 1)
    ha, hb, hc = slopes(d, n0, n1, n2, n3, n4, n5, n6, n7, 2)
    ux, uy, uz = yb * zc - zb * yc, zb * xc - xb * zc, xb * yc - yb * xc
    vx, vy, vz = yc * za - zc * ya, zc * xa - xc * za, xc * ya - yc * xa
    wx, wy, wz = ya * zb - za * yb, za * xb - xa * zb, xa * yb - ya * xb
    scale = 1.0 / (64.0 * (xa * ux + ya * uy + za * uz))
    fa, fb, fc, ga, gb, gc = scale * fa, scale * fb, scale * fc, scale * ga, scale * gb, scale * gc
    ha, hb, hc = scale * ha, scale * hb, scale * hc
    fx, fy, fz = fa * ux + fb * vx + fc * wx, fa * uy + fb * vy + fc * wy, fa * uz + fb * vz + fc * wz
    gx, gy, gz = ga * ux + gb * vx + gc * wx, ga * uy + gb * vy + gc * wy, ga * uz + gb * vz + gc * wz
    hx, hy, hz = ha * ux + hb * vx + hc * wx, ha * uy + hb * vy + hc * wy, ha * uz + hb * vz + hc * wz
    pressure = LAMBDA * (fx + gy + hz)
    xx, yy, zz = pressure + 2 * MU * fx, pressure + 2 * MU * gy, pressure + 2 * MU * hz
    xy, yz, xz = MU * (fy + gx), MU * (gz + hy), MU * (fz + hx)
    x6, x7, x4, x5 = pushed(ux, uy, uz, vx, vy, vz, wx, wy, wz, xx, xy, xz)
    y6, y7, y4, y5 = pushed(ux, uy, uz, vx, vy, vz, wx, wy, wz, xy, yy, yz)
    z6, z7, z4, z5 = pushed(ux, uy, uz, vx, vy, vz, wx, wy, wz, xz, yz, zz)
    return x4, y4, z4, x5, y5, z5, x6, y6, z6, x7, y7, z7


@inlined
def scatter_hexahedron(e, v, nodes, f, _):
    add3(f, nodes[e, 0], -v[6], -v[7], -v[8])
    add3(f, nodes[e, 1], -v[9], -v[10], -v[11])
    add3(f, nodes[e, 2], -v[0], -v[1], -v[2])
    add3(f, nodes[e, 3], -v[3], -v[4], -v[5])
    add3(f, nodes[e, 4], v[0], v[1], v[2])
    add3(f, nodes[e, 5], v[3], v[4], v[5])
    add3(f, nodes[e, 6], v[6], v[7], v[8])
    add3(f, nodes[e, 7], v[9], v[10], v[11])


@inlined
def keep_hexahedron(e, v, values):
    put3(values, e, 0, -v[6], -v[7], -v[8])
    put3(values, e, 3, -v[9], -v[10], -v[11])
    put3(values, e, 6, -v[0], -v[1], -v[2])
    put3(values, e, 9, -v[3], -v[4], -v[5])
    put3(values, e, 12, v[0], v[1], v[2])
    put3(values, e, 15, v[3], v[4], v[5])
    put3(values, e, 18, v[6], v[7], v[8])
    put3(values, e, 21, v[9], v[10], v[11])


@njit(parallel=True)
def gathered_hexahedra(offsets, entries, values, f):
    for t in prange(len(f)):
        x, y, z = f[t, 0], f[t, 1], f[t, 2]
        for k in range(offsets[t], offsets[t + 1]):
            e, first = entries[k] >> 3, 3 * (entries[k] & 7)
            x += values[e, first]
            y += values[e, first + 1]
            z += values[e, first + 2]
        f[t, 0], f[t, 1], f[t, 2] = x, y, z


# --- edges and faces ----------------------------------------------------------------------------------------------


@inlined
def rusanov(e, n, q, ends):
    a, b = ends[e, 0], ends[e, 1]
    nx, ny, nz = n[e, 0], n[e, 1], n[e, 2]
    a0, a1, a2, a3, a4 = q[a, 0], q[a, 1], q[a, 2], q[a, 3], q[a, 4]
    b0, b1, b2, b3, b4 = q[b, 0], q[b, 1], q[b, 2], q[b, 3], q[b, 4]
    area, ra, rb = sqrt(nx * nx + ny * ny + nz * nz), 1.0 / a0, 1.0 / b0
    pa = (GAM - 1.0) * (a4 - 0.5 * ra * (a1 * a1 + a2 * a2 + a3 * a3))
    pb = (GAM - 1.0) * (b4 - 0.5 * rb * (b1 * b1 + b2 * b2 + b3 * b3))
    va, vb = ra * (a1 * nx + a2 * ny + a3 * nz), rb * (b1 * nx + b2 * ny + b3 * nz)
    w = max(abs(va) + area * sqrt(GAM * pa * ra), abs(vb) + area * sqrt(GAM * pb * rb))
    ca, cb, p = 0.5 * (va + w), 0.5 * (vb - w), 0.5 * (pa + pb)
    return (
        ca * a0 + cb * b0,
        ca * a1 + cb * b1 + p * nx,
        ca * a2 + cb * b2 + p * ny,
        ca * a3 + cb * b3 + p * nz,
        ca * a4 + cb * b4 + 0.5 * (va * pa + vb * pb),
    )


@inlined
def scatter_flux(e, v, ends, r, _):
    a, b = ends[e, 0], ends[e, 1]
    add3(r, a, v[0], v[1], v[2])
    r[a, 3] += v[3]
    r[a, 4] += v[4]
    add3(r, b, -v[0], -v[1], -v[2])
    r[b, 3] -= v[3]
    r[b, 4] -= v[4]


@inlined
def keep_flux(e, v, values):
    values[e, 0], values[e, 1], values[e, 2], values[e, 3], values[e, 4] = v


@njit(parallel=True)
def gathered_fluxes(offsets, entries, values, r):
    for t in prange(len(r)):
        s0, s1, s2, s3, s4 = r[t, 0], r[t, 1], r[t, 2], r[t, 3], r[t, 4]
        for k in range(offsets[t], offsets[t + 1]):
            e, sign = entries[k] >> 1, 1.0 - 2.0 * (entries[k] & 1)
            s0 += sign * values[e, 0]
            s1 += sign * values[e, 1]
            s2 += sign * values[e, 2]
            s3 += sign * values[e, 3]
            s4 += sign * values[e, 4]
        r[t, 0], r[t, 1], r[t, 2], r[t, 3], r[t, 4] = s0, s1, s2, s3, s4


@inlined
def middle(e, n, u, ends):
    m = 0.5 * (u[ends[e, 0]] + u[ends[e, 1]])
    return m * n[e, 0], m * n[e, 1], m * n[e, 2]


@inlined
def scatter_middle(e, v, ends, g, _):
    add3(g, ends[e, 0], v[0], v[1], v[2])
    add3(g, ends[e, 1], -v[0], -v[1], -v[2])


@inlined
def keep_middle(e, v, values):
    values[e, 0], values[e, 1], values[e, 2] = v


@njit(parallel=True)
def gathered_middles(offsets, entries, values, g):
    for t in prange(len(g)):
        x, y, z = g[t, 0], g[t, 1], g[t, 2]
        for k in range(offsets[t], offsets[t + 1]):
            e, sign = entries[k] >> 1, 1.0 - 2.0 * (entries[k] & 1)
            x += sign * values[e, 0]
            y += sign * values[e, 1]
            z += sign * values[e, 2]
        g[t, 0], g[t, 1], g[t, 2] = x, y, z


@njit(parallel=True)
def pulled_middles(offsets, entries, others, n, u, g, _):
    for t in prange(len(g)):
        x, y, z = g[t, 0], g[t, 1], g[t, 2]
        for k in range(offsets[t], offsets[t + 1]):
            e, m = entries[k] >> 1, (0.5 - (entries[k] & 1)) * (u[t] + u[others[k]])
            x += m * n[e, 0]
            y += m * n[e, 1]
            z += m * n[e, 2]
        g[t, 0], g[t, 1], g[t, 2] = x, y, z


@inlined
def both_rows(e, _, q, ends):
    a, b = ends[e, 0], ends[e, 1]
    return q[b, 0], q[b, 1], q[b, 2], q[b, 3], q[b, 4], q[a, 0], q[a, 1], q[a, 2], q[a, 3], q[a, 4]


@inlined
def bound(low, high, t, k, value):
    low[t, k], high[t, k] = min(low[t, k], value), max(high[t, k], value)


@inlined
def scatter_rows(e, v, ends, low, high):
    a, b = ends[e, 0], ends[e, 1]
    bound(low, high, a, 0, v[0])
    bound(low, high, a, 1, v[1])
    bound(low, high, a, 2, v[2])
    bound(low, high, a, 3, v[3])
    bound(low, high, a, 4, v[4])
    bound(low, high, b, 0, v[5])
    bound(low, high, b, 1, v[6])
    bound(low, high, b, 2, v[7])
    bound(low, high, b, 3, v[8])
    bound(low, high, b, 4, v[9])


@njit(parallel=True)
def pulled_bounds(offsets, entries, others, _, q, low, high):
    for t in prange(len(q)):
        a0, a1, a2, a3, a4 = low[t, 0], low[t, 1], low[t, 2], low[t, 3], low[t, 4]
        b0, b1, b2, b3, b4 = high[t, 0], high[t, 1], high[t, 2], high[t, 3], high[t, 4]
        for k in range(offsets[t], offsets[t + 1]):
            o = others[k]
            a0, b0 = min(a0, q[o, 0]), max(b0, q[o, 0])
            a1, b1 = min(a1, q[o, 1]), max(b1, q[o, 1])
            a2, b2 = min(a2, q[o, 2]), max(b2, q[o, 2])
            a3, b3 = min(a3, q[o, 3]), max(b3, q[o, 3])
            a4, b4 = min(a4, q[o, 4]), max(b4, q[o, 4])
        low[t, 0], low[t, 1], low[t, 2], low[t, 3], low[t, 4] = a0, a1, a2, a3, a4
        high[t, 0], high[t, 1], high[t, 2], high[t, 3], high[t, 4] = b0, b1, b2, b3, b4


@inlined
def both_values(e, _, a, ends):
    return a[ends[e, 1]], a[ends[e, 0]]


@inlined
def scatter_values(e, v, ends, b, _):
    b[ends[e, 0]] += v[0]
    b[ends[e, 1]] += v[1]


@njit(parallel=True)
def pulled_values(offsets, entries, others, _, a, b, __):
    for t in prange(len(b)):
        total = b[t]
        for k in range(offsets[t], offsets[t + 1]):
            total += a[others[k]]
        b[t] = total


# --- forms --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """What a loop is made of; None where it lacks a form."""

    element: Any
    scatter: Any
    keep: Any = None
    gathered: Any = None
    pulled: Any = None


PARTS = {
    "p1_tetrahedron": Parts(tetrahedron, scatter_tetrahedron, keep_tetrahedron, gathered_tetrahedra),
    "elastic_hexahedron": Parts(hexahedron, scatter_hexahedron, keep_hexahedron, gathered_hexahedra),
    "edge_flux": Parts(rusanov, scatter_flux, keep_flux, gathered_fluxes),
    "green_gauss": Parts(middle, scatter_middle, keep_middle, gathered_middles, pulled_middles),
    "limiter_bounds": Parts(both_rows, scatter_rows, pulled=pulled_bounds),
    "exchanged_over_links": Parts(both_values, scatter_values, pulled=pulled_values),
}


@cache
def blocks_of(loop: str) -> Any:
    """Runs the blocks of one color."""
    element, scatter = PARTS[loop].element, PARTS[loop].scatter

    @njit(parallel=True, error_model="numpy")
    def run(geometry, state, ends, first, second, blocks, size):
        for k in prange(len(blocks)):
            for e in range(blocks[k] * size, min((blocks[k] + 1) * size, len(ends))):
                scatter(e, element(e, geometry, state, ends), ends, first, second)

    return run


@cache
def kept(loop: str) -> Any:
    """Puts the values of all elements into an array."""
    element, keep = PARTS[loop].element, PARTS[loop].keep

    @njit(parallel=True, error_model="numpy")
    def run(geometry, state, ends, values):
        for e in prange(len(ends)):
            keep(e, element(e, geometry, state, ends), values)

    return run


class Numba(ABC):
    """A form of a loop."""

    name = "numba"

    def __init__(self, case: Case, threads: int):
        self.case, self.parts, self._threads = case, PARTS[case.loop], min(threads, get_num_threads())

    def run(self, times: int) -> None:
        set_num_threads(self._threads)
        for _ in range(times):
            self.once()

    @abstractmethod
    def once(self) -> None:
        """The loop, race-free in the form's way."""


class Blocks(Numba):
    """Blocks of contiguous elements, colored."""

    def __init__(self, case: Case, threads: int, block: int):
        super().__init__(case, threads)
        self.block, self.name = block, "numba blocks" + (f", {block}" if threads > 1 else "")
        self._colors, self._run = case.colors(block), blocks_of(case.loop)

    def once(self) -> None:
        c = self.case
        for blocks in self._colors:
            self._run(c.geometry, c.state, c.map, c.outputs[0], c.outputs[-1], blocks, self.block)


class Gather(Numba):
    """Values of elements to an array, then a sum over the elements of every target."""

    name = "numba gather"

    def __init__(self, case: Case, threads: int):
        super().__init__(case, threads)
        self._values, self._kept = np.zeros((len(case.map), STORED[case.loop])), kept(case.loop)

    def once(self) -> None:
        c = self.case
        self._kept(c.geometry, c.state, c.map, self._values)
        self.parts.gathered(c.offsets, c.entries, self._values, c.outputs[0])


class Owner(Numba):
    """Every target computes what it gets of its neighbours."""

    name = "numba owner"

    def once(self) -> None:
        c = self.case
        self.parts.pulled(c.offsets, c.entries, c.others, c.geometry, c.state, c.outputs[0], c.outputs[-1])


def peers(case: Case, threads: int) -> list[Peer]:
    """Every form of a loop."""
    found: list[Peer] = [Blocks(case, threads, block) for block in blocks_tried(case, threads)]
    if case.loop in STORED:
        found.append(Gather(case, threads))
    if case.loop in OWNED:
        found.append(Owner(case, threads))
    return found
