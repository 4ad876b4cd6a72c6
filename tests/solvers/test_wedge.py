"""Supersonic flow past a wedge: the Mach number behind its shock is that of theory, in the mean and at the wall."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

import meshloom as ml
from meshloom.solvers.finite_volume.conditions import SlipWall, SupersonicInlet, SupersonicOutlet
from meshloom.solvers.finite_volume.flow import CompressibleFlow
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.kernels import FlowScheme
from meshloom.solvers.finite_volume.options import VolumesSchemeOptions
from meshloom.solvers.finite_volume.steps import SteadySteps

GAS, MACH, CORNER, LONG = IdealGas(), 4.5, 0.2, 1.2


def behind_shock(mach: float, turn: float) -> tuple[float, float]:
    """Angle of the weak oblique shock that turns a flow, and the Mach number behind it (NACA report 1135)."""
    g = GAS.gamma

    def turned(beta: float) -> float:
        m = (mach * math.sin(beta)) ** 2
        return math.atan(2.0 / math.tan(beta) * (m - 1.0) / (mach**2 * (g + math.cos(2.0 * beta)) + 2.0))

    beta = brentq(lambda b: turned(b) - turn, math.asin(1.0 / mach) + 1e-9, math.radians(60.0))
    m = (mach * math.sin(beta)) ** 2
    after = (1.0 + 0.5 * (g - 1.0) * m) / (g * m - 0.5 * (g - 1.0))
    return beta, math.sqrt(after) / math.sin(beta - turn)


def channel(cells: tuple[int, int], turn: float, kind: str = "quad") -> ml.Mesh:
    """From x = 0 to 1.2 and to y = 1, with a floor that rises by an angle from the corner on."""
    box = ml.generate.box(cells, cells=kind, extent=(LONG, 1.0))
    x, y = box.coordinates.numpy().T
    floor = np.maximum(x - CORNER, 0.0) * math.tan(turn)
    groups = {name: box.boundary_nodes.indices[box.group(name)] for name in box.groups}
    return ml.Mesh.from_cells(np.stack([x, floor + (1.0 - floor) * y], axis=1), box.cell_nodes.indices, kind, groups)


def mach_errors(
    scheme: FlowScheme,
    degrees: float,
    cells: tuple[int, int] = (40, 20),
    kind: str = "quad",
    steps: int = 400,
    away: float = 2.0,
) -> tuple[float, float]:
    """How far the Mach number is above that of theory, as a share: the mean by volume of what lies behind the shock,
    ``away`` cells from it, and that of the cells at the wall, both in the second half of the channel."""
    turn = math.radians(degrees)
    beta, exact = behind_shock(MACH, turn)
    mesh = channel(cells, turn, kind)
    stream = GAS.state(1.0, (MACH * math.sqrt(GAS.gamma), 0.0), 1.0)
    far = SupersonicInlet()
    sides = {"xmin": far, "ymax": far, "ymin": SlipWall(), "xmax": SupersonicOutlet()}
    flow = CompressibleFlow(mesh, GAS, scheme, sides, np.tile(GAS.conserved(stream), (len(mesh.cells), 1)), stream)
    ml.program(SteadySteps(flow, 1.2).step).run(steps)
    V = GAS.primitives(flow.u.numpy().T)
    mach = np.sqrt((V[1:-1] ** 2).sum(axis=0) / (GAS.gamma * GAS.gas_constant * V[-1]))
    x, y = mesh.cell_centroids.T
    h = max(LONG / cells[0], 1.0 / cells[1])
    behind = (x > 0.5 * LONG) & (y < (x - CORNER) * math.tan(beta) - away * h / math.cos(beta))
    wall = np.zeros(len(x), bool)
    wall[mesh.boundary_cells.indices[mesh.group("ymin"), 0]] = True
    means = [np.average(mach[part], weights=mesh.cell_volumes[part]) for part in (behind, behind & wall)]
    return means[0] / exact - 1.0, means[1] / exact - 1.0


@pytest.mark.slow
def test_the_mach_number_behind_the_shock_of_a_wedge():
    """A wall whose flux is that between the gas and its mirror image leaves a layer that is 3.6 % low,
    and the mean 2.4 %."""
    ml.use("cpu")
    mean, wall = mach_errors(VolumesSchemeOptions().scheme(), 15.0)
    assert abs(mean) < 0.01 and abs(wall) < 0.01, (mean, wall)
