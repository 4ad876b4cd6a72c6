"""What the flow cases share on the command line: settings, fields, charts, limits and the clock."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom import compact
from meshloom.case import BROKEN, FamilyConfig, GridCase, Image, Limit, OutputOptions, RunOptions, schedule_table
from meshloom.case.even_steps import EvenSteps
from meshloom.case.on_grid import SOLVES_ALONG_LINES
from meshloom.config import option, section
from meshloom.errors import ConfigError
from meshloom.solvers.navier_stokes.equations import DIVERGENCE, Equations
from meshloom.solvers.navier_stokes.flow import MONITORS, Boundaries, GasFlow
from meshloom.solvers.navier_stokes.gas import Gas, squared, vorticity
from meshloom.solvers.navier_stokes.stability import Stream, chosen_step
from meshloom.solvers.stable import step_settings

SCHEME_DOC = "How the equations are made discrete."
_LEAST = Limit(above=0.0, why="it is a density")
_DENSITY = replace(_LEAST, component=0)  # of q


@dataclass(frozen=True)
class FlowTimeOptions:
    """When to end, and how long a step is."""

    end: float = option(2.0, "time at the end", above=0.0)
    cfl: float = option(1.0, "Courant number: points that the fastest wave passes in a step", above=0.0, high=100.0)
    dt: float = option(0.0, "length of a step; 0 takes it from cfl", low=0.0)


@dataclass(frozen=True)
class FlowSchemeOptions:
    """How the equations are made discrete."""

    retired: ClassVar[Mapping[str, str]] = {"passes": "what is stored between loops is decided where they run"}

    solver: str = option(
        "auto",
        "what solves the tridiagonal systems along lines",
        allowed=lambda: ("auto", *ml.linalg.tridiagonal.methods()),
    )


@dataclass(frozen=True)
class FlowFilterOptions:
    """A compact low-pass filter along every axis."""

    order: int = option(0, "order of the filter, an even number; 0 leaves it out", low=0, high=10)
    alpha: float = option(0.49, "the nearer 0.5, the fewer waves are damped", above=-0.5, high=0.4999)

    @property
    def scheme(self) -> Any:
        """The filter, or None."""
        return compact.filters(self.order, self.alpha) if self.order else None


@dataclass(frozen=True)
class FlowProblem(FamilyConfig):
    """What is to be computed: the first sections of every case."""

    run: RunOptions = section(RunOptions, "How many steps at most, and on what.", iterations=10_000_000)
    mesh: Any = None  # sections of the case's own
    flow: Any = None


@dataclass(frozen=True)
class FlowMethod(FamilyConfig):
    """How it is computed, until when, and what is written: the last sections of every case."""

    time: FlowTimeOptions = section(FlowTimeOptions, "Time steps.")
    scheme: FlowSchemeOptions = section(FlowSchemeOptions, SCHEME_DOC)
    filter: FlowFilterOptions = section(FlowFilterOptions, "A low-pass filter of the solution after every step.")
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("rk_first")


class FlowCase(GridCase):
    """Compressible flow on a grid. Subclasses say where, of what, from what on, and what happens at the boundaries."""

    monitors: ClassVar[tuple[str, ...]] = MONITORS
    not_on_ranks: ClassVar[str] = SOLVES_ALONG_LINES
    limits: Mapping[str, Limit] = {"q": _DENSITY, "q_stage": _DENSITY, "lowest_density": _LEAST}
    drawn: ClassVar[tuple[str, ...]] = ("vorticity",)  # the monitors beside the picture
    gas: Gas
    flow: GasFlow

    def __init__(self, config: Any):
        self.config = config
        self.gas, self.grid = self.make_gas(), self.make_grid()
        _check_size(self.grid)
        step = chosen_step(config.time.dt, config.time.cfl, self.gas, self.fastest_stream(), self.grid.spacing)
        self.flow = GasFlow(
            Equations(self.grid, self.gas, self.form, method=config.scheme.solver, dtype=self.dtype),
            self.initial_state(),
            EvenSteps(step, config.time.end),
            boundaries=self.boundaries(),
            smoothing=config.filter.scheme,
        )
        self.state, self.recorded = self.flow.state, self.flow.recorded
        self.program = ml.program(self.flow.time_step)

    def cure(self, state: str) -> str:
        if state != BROKEN:
            return ""
        form = "scheme.form = \"split\", " if getattr(self.config.scheme, "form", "split") != "split" else ""
        steps = step_settings(self.config.time)
        return f"shorter steps ({steps}), a finer grid, {form}or a filter (filter.order) may help"

    @property
    def form(self) -> str:
        """Of the equations."""
        return DIVERGENCE

    @abstractmethod
    def make_gas(self) -> Gas: ...

    @abstractmethod
    def make_grid(self) -> ml.Grid: ...

    @abstractmethod
    def fastest_stream(self) -> Stream:
        """What the time step must be short enough for."""

    @abstractmethod
    def initial_state(self) -> np.ndarray:
        """q (d + 2, *shape) at the start."""

    def boundaries(self) -> Boundaries | None:
        """What happens at the ends of closed axes."""
        return None

    # --- what the runner asks for

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        return self.flow.monitor_rows(recorded)

    def steps_left(self, recorded: np.ndarray) -> int:
        return self.flow.clock.steps_left(float(recorded[0]))

    def ends_a_whole_step(self, time: float) -> bool:
        return self.flow.clock.is_whole(time)

    def time_span(self, recorded: np.ndarray) -> tuple[float, float]:
        return float(recorded[0]), self.config.time.end

    def grid_fields(self) -> dict[str, np.ndarray]:
        grid, flow = self.grid, self.flow
        state = self.gas.state(np.moveaxis(grid.shaped(flow.q).astype(np.float64), -1, 0))
        slopes = [np.moveaxis(grid.shaped(one).astype(np.float64), -1, 0) for one in flow.slopes]
        curl = vorticity(slopes)
        return {
            "density": state.density,
            "velocity": np.moveaxis(state.velocity, 0, -1),
            "pressure": state.pressure,
            "temperature": state.temperature,
            "vorticity": curl[0] if len(curl) == 1 else np.sqrt(squared(curl)),
        }

    def picture(self) -> Image:
        return self.plane_image(self.grid_fields()["vorticity"], "vorticity", self.drawn)


def _check_size(grid: ml.Grid) -> None:
    """ConfigError where a line is too short for the scheme."""
    least = compact.LELE6.least_points
    if min(grid.shape) < least:
        raise ConfigError(f"mesh.points = {min(grid.shape)}: the scheme needs at least {least} points along every axis")
