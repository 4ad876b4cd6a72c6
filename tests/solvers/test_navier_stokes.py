"""Compressible flow on grids: against an independent right-hand side, exact properties, and published curves."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom import compact
from meshloom.config import build, parse_set
from meshloom.errors import ConfigError
from meshloom.solvers.navier_stokes import TaylorGreen, VortexOutflow
from meshloom.solvers.navier_stokes.equations import DIVERGENCE, SPLIT, Equations
from meshloom.solvers.navier_stokes.gas import Gas
from meshloom.solvers.navier_stokes.operators import derivative, inner_derivative
from meshloom.solvers.navier_stokes.stability import Stream, courant, longest_step
from tests.solvers.flow_reference import GAMMA, Reference

PUBLISHED = Path(__file__).parents[1] / "data" / "taylor_green_re1600.csv"


def make(kind, *settings):
    return kind(build(kind.Config, [parse_set(text) for text in settings]))


def values(field):
    """(components, *shape)."""
    return np.moveaxis(field.set.shaped(field), -1, 0)


def run_to_end(case):
    """Monitors (n, ...) of all steps."""
    rows = []
    while (left := case.steps_left(case.recorded_now())) > 0:
        rows.append(case.monitor_rows(case.program.run(left, record=case.recorded)))
    return np.concatenate(rows)


def disturbed(q, size=0.02):
    return q * (1.0 + size * np.random.default_rng(7).standard_normal(q.shape))


@pytest.fixture(autouse=True)
def one_thread_and_the_same_backend_afterwards():
    """One thread: these grids are small, and test machines are busy."""
    before = ml.backend(), ml.threads()
    ml.use(before[0], threads=1)
    yield
    ml.use(before[0], threads=before[1])


@pytest.fixture
def numpy_backend():
    ml.use("numpy")


# --- operators --------------------------------------------------------------------------------------------


def test_inner_derivative_is_the_derivative_but_for_the_ends(numpy_backend):
    grid = ml.Grid((17, 3), extent=(2.0, 1.0))
    f = grid.field("f", data=np.random.default_rng(1).standard_normal(grid.shape))
    whole, inner = grid.field("whole"), grid.field("inner")
    ml.linalg.line_loop(grid, 0, derivative(grid, 0), f, whole)
    ml.linalg.line_loop(grid, 0, inner_derivative(grid, 0), f, inner)
    expected = grid.shaped(whole)
    expected[[0, -1]] = 0.0
    assert np.abs(grid.shaped(inner) - expected).max() < 1e-13 * np.abs(expected).max()


# --- right-hand sides -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [DIVERGENCE, SPLIT])
def test_right_hand_side_in_space(numpy_backend, form):
    shape, extent = (9, 12, 10), (2.0, 3.0, 2.5)
    grid = ml.Grid(shape, extent=extent, periodic=True)
    gas = Gas(GAMMA, 1.7, 0.01, 0.71)
    reference = Reference(shape, grid.spacing, periodic=True, R=1.7, mu=0.01, prandtl=0.71, split=form == SPLIT)
    x, y, z = grid.meshgrid()
    start = gas.conserved(1.0 + 0.1 * np.sin(math.pi * x), [0.3 * np.cos(y), 0.2 + 0 * x, 0.1 * np.sin(z)], 1.0 + 0 * x)
    start = disturbed(start)
    equations = Equations(grid, gas, form)
    q = grid.field("q", 5, data=np.moveaxis(start, 0, -1))
    slopes, rate = equations.slope_fields(np.float64), grid.field("rate", 5)
    equations.take_slopes(q, slopes)
    equations.rate(q, slopes, rate)
    assert_close(values(rate), reference.interior(start))


@pytest.mark.parametrize("mach", [1.1, 0.6])
def test_right_hand_side_in_the_plane_with_open_boundaries(numpy_backend, mach):
    case = make(VortexOutflow, "mesh.points=[14, 11]", f"flow.mach={mach}", "flow.relaxation=0.3", "flow.reynolds=50",
                "vortex.strength=-0.05")  # fmt: skip
    grid, flow = case.grid, case.flow
    start = disturbed(values(flow.q), 0.05)
    flow.q.assign(np.moveaxis(start, 0, -1).reshape(-1, 4))
    reference = Reference(grid.shape, grid.spacing, periodic=False, R=1 / GAMMA, mu=mach / 50, prandtl=0.72)
    expected = reference.interior(start)
    for axis, high, pull in ((1, False, 0.15), (1, True, 0.15), (0, True, 0.15 * max(1 - mach**2, 0))):
        reference.add_outflow(expected, start, axis, high, 1 / GAMMA, pull)
    expected[:, 0, :] = 0.0 if mach > 1.0 else subsonic_inflow(reference, start, expected)
    rate = flow.rk.slope
    flow.equations.take_slopes(flow.q, flow.slopes)
    flow.equations.rate(flow.q, flow.slopes, rate)
    flow.boundaries(flow.q, flow.slopes, rate)
    assert_close(values(rate), expected)


def subsonic_inflow(reference, q, rate):
    """Velocity and temperature stay: with L1 from inside, L5 = L1 and L2 = (gamma - 1) L1."""
    rho, u, p, _ = reference.primitive(q)
    weights = np.array([-25 / 12, 4, -3, 4 / 3, -1 / 4]) / reference.spacing[0]
    c = np.sqrt(GAMMA * p[0] / rho[0])
    L1 = (u[0, 0] - c) * (np.tensordot(weights, p[:5], 1) - rho[0] * c * np.tensordot(weights, u[0, :5], 1))
    return (rate[0, 0] - GAMMA * L1 / c**2) * q[:, 0] / rho[0]


def assert_close(found, expected):
    for component in range(len(expected)):
        assert np.abs(found[component] - expected[component]).max() < 1e-12 * np.abs(expected[component]).max()


# --- the time step ----------------------------------------------------------------------------------------


def test_the_longest_step_is_that_of_the_fastest_wave():
    gas, stream = Gas(GAMMA, 1 / GAMMA, 0.0, 0.72), Stream((1.1, 0.0), 1.0, 1.0)
    limit = longest_step(gas, stream, (0.1, 0.1)) * courant(stream, (0.1, 0.1))
    largest = np.abs(compact.modified_wavenumber(compact.LELE6, np.linspace(0, np.pi, 4001))).max()
    assert limit == pytest.approx(2 * math.sqrt(2) / largest, rel=1e-3)
    sticky = replace(gas, viscosity=0.1)
    assert longest_step(sticky, stream, (0.1, 0.1)) < 0.6 * longest_step(gas, stream, (0.1, 0.1))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("time.cfl=1.5", "time.cfl = 1.5: longer than the scheme is stable for on this grid; at most 1.4"),
        ("time.dt=1", "time.dt = 1: longer than the scheme is stable for on this grid; at most 0.0"),
        ("mesh.points=[64, 4]", "mesh.points = 4: the scheme needs at least 5 points along every axis"),
    ],
)
def test_what_cannot_run_is_refused(numpy_backend, setting, words):
    with pytest.raises(ConfigError) as error:
        make(VortexOutflow, "mesh.points=[64, 64]", setting)
    assert words in str(error.value) and "\n" not in str(error.value)


# --- the vortex -------------------------------------------------------------------------------------------


def test_a_stream_without_vortex_stays(numpy_backend):
    for mach in (1.1, 0.5):
        case = make(VortexOutflow, "mesh.points=[12, 10]", "vortex.strength=0.0", f"flow.mach={mach}")
        before = values(case.flow.q)
        case.program.run(10)
        assert np.abs(values(case.flow.q) - before).max() < 1e-13


def test_the_vortex_leaves_and_nothing_comes_back():
    """At every time the domain shows what a domain of twice the size shows there, to less than 1 % of the vortex."""
    n, end = 65, 1.8  # odd: the points of both domains are the same
    small = make(VortexOutflow, f"mesh.points=[{n}, {n}]", f"time.end={end}")
    reference = make(VortexOutflow, f"mesh.points=[{2 * n - 1}, {2 * n - 1}]", "mesh.domain=[4, 4]", f"time.end={end}")
    start = small.config.vortex.largest_vorticity
    inner = slice((n - 1) // 2, (n - 1) // 2 + n)
    worst = 0.0
    while small.steps_left(small.recorded_now()):
        for case in (small, reference):
            case.program.run(min(16, case.steps_left(case.recorded_now())))
        curl, true = (case.grid_fields()["vorticity"] for case in (small, reference))
        worst = max(worst, np.abs(curl - true[inner, inner]).max() / start)
    assert small.recorded_now()[1] / start < 0.005
    assert worst < 0.01
