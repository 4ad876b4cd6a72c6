"""Settings of the miniAero cases. Defaults are those of the original program, its oddities included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshloom.case import OutputOptions, RunOptions, order_option, schedule_table
from meshloom.config import option, section
from meshloom.solvers.miniaero.gas import MiniAeroGas


@dataclass(frozen=True)
class MiniAeroMeshOptions:
    """A channel of hexahedra whose floor may rise from half its length on."""

    cells: tuple[int, int, int] = option((64, 32, 2), "cells along x, y and z", low=1, high=100_000)
    extent: tuple[float, float, float] = option((2.0, 2.0, 1.0), "length, height and depth in metres", above=0.0)
    angle: float = option(0.0, "slope of the floor in degrees", low=0.0, high=80.0)
    pi_decimals: int = option(
        8, "decimals of pi that turn the angle into radians: the original has 3.14159265; -1 takes all", low=-1, high=15
    )
    order: str = order_option()


@dataclass(frozen=True)
class MiniAeroTimeOptions:
    """The four-stage Runge-Kutta method with steps of one length."""

    dt: float = option(1e-5, "time step in seconds", above=0.0, high=1e6)


@dataclass(frozen=True)
class MiniAeroGasOptions:
    """The gas. The original's three heat capacities contradict each other: keep them to reproduce it."""

    gamma: float = option(1.4, "ratio of specific heats", above=1.0, high=3.0)
    gas_constant: float = option(287.05, "specific gas constant in J/(kg K)", above=0.0)
    cp_enthalpy: float = option(
        1004.0,
        "heat capacity in J/(kg K) for the enthalpy in the flux: the original rounds it, so that its energy flux does"
        " not quite belong to its equation of state; 0 takes gamma R/(gamma - 1)",
        low=0.0,
    )
    cp_conduction: float = option(
        1006.0,
        "heat capacity in J/(kg K) for the conductivity: another value in the original; 0 takes gamma R/(gamma - 1)",
        low=0.0,
    )
    prandtl: float = option(0.71, "Prandtl number", above=0.0)
    sutherland_factor: float = option(1.458e-6, "factor of Sutherland's viscosity in kg/(m s sqrt(K))", low=0.0)
    sutherland_temperature: float = option(110.4, "temperature in Sutherland's viscosity in K", low=0.0)

    def gas(self) -> MiniAeroGas:
        consistent = self.gamma * self.gas_constant / (self.gamma - 1.0)
        capacities = {name: getattr(self, name) or consistent for name in ("cp_enthalpy", "cp_conduction")}
        return MiniAeroGas(**vars(self) | capacities)


@dataclass(frozen=True)
class MiniAeroSchemeOptions:
    """Details of the scheme."""

    entropy_fix: float = option(
        0.1, "wave speeds below this share of the fastest one are rounded off (Harten)", above=0.0, high=1.0
    )
    limiter_exponent: int = option(
        2,
        "the limiter does not act on changes below distance**(exponent / 2): the original passes the square of the"
        " distance where Venkatakrishnan's limiter has its cube",
        low=1,
        high=6,
    )


@dataclass(frozen=True)
class TubeOptions:
    """Gas at rest on both sides of a membrane at half the length."""

    left: tuple[float, float] = option((68947.57, 288.889), "pressure in Pa and temperature in K", above=0.0)
    right: tuple[float, float] = option((6894.757, 231.11), "pressure in Pa and temperature in K", above=0.0)


@dataclass(frozen=True)
class MiniAeroStreamOptions:
    """What comes in, and is everywhere at the start."""

    state: tuple[float, float, float, float, float] = option(
        (0.5805, 503.96, 0.0, 0.0, 343750.0),
        "density, momentum along x, y, z and total energy per volume",
        accepts=(
            "with positive density and temperature",
            lambda U: U[0] > 0.0 and U[4] > 0.5 * (U[1] ** 2 + U[2] ** 2 + U[3] ** 2) / U[0],
        ),
    )


_ORDER = "1 takes the values of the cells at their faces, 2 reconstructs them with limited gradients"
_VISCOUS = "viscous stress and heat conduction between cells and at no-slip walls"


@dataclass(frozen=True)
class ShockTubeConfig:
    order: int = option(1, _ORDER, low=1, high=2)
    viscous: bool = option(False, _VISCOUS)
    run: RunOptions = section(RunOptions, "How long, and on what.", iterations=100)
    time: MiniAeroTimeOptions = section(MiniAeroTimeOptions, "Time steps.", dt=2e-6)
    mesh: MiniAeroMeshOptions = section(MiniAeroMeshOptions, "The mesh.", cells=(128, 4, 4), extent=(0.3048, 1.0, 1.0))
    tube: TubeOptions = section(TubeOptions, "The gas on both sides of the membrane.")
    gas: MiniAeroGasOptions = section(MiniAeroGasOptions, "The gas.")
    scheme: MiniAeroSchemeOptions = section(MiniAeroSchemeOptions, "Details of the scheme.")
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("face_flux")


@dataclass(frozen=True)
class RampConfig:
    order: int = option(2, _ORDER, low=1, high=2)
    viscous: bool = option(False, _VISCOUS)
    run: RunOptions = section(RunOptions, "How long, and on what.", iterations=400)
    time: MiniAeroTimeOptions = section(MiniAeroTimeOptions, "Time steps.", dt=1e-5)
    mesh: MiniAeroMeshOptions = section(MiniAeroMeshOptions, "The mesh.", angle=30.0)
    stream: MiniAeroStreamOptions = section(MiniAeroStreamOptions, "The gas that comes in.")
    gas: MiniAeroGasOptions = section(MiniAeroGasOptions, "The gas.")
    scheme: MiniAeroSchemeOptions = section(MiniAeroSchemeOptions, "Details of the scheme.")
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("face_flux")


@dataclass(frozen=True)
class PlateConfig(RampConfig):
    viscous: bool = option(True, _VISCOUS)
    time: MiniAeroTimeOptions = section(MiniAeroTimeOptions, "Time steps.", dt=3e-8)
    mesh: MiniAeroMeshOptions = section(MiniAeroMeshOptions, "The mesh.", cells=(16, 32, 2), extent=(2.0, 0.002, 1.0))
