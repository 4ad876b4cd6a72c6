"""CellGrid between straight walls: where they are, and how wide, as kernels see it.

The points of the grid are the centres of cells, where their values lie; the face between a cell and the one
before it along an axis belongs to the cell behind it, so the last face of an axis lies in the first ghost cell.

Blocks of cells may be solid. Their faces are no-slip walls, and inside everything is 0:
kernels then take one argument more, where the fluid is, and ``Spacing`` asks it; without blocks nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.case import GridCase
from meshloom.errors import MeshError, shown

Block = tuple[Sequence[int], Sequence[int]]  # its first cell, and the one behind its last, along each axis
#: Of places, an array for each axis that broadcast together: the components, each a number or an array as they are.
Velocity = Callable[..., Sequence[Any]]
Offset = tuple[int, ...]  # from a cell, or a point, to another
GHOSTS = 2  # cells that are kept beyond each end: as far as a scheme may look


def along(rank: int, axis: int, step: int = 1) -> Offset:
    """So many cells along an axis."""
    return tuple(step if a == axis else 0 for a in range(rank))


def moved(at: Offset, by: Offset) -> Offset:
    """One offset after the other."""
    return tuple(a + b for a, b in zip(at, by, strict=True))


def even_edges(cells: int, low: float, high: float) -> np.ndarray:
    """Edges (cells + 1,) of cells that are all of one width."""
    return np.linspace(low, high, cells + 1)


def stretched_edges(cells: int, low: float, high: float, stretch: float) -> np.ndarray:
    """The same with narrow cells at both ends: a hyperbolic tangent; 0 leaves them even, 2 makes those in the middle
    about 13 times as wide as the narrowest."""
    if stretch == 0.0:
        return even_edges(cells, low, high)
    places = np.tanh(np.linspace(-stretch, stretch, cells + 1)) / np.tanh(stretch)
    places[0], places[-1] = -1.0, 1.0
    return low + (high - low) * 0.5 * (places + 1.0)


def graded_edges(length: float, first: float, growth: float, widest: float) -> np.ndarray:
    """Edges from 0 to a length, of cells each of which is wider than the one before it by a factor, up to ``widest``;
    all a little narrower than asked for, so that the last one ends where it must."""
    widths = [first]
    while sum(widths) < length * (1.0 - 1e-12):
        widths.append(max(first, min(widths[-1] * growth, widest)))
    edges = np.concatenate([[0.0], np.cumsum(widths)])
    return edges * (length / edges[-1])


def _ascending(edges: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """Edges of cells along each axis, as arrays that are fit to be edges."""
    found = tuple(np.asarray(one, float) for one in edges)
    for name, one in zip(ml.Grid.axis_names, found, strict=False):
        if one.ndim != 1 or len(one) < 2 or not np.isfinite(one).all() or not (np.diff(one) > 0.0).all():
            raise MeshError(f"cells: edges along {name} must be ascending numbers, two or more")
    return found


class CellGrid:
    """A grid of cells. ``edges``: for each axis (n + 1,), ascending; ``periodic``: for each axis, does it go around?
    ``blocks``: the cells in them are solid."""

    def __init__(
        self,
        edges: Sequence[np.ndarray],
        periodic: Sequence[bool],
        *,
        blocks: Sequence[Block] = (),
        dtype: Any = np.float64,
    ):
        self.edges, self.dtype = _ascending(edges), np.dtype(dtype)
        if len(periodic) != len(self.edges):
            raise MeshError(
                f"cells: periodic is one of True and False for each of {len(self.edges)} axes, got {periodic}"
            )
        self.axes = tuple(_Axis(one, round_) for one, round_ in zip(self.edges, periodic, strict=True))
        self.grid = GridCase.new_grid(
            [len(one.widths) for one in self.axes],
            extent=[one.extent for one in self.axes],
            periodic=tuple(periodic),
            coordinates=[None if one.even else one.centres for one in self.axes],
            ghosts=[min(GHOSTS, len(one.widths)) for one in self.axes],
            name="cells",
        )
        self.rank = self.grid.rank
        self._widths = [self._width(axis) for axis in range(self.rank)]
        self.solid = self._mask(blocks)
        self._fluid = None if self.solid is None else self._where_fluid(self.solid)  # 1 there, and 0 in solids

    def _mask(self, blocks: Sequence[Block]) -> np.ndarray | None:
        """(*shape,): which cells are solid; None where none is."""
        mask = np.zeros(self.shape, bool)
        for low, high in blocks:
            box = self.grid.box(low, high)
            if min(box.low) < 0 or any(end > n for end, n in zip(box.high, self.shape, strict=True)):
                raise MeshError(f"block from {tuple(low)} to {tuple(high)} leaves the {self.shape} cells")
            mask[tuple(map(slice, box.low, box.high))] = True
        return mask if mask.any() else None

    def _where_fluid(self, solid: np.ndarray) -> ml.Field:
        field = self.grid.field("fluid", dtype=self.dtype, data=1.0 - solid)
        ml.fill_ghosts(field, closed="copy")  # beyond a side as before it
        return field

    def _width(self, axis: int) -> ml.Global | ml.Field:
        """Of cells along an axis: one number for all, or at each cell its own."""
        one, name = self.axes[axis], f"width_{ml.Grid.axis_names[axis]}"
        if one.even:
            return ml.Global(float(one.widths[0]), name, dtype=self.dtype)
        ghosts, shape = self.grid.ghosts[axis], [1] * self.rank
        shape[axis] = -1
        values = np.broadcast_to(one.with_ghosts(ghosts).reshape(shape), self.grid.stored)
        field = self.grid.field(name, dtype=self.dtype)
        field.restore(np.ascontiguousarray(values, self.dtype).reshape(-1))
        return field

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid.shape

    @property
    def widths(self) -> tuple[Any, ...]:
        """What kernels take as their last arguments: those of a cell and its neighbours, and where there are solids
        where the fluid is; ``Spacing`` reads them."""
        return self.widths_within(1)

    def widths_within(self, reach: int) -> tuple[Any, ...]:
        """The same for kernels that look at cells so many steps away."""
        steps = sorted(range(-reach, reach + 1), key=abs)
        widths = (
            one if isinstance(one, ml.Global) else one[self.grid.offsets(*(along(self.rank, a, s) for s in steps))]
            for a, one in enumerate(self._widths)
        )
        return (*widths, *self.fluid_within(reach))

    def fluid_within(self, reach: int) -> tuple[Any, ...]:
        """Where the fluid is, as such a kernel takes it: 1, and 0 in solids; nothing where it is everywhere."""
        return () if self._fluid is None else (self.cross(self._fluid, reach),)

    @property
    def even(self) -> tuple[bool, ...]:
        """For each axis: are all cells of one width?"""
        return tuple(one.even for one in self.axes)

    @cached_property
    def narrowest(self) -> tuple[float, ...]:
        """The least width along each axis."""
        return tuple(float(one.widths.min()) for one in self.axes)

    @cached_property
    def volume(self) -> float:
        """Of all cells together that are not solid."""
        volume = float(np.prod([one.edges[-1] - one.edges[0] for one in self.axes]))
        if self.solid is None:
            return volume
        return volume - float(reduce(np.multiply.outer, [one.widths for one in self.axes])[self.solid].sum())

    @cached_property
    def with_last_faces(self) -> Any:
        """All cells, and the ghosts that hold the last face of each axis."""
        return self.grid.box((0,) * self.rank, [n + 1 for n in self.shape])

    def layer(self, axis: int, place: int) -> Any:
        """The cells at one place along an axis; behind the last, the ghosts that hold the last faces of the axis."""
        low, high = [0] * self.rank, list(self.shape)
        low[axis], high[axis] = place, place + 1
        return self.grid.box(low, high)

    def values_of(self, velocity: Velocity, between: int | None = None) -> np.ndarray:
        """A velocity that is given as a function of place, (*shape, rank): at the centres of cells, or at their first
        faces along the axis ``between``."""
        places = [one.edges[:-1] if a == between else one.centres for a, one in enumerate(self.axes)]
        given = velocity(*np.meshgrid(*places, indexing="ij", sparse=True))
        if not isinstance(given, Sequence | np.ndarray) or len(given) != self.rank:
            raise MeshError(f"start: a function of place must give {self.rank} components, got {shown(given)}")
        return np.stack([np.broadcast_to(np.asarray(part, float), self.shape) for part in given], axis=-1)

    def through_first_faces(self, velocity: Velocity) -> np.ndarray:
        """The same (*shape, rank), each component at the first faces along its own axis."""
        return np.stack([self.values_of(velocity, a)[..., a] for a in range(self.rank)], axis=-1)

    def cross(self, field: ml.Field, reach: int = 1) -> ml.Arg:
        """A field at a cell and its neighbours along the axes, up to so many steps away."""
        return field[self.grid.star(reach)]

    def before(self, field: ml.Field) -> ml.Arg:
        """A field at a cell and the one before it along each axis: either side of its faces."""
        return field[self.grid.offsets((0,) * self.rank, *(along(self.rank, a, -1) for a in range(self.rank)))]

    def both_faces(self, faces: ml.Field) -> ml.Arg:
        """Face velocities of a cell: its first faces, and those of the cells behind it, which are its last ones."""
        return faces[self.grid.offsets((0,) * self.rank, *(along(self.rank, a, 1) for a in range(self.rank)))]


@dataclass(frozen=True, eq=False)
class _Axis:
    edges: np.ndarray
    periodic: bool

    @cached_property
    def widths(self) -> np.ndarray:
        return np.diff(self.edges)

    @cached_property
    def centres(self) -> np.ndarray:
        return 0.5 * (self.edges[1:] + self.edges[:-1])

    @cached_property
    def even(self) -> bool:
        return bool(np.ptp(self.widths) <= 1e-12 * float(np.abs(self.edges).max()))

    @property
    def extent(self) -> tuple[float, float]:
        """As a grid has it: from the first centre to the last, around a periodic axis to the first again."""
        low = float(self.centres[0])
        return (low, low + float(self.edges[-1] - self.edges[0])) if self.periodic else (low, float(self.centres[-1]))

    def with_ghosts(self, count: int) -> np.ndarray:
        """Widths (n + 2 count,): beyond a wall as before it, in reverse."""
        if self.periodic:
            return np.concatenate([self.widths[-count:], self.widths, self.widths[:count]])
        return np.concatenate([self.widths[:count][::-1], self.widths, self.widths[-count:][::-1]])


@dataclass(frozen=True)
class Spacing:
    """The widths of cells as a kernel has them, the last of its arguments, read along one axis."""

    given: Any
    axis: int
    rank: int
    even: bool
    fluid: Any = None

    def width(self, step: int = 0) -> Any:
        """Of the cell, or of that so many steps further."""
        return self.given if self.even else self.given[along(self.rank, self.axis, step)]

    def distance(self, step: int = 0) -> Any:
        """From the centre of the cell before to that of this one; with step 1 from this one to the next."""
        return self.given if self.even else 0.5 * (self.width(step - 1) + self.width(step))

    def at_face(self, before: Any, behind: Any, step: int = 0) -> Any:
        """The value at the first face of the cell, or with step 1 at its last one, linear between the centres of the
        cells before and behind it."""
        if self.even:
            return 0.5 * (before + behind)
        share = self.width(step - 1) / (self.width(step - 1) + self.width(step))
        return before + share * (behind - before)

    def if_open(self, step: int, value: Any, closed: Any) -> Any:
        """A value, or another one where the face towards the cell before (-1) or behind (1) is that of a solid, or
        inside of one."""
        if self.fluid is None:
            return value
        here, there = (self.fluid[along(self.rank, self.axis, one)] for one in (0, step))
        return np.where(here * there > 0.5, value, closed)

    def in_fluid(self, value: Any) -> Any:
        """A value, or 0 where the cell is solid."""
        return value if self.fluid is None else np.where(self.fluid[along(self.rank, 0, 0)] > 0.5, value, 0.0)

    def seen(self, u: Any, component: int, step: int, since: int = 0) -> Any:
        """A velocity so many steps away, as its neighbour ``since`` so many sees it: if one of the two is solid, what
        makes it 0 at the face between them, linearly."""
        value = u[along(self.rank, self.axis, step)][component]
        if self.fluid is None:
            return value
        there, here = (self.fluid[along(self.rank, self.axis, one)] for one in (step, since))
        mirrored = -u[along(self.rank, self.axis, since)][component]
        mirrored = mirrored if self.even else mirrored * (self.width(step) / self.width(since))
        return np.where(here * there > 0.5, value, mirrored)


def spacings(given: Sequence[Any], even: Sequence[bool]) -> list[Spacing]:
    """Of all axes, from the last arguments of a kernel: ``CellGrid.widths``."""
    rank = len(even)
    fluid = given[rank] if len(given) > rank else None
    return [Spacing(one, axis, rank, even[axis], fluid) for axis, one in enumerate(given[:rank])]
