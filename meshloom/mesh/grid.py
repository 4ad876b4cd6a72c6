"""Structured grids: a Set of points whose neighbours are known by arithmetic, so that loops need no maps.

Axis 0 is x, axis 1 is y, axis 2 is z. Points are numbered in C order: the last axis is contiguous. A point has an
index (i, j, k) from 0; with ``ghosts`` w an axis of n points stores w more before and behind, with the indices -w to -1
and n to n + w - 1, and they are part of every field on the grid. In memory a row of points along the last axis may be
longer than that: behind it (and before its ghosts) an ``aligned`` grid leaves places that belong to no point.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, instance, shown, whole_number, yes_or_no
from meshloom.kernel.recent import Recent
from meshloom.mesh.box import Box, Index, Offsets, index_text
from meshloom.mesh.core import MOST_ELEMENTS, Field, Set
from meshloom.mesh.values import enough_memory, named, same_kind

AXES = "xyz"
SIDES = ("low", "high")
ALIGNMENT = 16  # points: 128 bytes in double, a cache line of a GPU; 64 in single
AUTO = "auto"
MOST_PADDING = 1 / 8  # of a row: where it would be more, aligned="auto" leaves rows as they are
MOST_RADIUS = 256  # of a star
MOST_PARTS = 1024  # boxes that a grid remembers, and offsets: whoever asks for another one again gets a new object
_METRIC_DEGREE = 7  # of the spline through the coordinates of a stretched axis; its slope is the metric


class Grid(Set):
    """Points on straight lines along 1 to 3 axes.

    ``shape``: points along each axis. ``extent``: length of each axis, or (low, high) for each; 1 unless given. A
    closed axis stores both ends, so its spacing is extent/(n - 1); a ``periodic`` one (a bool, or one for each axis)
    leaves the second end out, and its spacing is extent/n. ``coordinates``: for each axis the places (n,) of its
    points, ascending, or None for an even spacing; a stretched periodic axis needs its ``extent``, too. ``ghosts``:
    layers stored beyond each end, a number or one for each axis. ``aligned``: on two or three axes every row along the
    last one begins, at its first point that is no ghost, at a multiple of ``ALIGNMENT`` points in memory, for which
    rows are padded; "auto": where that lengthens them by an eighth at most. Only memory and speed depend on it.
    """

    usual_layout = "soa"  # neighbouring threads read neighbouring points of one component
    layout_is_free = False
    axis_names = AXES

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
        named("a grid", name)
        self.shape = _whole_numbers(name, "shape", _listed(shape), 1)
        if not 1 <= len(self.shape) <= len(AXES):
            raise MeshError(f"grid {name}: 1 to {len(AXES)} axes, got shape {self.shape}")
        self.periodic: tuple[bool, ...] = _yes_or_no(name, "periodic", periodic, self.rank)
        self.ghosts = _whole_numbers(name, "ghosts", _each(name, "ghosts", ghosts, self.rank), 0)
        for a, (n, w) in enumerate(zip(self.shape, self.ghosts, strict=True)):
            if w > n:
                raise MeshError(f"grid {name}: {w} ghost layers on axis {AXES[a]} need as many points, it has {n}")
        #: Points along each axis that are stored, ghosts included.
        self.stored: Index = tuple(n + 2 * w for n, w in zip(self.shape, self.ghosts, strict=True))
        first, places = _row(name, aligned, self.rank, self.shape[-1], self.ghosts[-1])
        #: Where the point of index 0 lies in memory, counted along each axis.
        self.first: Index = (*self.ghosts[:-1], first)
        #: Places in memory along each axis, those that belong to no point included, and the distance of neighbours.
        self.places: Index = (*self.stored[:-1], places)
        self.strides: Index = tuple(prod(self.places[a + 1 :]) for a in range(self.rank))
        super().__init__(prod(self.places), name)
        given = [None] * self.rank if coordinates is None else _each(name, "coordinates", coordinates, self.rank)
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
        self._remember()

    def _remember(self) -> None:
        """Boxes and offsets that were asked for, to be given again."""
        self._boxes: Recent[tuple[Index, Index], Box] = Recent(MOST_PARTS)
        self._offsets: Recent[tuple[Index, ...], Offsets] = Recent(MOST_PARTS)

    _made_again = (*Set._made_again, "_boxes", "_offsets")

    def _restored(self) -> None:
        super()._restored()
        self._remember()

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

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of points, ghosts not counted."""
        return prod(self.shape)

    @property
    def choices(self) -> np.ndarray:
        """Those of the points, (*shape,)."""
        return np.arange(self.total).reshape(self.places)[self.inner]

    def axis(self, axis: int) -> int:
        """The axis as a number from 0, counted from the end where negative; MeshError where there is none."""
        if isinstance(axis, int | np.integer) and not isinstance(axis, bool) and -self.rank <= axis < self.rank:
            return int(axis) % self.rank
        raise MeshError(f"grid {self.name} has no axis {axis!r}; it has {self.rank}: 0 to {self.rank - 1}")

    @property
    def wraps(self) -> tuple[bool, ...]:
        """For each axis: does the neighbour behind the last point, which is not stored, lie at the first one?"""
        return tuple(p and not w for p, w in zip(self.periodic, self.ghosts, strict=True))

    # ----- what a loop may run over, and read -----------------------------------------------------------------------
    def offsets(self, *offsets: int | Sequence[int]) -> Offsets:
        """Offsets (one whole number for each axis) for ``field[grid.offsets((1, 0), (-1, 0))]``."""
        given = [_listed(o) for o in offsets]
        for one in given:
            _whole_numbers(self.name, "offsets", one, None)
            if len(one) != self.rank:
                raise MeshError(
                    f"grid {self.name}: offset {index_text(one)} must have {self.rank} entries, has {len(one)}"
                )
        listed = tuple(_whole_numbers(self.name, "offsets", one, None) for one in given)
        if not listed or len(set(listed)) < len(listed):
            raise MeshError(f"grid {self.name}: give at least one offset, and each of them once")
        return self._offsets.find_or_make(listed, lambda: Offsets(self, listed))

    def star(self, radius: int = 1) -> Offsets:
        """The point itself and its neighbours along every axis, up to ``radius`` steps away."""
        reach = whole_number(f"grid {self.name}: radius of a star", radius, 0, MOST_RADIUS, error=MeshError)
        steps = [d * s for d in range(1, reach + 1) for s in (-1, 1)]
        arms = [tuple(d if b == a else 0 for b in range(self.rank)) for a in range(self.rank) for d in steps]
        return self.offsets((0,) * self.rank, *arms)

    def box(self, low: int | Sequence[int], high: int | Sequence[int]) -> Box:
        """The points with ``low`` <= index < ``high`` on every axis; ghosts have indices below 0 and from n."""
        ends = []
        for side, given in zip(SIDES, (low, high), strict=True):
            what = f"the {side} end of a box"
            ends.append(_whole_numbers(self.name, what, _each(self.name, what, given, self.rank), None))
        for a, (first, last) in enumerate(zip(*ends, strict=True)):
            least, most = -self.ghosts[a], self.shape[a] + self.ghosts[a]
            if not least <= first < last <= most:
                wrong = "is empty" if first >= last else "leaves the grid"
                raise MeshError(
                    f"grid {self.name}: box {first}:{last} on axis {AXES[a]} {wrong}; it must be within {least}:{most}"
                )
        key = ends[0], ends[1]
        return self._boxes.find_or_make(key, lambda: Box(self, *key))

    @cached_property
    def inside(self) -> Box:
        """All points without ghosts: what a loop over the grid itself runs over."""
        return self.box((0,) * self.rank, self.shape)

    @property
    def everything(self) -> Box:
        """All points, ghosts included."""
        return self.box([-w for w in self.ghosts], [n + w for n, w in zip(self.shape, self.ghosts, strict=True)])

    def interior(self, width: int | Sequence[int] = 1) -> Box:
        """The points at least ``width`` away from the ends of closed axes; a periodic axis has no ends."""
        widths = _whole_numbers(self.name, "interior", _each(self.name, "interior", width, self.rank), 0)
        trim = [0 if p else w for p, w in zip(self.periodic, widths, strict=True)]
        for a, (n, w) in enumerate(zip(self.shape, trim, strict=True)):
            if n <= 2 * w:
                raise MeshError(f"grid {self.name}: axis {AXES[a]} has {n} points, too few for interior({w}):"
                                f" at least {2 * w + 1}")  # fmt: skip
        return self.box(trim, [n - w for n, w in zip(self.shape, trim, strict=True)])

    def boundary(self, axis: int, side: str, width: int = 1) -> Box:
        """The ``width`` layers of points at the "low" or "high" end of an axis."""
        a, low, high = self._side(axis, side), [0] * self.rank, list(self.shape)
        deep = whole_number(f"grid {self.name}: width of a boundary", width, 1, self.shape[a], error=MeshError)
        low[a], high[a] = (0, deep) if side == SIDES[0] else (self.shape[a] - deep, self.shape[a])
        return self.box(low, high)

    def ghost(self, axis: int, side: str) -> Box:
        """The ghost layers beyond an end of an axis, with those of all other axes at their ends."""
        a, box = self._side(axis, side), self.everything
        if not self.ghosts[a]:
            raise MeshError(f"grid {self.name} has no ghost layers on axis {AXES[a]}; make it with ghosts=1 or more")
        low, high = list(box.low), list(box.high)
        low[a], high[a] = (low[a], 0) if side == SIDES[0] else (self.shape[a], high[a])
        return self.box(low, high)

    def _side(self, axis: int, side: str) -> int:
        if not isinstance(side, str) or side not in SIDES:
            raise MeshError(f"grid {self.name}: a side is 'low' or 'high', got {shown(side)}")
        return self.axis(axis)

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

    # ----- single points ------------------------------------------------------------------------------------------
    def index_of(self, number: int) -> Index:
        """The index (i, j, k) of the point with a number, as ``numbers`` and ``ml.locate`` count them: in the order of
        ``numpy()``, without ghosts."""
        known = whole_number(f"grid {self.name}: the number of a point", number, 0, self.size - 1, error=MeshError)
        return tuple(int(x) for x in np.unravel_index(known, self.shape))

    def index_at(self, row: int) -> Index:
        """The index of what lies in a row of ``field.numbered()``; ghosts have entries below 0 or from n."""
        known = whole_number(f"grid {self.name}: a row", row, 0, self.total - 1, error=MeshError)
        place = np.unravel_index(known, self.places)
        return tuple(int(x) - first for x, first in zip(place, self.first, strict=True))

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

    # ----- values as arrays with one dimension for each axis ------------------------------------------------------
    def shaped(self, field: Field, *, ghosts: bool = False) -> np.ndarray:
        """A copy of a field's values, as its numpy(); with ``ghosts`` those of all that is stored, (*stored, ...)."""
        instance(f"grid {self.name}: what is shaped", field, Field, error=MeshError)
        if field.set is not self:
            raise MeshError(f"field {field.name} lives on {field.set.name}, not on grid {self.name}")
        if not yes_or_no(f"grid {self.name}: ghosts", ghosts, error=MeshError):
            return field.numpy()
        values = field.rows().reshape(*self.places, -1)[self._with_ghosts]
        return values.reshape(self.stored + field.shape[self.rank :])

    @property
    def inner(self) -> tuple[slice, ...]:
        """Where the points without ghosts are in an array (*places,)."""
        return tuple(slice(first, first + n) for n, first in zip(self.shape, self.first, strict=True))

    @property
    def _with_ghosts(self) -> tuple[slice, ...]:
        ends = zip(self.first, self.ghosts, self.stored, strict=True)
        return tuple(slice(first - w, first - w + n) for first, w, n in ends)

    @cached_property
    def padding(self) -> np.ndarray:
        if self.places == self.stored:
            return super().padding
        nobody = np.ones(self.places, bool)
        nobody[self._with_ghosts] = False
        return np.flatnonzero(nobody)

    @property
    def array_shape(self) -> Index:
        return self.shape

    @property
    def shows_all(self) -> bool:
        return not any(self.ghosts)

    def shown(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(*self.places, -1)[self.inner]

    def points_of(self, memory: Any) -> Any:
        return memory.reshape(self.places + memory.shape[1:])[self.inner]

    def with_shown(self, values: np.ndarray, rows: Callable[[], np.ndarray]) -> np.ndarray:
        dim = values.shape[-1]
        found = np.zeros((self.total, dim), values.dtype) if self.shows_all else rows()
        found.reshape(*self.places, dim)[self.inner] = values
        return found

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        ghosts = f", ghosts {self.ghosts}" if any(self.ghosts) else ""
        padded = f", rows of {self.places[-1]}" if self.places != self.stored else ""
        return f"Grid({self.name}: {size}{ghosts}{padded})"


# ----- what a person gives ----------------------------------------------------------------------------------------
def _listed(value: Any) -> tuple[Any, ...]:
    """The entries of a sequence, or the only one."""
    several = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return tuple(value) if several else (value,)


def _each(name: str, what: str, value: Any, rank: int) -> list[Any]:
    """One entry for each axis: a single value serves all."""
    if not isinstance(value, list | tuple | np.ndarray) or (isinstance(value, np.ndarray) and not value.ndim):
        return [value] * rank
    if len(value) != rank:
        raise MeshError(f"grid {name}: {what} has {len(value)} entries, but the grid has {rank} axes")
    return list(value)


def _whole_numbers(name: str, what: str, values: Sequence[Any], low: int | None) -> Index:
    """Whole numbers from ``low``, or of either sign where it is None; none is larger than the largest set."""
    least = -MOST_ELEMENTS if low is None else low
    try:
        return tuple(whole_number(what, value, least, MOST_ELEMENTS, error=MeshError) for value in values)
    except MeshError:
        bound = "" if low is None else f" from {low}"
        raise MeshError(
            f"grid {name}: {what} must be whole numbers{bound} to {MOST_ELEMENTS}, got {shown(tuple(values))}"
        ) from None


def _yes_or_no(name: str, what: str, value: Any, rank: int) -> tuple[bool, ...]:
    found = _each(name, what, value, rank)
    if not all(isinstance(one, bool | np.bool_) for one in found):
        raise MeshError(f"grid {name}: {what} is True or False, or one of them for each axis, got {shown(value)}")
    return tuple(bool(one) for one in found)


def _row(name: str, aligned: Any, rank: int, points: int, ghosts: int) -> tuple[int, int]:
    """(where the first point that is no ghost lies, places) of a row along the last axis."""
    if not isinstance(aligned, bool | np.bool_) and not (isinstance(aligned, str) and aligned == AUTO):
        raise MeshError(f"grid {name}: aligned is True, False or {AUTO!r}, got {shown(aligned)}")
    stored = points + 2 * ghosts
    first = -(-ghosts // ALIGNMENT) * ALIGNMENT
    places = -(-(first + points + ghosts) // ALIGNMENT) * ALIGNMENT
    worth = aligned != AUTO or places - stored <= MOST_PADDING * stored
    return (first, places) if aligned and worth and rank > 1 else (ghosts, stored)


def _spans(name: str, extent: Any, coordinates: list[Any], rank: int) -> list[tuple[float, float] | None]:
    """(low, high) of each axis, None where nothing is said."""
    if extent is None:
        return [None] * rank
    if rank == 1 and isinstance(extent, list | tuple | np.ndarray) and len(extent) == 2:
        extent = [extent]
    spans: list[tuple[float, float] | None] = []
    for axis, one in enumerate(_each(name, "extent", extent, rank)):
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
