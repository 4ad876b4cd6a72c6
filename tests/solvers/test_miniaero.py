"""The miniAero cases: fields of the original program, exact solutions, and what any compressible flow must obey."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import erf

import meshloom as ml
from bench.cases import make
from bench.truth_cases import MINIAERO_CONSERVED, MINIAERO_RUNS, miniaero_run, unmet
from bench.truth_cases import miniaero_away as away_from
from bench.truth_cases import miniaero_conserved as conserved
from meshloom.solvers import find_case
from meshloom.solvers.exact import GasState, Riemann
from meshloom.solvers.miniaero.gas import viscous_flux
from meshloom.solvers.miniaero.kernels import EXTRAPOLATE, MiniAeroKernels, MiniAeroScheme, kernels
from meshloom.solvers.miniaero.options import MiniAeroGasOptions
from meshloom.solvers.miniaero.step import FiniteVolumes, TimeStep
from tests.backend.test_cuda import CompileBackend, needs_nvrtc
from tests.cli.conftest import meshloom  # noqa: F401  a fixture
from tests.cli.harness import Command

DATA = Path(__file__).parents[1] / "data"
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(autouse=True)
def one_thread_and_the_same_backend_afterwards() -> Iterator[None]:
    """One thread: these meshes are small, and test machines are busy."""
    before = ml.backend(), ml.threads()
    ml.use(before[0], threads=1)
    yield
    ml.use(before[0], threads=before[1])


def case(name: str, settings: dict[str, Any] | None = None) -> Any:
    """``case("sod", {"mesh.cells": [8, 1, 1]})``."""
    return make(f"miniaero_{name}", *(f"{key}={json.dumps(value)}" for key, value in (settings or {}).items()))


# --- steps ----------------------------------------------------------------------------------------------------


def test_the_longest_step_of_a_uniform_stream() -> None:
    """Courant numbers add up along the axes: 1.3926 for differences of first order by four stages, where friction's own
    limit is 2.7853 / (4 nu sum of 1 / h^2)."""
    settings = {"order": 1, "mesh.cells": [4, 5, 2], "mesh.extent": [2.0, 1e-4, 1.0], "mesh.angle": 0.0}
    made = case("plate", settings)
    density, momentum, *_, energy = made.inflow_state
    speed, widths = momentum / density, np.array([0.5, 2e-5, 0.5])
    pressure = 0.4 * (energy - 0.5 * momentum * speed)
    sound, heat = math.sqrt(1.4 * pressure / density), pressure / (density * 287.05)
    waves = (np.array([speed, 0.0, 0.0]) + sound) @ (1.0 / widths) / 1.3926
    nu = 1.458e-6 * heat**1.5 / (heat + 110.4) / density * 1.4 / 0.71
    assert 1.0 / made.longest_step == pytest.approx(waves + 4.0 * nu * (1.0 / widths**2).sum() / 2.7853, rel=1e-3)
    assert 1.0 / case("plate", settings | {"viscous": False}).longest_step == pytest.approx(waves, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cells"), [("sod", [64, 2, 2]), ("plate", [8, 16, 2])])
def test_flows_break_down_beyond_the_longest_step(name: str, cells: list[int]) -> None:
    longest = case(name, {"mesh.cells": cells}).longest_step
    for share, stays in ((0.9, True), (1.5, False)):
        made = case(name, {"mesh.cells": cells, "time.dt": share * longest})
        assert bool(made.doubts()) is not stays
        with np.errstate(all="ignore"):
            *_, last = made.program.run(150, record=made.recorded)
        assert (np.isfinite(last).all() and last[3] > 0.0) == stays, share


# --- the original program -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "cpu", CUDA])
@pytest.mark.parametrize("name", ["sod", "ramp", "plate"])
def test_one_step_of_the_original(backend: str, name: str):
    ml.use(backend)
    assert not unmet(miniaero_run(name, 1))


@pytest.mark.parametrize("backend", ["cpu", CUDA])
@pytest.mark.parametrize(
    ("name", "steps"), [("sod", 100), ("ramp", 10), pytest.param("ramp", 400, marks=pytest.mark.slow)]
)
def test_fields_of_the_original(name: str, steps: int, backend: str):
    ml.use(backend)
    assert not unmet(miniaero_run(name, steps))


@pytest.mark.slow
def test_plate_of_the_original():
    """The layer at the wall makes round-off grow from 1e-14 at step 100 to 1e-9 at step 200. Another numbering of the
    same mesh, which changes the order of sums alone, ends as far away as the original does."""
    ml.use("cpu")
    truth = np.load(DATA / "miniaero_plate_400.npz")["U"]
    given, other = case("plate"), case("plate", {"mesh.order": "random"})
    for one in (given, other):
        one.program.run(50)
    assert away_from(conserved(given), conserved(other)).max() < 1e-13
    for one in (given, other):
        one.program.run(350)
    by_numbering = away_from(conserved(given), conserved(other)).max()
    assert 1e-10 < by_numbering < 1e-7
    assert away_from(truth, conserved(given)).max() < MINIAERO_RUNS["plate", 400][0]


# --- exact solutions ----------------------------------------------------------------------------------------

SOD_TIME = 2e-4  # seconds: the 100 steps of the reference


def sod_error(order: int, cells: int, settings: dict[str, Any] | None = None) -> float:
    """Mean error of the density at ``SOD_TIME``, relative to its mean."""
    steps = 100 * cells // 128
    one = case("sod", {"mesh.cells": [cells, 1, 1], "order": order, "time.dt": SOD_TIME / steps} | (settings or {}))
    one.program.run(steps)
    tube, gas = one.config.tube, one.gas
    left, right = (GasState(gas.at_rest(*side)[0], 0.0, side[0]) for side in (tube.left, tube.right))
    exact = Riemann(left, right, gas.gamma, one.config.mesh.extent[0] / 2.0).at(one.mesh.cells.points[:, 0], SOD_TIME)
    return float(np.abs(one.cell_fields()["rho"] - exact.density).mean() / exact.density.mean())


@pytest.mark.slow
def test_sod_is_as_far_from_the_exact_solution_as_the_original_is():
    ml.use("cpu")
    assert sod_error(1, 128) == pytest.approx(0.0303459378470376, rel=1e-11)


@pytest.mark.parametrize(("order", "at_64", "slowest", "fastest"), [(1, 0.046, 0.55, 0.75), (2, 0.0141, 0.78, 1.0)])
@pytest.mark.slow
def test_sod_converges_to_the_exact_solution(order: int, at_64: float, slowest: float, fastest: float):
    """With shock and contact no scheme reaches its nominal order; the second order one is three times as close."""
    ml.use("cpu")
    errors = [sod_error(order, cells, {"gas.cp_enthalpy": 0.0}) for cells in (64, 128, 256)]
    assert errors[0] == pytest.approx(at_64, rel=0.01)
    for coarse, fine in pairwise(errors):
        assert slowest < math.log2(coarse / fine) < fastest


@pytest.mark.slow
def test_pressure_behind_the_shock_of_a_ramp():
    """15 degrees at Mach 2.5: an attached oblique shock."""
    ml.use("cpu")
    nx, ny = 32, 16
    one = case("ramp", {"mesh.cells": [nx, ny, 1], "mesh.angle": 15.0, "time.dt": 2e-5})
    one.program.run(250)
    gas, state = one.gas, one.gas.primitives(one.inflow_state)
    mach, angle = state[1] / gas.sound_speed(state), math.radians(15.0)

    def excess(shock: float) -> float:
        normal = (mach * math.sin(shock)) ** 2 - 1.0
        deflection = 2.0 / math.tan(shock) * normal / (mach**2 * (gas.gamma + math.cos(2.0 * shock)) + 2.0)
        return deflection - math.tan(angle)

    shock = brentq(excess, math.asin(1.0 / mach) + 1e-9, math.radians(60.0))
    ratio = 1.0 + 2.0 * gas.gamma / (gas.gamma + 1.0) * ((mach * math.sin(shock)) ** 2 - 1.0)
    pressure = one.cell_fields()["pressure"].reshape(nx, ny)
    np.testing.assert_allclose(pressure[-4:, :2] / gas.pressure(state), ratio, rtol=0.01)
    np.testing.assert_allclose(pressure[: nx // 2 - 2] / gas.pressure(state), 1.0, rtol=0.01)


@pytest.mark.slow
def test_a_plate_that_stops_a_slow_stream():
    """Stokes' first problem: u = U erf(y / 2 sqrt(nu t)), far from the leading edge."""
    ml.use("cpu")
    speed, density, temperature, end = 10.0, 0.5805, 300.0, 7.5e-6
    gas = MiniAeroGasOptions().gas()
    state = gas.conserved(np.array([density, speed, 0.0, 0.0, temperature]))
    errors = []
    for ny in (16, 32):
        steps = 47 * ny
        one = case("plate", {"mesh.cells": [4, ny, 1], "mesh.extent": [0.1, 1e-4, 0.1], "time.dt": end / steps,
                             "stream.state": state.tolist()})  # fmt: skip
        one.program.run(steps)
        profile = one.cell_fields()["velocity"][:, 0].reshape(4, ny)[2]
        y = one.mesh.cells.points[:ny, 1]
        exact = speed * erf(y / (2.0 * math.sqrt(gas.viscosity(temperature) / density * end)))
        errors.append(np.abs(profile - exact).mean() / speed)
    assert errors[1] < 0.01 and errors[1] < errors[0] / 2.0, errors


