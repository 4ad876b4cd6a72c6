"""How far points are from faces: exactly, to the whole of a face and not to its nodes or its middle alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from meshloom.mesh.geometry import mean_points
from meshloom.native.distance import distances


def face_distances(points: np.ndarray, x: np.ndarray, faces: Iterable[np.ndarray]) -> np.ndarray:
    """From each point (n, d) to the nearest face, (n,); ``faces`` are arrays (m, k) of the nodes of edges (2-D), or of
    triangles, quadrilaterals and polygons (3-D), at least one face in all."""
    return distances(points, np.concatenate([_pieces(x, nodes) for nodes in faces]))


def _pieces(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Edges as they are, and faces in space as triangles, (pieces, d, d): a face with more corners has one for each
    edge, with the mean of its corners, as centres of faces are made."""
    if nodes.shape[1] == x.shape[1]:
        return x[nodes]
    middle = mean_points(x, nodes)
    after = np.roll(nodes, -1, axis=1)
    return np.concatenate([np.stack((x[nodes[:, k]], x[after[:, k]], middle), axis=1) for k in range(nodes.shape[1])])
