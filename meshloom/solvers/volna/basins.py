"""What all water cases share: their settings, and a case that is told its bed and its surface."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import (
    BROKEN,
    Case,
    FamilyConfig,
    Limit,
    OutputOptions,
    Picture,
    RunOptions,
    order_option,
    schedule_table,
)
from meshloom.config import option, section
from meshloom.errors import MeshError
from meshloom.solvers.clock import Timing
from meshloom.solvers.stable import doubts_longer
from meshloom.solvers.volna.flux import BED, H, U, V, Water
from meshloom.solvers.volna.geometry import cell_centres
from meshloom.solvers.volna.scheme import SCHEMES, FirstOrder, SecondOrder, WaterFlow

Region = tuple[float, float, float, float]  # xmin, xmax, ymin, ymax


@dataclass(frozen=True)
class VolnaMeshOptions:
    """Which mesh."""

    nx: int = option(100, "squares along x", low=1, high=50_000)
    ny: int = option(20, "squares along y", low=1, high=50_000)
    alternate: bool = option(False, "turn every other diagonal, as on a chessboard")
    file: str = option("", "a mesh file of triangles to use instead, such as coast.msh", path=True)
    order: str = order_option()


@dataclass(frozen=True)
class VolnaTimeOptions:
    """When to end, and the time step."""

    end: float = option(1.0, "seconds to compute", above=0.0, high=1e9)
    trim: bool = option(False, "shorten the last step to end exactly there; the original goes a little past it")
    growth: float = option(1.05, "a time step may be at most so many times as long as the last", above=1.0, high=100.0)
    least: float = option(1e-9, "stop when the time step falls below this, in seconds", above=0.0)


@dataclass(frozen=True)
class VolnaFlowOptions:
    """The water and the scheme."""

    scheme: str = option("v18", "v17: first order, HLL, two stages; v18: second order, HLLC, four", allowed=SCHEMES)
    gravity: float = option(9.81, "acceleration of gravity in m/s^2", above=0.0, high=1000.0)
    cfl: float = option(0.45, "length of the time step as a share of the stable one", above=0.0, high=1e3)
    dry: float = option(1e-6, "a depth in metres that counts as dry land", above=0.0, high=1.0)
    overdraft: float = option(
        1e-2, "stop when a step takes more water from a cell than it holds by this many metres", above=0.0
    )
    renew_rates: bool = option(
        False,
        "v18: evaluate the rates anew in the third stage, as third order in time would need; the original takes those"
        " of the first",
    )


@dataclass(frozen=True)
class WaterConfig(FamilyConfig):
    """The sections that all water cases have."""

    run: RunOptions = section(
        RunOptions, "How long at most, and on what; the original computes in single precision.",
        iterations=10_000_000, precision="single",
    )  # fmt: skip
    mesh: VolnaMeshOptions = section(
        VolnaMeshOptions, "The mesh: a rectangle of squares cut into two triangles each, or a file."
    )
    time: VolnaTimeOptions = section(VolnaTimeOptions, "When to end, and the time step.")
    flow: VolnaFlowOptions = section(VolnaFlowOptions, "The water and the scheme.")
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("fluxes")


class WaterCase(Case):
    """Water between walls, at rest at first. Subclasses say where: ``region``, ``bed`` and ``surface``."""

    monitors: ClassVar[tuple[str, ...]] = ("time", "dt", "volume", "energy")
    small: ClassVar[Mapping[str, Any]] = {"mesh.nx": 6, "mesh.ny": 4}
    flow: WaterFlow

    def __init__(self, config: Any):
        self.config = config
        self.mesh = self._mesh(config.mesh)
        self.flow = self._flow()
        flow = self.flow
        self.state: tuple[ml.Field | ml.Global, ...] = (flow.w, flow.time, flow.pace)
        self.recorded: tuple[ml.Global, ...] = (flow.time, flow.dt, flow.volume, flow.energy, flow.pace, flow.lowest)
        self.program = self._program()

    # --- where the water is

    @property
    @abstractmethod
    def region(self) -> Region:
        """The rectangle."""

    @abstractmethod
    def bed(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Height of the bed above the still surface, m."""

    @abstractmethod
    def surface(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Height of the water's surface at the start, m; where it is below the bed the land is dry."""

    def _mesh(self, options: VolnaMeshOptions) -> ml.Mesh:
        if options.file:
            mesh = ml.read(options.file, order=options.order)
            if mesh.kind != "triangle":
                raise MeshError(f"{options.file}: a mesh of {mesh.kind} cells; this case needs triangles in a plane")
            return mesh
        xmin, xmax, ymin, ymax = self.region
        return ml.generate.box(
            (options.nx, options.ny),
            cells="triangle",
            extent=(xmax - xmin, ymax - ymin),
            origin=(xmin, ymin),
            alternate=options.alternate,
        ).arranged(options.order)

    def _start(self) -> np.ndarray:
        """The state (cells, 4) at the start: at rest."""
        x, y = cell_centres(self.mesh, self.dtype).T
        bed = self.bed(x, y)
        depth = np.maximum(self.surface(x, y) - bed, self.config.flow.dry)
        return np.stack([depth, 0.0 * x, 0.0 * x, bed], axis=1).astype(self.dtype)

    def _flow(self) -> WaterFlow:
        flow, time = self.config.flow, self.config.time
        water, timing = Water(flow.gravity, flow.dry), Timing(time.end, time.trim, time.growth, flow.cfl)
        start = self._start()
        if flow.scheme == "v17":
            return FirstOrder(self.mesh, start, water, timing)
        return SecondOrder(self.mesh, start, water, timing, flow.renew_rates)

    def _program(self) -> ml.Program:
        @ml.program
        def iteration() -> None:
            self.flow.step()

        return iteration

    # --- what the runner asks

    @property
    def limits(self) -> Mapping[str, Limit]:  # type: ignore[override]
        """Waves that cross a cell in no time, and cells that are asked for more water than they have."""
        options = self.config
        goes_on = "a smaller time.least lets it go on; another mesh around that cell may help"
        step = Limit(above=options.time.least / options.flow.cfl, why="the time step collapses", cure=goes_on)
        depth = Limit(above=-options.flow.overdraft, why="the depth is negative")
        pace = Limit(above=options.time.least, why=step.why, cure=goes_on)
        return {"longest_step": step, "limit": step, "pace": pace, "depth": depth, "lowest": depth}

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        return recorded[:, : len(WaterCase.monitors)]

    def steps_left(self, recorded: np.ndarray) -> int:
        return self.flow.timing.steps_left(float(recorded[0]), float(recorded[4]))

    def doubts(self) -> tuple[str, ...]:
        return doubts_longer("flow.cfl", self.config.flow.cfl, 1.0)

    def cure(self, state: str) -> str:
        return "shorter steps (flow.cfl) or a finer mesh may help" if state == BROKEN else ""

    def time_span(self, recorded: np.ndarray) -> tuple[float, float]:
        return float(recorded[0]), self.config.time.end

    def cell_fields(self) -> dict[str, np.ndarray]:
        w = self.flow.w.local().astype(np.float64)
        return {"surface": w[:, H] + w[:, BED], "depth": w[:, H], "velocity": w[:, [U, V]], "bed": w[:, BED]}

    def picture(self) -> Picture:
        """The surface where there is water, the bed elsewhere."""
        surface = self.cell_fields()["surface"]
        return Picture(surface, "surface, m above still water", axes=("x, m", "y, m"), curves=("energy",))