# --- what must hold for any flow ------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"viscous": True}, {"order": 1, "viscous": True}])
def test_a_uniform_stream_stays_uniform_over_a_slope(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]):
    """Where every boundary lets gas through, an oblique stream does not notice the mesh."""
    ramp = find_case("miniaero_ramp")
    monkeypatch.setattr(ramp, "boundary", dict.fromkeys(ramp.boundary, EXTRAPOLATE))  # type: ignore[attr-defined]
    ml.use("numpy")
    stream = [0.5805, 480.0, 120.0, -60.0, 343750.0]
    one = case("ramp", {"mesh.cells": [6, 4, 3], "mesh.angle": 25.0, "stream.state": stream} | settings)
    one.program.run(5)
    np.testing.assert_allclose(conserved(one), np.tile(stream, (72, 1)), rtol=1e-13)


@pytest.mark.parametrize("order", [1, 2])
def test_mass_and_energy_are_conserved_until_a_wave_arrives_at_an_end(order: int):
    ml.use("numpy")
    one = case("sod", {"mesh.cells": [40, 2, 2], "order": order, "time.dt": 4e-6})
    rows = one.monitor_rows(one.program.run(12, record=one.recorded))
    assert rows[-1, 0] > 1e-3, "something moves"
    np.testing.assert_allclose(rows[:, 1:3], np.tile(rows[0, 1:3], (12, 1)), rtol=1e-13)
    assert rows[-1, 3] == pytest.approx(231.11, rel=0.12)


