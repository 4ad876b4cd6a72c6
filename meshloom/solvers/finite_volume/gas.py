"""The gas: ideal, with no, constant or Sutherland's viscosity.

``U`` = (density, momentum, total energy), per volume, and ``V`` = (pressure, velocity, temperature) have d + 2
components, d = 2 or 3, on their first axis. Units are the user's, as long as they belong together: SI, or those of the
free stream.

V is what gradients are taken of: at a contact, where gases of different density touch, pressure and velocity do not
jump, and at low speed the small differences of pressure, which drive the flow, are not lost in those of density. What
reconstruction bounds at faces is (pressure, velocity, density), whose gradients follow from those of V.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.solvers.compressible import square

VISCOSITIES = ("none", "constant", "sutherland")


@dataclass(frozen=True)
class IdealGas:
    """p = density R T, and the transport coefficients."""

    gamma: float = 1.4
    gas_constant: float = 1.0
    prandtl: float = 0.72
    law: str = "none"  # one of VISCOSITIES
    reference_viscosity: float = 0.0  # at the reference temperature
    reference_temperature: float = 1.0
    sutherland_temperature: float = 0.0  # Sutherland's constant

    @property
    def viscous(self) -> bool:
        return self.law != "none"

    @property
    def cp_enthalpy(self) -> float:
        """Heat capacity per mass at constant pressure."""
        return self.gamma * self.gas_constant / (self.gamma - 1.0)

    def pressure(self, V: Any) -> Any:
        return V[0]

    def density(self, V: Any) -> Any:
        return V[0] / (self.gas_constant * V[-1])

    def sound_speed(self, V: Any) -> Any:
        return np.sqrt(self.gamma * self.gas_constant * V[-1])

    def viscosity(self, temperature: Any) -> Any:
        if self.law == "none":
            return np.zeros_like(temperature)
        if self.law == "constant":
            return self.reference_viscosity * np.ones_like(temperature)
        ratio = temperature / self.reference_temperature
        constant = self.sutherland_temperature / self.reference_temperature
        return self.reference_viscosity * (1.0 + constant) * ratio * np.sqrt(ratio) / (ratio + constant)

    def conductivity(self, viscosity: Any) -> Any:
        return self.cp_enthalpy / self.prandtl * viscosity

    def bounded(self, V: Any) -> Any:
        """What limiters keep within bounds: pressure, velocity and density. Density is what is conserved; bounds of
        pressure and temperature alone would let it become p_max / (R T_min)."""
        return np.stack([*V[:-1], self.density(V)])

    def bounded_change(self, V: Any, change: Any) -> Any:
        """How much that changes where V changes by a little: d rho = rho (dp / p - dT / T)."""
        return np.stack([*change[:-1], self.density(V) * (change[0] / V[0] - change[-1] / V[-1])])

    def bounded_size(self, V: Any) -> Any:
        """How large that is, velocity by the speed of sound."""
        return np.stack([V[0], *(self.sound_speed(V) * np.ones_like(V[1:-1])), self.density(V)])

    def unbounded(self, bounded: Any) -> Any:
        """V of pressure, velocity and density."""
        return np.stack([*bounded[:-1], bounded[0] / (self.gas_constant * bounded[-1])])

    def primitives(self, U: Any) -> Any:
        """V of U."""
        velocity = U[1:-1] / U[0]
        pressure = (self.gamma - 1.0) * (U[-1] - 0.5 * U[0] * square(velocity))
        return np.stack([pressure, *velocity, pressure / (self.gas_constant * U[0])])

    def conserved(self, V: Any) -> Any:
        """U of V."""
        density = self.density(V)
        energy = V[0] / (self.gamma - 1.0) + 0.5 * density * square(V[1:-1])
        return np.stack([density, *(density * V[1:-1]), energy])

    def state(self, density: Any, velocity: Any, pressure: Any) -> np.ndarray:
        """V of a density, a velocity (d,) and a pressure, or of as many of each: (d + 2,) or (d + 2, n)."""
        return np.stack([pressure, *velocity, np.asarray(pressure) / (self.gas_constant * np.asarray(density))])
