"""What the incompressible cases share on the command line: settings into a flow, the clock, monitors and pictures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import BROKEN, GridCase, Image, Limit, Streamlines
from meshloom.case.even_steps import EvenSteps
from meshloom.case.on_grid import SOLVES_FOR_PRESSURE
from meshloom.errors import ConfigError
from meshloom.solvers.fractional_step.boundary_conditions import Condition
from meshloom.solvers.fractional_step.cells import CellGrid, Velocity
from meshloom.solvers.fractional_step.energy import LOST, EnergyBudget
from meshloom.solvers.fractional_step.flow import IncompressibleFlow
from meshloom.solvers.fractional_step.implicit import LEFT, RESIDUAL
from meshloom.solvers.fractional_step.options import STAGGERED
from meshloom.solvers.fractional_step.schemes import SCHEMES, TimeScheme
from meshloom.solvers.fractional_step.staggered import StaggeredFlow
from meshloom.solvers.stable import doubts_longer, step_settings

MONITORS = ("time", "kinetic_energy", "divergence", "change", LOST)  # of every case; others come behind them
STEADY_EVERY = 100  # steps from one question whether the flow is steady to the next
_LEFT_CURE = "shorter steps (time.dt) may help"
ENOUGH = 1e7  # times what sweeps should leave of a usual speed: more is left only where they do not converge
MOST = 1e6  # times a usual speed: more is no flow any more


class IncompressibleCase(GridCase):
    """Incompressible flow on a grid of cells. Subclasses say where, how viscous, from what on, and what holds at the
    sides. Speeds and lengths are in units of the case, so that a speed of 1 is a usual one."""

    monitors: ClassVar[tuple[str, ...]] = MONITORS
    not_on_ranks: ClassVar[str] = SOLVES_FOR_PRESSURE
    element_name: ClassVar[str] = "cells"
    limits: Mapping[str, Limit] = {"velocity": Limit(-MOST, MOST), "energy": Limit(-1.0, MOST**2)}
    added: frozenset[str] = frozenset(EnergyBudget.names)
    drawn: ClassVar[tuple[str, ...]] = ("change",)  # the monitors beside the picture
    cells: CellGrid
    flow: IncompressibleFlow
    looked: tuple[ml.Global, ...]
    longest: float  # of the steps that are known to be stable

    def __init__(self, config: Any):
        self.config = config
        self.cells = self.make_cells(self.dtype)
        self.grid = self.cells.grid
        scheme = SCHEMES[config.scheme.time]
        self.longest = self.longest_step(scheme)
        step = _chosen_step(config.time, self.longest)
        form = StaggeredFlow if config.scheme.form == STAGGERED else IncompressibleFlow
        self.flow = form(
            self.cells,
            self.conditions(),
            self.viscosity,
            EvenSteps(step, config.time.end),
            scheme=scheme,
            convection=config.scheme.convection,
            fade=max(config.scheme.fade, step),
            solver=config.pressure.solver,
            tolerance=config.pressure.tolerance,
            force=self.force,
            look=self.look,
        )
        self.looked = tuple(ml.Global(0.0, name) for name in self.monitors[len(MONITORS) :])
        further = self.further_state()
        self.flow.start(self.start_velocity())
        self.state, self.recorded = (*self.flow.state, *further), (*self.flow.recorded, *self.looked)
        self.recorded += self.flow.watched
        left = Limit(-1.0, ENOUGH * LEFT[self.cells.dtype], "the viscous term was not solved for", cure=_LEFT_CURE)
        self.limits = {**self.limits, RESIDUAL: left}
        self.program = self.flow.step

    @abstractmethod
    def make_cells(self, dtype: Any) -> CellGrid: ...

    @abstractmethod
    def conditions(self) -> Mapping[tuple[int, str], Condition]:
        """What holds at every closed end: (axis, "low" or "high") -> condition."""

    @property
    def viscosity(self) -> float:
        """One over the Reynolds number."""
        return 1.0 / self.config.flow.reynolds

    @property
    def force(self) -> float:
        """What drives the fluid along x, per mass."""
        return 0.0

    @abstractmethod
    def fastest(self) -> tuple[float, ...]:
        """Along each axis the largest speed to be expected: what the time step must be short enough for."""

    def start_velocity(self) -> np.ndarray | float | Velocity:
        """Velocities (*shape, dim) at the start, or, where there is a formula, a function of place: with velocities at
        faces that is asked there."""
        return 0.0

    def further_state(self) -> tuple[ml.Field | ml.Global, ...]:
        """What ``look`` hands from one step to the next."""
        return ()

    def look(self) -> None:
        """Loops at the end of a step that set ``looked``, the globals of the monitors beyond the usual ones."""

    def longest_step(self, scheme: TimeScheme) -> float:
        """The longest that is known to be stable, for the narrowest cells and the speeds of ``fastest``."""
        speeds, widths = self.fastest(), self.cells.narrowest
        convection = sum(speed / width for speed, width in zip(speeds, widths, strict=True))
        diffusion = 4.0 * self.viscosity * sum(1.0 / width**2 for width in widths)
        slowed = sum(speed**2 for speed in speeds) / self.viscosity if self.viscosity > 0.0 else np.inf
        return scheme.longest_step(convection, diffusion, slowed)

    # --- what the runner asks for

    def doubts(self) -> tuple[str, ...]:
        """No step is refused: the bound is for the largest speeds that are expected, all at one place; more may do."""
        time = self.config.time
        return doubts_longer("time.dt", time.dt, self.longest) if time.dt else doubts_longer("time.cfl", time.cfl, 1.0)

    def cure(self, state: str) -> str:
        return f"shorter steps ({step_settings(self.config.time)}) or a finer grid may help" if state == BROKEN else ""

    def restored(self) -> None:
        """The ghosts that this form and convection look at, and where kinetic energy is counted from."""
        self.flow.restored()

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        """Kinetic energies are means over the volume; columns in the order of ``monitors``."""
        rows = recorded[:, : len(self.monitors)].copy()
        rows[:, [1, MONITORS.index(LOST)]] /= self.cells.volume
        return rows

    def steps_left(self, recorded: np.ndarray) -> int:
        """Until the end, or until it is asked whether the flow is steady; which is after every so many steps, however
        the run is cut into pieces."""
        clock, (time, change) = self.flow.clock, recorded[[0, 3]]
        left, done = clock.steps_left(float(time)), round(float(time) / clock.step)
        if self.config.time.steady == 0.0 or left == 0:
            return left
        since = done % STEADY_EVERY
        if done and since == 0 and change < self.config.time.steady:
            return 0
        return min(left, STEADY_EVERY - since)

    def early_end(self) -> str:
        steady = self.config.time.steady
        return f"steady by time.steady = {steady:g}" if steady > 0.0 else ""

    @property
    def residual(self) -> tuple[str, float | None] | None:
        return ("change", self.config.time.steady) if self.early_end() else None

    def longer(self) -> str:
        steady, now = self.config.time.steady, self.recorded_now()
        if self.steps_left(now) == 0 and self.flow.clock.steps_left(float(now[0])) > 0:
            return f"--set time.steady={0.1 * steady:g}"
        return super().longer()

    def ends_a_whole_step(self, time: float) -> bool:
        return self.flow.clock.is_whole(time)

    def time_span(self, recorded: np.ndarray) -> tuple[float, float]:
        return float(recorded[0]), self.config.time.end

    def sizes(self) -> dict[str, int]:
        return {name.replace("points", "cells"): size for name, size in super().sizes().items()}

    def size_text(self) -> str:
        return f"{' x '.join(map(str, self.grid.shape))} cells, pressure {self.flow.solver.kind}"

    def grid_fields(self) -> dict[str, np.ndarray]:
        velocity = self.grid.shaped(self.flow.velocity).astype(np.float64)
        solid = self.cells.solid
        return {
            "velocity": velocity,
            "pressure": self.grid.shaped(self.flow.pressure).astype(np.float64),
            "speed": np.sqrt((velocity**2).sum(axis=-1)),
            **({} if solid is None else {"solid": solid.astype(np.float64)}),
        }

    def picture(self) -> Image:
        """Speed with streamlines, in space in the plane halfway along the last axis; none in solids."""
        part = self.part_shown()
        fields = self.grid_fields()
        velocity, speed = fields["velocity"], fields["speed"]
        if self.cells.solid is not None:
            speed = np.where(self.cells.solid, np.nan, speed)
        if self.grid.rank == 3:
            middle = self.grid.shape[2] // 2
            velocity, speed = velocity[:, :, middle], speed[:, :, middle]
        x, y = self.grid.coordinates[:2]
        x, speed, velocity = x[part], speed[part], velocity[part]
        return Image(x, y, speed, "speed", curves=self.drawn, flow=Streamlines(velocity[..., 0], velocity[..., 1]))

    def part_shown(self) -> slice:
        """Of the cells along x those in pictures."""
        return slice(None)


def _chosen_step(time: Any, longest: float) -> float:
    """The step that the settings ask for; ConfigError where they leave it to a scheme that has no stable one."""
    if not time.dt and (not np.isfinite(longest) or longest <= 0.0):
        raise ConfigError("time.cfl: this scheme has no stable step for an inviscid flow; give time.dt, or take"
                          " scheme.time = \"rk3\"")  # fmt: skip
    return float(time.dt or time.cfl * longest)
