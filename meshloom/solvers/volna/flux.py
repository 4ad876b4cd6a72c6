"""What flows through an edge of the mesh: the physics that both schemes share, and their two Riemann solvers.

Everything here is a plain function of one edge, used while kernels are traced. A state is (depth, u, v, bed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Scalar = Any  # a number, or the symbol of one while a kernel is traced
H, U, V, BED = range(4)  # components of a state


@dataclass(frozen=True)
class Water:
    """The constants of the equations and of the schemes."""

    gravity: float = 9.81  # m/s^2
    dry: float = 1e-6  # m: land counts as dry below this depth, and no depth is ever smaller


def momenta(w: np.ndarray) -> np.ndarray:
    """Water and momentum per area of a state (depth, u, v, bed)."""
    return np.stack([w[H], w[H] * w[U], w[H] * w[V]])


def state(conserved: np.ndarray, least: Any, bed: Any) -> np.ndarray:
    """The state (depth, u, v, bed) of water and momentum per area; velocities are those of a depth of ``least``."""
    return np.stack([conserved[0], conserved[1] / least, conserved[2] / least, bed])


def kinetic(w: np.ndarray) -> Scalar:
    """Kinetic energy of a state, per area and density of water."""
    return 0.5 * w[H] * (w[U] ** 2 + w[V] ** 2)


class WaterSide(NamedTuple):
    """The water on one side of an edge, above the sill: the higher bed of the two."""

    h: Scalar  # depth above the sill
    u: Scalar
    v: Scalar
    normal: Scalar  # velocity through the edge, from left to right
    along: Scalar  # velocity along the edge
    c: Scalar  # speed of small waves


class Crossing(NamedTuple):
    """What crosses a metre of an edge from left to right per time.

    Momentum is told apart for the two sides, for each without the pressure of its own water above the sill: around a
    cell that pressure cancels but for rounding, and without it water at rest stays at rest to the last digit.
    """

    water: Scalar
    from_left: np.ndarray  # momentum (2,)
    to_right: np.ndarray  # momentum (2,)


def side(state: np.ndarray, sill: Scalar, n: np.ndarray, g: float) -> WaterSide:
    """The part of a cell's water that stands above the sill (hydrostatic reconstruction, Audusse et al. 2004)."""
    depth, u, v, bed = state
    h = np.maximum(depth + bed - sill, 0.0)
    return WaterSide(h, u, v, u * n[0] + v * n[1], v * n[0] - u * n[1], np.sqrt(g * h))


def sides(left: np.ndarray, right: np.ndarray, n: np.ndarray, g: float) -> tuple[WaterSide, WaterSide]:
    """Both sides of an edge above their common sill."""
    sill = np.maximum(left[BED], right[BED])
    return side(left, sill, n, g), side(right, sill, n, g)


