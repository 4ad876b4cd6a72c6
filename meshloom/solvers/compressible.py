"""Compressible flow through a face, in the plane or in space: convection, Roe's flux, viscous stress and conduction.

States are arrays whose first axis counts components, so that every function serves one state inside a kernel, (d + 2,),
and the states of all cells, (d + 2, n), alike. ``V`` holds d velocities in the middle and the temperature at the end;
what is in front, density or pressure, the gas knows: it answers ``density(V)`` and ``pressure(V)``.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class FlowingGas(Protocol):
    """What a flux asks of a gas."""

    @property
    def gamma(self) -> float: ...

    @property
    def cp_enthalpy(self) -> float:
        """Enthalpy per mass and temperature."""

    def density(self, V: Any) -> Any: ...

    def pressure(self, V: Any) -> Any: ...


def square(vector: Any) -> Any:
    """The square of the length of a vector (d,) or of vectors (d, n)."""
    return np.sum(vector * vector, axis=0)


def mirrored(V: Any, normal: Any) -> Any:
    """The state V with the velocity along the unit ``normal`` (d,) turned around."""
    velocity = V[1:-1] - 2.0 * (V[1:-1] @ normal) * normal
    return np.stack([V[0], *velocity, V[-1]])


def total_enthalpy(gas: FlowingGas, V: Any) -> Any:
    """Per mass, kinetic energy included."""
    return gas.cp_enthalpy * V[-1] + 0.5 * (V[1:-1] @ V[1:-1])


def convected(gas: FlowingGas, V: Any, area: Any) -> Any:
    """Mass, momentum and energy (d + 2,) per time that the state V carries through the area vector ``area`` (d,)."""
    mass = gas.density(V) * (area @ V[1:-1])
    return np.stack([mass, *(mass * V[1:-1] + gas.pressure(V) * area), mass * total_enthalpy(gas, V)])


def roe_flux(gas: FlowingGas, left: Any, right: Any, area: Any, entropy_fix: float) -> Any:
    """Mass, momentum and energy (d + 2,) per time through a face with area vector ``area`` (d,), from left to right.

    The mean of both sides' fluxes, minus half the jump of U taken apart into waves, each times its speed. The entropy
    wave and the shear waves travel at the same speed: what is not in the two sound waves is in them, so that neither
    they nor tangents of the face need be written down.
    """
    size = np.sqrt(area @ area)
    normal = area / size
    u, h, c = roe_average(gas, left, right)
    k, un = 0.5 * (u @ u), u @ normal
    stream, upwind, downwind = _wave_speeds(un * size, c * size, entropy_fix)

    jump = _carried(gas, right) - _carried(gas, left)
    pressure_part = (gas.gamma - 1.0) * (k * jump[0] - u @ jump[1:-1] + jump[-1])
    velocity_part = c * (normal @ jump[1:-1] - un * jump[0])
    forward = (downwind - stream) * (pressure_part + velocity_part) / (2.0 * c**2)
    backward = (upwind - stream) * (pressure_part - velocity_part) / (2.0 * c**2)
    one = np.ones_like(h)  # in the precision of the others
    dissipation = (
        stream * jump
        + forward * np.stack([one, *(u + c * normal), h + k + c * un])
        + backward * np.stack([one, *(u - c * normal), h + k - c * un])
    )
    return 0.5 * (convected(gas, left, area) + convected(gas, right, area)) - 0.5 * dissipation


def _carried(gas: FlowingGas, V: Any) -> Any:
    """U as Roe's flux sees it: the energy from the enthalpy, not from the equation of state."""
    density = gas.density(V)
    energy = density * total_enthalpy(gas, V) - gas.pressure(V)
    return np.stack([density, *(density * V[1:-1]), energy])


def roe_average(gas: FlowingGas, left: Any, right: Any) -> tuple[Any, Any, Any]:
    """Velocity (d,), enthalpy without kinetic energy, and speed of sound between two states."""
    root_left, root_right = np.sqrt(gas.density(left)), np.sqrt(gas.density(right))
    alpha = root_left / (root_left + root_right)
    beta = 1.0 - alpha
    u = alpha * left[1:-1] + beta * right[1:-1]
    jump = right[1:-1] - left[1:-1]
    h = gas.cp_enthalpy * (alpha * left[-1] + beta * right[-1]) + 0.5 * alpha * beta * (jump @ jump)
    return u, h, np.sqrt((gas.gamma - 1.0) * h)


def _wave_speeds(un: Any, c: Any, entropy_fix: float) -> tuple[Any, Any, Any]:
    """|un|, |un - c| and |un + c|, none of them near zero (Harten), where an expansion could turn into a shock."""
    least = entropy_fix * (np.abs(un) + c)

    def kept_away_from_zero(speed: Any) -> Any:
        size = np.abs(speed)
        return np.where(size < least, 0.5 * (speed**2 + least**2) / least, size)

    return kept_away_from_zero(un), kept_away_from_zero(un - c), kept_away_from_zero(un + c)


def viscous_flux(viscosity: Any, conductivity: Any, velocity: Any, gradient: Any, area: Any) -> Any:
    """Momentum and energy (d + 2,) per time that viscous stress and conduction bring in through a face from the right.

    ``gradient`` (d + 2, d) is that of V. A flow in the plane is one in space whose third velocity is 0.
    """
    strain = 0.5 * (gradient[1:-1] + gradient[1:-1].T)
    stress = 2.0 * viscosity * (strain - np.trace(strain) / 3.0 * np.eye(len(strain), dtype=strain.dtype))
    force = stress @ area
    return np.stack([np.zeros_like(force[0]), *force, force @ velocity + conductivity * (gradient[-1] @ area)])
