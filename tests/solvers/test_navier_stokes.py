"""Compressible flow on grids: against an independent right-hand side, exact properties, and published curves."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom import compact
from meshloom.backend import cpu_count
from meshloom.config import build, parse_set, parse_settings
from meshloom.errors import UserError
from meshloom.io import checkpoint
from meshloom.run.diagnose import breakdown, take_snapshot
from meshloom.solvers.navier_stokes import TaylorGreen, VortexOutflow
from meshloom.solvers.navier_stokes.equations import DIVERGENCE, SPLIT, Equations, inner_derivative
from meshloom.solvers.navier_stokes.gas import Gas
from meshloom.solvers.navier_stokes.stability import Stream, courant, longest_step
from tests.cli.conftest import meshloom  # noqa: F401  a fixture
from tests.cli.harness import Command
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
    ml.linalg.line_loop(grid, 0, compact.operator(compact.LELE6, grid, 0), f, whole)
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
    slopes, rate = equations.slope_fields(), grid.field("rate", 5)
    equations.take_slopes(q, slopes)
    equations.rate(q, slopes, rate)
    assert_close(values(rate), reference.interior(start))


@pytest.mark.parametrize("mach", [1.1, 0.6])
def test_right_hand_side_in_the_plane_with_open_boundaries(numpy_backend, mach):
    case = make(VortexOutflow, "mesh.points=[14, 11]", f"flow.mach={mach}", "flow.relaxation=0.3", "flow.reynolds=50",
                "vortex.strength=-0.05")  # fmt: skip
    grid, flow = case.grid, case.flow
    start = disturbed(values(flow.q), 0.05)
    flow.assign(start)
    reference = Reference(grid.shape, grid.spacing, periodic=False, R=1 / GAMMA, mu=mach / 50, prandtl=0.72)
    expected = reference.interior(start)
    for axis, high, pull in ((1, False, 0.15), (1, True, 0.15), (0, True, 0.15 * max(1 - mach**2, 0))):
        reference.add_outflow(expected, start, axis, high, 1 / GAMMA, pull)
    expected[:, 0, :] = 0.0 if mach > 1.0 else subsonic_inflow(reference, start, expected)
    rate = flow.q.like("rate")
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
        ("vortex.strength=0.5", "vortex.strength = 0.5: the pressure in its middle would be negative"),
        ("filter.order=7", "filters: order 7"),
    ],
)
def test_what_cannot_run_is_refused(numpy_backend, setting, words):
    with pytest.raises(UserError) as error:
        make(VortexOutflow, "mesh.points=[64, 64]", setting)
    assert words in str(error.value) and "\n" not in str(error.value)


# --- the vortex -------------------------------------------------------------------------------------------


def test_a_stream_without_vortex_stays(numpy_backend):
    for mach in (1.1, 0.5):
        case = make(VortexOutflow, "mesh.points=[12, 10]", "vortex.strength=0.0", f"flow.mach={mach}")
        flow = case.flow
        rate = flow.q.like("rate")
        flow.equations.rate(flow.q, flow.slopes, rate)
        flow.boundaries(flow.q, flow.slopes, rate)
        assert np.abs(values(rate)).max() < 1e-13


def curl_gap(n, end, *, every, least):
    """Runs a domain and one of twice the size at the same spacing side by side, until the vortex has left the first.

    Asserts that the smaller one shows what the larger shows there, to less than 1 % of the vortex at every time, and
    that no more than the share ``least`` of it is left in the end.
    """
    small = make(VortexOutflow, f"mesh.points=[{n}, {n}]", f"time.end={end}")
    large = make(VortexOutflow, f"mesh.points=[{2 * n - 1}, {2 * n - 1}]", "mesh.domain=[4, 4]", f"time.end={end}",
                 f"vortex.at=[{-(n % 2 == 0) / (n - 1)}, {-(n % 2 == 0) / (n - 1)}]")  # fmt: skip
    start = small.config.vortex.largest_vorticity
    inner = slice((n - 1) // 2, (n - 1) // 2 + n)  # of an even number the middle is half a spacing off
    while small.steps_left(small.recorded_now()):
        for case in (small, large):
            case.program.run(min(every, case.steps_left(case.recorded_now())))
        curl, true = (case.grid_fields()["vorticity"] for case in (small, large))
        assert np.abs(curl - true[inner, inner]).max() < 0.01 * start
    assert small.recorded_now()[1] < least * start


@pytest.mark.slow
def test_the_vortex_leaves_and_nothing_comes_back():
    curl_gap(65, 1.8, every=16, least=0.005)


@pytest.mark.slow
def test_nothing_comes_back_on_a_finer_grid():
    """bench.flow_truth does this on the 512 x 512 points of the paper."""
    ml.use(ml.backend(), threads=cpu_count())
    curl_gap(192, 2.0, every=48, least=1e-3)


def test_a_negative_density_names_its_point_and_step(numpy_backend):
    case = make(VortexOutflow, "mesh.points=[12, 12]")
    q = values(case.flow.q)
    q[0, 4, 7] *= 1e-3  # a hole, which nothing can hold open
    case.flow.assign(q)
    with np.errstate(all="ignore"):
        text = breakdown(case, take_snapshot(case), 0, 3).text
    pattern = r"q(_stage)? is -?[\d.e+-]+ \(must be above 0: .*\) in point \(\d+, \d+\) at \(.*in iteration \d"
    assert re.search(pattern, text), text


# --- Taylor-Green -----------------------------------------------------------------------------------------


def published(first, last):
    """Rows of the published curves from one time to another."""
    rows = np.genfromtxt(PUBLISHED, delimiter=",", names=True, skip_header=3)
    return rows[(rows["time"] >= first) & (rows["time"] <= last)]


def test_mass_momentum_and_energy_stay_in_a_periodic_box(numpy_backend):
    for form in (SPLIT, DIVERGENCE):
        case = make(TaylorGreen, "mesh.points=8", "flow.mach=0.4", "flow.reynolds=200", f"scheme.form={form}")
        case.flow.assign(disturbed(values(case.flow.q), 0.01))
        before, size = case.flow.q.saved().mean(axis=0), np.abs(case.flow.q.saved()).mean(axis=0)
        case.program.run(3)
        assert np.all(np.abs(case.flow.q.saved().mean(axis=0) - before) < 1e-15 * 8 * np.maximum(size, 1.0))


@pytest.mark.slow
def test_the_decay_begins_as_friction_says_and_keeps_its_symmetry():
    """dE/dt = -2 mu enstrophy at the start, then as published; what maps the vortices onto themselves stays."""
    case = make(TaylorGreen, "mesh.points=16", "time.end=2.0")
    rows = run_to_end(case)
    time, energy, enstrophy = rows[:, 0], rows[:, 2], rows[:, 3]
    assert -np.gradient(energy, time)[1] == pytest.approx(2 / 1600 * 0.375, rel=0.1)  # sound goes to and fro, too
    truth = published(1.0, 2.0)
    assert np.interp(truth["time"], time, energy) == pytest.approx(truth["kinetic_energy"], rel=5e-4)
    assert np.interp(truth["time"], time, enstrophy) == pytest.approx(truth["enstrophy"], rel=0.025)
    rho, mx, my, mz, energy_of = values(case.flow.q)

    def turned(f):  # (x, y) -> (y + pi, x)
        return np.roll(f, -len(f) // 2, axis=0).swapaxes(0, 1)

    for one, other in ((rho, rho), (mx, my), (my, mx), (mz, mz), (energy_of, energy_of)):
        assert np.abs(turned(one) - other).max() < 1e-11
    assert np.abs(mz).max() > 0.01


@pytest.mark.slow
def test_the_published_curves_on_64_points():
    """Resolved until about t = 3."""
    ml.use(ml.backend(), threads=cpu_count())
    rows = run_to_end(make(TaylorGreen, "mesh.points=64", "time.end=3"))
    time, energy, enstrophy = rows[:, 0], rows[:, 2], rows[:, 3]
    truth = published(0.25, 3.0)
    assert np.interp(truth["time"], time, energy) == pytest.approx(truth["kinetic_energy"], rel=1e-3)
    assert np.interp(truth["time"], time, enstrophy) == pytest.approx(truth["enstrophy"], rel=0.01)


@pytest.mark.slow
def test_the_split_form_is_stable_where_little_is_resolved():
    """The peak of dissipation comes at the right time, also on 32 points."""
    ml.use(ml.backend(), threads=cpu_count())
    rows = run_to_end(make(TaylorGreen, "mesh.points=32", "time.end=10"))
    assert 8.0 < rows[np.argmax(rows[:, 3]), 0] < 10.0


# --- back ends and restarts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "backend", ["cpu", pytest.param("emulated", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)]
)
@pytest.mark.parametrize(("kind", "points"), [(VortexOutflow, [65, 62]), (TaylorGreen, 15)])
@pytest.mark.parametrize("fuse", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_back_ends_agree(backend, kind, points, fuse):
    found = {}
    for name in ("numpy", backend):
        ml.use(name)
        case = make(kind, f"mesh.points={points}")
        ml.Program(case.program.function, fuse=fuse and name == backend).run(2)
        found[name] = values(case.flow.q), case.monitor_rows(case.recorded_now()[None])
    for one, other in zip(found["numpy"], found[backend], strict=True):
        assert other == pytest.approx(one, rel=1e-11, abs=1e-12)


@pytest.mark.slow
def test_a_restarted_run_equals_an_uninterrupted_one(meshloom: Command, tmp_path: Path):  # noqa: F811
    asked = ("run", "vortex_outflow", "--backend", "cpu", "--threads", "1", "--set", "mesh.points=[65, 65]", "--quiet")
    few = ("--set", "output.plot=false", "--set", "output.vtu=false")
    assert meshloom(*asked, *few, "--iterations", "6", "--out", "whole").code == 0
    assert meshloom(*asked, *few, "--iterations", "3", "--out", "half").code == 0
    assert meshloom("run", "--restart", "half/checkpoint.h5", "--iterations", "6", "--quiet").code == 0
    whole, half = (checkpoint.load(tmp_path / name / "checkpoint.h5") for name in ("whole", "half"))
    assert whole.iteration == half.iteration == 6
    for name, expected in whole.state.items():
        assert np.array_equal(half.state[name], expected), name
    assert np.array_equal(whole.monitors, half.monitors)


def test_the_command_line_writes_what_there_is_to_see(meshloom: Command, tmp_path: Path):  # noqa: F811
    asked = ("--set", "mesh.points=6", "--set", "output.plot=false", "--iterations", "4", "--out", "box", "--json")
    done = meshloom("run", "taylor_green", "--backend", "numpy", *asked)
    assert done.code == 0 and done.json["monitors"]["kinetic_energy"] == pytest.approx(0.125, rel=0.01)
    names = {path.name for path in (tmp_path / "box").iterdir()}
    charts = {"chart_dissipation.csv", "chart_kinetic_energy.csv", "chart_enstrophy.csv"}
    assert charts | {"fields_0000004.vti", "checkpoint.h5", "monitors.csv"} <= names
    refused = meshloom("run", "vortex_outflow", "--set", "time.cfl=3", "--set", "mesh.points=[9, 9]")
    refused.refused(2, "time.cfl = 3: longer")


def test_pictures_show_the_vorticity_and_the_density(numpy_backend):
    plane, box = make(VortexOutflow, "mesh.points=[21, 21]"), make(TaylorGreen, "mesh.points=8")
    middle = plane.picture().values[10, 10]
    assert middle == pytest.approx(-plane.config.vortex.largest_vorticity, rel=0.2)  # it turns clockwise
    assert plane.maps()["density"].values.min() < -1e-6
    assert box.picture().values.shape == box.maps()["density"].values.shape == (8, 8)


def test_an_old_setting_is_named_and_ignored(meshloom: Command, tmp_path: Path):  # noqa: F811
    """``scheme.passes`` said how loops were to run; files that have it still work."""
    (tmp_path / "old.toml").write_text('case = "taylor_green"\n\n[scheme]\npasses = "stored"\n', encoding="utf-8")
    few = ("--set", "mesh.points=6", "--set", "output.plot=false", "--set", "output.vtu=false", "--backend", "numpy")
    done = meshloom("run", "old.toml", *few, "--iterations", "1", "--out", "box", "--quiet")
    assert done.code == 0 and "old.toml:4: scheme.passes is no longer a setting, and is ignored" in done.err
    assert "passes =" not in (tmp_path / "box" / "run.toml").read_text(encoding="utf-8")
    path = tmp_path / "box" / "checkpoint.h5"
    saved = checkpoint.load(path)
    assert "[scheme]\n" in saved.config
    checkpoint.save(path, replace(saved, config=saved.config.replace("[scheme]\n", '[scheme]\npasses = "fused"\n')))
    again = meshloom("run", "--restart", "box", "--iterations", "2", "--quiet")
    assert again.code == 0 and "passes" not in again.err


def test_an_old_setting_is_named_once_whatever_stands_in_it():
    with pytest.warns(UserWarning, match=r"old.toml:\d: scheme.passes is no longer a setting") as seen:
        config = build(TaylorGreen.Config, parse_settings("[scheme.passes]\na = 1\nb = 2\n", "old.toml"))
    assert len(seen) == 1 and config == TaylorGreen.Config()
