"""Open boundaries: the Navier-Stokes characteristic boundary conditions of Poinsot and Lele.

(J. Comput. Phys. 101, 1992, 104-129.) Across a boundary the flow is taken apart into waves: two of sound at the
speeds u_n - c and u_n + c, and entropy and shear that travel with the flow at u_n. The amplitudes L of those that go
out follow from the inside, by one-sided differences. Those that come in are not known to the inside: they are zero, so
that nothing is reflected, but for a weak pull of the pressure to that of the stream far away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.solvers.navier_stokes.gas import FlowState, Gas, squared, stress

LOW, HIGH = "low", "high"
ONE_SIDED = (-25.0 / 12.0, 4.0, -3.0, 4.0 / 3.0, -1.0 / 4.0)  # first derivative of fourth order from the end inwards


@dataclass(frozen=True)
class BoundarySide:
    """One end of one axis of a grid with ``rank`` axes."""

    axis: int
    end: str  # LOW or HIGH
    rank: int

    @property
    def inwards(self) -> int:
        return 1 if self.end == LOW else -1

    @property
    def offsets(self) -> tuple[tuple[int, ...], ...]:
        """The points of the one-sided difference, from the boundary inwards."""
        return tuple(
            tuple(self.inwards * k if a == self.axis else 0 for a in range(self.rank)) for k in range(len(ONE_SIDED))
        )

    def slope(self, values: Sequence[Any], per_length: Any) -> Any:
        """Derivative along the axis at the boundary, of values at ``offsets``; ``per_length``: 1 / spacing."""
        return self.inwards * per_length * sum(c * v for c, v in zip(ONE_SIDED, values, strict=True))

    def comes_in(self, speed: Any) -> Any:
        """Does a wave of this speed along the axis come from outside?"""
        return speed * self.inwards > 0.0


@dataclass(frozen=True)
class FarField:
    """What is known of the outside: the pressure, and how strongly it pulls.

    ``pull`` is sigma (1 - M^2) c / L, a rate: sigma of about 0.25 keeps the mean pressure, 0 reflects least.
    """

    pressure: float
    pull: float


def outflow_terms(
    gas: Gas, far: FarField, side: BoundarySide, points: Sequence[FlowState], slopes: Any, per_length: Any
) -> np.ndarray:
    """What the normal derivatives add to dq/dt at a boundary point, (d + 2,), without any wave from outside.

    ``points`` are the states at ``side.offsets``; ``slopes[k][a]`` are those along axis a at the k-th. Viscosity
    adds by the normal stress; shear stress and heat flux do not change across the boundary.
    """
    here, n = points[0], side.axis
    c = gas.sound_speed(here)
    u = here.velocity
    slope = _normal_slopes(side, points, per_length)
    sound_down, entropy, shear, sound_up = _amplitudes(side, far, here, c, slope)

    density = (entropy + 0.5 * (sound_up + sound_down)) / c**2
    pressure = 0.5 * (sound_up + sound_down)
    velocity = list(shear)
    velocity[n] = (sound_up - sound_down) / (2.0 * here.density * c)
    momentum = [u[i] * density + here.density * velocity[i] for i in range(len(u))]
    work = sum(here.density * u[i] * velocity[i] for i in range(len(u)))
    energy = 0.5 * squared(u) * density + pressure / (gas.gamma - 1.0) + work

    force = side.slope([stress(gas, at, n)[n] for at in slopes], per_length)
    tau, change = stress(gas, slopes[0], n), slopes[0][n]
    heating = sum(tau[i] * change[i] for i in range(len(u)))
    momentum[n] = momentum[n] - force
    return np.stack([-density, *(-m for m in momentum), -energy + u[n] * force + heating])


def _normal_slopes(side: BoundarySide, points: Sequence[FlowState], per_length: Any) -> FlowState:
    """Derivatives of the primitive variables along the axis."""

    def slope(values: Sequence[Any]) -> Any:
        return side.slope(values, per_length)

    velocity = [slope([p.velocity[i] for p in points]) for i in range(len(points[0].velocity))]
    return FlowState(slope([p.density for p in points]), velocity, slope([p.pressure for p in points]), None)


def _amplitudes(
    side: BoundarySide, far: FarField, here: FlowState, c: Any, slope: FlowState
) -> tuple[Any, Any, list[Any], Any]:
    """L of the sound at u_n - c, of entropy, of shear (d,; its normal entry means nothing), of the sound at u_n + c."""
    n = side.axis
    un, rho = here.velocity[n], here.density
    from_far = far.pull * (here.pressure - far.pressure)

    def going_out(speed: Any, change: Any, instead: Any) -> Any:
        return np.where(side.comes_in(speed), instead, speed * change)

    sound_down = going_out(un - c, slope.pressure - rho * c * slope.velocity[n], from_far)
    entropy = going_out(un, c**2 * slope.density - slope.pressure, 0.0)
    shear = [going_out(un, change, 0.0) for change in slope.velocity]
    sound_up = going_out(un + c, slope.pressure + rho * c * slope.velocity[n], from_far)
    return sound_down, entropy, shear, sound_up


# --- kernels ----------------------------------------------------------------------------------------------


@cache
def outflow_kernel(gas: Gas, far: FarField, side: BoundarySide) -> ml.Kernel:
    """Adds to dq/dt what the normal derivatives give on one side of a plane grid. For points of that side alone."""
    offsets = side.offsets

    @ml.kernel
    def outflow(q: ml.Read, slope_x: ml.Read, slope_y: ml.Read, per_length: ml.Read, rate: ml.Inc):
        points = [gas.state(q[offset]) for offset in offsets]
        slopes = [(slope_x[offset], slope_y[offset]) for offset in offsets]
        rate[...] += outflow_terms(gas, far, side, points, slopes, per_length)

    return outflow


@ml.kernel
def held_inflow(rate: ml.Write):
    """A supersonic stream comes in: nothing from inside reaches the boundary, all stays as it is."""
    rate[...] = 0.0


@cache
def subsonic_inflow_kernel(gas: Gas, side: BoundarySide) -> ml.Kernel:
    """A subsonic stream comes in with fixed velocity and temperature; the density follows the sound that goes out.

    ``rate`` holds what the derivatives along the boundary gave.
    """
    offsets, n, out = side.offsets, side.axis, -side.inwards

    @ml.kernel
    def subsonic_inflow(q: ml.Read, per_length: ml.Read, rate: ml.ReadWrite):
        points = [gas.state(q[offset]) for offset in offsets]
        here, slope = points[0], _normal_slopes(side, points, per_length)
        c = gas.sound_speed(here)
        sound = (here.velocity[n] + out * c) * (slope.pressure + out * here.density * c * slope.velocity[n])
        density = rate[0] - gas.gamma * sound / c**2
        rate[...] = density * q[offsets[0]] / here.density

    return subsonic_inflow
