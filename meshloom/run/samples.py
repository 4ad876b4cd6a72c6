"""What a run measures as it goes: values at points (probes), along lines, and integrals over parts.

A case is told by its settings, a script by arguments; both give the same wishes (``Wishes``), and fields by name
(``Sampled``). A ``Sampler`` checks them against each other before the run starts, and reads a row when one is due.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from meshloom.errors import UserError, nearest, shown
from meshloom.mesh.grid import Grid
from meshloom.mesh.integrals import Shares, of_points, over_cells, over_faces
from meshloom.mesh.locate import GridPlaces, MeshPlaces, Outside, Spot
from meshloom.mesh.mesh import Mesh
from meshloom.run.views import Chart
from meshloom.toml import toml_key

if TYPE_CHECKING:
    from meshloom.run.task import RunTask

MOST_POINTS = 100_000  # of a line
USUAL_POINTS, USUAL_EVERY = 200, 10
EVERYWHERE = "whole"
AXES = "xyz"


# --- what is wished for -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probe:
    """Values of fields (all, where none is named) at a place."""

    at: tuple[float, ...]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Track:
    """The same at so many places from one to another."""

    start: tuple[float, ...]
    end: tuple[float, ...]
    points: int = USUAL_POINTS
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Integral:
    """Of a field over all cells, those of a region, or the faces of a boundary group, there also times the normal, out
    of the domain."""

    of: str
    over: str = EVERYWHERE
    normal: bool = False


@dataclass(frozen=True)
class Wishes:
    """All of them by name. ``every``: iterations between rows; 0 leaves it to what there is to measure."""

    probes: Mapping[str, Probe] = field(default_factory=dict)
    tracks: Mapping[str, Track] = field(default_factory=dict)
    integrals: Mapping[str, Integral] = field(default_factory=dict)
    surface: tuple[str, ...] = ()  # boundary groups whose faces are written beside the fields
    every: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to measure."""
        return bool(self.probes or self.tracks or self.integrals or self.surface)

    @property
    def rows_every(self) -> int:
        """Iterations between rows; 0 where there is one at the end."""
        return self.every or (USUAL_EVERY if self.probes or self.integrals else 0)


def probe(value: Any) -> Probe:
    """[x, y] or {at = [x, y], fields = ["mach"]}; ValueError with what is wrong."""
    if isinstance(value, Mapping):
        parts = _parts(value, {"at", "fields"}, {"at"})
        return Probe(_place("at", parts["at"]), _words("fields", parts.get("fields", ())))
    return Probe(_place("", value))


def line(value: Any) -> Track:
    """{from = [x, y], to = [x, y], points = 100, fields = ["mach"]}."""
    if not isinstance(value, Mapping):
        raise ValueError(f"takes {{from = [x, y], to = [x, y], points = {USUAL_POINTS}}}, got {shown(value)}")
    parts = _parts(value, {"from", "to", "points", "fields"}, {"from", "to"})
    points = parts.get("points", USUAL_POINTS)
    if type(points) is not int or not 2 <= points <= MOST_POINTS:
        raise ValueError(f"has points {shown(points)}; it must be a whole number from 2 to {MOST_POINTS}")
    start, end = _place("from", parts["from"]), _place("to", parts["to"])
    if len(start) != len(end) or start == end:
        raise ValueError(f"must lead from one place to another, got from {list(start)} to {list(end)}")
    return Track(start, end, points, _words("fields", parts.get("fields", ())))


def integral(value: Any) -> Integral:
    """ "pressure" or {of = "pressure", over = "wall", normal = true}."""
    if isinstance(value, str):
        return Integral(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"takes the name of a field or {{of = field, over = group}}, got {shown(value)}")
    parts = _parts(value, {"of", "over", "normal"}, {"of"})
    normal = parts.get("normal", False)
    for key in ("of", "over"):
        if not isinstance(parts.get(key, ""), str):
            raise ValueError(f"has {key} {shown(parts[key])}; it must be a name")
    if not isinstance(normal, bool):
        raise ValueError(f"has normal {shown(normal)}; it must be true or false")
    return Integral(parts["of"], parts.get("over", EVERYWHERE), normal)


