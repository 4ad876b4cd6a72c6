"""The physics of one element, phase by phase: forces on its corners, its kinematics, viscosity and equation of state.

Lagrangian hydrodynamics on hexahedra with staggered values: positions and velocities at nodes, energy e (per initial
volume), pressure p and viscosity q in elements; ``v`` is the volume relative to the initial one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.solvers.lulesh.hexahedron import (
    OPPOSITE,
    centre_gradient,
    characteristic_length,
    corner_normals,
    cross,
    volume,
    volume_gradient,
)
from meshloom.solvers.lulesh.options import MaterialOptions

#: Hourglass modes: velocities of the corners that change no volume and no mean gradient.
MODES = np.array([[1, 1, -1, -1, -1, -1, 1, 1], [1, -1, -1, 1, -1, 1, 1, -1], [1, -1, 1, -1, 1, -1, 1, -1],
                  [-1, 1, -1, 1, 1, -1, 1, -1]], float)  # fmt: skip
TINY = 1.0e-36  # keeps quotients finite
GAMMA_LESS_ONE = 2.0 / 3.0
_SLOW_SOUND, _SLOW_SOUND_SQUARED = 0.3333333e-18, 0.1111111e-36  # the floor of the speed of sound, as published


# --- forces -----------------------------------------------------------------------------------------------


def stress_force(x: np.ndarray, p: Any, q: Any) -> np.ndarray:
    """Pressure and viscosity push the corners outwards, (8, 3)."""
    return (p + q) * corner_normals(x)


def hourglass_force(x: np.ndarray, velocity: np.ndarray, volume_now: Any, sound: Any, mass: Any, strength: float):
    """The viscous filter of Flanagan and Belytschko against the modes that the stress does not see, (8, 3)."""
    modes = MODES.astype(x.dtype)
    gradient, amplitude = volume_gradient(x), modes @ x
    shape = modes.T - (gradient @ amplitude.T) / volume_now  # (8, 4): the modes, orthogonal to linear fields
    damping = -0.01 * strength * sound * mass / np.cbrt(volume_now)
    return damping * (shape @ (shape.T @ velocity))


# --- kinematics -------------------------------------------------------------------------------------------


def divergence(x: np.ndarray, velocity: np.ndarray, dt: Any) -> Any:
    """Relative change of volume per time, at the middle of the step."""
    gradient, determinant = centre_gradient(x - 0.5 * dt * velocity)
    spread = velocity[:4] - velocity[list(OPPOSITE)]
    return sum(gradient[:, c] @ spread[:, c] for c in range(3)) / determinant


def mean_differences(f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of values (8, 3) at the corners: differences between opposite faces along xi, eta and zeta."""
    xi = 0.25 * ((f[1] + f[2] + f[6] + f[5]) - (f[0] + f[3] + f[7] + f[4]))
    eta = -0.25 * ((f[0] + f[1] + f[5] + f[4]) - (f[3] + f[2] + f[6] + f[7]))
    zeta = 0.25 * ((f[4] + f[5] + f[6] + f[7]) - (f[0] + f[1] + f[2] + f[3]))
    return xi, eta, zeta


def directional_gradients(x: np.ndarray, velocity: np.ndarray, volume_now: Any) -> tuple[np.ndarray, np.ndarray]:
    """Along xi, eta and zeta: the velocity gradient (3,) and the thickness of the element (3,)."""
    along, change = mean_differences(x), mean_differences(velocity)
    gradients, lengths = [], []
    for c in range(3):
        area = cross(along[(c + 1) % 3], along[(c + 2) % 3])
        lengths.append(volume_now / np.sqrt(area @ area + TINY))
        gradients.append((area / (volume_now + TINY)) @ change[c])
    return np.stack(gradients), np.stack(lengths)


def new_geometry(x: np.ndarray, velocity: np.ndarray, dt: Any, reference: Any) -> tuple[Any, ...]:
    """Relative volume, divergence, characteristic length, directional gradients and lengths after the step."""
    volume_now = volume(x)
    relative = volume_now / reference
    gradients, lengths = directional_gradients(x, velocity, reference * relative)
    return relative, divergence(x, velocity, dt), characteristic_length(x, volume_now), gradients, lengths


# --- viscosity --------------------------------------------------------------------------------------------


