"""Boundary conditions of the domain: walls, lids, symmetry, inflow and outflow, each as values of ghost cells.

A ghost cell is the mirror image of a cell inside: the mean of the two is the value at the side. So it holds twice that
value minus the one inside where the velocity is given, and the one inside where its slope is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.errors import MeshError, shown
from meshloom.solvers.fractional_step.cells import CellGrid, Spacing, along, spacings
from meshloom.solvers.fractional_step.operators import area

LOW, HIGH = "low", "high"
GIVEN, FREE = -1.0, 1.0  # what the value inside counts in the ghost: the velocity itself is given, or its slope is zero


@dataclass(frozen=True)
class Wall:
    """A no-slip wall; ``velocity``: that of the wall, along itself, as a lid's."""

    velocity: tuple[float, ...] = ()
    lets_out = False

    def rule(self, axis: int, rank: int) -> tuple[float, ...]:
        return (GIVEN,) * rank

    def values(self, cells: CellGrid, axis: int, end: str) -> np.ndarray:
        """Velocity (dim,) at the side, or (*shape of the side, dim)."""
        given = np.atleast_1d(np.asarray(self.velocity, float))
        if given.ndim != 1 or len(given) > cells.rank or not np.isfinite(given).all():
            raise MeshError(
                f"conditions: the velocity of a wall is up to {cells.rank} numbers here, got {shown(self.velocity)}"
            )
        velocity = np.array([*given, *(0.0,) * (cells.rank - len(given))])
        if velocity[axis] != 0.0:
            name = ml.Grid.axis_names[axis]
            raise MeshError(
                f"conditions: the wall at the {end} end of {name} has a velocity of {shown(self.velocity)}, which goes"
                f" through it: its component along {name} must be 0, or say Inflow"
            )
        return velocity


@dataclass(frozen=True)
class Symmetry:
    """A plane of symmetry, or a slip wall: nothing passes, without shear."""

    lets_out = False

    def rule(self, axis: int, rank: int) -> tuple[float, ...]:
        return tuple(GIVEN if c == axis else FREE for c in range(rank))

    def values(self, cells: CellGrid, axis: int, end: str) -> np.ndarray:
        return np.zeros(cells.rank)


@dataclass(frozen=True)
class Inflow:
    """The velocity is given: ``profile`` of the places of the cells at the side, an array for each axis, gives the
    components, each a number or an array of their shape."""

    profile: Callable[..., Sequence[Any]]
    lets_out = False

    def rule(self, axis: int, rank: int) -> tuple[float, ...]:
        return (GIVEN,) * rank

    def values(self, cells: CellGrid, axis: int, end: str, between: int | None = None) -> np.ndarray:
        """``between``: the axis along which they are asked for at the first faces of cells, not their centres."""
        places = [one.edges[:-1] if a == between else one.centres for a, one in enumerate(cells.axes)]
        places[axis] = cells.edges[axis][[0 if end == LOW else -1]]
        at = [np.squeeze(one, axis) for one in np.meshgrid(*places, indexing="ij")]
        given = self.profile(*at)
        if not isinstance(given, Sequence | np.ndarray) or len(given) != cells.rank:
            components = f"{cells.rank} components, got {shown(given)}"
            raise MeshError(f"conditions: the profile of an inflow must give {components}")
        return np.stack([np.broadcast_to(np.asarray(part, float), at[0].shape) for part in given], axis=-1)


@dataclass(frozen=True)
class Outflow:
    """Zero-gradient outflow with a global mass correction: as much leaves as flows in elsewhere."""

    lets_out = True

    def rule(self, axis: int, rank: int) -> tuple[float, ...]:
        return (FREE,) * rank

    def values(self, cells: CellGrid, axis: int, end: str) -> np.ndarray:
        return np.zeros(cells.rank)


Condition = Wall | Symmetry | Inflow | Outflow


