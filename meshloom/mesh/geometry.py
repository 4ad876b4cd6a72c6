"""Measures of cells and faces: volumes, centroids, area vectors. Pure functions on arrays, vectorised.

``x`` is always (n, d) coordinates, ``nodes`` always (m, k) node numbers. "Volume" means area in 2-D; it is
signed: positive where the nodes go around in the positive sense (counter-clockwise; VTK order in 3-D).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product

import numpy as np

from meshloom.mesh.cell_kinds import KINDS
from meshloom.native import threads
from meshloom.target import CPU

#: The eight corners of the unit cube in the node order of a hexahedron (VTK).
_HEX_CORNERS = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)])
_GAUSS = (0.5 - 0.5 / np.sqrt(3.0), 0.5 + 0.5 / np.sqrt(3.0))  # two points on (0, 1)


def mean_points(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The mean of the nodes of each row, (m, d)."""
    return in_chunks(lambda part: _mean_points(x, part), nodes)


def area_vectors(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Normal times area of each face, (m, d).

    2-D, nodes (a, b): with (dx, dy) = x_a - x_b the vector is (dy, -dx). 3-D: by the right-hand rule of the node
    loop. The vector depends on the loop alone, so the outward ones of a closed cell sum to zero even where a
    quadrilateral is warped.
    """
    return in_chunks(lambda part: _area_vectors(x, part), nodes)


def face_centroids(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Centre of mass of each face, (m, d): of an edge its middle, of a loop of nodes the mean of its triangles around
    the mean of its nodes, each by the area that it shows along the normal of the loop."""
    return in_chunks(lambda part: _face_centroids(x, part), nodes)


def cell_volumes(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """Signed volume (area in 2-D) of each cell, (m,); exact, with bilinear sides where they are warped."""
    return in_chunks(lambda part: _volumes(x, part, kind), nodes)


def cell_centroids(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """Centre of mass of each cell, (m, d); exact, with bilinear sides where they are warped."""
    return in_chunks(lambda part: _centroids(x, part, kind), nodes)


def in_chunks(measure: Callable[[np.ndarray], np.ndarray], nodes: np.ndarray) -> np.ndarray:
    """``measure(nodes)`` piece by piece, several at a time where there are many: NumPy lets other threads work."""
    numbers = CPU.cpu.arrays

    def piece(start: int) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # whoever needs finite values checks them
            return measure(nodes[start : start + numbers.chunk])

    starts = range(0, max(len(nodes), 1), numbers.chunk)
    together = min(int(threads.in_use[0]), len(starts) // numbers.pieces)
    if together < 2:
        return np.concatenate([piece(start) for start in starts])
    with ThreadPoolExecutor(together) as pool:
        return np.concatenate([*pool.map(piece, starts)])


def _mean_points(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    total = np.array(x[nodes[:, 0]], dtype=np.float64)
    for slot in range(1, nodes.shape[1]):
        total += x[nodes[:, slot]]
    total /= nodes.shape[1]
    return total


def _area_vectors(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    if x.shape[1] == 2:
        d = x[nodes[:, 0]] - x[nodes[:, 1]]
        return np.stack((d[:, 1], -d[:, 0]), axis=1)
    if nodes.shape[1] == 3:
        first, second = x[nodes[:, 1]] - x[nodes[:, 0]], x[nodes[:, 2]] - x[nodes[:, 0]]
    else:
        first, second = x[nodes[:, 2]] - x[nodes[:, 0]], x[nodes[:, 3]] - x[nodes[:, 1]]
    return 0.5 * np.cross(first, second)


def _face_centroids(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    middle = _mean_points(x, nodes)
    if nodes.shape[1] <= 3:
        return middle
    normal = _area_vectors(x, nodes)
    total, weights = np.zeros_like(middle), np.zeros(len(nodes))
    for slot in range(nodes.shape[1]):
        a, b = x[nodes[:, slot]], x[nodes[:, (slot + 1) % nodes.shape[1]]]
        weight = triple(normal, a - middle, b - middle)
        total += weight[:, None] * (a + b - 2.0 * middle)
        weights += weight
    return middle + total / (3.0 * np.where(weights != 0, weights, 1.0))[:, None]


def _volumes(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    if kind == "triangle":
        return 0.5 * cross2(_edge(x, nodes, 0, 1), _edge(x, nodes, 0, 2))
    if kind == "quad":
        return 0.5 * cross2(_edge(x, nodes, 0, 2), _edge(x, nodes, 1, 3))
    if kind == "tetrahedron":
        return triple(*(_edge(x, nodes, 0, slot) for slot in (1, 2, 3))) / 6.0
    if kind == "hexahedron":
        return _hex_volumes(x, nodes)
    p = [_edge(x, nodes, 0, slot) for slot in range(nodes.shape[1])]
    if kind == "polygon":
        return sum((0.5 * cross2(p[slot], p[slot + 1]) for slot in range(1, len(p) - 1)), np.zeros(len(nodes)))
    return _volume_inside(p, KINDS[kind].faces)


def _centroids(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    if kind in ("triangle", "tetrahedron"):
        return _mean_points(x, nodes)
    if kind == "quad":
        halves = nodes[:, (0, 1, 2)], nodes[:, (0, 2, 3)]
        weights = [_volumes(x, half, "triangle")[:, None] for half in halves]
        sums = weights[0] * _mean_points(x, halves[0]) + weights[1] * _mean_points(x, halves[1])
        return sums / (weights[0] + weights[1])
    if kind == "hexahedron":
        return x[nodes[:, 0]] + _hex_moments(x, nodes) / _hex_volumes(x, nodes)[:, None]
    p = [_edge(x, nodes, 0, slot) for slot in range(nodes.shape[1])]
    if kind == "polygon":
        moment = np.zeros_like(p[0])
        for a, b in pairwise(p[1:]):
            moment += cross2(a, b)[:, None] * (a + b) / 6.0
    else:
        moment = _moment_inside(p, KINDS[kind].faces)
    return x[nodes[:, 0]] + moment / _volumes(x, nodes, kind)[:, None]


def _volume_inside(p: list[np.ndarray], faces: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """The volume inside faces, which go around outwards, of nodes ``p``, each (m, 3), of which the first is the origin.

    It is the sum of the cones from the origin over the faces. A quadrilateral is the bilinear surface between its
    edges, as in a trilinear hexahedron, so that cells of all kinds fill space: the cone over it is the mean of those
    over its two triangulations.
    """
    total = np.zeros(len(p[0]))
    for face in (face for face in faces if 0 not in face or len(face) == 4):
        corners = [p[slot] for slot in face]
        if len(face) == 3:
            total += triple(*corners) / 6.0
        else:
            total += (
                sum(triple(*(corners[c] for c in cut)) for cut in ((0, 1, 2), (0, 2, 3), (0, 1, 3), (1, 2, 3))) / 12.0
            )
    return total


def _moment_inside(p: list[np.ndarray], faces: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """The first moment of the same about the origin, (m, 3): position times distance from the origin is cubic on a
    bilinear surface, so two Gauss points per direction are exact."""
    total = np.zeros_like(p[0])
    for face in (face for face in faces if 0 not in face or len(face) == 4):
        corners = [p[slot] for slot in face]
        if len(face) == 3:
            total += triple(*corners)[:, None] * (corners[0] + corners[1] + corners[2]) / 24.0
            continue
        a, b, c, d = corners
        for u, v in product(_GAUSS, repeat=2):
            place = (1 - u) * (1 - v) * a + u * (1 - v) * b + u * v * c + (1 - u) * v * d
            along, across = (1 - v) * (b - a) + v * (c - d), (1 - u) * (d - a) + u * (c - b)
            total += triple(place, along, across)[:, None] * place / 16.0
    return total


def _edge(x: np.ndarray, nodes: np.ndarray, start: int, end: int) -> np.ndarray:
    return x[nodes[:, end]] - x[nodes[:, start]]


def cross2(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of vectors of the plane (m, 2), (m,)."""
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of vectors (m, d), (m,)."""
    total = a[:, 0] * b[:, 0]
    for axis in range(1, a.shape[1]):
        total += a[:, axis] * b[:, axis]
    return total


def triple(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The product a . (b x c) of vectors (m, 3), (m,)."""
    return (
        a[:, 0] * (b[:, 1] * c[:, 2] - b[:, 2] * c[:, 1])
        + a[:, 1] * (b[:, 2] * c[:, 0] - b[:, 0] * c[:, 2])
        + a[:, 2] * (b[:, 0] * c[:, 1] - b[:, 1] * c[:, 0])
    )


def _hex_volumes(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Volumes of trilinear hexahedra (m,): the known sum of three triple products of diagonals, over 12."""
    p = [x[nodes[:, slot]] for slot in range(8)]
    total = triple(p[3] - p[1] + p[7] - p[2], p[6] - p[3], p[2] - p[0])
    total += triple(p[4] - p[3] + p[5] - p[7], p[6] - p[4], p[7] - p[0])
    total += triple(p[1] - p[4] + p[2] - p[5], p[6] - p[1], p[5] - p[0])
    return total / 12.0


def _hex_moments(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """First moments about node 0 of trilinear hexahedra, (m, 3).

    Position times Jacobian is cubic in each reference coordinate, so two Gauss points per direction are exact.
    """
    relative = [_edge(x, nodes, 0, slot) for slot in range(8)]
    moment = np.zeros((len(nodes), 3))
    signs = 2.0 * _HEX_CORNERS - 1.0
    for point in product(_GAUSS, repeat=3):
        parts = np.where(_HEX_CORNERS == 1, point, 1.0 - np.array(point))  # (8, 3): the linear factors
        columns = []
        for axis in range(3):
            others = parts[:, [a for a in range(3) if a != axis]].prod(axis=1)
            columns.append(_combine(signs[:, axis] * others, relative))
        jacobian = triple(columns[0], columns[1], columns[2])
        moment += (jacobian / 8.0)[:, None] * _combine(parts.prod(axis=1), relative)
    return moment


def _combine(weights: np.ndarray, arrays: list[np.ndarray]) -> np.ndarray:
    """Sum of weight times array; slot 0 is the origin, so its array is zero."""
    total = weights[1] * arrays[1]
    for weight, array in zip(weights[2:], arrays[2:], strict=True):
        total += weight * array
    return total
