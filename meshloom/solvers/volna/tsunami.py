"""A tsunami: the floor of the sea rises, and the waves run around an island and up a beach.

The sea is a rectangle with walls. From the deep part in the west the floor rises to a shelf and a beach in the east; an
island, a cone with flat shores, stands between. The source is a rise of the sea floor, by a bell-shaped amount, which
lifts the water that stands on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Chart, Picture, defaults
from meshloom.config import option, section, table
from meshloom.solvers.volna.basins import Region, WaterCase, WaterConfig
from meshloom.solvers.volna.flux import BED, H
from meshloom.solvers.volna.gauges import Gauges, check_place
from meshloom.solvers.volna.geometry import cell_centres
from meshloom.toml import toml_key

FILM = 1e-2  # m: less water than this is no flood


@dataclass(frozen=True)
class SeaOptions:
    """The sea and its beach, in metres."""

    length: float = option(100e3, "size from west to east, m", above=0.0)
    width: float = option(60e3, "size from south to north, m", above=0.0)
    depth: float = option(1000.0, "depth of the deep part, m", above=0.0)
    shelf: float = option(85e3, "x where the shelf begins, m; it goes on as a plain on land", low=0.0)
    shelf_slope: float = option(1e-3, "slope of shelf and plain", above=0.0, high=1.0)
    slope: float = option(0.05, "slope of the floor between the deep part and the shelf", above=0.0, high=10.0)
    beach: float = option(95e3, "x of the water's edge, m", above=0.0)


@dataclass(frozen=True)
class IslandOptions:
    """A cone with flat shores."""

    x: float = option(60e3, "x of its middle, m")
    y: float = option(30e3, "y of its middle, m")
    radius: float = option(5e3, "radius of its shore, m", above=0.0)
    slope: float = option(0.1, "slope of its sides under water", above=0.0, high=10.0)
    shore_slope: float = option(1e-3, "slope of its shore, up to its top", above=0.0, high=10.0)


@dataclass(frozen=True)
class UpliftOptions:
    """How the floor rises: by ``height`` in the middle, 1/e of it along an ellipse around it."""

    x: float = option(25e3, "x of its middle, m")
    y: float = option(30e3, "y of its middle, m")
    length: float = option(15e3, "half axis from south to north, m", above=0.0)
    width: float = option(6e3, "half axis from west to east, m", above=0.0)
    height: float = option(5.0, "rise in the middle, m; negative for a fall")
    duration: float = option(20.0, "seconds that it takes; 0: at once", low=0.0)


CHART_X = "time, s"


def check_gauge(name: str, place: Any) -> None:
    """ValueError unless it is a place, with a name that nothing else in monitors.csv or in the chart has."""
    check_place(name, place)
    if name in (taken := ("iteration", *WaterCase.monitors)):
        raise ValueError(f"has a name that monitors.csv uses already ({', '.join(taken)}); take another")
    if name == CHART_X:
        raise ValueError("has a name that chart_gauges.csv uses already; take another")


@dataclass(frozen=True)
class TsunamiConfig(WaterConfig):
    mesh = defaults(nx=160, ny=96, alternate=True)
    time = defaults(end=2400.0, trim=True)
    sea: SeaOptions = section(SeaOptions, "The sea and its beach.")
    island: IslandOptions = section(IslandOptions, "The island.")
    uplift: UpliftOptions = section(UpliftOptions, "The source: a rise of the sea floor.")
    gauges: dict[str, Any] = table(
        "Wave gauges: a name and a place each, such as harbour = [94e3, 30e3]; [] takes one away.",
        check_gauge,
        {"deep": [45e3, 30e3], "front": [54e3, 30e3], "behind": [66e3, 30e3], "shelf": [90e3, 30e3]},
    )


@ml.kernel
def rise(time: ml.Read, duration: ml.Read, share: ml.Write):
    """How much of the rise has happened."""
    share[...] = np.minimum(time / duration, 1.0)


@ml.kernel
def lift_floor(floor: ml.Read, uplift: ml.Read, share: ml.Read, w: ml.ReadWrite):
    """The floor moves, and the water with it."""
    w[BED] = floor + share * uplift


@ml.kernel
def remember(w: ml.Read, peak: ml.Max):
    """The highest surface, where there is water, and the greatest depth."""
    peak[0] = np.where(w[H] > FILM, w[H] + w[BED], w[BED])
    peak[1] = w[H]


class Tsunami(WaterCase):
    """The sea floor rises; gauges write what passes them, and the highest water of every cell is kept."""

    name: ClassVar[str] = "tsunami"
    title: ClassVar[str] = "a rise of the sea floor sends waves to an island and a beach (shallow water; Volna)"
    Config: ClassVar[type] = TsunamiConfig
    shown: ClassVar[tuple[str, ...]] = WaterCase.monitors

    def __init__(self, config: TsunamiConfig):
        super().__init__(config)
        self.monitors = (*WaterCase.monitors, *self.gauges.names)  # type: ignore[misc]
        self.state = (*self.state, self.peak)
        if self.gauges.names:
            self.recorded = (*self.recorded, self.gauges.levels)

    # --- the sea

    @property
    def region(self) -> Region:
        return 0.0, self.config.sea.length, 0.0, self.config.sea.width

    def bed(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Height of the floor before it moves."""
        sea, island = self.config.sea, self.config.island
        plain = sea.shelf_slope * (x - sea.beach)
        slope = sea.shelf_slope * (sea.shelf - sea.beach) + sea.slope * (x - sea.shelf)
        inland = island.radius - np.hypot(x - island.x, y - island.y)
        cone = np.where(inland > 0.0, island.shore_slope, island.slope) * inland
        return np.maximum(np.maximum(np.minimum(plain, slope), -sea.depth), cone)

    def surface(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.zeros_like(x)

    def uplift(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """How much the floor rises in all."""
        by = self.config.uplift
        return by.height * np.exp(-(((x - by.x) / by.width) ** 2) - ((y - by.y) / by.length) ** 2)

    # --- one iteration

    def _start(self) -> np.ndarray:
        """At rest; a rise that takes no time has happened already, and the water stands on it."""
        start = super()._start()
        if self.config.uplift.duration == 0.0:
            start[:, BED] += self.uplift(*cell_centres(self.mesh, self.dtype).T)
        return start

    def _program(self) -> ml.Program:
        flow, cells = self.flow, self.mesh.cells
        start = flow.w.numpy()
        self.peak = cells.field("peak", 2, data=np.stack([start[:, H] + start[:, BED], start[:, H]], axis=1))
        self.gauges = Gauges(self.mesh, self.config.gauges, flow.w)
        move_floor = self._moving_floor() if self.config.uplift.duration > 0.0 else None

        @ml.program
        def iteration() -> None:
            flow.step()
            if move_floor is not None:
                move_floor()
            remember(cells, flow.w, self.peak)
            self.gauges.read()

        return iteration

    def _moving_floor(self) -> Callable[[], None]:
        """The loops that bring the floor to where it is at the end of a step."""
        flow, cells, dtype = self.flow, self.mesh.cells, self.dtype
        x, y = cell_centres(self.mesh, dtype).T
        floor = cells.field("floor", dtype=dtype, data=self.bed(x, y))
        uplift = cells.field("uplift", dtype=dtype, data=self.uplift(x, y))
        duration = ml.Global(self.config.uplift.duration, "duration")
        share = ml.Global(0.0, "share", dtype=dtype)

        def move() -> None:
            rise(flow.clock.set, flow.time, duration, share)
            lift_floor(cells, floor, uplift, share, flow.w)

        return move

    # --- what comes out

    def why_not_after(self, before: TsunamiConfig) -> str:
        """A column of monitors.csv is one place."""
        both = (name for name in self.gauges.names if name in before.gauges)
        places = ((name, [*before.gauges[name]], [*self.config.gauges[name]]) for name in both)
        moved = [f"{toml_key((name,))} from {old} to {new}" for name, old, new in places if old != new]
        return f"a gauge cannot move at a restart ({', '.join(moved)}); give another name and run anew" if moved else ""

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        levels = recorded[:, recorded.shape[1] - len(self.gauges.names) :]
        return np.hstack([super().monitor_rows(recorded), levels])

    def cell_fields(self) -> dict[str, np.ndarray]:
        """With the highest surface, and the greatest depth of water that stood on land, 0 at sea."""
        surface, depth = self.peak.local().astype(np.float64).T
        inundation = np.where(self._is_land(), depth, 0.0)
        return super().cell_fields() | {"highest_surface": surface, "inundation": inundation}

    def _is_land(self) -> np.ndarray:
        """Where the floor stood above the sea before it moved, of this rank's cells."""
        return self.bed(*cell_centres(self.mesh, self.dtype)[self.mesh.cells.mine].T) > 0.0

    def picture(self) -> Picture:
        fields = self.cell_fields()
        values = np.where(fields["depth"] > FILM, fields["surface"], np.nan)
        curves = self.gauges.names or ("energy",)
        return Picture(values, "surface, m above still water", axes=("x, m", "y, m"), curves=curves)

    def maps(self) -> dict[str, Picture]:
        """How high the water came on land, and how high the waves were at sea."""
        fields = self.cell_fields()
        flooded = fields["inundation"] > FILM
        runup = np.where(flooded, fields["highest_surface"], np.nan)
        sea = np.where(self._is_land(), np.nan, fields["highest_surface"])
        return {
            "runup": Picture(runup, "run-up: highest water on land, m", self._coast(flooded), ("x, m", "y, m")),
            "highest": Picture(sea, "highest water, m", axes=("x, m", "y, m")),
        }

    def _coast(self, flooded: np.ndarray) -> Region | None:
        """A window around what was flooded of this rank's cells, and of others'; None, everything, where nothing
        was."""
        own = self.mesh.cell_nodes.indices[self.mesh.cells.mine[flooded]].reshape(-1)
        corners = self.mesh.coordinates.numpy()[own]
        ends = np.array([*corners.min(axis=0, initial=np.inf), *-corners.max(axis=0, initial=-np.inf)])
        xmin, ymin, xmax, ymax = np.min(ml.world.allgathered(ends, "what was flooded"), axis=0) * (1, 1, -1, -1)
        if xmin > xmax:
            return None
        margin = 0.05 * max(xmax - xmin, ymax - ymin)
        return float(xmin - margin), float(xmax + margin), float(ymin - margin), float(ymax + margin)

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        curves = {name: history[name] for name in self.gauges.names}
        return (Chart("gauges", history["time"], curves, CHART_X, "surface, m"),) if curves else ()
