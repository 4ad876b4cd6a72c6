"""Loops of finite elements: products with operators that are never assembled, and with stored element matrices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import sqrt
from typing import Any

import numpy as np

import meshloom as ml
from bench.zoo.scene import Scene

Made = tuple[ml.Kernel, Any, tuple[Any, ...]]
Gradients = Sequence[Sequence[float]]  # of every shape function, at a point of the reference element
LAME = (1.2, 0.8)  # of linear elasticity
GAUSS = 1 / sqrt(3)


def simplex(dim: int) -> Gradients:
    """Of the linear functions of a triangle or tetrahedron."""
    return [[-1.0] * dim, *np.eye(dim).tolist()]


def multilinear(point: Sequence[float]) -> Gradients:
    """Of a quadrilateral's or hexahedron's functions, whose corners are at -1 and 1, in the order of VTK."""
    dim = len(point)
    corners = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    signs = corners if dim == 2 else [(*c, z) for z in (-1, 1) for c in corners]
    ends = [[(1 + s * p) / 2 for s, p in zip(sign, point, strict=True)] for sign in signs]
    return [[sign[a] / 2 * float(np.prod([*end[:a], *end[a + 1:]])) for a in range(dim)]
            for sign, end in zip(signs, ends, strict=True)]  # fmt: skip


def quadratic(point: Sequence[float]) -> Gradients:
    """Of the quadratic functions of a simplex at barycentric coordinates: corners, then edges as meshes have them."""
    dim = len(point) - 1
    first = simplex(dim)
    edges = [(0, 1), (1, 2), (0, 2)] if dim == 2 else [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
    at_corners = [[(4 * point[k] - 1) * g for g in first[k]] for k in range(dim + 1)]
    at_edges = [[4 * (point[i] * first[j][a] + point[j] * first[i][a]) for a in range(dim)] for i, j in edges]
    return at_corners + at_edges


def inverse(j: Any) -> tuple[Any, list[list[Any]]]:
    """Determinant and inverse of a 2 x 2 or 3 x 3 matrix."""
    n = len(j)
    if n == 2:
        minors = [[j[1][1], j[1][0]], [j[0][1], j[0][0]]]
    else:
        others = [(1, 2), (0, 2), (0, 1)]
        minors = [[j[a][c] * j[b][d] - j[a][d] * j[b][c] for c, d in others] for a, b in others]
    determinant = sum((-1) ** k * j[0][k] * minors[0][k] for k in range(n))
    return determinant, [[(-1) ** (a + b) * minors[b][a] / determinant for b in range(n)] for a in range(n)]


def weighted(coefficients: Sequence[float], values: Sequence[Any]) -> Any:
    """A sum without the terms that are zero."""
    return sum(c * v for c, v in zip(coefficients, values, strict=True) if c)


def jacobian(x: Any, gradients: Gradients, dim: int) -> tuple[Any, list[list[Any]]]:
    """Of the reference element's coordinates by those in space: determinant and inverse of dx_b / dxi_a."""
    corners = range(len(gradients))
    return inverse([[weighted([g[a] for g in gradients], [x[k][b] for k in corners]) for b in range(dim)]
                    for a in range(dim)])  # fmt: skip


def diffused(u: Sequence[Any], gradients: Gradients, weight: float, det: Any, inv: list[list[Any]]) -> list[Any]:
    """What one point of a quadrature adds to the Laplacian of each shape function."""
    dim = len(inv)
    slopes = [weighted([g[a] for g in gradients], u) for a in range(dim)]
    flux = [weight * det * sum(inv[b][a] * slopes[a] for a in range(dim)) for b in range(dim)]
    back = [sum(inv[b][a] * flux[b] for b in range(dim)) for a in range(dim)]
    return [weighted(g, back) for g in gradients]


def laplacian(name: str, points: Sequence[tuple[Gradients, float]], dim: int) -> ml.Kernel:
    """Of linear or multilinear functions, by a quadrature of points with a weight each."""

    def visit(x: ml.Read, u: ml.Read, r: ml.Inc) -> None:
        corners = range(len(points[0][0]))
        for gradients, weight in points:
            added = diffused([u[k] for k in corners], gradients, weight, *jacobian(x, gradients, dim))
            for k in corners:
                r[k] += added[k]

    visit.__name__ = name
    return ml.kernel(visit)


def quadratic_laplacian(name: str, points: Sequence[tuple[Gradients, float]], dim: int) -> ml.Kernel:
    """Of quadratic functions, which have values at nodes and on edges; the elements are straight."""

    def visit(x: ml.Read, u: ml.Read, v: ml.Read, r: ml.Inc, s: ml.Inc) -> None:
        edges = dim * (dim + 1) // 2
        values, shape = [u[k] for k in range(dim + 1)] + [v[k] for k in range(edges)], jacobian(x, simplex(dim), dim)
        for gradients, weight in points:
            added = diffused(values, gradients, weight, *shape)
            for k in range(dim + 1):
                r[k] += added[k]
            for k in range(edges):
                s[k] += added[dim + 1 + k]

    visit.__name__ = name
    return ml.kernel(visit)


