"""Structured grids: a Set of points whose neighbours are known by arithmetic, so that loops need no maps.

Axis 0 is x, axis 1 is y, axis 2 is z. Which points there are, and how they lie in memory, is the ``IndexSpace``; here
is where they are in space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, instance, shown, yes_or_no
from meshloom.mesh.box import AXES, IndexSpace, each_axis
from meshloom.mesh.core import Field
from meshloom.mesh.offsets import Index
from meshloom.mesh.values import enough_memory, same_kind

_METRIC_DEGREE = 7  # of the spline through the coordinates of a stretched axis; its slope is the metric


class Grid(IndexSpace):
    """Points on straight lines along 1 to 3 axes.

    ``shape``: points along each axis. ``extent``: length of each axis, or (low, high) for each; 1 unless given. A
    closed axis stores both ends, so its spacing is extent/(n - 1); a ``periodic`` one (a bool, or one for each axis)
    leaves the second end out, and its spacing is extent/n. ``coordinates``: for each axis the places (n,) of its
    points, ascending, or None for an even spacing; a stretched periodic axis needs its ``extent``, too. ``ghosts``:
    layers stored beyond each end, a number or one for each axis. ``aligned``: on two or three axes every row along the
    last one begins, at its first point that is no ghost, at a multiple of ``ALIGNMENT`` points in memory, for which
    rows are padded; "auto": where that lengthens them by an eighth at most. Only memory and speed depend on it.
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        extent: Any = None,
        periodic: bool | Sequence[bool] = False,
        coordinates: Sequence[ArrayLike | None] | None = None,
        ghosts: int | Sequence[int] = 0,
        name: str = "grid",
        *,
        aligned: bool | str = False,
    ):
        super().__init__(shape, periodic, ghosts, name, aligned=aligned)
        given = [None] * self.rank if coordinates is None else each_axis(name, "coordinates", coordinates, self.rank)
        spans = _spans(name, extent, given, self.rank)
        placed = [self._axis(a, spans[a], given[a]) for a in range(self.rank)]
        #: Where each axis begins, its length, and its (mean) spacing.
        self.origin = tuple(low for low, _, _ in placed)
        self.extent = tuple(length for _, length, _ in placed)
        self.spacing = tuple(
            length / max(n - (not p), 1) for length, n, p in zip(self.extent, self.shape, self.periodic, strict=True)
        )
        #: Along each axis the places (n,) of its points, without ghosts.
        self.coordinates: tuple[np.ndarray, ...] = tuple(x for _, _, x in placed)
        self.uniform: tuple[bool, ...] = tuple(x is None for x in given)

    def _axis(self, axis: int, span: tuple[float, float] | None, given: Any) -> tuple[float, float, np.ndarray]:
        """(low end, length, places (n,)) of an axis."""
        n, closed = self.shape[axis], not self.periodic[axis]
        where = f"grid {self.name}, axis {AXES[axis]}"
        if given is None:
            low, high = span or (0.0, 1.0)
            with enough_memory(where, n, 8):
                return low, high - low, low + (high - low) * (np.arange(n) / max(n - closed, 1))
        x = np.array(same_kind(given, np.dtype(np.float64), f"{where}, coordinates"))
        if x.shape != (n,) or not np.isfinite(x).all() or not (np.diff(x) > 0).all():
            raise MeshError(f"{where}: coordinates must be {n} ascending numbers")
        if closed:
            return float(x[0]), float(x[-1] - x[0]), x
        if span is None or span[1] - span[0] <= x[-1] - x[0]:
            raise MeshError(f"{where}: stretched and periodic, so give an extent longer than {x[-1] - x[0]:g}")
        return float(x[0]), span[1] - span[0], x

    def metric(self, axis: int) -> np.ndarray:
        """d xi/dx at the points (n,) of an axis; xi is even, with the same ends and ``spacing``. 1 where x is, too."""
        return self._metrics[self.axis(axis)]

    @cached_property
    def _metrics(self) -> tuple[np.ndarray, ...]:
        return tuple(np.ones(n) if even else _slope(x, h, length, p) for n, even, x, h, length, p in zip(
            self.shape, self.uniform, self.coordinates, self.spacing, self.extent, self.periodic, strict=True
        ))  # fmt: skip

    def meshgrid(self) -> tuple[np.ndarray, ...]:
        """The coordinates of all points, for each axis an array (*shape,)."""
        return tuple(np.meshgrid(*self.coordinates, indexing="ij"))

    def place_of(self, index: Index) -> tuple[float, ...]:
        """Where a point is; ghosts continue with the mean spacing."""
        return tuple(
            float(x[min(max(i, 0), len(x) - 1)]) + h * (min(i, 0) + max(i - len(x) + 1, 0))
            for x, h, i in zip(self.coordinates, self.spacing, index, strict=True)
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of shape, ghosts, ends and places: the identity of a grid in checkpoints, aligned or not."""
        text = f"{self.shape} {self.ghosts} {self.periodic} {self.origin} {self.extent}"
        return hashlib.sha256(text.encode() + b"".join(x.tobytes() for x in self.coordinates)).hexdigest()

    def shaped(self, field: Field, *, ghosts: bool = False) -> np.ndarray:
        """A copy of a field's values, as its numpy(); with ``ghosts`` those of all that is stored, (*stored, ...)."""
        instance(f"grid {self.name}: what is shaped", field, Field, error=MeshError)
        if field.set is not self:
            raise MeshError(f"field {field.name} lives on {field.set.name}, not on grid {self.name}")
        if not yes_or_no(f"grid {self.name}: ghosts", ghosts, error=MeshError):
            return field.numpy()
        values = field.rows().reshape(*self.places, -1)[self._with_ghosts]
        return values.reshape(self.stored + field.shape[self.rank :])

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        ghosts = f", ghosts {self.ghosts}" if any(self.ghosts) else ""
        padded = f", rows of {self.places[-1]}" if self.places != self.stored else ""
        return f"Grid({self.name}: {size}{ghosts}{padded})"


# ----- what a person gives ----------------------------------------------------------------------------------------
def _spans(name: str, extent: Any, coordinates: list[Any], rank: int) -> list[tuple[float, float] | None]:
    """(low, high) of each axis, None where nothing is said."""
    if extent is None:
        return [None] * rank
    if rank == 1 and isinstance(extent, list | tuple | np.ndarray) and len(extent) == 2:
        extent = [extent]
    spans: list[tuple[float, float] | None] = []
    for axis, one in enumerate(each_axis(name, "extent", extent, rank)):
        if one is None:
            spans.append(None)
            continue
        where = f"grid {name}: extent of axis {AXES[axis]}"
        given = same_kind(one, np.dtype(np.float64), where)
        pair = np.array([0.0, given]) if given.ndim == 0 else given
        if pair.shape != (2,) or not np.isfinite(pair).all() or not pair[1] > pair[0]:
            raise MeshError(f"{where} must be a length or (low, high), got {shown(one)}")
        spans.append((float(pair[0]), float(pair[1])))
    return spans


def _slope(x: np.ndarray, spacing: float, length: float, periodic: bool) -> np.ndarray:
    """d xi/dx at points x (n,): the inverse slope of a spline through them."""
    from scipy.interpolate import make_interp_spline  # here, because importing it takes longer than making a grid

    n, ends = len(x), 1 if periodic else 0
    if n + ends < 2:
        return np.ones(n)
    degree = (min(_METRIC_DEGREE, n - 1 + ends) + 1) // 2 * 2 - 1  # odd
    xi = spacing * np.arange(n + ends)
    shift = np.append(x, x[0] + length)[: n + ends] - x[0] - xi  # from the even place: this one is periodic
    shift[-1] = 0.0 if periodic else shift[-1]
    spline = make_interp_spline(xi, shift, k=degree, bc_type="periodic" if periodic else None)
    return 1.0 / (1.0 + spline.derivative()(xi[:n]))