class Side:
    """One closed end of one axis of some cells, with what holds there."""

    def __init__(self, cells: CellGrid, axis: int, end: str, condition: Condition):
        self.cells, self.axis, self.end, self.condition = cells, axis, end, condition
        self.rule = condition.rule(axis, cells.rank)
        name = f"velocity_{end}_{ml.Grid.axis_names[axis]}"
        values = condition.values(cells, axis, end)
        if values.ndim == 1:
            self.velocity: ml.Global | ml.Field = ml.Global(values, name, dtype=cells.dtype)
        else:
            everywhere = np.broadcast_to(np.expand_dims(values, axis), (*cells.shape, cells.rank))
            inner = cells.grid.field(name, cells.rank, dtype=cells.dtype, data=everywhere)
            ml.fill_ghosts(inner, closed="copy")  # what is given at the side is found in its ghosts
            self.velocity = inner

    def given_outflow(self) -> float:
        """What flows out through the side, as far as it is given."""
        values = self.condition.values(self.cells, self.axis, self.end)[..., self.axis]
        return float((values * self.areas).sum()) * self.outwards

    @property
    def outwards(self) -> float:
        """The sign of what flows out, as a flow along the axis."""
        return -1.0 if self.end == LOW else 1.0

    @property
    def given_through(self) -> bool:
        """Is it given what flows through the side?"""
        return self.rule[self.axis] == GIVEN

    @property
    def lets_through(self) -> bool:
        """Does fluid come or go through the side?"""
        return not isinstance(self.condition, Wall | Symmetry)

    @cached_property
    def areas(self) -> np.ndarray:
        """Of the faces of the side, in its shape; 0 where the cells are solid."""
        widths = [one.widths for a, one in enumerate(self.cells.axes) if a != self.axis]
        areas, solid = reduce(np.multiply.outer, widths, np.ones(())), self.cells.solid
        return areas if solid is None else np.where(solid.take(0 if self.end == LOW else -1, self.axis), 0.0, areas)

    def layer(self, number: int) -> Any:
        """The ghosts so far beyond the side: 1 are those next to it."""
        first = -number if self.end == LOW else self.cells.shape[self.axis] - 1 + number
        return self.cells.layer(self.axis, first)

    @property
    def cells_inside(self) -> Any:
        """The layer of cells at this side."""
        return self.layer(0)

    @property
    def faces(self) -> Any:
        """The cells that have the faces of this side."""
        return self.cells.layer(self.axis, 0 if self.end == LOW else self.cells.shape[self.axis])

    def mirror(self, number: int) -> tuple[int, ...]:
        """From such a ghost to its image inside."""
        return along(self.cells.rank, self.axis, (2 * number - 1) * (1 if self.end == LOW else -1))

    def fill(self, u: ml.Field, layers: int) -> None:
        for number in range(1, min(layers, self.cells.shape[self.axis]) + 1):
            at = self.mirror(number)
            _mirrored(at, self.rule)(self.layer(number), u[self.cells.grid.offsets(at)], self.velocity, u)

    def fill_pressure(self, p: ml.Field) -> None:
        at = self.mirror(1)
        _copied(at)(self.layer(1), p[self.cells.grid.offsets(at)], p)


