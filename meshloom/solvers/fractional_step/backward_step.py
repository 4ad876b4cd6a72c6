"""Flow over a backward-facing step: a channel that is suddenly twice as high, with the eddy behind the step.

Units: the height of the step, which is that of the inlet channel above it, and the mean speed there. The corner of the
step lies at x = 0, y = 1. The Reynolds number is that of the mean speed and twice the height of the inlet channel, as
in the tables of E. Erturk (Computers and Fluids 37, 2008, 633-655).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Chart, defaults
from meshloom.config import option, section
from meshloom.solvers.fractional_step.boundary_conditions import HIGH, LOW, Condition, Inflow, Outflow, Wall
from meshloom.solvers.fractional_step.case import MONITORS, IncompressibleCase
from meshloom.solvers.fractional_step.cells import CellGrid, even_edges, graded_edges
from meshloom.solvers.fractional_step.options import (
    PRESSURE_DOC,
    SCHEME_DOC,
    CollocatedOptions,
    DirectPressureOptions,
    IncompressibleConfig,
)

NOWHERE = 1e30  # stands for a place that there is not
SHORTEST_VIEW = 6.0  # step heights behind the step that pictures show, at least
LOWER, UPPER = 1, -1  # walls: the step along y from them into the flow


@dataclass(frozen=True)
class StepChannelOptions:
    """The channel; cells are even along y, and along x the wider the further they are from the step."""

    cells: int = option(20, "cells along the height of the step", low=2, high=4096)
    upstream: float = option(20.0, "length of the inlet channel, in heights of the step", low=0.5, high=1000.0)
    downstream: float = option(40.0, "length of the channel behind the step", low=1.0, high=10000.0)
    growth: float = option(
        1.02, "the width of a cell along x over that of the one nearer to the step", low=1.0, high=1.5
    )
    widest: float = option(0.25, "the width that cells grow to along x, in heights of the step", above=0.0, high=10.0)


@dataclass(frozen=True)
class StepFlowOptions:
    """The fluid that comes in."""

    reynolds: float = option(
        100.0, "mean speed in the inlet channel times twice its height over the kinematic viscosity", above=0.0
    )


@dataclass(frozen=True)
class BackwardStepConfig(IncompressibleConfig):
    mesh: StepChannelOptions = section(StepChannelOptions, "The grid.")
    flow: StepFlowOptions = section(StepFlowOptions, "The fluid.")
    time = defaults(end=1000.0, steady=1e-5)
    scheme: CollocatedOptions = section(CollocatedOptions, SCHEME_DOC)
    pressure: DirectPressureOptions = section(DirectPressureOptions, PRESSURE_DOC)


class BackwardStep(IncompressibleCase):
    """Until it is steady. ``reattachment``: x where the flow along the lower wall first goes forwards again;
    ``separation_top`` and ``reattachment_top``: where that along the upper wall first turns back, and forwards again;
    0 where it does not. ``mass_balance``: what flows out less what flows in, as a part of the latter."""

    name: ClassVar[str] = "backward_step"
    title: ClassVar[str] = "flow over a backward-facing step, until it is steady (incompressible, fractional steps)"
    Config: ClassVar[type] = BackwardStepConfig
    monitors: ClassVar[tuple[str, ...]] = (
        *MONITORS, "reattachment", "separation_top", "reattachment_top", "mass_balance",
    )  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"mesh.cells": 2, "mesh.growth": 1.5, "mesh.widest": 5.0}

    def make_cells(self, dtype: Any) -> CellGrid:
        mesh = self.config.mesh
        before, behind = (
            graded_edges(one, 1.0 / mesh.cells, mesh.growth, mesh.widest) for one in (mesh.upstream, mesh.downstream)
        )
        edges = np.concatenate([-before[:0:-1], behind]), even_edges(2 * mesh.cells, 0.0, 2.0)
        self.first = len(before) - 1  # of the cells along x behind the step
        cells = CellGrid(edges, [False, False], blocks=[((0, 0), (self.first, mesh.cells))], dtype=dtype)
        self._x = cells.grid.field("x", dtype=dtype, data=np.repeat(cells.axes[0].centres[:, None], cells.shape[1], 1))
        return cells

    def conditions(self) -> dict[tuple[int, str], Condition]:
        comes_in = Inflow(lambda x, y: (self.inlet(), 0.0))
        return {(0, LOW): comes_in, (0, HIGH): Outflow(), (1, LOW): Wall(), (1, HIGH): Wall()}

    def inlet(self) -> np.ndarray:
        """Of a fully developed flow of mean 1 the mean in each cell along y; 0 in the step."""
        height = np.clip(self.cells.edges[1] - 1.0, 0.0, 1.0)
        return np.diff(height**2 * (3.0 - 2.0 * height)) / self.cells.axes[1].widths

    @property
    def viscosity(self) -> float:
        return 2.0 / self.config.flow.reynolds

    def fastest(self) -> tuple[float, ...]:
        return (1.5, 0.5)

    def start_velocity(self) -> np.ndarray:
        """What comes in goes on straight ahead, over fluid at rest behind the step."""
        return np.stack(np.broadcast_arrays(self.inlet(), np.zeros(self.cells.shape)), axis=-1)

    def look(self) -> None:
        reattachment, separation_top, reattachment_top, mass_balance = self.looked
        self._find_turning(LOWER, 1.0, reattachment)
        self._find_turning(UPPER, -1.0, separation_top)
        self._find_turning(UPPER, 1.0, reattachment_top)
        self.flow.boundaries.net_outflow(self.flow.faces, mass_balance, 1.0)

    def _find_turning(self, wall: int, to: float, found: ml.Global) -> None:
        """The first place behind the step where the flow along a wall turns forwards (1) or back (-1)."""
        found.value = NOWHERE
        nx, ny = self.cells.shape
        row = 0 if wall == LOWER else ny - 1
        u = self.flow.velocity[self.grid.offsets((0, 0), (0, wall), (1, 0), (1, wall))]
        x = self._x[self.grid.offsets((0, 0), (1, 0))]
        _turning(wall, to)(self.grid.box((self.first, row), (nx - 1, row + 1)), u, x, found)

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        rows = super().monitor_rows(recorded)
        return np.where(rows == NOWHERE, 0.0, rows)

    @property
    def _behind(self) -> np.ndarray:
        """The places of cells along x behind the step."""
        return self.cells.axes[0].centres[self.first :]

    def wall_shear(self, wall: int = LOWER) -> np.ndarray:
        """du/dy (n,) at a wall, along the normal into the flow, behind the step; from two cells, of second order."""
        u = self.grid.shaped(self.flow.velocity)[self.first :, :, 0].astype(np.float64)
        first, second = (u[:, 0], u[:, 1]) if wall == LOWER else (u[:, -1], u[:, -2])
        return _shear(first, second) / self.cells.narrowest[1]

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """Shear along the walls; where that of the lower one is 0 the flow attaches again."""
        places, lower, upper = self._behind, self.wall_shear(), self.wall_shear(UPPER)
        turn = first_turning(places, lower)
        x = np.union1d(places, [turn] if turn else [])
        curves = {"lower wall": np.interp(x, places, lower), "upper wall": np.interp(x, places, upper)}
        if turn:
            curves["reattachment"] = np.where(x == turn, 0.0, np.nan)
        return (Chart("wall_shear", x, curves, "x / height of the step", "wall shear", dots=tuple(curves)[2:]),)

    def part_shown(self) -> slice:
        """The eddies behind the step: not all of a long channel."""
        eddies = [first_turning(self._behind, self.wall_shear(wall)) for wall in (LOWER, UPPER)]
        ends = -SHORTEST_VIEW / 3.0, max(SHORTEST_VIEW, 1.5 * max(eddies))
        return slice(*np.searchsorted(self.cells.axes[0].centres, ends).tolist())


def first_turning(x: np.ndarray, shear: np.ndarray) -> float:
    """Where a shear (n,) at ascending places first turns from negative to positive, linear between them; 0: nowhere."""
    changes = np.flatnonzero((shear[:-1] < 0.0) & (shear[1:] >= 0.0))
    if not len(changes):
        return 0.0
    i = int(changes[0])
    return float(x[i] + shear[i] / (shear[i] - shear[i + 1]) * (x[i + 1] - x[i]))


def _shear(first: Any, second: Any) -> Any:
    """The slope at a wall times the width of a cell: of the parabola through 0 there and the first two cells."""
    return 3.0 * first - second / 3.0


@cache
def _turning(wall: int, to: float) -> ml.Kernel:
    @ml.kernel
    def find_turning(u: ml.Read, x: ml.Read, found: ml.Min):
        here, next_one = (to * _shear(u[i, 0][0], u[i, wall][0]) for i in (0, 1))
        changes = (here < 0.0) & (next_one >= 0.0)
        share = here / np.where(changes, here - next_one, 1.0)
        found[...] = np.where(changes, x[0, 0] + share * (x[1, 0] - x[0, 0]), NOWHERE)

    return find_turning