def test_sod_is_one_dimensional_and_goes_to_the_right():
    ml.use("numpy")
    one = case("sod", {"mesh.cells": [32, 3, 2], "order": 2, "time.dt": 5e-6})
    one.program.run(10)
    states = conserved(one).reshape(32, 6, 5)
    np.testing.assert_allclose(states, states[:, :1].repeat(6, axis=1), rtol=1e-12, atol=1e-10)
    assert states[..., 1].min() > -1.0 and states[..., 1].max() > 30.0


def test_viscous_flux_of_shear_and_of_heat():
    gas = MiniAeroGasOptions().gas()
    state, area = np.array([1.2, 30.0, 0.0, 0.0, 300.0]), np.array([0.0, 2.0, 0.0])
    viscosity = 1.458e-6 * 300.0**1.5 / (300.0 + 110.4)
    slope = np.zeros((5, 3))
    slope[1, 1], slope[4, 1] = 50.0, -7.0  # du/dy, dT/dy
    drag, heat = 2.0 * 50.0 * viscosity, -2.0 * 7.0 * viscosity * 1006.0 / 0.71
    np.testing.assert_allclose(viscous_flux(gas, state, slope, area), [0.0, drag, 0.0, 0.0, 30.0 * drag + heat])
    slope = np.zeros((5, 3))
    slope[1, 0] = slope[2, 1] = slope[3, 2] = 9.0  # expansion in all directions has no friction
    np.testing.assert_allclose(viscous_flux(gas, state, slope, area), np.zeros(5), atol=1e-18)


