"""What the flow cases share: the state, one time step, the clock and the monitors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

import meshloom as ml
from meshloom import compact
from meshloom.case.even_steps import EvenSteps, tick
from meshloom.solvers.navier_stokes.equations import DerivedFields, Equations
from meshloom.solvers.navier_stokes.gas import Gas, squared, vorticity
from meshloom.solvers.runge_kutta import runge_kutta4

MONITORS = ("time", "vorticity", "kinetic_energy", "enstrophy", "density", "lowest_density")
Boundaries = Callable[[ml.Field, Sequence[ml.Field], ml.Field], None]  # adds to dq/dt, from q and its slopes


class GasFlow:
    """A gas in motion on a grid: ``time_step`` is what a program replays.

    q (density, momentum, energy) and its ``slopes`` are what one step hands to the next: the slopes at the end of a
    step serve the monitors and the first stage of the next one.
    """

    def __init__(
        self,
        equations: Equations,
        start: np.ndarray,
        clock: EvenSteps,
        *,
        boundaries: Boundaries | None = None,
        smoothing: compact.Scheme | None = None,
    ):
        """``start``: q (d + 2, *shape) at time 0."""
        grid, dtype = equations.grid, equations.dtype
        self.equations, self.clock, self.boundaries, self.smoothing = equations, clock, boundaries, smoothing
        self.q = grid.field("q", grid.rank + 2, dtype=dtype, data=np.moveaxis(start, 0, -1))
        self.slopes = equations.slope_fields()
        self.time, self.dt = ml.Global(0.0, "time"), ml.Global(clock.step, "dt", dtype=dtype)
        self.measured = tuple(ml.Global(0.0, name) for name in MONITORS[1:])
        self.clocks = ml.Set(1, "clock")
        self._measure = measure_kernel(equations.gas, grid.rank)
        self._look = ml.program(lambda: self.take_stock())
        self._look.run()

    def assign(self, q: np.ndarray) -> None:
        """Another state, q (d + 2, *shape), with its slopes and monitors."""
        self.q.assign(np.moveaxis(q, 0, -1))
        self._look.run()

    @property
    def recorded(self) -> tuple[ml.Global, ...]:
        return self.time, *self.measured

    @property
    def state(self) -> tuple[ml.Field | ml.Global, ...]:
        return self.q, *self.slopes, self.time

    def time_step(self) -> None:
        """Four stages, then the filter."""
        tick(self.clocks, self.dt, self.time, self.clock.step, self.clock.end)
        derived = self.equations.derived_fields()
        runge_kutta4(self.q, self.dt, partial(self.rate, derived))
        if self.smoothing is not None:
            for axis in range(self.equations.grid.rank):
                compact.filter(self.q, axis, self.q, self.smoothing, method=self.equations.method)
        self.take_stock(derived)

    def rate(self, derived: DerivedFields, number: int, at: ml.Field, rate: ml.Field) -> None:
        """dq/dt of a state; the slopes of the first one are known from the end of the step before."""
        if number > 0:
            self.equations.take_slopes(at, self.slopes, derived)
        self.equations.rate(at, self.slopes, rate, derived)
        if self.boundaries is not None:
            self.boundaries(at, self.slopes, rate)

    def take_stock(self, derived: DerivedFields | None = None) -> None:
        """The slopes of the state as it is, and what they tell."""
        self.equations.take_slopes(self.q, self.slopes, derived)
        self.measure()

    def measure(self) -> None:
        """The monitors, from the state and its slopes."""
        largest, energy, enstrophy, mass, lowest = self.measured
        largest.value = energy.value = enstrophy.value = mass.value = 0.0
        lowest.value = np.inf
        self._measure(self.equations.grid, self.q, *self.slopes, largest, energy, enstrophy, mass, lowest)

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        """Monitors (n, ...) of recorded values: sums over points become means."""
        rows = recorded.copy()
        rows[:, 2:5] /= math.prod(self.equations.grid.shape)
        return rows


@cache
def measure_kernel(gas: Gas, rank: int) -> ml.Kernel:
    """Largest vorticity, sums of kinetic energy, enstrophy (density * vorticity^2 / 2) and mass, lowest density."""

    def add(q: Any, slopes: Sequence[Any], largest: Any, energy: Any, enstrophy: Any, mass: Any, lowest: Any) -> None:
        omega2, kinetic = squared(vorticity(slopes)), 0.5 * squared(q[1:-1]) / q[0]
        largest[...] = np.sqrt(omega2)
        energy += kinetic
        enstrophy += 0.5 * q[0] * omega2
        mass += q[0]
        lowest[...] = q[0]

    @ml.kernel
    def measure(
        q: ml.Read, slope_x: ml.Read, slope_y: ml.Read,
        largest: ml.Max, energy: ml.Sum, enstrophy: ml.Sum, mass: ml.Sum, lowest: ml.Min,
    ):  # fmt: skip
        add(q, (slope_x, slope_y), largest, energy, enstrophy, mass, lowest)

    @ml.kernel
    def measure_in_space(
        q: ml.Read, slope_x: ml.Read, slope_y: ml.Read, slope_z: ml.Read,
        largest: ml.Max, energy: ml.Sum, enstrophy: ml.Sum, mass: ml.Sum, lowest: ml.Min,
    ):  # fmt: skip
        add(q, (slope_x, slope_y, slope_z), largest, energy, enstrophy, mass, lowest)

    return measure if rank == 2 else measure_in_space
