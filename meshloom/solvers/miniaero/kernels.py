"""What happens at one cell, one face and one boundary face in a stage of miniAero's scheme.

``u`` and ``v`` are states of cells as conserved and as primitive variables (``gas.py``), ``slope`` the gradient of v,
(5, 3) in one row; ``share`` is how much of it the limiter lets through. ``inflow`` sums up what flows into a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import meshloom as ml
from meshloom.solvers.compressible import mirrored, roe_flux
from meshloom.solvers.limiters import bounds, own_bounds, venkatakrishnan
from meshloom.solvers.miniaero.gas import MiniAeroGas, viscous_flux

TANGENT, EXTRAPOLATE, INFLOW, NO_SLIP = 1, 2, 3, 4  # kinds of boundary faces
_FLAT = 1e-40  # a change towards the face that is smaller than this needs no limit


@dataclass(frozen=True)
class MiniAeroScheme:
    """How the equations are made discrete."""

    order: int  # 1 or 2
    viscous: bool
    entropy_fix: float  # share of the fastest wave below which wave speeds are rounded off
    limiter_exponent: int  # of the distance in the limiter's threshold

    @property
    def needs_gradients(self) -> bool:
        return self.order == 2 or self.viscous


class MiniAeroKernels(NamedTuple):
    """In the order of first use."""

    predict: Callable[..., None]
    gradient: Callable[..., None]
    boundary_gradient: Callable[..., None]
    own_bounds: Callable[..., None]
    bounds: Callable[..., None]
    limit: Callable[..., None]
    face_flux: Callable[..., None]
    boundary_flux: Callable[..., None]
    advance: Callable[..., None]
    finish: Callable[..., None]


@cache  # tracing takes about a second: cases with the same gas and scheme share their kernels
def kernels(gas: MiniAeroGas, scheme: MiniAeroScheme, inflow_state: tuple[float, ...]) -> MiniAeroKernels:
    """The kernels; ``inflow_state`` (5,) is the v that comes in."""
    face_flux = flux_with_gradients(gas, scheme) if scheme.needs_gradients else flux_of_values(gas, scheme)
    return MiniAeroKernels(
        predictor(gas),
        gradient,
        boundary_gradient,
        own_bounds,
        bounds,
        limiter(scheme),
        face_flux,
        flux_at_boundary(gas, scheme, np.asarray(inflow_state).tolist()),
        advance,
        finisher(gas),
    )


# --- cells ------------------------------------------------------------------------------------------------


def predictor(gas: MiniAeroGas) -> ml.Kernel:
    @ml.kernel
    def predict(u: ml.Read, change: ml.Read, alpha: ml.Read, v: ml.Write, temperature: ml.Write):
        """The state that a stage looks at: u and alpha times the change that the last stage found.

        ``temperature`` is kept by itself for whoever asks where a flow broke down.
        """
        state = gas.primitives(u + alpha * change)
        v[...] = state
        temperature[...] = state[4]

    return predict


def finisher(gas: MiniAeroGas) -> ml.Kernel:
    @ml.kernel
    def finish(
        u: ml.ReadWrite, total: ml.Read, volume: ml.Read, temperature: ml.Write, rms: ml.Sum, mass: ml.Sum,
        energy: ml.Sum, lowest_temperature: ml.Min,
    ):  # fmt: skip
        """The step itself, and what the monitors show. Nothing but u is handed on to the next step."""
        after = u + total
        rms += (total[0] / u[0]) ** 2
        mass += volume * after[0]
        energy += volume * after[4]
        temperature[...] = lowest_temperature[...] = gas.primitives(after)[4]
        u[...] = after

    return finish


@ml.kernel
def advance(inflow: ml.Read, volume: ml.Read, dt: ml.Read, beta: ml.Read, change: ml.Write, total: ml.ReadWrite):
    """The change over a time step by this stage's fluxes, and its share of the whole step."""
    stage_change = dt / volume * inflow
    change[...] = stage_change
    total[...] = total + beta * stage_change


# --- gradients by the theorem of Gauss ----------------------------------------------------------------------


