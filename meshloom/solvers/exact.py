"""Exact solutions of the Euler equations for an ideal gas, to check solvers against.

The Riemann problem (Sod's shock tube is one), Noh's implosion and Sedov's point blast. Every solution is an object;
``at(position, time)`` gives its ``GasState`` at an array of positions, in the units of what it was made from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import UserError

PLANAR, CYLINDRICAL, SPHERICAL = 1, 2, 3  # how many dimensions a symmetric flow spreads into


class GasState(NamedTuple):
    """Density, velocity and pressure: numbers, or arrays of one shape."""

    density: Any
    velocity: Any
    pressure: Any

    def energy(self, gamma: float) -> Any:
        """Internal energy per mass."""
        return self.pressure / ((gamma - 1.0) * self.density)


# --- the Riemann problem ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Riemann:
    """Two constant states, apart until time 0: each sends a shock or a rarefaction into its side (Toro, ch. 4)."""

    left: GasState
    right: GasState
    gamma: float = 1.4
    middle: float = 0.0  # where the states meet

    def __post_init__(self) -> None:
        if min(self.left.density, self.left.pressure, self.right.density, self.right.pressure) <= 0.0:
            raise UserError(f"Riemann problem: densities and pressures must be positive, got {self.left}, {self.right}")
        if self.right.velocity - self.left.velocity >= 2.0 / (self.gamma - 1.0) * (
            self._sound(self.left) + self._sound(self.right)
        ):
            raise UserError("Riemann problem: the states part so fast that a vacuum opens between them")

    def _sound(self, state: GasState) -> float:
        return math.sqrt(self.gamma * state.pressure / state.density)

    def _velocity_change(self, pressure: float, state: GasState) -> float:
        """How much slower the gas of one side flows towards the other side once its pressure is ``pressure``."""
        g, ratio = self.gamma, pressure / state.pressure
        if ratio > 1.0:  # through a shock
            return (pressure - state.pressure) * math.sqrt(
                2.0 / state.density / ((g + 1.0) * pressure + (g - 1.0) * state.pressure)
            )
        return 2.0 * self._sound(state) / (g - 1.0) * (ratio ** ((g - 1.0) / (2.0 * g)) - 1.0)

    @cached_property
    def star(self) -> tuple[float, float]:
        """Pressure and velocity between the two waves."""
        from scipy.optimize import brentq

        left, right = self.left, self.right

        def excess(log_pressure: float) -> float:
            pressure = math.exp(log_pressure)
            changes = self._velocity_change(pressure, left) + self._velocity_change(pressure, right)
            return changes + right.velocity - left.velocity

        low, high = math.log(min(left.pressure, right.pressure)), math.log(max(left.pressure, right.pressure))
        while excess(low) > 0.0:
            low -= 1.0
        while excess(high) < 0.0:
            high += 1.0
        pressure = math.exp(brentq(excess, low, high, xtol=1e-15, rtol=1e-15)) if low < high else math.exp(low)
        change = self._velocity_change(pressure, right) - self._velocity_change(pressure, left)
        return pressure, 0.5 * (left.velocity + right.velocity + change)

    def at(self, position: ArrayLike, time: float) -> GasState:
        """The state at positions (n,) and a time above 0."""
        speed = (np.asarray(position, dtype=np.float64) - self.middle) / time
        pressure, velocity = self.star
        of_left = self._side(self.left, speed, pressure, velocity)
        mirrored = GasState(self.right.density, -self.right.velocity, self.right.pressure)
        of_right = self._side(mirrored, -speed, pressure, -velocity)
        at_left = speed <= velocity
        return GasState(
            np.where(at_left, of_left.density, of_right.density),
            np.where(at_left, of_left.velocity, -of_right.velocity),
            np.where(at_left, of_left.pressure, of_right.pressure),
        )

    def _side(self, state: GasState, speed: np.ndarray, pressure: float, velocity: float) -> GasState:
        """The gas that comes from the left, on rays of the given speeds."""
        g, sound, ratio = self.gamma, self._sound(state), pressure / state.pressure
        if ratio > 1.0:
            shock = state.velocity - sound * math.sqrt(((g + 1.0) * ratio + g - 1.0) / (2.0 * g))
            squeezed = state.density * ((g + 1.0) * ratio + g - 1.0) / ((g - 1.0) * ratio + g + 1.0)
            return _pick([speed < shock], [state], GasState(squeezed, velocity, pressure))
        behind = GasState(state.density * ratio ** (1.0 / g), velocity, pressure)
        head, tail = state.velocity - sound, velocity - self._sound(behind)
        relative = np.maximum((2.0 + (g - 1.0) * (state.velocity - speed) / sound) / (g + 1.0), 0.0)
        fan = GasState(
            state.density * relative ** (2.0 / (g - 1.0)),
            2.0 / (g + 1.0) * (sound + 0.5 * (g - 1.0) * state.velocity + speed),
            state.pressure * relative ** (2.0 * g / (g - 1.0)),
        )
        return _pick([speed < head, speed < tail], [state, fan], behind)


def _pick(conditions: list[np.ndarray], states: list[GasState], otherwise: GasState) -> GasState:
    """The first state whose condition holds, part by part."""
    shape = conditions[0].shape

    def part(number: int) -> np.ndarray:
        choices = [np.broadcast_to(state[number], shape) for state in states]
        return np.select(conditions, choices, otherwise[number])

    return GasState(part(0), part(1), part(2))


def sod(middle: float = 0.5, gamma: float = 1.4) -> Riemann:
    """Sod's shock tube (1978): density and pressure 1 at the left, 0.125 and 0.1 at the right, all at rest."""
    return Riemann(GasState(1.0, 0.0, 1.0), GasState(0.125, 0.0, 0.1), gamma, middle)


