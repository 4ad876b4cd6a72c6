"""What the advection cases share: settings, the fixed time step and its limit, errors against the exact solution.

A scalar phi is carried by a flow that is known: d phi/dt = -div(u phi). Space by compact differences, time by the
classical Runge-Kutta method. The exact solution is the initial one, moved.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom import compact
from meshloom.case import BROKEN, FamilyConfig, GridCase, Limit, OutputOptions, RunOptions, schedule_table
from meshloom.case.even_steps import EvenSteps, rounding
from meshloom.case.on_grid import SOLVES_ALONG_LINES
from meshloom.config import option, section
from meshloom.errors import ConfigError
from meshloom.solvers.runge_kutta import largest_step, runge_kutta4
from meshloom.solvers.stable import refuse_longer

CENTRAL = {"lele6": compact.LELE6, "pade4": compact.PADE4}
Slopes = Callable[[ml.Field, ml.Field], Any]
_WAVES, _PLANE_WAVES, _SHARES = 1025, 65, 9  # wavenumbers on a line and in a plane, and directions, that are tried
_MANY = 10**9  # iterations: the end is a time
_ROUNDING = 1e-12  # of a number of steps
_MOST_STEPS = 1e12  # beyond, times would not be told apart
_EXTREME = 1e100  # of numbers that are multiplied with others
_SANE = Limit(above=-1e6, below=1e6, why="the solution grows without bounds")


# --- settings ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AdvectionTimeOptions:
    """How long the steps are, and when the run ends."""

    dt: float = option(0.001, "length of a step; shortened a little where the end is no multiple of it", above=0.0)
    cfl: float = option(0.0, "length of a step by speed * dt / spacing instead, where above 0", low=0.0)
    end: float = option(0.4, "time at the end", above=0.0)


@dataclass(frozen=True)
class AdvectionFilterOptions:
    """A low-pass filter."""

    order: int = option(0, "order of the filter: 2, 4, 6, 8 or 10; 0 for none",
                        accepts=("and even, up to 10", lambda order: order in (0, *compact.FILTER_ORDERS)))  # fmt: skip
    alpha: float = option(0.45, "how sharp it is: the nearer 0.5, the less is removed", above=-0.5,
                          accepts=("and below 0.5", lambda alpha: alpha < 0.5))  # fmt: skip


@dataclass(frozen=True)
class AdvectionConfig(FamilyConfig):
    run: RunOptions = section(RunOptions, "How long, and on what.", iterations=_MANY)
    time: AdvectionTimeOptions = section(AdvectionTimeOptions, "The time step and the end.")
    filter: AdvectionFilterOptions = section(
        AdvectionFilterOptions, "A compact filter after every step, against waves too short for the grid."
    )
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("compare")


# --- the clock --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """Equal steps that end exactly at ``end``, none longer than ``longest``.

    From time 0 on they are ``dt``, and times are multiples of it, the end apart: no error adds up. A run that was
    restarted with other settings stands elsewhere: from there on, what is left is cut into equal steps again.
    """

    count: int
    dt: float
    longest: float
    end: float

    def left(self, time: float) -> int:
        """Steps that are to be taken from a time on."""
        if self.is_whole(time):
            return max(self.count - math.floor(time / self.dt + 0.5), 0)
        return max(math.ceil((self.end - time) / self.longest * (1.0 - _ROUNDING)), 0)

    def is_whole(self, time: float) -> bool:
        """Whether a run from 0 comes to that time by whole steps, as in ``EvenSteps``."""
        return EvenSteps(self.dt, self.end).is_whole(time)

    def kernel(self) -> ml.Kernel:
        """The length of the next step, and the time at its end; the same decisions as in ``left``."""
        dt, longest, end, all_steps = self.dt, self.longest, self.end, float(self.count)

        @ml.kernel
        def tick(time: ml.ReadWrite, step: ml.Write):
            done = np.floor(time / dt + 0.5)
            regular = np.abs(done * dt - time) <= rounding(time, dt, np.float64)
            left = end - time
            count = np.maximum(np.ceil(left / longest * (1.0 - _ROUNDING)), 1.0)
            step[...] = np.where(regular, dt, left / count)
            other = np.where(count == 1.0, end, time + left / count)
            after = np.where(done + 1.0 == all_steps, end, (done + 1.0) * dt)
            time[...] = np.where(regular, after, other)

        return tick


def steps(time: AdvectionTimeOptions, rate: float, schemes: dict[str, float]) -> Steps:
    """The steps of a run; ConfigError where they are longer than the scheme allows, or too many to be counted.

    ``rate`` is the largest speed / spacing, summed over the axes; ``schemes`` the CFL limit of each scheme by its name.
    """
    name, limit = min(schemes.items(), key=lambda entry: entry[1])
    if not 1.0 / _EXTREME < rate < _EXTREME:
        raise ConfigError(f"the flow crosses {rate:.4g} spacings in a unit of time, which nothing can be computed with;"
                          " take another flow.speed, or another size of the mesh")  # fmt: skip
    wanted = time.cfl / rate if time.cfl > 0.0 else time.dt
    key, value, longest = ("time.cfl", time.cfl, limit) if time.cfl > 0.0 else ("time.dt", time.dt, limit / rate)
    refuse_longer(key, value, longest * (1.0 + _ROUNDING), f", {name} with four Runge-Kutta stages")
    if not 0.0 < time.end < _MOST_STEPS * wanted:
        said = f"{key} = {value:g}"
        raise ConfigError(f"{said}: more than {_MOST_STEPS:g} steps to time.end = {time.end:g}; take longer ones")
    if EvenSteps(wanted, time.end).is_whole(time.end):  # then it is that of runs to other ends, to the bit
        return Steps(math.floor(time.end / wanted + 0.5), wanted, wanted, time.end)
    count = max(1, math.ceil(time.end / wanted * (1.0 - _ROUNDING)))
    return Steps(count, time.end / count, wanted, time.end)


def scheme_limit(scheme: compact.Scheme, axes: int = 1) -> float:
    """The largest speed * dt / spacing, summed over the axes, with Runge-Kutta steps: up to it no wave grows.

    The scheme must damp waves that travel to the right, or none. In a plane a wave has two wavenumbers, and the speed
    any direction: shares of both axes are tried, too.
    """
    limit = largest_step(-compact.symbol(scheme, np.linspace(0.0, np.pi, _WAVES)))
    if axes == 1:
        return limit
    waves, share = -compact.symbol(scheme, np.linspace(-np.pi, np.pi, _PLANE_WAVES)), np.linspace(0.0, 1.0, _SHARES)
    return min(limit, largest_step(waves[:, None, None] * share + waves[None, :, None] * (1.0 - share)))


# --- the case ---------------------------------------------------------------------------------------------


class AdvectionCase(GridCase):
    """A scalar on a grid. Subclasses make the grid and say what the flow and the exact solution are."""

    not_on_ranks: ClassVar[str] = SOLVES_ALONG_LINES
    monitors: ClassVar[tuple[str, ...]] = ("time", "error_l1", "error_l2", "error_max", "lowest", "highest", "total")
    shown: ClassVar[tuple[str, ...] | None] = ("error_l2", "error_max")
    pictured: ClassVar[str | None] = "phi"
    limits: Mapping[str, Limit] = MappingProxyType({"phi": _SANE, "highest": _SANE})

    def __init__(self, config: Any):
        self.config = config
        self.grid = self.make_grid()
        self.steps = steps(config.time, self.rate(), self.limits_by_scheme())
        self.phi = self.grid.field("phi", dtype=self.dtype, data=self.exact_at(0.0))
        self.time, self.dt = ml.Global(0.0, "time"), ml.Global(self.steps.dt, "dt", dtype=self.dtype)
        self.l1, self.l2, self.largest = (ml.Global(0.0, name) for name in ("l1", "l2", "largest"))
        self.lowest, self.highest, self.total = (ml.Global(0.0, name) for name in ("lowest", "highest", "total"))
        self.state = (self.phi, self.time)
        self.recorded = (self.time, self.l1, self.l2, self.largest, self.lowest, self.highest, self.total)
        self.program = self._program()

    def cure(self, state: str) -> str:
        step = "time.cfl" if self.config.time.cfl > 0.0 else "time.dt"
        return f"shorter steps ({step}) or a filter (filter.order) may help" if state == BROKEN else ""

    @abstractmethod
    def make_grid(self) -> ml.Grid:
        """The grid that the configuration asks for."""

    @abstractmethod
    def rate(self) -> float:
        """The largest speed / spacing, summed over the axes."""

    @abstractmethod
    def limits_by_scheme(self) -> dict[str, float]:
        """The CFL limit of the schemes in use, by name."""

    @abstractmethod
    def exact(self, places: tuple[Any, ...], time: Any) -> Any:
        """The exact solution at places (one coordinate for each axis): of symbols in a kernel, of arrays elsewhere."""

    @abstractmethod
    def right_hand_side(self) -> Slopes:
        """What sets ``slope`` = d phi/dt from ``phi``, called as (phi, slope)."""

    def exact_at(self, time: float) -> np.ndarray:
        """The exact solution at all points, (*shape,)."""
        return np.asarray(self.exact(self.grid.meshgrid(), time), np.float64)

    @property
    def now(self) -> float:
        return float(self.time.value)

    def _program(self) -> ml.Program:
        """One step: four stages, the filter, and the comparison with the exact solution."""
        grid, phi, rank, tick = self.grid, self.phi, self.grid.rank, self.steps.kernel()
        x = grid.field("x", rank, dtype=self.dtype, data=np.stack(grid.meshgrid(), axis=-1))
        order, alpha = self.config.filter.order, self.config.filter.alpha
        smoothing = compact.filters(order, alpha) if order else None
        clock = ml.Set(1, "clock")
        exact, slopes = self.exact, self.right_hand_side()

        @ml.kernel
        def compare(x: ml.Read, phi: ml.Read, time: ml.Read, l1: ml.Sum, l2: ml.Sum, largest: ml.Max, lowest: ml.Min,
                    highest: ml.Max, total: ml.Sum):  # fmt: skip
            gap = np.abs(phi - exact((x,) if rank == 1 else tuple(x), time))
            l1 += gap
            l2 += gap**2
            largest[...] = gap
            lowest[...] = phi
            highest[...] = phi
            total += phi

        @ml.program
        def step() -> None:
            tick(clock, self.time, self.dt)
            runge_kutta4(phi, self.dt, lambda _number, at, slope: slopes(at, slope))
            if smoothing is not None:
                self._smooth(smoothing, phi.like("filtered"))
            for one, start in ((self.l1, 0.0), (self.l2, 0.0), (self.largest, 0.0), (self.lowest, math.inf),
                               (self.highest, -math.inf), (self.total, 0.0)):  # fmt: skip
                one.value = start
            compare(grid, x, phi, self.time, *self.recorded[1:])

        return step

    def _smooth(self, scheme: compact.Scheme, scratch: ml.Field) -> None:
        """The filter along every axis, and back into phi."""
        fields = [self.phi, scratch]
        for axis in range(self.grid.rank):
            compact.filter(fields[axis % 2], axis, fields[(axis + 1) % 2], scheme)
        if self.grid.rank % 2:
            copy(self.grid, scratch, self.phi)

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        """Sums become means over the points, and the total an integral."""
        time, l1, l2, largest, lowest, highest, total = recorded.T
        points = math.prod(self.grid.shape)
        cell = math.prod(self.grid.spacing)
        return np.stack([time, l1 / points, np.sqrt(l2 / points), largest, lowest, highest, total * cell], axis=1)

    def steps_left(self, recorded: np.ndarray) -> int:
        return self.steps.left(float(recorded[0]))

    def ends_a_whole_step(self, time: float) -> bool:
        return self.steps.is_whole(time)

    def time_span(self, recorded: np.ndarray) -> tuple[float, float]:
        return float(recorded[0]), self.config.time.end

    def grid_fields(self) -> dict[str, np.ndarray]:
        """The solution, the exact one and their difference, (*shape,)."""
        phi, exact = self.grid.shaped(self.phi), self.exact_at(self.now)
        return {"phi": phi, "exact": exact, "error": phi - exact}


@ml.kernel
def copy(source: ml.Read, target: ml.Write):
    target[...] = source