def mirrored(state: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The state behind a wall: the same water moving the other way through it."""
    through = state[U] * n[0] + state[V] * n[1]
    return np.stack([state[H], state[U] - 2.0 * through * n[0], state[V] - 2.0 * through * n[1], state[BED]])


def fastest(left: WaterSide, right: WaterSide) -> Scalar:
    """The speed of the fastest wave on either side."""
    return np.maximum(np.abs(left.normal) + left.c, np.abs(right.normal) + right.c)


def wave_speeds(left: WaterSide, right: WaterSide) -> tuple[Scalar, Scalar]:
    """Bounds of the waves that leave the edge: of each side, and of the water between two rarefactions."""
    u = 0.5 * (left.normal + right.normal) + (left.c - right.c)
    c = 0.5 * (left.c + right.c) - 0.25 * (right.normal - left.normal)
    return np.minimum(left.normal - left.c, u - c), np.maximum(right.normal + right.c, u + c)


def pressure_rise(left: WaterSide, right: WaterSide, water: Water) -> Scalar:
    """By how much the pressure of the right side exceeds that of the left.

    As a product: the difference of two squares is not 0 between equal depths where a fused multiply-add rounds one of
    them only, and still water would move.
    """
    return 0.5 * water.gravity * (right.h + left.h) * (right.h - left.h)


class Fan:
    """One average state between the outermost waves ``slow`` and ``fast`` (Harten, Lax and van Leer).

    ``beyond_left`` and ``beyond_right`` say by how much the flux of that state exceeds the flux of either side,
    from the jumps (right minus left) of the flux and of what is conserved: no jump, no excess, to the last digit.
    """

    def __init__(self, slow: Scalar, fast: Scalar, least: float):
        self.slow, self.fast = np.minimum(slow, 0.0), np.maximum(fast, 0.0)
        spread = np.maximum(self.fast - self.slow, least)
        self.left_share, self.right_share = -self.slow / spread, -self.fast / spread

    def beyond_left(self, flux_jump: Scalar, jump: Scalar) -> Scalar:
        return self.left_share * (flux_jump - self.fast * jump)

    def beyond_right(self, flux_jump: Scalar, jump: Scalar) -> Scalar:
        return self.right_share * (flux_jump - self.slow * jump)


def hll(left: WaterSide, right: WaterSide, n: np.ndarray, water: Water) -> Crossing:
    """The flux of one average state between the two outermost waves."""
    fan = Fan(*wave_speeds(left, right), water.dry)  # as in the original the least depth serves as least speed too

    def carried(s: WaterSide) -> np.ndarray:
        return s.h * s.normal * np.stack([s.u, s.v])

    flow_jump = right.h * right.normal - left.h * left.normal
    pressure_jump = pressure_rise(left, right, water)
    flux_jump = carried(right) - carried(left) + pressure_jump * n
    jump = right.h * np.stack([right.u, right.v]) - left.h * np.stack([left.u, left.v])
    return Crossing(
        left.h * left.normal + fan.beyond_left(flow_jump, right.h - left.h),
        carried(left) + fan.beyond_left(flux_jump, jump),
        carried(right) + fan.beyond_right(flux_jump, jump),
    )


def hllc(left: WaterSide, right: WaterSide, n: np.ndarray, water: Water) -> Crossing:
    """As HLL, with the middle wave, on either side of which the velocity along the edge is that of its side; a dry
    side sends no waves, there the water's own front counts (Huang et al. 2013)."""
    dry = water.dry
    slow, fast = wave_speeds(left, right)
    left_dry, right_dry = (left.h <= dry) & (right.h > dry), (right.h <= dry) & (left.h > dry)
    slow = np.where(left_dry, right.normal - 2.0 * right.c, np.where(right_dry, left.normal - left.c, slow))
    fast = np.where(left_dry, right.normal + right.c, np.where(right_dry, left.normal + 2.0 * left.c, fast))
    left_mass, right_mass = left.h * (left.normal - slow), right.h * (right.normal - fast)
    middle = (slow * right_mass - fast * left_mass) / (right_mass - left_mass)
    middle = np.where(left_dry, slow, np.where(right_dry, fast, middle))
    fan = Fan(slow, fast, dry)
    flow = left.h * left.normal, right.h * right.normal
    flow_jump = flow[1] - flow[0]
    force = flow[0] * left.normal, flow[1] * right.normal
    pressure_jump = pressure_rise(left, right, water)
    force_jump = force[1] - force[0] + pressure_jump

    def where(all_left: Scalar, fan_value: Scalar, all_right: Scalar) -> Scalar:
        """Which part of the fan lies on the edge."""
        inside = (middle >= 0.0) | (fast >= 0.0)
        return np.where(slow >= 0.0, all_left, np.where(inside, fan_value, all_right))

    water_flow = where(flow[0], flow[0] + fan.beyond_left(flow_jump, right.h - left.h), flow[1])
    from_left = where(force[0], force[0] + fan.beyond_left(force_jump, flow_jump), force[1] + pressure_jump)
    to_right = where(force[0] - pressure_jump, force[1] + fan.beyond_right(force_jump, flow_jump), force[1])
    along = water_flow * np.where((slow >= 0.0) | (middle >= 0.0), left.along, right.along)
    shear = along * np.stack([-n[1], n[0]])
    return Crossing(water_flow, from_left * n + shear, to_right * n + shear)
