"""Shallow water on a mesh: fields, and the loops of one time step in either scheme.

The state ``w`` of a cell is (depth, u, v, bed): the depth of the water, its velocity, the height of the bed above the
still surface. Both schemes collect what flows into every cell in ``inflow``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

import meshloom as ml
from meshloom.solvers.clock import Timing, WaveClock
from meshloom.solvers.volna import first_order, second_order
from meshloom.solvers.volna.first_order import FirstOrderKernels
from meshloom.solvers.volna.flux import Water
from meshloom.solvers.volna.geometry import measure
from meshloom.solvers.volna.second_order import SecondOrderKernels

SCHEMES = ("v17", "v18")


class WaterFlow(ABC):
    """Water that flows over a bed, walls all around. ``step()`` calls the loops of one time step.

    ``w`` and the clock's ``time`` and ``pace`` are the state; ``dt``, ``lowest`` (depth before it is kept above that
    of dry land), ``volume`` and ``energy`` (kinetic, per density) tell about the last step.
    """

    def __init__(self, mesh: ml.Mesh, state: np.ndarray, water: Water, timing: Timing):
        self.mesh, self.water, self.timing = mesh, water, timing
        self.dtype = state.dtype
        self.geometry = measure(mesh, state.dtype)
        self.w = mesh.cells.field("w", 4, data=state)
        self.clock = WaveClock(timing, self.dtype)
        self.time, self.pace, self.dt = self.clock.time, self.clock.pace, self.clock.dt
        self.lowest = ml.Global(np.inf, "lowest", dtype=self.dtype)
        area = self.geometry.area.numpy().astype(np.float64)
        self.volume = ml.Global(float(area @ state[:, 0].astype(np.float64)), "volume")
        self.energy = ml.Global(0.0, "energy")

    def _on_cells(self, name: str, dim: int = 1) -> ml.Field:
        return self.mesh.cells.field(name, dim, dtype=self.dtype)

    @abstractmethod
    def step(self) -> None:
        """One time step."""

    def _flow_in(
        self, run: FirstOrderKernels | SecondOrderKernels, w: ml.Field, inflow: ml.Field, waves: ml.Field,
        slopes: ml.Field | None = None,
    ) -> None:  # fmt: skip
        """What flows into every cell in the state ``w``, with its ``slopes`` at edges, and the waves that it meets."""
        mesh, at = self.mesh, self.geometry
        inner, walls = mesh.face_cells, mesh.boundary_cells
        inflow.fill(0.0)
        waves.fill(0.0)
        seen = (w[inner],) if slopes is None else (at.way, w[inner], slopes[inner])
        run.fluxes(mesh.faces, at.normal, at.length, *seen, inflow[inner], waves[inner])
        run.wall_fluxes(mesh.boundary_faces, at.wall_normal, at.wall_length, w[walls], inflow[walls], waves[walls])

    def _empty_totals(self) -> tuple[ml.Field | ml.Global, ...]:
        """What the last loop of a step tells: depths, the lowest one, volume and energy."""
        self.lowest.value = np.inf
        self.volume.value = 0.0
        self.energy.value = 0.0
        return self._on_cells("depth"), self.lowest, self.volume, self.energy


class FirstOrder(WaterFlow):
    """The scheme of 2017."""

    def __init__(self, mesh: ml.Mesh, state: np.ndarray, water: Water, timing: Timing):
        super().__init__(mesh, state, water, timing)
        self.kernels = first_order.kernels(water)

    def step(self) -> None:
        cells, area, dt = self.mesh.cells, self.geometry.area, self.dt
        predicted, mid = self._on_cells("predicted", 3), self.w.like("mid")
        inflow, waves = self._on_cells("inflow", 3), self._on_cells("waves")
        self._flow_in(self.kernels, self.w, inflow, waves)
        self.clock.tick(area, waves)
        self.kernels.predict(cells, area, self.w, dt, inflow, predicted, mid)
        self._flow_in(self.kernels, mid, inflow, waves)
        self.kernels.correct(cells, area, predicted, dt, inflow, self.w, *self._empty_totals())


class SecondOrder(WaterFlow):
    """The scheme of 2018. ``renew`` False takes the rates of the first stage again in the third, as the original does;
    True evaluates them anew, which makes the four stages the third-order scheme that they are meant to be."""

    def __init__(self, mesh: ml.Mesh, state: np.ndarray, water: Water, timing: Timing, renew: bool = False):
        super().__init__(mesh, state, water, timing)
        self.renew = renew
        self.kernels = second_order.kernels(water)

    def rates(self, w: ml.Field, slopes: ml.Field, inflow: ml.Field, waves: ml.Field) -> None:
        """What flows into every cell in the state ``w``, whose ``slopes`` are found on the way, and the waves there."""
        at = self.geometry
        self.kernels.reconstruct(self.mesh.cells, at.fit, at.reach, w, w[at.neighbours], slopes)
        self._flow_in(self.kernels, w, inflow, waves, slopes)

    def step(self) -> None:
        cells, area, w, dt = self.mesh.cells, self.geometry.area, self.w, self.dt
        rate, gain = self._on_cells("rate", 3), self._on_cells("gain", 3)
        inflow, waves = self._on_cells("inflow", 3), self._on_cells("waves")
        mid, slopes = w.like("mid"), self._on_cells("slopes", 8)
        self.rates(w, slopes, inflow, waves)
        self.clock.tick(area, waves)
        self.kernels.start(cells, area, w, dt, inflow, rate, gain, mid)
        self.rates(mid, slopes, inflow, waves)
        self.kernels.half(cells, area, w, dt, inflow, gain, mid)
        if self.renew:
            self.rates(mid, slopes, inflow, waves)
            self.kernels.renew(cells, area, inflow, rate)
        self.kernels.blend(cells, w, dt, rate, gain, mid)
        self.rates(mid, slopes, inflow, waves)
        self.kernels.finish(cells, area, gain, dt, inflow, w, *self._empty_totals())
