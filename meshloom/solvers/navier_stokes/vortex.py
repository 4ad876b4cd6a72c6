"""A vortex that a supersonic stream carries out of the domain: nothing may come back from the boundary.

After Poinsot and Lele (1992). Units: the length l, half the side of the usual domain, the speed of sound and the
density of the stream; time therefore in l / c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Chart, Image, schedule_table
from meshloom.config import option, section
from meshloom.errors import ConfigError
from meshloom.solvers.navier_stokes.boundary import (
    HIGH,
    LOW,
    BoundarySide,
    FarField,
    held_inflow,
    outflow_kernel,
    subsonic_inflow_kernel,
)  # fmt: skip
from meshloom.solvers.navier_stokes.case import FlowCase, FlowMethod, FlowProblem
from meshloom.solvers.navier_stokes.flow import Boundaries
from meshloom.solvers.navier_stokes.gas import Gas
from meshloom.solvers.navier_stokes.stability import Stream


@dataclass(frozen=True)
class VortexMeshOptions:
    """A rectangle around the place where the vortex starts."""

    points: tuple[int, int] = option((512, 512), "points along x and y", low=1, high=65536)
    domain: tuple[float, float] = option((2.0, 2.0), "length and height of the rectangle in l", above=0.0)


@dataclass(frozen=True)
class VortexStreamOptions:
    """The gas and the stream."""

    mach: float = option(1.1, "speed of the stream over the speed of sound", above=0.0, high=5.0)
    reynolds: float = option(10_000.0, "speed of the stream times l over the kinematic viscosity", above=0.0)
    gamma: float = option(1.4, "ratio of specific heats", above=1.0, high=3.0)
    prandtl: float = option(0.72, "Prandtl number", above=0.0)
    relaxation: float = option(
        0.0, "how strongly the pressure outside pulls at open boundaries (sigma of the paper); 0: not at all", low=0.0
    )


@dataclass(frozen=True)
class VortexOptions:
    """The vortex: stream function strength exp(-r^2 / (2 radius^2))."""

    strength: float = option(-0.0005, "strength in c l; negative turns clockwise")
    radius: float = option(0.15, "radius of the core in l", above=0.0)
    at: tuple[float, float] = option((0.0, 0.0), "where its middle is at the start, from the middle of the domain in l")

    @property
    def largest_vorticity(self) -> float:
        """In the middle."""
        return 2.0 * abs(self.strength) / self.radius**2

    @property
    def largest_swirl(self) -> float:
        """The fastest that it turns, at one radius from the middle."""
        return abs(self.strength) / self.radius * math.exp(-0.5)


@dataclass(frozen=True)
class _VortexProblem(FlowProblem):
    mesh: VortexMeshOptions = section(VortexMeshOptions, "The grid.")
    flow: VortexStreamOptions = section(VortexStreamOptions, "The gas and the stream.")
    vortex: VortexOptions = section(VortexOptions, "The vortex.")


@dataclass(frozen=True)
class VortexConfig(FlowMethod, _VortexProblem):
    schedule: dict[str, Any] = schedule_table("outflow")


class VortexOutflow(FlowCase):
    """A vortex leaves; the monitor ``vorticity`` is the largest there is left."""

    name: ClassVar[str] = "vortex_outflow"
    title: ClassVar[str] = "a vortex is carried out of the domain (Navier-Stokes, compact differences, open boundaries)"
    Config: ClassVar[type] = VortexConfig
    small: ClassVar[Mapping[str, Any]] = {"mesh.points": (16, 16)}

    def make_gas(self) -> Gas:
        flow = self.config.flow
        return Gas(flow.gamma, 1.0 / flow.gamma, flow.mach / flow.reynolds, flow.prandtl)

    def make_grid(self) -> ml.Grid:
        mesh = self.config.mesh
        spans = tuple((-0.5 * side, 0.5 * side) for side in mesh.domain)
        return self.new_grid(mesh.points, extent=spans, name="plane")

    def fastest_stream(self) -> Stream:
        swirl = self.config.vortex.largest_swirl
        return Stream((self.config.flow.mach + swirl, swirl), 1.0, 1.0)

    def initial_state(self) -> np.ndarray:
        """The stream with the vortex; its pressure holds it together, its entropy is that of the stream."""
        flow, vortex = self.config.flow, self.config.vortex
        x, y = (coordinate - at for coordinate, at in zip(self.grid.meshgrid(), vortex.at, strict=True))
        core = np.exp(-(x**2 + y**2) / (2.0 * vortex.radius**2))
        swirl = vortex.strength / vortex.radius**2 * core
        stream, deepest = 1.0 / flow.gamma, vortex.strength**2 / (2.0 * vortex.radius**2)
        if deepest >= stream:
            most = vortex.radius * math.sqrt(2.0 * stream)
            raise ConfigError(
                f"vortex.strength = {vortex.strength:g}: the pressure in its middle would be negative; with this radius"
                f" less than {most:.3g}"
            )
        pressure = stream - deepest * core**2
        density = (pressure / stream) ** (1.0 / flow.gamma)
        return self.gas.conserved(density, [flow.mach - swirl * y, swirl * x], pressure)

    def boundaries(self) -> Boundaries:
        """Inflow on the left, open everywhere else."""
        gas, grid = self.gas, self.grid
        left, *others = (BoundarySide(a, end, grid.rank) for a, end in ((0, LOW), (1, LOW), (1, HIGH), (0, HIGH)))
        open_sides = [(side, outflow_kernel(gas, self._far_field(side), side)) for side in others]
        supersonic = self.config.flow.mach > 1.0
        inflow = held_inflow if supersonic else subsonic_inflow_kernel(gas, left)
        names = ("points_per_x", "points_per_y")
        per_length = [ml.Global(1.0 / h, name, dtype=self.dtype) for h, name in zip(grid.spacing, names, strict=True)]

        def apply(q: ml.Field, slopes: Sequence[ml.Field], rate: ml.Field) -> None:
            for side, outflow in open_sides:
                at, points = grid.offsets(*side.offsets), grid.boundary(side.axis, side.end, 1)
                outflow(points, q[at], *(slope[at] for slope in slopes), per_length[side.axis], rate)
            at, points = grid.offsets(*left.offsets), grid.boundary(left.axis, left.end, 1)
            inflow(points, *(() if supersonic else (q[at], per_length[left.axis])), rate)

        return apply

    def _far_field(self, side: BoundarySide) -> FarField:
        """The pull of the outside: weaker, the faster the stream goes out there."""
        flow = self.config.flow
        across = flow.mach if side.axis == 0 else 0.0
        length = self.config.mesh.domain[side.axis]
        return FarField(1.0 / flow.gamma, flow.relaxation * max(1.0 - across**2, 0.0) / length)

    def maps(self) -> dict[str, Image]:
        density = self.grid_fields()["density"]
        return {"density": self.plane_image(density - 1.0, "density over that of the stream - 1")}

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        share = history["vorticity"] / self.config.vortex.largest_vorticity
        curve = {"largest vorticity / that of the start": share}
        return (Chart("vorticity", history["time"], curve, "time c / l", "share"),)
