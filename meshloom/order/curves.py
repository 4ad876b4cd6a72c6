"""Orders from positions: the Hilbert curve and recursive coordinate bisection."""

from __future__ import annotations

import numpy as np

from meshloom.native import threads
from meshloom.native.ffi import call


def hilbert_keys(points: np.ndarray) -> np.ndarray:
    """Places (n,) uint64 of points (n, 2) or (n, 3) on the Hilbert curve through the square or cube around them.

    The curve has 2^31 (2-D) or 2^21 (3-D) cells along each side.
    """
    cloud = np.ascontiguousarray(points, np.float64)
    keys = np.empty(len(cloud), np.uint64)
    call("sorting", f"hilbert_keys_{cloud.shape[1]}", cloud, len(cloud), keys, int(threads.in_use[0]))
    return keys


def hilbert_order(points: np.ndarray) -> np.ndarray:
    """Permutation (n,) of points (n, d) along the Hilbert curve, d from 1 to 3; equal keys keep their given order."""
    keys = points[:, 0] if points.shape[1] == 1 else hilbert_keys(points)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def bisect(points: np.ndarray, block: int) -> np.ndarray:
    """Permutation (n,) of points (n, d) by recursive cuts across the longest extent, d from 1 to 3.

    Cuts fall on multiples of ``block``, so every run of ``block`` points is one compact part.
    """
    cloud = np.ascontiguousarray(points, np.float64)
    order = np.empty(len(cloud), np.int64)
    call("sorting", f"bisect_{cloud.shape[1]}", cloud, len(cloud), block, order, int(threads.in_use[0]))
    return order
