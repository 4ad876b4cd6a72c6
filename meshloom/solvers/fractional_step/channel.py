"""Flow between two walls at y = -1 and y = 1, driven along x, periodic along x and, in space, along z: laminar, or
turbulent.

Units: half the distance between the walls, and the friction velocity. So the mean pressure falls by 1 per unit of
length, which is the force that drives the fluid, the mean shear at the walls is 1 once the flow is steady, and the
viscosity is one over the friction Reynolds number. How much flows follows from that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Chart, defaults
from meshloom.config import option, section
from meshloom.errors import ConfigError
from meshloom.solvers.fractional_step import turbulence
from meshloom.solvers.fractional_step.boundary_conditions import HIGH, LOW, Condition, Wall
from meshloom.solvers.fractional_step.case import MONITORS, IncompressibleCase
from meshloom.solvers.fractional_step.cells import CellGrid, Velocity, even_edges, spacings, stretched_edges
from meshloom.solvers.fractional_step.operators import area, volume
from meshloom.solvers.fractional_step.options import MethodConfig, ProblemConfig
from meshloom.solvers.fractional_step.statistics import ChannelStatistics

AUTO, REST, TURBULENT = STARTS = ("auto", "rest", "turbulent")
TURBULENT_FROM = 100.0  # the friction Reynolds number from which on turbulence lives on
AUTO_STRETCH, MOST_STRETCH = -1.0, 4.0
FORCE = 1.0  # minus the mean slope of the pressure along x


@dataclass(frozen=True)
class ChannelOptions:
    """The box: 2 high."""

    cells: tuple[int, ...] = option(
        (8, 32), "cells along x, y and, in space, z", low=2, high=65536,
        accepts=("(two or three of them)", lambda cells: len(cells) in (2, 3)),
    )  # fmt: skip
    length: float = option(4.0 * math.pi, "length of the box along x", above=0.0)
    width: float = option(4.0 * math.pi / 3.0, "width of the box along z", above=0.0)
    stretch: float = option(
        AUTO_STRETCH,
        "narrows cells towards the walls by a hyperbolic tangent; 0: all alike; -1: 0, and for turbulent flow so much"
        " that the first cells are a wall unit wide",
        low=-1.0,
        high=MOST_STRETCH,
        accepts=("(0 or more, or -1)", lambda stretch: stretch >= 0.0 or stretch == AUTO_STRETCH),
    )


@dataclass(frozen=True)
class ChannelFlowOptions:
    """The fluid."""

    reynolds_tau: float = option(
        10.0, "friction velocity times half the height over the kinematic viscosity", above=0.0
    )
    start: str = option(
        AUTO,
        "rest; turbulent: the mean velocity of turbulent flow with strong disturbances; auto: turbulent in space where"
        f" reynolds_tau is {TURBULENT_FROM:g} or more",
        allowed=STARTS,
    )


@dataclass(frozen=True)
class StatisticsOptions:
    """Means of turbulent flow."""

    after: float = option(20.0, "time after which means are taken", low=0.0)


@dataclass(frozen=True)
class _ChannelProblem(ProblemConfig):
    mesh: ChannelOptions = section(ChannelOptions, "The grid.")
    flow: ChannelFlowOptions = section(ChannelFlowOptions, "The fluid.")
    time = defaults(end=100.0, steady=1e-8)
    statistics: StatisticsOptions = section(StatisticsOptions, "Means of turbulent flow.")


@dataclass(frozen=True)
class ChannelConfig(MethodConfig, _ChannelProblem):
    """With the statistics between problem and method."""


class Channel(IncompressibleCase):
    """From rest until it is steady, or turbulent until a time. ``re_tau_low``, ``re_tau_high``: friction Reynolds
    numbers by the shear at either wall; ``balance``: the shear at both walls over the force on all of the fluid, 1
    where the flow is steady."""

    name: ClassVar[str] = "channel"
    title: ClassVar[str] = "flow between two walls, laminar or turbulent (incompressible, fractional steps)"
    Config: ClassVar[type] = ChannelConfig
    monitors: ClassVar[tuple[str, ...]] = (*MONITORS, "bulk_velocity", "re_tau_low", "re_tau_high", "balance")
    drawn: ClassVar[tuple[str, ...]] = ("bulk_velocity",)
    small: ClassVar[Mapping[str, Any]] = {"mesh.cells": (4, 8, 4)}

    def __init__(self, config: Any):
        deep = len(config.mesh.cells) == 3
        fast = config.flow.reynolds_tau >= TURBULENT_FROM
        self.turbulent = config.flow.start == TURBULENT or (config.flow.start == AUTO and deep and fast)
        if self.turbulent and not deep:
            raise ConfigError("flow.start: turbulence needs space; give three numbers of cells, such as"
                              " mesh.cells = [128, 96, 96]")  # fmt: skip
        super().__init__(config)

    def make_cells(self, dtype: Any) -> CellGrid:
        mesh = self.config.mesh
        across = stretched_edges(mesh.cells[1], -1.0, 1.0, self._stretch())
        edges = [even_edges(mesh.cells[0], 0.0, mesh.length), across]
        edges += [even_edges(n, 0.0, mesh.width) for n in mesh.cells[2:]]
        return CellGrid(edges, [True, False, True][: len(edges)], dtype=dtype)

    def _stretch(self) -> float:
        mesh = self.config.mesh
        if mesh.stretch != AUTO_STRETCH:
            return float(mesh.stretch)
        return stretch_for(mesh.cells[1], self.viscosity) if self.turbulent else 0.0

    def conditions(self) -> dict[tuple[int, str], Condition]:
        return {(1, LOW): Wall(), (1, HIGH): Wall()}

    @property
    def viscosity(self) -> float:
        return 1.0 / self.config.flow.reynolds_tau

    @property
    def force(self) -> float:
        return FORCE

    def early_end(self) -> str:
        return "" if self.turbulent else super().early_end()

    def fastest(self) -> tuple[float, ...]:
        """The parabola's speed in the middle, and nothing across; of turbulent flow, what eddies reach."""
        if not self.turbulent:
            return 0.5 * self.config.flow.reynolds_tau, *(0.0,) * (self.cells.rank - 1)
        return turbulence.fastest(self.cells, self.viscosity)

    def start_velocity(self) -> Velocity | float:
        return turbulence.start(self.cells, self.viscosity) if self.turbulent else 0.0

    def further_state(self) -> tuple[ml.Field | ml.Global, ...]:
        if not self.turbulent:
            return ()
        self.statistics = ChannelStatistics(self.cells, self.flow, self.config.statistics.after)
        return self.statistics.state

    # --- monitors

    def look(self) -> None:
        """Mean velocity along x, and the shear at both walls."""
        cells, u = self.cells, self.flow.velocity
        bulk, low, high, both = self.looked
        bulk.value = low.value = high.value = both.value = 0.0
        bulk_kernel(cells.even)(cells.grid, u, 1.0 / cells.volume, bulk, *cells.widths)
        share = 2.0 * self.viscosity / cells.volume * 2.0  # the slope at a wall is u over half a cell; of the area
        for place, found in ((0, low), (cells.shape[1] - 1, high)):
            shear_kernel(cells.even)(cells.layer(1, place), u, share, found, both, *cells.widths)
        if self.turbulent:
            self.statistics.gather()

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        rows = super().monitor_rows(recorded)
        shear = [self.monitors.index(name) for name in ("re_tau_low", "re_tau_high")]
        rows[:, shear] = np.sqrt(np.maximum(rows[:, shear], 0.0)) * self.config.flow.reynolds_tau
        return rows

    # --- what is drawn

    def mean_velocity(self) -> np.ndarray:
        """Along x, over the height: a mean over x and z, (ny,)."""
        others = tuple(a for a in range(self.cells.rank) if a != 1)
        return self.grid.shaped(self.flow.velocity)[..., 0].astype(np.float64).mean(axis=others)

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """The mean velocity over the height, with the parabola of laminar flow; of turbulent flow the means."""
        if self.turbulent:
            found = self.statistics.profiles()
            return () if found is None else turbulence.charts(found, self.viscosity, self.mean_velocity())
        places = np.concatenate([[-1.0], self.cells.axes[1].centres, [1.0]])
        curves = {"this run": np.concatenate([[0.0], self.mean_velocity(), [0.0]]),
                  "laminar": parabola(places, self.config.flow.reynolds_tau)}  # fmt: skip
        return (Chart("mean_velocity", places, curves, "y", "mean velocity along x", dots=("this run",)),)


