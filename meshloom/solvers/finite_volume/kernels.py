"""What happens at one cell, one face and one boundary face of a finite-volume scheme.

``u`` and ``v`` are states of cells, conserved and primitive (``gas.py``); ``slope`` (d + 2, d) is the gradient of v and
``share`` (d + 2) how much of what it says of pressure, velocity and density the limiter lets through; ``inflow`` sums
up what flows into a cell. The number of axes d is that of the arguments: the same functions serve the plane and space.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import meshloom as ml
from meshloom.solvers.compressible import viscous_flux
from meshloom.solvers.finite_volume.conditions import TURBULENT_PRANDTL, BoundaryCondition, along_the_line, transport
from meshloom.solvers.finite_volume.fluxes import FLUXES, NumericalFlux, rotated_flux, rusanov_flux
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.limiters import SHARES

LIMITERS = ("none", *SHARES)
#: Which cells do an explicit stage again at first order: none, those whose new density or pressure would not be
#: positive, or those, too, whose new density would be above that of the cell and its neighbours before.
FALLBACKS = ("none", "positive", "bounded")
#: By what share of it a density may be above: the crest of a wave moves, and so has new extremes. Others relax bounds
#: alike (Dumbser and others 2014, by 1e-3 of their distance); this one was chosen with shock tubes, see the docs.
RELAXED = 1e-4


@dataclass(frozen=True)
class FlowScheme:
    """How the equations are made discrete."""

    order: int = 2  # 1: values of cells at their faces; 2: with gradients
    flux: str = "roe"  # one of FLUXES
    entropy_fix: float = 0.05  # share of the fastest wave below which Roe's wave speeds are rounded off
    gradient: str = "least_squares"
    limiter: str = "none"  # one of LIMITERS
    limiter_constant: float = 5.0  # K of Venkatakrishnan: changes over K cells are not limited
    fallback: str = "none"  # one of FALLBACKS

    @property
    def limited(self) -> bool:
        return self.order == 2 and self.limiter != "none"

    @property
    def falls_back(self) -> bool:
        return self.order == 2 and self.fallback != "none"

    @property
    def keeps_bounds(self) -> bool:
        return self.order == 2 and self.fallback == "bounded"

    def needs_gradients(self, gas: IdealGas) -> bool:
        return self.order == 2 or gas.viscous

    def numerical_flux(self) -> NumericalFlux:
        return FLUXES[self.flux](self.entropy_fix)


# --- cells --------------------------------------------------------------------------------------------------------


@ml.kernel
def keep(values: ml.Read, copy: ml.Write):
    copy[...] = values


@cache
def primitives(gas: IdealGas) -> ml.Kernel:
    @ml.kernel
    def primitive(u: ml.Read, v: ml.Write, pressure: ml.Write, temperature: ml.Write):
        """v of u; pressure and temperature are kept by themselves for whoever asks where a flow broke down."""
        state = gas.primitives(u)
        v[...] = state
        pressure[...] = state[0]
        temperature[...] = state[-1]

    return primitive


# --- gradients ----------------------------------------------------------------------------------------------------


@ml.kernel
def gradient(v: ml.Read, weights: ml.Read, slope: ml.Inc):
    jump = v[1] - v[0]
    slope[0] += np.outer(jump, weights[0])
    slope[1] += np.outer(jump, weights[1])


@ml.kernel
def gather(value: ml.Read, around: ml.Inc):
    """The sum over the neighbours of each cell."""
    around[0] += value[1]
    around[1] += value[0]


@ml.kernel
def solve_patch(total: ml.Read, around: ml.Read, takes: ml.Read, inverse: ml.Read, slope: ml.Write):
    """The gradient that makes the sums of a cell, and those of its neighbours where it takes them."""
    slope[...] = (total + takes * around) @ inverse.T


# --- how much of them each cell may use ---------------------------------------------------------------------------


@cache
def bounds_kernels(gas: IdealGas) -> tuple[ml.Kernel, ml.Kernel]:
    """The least and the largest pressure, velocity and density of each cell, and of its neighbours."""

    @ml.kernel
    def own_bounds(v: ml.Read, low: ml.Write, high: ml.Write):
        low[...] = high[...] = gas.bounded(v)

    @ml.kernel
    def bounds(v: ml.Read, low: ml.Min, high: ml.Max):
        for mine, other in ((0, 1), (1, 0)):
            low[mine] = high[mine] = gas.bounded(v[other])

    return own_bounds, bounds


def allowed_share(gas: IdealGas, name: str, scale: tuple[float, ...]) -> Callable[..., Any]:
    """The share of its gradient that keeps a cell within its bounds at a face: a function of v, low, high, slope, reach
    and ``small``, (K h)^3 for cells of the length h, at most 1. ``scale`` (d + 2,) holds a size of each of what is
    bounded, against which small changes are small."""
    share_of = SHARES[name]

    def allowed(v: Any, low: Any, high: Any, slope: Any, reach: Any, small: Any) -> Any:
        own, change, size = gas.bounded(v), gas.bounded_change(v, slope @ reach), np.array(scale, dtype=v.dtype)
        # nor is a change small that is as large as what there is: gas may be far thinner than the free stream
        # no value is beyond its own bounds, but rounding may see it there: a share below zero would turn the slope
        room = np.where(change > 0.0, np.maximum(high - own, 0.0), np.minimum(low - own, 0.0))
        threshold = np.minimum(small * size**2, gas.bounded_size(v) ** 2)
        return np.where(change == 0.0, 1.0, share_of(change, room, threshold))

    return allowed


@cache
def limiter(gas: IdealGas, name: str, scale: tuple[float, ...]) -> tuple[ml.Kernel, ml.Kernel]:
    """At faces inside and at the boundary; walls take the pressure there."""
    allowed = allowed_share(gas, name, scale)

    @ml.kernel
    def limit(v: ml.Read, low: ml.Read, high: ml.Read, slope: ml.Read, reach: ml.Read, small: ml.Read, share: ml.Min):
        for side in (0, 1):
            share[side] = allowed(v[side], low[side], high[side], slope[side], reach[side], small[side])

    @ml.kernel
    def side_limit(
        v: ml.Read, low: ml.Read, high: ml.Read, slope: ml.Read, reach: ml.Read, small: ml.Read, share: ml.Min
    ):
        share[0] = allowed(v[0], low[0], high[0], slope[0], reach, small[0])

    return limit, side_limit


def reconstructed(gas: IdealGas, v: Any, slope: Any, share: Any, reach: Any) -> Any:
    """The state at a face, linear in pressure, velocity and density; that of the cell (first order) where pressure or
    density would not be positive."""
    there = gas.bounded(v) + share * gas.bounded_change(v, slope @ reach)
    return np.where((there[0] > 0.0) & (there[-1] > 0.0), gas.unbounded(there), v)


@cache
def trouble_finder(length: float, bounded: bool) -> ml.Kernel:
    """The kernel takes the upper bounds of cells where it is ``bounded``."""

    @ml.kernel
    def find_trouble(start: ml.Read, inflow: ml.Read, volume: ml.Read, dt: ml.Read, troubled: ml.Write, *high: ml.Read):
        """Of a stage, ``length`` of a step ``dt`` from ``start``: 2 in cells where it leads to no positive density or
        pressure, 1 where the density would be above its bound, else 0. Lower bounds count for nothing: gas that
        expands goes below those of its neighbours, and no shock does."""
        new = start + length * dt / volume * inflow
        # twice density times internal energy: of the sign of the pressure, and no division by what may be zero
        positive = (new[0] > 0.0) & (2.0 * new[0] * new[-1] > new[1:-1] @ new[1:-1])
        within: Any = True
        if bounded:
            within = new[0] <= (1.0 + RELAXED) * high[0][-1]
        troubled[...] = np.where(positive, np.where(within, 0.0, 1.0), 2.0)

    return find_trouble


# --- fluxes -------------------------------------------------------------------------------------------------------


def face_friction(gas: IdealGas, left: Any, right: Any, v: Any, slope: Any, reach: Any, area: Any, eddy: Any) -> Any:
    """The viscous and heat flux from the right: with the mean of both gradients, corrected along the line
    between the centres."""
    middle, way = 0.5 * (left + right), reach[0] - reach[1]
    steep = along_the_line(0.5 * (slope[0] + slope[1]), v[1] - v[0], way, area)
    return viscous_flux(*transport(gas, middle[-1], 0.5 * (eddy[0] + eddy[1])), middle[1:-1], steep, area)


@cache
def face_fluxes(gas: IdealGas, scheme: FlowScheme, turbulent: bool, again: bool = False) -> ml.Kernel:
    """The kernel takes slope, share and eddy viscosity as the scheme needs them; where a stage is done ``again``, which
    cells are troubled, too: through their faces goes a flux of first order that keeps shocks straight, or one that
    keeps density and pressure positive."""
    flux = scheme.numerical_flux()

    @ml.kernel
    def face_flux(v: ml.Read, area: ml.Read, reach: ml.Read, inflow: ml.Inc, *more: ml.Read):
        left, right = v[0], v[1]
        others: list[Any] = list(more)
        slope: Any = others.pop(0) if scheme.needs_gradients(gas) else None
        if scheme.order == 2:
            shares = others.pop(0) if scheme.limited else (1.0, 1.0)
            left, right = (reconstructed(gas, v[side], slope[side], shares[side], reach[side]) for side in (0, 1))
        f = flux(gas, left, right, area)
        if again:
            troubled = others.pop()
            worst = np.maximum(troubled[0], troubled[1])
            if scheme.keeps_bounds:
                f = np.where(worst > 0.0, rotated_flux(gas, v[0], v[1], area), f)
            f = np.where(worst > 1.0, rusanov_flux(gas, v[0], v[1], area), f)
        if gas.viscous:
            eddy = others.pop(0) if turbulent else (0.0, 0.0)
            f = f - face_friction(gas, left, right, v, slope, reach, area, eddy)
        inflow[0] -= f
        inflow[1] += f

    return face_flux


# --- time steps ---------------------------------------------------------------------------------------------------


def _signals(gas: IdealGas, v: Any, area: Any, volume: Any, eddy: Any) -> Any:
    """Volume per time that sound waves of a state sweep at a face, and what viscosity spreads over."""
    size = np.sqrt(area @ area)
    waves = np.abs(area @ v[1:-1]) + gas.sound_speed(v) * size
    if not gas.viscous:
        return waves
    spreading = (max(4.0 / 3.0, gas.gamma / gas.prandtl) * gas.viscosity(v[-1])
                 + max(4.0 / 3.0, gas.gamma / TURBULENT_PRANDTL) * eddy) / gas.density(v)  # fmt: skip
    return waves + 2.0 * spreading * size**2 / volume


@cache
def wave_kernels(gas: IdealGas, turbulent: bool) -> tuple[ml.Kernel, ml.Kernel]:
    """At faces inside and at the boundary; a step of 2 volume / waves is as long as a wave needs to cross a cell."""

    @ml.kernel
    def face_waves(v: ml.Read, area: ml.Read, volume: ml.Read, waves: ml.Inc, *eddy: ml.Read):
        by_eddies = eddy[0] if turbulent else (0.0, 0.0)
        for side in (0, 1):
            waves[side] += _signals(gas, v[side], area, volume[side], by_eddies[side])

    @ml.kernel
    def side_waves(v: ml.Read, area: ml.Read, volume: ml.Read, waves: ml.Inc, *eddy: ml.Read):
        waves[0] += _signals(gas, v[0], area, volume[0], eddy[0][0] if turbulent else 0.0)

    return face_waves, side_waves


# --- boundary faces: the kernels of each kind of condition, whatever its numbers are ------------------------------


class SideKernels(NamedTuple):
    """Of one kind of condition; flux, force and surface take slope, share and eddy as the scheme needs them, the flux
    of a stage that is done again takes which cells are troubled, too."""

    gradient: ml.Kernel
    bounds: ml.Kernel
    flux: ml.Kernel
    flux_again: ml.Kernel
    force: ml.Kernel
    surface: ml.Kernel


@cache
def side_kernels(gas: IdealGas, scheme: FlowScheme, turbulent: bool, condition: type[BoundaryCondition]) -> SideKernels:
    exchange = _exchange(gas, scheme, turbulent, condition)
    again = _exchange(gas, scheme, turbulent, condition, again=True)
    return SideKernels(*_ghosts(gas, condition), _flux(exchange), _flux(again), *_on_walls(exchange))


def _ghosts(gas: IdealGas, condition: type[BoundaryCondition]) -> tuple[ml.Kernel, ml.Kernel]:
    """What the state beyond the face adds to gradients, and to the bounds of limiters."""

    @ml.kernel
    def side_gradient(v: ml.Read, given: ml.Read, area: ml.Read, weights: ml.Read, slope: ml.Inc):
        beyond = condition.ghost(gas, v[0], given, area / np.sqrt(area @ area))
        slope[0] += np.outer(beyond - v[0], weights)

    @ml.kernel
    def side_bounds(v: ml.Read, given: ml.Read, area: ml.Read, low: ml.Min, high: ml.Max):
        beyond = condition.ghost(gas, v[0], given, area / np.sqrt(area @ area))
        low[0] = high[0] = gas.bounded(beyond)

    return side_gradient, side_bounds


Exchange = Callable[[Any, Any, Any, Any, tuple[Any, ...]], tuple[Any, Any]]


def _exchange(
    gas: IdealGas, scheme: FlowScheme, turbulent: bool, condition: type[BoundaryCondition], again: bool = False
) -> Exchange:
    """What goes through a face, as a function of v, given, area, reach and what else the scheme needs."""
    numerical_flux = scheme.numerical_flux()

    def through(v: Any, given: Any, area: Any, reach: Any, more: tuple[Any, ...]) -> tuple[Any, Any]:
        """Convection out of the domain, and the viscous and heat flux in."""
        inside, normal, others = v[0], area / np.sqrt(area @ area), list(more)
        slope = others.pop(0)[0] if scheme.needs_gradients(gas) else None
        at_face = inside
        if scheme.order == 2:
            share = others.pop(0)[0] if scheme.limited else 1.0
            at_face = reconstructed(gas, inside, slope, share, reach)
        if again:
            at_face = np.where(others.pop()[0] > 0.0, inside, at_face)
        f = condition.flux(gas, numerical_flux, at_face, given, area, normal)
        if not gas.viscous:
            return f, np.zeros_like(f)
        eddy = others.pop(0)[0] if turbulent else np.zeros_like(inside[0])
        return f, condition.friction(gas, inside, given, slope, area, normal, reach, eddy)

    return through


def _flux(through: Exchange) -> ml.Kernel:
    @ml.kernel
    def side_flux(v: ml.Read, given: ml.Read, area: ml.Read, reach: ml.Read, inflow: ml.Inc, *more: ml.Read):
        convection, friction = through(v, given, area, reach, more)
        inflow[0] -= convection - friction

    return side_flux


def _on_walls(through: Exchange) -> tuple[ml.Kernel, ml.Kernel]:
    """The sum of forces, and pressure and skin friction at every face."""

    @ml.kernel
    def wall_force(
        v: ml.Read, given: ml.Read, area: ml.Read, reach: ml.Read, middle: ml.Read, about: ml.Read, ambient: ml.Read,
        force: ml.Sum, friction_force: ml.Sum, moment: ml.Sum, *more: ml.Read,
    ):  # fmt: skip
        """What the gas does to the wall beyond the pressure ``ambient``, which is taken to be behind it; the moment is
        about a point, in the plane that about the third axis."""
        convection, friction = through(v, given, area, reach, more)
        push, rub = convection[1:-1] - ambient * area, -friction[1:-1]
        arm, total = middle - about, push + rub
        force += push
        friction_force += rub
        if len(arm) == 2:
            moment += arm[0] * total[1] - arm[1] * total[0]
        else:
            moment += np.cross(arm, total)

    @ml.kernel
    def surface(
        v: ml.Read, given: ml.Read, area: ml.Read, reach: ml.Read, pressure: ml.Write, shear: ml.Write, *more: ml.Read
    ):
        """Pressure, and the vector of skin friction, per area of a wall."""
        convection, friction = through(v, given, area, reach, more)
        size2 = area @ area
        pressure[...] = convection[1:-1] @ area / size2
        shear[...] = -friction[1:-1] / np.sqrt(size2)

    return wall_force, surface
