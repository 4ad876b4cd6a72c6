"""Taylor and Green's vortex: large eddies in a periodic box break up into small ones and come to rest.

The standard test of turbulence solvers (C3.5 of the workshops on high-order CFD): Reynolds number 1600, Mach number
0.1. Units: the length L of the vortices (the box has sides of 2 pi L), their speed V0, and the mean density.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Chart, Image, SpacePicture, cut_planes, defaults
from meshloom.config import option, section
from meshloom.solvers.navier_stokes.case import SCHEME_DOC, FlowCase, FlowMethod, FlowProblem, FlowSchemeOptions
from meshloom.solvers.navier_stokes.equations import FORMS, SPLIT
from meshloom.solvers.navier_stokes.gas import Gas
from meshloom.solvers.navier_stokes.stability import Stream


@dataclass(frozen=True)
class BoxOptions:
    """A cube with sides of 2 pi."""

    points: int = option(64, "points along each of the three axes", low=1, high=4096)


@dataclass(frozen=True)
class VorticesOptions:
    """The gas and its speed."""

    mach: float = option(0.1, "speed of the vortices over the speed of sound", above=0.0, high=2.0)
    reynolds: float = option(1600.0, "L V0 over the kinematic viscosity", above=0.0)
    gamma: float = option(1.4, "ratio of specific heats", above=1.0, high=3.0)
    prandtl: float = option(0.71, "Prandtl number", above=0.0)


@dataclass(frozen=True)
class BoxSchemeOptions(FlowSchemeOptions):
    """How the equations are made discrete."""

    form: str = option(
        SPLIT,
        "split: half of the convective flux by the product rule, which stays stable where the flow is not resolved;"
        " divergence: derivatives of the fluxes as they stand",
        allowed=FORMS,
    )


@dataclass(frozen=True)
class TaylorGreenConfig(FlowMethod, FlowProblem):
    mesh: BoxOptions = section(BoxOptions, "The grid.")
    flow: VorticesOptions = section(VorticesOptions, "The gas and its speed.")
    time = defaults(end=20.0, cfl=1.2)
    scheme: BoxSchemeOptions = section(BoxSchemeOptions, SCHEME_DOC)


class TaylorGreen(FlowCase):
    """Vortices that stretch each other until viscosity stops them."""

    name: ClassVar[str] = "taylor_green"
    title: ClassVar[str] = "vortices in a periodic box break up and decay (Navier-Stokes, compact differences)"
    Config: ClassVar[type] = TaylorGreenConfig
    drawn: ClassVar[tuple[str, ...]] = ("kinetic_energy", "enstrophy")
    small: ClassVar[Mapping[str, Any]] = {"mesh.points": 16}

    @property
    def form(self) -> str:
        form: str = self.config.scheme.form
        return form

    def make_gas(self) -> Gas:
        flow = self.config.flow
        return Gas(flow.gamma, 1.0 / (flow.gamma * flow.mach**2), 1.0 / flow.reynolds, flow.prandtl)

    def make_grid(self) -> ml.Grid:
        side = 2.0 * math.pi
        return self.new_grid((self.config.mesh.points,) * 3, extent=(side,) * 3, periodic=True, name="box")

    def fastest_stream(self) -> Stream:
        return Stream((1.0, 1.0, 1.0), 1.0 / self.config.flow.mach, 1.0)

    def initial_state(self) -> np.ndarray:
        """At one temperature, with the pressure that holds the vortices of an incompressible flow together."""
        x, y, z = self.grid.meshgrid()
        velocity = [np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), np.zeros_like(x)]
        excess = (np.cos(2.0 * x) + np.cos(2.0 * y)) * (np.cos(2.0 * z) + 2.0) / 16.0
        pressure = self.gas.constant + excess
        return self.gas.conserved(pressure / self.gas.constant, velocity, pressure)

    def maps(self) -> dict[str, Image | SpacePicture]:
        fields = self.grid_fields()
        return {
            "density": self.plane_image(fields["density"] - 1.0, "density - 1"),
            "planes": cut_planes(self.grid.coordinates, fields["vorticity"], "vorticity"),
        }

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """Kinetic energy, how fast it goes, and what viscosity takes by the enstrophy: in the end the same."""
        time, energy = history["time"], history["kinetic_energy"]
        if len(time) < 3:
            return ()
        by_friction = 2.0 * self.gas.viscosity * history["enstrophy"]
        rates = {"-dE/dt": -np.gradient(energy, time), "2 mu enstrophy": by_friction}
        return (
            Chart("kinetic_energy", time, {"kinetic energy": energy}, "time V0 / L", "E / V0^2"),
            Chart("dissipation", time, rates, "time V0 / L", "rate L / V0^3"),
            Chart("enstrophy", time, {"enstrophy": history["enstrophy"]}, "time V0 / L", "enstrophy L^2 / V0^2"),
        )
