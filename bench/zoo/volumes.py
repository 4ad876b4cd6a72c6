"""Loops of finite volumes and discontinuous Galerkin methods over faces and edges, and assembly over faces."""

from __future__ import annotations

from typing import Any

import numpy as np

import meshloom as ml
from bench.zoo.elements import Made
from bench.zoo.scene import Scene

GAMMA = 1.4
UNKNOWNS = 5


def euler_flux(q: Any, n: Any) -> tuple[list[Any], Any]:
    """The flux of density, momentum and energy along a normal, and the fastest wave along it."""
    speed = [q[k] / q[0] for k in (1, 2, 3)]
    pressure = (GAMMA - 1) * (q[4] - 0.5 * (q[1] * speed[0] + q[2] * speed[1] + q[3] * speed[2]))
    volume = speed[0] * n[0] + speed[1] * n[1] + speed[2] * n[2]
    area = np.sqrt(n[0] ** 2 + n[1] ** 2 + n[2] ** 2)
    wave = abs(volume) + np.sqrt(GAMMA * pressure / q[0]) * area
    moved = [q[0] * volume, *(q[k + 1] * volume + pressure * n[k] for k in range(3)), (q[4] + pressure) * volume]
    return moved, wave


@ml.kernel
def edge_flux(n: ml.Read, q: ml.Read, r: ml.Inc):
    """Rusanov's flux of five unknowns between the two nodes of an edge."""
    (low, wave_low), (high, wave_high) = euler_flux(q[0], n), euler_flux(q[1], n)
    wave = np.maximum(wave_low, wave_high)
    for k in range(UNKNOWNS):
        flux = 0.5 * (low[k] + high[k] - wave * (q[1, k] - q[0, k]))
        r[0, k] += flux
        r[1, k] -= flux


@ml.kernel
def green_gauss(n: ml.Read, u: ml.Read, g: ml.Inc):
    """A gradient in cells, times their volume."""
    middle = 0.5 * (u[0] + u[1])
    g[0] += middle * n
    g[1] -= middle * n


@ml.kernel
def least_squares(c: ml.Read, q: ml.Read, g: ml.Inc):
    """The right-hand sides of gradients of five unknowns in cells, 15 numbers each."""
    d = [c[1, a] - c[0, a] for a in range(3)]
    weight = 1.0 / (d[0] ** 2 + d[1] ** 2 + d[2] ** 2)
    for k in range(UNKNOWNS):
        change = weight * (q[1, k] - q[0, k])
        for a in range(3):
            g[0, k, a] += change * d[a]
            g[1, k, a] += change * d[a]


@ml.kernel
def limiter_bounds(q: ml.Read, low: ml.Min, high: ml.Max):
    """The least and the largest of five unknowns among a cell's neighbours."""
    for mine, other in ((0, 1), (1, 0)):
        low[mine] = high[mine] = q[other]


@ml.kernel
def dg_face(at: ml.Read, n: ml.Read, c: ml.Read, u: ml.Read, r: ml.Inc):
    """Advection of linear functions in cells, one quadrature point on a face: the value upwind, times the functions
    of both sides."""
    speed = n[0] + 0.5 * n[1] - 0.25 * n[2]
    sides = [[1.0, *(at[a] - c[s, a] for a in range(3))] for s in range(2)]
    values = [sum(u[s, m] * sides[s][m] for m in range(4)) for s in range(2)]
    flux = speed * np.where(speed > 0.0, values[0], values[1])
    for m in range(4):
        r[0, m] += flux * sides[0][m]
        r[1, m] -= flux * sides[1][m]


@ml.kernel
def assembled_blocks(n: ml.Read, q: ml.Read, m: ml.Inc):
    """Blocks of 5 x 5 of a linearised flux between two cells: a wave's speed on the diagonal, and a state times a
    normal."""
    speed = [q[s, 1] * n[0] + q[s, 2] * n[1] + q[s, 3] * n[2] for s in range(2)]
    for i in range(2):
        for j in range(2):
            sign = 0.5 if i == 0 else -0.5
            for a in range(UNKNOWNS):
                for b in range(UNKNOWNS):
                    block = q[j, a] * (n[b - 1] if 1 <= b <= 3 else 0.25 * q[j, b])
                    m[i, j, a, b] += sign * (block + speed[j] if a == b else block)


def state(at: Scene, on: Any) -> ml.Field:
    """Density, momentum and energy of a gas that moves slowly."""
    if "q" not in at.values:
        rng = np.random.default_rng(11)
        at.values["q"] = np.c_[
            1.0 + 0.1 * rng.random(on.total), 0.1 * rng.standard_normal((on.total, 3)), 2.5 + 0.1 * rng.random(on.total)
        ]
    return at.of(on, "q", UNKNOWNS, lambda: at.values["q"])


def between_nodes(at: Scene) -> Made:
    mesh = at.mesh
    n, q, r = at.given(mesh.edges, "n_edges", 3), state(at, mesh.nodes), at.result(mesh.nodes, "r", UNKNOWNS)
    return edge_flux, mesh.edges, (n, q[mesh.edge_nodes], r[mesh.edge_nodes])


def gradient(at: Scene) -> Made:
    mesh, to = at.mesh, at.mesh.face_cells
    n, u = at.given(mesh.faces, "n", 3), at.given(mesh.cells, "u_cells")
    return green_gauss, mesh.faces, (n, u[to], at.result(mesh.cells, "g", 3)[to])


def gradients(at: Scene) -> Made:
    mesh, to = at.mesh, at.mesh.face_cells
    c = at.of(mesh.cells, "c", 3, lambda: mesh.cell_centroids)
    return least_squares, mesh.faces, (c[to], state(at, mesh.cells)[to], at.result(mesh.cells, "g", (UNKNOWNS, 3))[to])


def bounds(at: Scene) -> Made:
    mesh, to = at.mesh, at.mesh.face_cells
    low, high = at.result(mesh.cells, "low", UNKNOWNS), at.result(mesh.cells, "high", UNKNOWNS)
    return limiter_bounds, mesh.faces, (state(at, mesh.cells)[to], low[to], high[to])


def upwind(at: Scene) -> Made:
    mesh, to = at.mesh, at.mesh.face_cells
    centres = at.of(mesh.faces, "at", 3, lambda: mesh.face_centres)
    c, n = at.of(mesh.cells, "c", 3, lambda: mesh.cell_centroids), at.given(mesh.faces, "n", 3)
    u, r = at.given(mesh.cells, "modes", 4), at.result(mesh.cells, "r", 4)
    return dg_face, mesh.faces, (centres, n, c[to], u[to], r[to])


def blocks(at: Scene) -> Made:
    mesh, to = at.mesh, at.mesh.face_cells
    matrix = ml.Matrix(mesh.cells, through=to, block=UNKNOWNS, dtype=at.precision)
    return assembled_blocks, mesh.faces, (at.given(mesh.faces, "n", 3), state(at, mesh.cells)[to], matrix[to])
