"""Corners of cells: the volumes and angles between the edges that leave them, and what they say about folded cells.

Pure functions on arrays, vectorised: ``x`` is (n, d) coordinates, ``nodes`` (m, k) node numbers of cells of one kind.
"""

from __future__ import annotations

import numpy as np

from meshloom.mesh.geometry import cross2, dot, in_chunks, triple

#: For each corner of a cell in space its neighbours, in an order that makes their triple product positive. Four edges
#: meet at the top of a pyramid, which is there twice.
SOLID_CORNERS = {
    "tetrahedron": ((0, (1, 2, 3)), (1, (2, 0, 3)), (2, (0, 1, 3)), (3, (0, 2, 1))),
    "pyramid": ((0, (1, 3, 4)), (1, (2, 0, 4)), (2, (3, 1, 4)), (3, (0, 2, 4)), (4, (0, 2, 1)), (4, (0, 3, 2))),
    "prism": ((0, (2, 1, 3)), (1, (0, 2, 4)), (2, (1, 0, 5)), (3, (4, 5, 0)), (4, (5, 3, 1)), (5, (3, 4, 2))),
    "hexahedron": ((0, (1, 3, 4)), (1, (2, 0, 5)), (2, (3, 1, 6)), (3, (0, 2, 7)),
                   (4, (7, 5, 0)), (5, (4, 6, 1)), (6, (5, 7, 2)), (7, (6, 4, 3))),
}  # fmt: skip
_SIMPLE = ("triangle", "tetrahedron")  # cannot fold over
_ROUNDING = 16 * np.finfo(np.float64).eps  # of sums of a few products, relative to their largest


