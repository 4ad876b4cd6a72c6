"""The settings of the BookLeaf cases: one set of sections, and for each problem the values of its reference deck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.case import FamilyConfig, OutputOptions, RunOptions, defaults, order_option, schedule_table
from meshloom.config import option, section
from meshloom.errors import ConfigError
from meshloom.solvers.bookleaf.kernels import BookLeafClock
from meshloom.solvers.bookleaf.physics import BookLeafGas

MOST_STEPS = 1_000_000  # the end is a time; this only stops a run that never gets there


@dataclass(frozen=True)
class BookLeafMeshOptions:
    """How fine the mesh is."""

    cells: tuple[int, int] = option(
        (100, 25), "cells along the first and the second direction of the problem", low=1, high=100_000
    )
    order: str = order_option()


@dataclass(frozen=True)
class BookLeafTimeOptions:
    """When to stop, and how long a time step may be."""

    end: float = option(20.0, "the run stops after the first step that reaches this time", above=0.0)
    initial: float = option(1e-3, "the first time step", above=0.0)
    longest: float = option(0.1, "no time step is longer", above=0.0)
    shortest: float = option(1e-8, "a run whose time step falls to this stops and names the cell", above=0.0)
    growth: float = option(1.02, "a time step is at most so many times as long as the one before", low=1.0, high=10.0)
    cfl: float = option(0.5, "part of the time in which sound crosses a cell", above=0.0, high=10.0)
    divergence: float = option(0.25, "part of a cell's volume that may be won or lost in a step", above=0.0, high=10.0)

    @property
    def clock(self) -> BookLeafClock:
        if not self.shortest < self.initial:
            raise ConfigError(f"time.initial must be longer than time.shortest, got {self.initial} and {self.shortest}")
        return BookLeafClock(self.initial, self.longest, self.growth)


@dataclass(frozen=True)
class BookLeafGasOptions:
    """The gas, the scheme, and below which sizes a number counts as nothing."""

    gamma: float = option(1.4, "ratio of specific heats", above=1.0, high=10.0)
    linear_viscosity: float = option(0.5, "artificial viscosity times the speed of sound", low=0.0, high=10.0)
    quadratic_viscosity: float = option(0.75, "artificial viscosity times the jump of velocity", low=0.0, high=10.0)
    hourglass: float = option(0.0, "strength of the filter against hourglass motion; 0: none", low=0.0, high=1.0)
    subzonal: float = option(0.0, "strength of the pressures of the corners of a cell; 0: none", low=0.0, high=10.0)
    zero: float = option(1e-40, "nothing is divided by less", above=0.0, high=1e-6)
    degenerate: float = option(1e-8, "a side with a smaller squared length counts as a point", low=0.0, high=1.0)
    node_density: float = option(1e-6, "nodes in thinner gas are not accelerated", low=0.0)
    acceleration: float = option(1e-6, "smaller accelerations are none", low=0.0)
    pressure: float = option(1e-8, "smaller pressures are none", low=0.0)
    sound2: float = option(1e-6, "least square of the speed of sound", above=0.0)

    def constants(self, time: BookLeafTimeOptions, dtype: np.dtype) -> BookLeafGas:
        """As the kernels take them. Quotients by ``zero`` squared must stay finite, also in single precision."""
        zero = max(self.zero, float(np.finfo(dtype).tiny) ** 0.25)
        values = {name: getattr(self, name) for name in self.__dataclass_fields__} | {"zero": zero}
        return BookLeafGas(**values, cfl=time.cfl, divergence=time.divergence)


@dataclass(frozen=True)
class BookLeafConfig(FamilyConfig):
    """The sections of all problems; each says what differs."""

    run: RunOptions = section(RunOptions, "How many steps at most, and on what.", iterations=MOST_STEPS)
    mesh: BookLeafMeshOptions = section(BookLeafMeshOptions, "How fine the mesh is.")
    time: BookLeafTimeOptions = section(BookLeafTimeOptions, "When to stop, and how long a time step may be.")
    gas: BookLeafGasOptions = section(
        BookLeafGasOptions, "The gas, the scheme, and below which sizes a number counts as nothing."
    )
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("corner_forces")


@dataclass(frozen=True)
class SodConfig(BookLeafConfig):
    mesh = defaults(cells=(100, 25))
    time = defaults(end=20.0)


@dataclass(frozen=True)
class BlastConfig(BookLeafConfig):
    mesh = defaults(cells=(800, 20))
    time = defaults(end=3.8, initial=1e-5, shortest=1e-15)
    gas = defaults(linear_viscosity=0.25, quadratic_viscosity=0.7)


@dataclass(frozen=True)
class SedovConfig(BookLeafConfig):
    mesh = defaults(cells=(45, 45))
    time = defaults(end=1.0, initial=1e-4, shortest=1e-6)
    gas = defaults(gamma=1.6666666667, hourglass=0.01)  # 5/3 with the digits of the reference deck


@dataclass(frozen=True)
class NohConfig(BookLeafConfig):
    mesh = defaults(cells=(75, 30))
    time = defaults(end=0.6, initial=1e-4, longest=1e-2)
    gas = defaults(gamma=1.6666667, degenerate=1e-40, acceleration=1e-40, pressure=1e-40)


@dataclass(frozen=True)
class SaltzmannConfig(BookLeafConfig):
    mesh = defaults(cells=(100, 10))
    time = defaults(end=0.6, initial=1e-4, shortest=1e-6)
    gas = defaults(gamma=1.6666666667, subzonal=1.0)