def _parts(value: Mapping[str, Any], known: set[str], needed: set[str]) -> Mapping[str, Any]:
    for key in value:
        if key not in known:
            raise ValueError(f"has the unknown key {shown(key)}{nearest(str(key), sorted(known))}")
    for key in sorted(needed - set(value)):
        raise ValueError(f"has no {key}; it takes {', '.join(sorted(known))}")
    return value


def _place(key: str, value: Any) -> tuple[float, ...]:
    numbers = value if isinstance(value, list | tuple | np.ndarray) else ()
    right = [isinstance(v, int | float | np.number) and not isinstance(v, bool) and math.isfinite(v) for v in numbers]
    if not 1 <= len(right) <= 3 or not all(right):
        what = f"has {key} {shown(value)}" if key else f"is {shown(value)}"
        raise ValueError(f"{what}; a place is [x, y], or [x, y, z] in space")
    return tuple(map(float, numbers))


def _words(key: str, value: Any) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(one, str) for one in words):
        raise ValueError(f"has {key} {shown(value)}; it takes names in brackets")
    return tuple(words)


# --- what there is ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sampled:
    """Fields as they are now: on cells and nodes of a mesh, (n, ...) each, or at points of a grid, (*shape, ...).
    ``positions`` (nodes, d): where the nodes of a mesh that moves are."""

    home: Mesh | Grid
    cells: Mapping[str, np.ndarray] = field(default_factory=dict)
    nodes: Mapping[str, np.ndarray] = field(default_factory=dict)
    points: Mapping[str, np.ndarray] = field(default_factory=dict)
    positions: np.ndarray | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.cells, *(n for n in self.nodes if n not in self.cells), *self.points)

    @property
    def dim(self) -> int:
        return self.home.rank if isinstance(self.home, Grid) else self.home.dim

    def rows(self, name: str) -> np.ndarray:
        """The values of a field, (n, ...); the points of a grid in a row."""
        if name in self.points:
            values = self.points[name]
            return values.reshape(-1, *values.shape[self.dim :])
        return self.cells[name] if name in self.cells else self.nodes[name]

    def at(self, spot: Spot, name: str) -> np.ndarray:
        """The components of a field at a place, (k,)."""
        values = self.rows(name)
        value = values[spot.cell] if name in self.cells else spot.of_points(values)
        return np.asarray(value, float).reshape(-1)

    def components(self, name: str) -> list[str]:
        """``[""]`` of a number, ``["[0]", "[1]"]`` of a vector."""
        values = {**self.points, **self.nodes, **self.cells}[name]
        shape = values.shape[self.dim if name in self.points else 1 :]
        return [""] if math.prod(shape) == 1 and not shape else [f"[{k}]" for k in range(math.prod(shape))]