def corner_volumes(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """Signed volume spanned by the edges that leave each corner, (m, corners): negative where a cell folds over. Of
    pyramids the corners of the base, of simplices, whose corners span the same, one."""
    return in_chunks(lambda part: _corner_volumes(x, part, kind), nodes)


def middle_volumes(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """The volume that lines through the middle of cells span, signed, (m,): positive in a sound hexahedron or prism.
    Other kinds have corners alone to tell, and 1 here."""
    p = [x[nodes[:, slot]] for slot in range(nodes.shape[1])]
    if kind == "hexahedron":
        along = p[1] + p[2] + p[5] + p[6] - p[0] - p[3] - p[4] - p[7]
        across = p[2] + p[3] + p[6] + p[7] - p[0] - p[1] - p[4] - p[5]
        return triple(along, across, p[4] + p[5] + p[6] + p[7] - p[0] - p[1] - p[2] - p[3]) / 64.0
    if kind == "prism":
        along, across = p[2] + p[5] - p[0] - p[3], p[1] + p[4] - p[0] - p[3]
        return triple(along, across, p[3] + p[4] + p[5] - p[0] - p[1] - p[2]) / 12.0
    return np.ones(len(nodes))


def inward_corners(x: np.ndarray, loops: np.ndarray) -> np.ndarray:
    """Which corners of quadrilaterals in space (m, 4) point inwards, seen along their area vector, (m, 4).

    None or one does in a sound one, plane or warped; two do where it crosses itself, all if its halves cancel out.
    """
    return in_chunks(lambda part: _inward_corners(x, part), loops)


def crossing_sides(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Of polygons (m, k) those two of whose sides meet, though they are not neighbours, (m,)."""
    k = nodes.shape[1]
    crossed = np.zeros(len(nodes), dtype=bool)
    p = [x[nodes[:, slot]] for slot in range(k)]
    for one in range(k):
        for other in range(one + 2, k if one else k - 1):
            a, b, c, d = p[one], p[(one + 1) % k], p[other], p[(other + 1) % k]
            apart = cross2(b - a, c - a) * cross2(b - a, d - a) > 0  # both ends on one side of the other's line
            apart |= cross2(d - c, a - c) * cross2(d - c, b - c) > 0
            apart |= (np.maximum(a, b) < np.minimum(c, d)).any(axis=1) | (np.maximum(c, d) < np.minimum(a, b)).any(
                axis=1
            )
            crossed |= ~apart
    return crossed


def corner_angles(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """The angle at each corner of each cell, (m, nodes), in 3-D the solid angle between the edges that meet there.

    A corner that points inwards has more than half a turn in 2-D. In 3-D it counts as less than it has: 0 or below.
    """
    return in_chunks(lambda part: _corner_angles(x, part, kind), nodes)


def _corner_volumes(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    p = [x[nodes[:, slot]] for slot in range(nodes.shape[1])]
    if x.shape[1] == 2:
        last = 1 if kind in _SIMPLE else len(p)
        corners = [cross2(p[(c + 1) % len(p)] - p[c], p[c - 1] - p[c]) for c in range(last)]
        return np.stack(corners, axis=1) * (0.5 if kind in _SIMPLE else 1.0)
    if kind in _SIMPLE:
        return triple(p[1] - p[0], p[2] - p[0], p[3] - p[0])[:, None] / 6.0
    chosen = SOLID_CORNERS[kind][:4] if kind == "pyramid" else SOLID_CORNERS[kind]
    return np.stack([triple(p[a] - p[c], p[b] - p[c], p[d] - p[c]) for c, (a, b, d) in chosen], axis=1)


def _corner_angles(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    p = [x[nodes[:, slot]] for slot in range(nodes.shape[1])]
    if x.shape[1] == 3:
        found = np.zeros(nodes.shape)
        for c, around in SOLID_CORNERS[kind]:
            found[:, c] += _solid_angle(*(p[n] - p[c] for n in around))
        return found
    edges = [p[(slot + 1) % len(p)] - p[slot] for slot in range(len(p))]
    both = zip(edges, edges[-1:] + edges[:-1], strict=True)  # of each corner: to the next one, from the one before
    angles = np.stack([np.arctan2(cross2(before, after), -dot(before, after)) for after, before in both], axis=1)
    # What is missing to the sum of all angles says how many corners point inwards; else an angle is 0 and rounding made
    # it negative.
    inwards = (angles < 0) & (angles.sum(axis=1) < (len(p) - 3) * np.pi)[:, None]
    return np.where(inwards, angles + 2.0 * np.pi, angles)


def solid_angle_errors(x: np.ndarray, nodes: np.ndarray, kind: str) -> np.ndarray:
    """By how much rounding may have changed the solid angles of ``corner_angles``, (m, nodes)."""
    p = [x[nodes[:, slot]] for slot in range(nodes.shape[1])]
    found = np.zeros(nodes.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for c, around in SOLID_CORNERS[kind]:
            above, below, size = _solid_tangent(*(p[n] - p[c] for n in around))
            doubt = np.minimum(2.0 * _ROUNDING * size / np.hypot(above, below), 4.0 * np.pi)
            found[:, c] += np.nan_to_num(doubt, nan=0.0)
    return found


def _solid_angle(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Between three edges, signed, by the formula of Van Oosterom and Strackee; 0 where an edge has no length."""
    above, below, _ = _solid_tangent(a, b, c)
    return 2.0 * np.arctan2(above, below)


def _solid_tangent(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tangent of half the angle, above and below the line, and the size of the terms that these are summed from."""
    la, lb, lc = (np.sqrt(dot(v, v)) for v in (a, b, c))
    size = la * lb * lc
    return triple(a, b, c), size + dot(a, b) * lc + dot(a, c) * lb + dot(b, c) * la, size


def _inward_corners(x: np.ndarray, loops: np.ndarray) -> np.ndarray:
    p = [x[loops[:, slot]] for slot in range(4)]
    one, other = p[2] - p[0], p[3] - p[1]
    normal = np.cross(one, other)
    inwards = np.stack([triple(p[(c + 1) % 4] - p[c], p[c - 1] - p[c], normal) < 0 for c in range(4)], axis=1)
    corner = np.cross(p[1] - p[0], p[3] - p[0])
    # Halves that cancel out, measured by one of them: the diagonals of a long, thin face are nearly parallel, too.
    nothing = dot(normal, normal) <= 1e-12 * dot(corner, corner)
    inwards[nothing] = (dot(corner, corner) > 0)[nothing, None]  # not where all four lie on a line
    return inwards
