"""Which triangle is seen at which pixel: a depth buffer, for whole arrays of triangles at once.

A pixel belongs to a triangle that its middle lies in; of several the nearest wins. A triangle is a few rows of pixels,
and a row is a run of them between two of its sides: all runs of many triangles are listed first, then all their pixels.

Not by matplotlib, polygons from back to front: a wing of 400 then shows its lower side in 4.9 % of its pixels, and one
of a million takes 9.9 s and 600 MB, here 1.0 s and 180 MB (bench/results/2026-11-17_drawing_aarch64.json).
"""

from __future__ import annotations

import numpy as np

from meshloom.records import dataclass

_MOST_AT_ONCE = 2_000_000  # pixels that are looked at together
_SHARED = 1e-6  # pixels: a middle on the side of two triangles, but for rounding, belongs to both, not to none
_EDGE = 0.75  # pixels on either side of an edge that show it


@dataclass(frozen=True)
class SeenPixels:
    """For every pixel (height, width), the lowest row first: the number of the triangle, -1 where there is none, and
    whether one of its edges is there."""

    triangle: np.ndarray
    is_edge: np.ndarray


def seen(corners: np.ndarray, edges: np.ndarray, width: int, height: int) -> SeenPixels:
    """Of triangles ``corners`` (n, 3, 3), in pixels to the right and up and nearer to who looks; ``edges`` (n, 3) says
    whether the side opposite each corner is to be shown."""
    depth, owner = np.full(width * height, -np.inf), np.full(width * height, -1, np.int64)
    of, row = _rows(corners, height)
    first, last = _runs(corners, of, row, width)
    slope = _slopes(corners)
    ends = np.cumsum(np.maximum(last - first + 1, 0))
    start = 0
    while start < len(of):
        done = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, done + _MOST_AT_ONCE)), start + 1)
        some = slice(start, stop)
        run, x = _listed(first[some], last[some])
        triangle, y = of[some][run], row[some][run]
        near = slope[triangle, 0] * (x + 0.5) + slope[triangle, 1] * (y + 0.5) + slope[triangle, 2]
        _keep_nearest(y * width + x, near, triangle, depth, owner)
        start = stop
    found = owner.reshape(height, width)
    return SeenPixels(found, _on_edges(corners, edges, found))


def _rows(corners: np.ndarray, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Every row of pixels whose middle a triangle reaches: the triangle, and the row."""
    low = np.clip(np.ceil(corners[:, :, 1].min(axis=1) - 0.5), 0, height).astype(np.int64)
    high = np.clip(np.floor(corners[:, :, 1].max(axis=1) - 0.5), -1, height - 1).astype(np.int64)
    along, across = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    flat = along[:, 0] * across[:, 1] == along[:, 1] * across[:, 0]
    return _listed(low, np.where(flat, -1, high))


def _listed(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All whole numbers from ``first`` to ``last`` of each: whose they are, and the numbers."""
    counts = np.maximum(last - first + 1, 0)
    of = np.repeat(np.arange(len(first)), counts)
    begins = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)[:-1])) if len(counts) else counts
    return of, np.arange(len(of)) - begins[of] + first[of]


def _runs(corners: np.ndarray, of: np.ndarray, row: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last pixel of a triangle in a row; the last is before the first where there is none."""
    y = row + 0.5
    left, right = np.full(len(of), np.inf), np.full(len(of), -np.inf)
    for corner in range(3):
        start, end = corners[of, corner], corners[of, (corner + 1) % 3]
        crossed = (start[:, 1] <= y) != (end[:, 1] <= y)
        rise = np.where(crossed, end[:, 1] - start[:, 1], 1.0)
        x = start[:, 0] + (y - start[:, 1]) * (end[:, 0] - start[:, 0]) / rise
        left = np.where(crossed, np.minimum(left, x), left)
        right = np.where(crossed, np.maximum(right, x), right)
    first = np.clip(np.ceil(left - 0.5 - _SHARED), 0, width).astype(np.int64)
    return first, np.clip(np.floor(right - 0.5 + _SHARED), -1, width - 1).astype(np.int64)


def _slopes(corners: np.ndarray) -> np.ndarray:
    """(n, 3): how near a triangle is at (x, y) is a x + b y + c."""
    along, across = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    twice = along[:, 0] * across[:, 1] - along[:, 1] * across[:, 0]
    area = np.where(twice == 0.0, np.inf, twice)  # which has no pixels
    a = (along[:, 2] * across[:, 1] - along[:, 1] * across[:, 2]) / area
    b = (along[:, 0] * across[:, 2] - along[:, 2] * across[:, 0]) / area
    return np.stack((a, b, corners[:, 0, 2] - a * corners[:, 0, 0] - b * corners[:, 0, 1]), axis=1)


def _keep_nearest(
    pixel: np.ndarray, near: np.ndarray, triangle: np.ndarray, depth: np.ndarray, owner: np.ndarray
) -> None:
    """Put what is nearer than what is there into the buffers (pixels,): of those that meet at a pixel one is put there
    at a time, until none is nearer."""
    left = np.flatnonzero(near > depth[pixel])
    while len(left):
        places = pixel[left]
        depth[places], owner[places] = near[left], triangle[left]
        left = left[near[left] > depth[places]]


def _on_edges(corners: np.ndarray, edges: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Whether a pixel is close to a side of its triangle that is to be shown."""
    shown = np.zeros(found.shape, bool)
    if not edges.any():
        return shown
    y, x = np.nonzero(found >= 0)
    triangle = found[y, x]
    close = np.zeros(len(x), bool)
    for corner in range(3):
        start, end = corners[:, (corner + 1) % 3, :2], corners[:, (corner + 2) % 3, :2]
        along = (end - start) / np.maximum(np.linalg.norm(end - start, axis=1), 1e-300)[:, None]
        own, begin = along[triangle], start[triangle]
        away = np.abs(own[:, 0] * (y + 0.5 - begin[:, 1]) - own[:, 1] * (x + 0.5 - begin[:, 0]))
        close |= edges[triangle, corner] & (away < _EDGE)
    shown[y, x] = close
    return shown
