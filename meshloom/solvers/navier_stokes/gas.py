"""A gas, and what flows: the compressible Navier-Stokes equations in d = 2 or 3 dimensions.

    d rho/dt   + d(rho u_a)/dx_a                                                 = 0
    d rho u_i/dt + d(rho u_a u_i + p delta_ai - tau_ai)/dx_a                     = 0
    d rho E/dt + d(rho u_a (h + u_i u_i / 2) - u_i tau_ai - k dT/dx_a)/dx_a      = 0,     h = cp T

States are arrays whose first axis counts components, so that every function serves one state inside a kernel, (d + 2,),
and of a whole grid, (d + 2, ...), alike. ``q`` = (density, momentum, total energy) per volume. ``slopes[a]`` holds
the derivatives along axis a of the velocity and the temperature, (d + 1,). Units are the case's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class FlowState(NamedTuple):
    """Primitive variables."""

    density: Any
    velocity: Any  # (d,)
    pressure: Any
    temperature: Any


@dataclass(frozen=True)
class Gas:
    """An ideal gas of constant viscosity: p = density * constant * T."""

    gamma: float
    constant: float
    viscosity: float
    prandtl: float

    @property
    def heat_capacity(self) -> float:
        """cp: at constant pressure, per mass."""
        return self.gamma * self.constant / (self.gamma - 1.0)

    @property
    def conductivity(self) -> float:
        return self.viscosity * self.heat_capacity / self.prandtl

    def state(self, q: Any) -> FlowState:
        velocity = q[1:-1] / q[0]
        pressure = (self.gamma - 1.0) * (q[-1] - 0.5 * q[0] * squared(velocity))
        return FlowState(q[0], velocity, pressure, pressure / (self.constant * q[0]))

    def conserved(self, density: Any, velocity: Any, pressure: Any) -> np.ndarray:
        """q of primitive variables; ``velocity`` (d, ...)."""
        energy = pressure / (self.gamma - 1.0) + 0.5 * density * squared(velocity)
        return np.stack([density, *(density * v for v in velocity), energy])

    def sound_speed(self, state: FlowState) -> Any:
        return np.sqrt(self.gamma * state.pressure / state.density)


def squared(vector: Any) -> Any:
    """Length squared, over the first axis."""
    return sum(part * part for part in vector)


# --- fluxes -----------------------------------------------------------------------------------------------


def stress(gas: Gas, slopes: Sequence[Any], axis: int) -> list[Any]:
    """tau_ai for one a: the viscous force on a plane across ``axis``, (d,)."""
    d = len(slopes)
    divergence = sum(slopes[i][i] for i in range(d))
    tau = [gas.viscosity * (slopes[axis][i] + slopes[i][axis]) for i in range(d)]
    tau[axis] = tau[axis] - 2.0 / 3.0 * gas.viscosity * divergence
    return tau


def flux(gas: Gas, q: Any, slopes: Sequence[Any], axis: int) -> np.ndarray:
    """Mass, momentum and energy (d + 2,) through a plane across ``axis``: convection, pressure, viscous stress."""
    return np.stack(_flux(gas, q, slopes, axis, carried=1.0))


def split_flux(gas: Gas, q: Any, slopes: Sequence[Any], axis: int) -> np.ndarray:
    """The part of the flux that the split form derives as it stands.

    The split form writes half of convection as d(m f)/dx = m df/dx + f dm/dx, with m = rho u_a and f = u_i, or the
    enthalpy h; then neither kinetic energy nor entropy is made of short waves, and still all that leaves one place
    arrives at another. ``split_products`` is that half. The fluxes of mass and of kinetic energy stay whole.
    """
    return np.stack(_flux(gas, q, slopes, axis, carried=0.5))


def split_products(gas: Gas, q: Any, slopes: Sequence[Any], rate: Any) -> np.ndarray:
    """- (m df/dx + f dm/dx) / 2, all axes together, (d + 2,); ``rate`` is d rho/dt, minus the sum of all dm/dx."""
    state, d = gas.state(q), len(slopes)
    carried = [*state.velocity, gas.heat_capacity * state.temperature]
    changes = [[*slopes[a][:d], gas.heat_capacity * slopes[a][d]] for a in range(d)]
    along = [sum(q[1 + a] * changes[a][i] for a in range(d)) for i in range(d + 1)]
    return np.stack([0.0 * rate, *(0.5 * (f * rate - df) for f, df in zip(carried, along, strict=True))])


def _flux(gas: Gas, q: Any, slopes: Sequence[Any], axis: int, carried: float) -> list[Any]:
    """``carried``: the share of momentum and enthalpy that is carried by the flow here."""
    state, tau = gas.state(q), stress(gas, slopes, axis)
    u, mass, d = state.velocity, q[1 + axis], len(slopes)
    momentum = [carried * mass * u[i] - tau[i] for i in range(d)]
    momentum[axis] = momentum[axis] + state.pressure
    friction = sum(u[i] * tau[i] for i in range(d))
    conduction = gas.conductivity * slopes[axis][d]
    enthalpy = carried * gas.heat_capacity * state.temperature
    return [mass, *momentum, mass * (enthalpy + 0.5 * squared(u)) - friction - conduction]


def vorticity(slopes: Sequence[Any]) -> list[Any]:
    """Curl of the velocity: one component in the plane, three in space."""
    if len(slopes) == 2:
        return [slopes[0][1] - slopes[1][0]]
    return [slopes[(i + 1) % 3][(i + 2) % 3] - slopes[(i + 2) % 3][(i + 1) % 3] for i in range(3)]