# --- engine ---------------------------------------------------------------------------------------------------


def one_step(name: str, backend: str, settings: dict[str, Any]) -> np.ndarray:
    ml.use(backend, threads=2)
    one = case(name, settings)
    rng = np.random.default_rng(3)
    one.u.assign(conserved(one) * rng.uniform(0.97, 1.03, (len(one.mesh.cells), 5)))
    one.program.run(2)
    return conserved(one)


RACY = ("gradient", "boundary_gradient", "bounds", "limit", "face_flux", "boundary_flux")
SMALL = {"mesh.cells": [5, 4, 3], "mesh.extent": [2.0, 1.0, 0.5], "mesh.angle": 10.0, "viscous": True, "order": 2,
         "time.dt": 1e-6}  # fmt: skip


@pytest.mark.parametrize("strategy", ml.strategies())
@pytest.mark.slow
def test_every_strategy_gives_the_same_flow(strategy: str):
    """The loops in which faces meet at a cell: increments of 15 numbers, minima and maxima, fluxes."""
    wish = {f"schedule.{loop}": strategy for loop in ("gradient", "bounds", "face_flux")}
    small = SMALL | {"viscous": False}
    found = one_step("ramp", "cpu", small | wish)
    assert away_from(one_step("ramp", "numpy", small), found).max() < 1e-13


@pytest.mark.parametrize(
    ("backend", "strategy"),
    [
        pytest.param("emulated", "owner"),
        *(pytest.param("cpu", strategy, marks=pytest.mark.slow) for strategy in ml.strategies()),
        *(pytest.param("emulated", strategy, marks=pytest.mark.slow) for strategy in ml.strategies()),
    ],
)
@pytest.mark.slow
def test_every_racy_loop_with_viscosity(backend: str, strategy: str):
    found = one_step("plate", backend, SMALL | {f"schedule.{loop}": strategy for loop in RACY})
    assert away_from(one_step("plate", "numpy", SMALL), found).max() < 1e-13


@needs_nvrtc
def test_the_viscous_flux_fits_into_the_registers_of_a_gpu():
    one, compiler = case("plate", {"mesh.cells": [3, 2, 2]}), CompileBackend(("sm_90",))
    loop = next(loop for loop in one.program.loops if loop.name == "face_flux")
    loop.on(compiler).prepare()
    resources = compiler.engine.resources["face_flux sm_90"]["pass0"]
    assert resources["spills"] == 0 and 100 < resources["registers"] <= 255


@pytest.mark.parametrize("order", ["hilbert", "random"])
def test_every_numbering_gives_the_same_flow(order: str):
    given, moved = (one_step("ramp", "numpy", SMALL | {"mesh.order": name}) for name in ("given", order))
    assert away_from(given, moved).max() < 1e-13


def test_single_precision():
    single = one_step("ramp", "numpy", SMALL | {"run.precision": "single"})
    assert 1e-9 < away_from(one_step("ramp", "numpy", SMALL), single).max() < 1e-5


