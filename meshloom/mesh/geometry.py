"""Measures of cells and faces: volumes, centroids, area vectors. Pure functions on arrays, vectorised.

``x`` is always (n, d) coordinates, ``nodes`` always (m, k) node numbers. "Volume" means area in 2-D; it is
signed: positive where the nodes go round in the positive sense (counter-clockwise; VTK order in 3-D).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

#: The eight corners of the unit cube in the node order of a hexahedron (VTK).
_HEX_CORNERS = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)])

#: For each corner of a tetrahedron or hexahedron its neighbours, in an order that makes their triple product positive.
_TET_NEIGHBORS = ((1, 2, 3), (2, 0, 3), (0, 1, 3), (0, 2, 1))
_HEX_NEIGHBORS = ((1, 3, 4), (2, 0, 5), (3, 1, 6), (0, 2, 7), (7, 5, 0), (4, 6, 1), (5, 7, 2), (6, 4, 3))


def mean_points(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The mean of the nodes of each row, (m, d)."""
    total = np.array(x[nodes[:, 0]], dtype=np.float64)
    for slot in range(1, nodes.shape[1]):
        total += x[nodes[:, slot]]
    total /= nodes.shape[1]
    return total


def area_vectors(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Normal times area of each face, (m, d).

    2-D, nodes (a, b): with (dx, dy) = x_a - x_b the vector is (dy, -dx). 3-D: by the right-hand rule of the node
    loop. The vector depends on the loop alone, so the outward ones of a closed cell sum to zero even where a
    quadrilateral is warped.
    """
    if x.shape[1] == 2:
        d = x[nodes[:, 0]] - x[nodes[:, 1]]
        return np.stack((d[:, 1], -d[:, 0]), axis=1)
    if nodes.shape[1] == 3:
        first, second = x[nodes[:, 1]] - x[nodes[:, 0]], x[nodes[:, 2]] - x[nodes[:, 0]]
    else:
        first, second = x[nodes[:, 2]] - x[nodes[:, 0]], x[nodes[:, 3]] - x[nodes[:, 1]]
    return 0.5 * np.cross(first, second)


def face_centroids(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Centre of mass of each face, (m, d): of an edge its middle, of a loop of nodes the mean of its triangles round
    the mean of its nodes, each by the area that it shows along the normal of the loop."""
    middle = mean_points(x, nodes)
    if nodes.shape[1] <= 3:
        return middle
    normal = area_vectors(x, nodes)
    total, weights = np.zeros_like(middle), np.zeros(len(nodes))
    for slot in range(nodes.shape[1]):
        a, b = x[nodes[:, slot]], x[nodes[:, (slot + 1) % nodes.shape[1]]]
        weight = _triple(normal, a - middle, b - middle)
        total += weight[:, None] * (a + b - 2.0 * middle)
        weights += weight
    return middle + total / (3.0 * np.where(weights != 0, weights, 1.0))[:, None]


def cell_volumes(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """Signed volume (area in 2-D) of each cell, (m,); exact for trilinear hexahedra."""
    return _in_chunks(lambda part: _volumes(x, part, kind), nodes)


def cell_centroids(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """Centre of mass of each cell, (m, d); exact for plane quadrilaterals and trilinear hexahedra."""
    return _in_chunks(lambda part: _centroids(x, part, kind), nodes)


def corner_volumes(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """Signed volume spanned by the edges that leave each corner, (m, corners): negative where a cell folds over."""
    return _in_chunks(lambda part: _corner_volumes(x, part, kind), nodes)


def middle_volumes(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The volume between the three lines through the middles of opposite faces of hexahedra (m, 8), signed, (m,)."""
    p = [x[nodes[:, slot]] for slot in range(8)]
    along = p[1] + p[2] + p[5] + p[6] - p[0] - p[3] - p[4] - p[7]
    across = p[2] + p[3] + p[6] + p[7] - p[0] - p[1] - p[4] - p[5]
    up = p[4] + p[5] + p[6] + p[7] - p[0] - p[1] - p[2] - p[3]
    return _triple(along, across, up) / 64.0


def inward_corners(x: np.ndarray, loops: np.ndarray) -> np.ndarray:
    """Which corners of quadrilaterals in space (m, 4) point inwards, seen along their area vector, (m, 4).

    None or one does in a sound one, plane or warped; two do where it crosses itself, all if its halves cancel out.
    """
    return _in_chunks(lambda part: _inward_corners(x, part), loops)


def corner_angles(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """The angle at each corner of each cell, (m, nodes), in 3-D the solid angle between the edges that meet there.

    A corner that points inwards has more than half a turn in 2-D. In 3-D it counts as less than it has: 0 or below.
    """
    return _in_chunks(lambda part: _corner_angles(x, part, kind), nodes)


_ROUNDING = 16 * np.finfo(np.float64).eps  # of sums of a few products, relative to their largest
_CHUNK = 16384  # cells whose intermediate arrays stay in the cache


def _in_chunks(measure: Callable[[np.ndarray], np.ndarray], nodes: np.ndarray) -> np.ndarray:
    """``measure(nodes)`` piece by piece."""
    starts = range(0, max(len(nodes), 1), _CHUNK)
    with np.errstate(over="ignore", invalid="ignore"):  # whoever needs finite values checks them
        return np.concatenate([measure(nodes[start : start + _CHUNK]) for start in starts])


def _volumes(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    if kind == "triangle":
        return 0.5 * _cross2(_edge(x, nodes, 0, 1), _edge(x, nodes, 0, 2))
    if kind == "quad":
        return 0.5 * _cross2(_edge(x, nodes, 0, 2), _edge(x, nodes, 1, 3))
    if kind == "tetrahedron":
        return _triple(*(_edge(x, nodes, 0, slot) for slot in (1, 2, 3))) / 6.0
    return _hex_volumes(x, nodes)


def _centroids(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    if kind in ("triangle", "tetrahedron"):
        return mean_points(x, nodes)
    if kind == "quad":
        halves = nodes[:, (0, 1, 2)], nodes[:, (0, 2, 3)]
        weights = [_volumes(x, half, "triangle")[:, None] for half in halves]
        sums = weights[0] * mean_points(x, halves[0]) + weights[1] * mean_points(x, halves[1])
        return sums / (weights[0] + weights[1])
    return x[nodes[:, 0]] + _hex_moments(x, nodes) / _hex_volumes(x, nodes)[:, None]


def _corner_volumes(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    p = [x[nodes[:, slot]] for slot in range(nodes.shape[1])]
    if kind == "quad":
        corners = [_cross2(p[(c + 1) % 4] - p[c], p[c - 1] - p[c]) for c in range(4)]
    elif kind == "hexahedron":
        corners = [_triple(p[a] - p[c], p[b] - p[c], p[d] - p[c]) for c, (a, b, d) in enumerate(_HEX_NEIGHBORS)]
    else:
        corners = [_volumes(x, nodes, kind)]
    return np.stack(corners, axis=1)


def _corner_angles(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    p = [x[nodes[:, slot]] for slot in range(nodes.shape[1])]
    if kind in ("tetrahedron", "hexahedron"):
        neighbors = _HEX_NEIGHBORS if kind == "hexahedron" else _TET_NEIGHBORS
        return np.stack([_solid_angle(*(p[n] - p[c] for n in around)) for c, around in enumerate(neighbors)], axis=1)
    edges = [p[(slot + 1) % len(p)] - p[slot] for slot in range(len(p))]
    both = zip(edges, edges[-1:] + edges[:-1], strict=True)  # of each corner: to the next one, from the one before
    angles = np.stack([np.arctan2(_cross2(before, after), -_dot(before, after)) for after, before in both], axis=1)
    inwards = (angles < 0) & (angles.sum(axis=1) < np.pi)[:, None]  # else it is 0 and rounding made it negative
    return np.where(inwards, angles + 2.0 * np.pi, angles)


def solid_angle_errors(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """By how much rounding may have changed the solid angles of ``corner_angles``, (m, nodes)."""
    neighbors = _HEX_NEIGHBORS if kind == "hexahedron" else _TET_NEIGHBORS
    p = [x[nodes[:, slot]] for slot in range(nodes.shape[1])]
    found = []
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for c, around in enumerate(neighbors):
            above, below, size = _solid_tangent(*(p[n] - p[c] for n in around))
            found.append(np.minimum(2.0 * _ROUNDING * size / np.hypot(above, below), 4.0 * np.pi))
    return np.nan_to_num(np.stack(found, axis=1), nan=0.0)


def _solid_angle(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Between three edges, signed, by the formula of Van Oosterom and Strackee; 0 where an edge has no length."""
    above, below, _ = _solid_tangent(a, b, c)
    return 2.0 * np.arctan2(above, below)


def _solid_tangent(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tangent of half the angle, above and below the line, and the size of the terms that these are summed from."""
    la, lb, lc = (np.sqrt(_dot(v, v)) for v in (a, b, c))
    size = la * lb * lc
    return _triple(a, b, c), size + _dot(a, b) * lc + _dot(a, c) * lb + _dot(b, c) * la, size


def _inward_corners(x: np.ndarray, loops: np.ndarray) -> np.ndarray:
    p = [x[loops[:, slot]] for slot in range(4)]
    one, other = p[2] - p[0], p[3] - p[1]
    normal = np.cross(one, other)
    inwards = np.stack([_triple(p[(c + 1) % 4] - p[c], p[c - 1] - p[c], normal) < 0 for c in range(4)], axis=1)
    corner = np.cross(p[1] - p[0], p[3] - p[0])
    # Halves that cancel out, measured by one of them: the diagonals of a long, thin face are nearly parallel, too.
    nothing = _dot(normal, normal) <= 1e-12 * _dot(corner, corner)
    inwards[nothing] = (_dot(corner, corner) > 0)[nothing, None]  # not where all four lie on a line
    return inwards


def _edge(x: np.ndarray, nodes: np.ndarray, start: int, end: int) -> np.ndarray:
    return x[nodes[:, end]] - x[nodes[:, start]]


def _cross2(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = a[:, 0] * b[:, 0]
    for axis in range(1, a.shape[1]):
        total += a[:, axis] * b[:, axis]
    return total


def _triple(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (
        a[:, 0] * (b[:, 1] * c[:, 2] - b[:, 2] * c[:, 1])
        + a[:, 1] * (b[:, 2] * c[:, 0] - b[:, 0] * c[:, 2])
        + a[:, 2] * (b[:, 0] * c[:, 1] - b[:, 1] * c[:, 0])
    )


def _hex_volumes(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Volumes of trilinear hexahedra (m,): the known sum of three triple products of diagonals, over 12."""
    p = [x[nodes[:, slot]] for slot in range(8)]
    total = _triple(p[3] - p[1] + p[7] - p[2], p[6] - p[3], p[2] - p[0])
    total += _triple(p[4] - p[3] + p[5] - p[7], p[6] - p[4], p[7] - p[0])
    total += _triple(p[1] - p[4] + p[2] - p[5], p[6] - p[1], p[5] - p[0])
    return total / 12.0


def _hex_moments(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """First moments about node 0 of trilinear hexahedra, (m, 3).

    Position times Jacobian is cubic in each reference coordinate, so two Gauss points per direction are exact.
    """
    relative = [_edge(x, nodes, 0, slot) for slot in range(8)]
    moment = np.zeros((len(nodes), 3))
    signs = 2.0 * _HEX_CORNERS - 1.0
    for point in product((0.5 - 0.5 / np.sqrt(3.0), 0.5 + 0.5 / np.sqrt(3.0)), repeat=3):
        parts = np.where(_HEX_CORNERS == 1, point, 1.0 - np.array(point))  # (8, 3): the linear factors
        columns = []
        for axis in range(3):
            others = parts[:, [a for a in range(3) if a != axis]].prod(axis=1)
            columns.append(_combine(signs[:, axis] * others, relative))
        jacobian = _triple(columns[0], columns[1], columns[2])
        moment += (jacobian / 8.0)[:, None] * _combine(parts.prod(axis=1), relative)
    return moment


def _combine(weights: np.ndarray, arrays: list[np.ndarray]) -> np.ndarray:
    """Sum of weight times array; slot 0 is the origin, so its array is zero."""
    total = weights[1] * arrays[1]
    for weight, array in zip(weights[2:], arrays[2:], strict=True):
        total += weight * array
    return total
