"""Solid-body rotation of a cone: two-dimensional advection, phi = 0 on all sides.

d phi/dt + u d phi/dx + v d phi/dy = 0 with (u, v) = 2 pi (-y, x): after a time of 1 everything is back in its place.
The box of the original has jumps, and a central scheme answers with waves that it cannot damp: every error it makes
stays. A compact filter takes out what is too short for the grid, and a smooth hump shows the order of the scheme.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom import compact
from meshloom.case import Image, defaults
from meshloom.config import option, section
from meshloom.solvers.advection.base import CENTRAL, AdvectionCase, AdvectionConfig, Slopes, scheme_limit

UPWIND = "deng5"
SHAPES = ("box", "cone", "hump")
TURN = 2.0 * np.pi  # radians per unit of time


@dataclass(frozen=True)
class ConeMeshOptions:
    """The square from -1 to 1."""

    points: int = option(256, "points along a side", low=5, high=30_000)


@dataclass(frozen=True)
class ConeSchemeOptions:
    """The derivatives."""

    name: str = option("lele6", "central (lele6, pade4), or deng5: dissipative, by the direction of the flow",
                       allowed=(*CENTRAL, UPWIND))  # fmt: skip


@dataclass(frozen=True)
class HeapOptions:
    """What turns."""

    shape: str = option("box", "a box with steep sides, a cone, or a smooth hump", allowed=SHAPES)
    size: float = option(0.1, "half the side of the box, or the radius", above=0.0, high=0.5)
    at: float = option(0.5, "where its middle is on the y axis", low=-0.5, high=0.5)


@dataclass(frozen=True)
class ConeConfig(AdvectionConfig):
    time = defaults(dt=0.0005, end=1.0)
    filter = defaults(order=8)
    mesh: ConeMeshOptions = section(ConeMeshOptions, "The plane.")
    scheme: ConeSchemeOptions = section(ConeSchemeOptions, "The scheme.")
    heap: HeapOptions = section(HeapOptions, "What turns.")


class RotatingCone(AdvectionCase):
    """One turn of a cone, a box or a hump."""

    name: ClassVar[str] = "rotating_cone"
    title: ClassVar[str] = "solid-body rotation of a cone (2-D advection, compact differences of sixth order)"
    Config: ClassVar[type] = ConeConfig
    small: ClassVar[Mapping[str, Any]] = {"mesh.points": 16}

    def make_grid(self) -> ml.Grid:
        points = self.config.mesh.points
        return self.new_grid((points, points), ((-1.0, 1.0), (-1.0, 1.0)))

    def rate(self) -> float:
        return TURN * sum(1.0 / spacing for spacing in self.grid.spacing)  # in the corners

    def limits_by_scheme(self) -> dict[str, float]:
        name = self.config.scheme.name
        return {name: scheme_limit(CENTRAL.get(name, compact.DENG5_PLUS), axes=2)}

    def exact(self, places: tuple[Any, ...], time: Any) -> Any:
        """The initial values at the place turned back."""
        x, y = places
        cos, sin = np.cos(TURN * time), np.sin(TURN * time)
        heap = self.config.heap
        right, up = cos * x + sin * y, cos * y - sin * x - heap.at
        if heap.shape == "box":
            return np.where((np.abs(right) <= heap.size) & (np.abs(up) <= heap.size), 1.0, 0.0)
        radius = np.minimum(np.sqrt(right**2 + up**2) / heap.size, 1.0)
        return 1.0 - radius if heap.shape == "cone" else (0.5 + 0.5 * np.cos(np.pi * radius)) ** 2

    def right_hand_side(self) -> Slopes:
        scheme = self.config.scheme.name
        return self._upwind() if scheme == UPWIND else self._central(CENTRAL[scheme])

    def _central(self, scheme: compact.Scheme) -> Slopes:
        velocity = self._velocity()

        @ml.kernel
        def carried_x(gradient: ml.Read, velocity: ml.Read, slope: ml.Write):
            slope[...] = -velocity[0] * gradient

        @ml.kernel
        def carried_y(gradient: ml.Read, velocity: ml.Read, slope: ml.Inc):
            slope += -velocity[1] * gradient

        def slopes(phi: ml.Field, slope: ml.Field) -> None:
            compact.d(phi, 0, (velocity, slope), scheme, after=carried_x)
            compact.d(phi, 1, (velocity, slope), scheme, after=carried_y)

        return slopes

    def _upwind(self) -> Slopes:
        """Each direction of the flow gets the scheme that damps its waves; u does not change along x, nor v along y."""
        velocity, schemes = self._velocity(), (compact.DENG5_PLUS, compact.DENG5_MINUS)

        @ml.kernel
        def twice(phi: ml.Read, both: ml.Write):
            both[...] = np.stack([phi, phi])

        def carried(gradients: Any, speed: Any) -> Any:
            return -np.maximum(speed, 0.0) * gradients[0] - np.minimum(speed, 0.0) * gradients[1]

        @ml.kernel
        def upwind_x(gradients: ml.Read, velocity: ml.Read, slope: ml.Write):
            slope[...] = carried(gradients, velocity[0])

        @ml.kernel
        def upwind_y(gradients: ml.Read, velocity: ml.Read, slope: ml.Inc):
            slope += carried(gradients, velocity[1])

        def slopes(phi: ml.Field, slope: ml.Field) -> None:
            for axis, after in enumerate((upwind_x, upwind_y)):
                compact.d(phi, axis, (velocity, slope), schemes, before=twice, after=after, values=2)

        return slopes

    def picture(self) -> Image:
        """The solution next to its errors over the steps."""
        return self.plane_image(self.grid_fields()["phi"], "phi", ("error_l1", "error_l2", "error_max"))

    def maps(self) -> dict[str, Image]:
        """What would be right, and how far from it the solution is."""
        labels = {"exact": "exact phi", "error": "phi - exact"}
        return {name: self.plane_image(self.grid_fields()[name], label) for name, label in labels.items()}

    def _velocity(self) -> ml.Field:
        """(u, v) at every point; none on the sides, so that phi stays 0 there."""
        x, y = self.grid.meshgrid()
        values = TURN * np.stack([-y, x], axis=-1)
        for axis in range(2):
            values[(slice(None),) * axis + ([0, -1],)] = 0.0
        return self.grid.field("velocity", 2, dtype=self.dtype, data=values)
