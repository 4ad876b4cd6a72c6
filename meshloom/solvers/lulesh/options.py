"""What can be set about a blast wave: the mesh, the material and its viscosity, the time, and what is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshloom.case import OutputOptions, RunOptions, order_option, schedule_table
from meshloom.config import option, section


@dataclass(frozen=True)
class LuleshMeshOptions:
    """A cube of hexahedra: one eighth of the blast, with mirrors at x = 0, y = 0 and z = 0."""

    size: int = option(30, "elements along each edge of the cube", low=2, high=1000)
    side: float = option(1.125, "length of an edge", above=0.0)
    order: str = order_option()


@dataclass(frozen=True)
class BlastOptions:
    """What happens at the origin."""

    energy: float = option(3.948746e7, "energy per volume of the element at the origin, for 45 elements along an edge",
                           above=0.0)  # fmt: skip


@dataclass(frozen=True)
class LuleshTimeOptions:
    """How far to go, and in what steps."""

    end: float = option(1.0e-2, "time at the end", above=0.0)
    largest: float = option(1.0e-2, "no step is longer", above=0.0)
    courant: float = option(0.5, "length of a step as a share of what sound allows", above=0.0, high=10.0)
    expansion: float = option(0.1, "volumes may change by so much in a step", above=0.0, high=1.0)
    growth: float = option(1.2, "a step is at most so many times the one before", above=1.0, high=10.0)
    least_growth: float = option(1.1, "a step that could grow by less stays as long as it was", low=1.0, high=10.0)


@dataclass(frozen=True)
class MaterialOptions:
    """The ideal gas (gamma = 5/3), its artificial viscosity, the hourglass filter, and what counts as zero."""

    hourglass: float = option(3.0, "strength of the hourglass filter", low=0.0)
    linear_q: float = option(0.5, "linear coefficient of the monotonic viscosity", low=0.0)
    quadratic_q: float = option(2.0 / 3.0, "quadratic coefficient of the monotonic viscosity", low=0.0)
    courant_q: float = option(2.0, "quadratic coefficient of the viscosity in the limit of the time step", low=0.0)
    limiter: float = option(2.0, "how steep the limiter of the viscosity is", low=0.0)
    largest_slope: float = option(1.0, "the limiter's upper end", low=0.0)
    largest_q: float = option(1.0e12, "a viscosity above this stops the run", above=0.0)
    density: float = option(1.0, "density of the undisturbed gas", above=0.0)
    cut: float = option(1.0e-7, "energies, pressures, viscosities and velocities below this are zero", low=0.0)
    volume_cut: float = option(1.0e-10, "a relative volume so close to 1 is 1", low=0.0)
    least_pressure: float = option(0.0, "pressures do not fall below")
    least_energy: float = option(-1.0e15, "energies do not fall below")
    least_volume: float = option(1.0e-9, "relative volumes count as at least this in the equation of state", above=0.0)
    largest_volume: float = option(1.0e9, "and as at most this", above=0.0)


@dataclass(frozen=True)
class LuleshConfig:
    run: RunOptions = section(RunOptions, "On what to run, and the most iterations.", iterations=1_000_000)
    mesh: LuleshMeshOptions = section(LuleshMeshOptions, "The mesh.")
    blast: BlastOptions = section(BlastOptions, "The energy that starts it.")
    time: LuleshTimeOptions = section(LuleshTimeOptions, "How far to go, and in what steps.")
    material: MaterialOptions = section(MaterialOptions, "The gas and the scheme.")
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("forces")
