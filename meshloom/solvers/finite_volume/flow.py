"""A compressible flow on a mesh: its state, and the loops that say what flows into every cell.

    d/dt (volume u) = R(u),   R = - sum over faces of (convective flux - viscous flux)

``CompressibleFlow.inflow`` is the residual R, for explicit stages as for implicit ones; what a stage needs on its
way (primitive variables, gradients, limiters) is a ``FlowTerms``, made where a program is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.solvers.finite_volume import kernels
from meshloom.solvers.finite_volume.conditions import BoundaryCondition
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.geometry import GroupFaces, Volumes
from meshloom.solvers.finite_volume.kernels import FlowScheme, SideKernels


@dataclass(frozen=True)
class FlowTerms:
    """What follows from a state u: v, and where the scheme has them its gradients and their shares, and the ``bounds``
    of pressure, velocity and density in each cell and its neighbours, low and high."""

    v: ml.Field
    slope: ml.Field | None = None
    share: ml.Field | None = None
    bounds: tuple[ml.Field, ml.Field] | None = None


class CompressibleFlow:
    """The state ``u`` (d + 2) of a gas on a mesh, with a condition for every boundary group.

    ``stream`` (d + 2,) is V of the free stream; it, and ``length``, also say what is small for the limiter. ``eddy``, a
    field of the cells, is the viscosity that a turbulence model adds (None: laminar or inviscid); ``source`` (d + 2),
    one of theirs too, is what else comes into each cell, per time.
    """

    def __init__(
        self,
        mesh: ml.Mesh,
        gas: IdealGas,
        scheme: FlowScheme,
        conditions: Mapping[str, BoundaryCondition],
        start: np.ndarray,
        stream: np.ndarray,
        *,
        length: float = 1.0,
        eddy: ml.Field | None = None,
        source: ml.Field | None = None,
        dtype: np.dtype | type = np.float64,
    ):
        """``start`` (cells, d + 2) is u at first."""
        self.mesh, self.gas, self.scheme, self.eddy, self.dtype = mesh, gas, scheme, eddy, np.dtype(dtype)
        self.source = source
        self.dim, self.stream = mesh.dim, stream
        self.at = Volumes.of(mesh, conditions, stream, scheme.gradient, dtype)
        self.u = mesh.cells.field("u", self.dim + 2, dtype=dtype, data=start)
        self._ambient = ml.Global(float(stream[0]), "ambient", dtype=dtype)
        self._scale = tuple(float(size) for size in gas.bounded_size(stream))
        # cells far away are large: there a change as large as the free stream itself is not small
        reach = np.minimum(scheme.limiter_constant * mesh.cell_volumes ** (1.0 / self.dim) / length, 1.0)
        self._small = mesh.cells.field("small", dtype=dtype, data=reach**3)
        self._face_waves, self._side_waves = kernels.wave_kernels(gas, eddy is not None)

    def on_cells(self, name: str, *components: int) -> ml.Field:
        return self.mesh.cells.field(name, components or 1, dtype=self.dtype)

    def _at_side(self, side: GroupFaces) -> SideKernels:
        return kernels.side_kernels(self.gas, self.scheme, self.eddy is not None, type(side.condition))  # type: ignore[arg-type]

    # --- the right-hand side

    def terms(self, u: ml.Field) -> FlowTerms:
        """Primitive variables of u, their gradients and shares."""
        v, cells = u.like("v"), self.mesh.cells
        kernels.primitives(self.gas)(cells, u, v, self.on_cells("pressure"), self.on_cells("temperature"))
        if not self.scheme.needs_gradients(self.gas):
            return FlowTerms(v)
        slope, scheme = self.gradient(v), self.scheme
        bounds = self._bounds(v) if scheme.limited or scheme.keeps_bounds else None
        share = self._share(v, slope, bounds) if scheme.limited and bounds is not None else None
        return FlowTerms(v, slope, share, bounds)

    def gradient(self, v: ml.Field) -> ml.Field:
        """Of v, (d + 2, d) in every cell."""
        inside, slope = self.at.inside, self.on_cells("slope", self.dim + 2, self.dim)
        slope.fill(0.0)
        kernels.gradient(inside.faces, v[inside.cells], inside.weights, slope[inside.cells])
        for side in self.at.sides:
            if side.tells_gradients:
                add = self._at_side(side).gradient
                add(side.faces, v[side.cells], side.given, side.area, side.weights, slope[side.cells])
        return self.solved(slope)

    def solved(self, total: ml.Field) -> ml.Field:
        """Gradients of what was summed up over the faces of every cell, weight times change."""
        patches, inside = self.at.patches, self.at.inside
        if patches is None:
            return total
        around, slope = total.like("around"), total.like("slope")
        around.fill(0.0)
        kernels.gather(inside.faces, total[inside.cells], around[inside.cells])
        kernels.solve_patch(self.mesh.cells, total, around, patches.takes, patches.inverse, slope)
        return slope

    def _bounds(self, v: ml.Field) -> tuple[ml.Field, ml.Field]:
        inside, at = self.at.inside, self.at.inside.cells
        low, high = v.like("low"), v.like("high")
        own_bounds, bounds = kernels.bounds_kernels(self.gas)
        own_bounds(self.mesh.cells, v, low, high)
        bounds(inside.faces, v[at], low[at], high[at])
        for side in self.at.sides:
            if not side.condition.is_free:
                widen = self._at_side(side).bounds
                widen(side.faces, v[side.cells], side.given, side.area, low[side.cells], high[side.cells])
        return low, high

    def _share(self, v: ml.Field, slope: ml.Field, bounds: tuple[ml.Field, ml.Field]) -> ml.Field:
        inside, at, (low, high), share = self.at.inside, self.at.inside.cells, bounds, v.like("share")
        share.fill(1.0)
        limit, side_limit = kernels.limiter(self.gas, self.scheme.limiter, self._scale)
        limit(inside.faces, v[at], low[at], high[at], slope[at], inside.reach, self._small[at], share[at])
        for side in self.at.sides:
            own = side.cells
            side_limit(side.faces, v[own], low[own], high[own], slope[own], side.reach, self._small[own], share[own])
        return share

    def stage_inflow(
        self, terms: FlowTerms, inflow: ml.Field, start: ml.Field, dt: ml.Field | ml.Global, length: float = 1.0,
        bounded: bool = True,
    ) -> None:  # fmt: skip
        """Sets ``inflow`` for a stage, ``length`` of a step ``dt`` from ``start``: where the state that it leads to is
        not positive (or not ``bounded``, if the scheme asks for that) the faces of the cell take a flux of first order.
        Both sides of a face have the same one, so that nothing is lost."""
        self.inflow(terms, inflow)
        if not self.scheme.falls_back:
            return
        troubled = self.on_cells("troubled")
        high = [terms.bounds[1]] if terms.bounds is not None and self.scheme.keeps_bounds and bounded else []
        find = kernels.trouble_finder(length, bool(high))
        find(self.mesh.cells, start, inflow, self.at.volume, dt, troubled, *high)
        self.inflow(terms, inflow, troubled)

    def inflow(self, terms: FlowTerms, inflow: ml.Field, troubled: ml.Field | None = None) -> None:
        """Sets ``inflow`` (d + 2): mass, momentum and energy per time into every cell, at first order through the faces
        of cells that are ``troubled`` (0: not)."""
        inside, at = self.at.inside, self.at.inside.cells
        if self.source is None:
            inflow.fill(0.0)
        else:
            kernels.keep(self.mesh.cells, self.source, inflow)
        more = self._through(at, terms, troubled)
        flux = kernels.face_fluxes(self.gas, self.scheme, self.eddy is not None, again=troubled is not None)
        flux(inside.faces, terms.v[at], inside.area, inside.reach, inflow[at], *more)
        for side in self.at.sides:
            own, more = side.cells, self._through(side.cells, terms, troubled)
            kinds = self._at_side(side)
            flux = kinds.flux if troubled is None else kinds.flux_again
            flux(side.faces, terms.v[own], side.given, side.area, side.reach, inflow[own], *more)

    def _through(self, cells: ml.Map, terms: FlowTerms, troubled: ml.Field | None = None) -> list[Any]:
        """Slope, share, eddy viscosity and which cells are troubled, as far as there are any, seen through a map."""
        with_friction = self.eddy if self.gas.viscous else None
        return [field[cells] for field in (terms.slope, terms.share, with_friction, troubled) if field is not None]

    def waves(self, v: ml.Field) -> ml.Field:
        """Volume per time that waves sweep at the faces of each cell."""
        waves, inside, volume = self.on_cells("waves"), self.at.inside, self.at.volume
        eddy = [self.eddy] if self.eddy is not None else []
        waves.fill(0.0)
        at = inside.cells
        self._face_waves(inside.faces, v[at], inside.area, volume[at], waves[at], *(e[at] for e in eddy))
        for side in self.at.sides:
            at = side.cells
            self._side_waves(side.faces, v[at], side.area, volume[at], waves[at], *(e[at] for e in eddy))
        return waves

    # --- forces

    def surface(self, terms: FlowTerms, side: GroupFaces, pressure: ml.Field, shear: ml.Field) -> None:
        """Sets fields of the side: pressure, and the skin friction (d) on the wall, per area."""
        own = side.cells
        self._at_side(side).surface(
            side.faces, terms.v[own], side.given, side.area, side.reach, pressure, shear, *self._through(own, terms)
        )

    def forces(self, terms: FlowTerms, about: ml.Global, totals: tuple[ml.Global, ml.Global, ml.Global]) -> None:
        """Adds up what the gas does to the walls that count: pressure (d) above that of the free stream, friction (d)
        and their moment about a point (1 or 3)."""
        for total in totals:
            total.value = 0.0
        for side in self.at.sides:
            if side.condition.counts:
                own = side.cells
                self._at_side(side).force(
                    side.faces, terms.v[own], side.given, side.area, side.reach, side.middle, about, self._ambient,
                    *totals, *self._through(own, terms),
                )  # fmt: skip