def stretch_for(cells: int, width: float) -> float:
    """The least stretch with which the first cells are at most so wide."""
    low, high = 0.0, MOST_STRETCH
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (
            (middle, high) if np.diff(stretched_edges(cells, -1.0, 1.0, middle)[:2])[0] > width else (low, middle)
        )
    return high if low else 0.0


def parabola(y: np.ndarray, reynolds_tau: float) -> np.ndarray:
    """The velocity of laminar flow at y."""
    return 0.5 * FORCE * reynolds_tau * (1.0 - y**2)


@cache
def bulk_kernel(even: tuple[bool, ...]) -> ml.Kernel:
    @ml.kernel
    def bulk_velocity(u: ml.Read, share: ml.Read, found: ml.Sum, *widths: ml.Read):
        found += share * volume(spacings(widths, even)) * u[0]

    return bulk_velocity


@cache
def shear_kernel(even: tuple[bool, ...]) -> ml.Kernel:
    """Over the cells at a wall; a half of the shear at each of them counts for both walls."""

    @ml.kernel
    def wall_shear(u: ml.Read, share: ml.Read, found: ml.Sum, both: ml.Sum, *widths: ml.Read):
        axes = spacings(widths, even)
        shear = share * area(axes, 1) * u[0] / axes[1].width()
        found += shear
        both += 0.5 * shear

    return wall_shear