def limiter(left: Any, own: Any, right: Any, steepness: float, largest: float) -> Any:
    """0 at an extremum of the velocity gradient, where the full viscosity acts; 1 where it is smooth."""
    norm = 1.0 / (own + TINY)
    left, right = left * norm, right * norm
    phi = np.minimum(0.5 * (left + right), np.minimum(steepness * left, steepness * right))
    return np.clip(phi, 0.0, largest)


def viscosity(gradients: np.ndarray, behind: Any, lengths: np.ndarray, spread: Any, density: Any, m: MaterialOptions):
    """Linear and quadratic terms of the monotonic viscosity; none where the element expands.

    ``behind[c]`` holds the velocity gradient along direction c in the two elements behind its faces.
    """
    linear, quadratic = 0.0, 0.0
    for c in range(3):
        phi = limiter(behind[c][0], gradients[c], behind[c][1], m.limiter, m.largest_slope)
        jump = np.minimum(gradients[c] * lengths[c], 0.0)
        linear = linear + jump * (1.0 - phi)
        quadratic = quadratic + jump**2 * (1.0 - phi**2)
    grows = spread > 0.0
    return np.where(grows, 0.0, -m.linear_q * density * linear), np.where(
        grows, 0.0, m.quadratic_q * density * quadratic
    )


# --- equation of state ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LuleshGas:
    """An ideal gas with gamma = 5/3."""

    m: MaterialOptions

    def cut(self, value: Any) -> Any:
        """Values that are too small to matter are zero."""
        return np.where(np.abs(value) < self.m.cut, 0.0, value)

    def pressure(self, energy: Any, compression: Any, v: Any) -> Any:
        """``compression`` is the density less one."""
        p = self.cut(GAMMA_LESS_ONE * (compression + 1.0) * energy)
        return np.maximum(np.where(v >= self.m.largest_volume, 0.0, p), self.m.least_pressure)

    def energy(self, value: Any) -> Any:
        return np.maximum(value, self.m.least_energy)

    def sound(self, energy: Any, p: Any, compression: Any, v: Any) -> Any:
        """Speed of sound at the relative volume ``v``."""
        bulk = GAMMA_LESS_ONE * (compression + 1.0)
        squared = (GAMMA_LESS_ONE * energy + v**2 * bulk * p) / self.m.density
        return np.where(squared <= _SLOW_SOUND_SQUARED, _SLOW_SOUND, np.sqrt(squared))


def equation_of_state(gas: LuleshGas, state: tuple[Any, Any, Any], v_new: Any, change: Any, ql: Any, qq: Any):
    """Energy, pressure, viscosity and sound after a step that changed the relative volume by ``change``.

    The work done on the element is integrated in three stages: half a step, a whole one, and a correction that
    uses the pressures at both ends and in the middle.
    """
    e, p, q = state
    v = np.clip(v_new, gas.m.least_volume, gas.m.largest_volume)
    dense, dense_half = 1.0 / v - 1.0, 1.0 / (v - 0.5 * change) - 1.0
    expands = change > 0.0

    def drag(energy: Any, pressure: Any, compression: Any, volume_then: Any) -> Any:
        return gas.sound(energy, pressure, compression, volume_then) * ql + qq

    e_half = gas.energy(e - 0.5 * change * (p + q))
    p_half = gas.pressure(e_half, dense_half, v)
    q_half = np.where(expands, 0.0, drag(e_half, p_half, dense_half, 1.0 / (1.0 + dense_half)))

    e_whole = e_half + 0.5 * change * (3.0 * (p + q) - 4.0 * (p_half + q_half))
    e_whole = gas.energy(gas.cut(e_whole))
    p_whole = gas.pressure(e_whole, dense, v)
    q_whole = np.where(expands, 0.0, drag(e_whole, p_whole, dense, v))

    work = 7.0 * (p + q) - 8.0 * (p_half + q_half) + (p_whole + q_whole)
    e_new = gas.energy(gas.cut(e_whole - work * change * (1.0 / 6.0)))
    p_new = gas.pressure(e_new, dense, v)
    q_new = np.where(expands, q_half, gas.cut(drag(e_new, p_new, dense, v)))
    return e_new, p_new, q_new, gas.sound(e_new, p_new, dense, v)