class Sampler:
    """What a task measures. UserError where it wishes for what is not there: a place outside, an unknown name."""

    def __init__(self, task: RunTask):
        self.task, self.wishes = task, task.wishes
        self.coefficients = tuple(task.coefficients())
        found = task.sampled() if self.wishes else None
        if self.wishes and found is None:
            raise UserError(f"{task.name} has no fields on a mesh or grid, so there is nothing to measure")
        self._positions: np.ndarray | None = None  # of the nodes, when the following was made
        self._places: MeshPlaces | GridPlaces | None = None
        self._spots: dict[tuple[float, ...], Spot] = {}
        self._shares: dict[Integral, Shares] = {}
        self.probe_names: tuple[str, ...] = ()
        self.integral_names: tuple[str, ...] = self.coefficients
        if found is not None:
            self._follow(found)
            self._check(found)

    def _check(self, now: Sampled) -> None:
        for name, one in self.wishes.probes.items():
            self._check_fields(("probes", name), one.fields, now)
            self._located(("probes", name), one.at, now)
        for name, along in self.wishes.tracks.items():
            self._check_fields(("lines", name), along.fields, now)
            self._check_line(name, along, now)
        for name, over in self.wishes.integrals.items():
            self._check_integral(name, over, now)
        self._check_surface(now)
        self.probe_names = tuple(f"{name}.{one}{part}" for name, each in self.wishes.probes.items()
                                 for one in each.fields or now.names for part in now.components(one))  # fmt: skip
        own = tuple(f"{name}{part}" for name, one in self.wishes.integrals.items()
                    for part in self._integral_parts(one, now))  # fmt: skip
        twice = [name for name in own if name in self.coefficients]
        if twice:
            raise UserError(f"integrals.{toml_key((twice[0],))}: the case has a coefficient of that name; take another")
        self.integral_names = (*self.coefficients, *own)

    @property
    def wished_names(self) -> tuple[str, ...]:
        """What a person has named, without what the case tells by itself."""
        return (*self.integral_names[len(self.coefficients) :], *self.probe_names)

    def _check_fields(self, key: tuple[str, str], names: tuple[str, ...], now: Sampled) -> None:
        for name in names:
            if name not in now.names:
                raise UserError(f"{toml_key(key)} names the field {shown(name)}{nearest(name, now.names)}")

    def _check_integral(self, name: str, one: Integral, now: Sampled) -> None:
        key, home = ("integrals", name), now.home
        self._check_fields(key, (one.of,), now)
        groups, regions = ((), ()) if isinstance(home, Grid) else (tuple(home.groups), tuple(home.cell_groups))
        if one.over not in (EVERYWHERE, *groups, *regions):
            raise UserError(
                f"{toml_key(key)} is over {shown(one.over)}{nearest(one.over, (EVERYWHERE, *regions, *groups))}"
            )
        if one.normal and (one.over not in groups or now.components(one.of) != [""]):
            raise UserError(f"{toml_key(key)}: normal = true is for a field of one number over a boundary group")

    def _integral_parts(self, one: Integral, now: Sampled) -> list[str]:
        return [f"[{axis}]" for axis in range(now.dim)] if one.normal else now.components(one.of)

    def _check_surface(self, now: Sampled) -> None:
        groups = {} if isinstance(now.home, Grid) else now.home.groups
        for name in self.wishes.surface:
            if name not in groups:
                none = "; a grid has none" if isinstance(now.home, Grid) else nearest(name, groups)
                raise UserError(f"surface names {shown(name)}, which is no boundary group{none}")

    def _check_line(self, name: str, one: Track, now: Sampled) -> None:
        self._dimension(("lines", name), one.start, now)
        if all(spot is None for spot in self._along(one, now)):
            raise UserError(f"lines.{toml_key((name,))} from {list(one.start)} to {list(one.end)} meets no cell")

    # --- places

    def _follow(self, now: Sampled) -> None:
        """What was made of the nodes goes where they have moved, in another array or in the same one."""
        if now.positions is not None and not _equal(now.positions, self._positions):
            self._places = None
            self._spots.clear()
            self._shares.clear()
            self._positions = np.array(now.positions)

    def _spot(self, place: tuple[float, ...], now: Sampled) -> Spot:
        if place not in self._spots:
            if self._places is None:
                home = now.home
                self._places = GridPlaces(home) if isinstance(home, Grid) else MeshPlaces(home, now.positions)
            self._spots[place] = self._places.spot(place)
        return self._spots[place]

    def _integral(self, one: Integral, now: Sampled) -> np.ndarray:
        """Its components, or those of the normal."""
        if one not in self._shares:
            self._shares[one] = _shares_of(one, now)
        return self._shares[one].of(now.rows(one.of))

    def _dimension(self, key: tuple[str, str], place: tuple[float, ...], now: Sampled) -> None:
        if len(place) != now.dim:
            wanted = f"[{', '.join(AXES[: now.dim])}]"
            raise UserError(f"{toml_key(key)} is at {list(place)}; a place here is {wanted}")

    def _located(self, key: tuple[str, str], place: tuple[float, ...], now: Sampled) -> Spot:
        self._dimension(key, place, now)
        try:
            return self._spot(place, now)
        except Outside as error:
            raise UserError(f"{toml_key(key)} at ({', '.join(f'{v:g}' for v in place)}) {error}") from None

    def _along(self, one: Track, now: Sampled) -> list[Spot | None]:
        """The places of a line; None where there is no cell."""
        found: list[Spot | None] = []
        for share in np.linspace(0.0, 1.0, one.points):
            place = tuple((np.array(one.start) * (1.0 - share) + np.array(one.end) * share).tolist())
            try:
                found.append(self._spot(place, now))
            except Outside:
                found.append(None)
        return found

    # --- values

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The values of ``probe_names`` and of ``integral_names`` now: of fields that are read once for both."""
        own = np.array([*self.task.coefficients().values()], float)
        if not (self.wishes.probes or self.wishes.integrals):
            return np.empty(0), own
        now = self._now()
        integrals = [self._integral(one, now) for one in self.wishes.integrals.values()]
        return self._probe_row(now), np.concatenate([own, *integrals])

    def _probe_row(self, now: Sampled) -> np.ndarray:
        """Not a number where a mesh has moved away."""
        parts = []
        for one in self.wishes.probes.values():
            names = one.fields or now.names
            try:
                spot = self._spot(one.at, now)
                parts += [now.at(spot, name) for name in names]
            except Outside:
                parts += [np.full(len(now.components(name)), np.nan) for name in names]
        return np.concatenate([np.empty(0), *parts])

    def charts(self) -> tuple[Chart, ...]:
        """The lines now, over the distance from their starts."""
        if not self.wishes.tracks:
            return ()
        now, found = self._now(), []
        for name, one in self.wishes.tracks.items():
            names = one.fields or now.names
            spots = self._along(one, now)
            length = float(np.linalg.norm(np.subtract(one.end, one.start)))
            curves: dict[str, np.ndarray] = {}
            for each in names:
                parts = now.components(each)
                rows = [np.full(len(parts), np.nan) if spot is None else now.at(spot, each) for spot in spots]
                curves |= {f"{each}{part}": column for part, column in zip(parts, np.array(rows).T, strict=True)}
            x = np.linspace(0.0, length, one.points)
            found.append(Chart(name, x, curves, "distance", names[0] if len(names) == 1 else "value"))
        return tuple(found)

    def _now(self) -> Sampled:
        found = self.task.sampled()
        assert found is not None
        self._follow(found)
        return found


def _equal(one: np.ndarray, other: np.ndarray | None) -> bool:
    return other is not None and np.array_equal(one, other)


def check_measured(task: RunTask) -> Sampler:
    """What a task measures; UserError where that is not there, or where it ends at a monitor that it has not."""
    _ = task.stops_at
    with np.errstate(all="ignore"):
        found = Sampler(task)
        if task.wishes.tracks:
            _check_chart_names(task)
    return found


def _check_chart_names(task: RunTask) -> None:
    """UserError where a line would take the file of a chart that the task has at its end."""
    own: tuple[Chart, ...] = ()
    with suppress(Exception):  # what is wrong with them is told elsewhere, with its place
        row = task.monitor_rows(task.recorded_now()[None, :])
        own = task.charts(dict(zip(task.monitors, row.T, strict=True)))
    for chart in own:
        if chart.name in task.wishes.tracks:
            raise UserError(f"lines.{toml_key((chart.name,))}: {task.name} has a chart of that name; take another")


def _shares_of(one: Integral, now: Sampled) -> Shares:
    """What an integral is a weighted sum of."""
    home = now.home
    if isinstance(home, Grid):
        return of_points(home)
    x, on_nodes = home.coordinates.numpy() if now.positions is None else now.positions, one.of not in now.cells
    if one.over in home.groups:
        return over_faces(home, x, home.group(one.over), on_nodes=on_nodes, normal=one.normal)
    return over_cells(home, x, None if one.over == EVERYWHERE else home.cell_groups[one.over], on_nodes=on_nodes)
