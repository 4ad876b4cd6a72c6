"""Flow in a closed box whose lid slides along: in a square, with Ghia's tables next to it, and in a cube.

Units: the side of the box and the speed of the lid, which moves along x at the upper end of y.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, ClassVar

import numpy as np

from meshloom.case import Chart, defaults
from meshloom.config import option, section
from meshloom.solvers.fractional_step.boundary_conditions import HIGH, LOW, Condition, Wall
from meshloom.solvers.fractional_step.case import MONITORS, IncompressibleCase
from meshloom.solvers.fractional_step.cells import CellGrid, stretched_edges
from meshloom.solvers.fractional_step.centreline import Centreline
from meshloom.solvers.fractional_step.options import IncompressibleConfig

LID = (1, HIGH)
STRETCH_DOC = "narrows cells towards walls by a hyperbolic tangent; 0: all alike, 2: the widest 13 times the narrowest"


@dataclass(frozen=True)
class SquareOptions:
    """A square with sides of 1."""

    cells: tuple[int, int] = option((128, 128), "cells along x and y", low=2, high=65536)
    stretch: float = option(0.0, STRETCH_DOC, low=0.0, high=4.0)


@dataclass(frozen=True)
class CubeOptions:
    """A cube with sides of 1."""

    cells: tuple[int, int, int] = option((64, 64, 64), "cells along x, y and z", low=2, high=4096)
    stretch: float = option(0.0, STRETCH_DOC, low=0.0, high=4.0)


@dataclass(frozen=True)
class LidOptions:
    """The fluid under the lid."""

    reynolds: float = option(1000.0, "speed of the lid times side over the kinematic viscosity", above=0.0)


@dataclass(frozen=True)
class SquareCavityConfig(IncompressibleConfig):
    mesh: SquareOptions = section(SquareOptions, "The grid.")
    flow: LidOptions = section(LidOptions, "The fluid.", reynolds=100.0)
    time = defaults(end=500.0, steady=1e-6)


@dataclass(frozen=True)
class CubicCavityConfig(IncompressibleConfig):
    mesh: CubeOptions = section(CubeOptions, "The grid.")
    flow: LidOptions = section(LidOptions, "The fluid.")


class Cavity(IncompressibleCase):
    """A box of any number of axes. ``u_centre``: velocity along x in the middle; ``v_min``: the least velocity along y
    on the line along x through the middle."""

    monitors: ClassVar[tuple[str, ...]] = (*MONITORS, "u_centre", "v_min")

    def make_cells(self, dtype: Any) -> CellGrid:
        mesh = self.config.mesh
        edges = [stretched_edges(n, 0.0, 1.0, mesh.stretch) for n in mesh.cells]
        return CellGrid(edges, [False] * len(edges), dtype=dtype)

    def conditions(self) -> dict[tuple[int, str], Condition]:
        walls: dict[tuple[int, str], Condition] = {
            (axis, end): Wall() for axis in range(self.cells.rank) for end in (LOW, HIGH)
        }
        return walls | {LID: Wall((1.0,))}

    def fastest(self) -> tuple[float, ...]:
        return (1.0,) * self.cells.rank

    def look(self) -> None:
        u_centre, v_min = self.looked
        Centreline(self.cells).value(self.flow.velocity, 0, u_centre)
        Centreline(self.cells, 0).least(self.flow.velocity, 1, v_min)

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """Velocities along the lines through the middle, with Ghia's values in a square where there are any."""
        return self._chart("u_on_vertical_line", 1, 0, 1.0), self._chart("v_on_horizontal_line", 0, 1, 0.0)

    def _chart(self, name: str, axis: int, component: int, at_end: float) -> Chart:
        """``at_end``: the velocity of the wall at the upper end."""
        centres = self.cells.axes[axis].centres
        values = Centreline(self.cells, axis).profile(self.flow.velocity, component)
        places, found = np.concatenate([[0.0], centres, [1.0]]), np.concatenate([[0.0], values, [at_end]])
        known_at, known = ghia(name, self.config.flow.reynolds) if self.cells.rank == 2 else (np.zeros(0), np.zeros(0))
        x = np.union1d(places, known_at)
        curves, (letter, velocity) = {"this run": np.interp(x, places, found)}, ("xy"[axis], "uv"[component])
        if len(known):
            curves["Ghia, Ghia and Shin 1982"] = np.full(len(x), np.nan)
            curves["Ghia, Ghia and Shin 1982"][np.searchsorted(x, known_at)] = known
        return Chart(name, x, curves, letter, velocity, dots=tuple(curves)[1:])


class SquareCavity(Cavity):
    """Until it is steady."""

    name: ClassVar[str] = "cavity2d"
    title: ClassVar[str] = "a lid drives the flow in a square, until it is steady (incompressible, fractional steps)"
    Config: ClassVar[type] = SquareCavityConfig
    small: ClassVar[Mapping[str, Any]] = {"mesh.cells": (8, 8)}


class CubicCavity(Cavity):
    """From rest to a time."""

    name: ClassVar[str] = "cavity3d"
    title: ClassVar[str] = "a lid drives the flow in a cube, from rest (incompressible, fractional steps)"
    Config: ClassVar[type] = CubicCavityConfig
    small: ClassVar[Mapping[str, Any]] = {"mesh.cells": (4, 4, 4)}


_TABLES = {"u_on_vertical_line": "ghia1982_u_vertical_centreline.csv",
           "v_on_horizontal_line": "ghia1982_v_horizontal_centreline.csv"}  # fmt: skip


@cache
def ghia(line: str, reynolds: float) -> tuple[np.ndarray, np.ndarray]:
    """Places, ascending, and velocities of U. Ghia, K. N. Ghia and C. T. Shin (J. Comput. Phys. 48, 1982, 387-411) on a
    ``line``, the name of the chart; both empty where their tables have no such Reynolds number.

    Left out: v at x = 0.9063 for Re 400, a misprint (its neighbours, and everybody else's values, lie far away).
    """
    text = resources.files(__package__).joinpath("data", _TABLES[line]).read_text()
    names, *rows = (row.split(",") for row in text.split())
    column = f"Re{reynolds:g}"
    if column not in names:
        return np.zeros(0), np.zeros(0)
    table = np.array(rows, float)
    places, values = table[::-1, 0], table[::-1, names.index(column)]
    misprint = (column == "Re400") & (line == "v_on_horizontal_line") & (np.abs(places - 0.9063) < 1e-9)
    return places[~misprint], values[~misprint]
