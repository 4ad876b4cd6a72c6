"""Geometry of one quadrilateral with corners x (4, 2), counter-clockwise; edge k joins the corners k and k + 1."""

from __future__ import annotations

from typing import Any

import numpy as np

CORNERS = range(4)


def following(k: int) -> int:
    """The corner or edge after k, once around."""
    return (k + 1) % 4


def preceding(k: int) -> int:
    return (k - 1) % 4


def cross(a: np.ndarray, b: np.ndarray) -> Any:
    """The component of a x b out of the plane."""
    return a[0] * b[1] - a[1] * b[0]


def turned(a: np.ndarray) -> np.ndarray:
    """A vector turned by 90 degrees clockwise."""
    return np.stack([a[1], -a[0]])


def edges(values: np.ndarray) -> list[np.ndarray]:
    """What corner values (4, 2) change along each of the four edges."""
    return [values[following(k)] - values[k] for k in CORNERS]


def isoparametric(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors r, s, t of the map from the square [-1, 1]^2 to the cell: x = centre + r xi + s xi eta + t eta."""
    r = 0.25 * (-x[0] + x[1] + x[2] - x[3])
    s = 0.25 * (x[0] - x[1] + x[2] - x[3])
    t = 0.25 * (-x[0] - x[1] + x[2] + x[3])
    return r, s, t


def volume(x: np.ndarray) -> Any:
    """Area of the cell; negative when it is turned inside out."""
    r, _, t = isoparametric(x)
    return 4.0 * cross(r, t)


def corner_volumes(x: np.ndarray) -> np.ndarray:
    """(4,) Integrals of the bilinear shape functions over the cell: they sum to its volume."""
    r, s, t = isoparametric(x)
    low_r, high_r, low_t, high_t = 3.0 * r - s, 3.0 * r + s, 3.0 * t - s, 3.0 * t + s
    pairs = ((low_r, low_t), (low_r, high_t), (high_r, high_t), (high_r, low_t))
    return np.stack([cross(a, b) / 9.0 for a, b in pairs])


def volume_gradient(x: np.ndarray) -> np.ndarray:
    """(4, 2) How the volume grows when a corner moves: times the pressure, the force of the cell on its corners."""
    r, _, t = isoparametric(x)
    return np.stack([turned(r - t), turned(r + t), turned(t - r), turned(-r - t)])


def corner_cells(x: np.ndarray) -> list[np.ndarray]:
    """Four quadrilaterals (4, 2), one for each corner: corner, middle of the next edge, centre, middle of the last."""
    centre = 0.25 * (x[0] + x[1] + x[2] + x[3])
    middle = [0.5 * (x[k] + x[following(k)]) for k in CORNERS]
    return [np.stack([x[k], middle[k], centre, middle[preceding(k)]]) for k in CORNERS]


def width_squared(x: np.ndarray, degenerate: float) -> Any:
    """Least squared distance from the middle of a side to the line through the opposite side.

    A side whose squared length is below ``degenerate`` counts as a point.
    """
    least = None
    for k, side in enumerate(edges(x)):
        to_middle = 0.5 * (x[(k + 2) % 4] + x[(k + 3) % 4]) - x[k]
        length2 = side @ side
        is_point = length2 < degenerate
        to_line = cross(side, to_middle) ** 2 / np.where(is_point, 1.0, length2)
        distance2 = np.where(is_point, to_middle @ to_middle, to_line)
        least = distance2 if least is None else np.minimum(least, distance2)
    return least