class Boundaries:
    """All sides of some cells. ``conditions``: (axis, LOW or HIGH) -> what holds there, for every closed end."""

    def __init__(self, cells: CellGrid, conditions: Mapping[tuple[int, str], Condition]):
        self.cells = cells
        closed = [axis for axis in range(cells.rank) if not cells.grid.periodic[axis]]
        ends = [(axis, end) for axis in closed for end in (LOW, HIGH)]
        if {*ends} != {*conditions}:
            names = ", ".join(f"({axis}, {end!r})" for axis, end in ends) or "none"
            raise MeshError(f"conditions: give a condition for each end of the closed axes, which are {names}; got"
                            f" {', '.join(map(str, conditions)) or 'none'}")  # fmt: skip
        for place, one in conditions.items():
            if not isinstance(one, Wall | Symmetry | Inflow | Outflow):
                raise MeshError(f"conditions: at {place} must be a Wall, Symmetry, Inflow or Outflow, got {shown(one)}")
        self.sides = [Side(cells, axis, end, conditions[axis, end]) for axis, end in ends]
        self.ways_out = [one for one in self.sides if one.condition.lets_out]
        area = sum(float(one.areas.sum()) for one in self.ways_out)
        self._excess = ml.Global(0.0, "excess", dtype=cells.dtype)
        self._per_area = 1.0 / area if area else 0.0
        excess, size = np.sum(
            [[flow, abs(flow)] for flow in (one.given_outflow() for one in self.sides)] or [[0, 0]], 0
        )
        if not self.ways_out and abs(excess) > 1e-9 * size:
            raise MeshError(f"conditions: {-excess:g} more flows in than out, and no side is an Outflow")

    def fill_velocity(self, u: ml.Field, layers: int = 1) -> None:
        """The ghosts of velocities, so many layers of them; inside a program this is recorded."""
        for side in self.sides:
            side.fill(u, layers)
        self.wrap(u)

    def fill_pressure(self, p: ml.Field) -> None:
        """The ghosts of the pressure: no slope at sides, for what flows through them is known."""
        for side in self.sides:
            side.fill_pressure(p)
        self.wrap(p)

    def wrap(self, field: ml.Field) -> None:
        """The ghosts of a field around periodic axes."""
        if any(self.cells.grid.periodic):
            ml.fill_ghosts(field, closed=None)

    @property
    def open_last_faces(self) -> list[Any]:
        """The ghosts with the last faces of axes through which not the same flows at all times: those of axes that go
        around, and of sides where the velocity is not given."""
        given = {side.axis for side in self.sides if side.given_through and side.end == HIGH}
        return [self.cells.layer(axis, n) for axis, n in enumerate(self.cells.shape) if axis not in given]

    def set_last_faces(self, faces: ml.Field) -> None:
        """The face velocities at the last faces of all other axes: nothing in a step touches them."""
        for side in self.sides:
            if side.given_through and side.end == HIGH:
                _set_through(side.axis)(side.faces, side.velocity, faces, *self.cells.fluid_within(1))

    def net_outflow(self, faces: ml.Field, found: ml.Global, share: float) -> None:
        """What flows out less what flows in, times ``share``; inside a program this is recorded."""
        found.value = 0.0
        for side in self.sides:
            given = (side.faces, faces, side.outwards * share, found)
            _flow_through(side.axis, self.cells.even)(*given, *self.cells.widths)

    def balance(self, faces: ml.Field) -> None:
        """What flows out is made as much as flows in, evenly over all ways out."""
        if not self.ways_out:
            return
        self.net_outflow(faces, self._excess, self._per_area)
        for side in self.ways_out:
            _let_out(side.axis)(side.faces, self._excess, side.outwards, faces, *self.cells.fluid_within(1))


@cache
def _mirrored(at: tuple[int, ...], rule: tuple[float, ...]) -> ml.Kernel:
    @ml.kernel
    def fill_velocity(inside: ml.Read, side: ml.Read, u: ml.Write):
        u[...] = np.stack([sign * inside[at][c] + (1.0 - sign) * side[c] for c, sign in enumerate(rule)])

    return fill_velocity


@cache
def _copied(at: tuple[int, ...]) -> ml.Kernel:
    @ml.kernel
    def fill_pressure(inside: ml.Read, p: ml.Write):
        p[...] = inside[at]

    return fill_pressure


@cache
def _flow_through(axis: int, even: tuple[bool, ...]) -> ml.Kernel:
    @ml.kernel
    def flow_through(faces: ml.Read, share: ml.Read, total: ml.Sum, *widths: ml.Read):
        total += share * faces[axis] * area(spacings(widths, even), axis)

    return flow_through


@cache
def _let_out(axis: int) -> ml.Kernel:
    @ml.kernel
    def let_out(excess: ml.Read, outwards: ml.Read, faces: ml.ReadWrite, *fluid: ml.Read):
        less = outwards * excess
        if fluid:
            less = Spacing(None, axis, len(faces), True, *fluid).if_open(-1, less, 0.0)
        faces[axis] = faces[axis] - less

    return let_out


@cache
def _set_through(axis: int) -> ml.Kernel:
    @ml.kernel
    def set_through(side: ml.Read, faces: ml.ReadWrite, *fluid: ml.Read):
        given = side[axis]
        faces[axis] = Spacing(None, axis, len(faces), True, *fluid).if_open(-1, given, 0.0) if fluid else given

    return set_through