def elasticity(name: str, gradients: Gradients, weight: float) -> ml.Kernel:
    """Linear and isotropic, with one point of quadrature: three displacements and forces at each corner."""

    def visit(x: ml.Read, u: ml.Read, f: ml.Inc) -> None:
        det, inv = jacobian(x, gradients, 3)
        corners, axes = range(len(gradients)), range(3)
        by_reference = [[weighted([g[a] for g in gradients], [u[k][c] for k in corners]) for a in axes] for c in axes]
        slope = [[sum(inv[b][a] * by_reference[c][a] for a in axes) for b in axes] for c in axes]
        pressure = LAME[0] * (slope[0][0] + slope[1][1] + slope[2][2])
        stress = [[LAME[1] * (slope[b][c] + slope[c][b]) + (pressure if b == c else 0.0) for c in axes] for b in axes]
        back = [[weight * det * sum(inv[c][a] * stress[b][c] for c in axes) for a in axes] for b in axes]
        for k in corners:
            for b in axes:
                f[k, b] += weighted(gradients[k], back[b])

    visit.__name__ = name
    return ml.kernel(visit)


@ml.kernel
def p1_mass(x: ml.Read, u: ml.Read, r: ml.Inc):
    """A tetrahedron's mass matrix times a vector."""
    det, _ = jacobian(x, simplex(3), 3)
    total = u[0] + u[1] + u[2] + u[3]
    for k in range(4):
        r[k] += det / 120 * (total + u[k])


@ml.kernel
def stored_stiffness(matrix: ml.Read, u: ml.Read, r: ml.Inc):
    """An element matrix that is stored, times a vector."""
    n = len(u)
    for k in range(n):
        r[k] += sum(matrix[k, j] * u[j] for j in range(n))


def gauss(dim: int) -> list[tuple[Gradients, float]]:
    """Two points along each axis."""
    return [(multilinear(p), 1.0) for p in product((-GAUSS, GAUSS), repeat=dim)]


def middle(dim: int) -> list[tuple[Gradients, float]]:
    return [(multilinear((0.0,) * dim), 2.0**dim)]


def corners_of_simplex(dim: int, inner: float, volume: float) -> list[tuple[Gradients, float]]:
    """A rule of second degree: dim + 1 points, each near a corner."""
    near = 1 - dim * inner
    points = [[near if k == c else inner for k in range(dim + 1)] for c in range(dim + 1)]
    return [(quadratic(p), volume / (dim + 1)) for p in points]


KERNELS = {
    "p1_triangle": ("triangle", laplacian("p1_triangle", [(simplex(2), 1 / 2)], 2)),
    "p1_tetrahedron": ("tetrahedron", laplacian("p1_tetrahedron", [(simplex(3), 1 / 6)], 3)),
    "q1_quad_1": ("quad", laplacian("q1_quad_1", middle(2), 2)),
    "q1_quad_4": ("quad", laplacian("q1_quad_4", gauss(2), 2)),
    "q1_hexahedron_1": ("hexahedron", laplacian("q1_hexahedron_1", middle(3), 3)),
    "q1_hexahedron_8": ("hexahedron", laplacian("q1_hexahedron_8", gauss(3), 3)),
    "p1_mass": ("tetrahedron", p1_mass),
}
QUADRATIC = {
    "p2_triangle": ("triangle", quadratic_laplacian("p2_triangle", corners_of_simplex(2, 1 / 6, 1 / 2), 2)),
    "p2_tetrahedron": (
        "tetrahedron", quadratic_laplacian("p2_tetrahedron", corners_of_simplex(3, (5 - sqrt(5)) / 20, 1 / 6), 3)
    ),
}  # fmt: skip
ELASTIC = {
    "elastic_tetrahedron": ("tetrahedron", elasticity("elastic_tetrahedron", simplex(3), 1 / 6)),
    "elastic_hexahedron": ("hexahedron", elasticity("elastic_hexahedron", *middle(3)[0])),
}
STORED = {"stiffness_tetrahedron": "tetrahedron", "stiffness_hexahedron": "hexahedron"}


def scalar(kernel: ml.Kernel, at: Scene) -> Made:
    """One unknown at each node."""
    u, r = at.given(at.mesh.nodes, "u"), at.result(at.mesh.nodes, "r")
    return kernel, at.cells, (at.points()[at.nodes], u[at.nodes], r[at.nodes])


def on_edges(kernel: ml.Kernel, at: Scene) -> Made:
    """One unknown at each node and one on each edge."""
    mesh, edges = at.mesh, at.cells.edges if at.cells is not at.mesh.cells else at.mesh.cell_edges
    u, v = at.given(mesh.nodes, "u"), at.given(mesh.edges, "v")
    r, s = at.result(mesh.nodes, "r"), at.result(mesh.edges, "s")
    return kernel, at.cells, (at.points()[at.nodes], u[at.nodes], v[edges], r[at.nodes], s[edges])


def displaced(kernel: ml.Kernel, at: Scene) -> Made:
    """Three unknowns at each node."""
    u, f = at.given(at.mesh.nodes, "d", 3), at.result(at.mesh.nodes, "f", 3)
    return kernel, at.cells, (at.points()[at.nodes], u[at.nodes], f[at.nodes])


def stored(at: Scene) -> Made:
    n = at.nodes.arity
    matrix = at.given(at.cells, f"matrix{n}", (n, n))
    u, r = at.given(at.mesh.nodes, "u"), at.result(at.mesh.nodes, "r")
    return stored_stiffness, at.cells, (matrix, u[at.nodes], r[at.nodes])