@ml.kernel
def gradient(v: ml.Read, area: ml.Read, volume: ml.Read, slope: ml.Inc):
    through = np.outer(0.5 * (v[0] + v[1]), area).ravel()
    slope[0] += through / volume[0]
    slope[1] -= through / volume[1]


@ml.kernel
def boundary_gradient(v: ml.Read, area: ml.Read, volume: ml.Read, slope: ml.Inc):
    slope[0] += np.outer(v[0], area).ravel() / volume[0]


# --- how much of them each cell may use (Venkatakrishnan 1993) -----------------------------------------------


def limiter(scheme: MiniAeroScheme) -> ml.Kernel:
    @ml.kernel
    def limit(v: ml.Read, low: ml.Read, high: ml.Read, slope: ml.Read, centre: ml.Read, middle: ml.Read, share: ml.Min):
        """The share of its gradient that keeps each cell of a face within its bounds at the face."""
        for side in range(len(v)):  # a boundary face has one
            to_face = middle - centre[side]
            change = slope[side].reshape(5, 3) @ to_face
            room = np.where(change > 0.0, high[side], low[side]) - v[side]
            threshold = (to_face @ to_face) ** (0.5 * scheme.limiter_exponent)
            share[side] = np.where(np.abs(change) > _FLAT, venkatakrishnan(change, room, threshold), 1.0)

    return limit


# --- fluxes -------------------------------------------------------------------------------------------------


def flux_of_values(gas: MiniAeroGas, scheme: MiniAeroScheme) -> ml.Kernel:
    """First order, inviscid."""

    @ml.kernel
    def face_flux(v: ml.Read, area: ml.Read, inflow: ml.Inc):
        f = roe_flux(gas, v[0], v[1], area, scheme.entropy_fix)
        inflow[0] -= f
        inflow[1] += f

    return face_flux


def flux_with_gradients(gas: MiniAeroGas, scheme: MiniAeroScheme) -> ml.Kernel:
    """Second order, or viscous, or both."""

    def at_face(v: Any, slope: Any, share: Any, to_face: Any) -> Any:
        return v + share * (slope @ to_face) if scheme.order == 2 else v

    @ml.kernel
    def face_flux(
        v: ml.Read, area: ml.Read, slope: ml.Read, share: ml.Read, centre: ml.Read, middle: ml.Read, inflow: ml.Inc
    ):
        slopes = [slope[side].reshape(5, 3) for side in (0, 1)]
        left, right = (at_face(v[side], slopes[side], share[side], middle - centre[side]) for side in (0, 1))
        f = roe_flux(gas, left, right, area, scheme.entropy_fix)
        if scheme.viscous:
            f = f - viscous_flux(gas, 0.5 * (left + right), 0.5 * (slopes[0] + slopes[1]), area)
        inflow[0] -= f
        inflow[1] += f

    return face_flux


def flux_at_boundary(gas: MiniAeroGas, scheme: MiniAeroScheme, inflow_state: list[float]) -> ml.Kernel:

    @ml.kernel
    def boundary_flux(v: ml.Read, area: ml.Read, kind: ml.Read, centre: ml.Read, middle: ml.Read, inflow: ml.Inc):
        """Roe's flux to a state outside that makes the boundary what it is; always first order."""
        inside, normal = v[0], area / np.sqrt(area @ area)
        is_wall, coming_in = (kind == TANGENT) | (kind == NO_SLIP), np.array(inflow_state, dtype=v.dtype)
        outside = np.where(is_wall, mirrored(inside, normal), np.where(kind == INFLOW, coming_in, inside))
        f = roe_flux(gas, inside, outside, area, scheme.entropy_fix)
        if scheme.viscous:
            at_wall = np.stack([inside[0], 0.0, 0.0, 0.0, inside[4]], dtype=v.dtype)
            to_face = middle - centre[0]
            slope = np.outer(at_wall - inside, normal) / np.sqrt(to_face @ to_face)
            f = f - np.where(kind == NO_SLIP, viscous_flux(gas, at_wall, slope, area), 0.0)
        inflow[0] -= f

    return boundary_flux
