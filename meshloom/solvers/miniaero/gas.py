"""Air as miniAero has it, and what flows through a face: Roe's flux and the viscous one.

States are arrays whose first axis counts components, so that every function serves one state inside a kernel, (5,), and
the states of all cells, (5, n), alike. ``U`` = (density, momentum x y z, total energy), per volume; ``V`` = (density,
velocity x y z, temperature). All in SI units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class MiniAeroGas:
    """An ideal gas with Sutherland's viscosity."""

    gamma: float
    gas_constant: float  # J/(kg K)
    cp_enthalpy: float  # J/(kg K): enthalpy = cp_enthalpy * temperature in Roe's flux
    cp_conduction: float  # J/(kg K): conductivity = cp_conduction * viscosity / prandtl
    prandtl: float
    sutherland_factor: float  # kg/(m s sqrt(K))
    sutherland_temperature: float  # K

    def pressure(self, V: Any) -> Any:
        return V[0] * self.gas_constant * V[4]

    def sound_speed(self, V: Any) -> Any:
        return np.sqrt(self.gamma * self.gas_constant * V[4])

    def viscosity(self, temperature: Any) -> Any:
        return self.sutherland_factor * temperature * np.sqrt(temperature) / (temperature + self.sutherland_temperature)

    def primitives(self, U: Any) -> Any:
        """V of U."""
        velocity = U[1:4] / U[0]
        internal_energy = U[4] / U[0] - 0.5 * _square(velocity)
        return np.stack([U[0], *velocity, internal_energy * ((self.gamma - 1.0) / self.gas_constant)])

    def conserved(self, V: Any) -> Any:
        """U of V."""
        internal_energy = self.gas_constant / (self.gamma - 1.0) * V[4]
        return np.stack([V[0], *(V[0] * V[1:4]), V[0] * (internal_energy + 0.5 * _square(V[1:4]))])

    def at_rest(self, pressure: float, temperature: float) -> np.ndarray:
        """V (5,) of gas at rest."""
        return np.array([pressure / (self.gas_constant * temperature), 0.0, 0.0, 0.0, temperature])


def _square(vector: Any) -> Any:
    return np.sum(vector * vector, axis=0)


def mirrored(V: Any, normal: Any) -> Any:
    """The state V with the velocity along the unit ``normal`` (3,) turned round."""
    velocity = V[1:4] - 2.0 * (V[1:4] @ normal) * normal
    return np.stack([V[0], *velocity, V[4]])


def roe_flux(gas: MiniAeroGas, left: Any, right: Any, area: Any, entropy_fix: float) -> Any:
    """Mass, momentum and energy (5,) per time through a face with area vector ``area`` (3,), from left to right.

    The mean of both sides' fluxes, minus half the jump of U taken apart into waves, each times its speed. The entropy
    wave and the two shear waves travel at the same speed: what is not in the two sound waves is in them, so that
    neither they nor tangents of the face need be written down.
    """
    size = np.sqrt(area @ area)
    normal = area / size
    u, h, c = _roe_average(gas, left, right)
    k, un = 0.5 * (u @ u), u @ normal
    stream, upwind, downwind = _wave_speeds(un * size, c * size, entropy_fix)

    jump = _carried(gas, right) - _carried(gas, left)
    pressure_part = (gas.gamma - 1.0) * (k * jump[0] - u @ jump[1:4] + jump[4])
    velocity_part = c * (normal @ jump[1:4] - un * jump[0])
    forward = (downwind - stream) * (pressure_part + velocity_part) / (2.0 * c**2)
    backward = (upwind - stream) * (pressure_part - velocity_part) / (2.0 * c**2)
    one = np.ones_like(h)  # in the precision of the others
    dissipation = (
        stream * jump
        + forward * np.stack([one, *(u + c * normal), h + k + c * un])
        + backward * np.stack([one, *(u - c * normal), h + k - c * un])
    )
    return 0.5 * (_convected(gas, left, area) + _convected(gas, right, area)) - 0.5 * dissipation


def _total_enthalpy(gas: MiniAeroGas, V: Any) -> Any:
    return gas.cp_enthalpy * V[4] + 0.5 * (V[1:4] @ V[1:4])


def _convected(gas: MiniAeroGas, V: Any, area: Any) -> Any:
    """The flux of one side by itself."""
    mass = V[0] * (area @ V[1:4])
    return np.stack([mass, *(mass * V[1:4] + gas.pressure(V) * area), mass * _total_enthalpy(gas, V)])


def _carried(gas: MiniAeroGas, V: Any) -> Any:
    """U as Roe's flux sees it: the energy from the enthalpy, not from the equation of state."""
    energy = V[0] * _total_enthalpy(gas, V) - gas.pressure(V)
    return np.stack([V[0], *(V[0] * V[1:4]), energy])


def _roe_average(gas: MiniAeroGas, left: Any, right: Any) -> tuple[Any, Any, Any]:
    """Velocity (3,), enthalpy without kinetic energy, and speed of sound between two states."""
    root_left, root_right = np.sqrt(left[0]), np.sqrt(right[0])
    alpha = root_left / (root_left + root_right)
    beta = 1.0 - alpha
    u = alpha * left[1:4] + beta * right[1:4]
    jump = right[1:4] - left[1:4]
    h = gas.cp_enthalpy * (alpha * left[4] + beta * right[4]) + 0.5 * alpha * beta * (jump @ jump)
    return u, h, np.sqrt((gas.gamma - 1.0) * h)


def _wave_speeds(un: Any, c: Any, entropy_fix: float) -> tuple[Any, Any, Any]:
    """|un|, |un - c| and |un + c|, none of them near zero (Harten), where an expansion could turn into a shock."""
    least = entropy_fix * (np.abs(un) + c)

    def kept_away_from_zero(speed: Any) -> Any:
        size = np.abs(speed)
        return np.where(size < least, 0.5 * (speed**2 + least**2) / least, size)

    return kept_away_from_zero(un), kept_away_from_zero(un - c), kept_away_from_zero(un + c)


def viscous_flux(gas: MiniAeroGas, V: Any, gradient: Any, area: Any) -> Any:
    """Momentum and energy (5,) per time that friction and conduction bring in through a face from the right.

    ``gradient`` (5, 3) is that of V.
    """
    viscosity = gas.viscosity(V[4])
    conductivity = gas.cp_conduction / gas.prandtl * viscosity
    strain = 0.5 * (gradient[1:4] + gradient[1:4].T)
    stress = 2.0 * viscosity * (strain - np.trace(strain) / 3.0 * np.eye(3, dtype=strain.dtype))
    force = stress @ area
    return np.stack([np.zeros_like(force[0]), *force, force @ V[1:4] + conductivity * (gradient[4] @ area)])