def test_kernels_element_by_element_agree_with_the_program():
    """One time step, each kernel called plainly as the Python function it is."""
    ml.use("numpy")
    one = case("plate", {"mesh.cells": [3, 2, 2], "mesh.angle": 10.0, "mesh.extent": [1.0, 1.0, 1.0], "time.dt": 1e-5})
    gas, scheme = one.gas, MiniAeroScheme(2, True, 0.1, 2)
    plain = MiniAeroKernels(*(k.python for k in kernels(gas, scheme, tuple(gas.primitives(one.inflow_state).tolist()))))
    u = one.mesh.cells.field("u", 5, data=one.u.numpy())
    monitors = tuple(ml.Global(0.0, name) for name in one.monitors)
    TimeStep(u, FiniteVolumes.of(one.mesh, one.boundary, u.dtype), plain, scheme, 1e-5, monitors).time_step()
    recorded = one.program.run(1, record=one.recorded)
    assert np.abs(u.numpy() - one.inflow_state).max() > 0.1
    np.testing.assert_allclose(one.u.numpy(), u.numpy(), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(recorded[0], [monitor.value for monitor in monitors], rtol=1e-12)


# --- the command line -----------------------------------------------------------------------------------------

TINY = ("--set", "mesh.cells=[8, 4, 2]", "--backend", "numpy", "--quiet")


@pytest.mark.slow
def test_fields_in_the_vtu_file(meshloom: Command, tmp_path: Path):  # noqa: F811
    meshio = pytest.importorskip("meshio")
    assert meshloom("run", "miniaero_ramp", *TINY, "--iterations", "3", "--out", "a").code == 0
    one = case("ramp", {"mesh.cells": [8, 4, 2]})
    one.program.run(3)
    found = meshio.read(tmp_path / "a" / "fields_0000003.vtu")
    assert found.cells[0].type == "hexahedron" and len(found.cells[0].data) == 64
    for name, values in zip(MINIAERO_CONSERVED, conserved(one).T, strict=True):
        np.testing.assert_array_equal(found.cell_data[name][0], values)
    assert (tmp_path / "a" / "picture.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["miniaero_sod", "miniaero_plate"])
def test_a_restarted_run_equals_an_uninterrupted_one(meshloom: Command, tmp_path: Path, name: str):  # noqa: F811
    run = ("run", name, *TINY, "--set", "output.plot=false")
    assert meshloom(*run, "--iterations", "6", "--out", "whole").code == 0
    assert meshloom(*run, "--iterations", "3", "--out", "half").code == 0
    assert meshloom("run", "--restart", "half/checkpoint.h5", "--iterations", "6", "--quiet").code == 0
    states = [h5py.File(tmp_path / folder / "checkpoint.h5")["state/u"][...] for folder in ("whole", "half")]
    np.testing.assert_array_equal(states[0], states[1])
    assert (tmp_path / "half" / "monitors.csv").read_bytes() == (tmp_path / "whole" / "monitors.csv").read_bytes()


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ("mesh.cells=[8, 0, 1]", "mesh.cells must be 3 numbers in brackets from 1 up to 100000, got [8, 0, 1]"),
        ("order=3", "order must be a whole number from 1 up to 2, got 3"),
        ("viscous=yes", "viscous must be true or false"),
        ("time.dt=0", "time.dt must be a number above 0.0"),
        ("dt=1e-6", "unknown key 'dt'; did you mean 'time.dt'?"),
        ("mesh.angle=70", "a rise of 2.74748 does not fit into the channel"),
        ("stream.state=[1, 900, 0, 0, 1000]", "with positive density and temperature"),
        ("schedule.fase_flux=color", "did you mean 'face_flux'?"),
    ],
)
def test_bad_input(meshloom: Command, settings: str, part: str):  # noqa: F811
    meshloom("run", "miniaero_ramp", "--set", settings, "--out", "a").refused(2, part)
    assert not Path("a").exists()


@pytest.mark.parametrize(("dt", "iteration"), [("5e-4", "3"), ("1e-3", "1")])
def test_a_step_that_is_too_long_stops_the_run(meshloom: Command, dt: str, iteration: str):  # noqa: F811
    """The line names the cell where the temperature became negative, before that made anything infinite."""
    run = ("run", "miniaero_ramp", *TINY, "--set", f"time.dt={dt}", "--iterations", "40", "--out", "a")
    where = ("temperature is -", "(must be above 0)", "in cell ", f" in iteration {iteration};", "time.dt = ")
    meshloom(*run).refused(1, *where, warned="time.dt = ")


def test_solvers_do_not_speak_of_execution():
    files = sorted((Path(ml.__file__).parent / "solvers" / "miniaero").glob("*.py"))
    assert len(files) > 3
    for path in files:
        for word in ("layout", "thread", "Schedule(", "numpy back end"):
            assert word not in path.read_text(), (path.name, word)
