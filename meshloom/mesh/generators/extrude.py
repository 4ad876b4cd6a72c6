"""Layers on a triangulated surface: prisms at the wall, tetrahedra outside.

Between two layers each triangle spans a prism. Where tetrahedra are wanted it is cut in three along the diagonals that
an order of the surface's nodes gives: on the side over an edge, from the lower node of one layer to the higher node of
the next. Neighbours share the edge and so the diagonal, whatever the triangulation. The order reverses from layer to
layer, so that diagonals do not all lean one way.
"""

from __future__ import annotations

import numpy as np

from meshloom.errors import MeshError
from meshloom.mesh.generators.arrays import CellArrays


def extruded(
    triangles: np.ndarray,
    rank: np.ndarray,
    rim: np.ndarray,
    places: np.ndarray,
    prism_layers: int,
    names: tuple[str, ...],
) -> CellArrays:
    """Cells between the layers ``places`` (layers + 1, n, 3) of a surface's nodes: first prisms, then tetrahedra.

    ``triangles`` (t, 3) go around outwards; ``rank`` (n,) differs at neighbours; ``rim`` (r,) are the nodes along the
    closed edge of the surface. ``names`` of the groups: inside, outside, and over the rim.
    """
    layers, n = len(places) - 1, places.shape[1]
    index = np.int32 if places.shape[0] * n < 2**31 else np.int64
    triangles, edge = triangles.astype(index), np.stack((rim, np.roll(rim, -1)), axis=1).astype(index)
    below = np.arange(prism_layers, dtype=index)[:, None, None] * n + triangles[:, ::-1]  # of VTK: seen from below
    prisms = np.concatenate((below, below + n), axis=2).reshape(-1, 6)
    tetrahedra, sides = [], []
    for layer in range(prism_layers, layers):
        turned = rank if layer % 2 == 0 else -rank
        tetrahedra.append(_tetrahedra(triangles, turned, n) + layer * n)
        sides.append(_halves(edge, turned, n) + layer * n)
    quads = np.arange(prism_layers, dtype=index)[:, None, None] * n + np.concatenate((edge, edge[:, ::-1] + n), axis=1)
    over_rim = [quads.reshape(-1, 4), np.concatenate([np.empty((0, 3), index), *sides])]
    inside, outside, rim_name = names
    return CellArrays(
        places.reshape(-1, 3),
        {"prism": prisms, "tetrahedron": np.concatenate([np.empty((0, 4), index), *tetrahedra])},
        {inside: [triangles], rim_name: over_rim, outside: [triangles + layers * n]},
    )


def _tetrahedra(triangles: np.ndarray, rank: np.ndarray, n: int) -> np.ndarray:
    """Three tetrahedra (3 t, 4) for each triangle between the first two layers, of positive volume."""
    order = np.argsort(rank[triangles], axis=1)
    a, b, c = np.take_along_axis(triangles, order, axis=1).T
    backwards = (order[:, 1] - order[:, 0]) % 3 == 2
    three = np.stack((np.stack((a, b, c, c + n)), np.stack((a, b, c + n, b + n)), np.stack((a, b + n, c + n, a + n))))
    three[:, :2, backwards] = three[:, 1::-1, backwards]
    return three.transpose(2, 0, 1).reshape(-1, 4)


def _halves(edge: np.ndarray, rank: np.ndarray, n: int) -> np.ndarray:
    """Two triangles (2 e, 3) for each edge between the first two layers, along the same diagonals."""
    rising = (rank[edge[:, 0]] < rank[edge[:, 1]])[:, None]
    a, b = np.where(rising, edge, edge[:, ::-1]).T
    return np.concatenate((np.stack((a, b, b + n), axis=1), np.stack((a, b + n, a + n), axis=1)))


def check_volumes(made: CellArrays, what: str, hint: str) -> None:
    """MeshError unless every prism, as the three tetrahedra of each of its cuts, and every tetrahedron is the right way
    around. ``what`` begins the message, and ``hint`` says what to do.
    """
    prisms = made.cells["prism"]
    corners = [prisms[:, [*low, up]] for low, up in (((2, 1, 0), 3), ((2, 1, 0), 4), ((2, 1, 0), 5),
                                                     ((3, 4, 5), 0), ((3, 4, 5), 1), ((3, 4, 5), 2))]  # fmt: skip
    for nodes in (*corners, made.cells["tetrahedron"]):
        wrong = ~(tetrahedron_volumes(made.coordinates, nodes) > 0)
        if wrong.any():
            place = made.coordinates[nodes[np.argmax(wrong)]].mean(axis=0)
            at = place.round(4).tolist()
            raise MeshError(f"{what}: {wrong.sum()} cells would be folded, such as one at {at}; {hint}")


def tetrahedron_volumes(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """(n,), positive where the first three nodes go around by the right-hand rule towards the fourth."""
    volumes = np.empty(len(nodes))
    for start in range(0, len(nodes), 1 << 20):  # in parts, as ten million would need gigabytes at once
        here = slice(start, start + (1 << 20))
        a, b, c, d = (x[nodes[here, k]] for k in range(4))
        volumes[here] = np.einsum("ij,ij->i", np.cross(b - a, c - a), d - a) / 6
    return volumes
