"""One time step of miniAero's scheme: which kernel runs where, in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import meshloom as ml
from meshloom.solvers import runge_kutta
from meshloom.solvers.miniaero.kernels import MiniAeroKernels, MiniAeroScheme

STAGES = tuple((when, weight) for when, _length, weight in runge_kutta.STAGES)  # alpha and beta


@dataclass(frozen=True)
class Sides:
    """Faces, interior or on the boundary: their cells, their area vectors (3) and their middles (3)."""

    faces: ml.Set
    cells: ml.Map
    area: ml.Field
    middle: ml.Field

    @classmethod
    def of(cls, cells: ml.Map, area: np.ndarray, dtype: np.dtype) -> Sides:
        faces = cells.source
        fields = [faces.field(f"{name} of {faces.name}", 3, dtype=dtype, data=values)
                  for name, values in (("area", area), ("middle", faces.points))]  # fmt: skip
        return cls(faces, cells, *fields)


@dataclass(frozen=True)
class FiniteVolumes:
    """The mesh as the kernels see it; ``kind`` says of each boundary face what it is."""

    cells: ml.Set
    volume: ml.Field
    centre: ml.Field
    inner: Sides
    outer: Sides
    kind: ml.Field

    @classmethod
    def of(cls, mesh: ml.Mesh, boundary: Mapping[str, int], dtype: np.dtype) -> FiniteVolumes:
        """``boundary`` gives the kind of each of the mesh's groups."""
        cells = mesh.cells
        return cls(
            cells,
            cells.field("volume", dtype=dtype, data=mesh.cell_volumes),
            cells.field("centre", 3, dtype=dtype, data=cells.points),
            Sides.of(mesh.face_cells, mesh.face_normals, dtype),
            Sides.of(mesh.boundary_cells, mesh.boundary_normals, dtype),
            _boundary_kind(mesh, boundary),
        )


def _boundary_kind(mesh: ml.Mesh, kinds: Mapping[str, int]) -> ml.Field:
    """The kind of every boundary face, from the side it is on."""
    groups = mesh.boundary_group.numpy()
    kind = np.zeros(len(groups), np.int32)
    for side, value in kinds.items():
        kind[groups == mesh.groups[side]] = value
    return mesh.boundary_faces.field("kind", dtype=np.int32, data=kind)


class TimeStep:
    """Four stages from the state ``u`` (5), then the sum of their shares; ``monitors`` are those of ``finish``."""

    def __init__(
        self,
        u: ml.Field,
        geometry: FiniteVolumes,
        run: MiniAeroKernels,
        scheme: MiniAeroScheme,
        dt: float,
        monitors: Sequence[ml.Global],
    ):
        self.u, self.geometry, self.run, self.scheme, self.monitors = u, geometry, run, scheme, monitors

        def parameter(name: str, value: float) -> ml.Global:
            return ml.Global(value, name, dtype=u.dtype)

        self.dt = parameter("dt", dt)
        self.stages = [(parameter("alpha", alpha), parameter("beta", beta)) for alpha, beta in STAGES]

    def time_step(self) -> None:
        cells, volume = self.geometry.cells, self.geometry.volume
        change, total, v, inflow = (self.u.like(name) for name in ("change", "total", "v", "inflow"))
        temperature = cells.field("temperature", dtype=self.u.dtype)
        slope = cells.field("slope", 15, dtype=self.u.dtype)
        share, low, high = (self.u.like(name) for name in ("share", "low", "high"))
        for alpha, beta in self.stages:
            self.run.predict(cells, self.u, change, alpha, v, temperature)
            if self.scheme.needs_gradients:
                self._gradients(v, slope)
            if self.scheme.order == 2:
                self._limiters(v, slope, low, high, share)
            self._fluxes(v, slope, share, inflow)
            self.run.advance(cells, inflow, volume, self.dt, beta, change, total)
        *sums, lowest_temperature = self.monitors
        for one in sums:
            one.value = 0.0
        lowest_temperature.value = np.inf
        self.run.finish(cells, self.u, total, volume, temperature, *self.monitors)

    def _gradients(self, v: ml.Field, slope: ml.Field) -> None:
        slope.fill(0.0)
        for gradient, sides in (
            (self.run.gradient, self.geometry.inner),
            (self.run.boundary_gradient, self.geometry.outer),
        ):
            at = sides.cells
            gradient(sides.faces, v[at], sides.area, self.geometry.volume[at], slope[at])

    def _limiters(self, v: ml.Field, slope: ml.Field, low: ml.Field, high: ml.Field, share: ml.Field) -> None:
        inner, outer = self.geometry.inner, self.geometry.outer
        self.run.own_bounds(self.geometry.cells, v, low, high)
        self.run.bounds(inner.faces, v[inner.cells], low[inner.cells], high[inner.cells])
        share.fill(1.0)
        for sides in (inner, outer):
            at, centre = sides.cells, self.geometry.centre
            self.run.limit(sides.faces, v[at], low[at], high[at], slope[at], centre[at], sides.middle, share[at])

    def _fluxes(self, v: ml.Field, slope: ml.Field, share: ml.Field, inflow: ml.Field) -> None:
        inner, outer, centre = self.geometry.inner, self.geometry.outer, self.geometry.centre
        at, own = inner.cells, outer.cells
        gradients = (slope[at], share[at], centre[at], inner.middle) if self.scheme.needs_gradients else ()
        inflow.fill(0.0)
        self.run.face_flux(inner.faces, v[at], inner.area, *gradients, inflow[at])
        self.run.boundary_flux(outer.faces, v[own], outer.area, self.geometry.kind, centre[own], outer.middle,
                               inflow[own])  # fmt: skip
