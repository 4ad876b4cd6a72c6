"""The points of a grid as what loops run over and read: indices, boxes of them, offsets between them. Arithmetic only:
no index is stored.

A point has an index (i, j, k) from 0; with ``ghosts`` w an axis of n points stores w more before and behind, with the
indices -w to -1 and n to n + w - 1, and they are part of every field on the grid. Points are numbered in C order: the
last axis is contiguous. In memory a row of points along the last axis may be longer than that: behind it (and before
its ghosts) an ``aligned`` grid leaves places that belong to no point.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import field
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np

from meshloom.errors import MeshError, shown, whole_number
from meshloom.kernel.recent import Recent
from meshloom.mesh.copies import ItsOwnCopy
from meshloom.mesh.core import MOST_ELEMENTS, Set
from meshloom.mesh.offsets import Index, Offsets, index_text
from meshloom.mesh.values import named
from meshloom.native.algorithms import distinct
from meshloom.records import dataclass

AXES = "xyz"
SIDES = ("low", "high")
ALIGNMENT = 16  # points: 128 bytes in double, a cache line of a GPU; 64 in single
AUTO = "auto"
MOST_PADDING = 1 / 8  # of a row: where it would be more, aligned="auto" leaves rows as they are
MOST_RADIUS = 256  # of a star
MOST_PARTS = 1024  # boxes that a grid remembers, and offsets: whoever asks for another one again gets a new object


class IndexSpace(Set):
    """The points of a grid by their indices, wherever they are in space: ``Grid`` has the places."""

    usual_layout = "soa"  # neighbouring threads read neighbouring points of one component
    layout_is_free = False
    axis_names = AXES

    def __init__(
        self,
        shape: int | Sequence[int],
        periodic: bool | Sequence[bool],
        ghosts: int | Sequence[int],
        name: str,
        *,
        aligned: bool | str,
    ):
        named("a grid", name)
        self.shape = _whole_numbers(name, "shape", _listed(shape), 1)
        if not 1 <= len(self.shape) <= len(AXES):
            raise MeshError(f"grid {name}: 1 to {len(AXES)} axes, got shape {self.shape}")
        self.periodic: tuple[bool, ...] = _yes_or_no(name, "periodic", periodic, self.rank)
        self.ghosts = _whole_numbers(name, "ghosts", each_axis(name, "ghosts", ghosts, self.rank), 0)
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
        self._remember()

    def _remember(self) -> None:
        """Boxes and offsets that were asked for, to be given again."""
        self._boxes: Recent[tuple[Index, Index], Box] = Recent(MOST_PARTS)
        self._offsets: Recent[tuple[Index, ...], Offsets] = Recent(MOST_PARTS)

    _made_again = (*Set._made_again, "_boxes", "_offsets")

    def _restored(self) -> None:
        super()._restored()
        self._remember()

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
            ends.append(_whole_numbers(self.name, what, each_axis(self.name, what, given, self.rank), None))
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
        widths = _whole_numbers(self.name, "interior", each_axis(self.name, "interior", width, self.rank), 0)
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

    # ----- values as arrays with one dimension for each axis ------------------------------------------------------
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

    def numbers_at(self, positions: np.ndarray) -> np.ndarray:
        places = np.unravel_index(positions, self.places)
        index = [place - first for place, first in zip(places, self.first, strict=True)]
        inside = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(index, self.shape, strict=True)])
        found = np.full(len(positions), -1, np.int64)
        found[inside] = np.ravel_multi_index([i[inside] for i in index], self.shape)
        return found

    def points_of(self, memory: Any) -> Any:
        return memory.reshape(self.places + memory.shape[1:])[self.inner]

    def with_shown(self, values: np.ndarray, rows: Callable[[], np.ndarray]) -> np.ndarray:
        dim = values.shape[-1]
        found = np.zeros((self.total, dim), values.dtype) if self.shows_all else rows()
        found.reshape(*self.places, dim)[self.inner] = values
        return found


@dataclass(frozen=True, eq=False)
class Box(ItsOwnCopy):
    """The points of a grid with ``low`` <= index < ``high`` on every axis; ghosts have indices below 0 and from n."""

    grid: IndexSpace
    low: Index
    high: Index
    kept: dict[Hashable, Any] = field(default_factory=dict)  # what others keep with it, as with a Set
    _made_again: ClassVar[tuple[str, ...]] = ("kept",)

    def _restored(self) -> None:
        object.__setattr__(self, "kept", {})

    @property
    def shape(self) -> Index:
        return tuple(last - first for first, last in zip(self.low, self.high, strict=True))

    @property
    def size(self) -> int:
        """Number of points: what a loop visits."""
        return prod(self.shape)

    def __len__(self) -> int:
        return self.size

    @property
    def covers_inside(self) -> bool:
        """Does it hold all points of the grid but, perhaps, ghosts?"""
        inside = self.grid.inside
        return all(a <= b for a, b in zip(self.low, inside.low, strict=True)) and all(
            a >= b for a, b in zip(self.high, inside.high, strict=True)
        )

    @cached_property
    def stored_low(self) -> Index:
        """Where the box begins in memory, counted along each axis."""
        return tuple(x + first for x, first in zip(self.low, self.grid.first, strict=True))

    @property
    def stored_high(self) -> Index:
        return tuple(x + first for x, first in zip(self.high, self.grid.first, strict=True))

    def rows(self, offset: Index | None = None, first: int = 0, last: int | None = None) -> np.ndarray:
        """Positions in memory of the points [first, last) of the box, in C order, seen at an offset."""
        index = np.unravel_index(np.arange(first, self.size if last is None else last), self.shape)
        rows = np.zeros(len(index[0]), np.int64)
        for a, part in enumerate(index):
            along = part + (self.stored_low[a] + (offset[a] if offset else 0))
            rows += self.grid.strides[a] * (along % self.grid.stored[a] if self.grid.wraps[a] else along)
        return rows

    def reaches_out(self, axis: int, step: int) -> bool:
        """Does a step along an axis lead from some point of the box beyond what is stored?"""
        ghosts, n = self.grid.ghosts[axis], self.grid.shape[axis]
        return self.low[axis] + step < -ghosts or self.high[axis] + step > n + ghosts

    def touched(self, offsets: Iterable[Index]) -> int:
        """How many different points are seen at these offsets from all points of the box."""
        parts = [cell for o in offsets for cell in product(*(self._pieces(a, o[a]) for a in range(self.grid.rank)))]
        cuts = [distinct([end for part in parts for end in part[a]]) for a in range(self.grid.rank)]
        seen = np.zeros([max(len(c) - 1, 0) for c in cuts], bool)
        for part in parts:
            seen[tuple(slice(*np.searchsorted(c, ends)) for c, ends in zip(cuts, part, strict=True))] = True
        for c in cuts[::-1]:
            seen = seen @ np.diff(c)
        return int(seen)

    def _pieces(self, axis: int, step: int) -> list[tuple[int, int]]:
        """The points along an axis that are seen at a step, as ranges in memory; two where it wraps around."""
        low, high, n = self.stored_low[axis] + step, self.stored_high[axis] + step, self.grid.stored[axis]
        if not self.grid.wraps[axis] or (low >= 0 and high <= n):
            return [(low, high)]
        low, high = low % n, low % n + (high - low)
        return [(low, high)] if high <= n else [(low, n), (0, high - n)]

    def __repr__(self) -> str:
        ranges = ", ".join(f"{first}:{last}" for first, last in zip(self.low, self.high, strict=True))
        return f"{self.grid.name}[{ranges}]"


# ----- what a person gives ----------------------------------------------------------------------------------------
def _listed(value: Any) -> tuple[Any, ...]:
    """The entries of a sequence, or the only one."""
    several = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return tuple(value) if several else (value,)


def each_axis(name: str, what: str, value: Any, rank: int) -> list[Any]:
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
    found = each_axis(name, what, value, rank)
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
