"""Taylor's decaying vortices in a periodic box: an exact solution of the Navier-Stokes equations in the plane, and in
space eddies that break up (Taylor and Green).

Units: the box has sides of 2 pi, the vortices a speed of 1 at the start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Chart
from meshloom.config import option, section
from meshloom.solvers.fractional_step.boundary_conditions import Condition
from meshloom.solvers.fractional_step.case import MONITORS, IncompressibleCase
from meshloom.solvers.fractional_step.cells import CellGrid, Velocity, even_edges
from meshloom.solvers.fractional_step.options import IncompressibleConfig


@dataclass(frozen=True)
class PeriodicBoxOptions:
    """A square or a cube with sides of 2 pi."""

    cells: tuple[int, ...] = option(
        (64, 64), "cells along x, y and, in space, z", low=2, high=65536,
        accepts=("(two or three of them)", lambda cells: len(cells) in (2, 3)),
    )  # fmt: skip


@dataclass(frozen=True)
class DecayOptions:
    """The fluid."""

    reynolds: float = option(100.0, "one over the kinematic viscosity", above=0.0)


@dataclass(frozen=True)
class DecayConfig(IncompressibleConfig):
    mesh: PeriodicBoxOptions = section(PeriodicBoxOptions, "The grid.")
    flow: DecayOptions = section(DecayOptions, "The fluid.")


class DecayingVortices(IncompressibleCase):
    """In the plane u = sin x cos y exp(-2 nu t), v = -cos x sin y exp(-2 nu t); ``error`` is the largest difference
    from that, which in space, where nobody knows the solution, is no monitor."""

    name: ClassVar[str] = "taylor_green_inc"
    title: ClassVar[str] = "vortices decay in a periodic box (incompressible, fractional steps; exact in the plane)"
    Config: ClassVar[type] = DecayConfig
    drawn: ClassVar[tuple[str, ...]] = ("kinetic_energy",)
    small: ClassVar[Mapping[str, Any]] = {"mesh.cells": (8, 8)}

    def __init__(self, config: Any):
        if len(config.mesh.cells) == 2:
            self.monitors = (*MONITORS, "error")  # type: ignore[misc]  # of this one
        super().__init__(config)

    def make_cells(self, dtype: Any) -> CellGrid:
        cells = self.config.mesh.cells
        return CellGrid([even_edges(n, 0.0, 2.0 * math.pi) for n in cells], [True] * len(cells), dtype=dtype)

    def conditions(self) -> dict[tuple[int, str], Condition]:
        return {}

    def fastest(self) -> tuple[float, ...]:
        return (1.0,) * self.cells.rank

    def start_velocity(self) -> Velocity:
        if self.cells.rank == 2:
            exact = self.cells.values_of(vortices)
            self._start = self.grid.field("start", 2, dtype=self.cells.dtype, data=exact)
        return vortices

    def look(self) -> None:
        for error in self.looked:
            error.value = 0.0
            compare(self.grid, self.flow.velocity, self._start, self.flow.time, self.viscosity, error)

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """Kinetic energy, in the plane with that of the exact solution."""
        curves = {"this run": history["kinetic_energy"]}
        if self.cells.rank == 2:
            curves["exact"] = 0.25 * np.exp(-4.0 * self.viscosity * history["time"])
        return (Chart("kinetic_energy", history["time"], curves, "time", "kinetic energy"),)


def vortices(x: np.ndarray, y: np.ndarray, *z: np.ndarray) -> list[Any]:
    """The velocity at the start."""
    height = np.cos(z[0]) if z else 1.0
    return [np.sin(x) * np.cos(y) * height, -np.cos(x) * np.sin(y) * height, *(0.0 for _ in z)]


@ml.kernel
def compare(u: ml.Read, start: ml.Read, time: ml.Read, viscosity: ml.Read, error: ml.Max):
    """The largest difference from the start, decayed until now."""
    left = np.exp(-2.0 * viscosity * time)
    for c in range(2):
        error[...] = np.abs(u[c] - left * start[c])
