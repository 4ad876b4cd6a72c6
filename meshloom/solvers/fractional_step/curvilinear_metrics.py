"""Metrics of a grid in general coordinates, from the places of its points.

The coordinates xi, eta, zeta are the indices of the points, so their spacing is 1. Every derivative is a central
difference of neighbours, and J grad xi is written as differences of products, so that these differences, which commute,
add up to nothing: sum over d of D_d (J grad xi_d) = 0 to rounding. A uniform flow then stays uniform on any grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError

MARGIN = 2  # layers of points beyond each end that metrics, one layer beyond it, are made from
Mapping = Callable[..., Any]  # from the indices of points, an array for each axis, to their places, likewise


def pairs(rank: int) -> list[tuple[int, int]]:
    """Two different axes: the order of the components of ``shear``."""
    return list(combinations(range(rank), 2))


@dataclass(frozen=True, eq=False)
class CurvilinearMetrics:
    """At the points and one layer beyond each end, (n + 2, ...) =: shape.

    ``jacobian`` (*shape,): J, the volume of a cell. ``base`` (rank, *shape, rank): grad xi_d, whose J-fold is the area
    of a face. ``spread`` (*shape, rank): J |grad xi_d|^2, and ``shear`` (*shape, pairs): J grad xi_d . grad xi_e, by
    which differences along the axes become flows through faces.
    """

    jacobian: np.ndarray
    base: np.ndarray
    spread: np.ndarray
    shear: np.ndarray

    @property
    def rank(self) -> int:
        return self.jacobian.ndim

    @property
    def orthogonal(self) -> bool:
        """Do all coordinate lines run along x, y, z? Then ``base`` has one component for each axis and no shear."""
        aside = ~np.eye(self.rank, dtype=bool).reshape(self.rank, *(1,) * self.rank, self.rank)
        return not (self.base * aside).any()


def points_of(mapping: Mapping, shape: tuple[int, ...]) -> np.ndarray:
    """The places (n + 4, ..., rank) of points and of two layers beyond each end: ``mapping(i, j, k)`` gives an array
    for each of x, y, z. Along a periodic axis it must go on as the grid does, a period further."""
    indices = np.meshgrid(*(np.arange(-MARGIN, n + MARGIN, dtype=float) for n in shape), indexing="ij", sparse=True)
    places = mapping(*indices)
    stored = tuple(n + 2 * MARGIN for n in shape)
    return np.stack([np.broadcast_to(one, stored) for one in places], axis=-1)


def metrics_of(points: ArrayLike) -> CurvilinearMetrics:
    """From the places of points and of two layers beyond each end, (n + 4, ..., rank), on two or three axes."""
    places = np.asarray(points, float)
    rank = places.ndim - 1
    if rank not in (2, 3) or places.shape[-1] != rank or min(places.shape[:-1]) < 2 * MARGIN + 1:
        raise MeshError(f"points must be an array (n + {2 * MARGIN}, ..., 2 or 3) of places, two layers beyond each end"
                        f" included, got shape {places.shape}")  # fmt: skip
    if not np.isfinite(places).all():
        raise MeshError("points: not all places are finite")
    edges = [_trimmed(_difference(places, d), d) for d in range(rank)]
    areas = _areas_in_plane(edges) if rank == 2 else _areas_in_space(places)
    jacobian = np.einsum("...i,...i", np.cross(edges[0], edges[1]) if rank == 3 else areas[0],
                         edges[2] if rank == 3 else edges[0])  # fmt: skip
    _check_volumes(jacobian)
    base = areas / jacobian[..., None]
    spread = np.stack([np.einsum("...i,...i", areas[d], base[d]) for d in range(rank)], axis=-1)
    shear = np.stack([np.einsum("...i,...i", areas[d], base[e]) for d, e in pairs(rank)], axis=-1)
    return CurvilinearMetrics(jacobian, base, spread, shear)


def _check_volumes(jacobian: np.ndarray) -> None:
    lowest = np.unravel_index(np.argmin(jacobian), jacobian.shape)
    if not jacobian[lowest] > 0.0:
        place = ", ".join(str(int(i) - 1) for i in lowest)
        raise MeshError(f"the grid is folded, or left-handed: the volume at point ({place}) is {jacobian[lowest]:.3g};"
                        " volumes must be above 0")  # fmt: skip


def _difference(values: np.ndarray, axis: int) -> np.ndarray:
    """Half the difference of the neighbours along an axis, which loses its ends."""
    n, ends = values.shape[axis], (slice(None),) * axis
    return 0.5 * (values[(*ends, slice(2, n))] - values[(*ends, slice(0, n - 2))])


def _trimmed(values: np.ndarray, *lost: int) -> np.ndarray:
    """Without the ends of the axes that have not lost theirs."""
    return values[tuple(slice(None) if a in lost else slice(1, -1) for a in range(values.ndim - 1))]


def _areas_in_plane(edges: list[np.ndarray]) -> np.ndarray:
    """J grad xi_d: the other edge, turned."""
    along, across = edges
    return np.stack([np.stack([across[..., 1], -across[..., 0]], -1), np.stack([-along[..., 1], along[..., 0]], -1)])


def _areas_in_space(places: np.ndarray) -> np.ndarray:
    """J grad xi_d = (D_f (D_e r x r) - D_e (D_f r x r)) / 2, where d, e, f are a cyclic permutation."""
    swept = [np.cross(_difference(places, a), places[_inside(a)]) for a in range(3)]
    found = []
    for d in range(3):
        e, f = (d + 1) % 3, (d + 2) % 3
        one, other = _difference(swept[e], f), _difference(swept[f], e)
        found.append(0.5 * (_trimmed(one, e, f) - _trimmed(other, e, f)))
    return np.stack(found)


def _inside(axis: int) -> tuple[slice, ...]:
    """All but the ends of an axis."""
    return (slice(None),) * axis + (slice(1, -1),)
