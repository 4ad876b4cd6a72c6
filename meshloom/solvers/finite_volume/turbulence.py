"""The equation of Spalart and Allmaras' model on a mesh: what nu~ (``nu``) does in every cell, and steps of it in time.

    volume d nu/dt = - sum over faces (u . area) (nu_face - nu)                           carried by the flow
                     + 1/sigma sum over faces (a + cb2 (nu_face - nu)) grad nu . area     diffusion
                     + volume (P - D)

``a`` is nu_laminar + nu at the face. The second part of its factor is cb2 |grad nu|^2, written as
cb2 (div(nu grad nu) - nu lap nu), so that all of diffusion goes through faces, with positive factors: a step makes no
new extremes by it. Carried is nu, not density nu, so that where nu is the same everywhere it stays so, also while the
flow is still changing.

A step takes the flow as it is (``FlowTerms``), and the flow's next one takes the new eddy viscosity. All of diffusion
and convection, and what of the sources pulls back, is implicit: in ``advance`` the diagonal alone, as one sweep of
Jacobi's iteration in a program; in ``ImplicitTurbulence`` a linear system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import meshloom as ml
from meshloom.errors import ConfigError
from meshloom.solvers.finite_volume.conditions import AdiabaticWall, BoundaryCondition, Closed, upright
from meshloom.solvers.finite_volume.flow import CompressibleFlow, FlowTerms
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.geometry import GroupFaces
from meshloom.solvers.finite_volume.kernels import keep
from meshloom.solvers.finite_volume.spalart_allmaras import (
    CB2,
    FREE_STREAM,
    SIGMA,
    diffusivity,
    eddy_viscosity,
    source_and_slope,
)

USELESS = ("broke down", "values that are not finite")  # reasons of a solver to end without a change to be taken
NO_WALL = 1e6  # lengths of the domain to a wall where there is none


def solved(
    solver: ml.linalg.GMRES, change: ml.Field, right: ml.Field, iterations: ml.Global, tol: float, at_most: int
) -> str:
    """Sets the ``change`` of an implicit step, and how many ``iterations`` it took; why there is none, else ''."""
    change.fill(0.0)
    report = solver.solve(change, right, tol=tol, at_most=at_most)
    iterations.value = report.iterations
    if report.reason not in USELESS:
        return ""
    change.fill(0.0)
    return report.reason


def is_open(condition: BoundaryCondition | type[BoundaryCondition]) -> bool:
    """Does gas go through?"""
    kind = condition if isinstance(condition, type) else type(condition)
    return not issubclass(kind, Closed)


def sticks(condition: BoundaryCondition | type[BoundaryCondition]) -> bool:
    """Is it a no-slip wall? There turbulence ends."""
    kind = condition if isinstance(condition, type) else type(condition)
    return issubclass(kind, AdiabaticWall)


class SpalartAllmaras:
    """nu on the cells of a flow, whose ``eddy`` it sets. ``far`` is its value in the free stream and at first."""

    def __init__(self, flow: CompressibleFlow, stream: np.ndarray, *, ratio: float = FREE_STREAM, order: int = 1):
        """``stream``: V of the free stream; ``ratio``: nu / nu_laminar there; ``order``: that of convection, 1 or 2."""
        if not flow.gas.viscous or flow.eddy is None or not _laminar(flow.gas, stream) > 0.0:
            how = "gas.viscosity, and stream.reynolds or gas.reference_viscosity, say which"
            raise ConfigError(f"a turbulence model needs a viscosity above 0: {how}")
        self.flow, self.eddy, self.order = flow, flow.eddy, order
        self.far = ratio * float(_laminar(flow.gas, stream))
        self.nu = flow.on_cells("nu_tilde")
        self.nu.fill(self.far)
        self.distance = flow.on_cells("wall_distance")
        self.distance.assign(self._distances())
        self.rate, self.diagonal = flow.on_cells("nu_rate"), flow.on_cells("nu_diagonal")
        self._do = _kernels(flow.gas, order)
        self.eddy.assign(self._eddy_now())

    def _distances(self) -> np.ndarray:
        """To the nearest no-slip wall, (cells,); without any, far beyond the domain, where nothing is destroyed."""
        mesh = self.flow.mesh
        walls = [side.name for side in self.flow.at.sides if sticks(side.condition)]
        if walls:
            return mesh.wall_distance(*walls)
        return np.full(len(mesh.cells), NO_WALL * float(np.ptp(mesh.coordinates.numpy(), axis=0).max()))

    def _eddy_now(self) -> np.ndarray:
        """The eddy viscosity (cells,) of the state as it is."""
        gas, nu = self.flow.gas, self.nu.numpy().astype(np.float64)
        V = gas.primitives(self.flow.u.numpy().astype(np.float64).T)
        return np.asarray(eddy_viscosity(nu, _laminar(gas, V), gas.density(V)))

    def set_new_eddy(self, change: ml.Field) -> None:
        """nu and its eddy viscosity after a change."""
        self._do.eddy(self.flow.mesh.cells, self.flow.u, change, self.nu, self.eddy)

    def advance(self, terms: FlowTerms, dt: ml.Field | ml.Global) -> None:
        """One step of nu in a given flow, and the eddy viscosity of the new one: loops that a program records."""
        self.assemble(terms)
        cells, volume = self.flow.mesh.cells, self.flow.at.volume
        change = self.flow.on_cells("nu_change")
        relax_model(cells, self.rate, self.diagonal, volume, dt, change)
        self.set_new_eddy(change)

    def assemble(self, terms: FlowTerms, matrix: ml.Matrix | None = None) -> None:
        """Sets ``rate`` (volume d nu/dt), ``diagonal``, the part of minus its derivative by the cell's own nu that is
        positive, and what belongs next to the diagonal in ``matrix``."""
        flow, inside = self.flow, self.flow.at.inside
        slope = self._gradient(terms)
        for one in (self.rate, self.diagonal):
            one.fill(0.0)
        at = inside.cells
        into: list[Any] = [self.rate[at], self.diagonal[at]]
        if matrix is not None:
            matrix.fill(0.0)
            into.append(matrix[at])
        carry = self._do.carry if matrix is None else self._do.carry_implicit
        carry(inside.faces, terms.v[at], self.nu[at], slope[at], inside.area, inside.reach, *into)
        for side in flow.at.sides:
            self._at_side(side, terms)
        assert terms.slope is not None  # which a viscous gas has
        self._do.source(flow.mesh.cells, terms.v, terms.slope, self.nu, self.distance, flow.at.volume, self.rate,
                        self.diagonal)  # fmt: skip

    def _gradient(self, terms: FlowTerms) -> ml.Field:
        inside, slope = self.flow.at.inside, self.flow.on_cells("nu_slope", self.flow.dim)
        slope.fill(0.0)
        model_gradient(inside.faces, self.nu[inside.cells], inside.weights, slope[inside.cells])
        for side in self.flow.at.sides:
            own = side.cells
            if side.tells_gradients and sticks(side.condition):
                model_wall_gradient(side.faces, self.nu[own], side.weights, slope[own])
            elif side.tells_gradients and is_open(side.condition):
                model_open_gradient(
                    side.faces, terms.v[own], self.nu[own], self.far, side.area, side.weights, slope[own]
                )
        return self.flow.solved(slope)

    def _at_side(self, side: GroupFaces, terms: FlowTerms) -> None:
        own = side.cells
        known = (side.faces, terms.v[own], self.nu[own])
        if sticks(side.condition):
            self._do.wall(*known, side.area, side.reach, self.rate[own], self.diagonal[own])
        elif is_open(side.condition):
            model_through_side(*known, self.far, side.area, self.rate[own], self.diagonal[own])


@dataclass(frozen=True)
class ModelInTime:
    """Where nu was before a step in time, and before the one before; d nu/dt has the ``weights`` (3) of nu and both."""

    last: ml.Field
    before: ml.Field
    weights: ml.Global

    @classmethod
    def of(cls, model: SpalartAllmaras, weights: ml.Global) -> ModelInTime:
        return cls(model.nu.like("nu_last"), model.nu.like("nu_before_last"), weights)

    def shift(self, nu: ml.Field) -> None:
        """A step in time begins."""
        keep(nu.set, self.last, self.before)
        keep(nu.set, nu, self.last)


class ImplicitTurbulence:
    """Steps of nu by a linear system, each cell with a step of ``cfl`` times what waves need to cross it. ``advance``
    is one of them, in the flow as it is; ``iterations`` those of its solver; ``kept`` is nu before the last step."""

    def __init__(
        self,
        model: SpalartAllmaras,
        cfl: ml.Global,
        time: ModelInTime | None = None,
        *,
        tolerance: float = 0.05,
        at_most: int = 40,
        shorten: Callable[[str], None] = lambda why: None,
    ):
        """The residual of the system falls to ``tolerance`` of what it was, in at most so many iterations; ``shorten``
        is told why where it has no solution, and makes the next steps shorter."""
        self.model, self.cfl, self.time, self.tolerance, self.at_most = model, cfl, time, tolerance, at_most
        flow, cells = model.flow, model.flow.mesh.cells
        self.matrix = ml.Matrix(cells, through=flow.at.inside.cells, dtype=flow.dtype, name="turbulence")
        self._own = self.matrix[ml.Map(cells, cells, np.arange(len(cells)), "itself")]
        self.change, self.kept, self._shorten = flow.on_cells("nu_change"), flow.on_cells("nu_kept"), shorten
        self.iterations = ml.Global(0, "model_iterations", dtype=np.int64)
        self._solver = ml.linalg.GMRES(self.matrix, preconditioner="lu_sgs", restart=min(at_most, 20))

    def advance(self) -> None:
        """The operations of a step."""
        self.assemble()
        ml.call(self.solve)
        self.update()

    def assemble(self) -> None:
        """The system for the change of nu."""
        model, flow = self.model, self.model.flow
        terms = flow.terms(flow.u)
        model.assemble(terms, self.matrix)
        if self.time is not None:
            one = self.time
            take_off_model_change(flow.mesh.cells, flow.at.volume, model.nu, one.last, one.before, one.weights,
                                  model.rate, model.diagonal)  # fmt: skip
        add_model_inertia(flow.mesh.cells, model.diagonal, flow.waves(terms.v), self.cfl, self._own)

    def solve(self) -> None:
        reason = solved(self._solver, self.change, self.model.rate, self.iterations, self.tolerance, self.at_most)
        if reason:
            self._shorten(f"GMRES of the turbulence model: {reason}")

    def update(self) -> None:
        """nu after the step, and its eddy viscosity."""
        keep(self.model.flow.mesh.cells, self.model.nu, self.kept)
        self.model.set_new_eddy(self.change)

    def take_back(self) -> None:
        """nu before the step, and its eddy viscosity in the flow as it is: loops that a program records."""
        keep(self.model.flow.mesh.cells, self.kept, self.model.nu)
        self.change.fill(0.0)
        self.model.set_new_eddy(self.change)


class _Kernels(NamedTuple):
    eddy: ml.Kernel
    source: ml.Kernel
    carry: ml.Kernel
    carry_implicit: ml.Kernel
    wall: ml.Kernel


def _laminar(gas: IdealGas, v: Any) -> Any:
    """The kinematic viscosity of the gas."""
    return gas.viscosity(v[-1]) / gas.density(v)


def vorticity(slope: Any) -> Any:
    """The size of the vorticity, of the gradient (d + 2, d) of V."""
    u = slope[1:-1]
    if len(u) == 2:
        return np.abs(u[1, 0] - u[0, 1])
    x, y, z = u[2, 1] - u[1, 2], u[0, 2] - u[2, 0], u[1, 0] - u[0, 1]
    return np.sqrt(x * x + y * y + z * z)


def _through_face(
    gas: IdealGas, order: int, v: Any, nu: Any, slope: Any, area: Any, reach: Any
) -> tuple[list[Any], list[Any]]:
    """Of both cells: what comes in, and its factors at the other cell less the own one, from 0."""
    flow = 0.5 * (v[0, 1:-1] + v[1, 1:-1]) @ area
    upstream = np.where(flow > 0.0, nu[0], nu[1])
    if order == 2:
        upstream = upstream + np.where(flow > 0.0, slope[0] @ reach[0], slope[1] @ reach[1])
    way, mean = reach[0] - reach[1], 0.5 * (slope[0] + slope[1])
    step, known = (area @ area) / (way @ area), upright(way, area) * mean
    steep = known @ area + (nu[1] - nu[0] - known @ way) * step
    share = (reach[0] @ area) / (way @ area)  # of the way that is in the first cell
    aside = reach[0] - share * way  # the centre of the face, from where the way goes through
    middle = nu[0] + share * (nu[1] - nu[0]) + known @ aside
    laminar = _laminar(gas, v[0]) + share * (_laminar(gas, v[1]) - _laminar(gas, v[0]))
    spread = diffusivity(middle, laminar)
    sign = (1.0, -1.0)
    factors = [np.maximum(spread + CB2 * (middle - nu[k]), 0.0) / SIGMA for k in (0, 1)]
    rates = [sign[k] * (factors[k] * steep - flow * (upstream - nu[k])) for k in (0, 1)]
    return rates, [factors[k] * step + np.maximum(-sign[k] * flow, 0.0) for k in (0, 1)]


@cache
def _kernels(gas: IdealGas, order: int) -> _Kernels:
    @ml.kernel
    def change_eddies(u: ml.Read, change: ml.Read, nu: ml.ReadWrite, eddy: ml.Write):
        v, after = gas.primitives(u), nu + change
        nu[...] = after
        eddy[...] = eddy_viscosity(after, _laminar(gas, v), u[0])

    @ml.kernel
    def make_and_destroy(
        v: ml.Read, slope: ml.Read, nu: ml.Read, distance: ml.Read, volume: ml.Read, rate: ml.ReadWrite,
        diagonal: ml.ReadWrite,
    ):  # fmt: skip
        value, by_nu = source_and_slope(nu, _laminar(gas, v), vorticity(slope), distance)
        rate += volume * value
        diagonal += volume * np.maximum(-by_nu, 0.0)

    @ml.kernel
    def carry(
        v: ml.Read, nu: ml.Read, slope: ml.Read, area: ml.Read, reach: ml.Read, rate: ml.Inc, diagonal: ml.Inc
    ):  # fmt: skip
        rates, factors = _through_face(gas, order, v, nu, slope, area, reach)
        for k in (0, 1):
            rate[k] += rates[k]
            diagonal[k] += factors[k]

    @ml.kernel
    def carry_implicit(
        v: ml.Read, nu: ml.Read, slope: ml.Read, area: ml.Read, reach: ml.Read, rate: ml.Inc, diagonal: ml.Inc,
        matrix: ml.Inc,
    ):  # fmt: skip
        rates, factors = _through_face(gas, order, v, nu, slope, area, reach)
        for k in (0, 1):
            rate[k] += rates[k]
            diagonal[k] += factors[k]
            matrix[k, 1 - k] -= factors[k]

    @ml.kernel
    def end_at_wall(v: ml.Read, nu: ml.Read, area: ml.Read, reach: ml.Read, rate: ml.Inc, diagonal: ml.Inc):
        """nu is 0 at the wall, and so changes along its normal alone."""
        laminar, per_length = _laminar(gas, v[0]), (area @ area) / (reach @ area) / SIGMA
        rate[0] -= (laminar - CB2 * nu[0]) * per_length * nu[0]  # negative for large nu, when D is larger by far
        diagonal[0] += laminar * per_length

    return _Kernels(change_eddies, make_and_destroy, carry, carry_implicit, end_at_wall)


@ml.kernel
def model_gradient(nu: ml.Read, weights: ml.Read, slope: ml.Inc):
    slope[0] += (nu[1] - nu[0]) * weights[0]
    slope[1] += (nu[1] - nu[0]) * weights[1]


@ml.kernel
def model_wall_gradient(nu: ml.Read, weights: ml.Read, slope: ml.Inc):
    """As if -nu stood behind the wall."""
    slope[0] -= 2.0 * nu[0] * weights


@ml.kernel
def model_open_gradient(v: ml.Read, nu: ml.Read, far: ml.Read, area: ml.Read, weights: ml.Read, slope: ml.Inc):
    slope[0] += np.where(v[0, 1:-1] @ area < 0.0, far - nu[0], 0.0) * weights


@ml.kernel
def model_through_side(v: ml.Read, nu: ml.Read, far: ml.Read, area: ml.Read, rate: ml.Inc, diagonal: ml.Inc):
    """Gas that comes in brings the value of the free stream."""
    inwards = np.maximum(-(v[0, 1:-1] @ area), 0.0)
    rate[0] += inwards * (far - nu[0])
    diagonal[0] += inwards


@ml.kernel
def relax_model(rate: ml.Read, diagonal: ml.Read, volume: ml.Read, dt: ml.Read, change: ml.Write):
    change[...] = dt * rate / (volume + dt * diagonal)


@ml.kernel
def take_off_model_change(
    volume: ml.Read, nu: ml.Read, last: ml.Read, before: ml.Read, weights: ml.Read, rate: ml.ReadWrite,
    diagonal: ml.ReadWrite,
):  # fmt: skip
    """What is left of the rate when nu has changed in time."""
    rate -= volume * (weights[0] * nu + weights[1] * last + weights[2] * before)
    diagonal += volume * weights[0]


@ml.kernel
def add_model_inertia(diagonal: ml.Read, waves: ml.Read, cfl: ml.Read, entries: ml.Inc):
    """On the diagonal: volume over the step, and what ``assemble`` has for it."""
    entries[0, 0] += 0.5 * waves / cfl + diagonal