# --- Noh's implosion --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Noh:
    """Cold gas that flows to the centre everywhere at one speed; a shock runs outwards from it (Noh 1987)."""

    dimensions: int = CYLINDRICAL
    gamma: float = 5.0 / 3.0
    density: float = 1.0
    speed: float = 1.0

    @property
    def shock_speed(self) -> float:
        return 0.5 * (self.gamma - 1.0) * self.speed

    @property
    def behind(self) -> GasState:
        """The gas at rest inside the shock."""
        density = self.density * ((self.gamma + 1.0) / (self.gamma - 1.0)) ** self.dimensions
        return GasState(density, 0.0, 0.5 * (self.gamma - 1.0) * density * self.speed**2)

    def at(self, radius: ArrayLike, time: float) -> GasState:
        """The state at radii (n,) above 0; the velocity is radial."""
        r = np.asarray(radius, dtype=np.float64)
        undisturbed = GasState(self.density * (1.0 + self.speed * time / r) ** (self.dimensions - 1), -self.speed, 0.0)
        return _pick([r < self.shock_speed * time], [self.behind], undisturbed)


# --- Sedov's blast ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sedov:
    """Energy released at a point, line or plane of cold gas at rest, in the form of Kamm & Timmes (2007).

    ``energy`` is that of the whole point or line; of a plane, what goes to one side of it, per area. Everything
    behind the shock is a function of one parameter v, from ``_centre`` (radius 0) to ``_front`` (the shock).
    """

    energy: float
    dimensions: int = CYLINDRICAL
    gamma: float = 1.4
    density: float = 1.0

    def __post_init__(self) -> None:
        g, j = self.gamma, self.dimensions
        if j not in (PLANAR, CYLINDRICAL, SPHERICAL):
            raise UserError(f"Sedov blast: dimensions must be 1, 2 or 3, got {j}")
        if not (self.energy > 0.0 and self.density > 0.0):
            raise UserError(f"Sedov blast: energy and density must be positive, got {self.energy}, {self.density}")
        if not g > 1.0 or g == 2.0 or self._front >= 2.0 / ((g - 1.0) * j + 2.0):
            raise UserError(f"Sedov blast: gamma {g} has no solution of the standard form in {j} dimensions")

    @property
    def _centre(self) -> float:
        return 2.0 / ((self.dimensions + 2) * self.gamma)

    @property
    def _front(self) -> float:
        return 4.0 / ((self.dimensions + 2) * (self.gamma + 1.0))

    @property
    def _power(self) -> float:
        """v = centre + (front - centre) s**power: then the radius is s times a smooth function of s."""
        return (2.0 * (self.gamma - 1.0) + self.dimensions) / (self.gamma - 1.0)

    def _similarity(self, s: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Radius, velocity, density and pressure for s in (0, 1], each in parts of its value at the shock, and
        d(log radius) / d(log s)."""
        g, j = self.gamma, self.dimensions
        a0, a2, a3 = 2.0 / (j + 2), -1.0 / self._power, j / (2.0 * (g - 1.0) + j)
        a1 = (j + 2) * g / (2.0 + j * (g - 1.0)) * (2.0 * j * (2.0 - g) / (g * (j + 2) ** 2) - a2)
        a4, a5 = a1 * (j + 2) / (2.0 - g), -2.0 / (2.0 - g)
        a, b, c = 0.25 * (j + 2) * (g + 1.0), (g + 1.0) / (g - 1.0), 0.5 * (j + 2) * g
        e = 0.5 * (2.0 + j * (g - 1.0))
        d = 1.0 / (1.0 - e * self._front)
        from_centre = (self._front - self._centre) * s**self._power
        v = self._centre + from_centre
        x1, x2, x3, x4 = a * v, s**self._power, d * (1.0 - e * v), b * (1.0 - c * v / g)
        radius = x1**-a0 * s * x3**-a1  # x2**-a2 is s: the power was chosen so
        density = x2**a3 * x3**a4 * x4**a5
        pressure = x1 ** (a0 * j) * x3 ** (a4 - 2.0 * a1) * x4 ** (1.0 + a5)
        slope = 1.0 + self._power * from_centre * (a1 * d * e / x3 - a0 * a / x1)
        return radius, x1 * radius, density, pressure, slope

    @cached_property
    def alpha(self) -> float:
        """energy = alpha density radius**(dimensions + 2) / time**2 ties the shock's radius to time."""
        from scipy.integrate import quad

        g, j = self.gamma, self.dimensions

        def shell(s: float) -> float:
            """Kinetic and internal energy of a shell; the two have the same unit at the shock."""
            radius, velocity, density, pressure, slope = self._similarity(s)
            return float((density * velocity**2 + pressure) * radius**j * slope / s)

        area = {PLANAR: 1.0, CYLINDRICAL: 2.0 * math.pi, SPHERICAL: 4.0 * math.pi}[j]
        integral = quad(shell, 0.0, 1.0, epsabs=0.0, epsrel=1e-11, limit=200)[0]
        return float(area * 8.0 / ((j + 2) ** 2 * (g * g - 1.0)) * integral)

    def shock_radius(self, time: float) -> float:
        return float((self.energy * time**2 / (self.alpha * self.density)) ** (1.0 / (self.dimensions + 2)))

    def at(self, radius: ArrayLike, time: float) -> GasState:
        """The state at radii (n,) and a time above 0; the velocity is radial."""
        g, shock = self.gamma, self.shock_radius(time)
        share = np.asarray(radius, dtype=np.float64) / shock
        shock_speed = 2.0 / (self.dimensions + 2) * shock / time
        inside = np.clip(share, 0.0, 1.0)
        s = _inverse(lambda s: self._similarity(s)[0], inside)
        _, velocity, density, pressure, _ = self._similarity(s)
        behind = GasState(
            (g + 1.0) / (g - 1.0) * self.density * density,
            2.0 / (g + 1.0) * shock_speed * velocity,
            2.0 / (g + 1.0) * self.density * shock_speed**2 * pressure,
        )
        return _pick([share <= 1.0], [behind], GasState(self.density, 0.0, 0.0))


def _inverse(rising: Callable[[np.ndarray], np.ndarray], values: np.ndarray) -> np.ndarray:
    """Where a function that rises from 0 to 1 on (0, 1) has the given values, by bisection."""
    low, high = np.zeros_like(values), np.ones_like(values)
    for _ in range(60):  # halvings down to the last digit
        middle = 0.5 * (low + high)
        below = rising(middle) < values
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high
