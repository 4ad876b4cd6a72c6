"""Exact solutions of the shallow water equations: what the water cases are measured against.

Lengths in metres, times in seconds. Depth ``h`` is that of the water, ``u`` and ``v`` are its velocity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Stoker:
    """A dam breaks in a channel that is wet on both sides (Stoker 1957): a rarefaction runs into the deep water on
    the left, a bore into the shallow water on the right, and between them depth and velocity are constant. Without
    water on the right the rarefaction goes all the way to a dry front (Ritter 1892)."""

    left: float = 2.0  # depth
    right: float = 1.0  # depth, smaller than left
    gravity: float = 9.81

    @cached_property
    def middle(self) -> tuple[float, float]:
        """Depth and velocity between the two waves: where both waves allow the same velocity."""
        from scipy.optimize import brentq

        g, hl, hr = self.gravity, self.left, self.right
        if hr == 0.0:
            return 0.0, float(2.0 * np.sqrt(g * hl))

        def behind_rarefaction(h: float) -> float:
            return float(2.0 * (np.sqrt(g * hl) - np.sqrt(g * h)))

        def behind_bore(h: float) -> float:
            return float((h - hr) * np.sqrt(0.5 * g * (h + hr) / (h * hr)))

        depth = float(brentq(lambda h: behind_rarefaction(h) - behind_bore(h), hr, hl, xtol=1e-15))
        return depth, behind_rarefaction(depth)

    @property
    def bore_speed(self) -> float:
        depth, velocity = self.middle
        return velocity if self.right == 0.0 else depth * velocity / (depth - self.right)

    def at(self, x: np.ndarray, time: float) -> tuple[np.ndarray, np.ndarray]:
        """Depth and velocity at distances ``x`` from the dam."""
        g, (depth, velocity) = self.gravity, self.middle
        speed = np.asarray(x, dtype=np.float64) / time
        wave = np.sqrt(g * self.left)
        where = [speed < -wave, speed < velocity - np.sqrt(g * depth), speed < self.bore_speed]
        h = np.select(where, [self.left, (2.0 * wave - speed) ** 2 / (9.0 * g), depth], self.right)
        u = np.select(where, [0.0, 2.0 / 3.0 * (wave + speed), velocity], 0.0)
        return h, u


@dataclass(frozen=True)
class Thacker:
    """Water that swings in a bowl, a paraboloid of revolution, round and round for ever (Thacker 1981).

    At time 0 it is heaped up in the middle, at rest, with its edge at ``start``; the edge moves up and down the
    dry slope. ``radius`` is that of the still water, ``depth`` its greatest depth.
    """

    depth: float = 0.1
    radius: float = 1.0
    start: float = 0.8
    gravity: float = 9.81

    @property
    def omega(self) -> float:
        """Angular frequency of the swing."""
        return float(np.sqrt(8.0 * self.gravity * self.depth) / self.radius)

    @property
    def period(self) -> float:
        return 2.0 * np.pi / self.omega

    @property
    def amplitude(self) -> float:
        return (self.radius**2 - self.start**2) / (self.radius**2 + self.start**2)

    def bed(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Height of the bowl; the surface at rest is 0."""
        result: np.ndarray = -self.depth * (1.0 - (x**2 + y**2) / self.radius**2)
        return result

    def surface(self, x: np.ndarray, y: np.ndarray, time: float) -> np.ndarray:
        """Height of the water's surface, where there is water; below the bed elsewhere."""
        a = self.amplitude
        swing = 1.0 - a * np.cos(self.omega * time)
        curved = (x**2 + y**2) / self.radius**2 * ((1.0 - a**2) / swing**2 - 1.0)
        result: np.ndarray = self.depth * (np.sqrt(1.0 - a**2) / swing - 1.0 - curved)
        return result

    def at(self, x: np.ndarray, y: np.ndarray, time: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Depth and both velocities; all zero on dry land."""
        a, angle = self.amplitude, self.omega * time
        h = np.maximum(self.surface(x, y, time) - self.bed(x, y), 0.0)
        rate = 0.5 * self.omega * a * np.sin(angle) / (1.0 - a * np.cos(angle))
        return h, np.where(h > 0.0, rate * x, 0.0), np.where(h > 0.0, rate * y, 0.0)
