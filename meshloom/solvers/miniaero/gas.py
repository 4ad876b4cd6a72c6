"""Air as miniAero has it; what flows through a face is that of any compressible flow (``solvers/compressible.py``).

States are arrays whose first axis counts components, so that every function serves one state inside a kernel, (5,), and
the states of all cells, (5, n), alike. ``U`` = (density, momentum x y z, total energy), per volume; ``V`` = (density,
velocity x y z, temperature). All in SI units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.solvers import compressible
from meshloom.solvers.compressible import square


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

    def density(self, V: Any) -> Any:
        return V[0]

    def pressure(self, V: Any) -> Any:
        return V[0] * self.gas_constant * V[4]

    def sound_speed(self, V: Any) -> Any:
        return np.sqrt(self.gamma * self.gas_constant * V[4])

    def viscosity(self, temperature: Any) -> Any:
        return self.sutherland_factor * temperature * np.sqrt(temperature) / (temperature + self.sutherland_temperature)

    def primitives(self, U: Any) -> Any:
        """V of U."""
        velocity = U[1:4] / U[0]
        internal_energy = U[4] / U[0] - 0.5 * square(velocity)
        return np.stack([U[0], *velocity, internal_energy * ((self.gamma - 1.0) / self.gas_constant)])

    def conserved(self, V: Any) -> Any:
        """U of V."""
        internal_energy = self.gas_constant / (self.gamma - 1.0) * V[4]
        return np.stack([V[0], *(V[0] * V[1:4]), V[0] * (internal_energy + 0.5 * square(V[1:4]))])

    def at_rest(self, pressure: float, temperature: float) -> np.ndarray:
        """V (5,) of gas at rest."""
        return np.array([pressure / (self.gas_constant * temperature), 0.0, 0.0, 0.0, temperature])


def viscous_flux(gas: MiniAeroGas, V: Any, gradient: Any, area: Any) -> Any:
    """Momentum and energy (5,) per time that viscous stress and conduction bring in through a face from the right.

    ``gradient`` (5, 3) is that of V.
    """
    viscosity = gas.viscosity(V[4])
    conductivity = gas.cp_conduction / gas.prandtl * viscosity
    return compressible.viscous_flux(viscosity, conductivity, V[1:4], gradient, area)
