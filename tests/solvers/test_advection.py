"""The advection cases against exact solutions, and step by step against a plain NumPy version of the same scheme."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom import compact
from meshloom.errors import ConfigError
from meshloom.solvers.advection.base import AdvectionCase, scheme_limit
from tests.one_line import one_line_from
from tests.solvers.advection import make as case
from tests.solvers.advection import monitors as run


@pytest.fixture(autouse=True)
def on_numpy():
    before = ml.backend()
    ml.use("numpy")
    yield
    ml.use(before)


# --- advection1d ------------------------------------------------------------------------------------------


def test_the_pulse_of_the_original():
    """256 points, dt 0.001, to 0.4."""
    found = run("advection1d", "mesh.points=256", "scheme.name=lele6")  # as the docs say it
    assert found["error_l2"] == pytest.approx(1.806e-5, rel=1e-3)
    assert found["error_max"] == pytest.approx(1.167e-4, rel=1e-3)


def test_the_pulse_gets_better_with_the_sixth_power_of_the_points():
    settings = ("mesh.periodic=true", "time.end=0.1", "time.dt=0.00025", "pulse.power=50")
    coarse, fine = (run("advection1d", *settings, f"mesh.points={n}")["error_l2"] for n in (64, 128))
    assert np.log2(coarse / fine) == pytest.approx(6.0, abs=0.25)


@pytest.mark.slow
def test_a_periodic_pulse_comes_back_and_may_go_left():
    common = ("mesh.periodic=true", "time.end=1.0", "time.cfl=0.5", "mesh.points=128", "pulse.power=20")
    right, left = run("advection1d", *common), run("advection1d", *common, "flow.speed=-1.0")
    assert right["error_max"] < 1e-4 and left["error_max"] == pytest.approx(right["error_max"], rel=1e-6)
    assert right["total"] == pytest.approx(np.mean(case("advection1d", *common).exact_at(0.0)), rel=1e-12)


def test_what_leaves_is_hardly_reflected():
    """At 0.8 the pulse has left the closed line; the closures send back less than a thousandth of it."""
    assert run("advection1d", "time.end=0.8", "time.cfl=1.0")["error_max"] < 1e-3


def test_the_limit_of_the_time_step():
    limit = scheme_limit(compact.LELE6)
    assert limit == pytest.approx(1.4217, abs=1e-4)
    assert scheme_limit(compact.LELE6, axes=2) == pytest.approx(limit, abs=1e-3)
    assert scheme_limit(compact.DENG5_PLUS) == pytest.approx(1.4215, abs=1e-4)
    assert scheme_limit(compact.DENG5_MINUS) < 1e-6  # it feeds what travels to the right
    periodic = ("mesh.periodic=true", "mesh.points=64", "time.end=2.0", "pulse.power=3")
    assert run("advection1d", *periodic, "time.cfl=1.42")["highest"] < 1.01
    with one_line_from(ConfigError, r"time.cfl = 1.43: longer than the scheme is stable for, LELE6 .*; at most 1.42$"):
        case("advection1d", *periodic, "time.cfl=1.43")
    with one_line_from(ConfigError, r"time.dt = 0.01: longer than the scheme is stable for, .*; at most 0.00557$"):
        case("advection1d", "time.dt=0.01")


# --- tophat1d ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_top_hat_of_the_original():
    found = run("tophat1d", "scheme.delta=0.25", "mesh.points=256")
    assert found["error_l1"] == pytest.approx(7.717e-3, rel=1e-3)
    assert found["lowest"] == pytest.approx(-0.1056, abs=1e-4) and found["highest"] == pytest.approx(1.1055, abs=1e-4)
    undamped = run("tophat1d", "scheme.delta=0.0", "mesh.points=256")
    assert undamped["error_l1"] > 10 * found["error_l1"] and undamped["highest"] > 1.5


@pytest.mark.slow
def test_both_parts_of_the_split_flux_damp():
    """A flow to the left uses the other scheme: the mirror image."""
    right = run("tophat1d", "mesh.points=128", "time.dt=0.002")
    left = run("tophat1d", "mesh.points=128", "time.dt=0.002", "flow.speed=-1.0", "hat.low=0.75", "hat.high=0.85")
    for name in ("error_l1", "error_l2", "lowest", "highest"):
        assert left[name] == pytest.approx(right[name], rel=1e-9)


# --- rotating_cone ----------------------------------------------------------------------------------------


SMALL = ("mesh.points=48", "time.cfl=1.2")


@pytest.mark.slow
def test_a_smooth_heap_comes_back():
    coarse = run("rotating_cone", *SMALL, "heap.shape=hump", "heap.size=0.45", "filter.order=0")
    assert coarse["error_max"] < 2e-3 and coarse["error_l2"] < 3e-4
    assert coarse["total"] == pytest.approx(np.pi * 0.45**2 * (3 / 8 - 2 / np.pi**2), rel=1e-3)


@pytest.mark.slow
def test_a_filter_keeps_the_box_from_filling_the_plane_with_waves():
    common = (*SMALL, "time.end=0.5")
    plain, filtered = (run("rotating_cone", *common, f"filter.order={n}") for n in (0, 8))
    assert filtered["error_l1"] < 0.15 * plain["error_l1"] and filtered["highest"] < plain["highest"]


@pytest.mark.slow
def test_so_does_the_dissipative_scheme():
    common = (*SMALL, "time.end=0.5", "filter.order=0")
    plain, damped = (run("rotating_cone", *common, *more) for more in ((), ("scheme.name=deng5",)))
    assert damped["error_l1"] < 0.15 * plain["error_l1"] and damped["highest"] < plain["highest"]


# --- the same, in plain NumPy -----------------------------------------------------------------------------


def matrix(scheme: compact.Scheme, grid: ml.Grid, axis: int) -> np.ndarray:
    left, right = compact.matrices(scheme, grid.shape[axis], periodic=grid.periodic[axis])
    return np.linalg.solve(left, right) / grid.spacing[axis] ** scheme.degree


def stepped(u: np.ndarray, slope, dt: float, steps: int, after=lambda u: u) -> np.ndarray:
    for _ in range(steps):
        a = slope(u)
        b = slope(u + 0.5 * dt * a)
        c = slope(u + 0.5 * dt * b)
        u = after(u + dt / 6 * (a + 2 * b + 2 * c + slope(u + dt * c)))
    return u


def plain_top_hat(made: AdvectionCase, steps: int) -> np.ndarray:
    speed, free = made.config.flow.speed, np.append(0.0, np.ones(made.grid.shape[0] - 1))
    plus, minus = (matrix(scheme, made.grid, 0) for scheme in made.schemes)  # type: ignore[attr-defined]
    return stepped(made.exact_at(0.0), lambda u: -free * (plus @ (speed * u) + minus @ (0.0 * u)), made.steps.dt, steps)


def plain_cone(made: AdvectionCase, steps: int) -> np.ndarray:
    x, y = made.grid.meshgrid()
    inside = np.pad(np.ones([n - 2 for n in x.shape]), 1)
    derivative = matrix(compact.LELE6, made.grid, 0)
    smooth = matrix(compact.filters(8, 0.45), made.grid, 0)
    return stepped(made.exact_at(0.0), lambda u: 2 * np.pi * inside * (y * (derivative @ u) - x * (u @ derivative.T)),
                   made.steps.dt, steps, lambda u: smooth @ u @ smooth.T)  # fmt: skip


BACKENDS = [("tophat1d", "numpy"), ("rotating_cone", "numpy"), ("rotating_cone", "cpu")]
ON_A_DEVICE = [pytest.param(name, "cuda", marks=pytest.mark.gpu) for name in ("tophat1d", "rotating_cone")]


@pytest.mark.parametrize(("name", "backend"), BACKENDS + ON_A_DEVICE)
def test_steps_are_those_of_plain_numpy(name, backend):
    ml.use(backend)
    made = case(name, "mesh.points=24", "time.cfl=0.8", "time.end=10.0")
    expected = (plain_top_hat if name == "tophat1d" else plain_cone)(made, 6)
    made.program.run(6)
    np.testing.assert_allclose(made.grid.shaped(made.phi), expected, atol=1e-13)
