"""Settings of compressible flow that contradict each other or the mesh are refused; flows in which nothing happens."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make
from meshloom.errors import ConfigError
from meshloom.solvers.finite_volume.bodies import CylinderConfig
from meshloom.solvers.finite_volume.conditions import AdiabaticWall
from meshloom.solvers.finite_volume.contradictions import check_sense
from meshloom.solvers.finite_volume.flow import CompressibleFlow
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.implicit import FORGIVEN, LEAST_CFL, Newton, NewtonOptions, worst_cell
from meshloom.solvers.finite_volume.kernels import FlowScheme
from meshloom.solvers.finite_volume.wing import WingConfig
from tests.one_line import one_line_from

SMALL = ("mesh.along=3", "mesh.up=1")
VISCOUS = ("gas.viscosity=constant", "stream.reynolds=100")
AROUND = [f'boundary.{side}={{kind="farfield"}}' for side in ("xmin", "xmax", "ymin", "ymax")]
JOINED = [f'boundary.{axis}min={{kind="periodic",partner="{axis}max"}}' for axis in "xy"]


@pytest.fixture(autouse=True)
def numpy_and_the_same_backend_afterwards() -> Iterator[None]:
    before = ml.backend(), ml.threads()
    ml.use("numpy", threads=1)
    yield
    ml.use(before[0], threads=before[1])


@pytest.mark.parametrize(("settings", "why"), [
    (["stream.reynolds=100"], "stream.reynolds is 100, and gas.viscosity is 'none'"),
    (["gas.reference_viscosity=0.1"], "gas.reference_viscosity is 0.1, and gas.viscosity is 'none'"),
    (["gas.viscosity=sutherland"], "gas.viscosity is 'sutherland', but nothing says how much"),
    ([*VISCOUS, "gas.reference_viscosity=1"], "both set the viscosity"),
    ([*VISCOUS, "stream.mach=0"], "stream.mach is 0"),
    ([*VISCOUS, "gas.reference_temperature=300"], "gas.reference_temperature is 300, but stream.reynolds says"),
    (["gas.reference_temperature=300"], "gas.reference_temperature is 300, and gas.viscosity is 'none'"),
    (["time.method=implicit", "time.smoothing=0.3"], "time.smoothing is 0.3, and time.method is 'implicit'"),
    (["time.mode=unsteady", "time.smoothing=0.3"], "time.smoothing is 0.3, and time.mode is 'unsteady'"),
    (['boundary.wall={kind="no_slip"}'], "boundary.wall: a no-slip wall needs a viscosity"),
    (['boundary.wall={kind="isothermal"}'], "boundary.wall: a no-slip wall needs a viscosity"),
    ([*VISCOUS, 'boundary.top={kind="no_slip",velocity=[1,0.1]}'], "boundary.top .* goes through the wall at"),
    ([*VISCOUS, 'boundary.top={kind="no_slip",velocity=[1,0,0]}'], "boundary.top has a velocity of 3 numbers"),
    (["stream.sideslip=3"], "stream.sideslip is 3, out of the plane"),
    (["stream.lift_axis=z"], "stream.lift_axis is 'z'"),
    (['boundary.inlet={kind="inlet"}'], "boundary.inlet has no total_pressure"),
    (['boundary.inlet={kind="inlet",total_pressure=1.1}'], "boundary.inlet has no total_temperature"),
])  # fmt: skip
def test_what_contradicts_is_one_line(settings: list[str], why: str) -> None:
    with one_line_from(ConfigError, why):
        make("fv", *SMALL, *settings)


def test_a_shock_tube_is_unsteady() -> None:
    with one_line_from(ConfigError, "sod3d: time.mode is 'steady'"):
        make("sod3d", "mesh.cells=[2,1,1]", "time.mode=steady")


def test_a_key_where_there_is_none_is_one_line() -> None:
    with one_line_from(ConfigError, "boundary.wall has the unknown key 'pressure'; none is allowed"):
        make("fv", *SMALL, 'boundary.wall={kind="symmetry",pressure=3}')


def test_what_a_case_brings_is_no_contradiction() -> None:
    """The wing has a Reynolds number for those who solve for friction, the cylinder averages where it can; a lid moves
    along itself."""
    check_sense(WingConfig(), ml.generate.box((1, 1, 2)), {})
    check_sense(CylinderConfig(time=replace(CylinderConfig().time, method="implicit")), ml.generate.box((1, 2)), {})
    case = make("fv", *SMALL, *VISCOUS, 'boundary.top={kind="isothermal",velocity=[1,0]}', "stream.temperature=300")
    top = next(side for side in case.flow.at.sides if side.name == "top")
    np.testing.assert_array_equal(top.given.numpy()[:, 1:], [[1.0, 0.0, 300.0]] * 3)  # as hot as the free stream


def test_what_is_checked_of_a_case_is_checked_once() -> None:
    """By a count of the calls of all functions that check something, with what each says it is about."""
    calls: Counter[tuple[str, Any]] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and "finite_volume" in code.co_filename and code.co_name.lstrip("_").startswith("check_"):
            calls[code.co_name, frame.f_locals.get("key")] += 1

    sys.setprofile(note)
    try:
        make("fv", *SMALL, *VISCOUS, 'boundary.top={kind="no_slip",velocity=[1,0]}')
    finally:
        sys.setprofile(None)
    assert calls["check_along", "boundary.top"] == calls["check_sense", None] == 1
    assert max(calls.values()) == 1, calls


def test_round_a_cylinder_there_is_no_velocity_along_the_wall() -> None:
    with one_line_from(ConfigError, r"boundary.wall has a velocity of \[1.0, 0.0\], which goes through"):
        make("cylinder", "mesh.around=8", "mesh.outward=4", "mesh.far=5",
             'boundary.wall={kind="no_slip", velocity=[1.0, 0.0]}')  # fmt: skip


def test_a_flow_made_by_hand_refuses_a_velocity_through_its_wall() -> None:
    """Not only a case: the pressure alone acts at a wall, so that gas would silently not follow it."""
    mesh, gas = ml.generate.box((2, 2), cells="quad"), IdealGas(law="constant", reference_viscosity=0.1)
    stream = gas.state(1.0, (0.0, 0.0), 1.0)
    start = np.tile(gas.conserved(stream), (len(mesh.cells), 1))

    def flow(velocity: tuple[float, ...]) -> CompressibleFlow:
        walls = dict.fromkeys(mesh.groups, AdiabaticWall()) | {"ymax": AdiabaticWall(velocity=velocity)}
        return CompressibleFlow(mesh, gas, FlowScheme(), walls, start, stream)

    with pytest.raises(ConfigError, match=r"^boundary\.ymax has a velocity of \[0\.0, 0\.2\], .* must be along it$"):
        flow((0.0, 0.2))
    flow((0.2, 0.0))


def test_sutherlands_constant_is_in_the_unit_of_the_stream() -> None:
    """Kelvin beside a temperature of 1 would be another gas, and nobody would see it."""
    usual = ("mesh.along=6", "mesh.up=3", "gas.viscosity=sutherland", "stream.reynolds=100")
    with one_line_from(ConfigError, r"sutherland_temperature = 110.4 and stream.temperature = 1 are not"):
        make("fv", *usual)
    for unit in (("stream.temperature=288.15",), ("gas.sutherland_temperature=0.4",)):
        gas = make("fv", *usual, *unit).gas
        assert gas.viscosity(2.0 * gas.reference_temperature) / gas.reference_viscosity == pytest.approx(1.65, abs=0.02)


@pytest.fixture
def one_cell(tmp_path: Path) -> str:
    ml.write(tmp_path / "one.su2", ml.generate.box((1, 1)))
    return f"mesh.file={tmp_path / 'one.su2'}"


def test_implicit_steps_of_a_cell_alone_are_one_line(one_cell: str) -> None:
    with one_line_from(ConfigError, r"cell 0 at \(0.5, 0.5\) has no neighbour"):
        make("fv", one_cell, *AROUND, "time.method=implicit")


@pytest.mark.parametrize(("last", "now"), [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_steps_are_of_some_length_whatever_the_residuals_are(last: float, now: float) -> None:
    newton: Any = SimpleNamespace(wanted=SimpleNamespace(value=5.0), options=NewtonOptions())
    assert LEAST_CFL <= Newton._wanted(newton, last, now) <= FORGIVEN * NewtonOptions.cfl_max


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["steady", "unsteady"])
def test_a_flow_in_which_nothing_happens_stays(one_cell: str, mode: str) -> None:
    """The residual is zero, or rounding, from the first step on."""
    case = make("fv", one_cell, *JOINED, "time.method=implicit", f"time.mode={mode}", "stream.mach=0", "scheme.order=1")
    before = case.flow.u.numpy().copy()
    rows = case.monitor_rows(case.program.run(3, record=case.recorded))
    np.testing.assert_allclose(case.flow.u.numpy(), before, rtol=1e-14, atol=1e-14)
    found = {name: rows[:, case.monitors.index(name)] for name in ("residual_density", "lowest_pressure", "mass")}
    assert np.abs(found["residual_density"]).max() < 1e-13
    np.testing.assert_allclose([found["lowest_pressure"], found["mass"]], 1.0, rtol=1e-13)


def test_the_cell_where_an_implicit_step_fails_is_named() -> None:
    mesh = ml.generate.box((3, 1), extent=(3.0, 1.0)).arranged("random")
    inflow = mesh.cells.field("inflow", 4, data=np.array([[0, 1, 0, 0], [0, 0, -3, 0], [2, 0, 0, 0]], float))
    assert worst_cell(mesh, inflow) == "cell 1 at (1.5, 0.5)"
    inflow.assign(np.array([[0, 1, 0, 0], [0, 0, -3, 0], [np.nan, 0, 0, 0]]))
    assert worst_cell(mesh, inflow) == "cell 2 at (2.5, 0.5)"
