"""Measuring as a run goes: wishes are checked against the fields that there are before it starts, and a row is read
when one is due."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from meshloom.errors import UserError, nearest, shown
from meshloom.mesh.box import AXES
from meshloom.mesh.grid import Grid
from meshloom.mesh.integrals import Shares, of_points, over_cells, over_faces
from meshloom.mesh.locate import GridPlaces, MeshPlaces, Outside, Spot
from meshloom.run.samples import EVERYWHERE, Integral, Sampled, Track
from meshloom.run.task import RunTask
from meshloom.run.views import Chart
from meshloom.toml import toml_key


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
        known = self._positions
        if now.positions is not None and (known is None or not np.array_equal(now.positions, known)):
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
        return now.integral(self._shares[one], one.of)

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
        start, end = np.array(one.start), np.array(one.end)
        places = (start * (1.0 - share) + end * share for share in np.linspace(0.0, 1.0, one.points))
        return [self._spot_or_none(tuple(place.tolist()), now) for place in places]

    def _spot_or_none(self, place: tuple[float, ...], now: Sampled) -> Spot | None:
        """None where there is no cell."""
        try:
            return self._spot(place, now)
        except Outside:
            return None

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
        spots = [self._spot_or_none(one.at, now) for one in self.wishes.probes.values()]
        near = now.near(filter(None, spots))
        parts = [_values_at(spot, name, near) for spot, one in zip(spots, self.wishes.probes.values(), strict=True)
                 for name in one.fields or now.names]  # fmt: skip
        return np.concatenate([np.empty(0), *parts])

    def charts(self) -> tuple[Chart, ...]:
        """The lines now, over the distance from their starts."""
        if not self.wishes.tracks:
            return ()
        now, found = self._now(), []
        for name, one in self.wishes.tracks.items():
            names = one.fields or now.names
            spots = self._along(one, now)
            near = now.near(filter(None, spots))
            length = float(np.linalg.norm(np.subtract(one.end, one.start)))
            curves: dict[str, np.ndarray] = {}
            for each in names:
                rows = [_values_at(spot, each, near) for spot in spots]
                columns = zip(now.components(each), np.array(rows).T, strict=True)
                curves |= {f"{each}{part}": column for part, column in columns}
            x = np.linspace(0.0, length, one.points)
            found.append(Chart(name, x, curves, "distance", names[0] if len(names) == 1 else "value"))
        return tuple(found)

    def _now(self) -> Sampled:
        found = self.task.sampled()
        assert found is not None
        self._follow(found)
        return found


def _values_at(spot: Spot | None, name: str, near: Sampled) -> np.ndarray:
    """The components of a field at a place; not numbers where there is no cell."""
    return np.full(len(near.components(name)), np.nan) if spot is None else near.at(spot, name)


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
