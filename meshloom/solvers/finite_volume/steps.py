"""Explicit steps in time: three stages that keep what is positive so, and five with a step of its own in every cell.

- ``UnsteadySteps``: the strongly stable Runge-Kutta method of third order (Shu and Osher 1988), every cell with the
  same step, which the fastest wave allows; the last one lands on the end time.
- ``SteadySteps``: five stages with the coefficients of van Leer, Tai and Powell (1989) for upwind schemes of second
  order. Each cell goes by its own clock, and rates are averaged with those of the neighbours, which allows longer
  steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.solvers.clock import Timing, WaveClock
from meshloom.solvers.finite_volume.flow import CompressibleFlow, FlowTerms
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.kernels import gather, keep
from meshloom.solvers.finite_volume.turbulence import SpalartAllmaras

#: The share of the state at the start in each of the three stages.
SSP_STAGES = (0.0, 3.0 / 4.0, 1.0 / 3.0)
#: How far along the step each of the five stages looks: van Leer, Tai and Powell 1989, for second order.
STEADY_STAGES = (0.0695, 0.1602, 0.2898, 0.5060, 1.0)
#: Of the average with neighbours: of Jacobi's iteration of its linear system, which its diagonal dominates.
SWEEPS = 2


@dataclass(frozen=True)
class Totals:
    """What the last loop of a step tells: squares of rates (d + 2), least pressure and temperature, mass and energy."""

    rates: ml.Global
    lowest_pressure: ml.Global
    lowest_temperature: ml.Global
    mass: ml.Global
    energy: ml.Global

    @classmethod
    def of(cls, flow: CompressibleFlow) -> Totals:
        volume, u = flow.mesh.cell_volumes, flow.u.numpy().astype(np.float64)
        return cls(
            ml.Global(np.zeros(flow.dim + 2), "rates"),
            ml.Global(np.inf, "lowest_pressure", dtype=flow.dtype),
            ml.Global(np.inf, "lowest_temperature", dtype=flow.dtype),
            ml.Global(float(volume @ u[:, 0]), "mass"),
            ml.Global(float(volume @ u[:, -1]), "energy"),
        )

    def emptied(self) -> tuple[ml.Global, ...]:
        """Ready to be added to."""
        for total in (self.rates, self.mass, self.energy):
            total.value = 0.0
        for least in (self.lowest_pressure, self.lowest_temperature):
            least.value = np.inf
        return self.rates, self.lowest_pressure, self.lowest_temperature, self.mass, self.energy


@cache
def finisher(gas: IdealGas) -> ml.Kernel:
    @ml.kernel
    def finish(
        before: ml.Read, u: ml.Read, dt: ml.Read, volume: ml.Read, pressure: ml.Write, temperature: ml.Write,
        rates: ml.Sum, lowest_pressure: ml.Min, lowest_temperature: ml.Min, mass: ml.Sum, energy: ml.Sum,
    ):  # fmt: skip
        """What the monitors show of a step from ``before`` to ``u``."""
        rate = (u - before) / dt
        rates += rate**2
        tell(gas, u, volume, (pressure, temperature), (lowest_pressure, lowest_temperature), (mass, energy))

    return finish


def tell(gas: IdealGas, u: Any, volume: Any, now: tuple[Any, Any], lowest: tuple[Any, Any], sums: Any) -> None:
    """What monitors show of every new state ``u``: in a kernel, pressure and temperature ``now`` and their ``lowest``,
    and the ``sums`` of mass and energy."""
    state = gas.primitives(u)
    for one, least, value in zip(now, lowest, (state[0], state[-1]), strict=True):
        one[...] = least[...] = value
    for total, value in zip(sums, (u[0], u[-1]), strict=True):
        total += volume * value


@cache
def ssp_stage(share: float) -> ml.Kernel:
    @ml.kernel
    def stage(before: ml.Read, inflow: ml.Read, volume: ml.Read, dt: ml.Read, u: ml.ReadWrite):
        """A step from where the flow is, and the mean of that and the state at the start."""
        u[...] = share * before + (1.0 - share) * (u + dt / volume * inflow)

    return stage


@cache
def steady_stage(length: float) -> ml.Kernel:
    @ml.kernel
    def stage(before: ml.Read, rate: ml.Read, volume: ml.Read, dt: ml.Read, u: ml.Write):
        u[...] = before + length * dt / volume * rate

    return stage


@cache
def local_steps(cfl: float) -> ml.Kernel:
    @ml.kernel
    def local_step(volume: ml.Read, waves: ml.Read, dt: ml.Write):
        dt[...] = cfl * 2.0 * volume / waves

    return local_step


@ml.kernel
def count(done: ml.ReadWrite):
    done += 1


@cache
def averager(strength: float) -> ml.Kernel:
    @ml.kernel
    def average(inflow: ml.Read, around: ml.Read, degree: ml.Read, rate: ml.Write):
        """One sweep of (1 + strength * degree) rate - strength * (sum over neighbours) = inflow."""
        rate[...] = (inflow + strength * around) / (1.0 + strength * degree)

    return average


Watch = Callable[[FlowTerms], None]


class FlowSteps(ABC):
    """What all have: ``program()`` runs one step; ``watch`` is called with what follows from the state at its start,
    where forces can be taken. ``clock`` are the globals that belong to the state, ``fields`` the fields besides u;
    ``told`` are shown by monitors. Whether the flow is steady one asks after ``looked_at`` steps."""

    clock: tuple[ml.Global, ...]
    fields: tuple[ml.Field, ...] = ()
    told: tuple[ml.Global, ...] = ()
    added: frozenset[str] = frozenset()  # of the clock, what checkpoints of earlier versions lack
    looked_at: ClassVar[int] = 100

    def __init__(self, flow: CompressibleFlow, watch: Watch, turbulence: SpalartAllmaras | None = None):
        self.flow, self.watch, self.turbulence, self.totals = flow, watch, turbulence, Totals.of(flow)
        self._clock_set = ml.Set(1, "clock")

    @abstractmethod
    def program(self) -> ml.Program:
        """What runs one step."""


class StepsInTime(FlowSteps):
    """Steps of one length ``dt`` in all cells, to an end; ``time`` is where the flow is."""

    time: ml.Global
    dt: ml.Global

    @abstractmethod
    def steps_left(self, time: float, pace: float) -> int:
        """Steps still to go at least; ``pace``: the last one, before it was made to end at the end."""


class ExplicitSteps(FlowSteps):
    """Steps that a program records as a whole. ``turbulence`` goes a step along first, so that the flow takes the new
    eddy viscosity."""

    @abstractmethod
    def step(self) -> None:
        """The loops of one step."""

    def program(self) -> ml.Program:
        return ml.program(self.step)

    def _begin(self, terms: FlowTerms, dt: ml.Field | ml.Global) -> None:
        """What is done with the state at the start of a step, whose length is known."""
        self.watch(terms)
        if self.turbulence is not None:
            self.turbulence.advance(terms, dt)

    def _finish(self, before: ml.Field, dt: ml.Field | ml.Global) -> None:
        flow = self.flow
        finisher(flow.gas)(flow.mesh.cells, before, flow.u, dt, flow.at.volume, flow.on_cells("pressure"),
                           flow.on_cells("temperature"), *self.totals.emptied())  # fmt: skip


class UnsteadySteps(ExplicitSteps, StepsInTime):
    """Steps of one length in all cells until ``timing.end``."""

    def __init__(
        self,
        flow: CompressibleFlow,
        timing: Timing,
        watch: Watch = lambda terms: None,
        turbulence: SpalartAllmaras | None = None,
    ):
        super().__init__(flow, watch, turbulence)
        self.timing, self._clock = timing, WaveClock(timing, flow.dtype)
        self.time, self.dt, self.pace = self.clock = (self._clock.time, self._clock.dt, self._clock.pace)

    def steps_left(self, time: float, pace: float) -> int:
        return self.timing.steps_left(time, pace)

    def step(self) -> None:
        flow, cells, volume = self.flow, self.flow.mesh.cells, self.flow.at.volume
        before, inflow = flow.u.like("before"), flow.u.like("inflow")
        keep(cells, flow.u, before)
        for number, share in enumerate(SSP_STAGES):
            terms = flow.terms(flow.u)
            if number == 0:
                self._clock.tick(volume, flow.waves(terms.v))
                self._begin(terms, self.dt)
            flow.stage_inflow(terms, inflow, flow.u, self.dt)
            ssp_stage(share)(cells, before, inflow, volume, self.dt, flow.u)
        self._finish(before, self.dt)


class SteadySteps(ExplicitSteps):
    """Towards a steady flow: steps of ``cfl`` in every cell, rates averaged with ``smoothing`` (0: not at all)."""

    def __init__(
        self,
        flow: CompressibleFlow,
        cfl: float,
        smoothing: float = 0.0,
        watch: Watch = lambda terms: None,
        turbulence: SpalartAllmaras | None = None,
    ):
        super().__init__(flow, watch, turbulence)
        self.cfl, self.smoothing = cfl, smoothing
        self.done = ml.Global(0, "done", dtype=np.int64)  # steps
        self.clock = (self.done, self.totals.rates)

    def step(self) -> None:
        flow, cells, volume = self.flow, self.flow.mesh.cells, self.flow.at.volume
        before, inflow, dt = flow.u.like("before"), flow.u.like("inflow"), flow.on_cells("dt")
        keep(cells, flow.u, before)
        for number, length in enumerate(STEADY_STAGES):
            terms = flow.terms(flow.u)
            if number == 0:
                local_steps(self.cfl)(cells, volume, flow.waves(terms.v), dt)
                self._begin(terms, dt)
            # a steady flow may have extremes of its own: new ones are no reason for first order
            flow.stage_inflow(terms, inflow, before, dt, length, bounded=False)
            rate = self._averaged(inflow) if self.smoothing > 0.0 else inflow
            steady_stage(length)(cells, before, rate, volume, dt, flow.u)
        self._finish(before, dt)
        count(self._clock_set, self.done)

    def _averaged(self, inflow: ml.Field) -> ml.Field:
        inside, rate, around = self.flow.at.inside, inflow.like("rate"), inflow.like("around")
        keep(self.flow.mesh.cells, inflow, rate)
        for _ in range(SWEEPS):
            around.fill(0.0)
            gather(inside.faces, rate[inside.cells], around[inside.cells])
            averager(self.smoothing)(self.flow.mesh.cells, inflow, around, self.flow.at.degree, rate)
        return rate
