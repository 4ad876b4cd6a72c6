"""Exact distances from points to a surface, in compiled code (``distance.cpp``)."""

from __future__ import annotations

import numpy as np

from meshloom.errors import MeshError
from meshloom.native import ffi, threads


def distances(points: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """From each point (n, d) to the nearest of the pieces (m, d, d), (n,): line segments between two corners for d = 2,
    triangles of three corners for d = 3; at least one."""
    cloud, corners = np.ascontiguousarray(points, np.float64), np.ascontiguousarray(pieces, np.float64)
    dim = cloud.shape[1] if cloud.ndim == 2 else 0
    if dim not in (2, 3) or corners.shape[1:] != (dim, dim) or len(corners) == 0:
        raise MeshError(
            f"distances go from points (n, d) to pieces (m, d, d) with m from 1, d = 2 or 3; got {cloud.shape} and"
            f" {corners.shape}"
        )
    found = ffi.empty(len(cloud), np.float64)
    ffi.call("distance", f"distances_{dim}", cloud, len(cloud), corners, len(corners), found, int(threads.in_use[0]))
    return found
