"""The turbulent cases: the flat plate against NASA's figure, the wing's sections, and runs that go on."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make
from meshloom.mesh.generators import m6_wing
from meshloom.solvers.finite_volume import wing
from meshloom.solvers.finite_volume.plate import PUBLISHED_FRICTION, STATION
from meshloom.solvers.finite_volume.spalart_allmaras import law_of_the_wall
from meshloom.solvers.finite_volume.wing import cut, measured_pressure
from tests.one_line import one_line_from


@pytest.fixture(autouse=True)
def on_one_thread() -> None:
    ml.use("numpy", threads=1)


# --- the flat plate ---------------------------------------------------------------------------------------------


def test_what_the_plate_draws_of_a_known_layer() -> None:
    """A velocity by the law of the wall, the same all along the plate: friction and u+ over y+ are those of it."""
    case = make("flat_plate", "mesh.along=12", "mesh.up=60")
    speed = float(case.stream[1])
    density, viscosity = float(case.gas.density(case.stream)), float(case.gas.viscosity(case.stream[-1]))
    u_tau = 0.04 * speed
    plus = case.mesh.cell_centroids[:, 1] * u_tau * density / viscosity
    V = np.tile(case.stream[:, None], (1, len(plus)))
    V[1] = u_tau * law_of_the_wall(plus)
    case.flow.u.assign(case.gas.conserved(V).T)
    x, cf = case.friction()
    assert (np.diff(x) > 0).all() and x[0] > 0 and len(x) == len(case.mesh.group("wall"))
    assert np.allclose(cf, 2.0 * 0.04**2, rtol=2e-3)
    y, u = case.profile()
    assert len(y) == 60 and np.allclose(u, law_of_the_wall(y), rtol=2e-3)
    charts = {chart.name: chart for chart in case.charts({})}
    friction = charts["friction"]
    assert np.nanmax(friction.curves["published"]) == PUBLISHED_FRICTION and STATION in friction.x
    assert charts["law_of_the_wall"].decades


@pytest.mark.parametrize(
    ("setting", "is_nasas"),
    [
        ("stream.mach=0.3", False), ("stream.reynolds=1e6", False), ("turbulence.model=none", False),
        ("reference.length=2.0", False), ("boundary.inlet.total_pressure=1.1", False), ("gas.prandtl=0.9", False),
        ("scheme.flux=roe", True), ("turbulence.order=2", True),
    ],
)  # fmt: skip
def test_what_is_published_stands_beside_its_own_flow_alone(setting: str, is_nasas: bool) -> None:
    case = make("flat_plate", "mesh.along=6", "mesh.up=5", "mesh.first_height=1e-3", setting)
    friction = case.charts({})[0]
    assert friction.name == "friction" and ("published" in friction.curves) == is_nasas


def test_a_plate_that_the_gas_slides_along_has_no_law_of_the_wall() -> None:
    """No friction to measure heights and speeds by: nothing is divided by it."""
    small = ("mesh.along=6", "mesh.up=5", "mesh.first_height=1e-3")
    case = make("flat_plate", *small, "boundary.wall.kind=slip")
    with np.errstate(all="raise"):
        assert [chart.name for chart in case.charts({})] == ["cp_wall", "cf_wall"]


def test_the_plate_is_that_of_nasa() -> None:
    case = make("flat_plate", "mesh.along=12", "mesh.up=8", "mesh.first_height=1e-4")
    V, gas = case.stream, case.gas
    sound = float(gas.sound_speed(V))
    assert V[1] / sound == pytest.approx(0.2) and V[2] == 0.0
    assert gas.density(V) * V[1] / gas.viscosity(V[-1]) == pytest.approx(5e6)
    total = 1.0 + 0.2 * 0.2**2
    inlet = case.conditions()["inlet"]
    assert inlet.total_temperature / V[-1] == pytest.approx(total) and inlet.total_pressure == pytest.approx(
        total**3.5, rel=1e-5
    )
    assert case.turbulence.far == pytest.approx(3.0 * gas.viscosity(V[-1]) / gas.density(V))
    assert case.mesh.boundary_centres[case.mesh.group("wall"), 0].min() > 0.0


@pytest.mark.parametrize("method", ["explicit", pytest.param("implicit", marks=pytest.mark.slow)])
def test_a_run_goes_on_with_the_same_bits(method: str) -> None:
    """What a checkpoint holds, the model's viscosities among it, is all that counts."""
    settings = ("mesh.along=6", "mesh.up=5", "mesh.first_height=1e-3", f"time.method={method}", "time.cfl=1.0")
    straight, first, second = (make("flat_plate", *settings) for _ in range(3))
    straight.program.run(4)
    first.program.run(2)
    for one, other in zip(second.state, first.state, strict=True):
        if isinstance(one, ml.Field):
            one.assign(other.numpy())
        else:
            one.value = other.value
    second.program.run(2)
    for name, values in straight.cell_fields().items():
        assert np.array_equal(values, second.cell_fields()[name]), name
    assert np.ptp(straight.cell_fields()["nu_tilde"]) > 0.0


@pytest.mark.slow
def test_turbulence_goes_back_with_the_flow() -> None:
    """A step that is taken back leaves no viscosity of the step that never was, and is gone again with both."""
    small = ("mesh.along=3", "mesh.up=3", "mesh.first_height=1e-2", "time.directions=2")
    case = make("flat_plate", *small, "time.cfl=1.0")
    case.program.run(1)
    newton, model = case.steps.newton, case.turbulence
    nu, eddy, u = (one.numpy().copy() for one in (model.nu, model.eddy, case.flow.u))
    case.program.run(1)
    assert newton.model.kept.numpy().tolist() == nu.tolist() != model.nu.numpy().tolist()
    after, cfl = model.nu.numpy().copy(), float(newton.cfl.value)
    ml.Program(newton.take_back)()
    for field, before in ((model.nu, nu), (model.eddy, eddy), (case.flow.u, u)):
        np.testing.assert_allclose(field.numpy(), before, rtol=1e-13)
    newton._go_back(1.0)
    assert float(newton.cfl.value) < cfl
    assert 0.0 < np.abs(model.nu.numpy() - nu).max() < np.abs(after - nu).max(), "a shorter step"


@pytest.mark.slow
def test_a_system_of_the_model_without_a_solution_makes_steps_shorter() -> None:
    case = make("flat_plate", "mesh.along=6", "mesh.up=5", "mesh.first_height=1e-3", "time.cfl=1.0")
    case.program.run(1)
    newton, model = case.steps.newton, case.steps.newton.model
    cfl = float(newton.cfl.value)
    model.model.rate.assign(np.full(model.model.rate.shape, np.nan))
    model.solve()
    assert not model.change.numpy().any() and 0.0 < float(newton.cfl.value) < 0.5 * cfl
    newton.cfl.value = 2e-3
    with one_line_from(ml.errors.SolveError, "GMRES of the turbulence model: values that are not finite"):
        model.solve()


def test_no_model_without_viscosity() -> None:
    with one_line_from(ml.errors.ConfigError, "needs a viscosity"):
        make("flat_plate", "mesh.along=6", "mesh.up=5", "mesh.first_height=1e-3", "gas.viscosity=none")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("along", "up", "iterations", "margin"),
    [(34, 24, 100, 0.04), (68, 48, 140, 0.01), pytest.param(136, 96, 300, 0.01, marks=pytest.mark.gpu)],
)
def test_friction_of_the_plate(along: int, up: int, iterations: int, margin: float) -> None:
    """0.00271 at x = 0.97; with Roe's flux, whose entropy fix takes from shear, 9 % and 1.4 % more on the first two."""
    ml.use("cuda" if along > 100 else "cpu")
    case = make("flat_plate", f"mesh.along={along}", f"mesh.up={up}")
    case.program.run(iterations)
    x, cf = case.friction()
    assert abs(np.interp(STATION, x, cf) / PUBLISHED_FRICTION - 1.0) < margin
    if up > 30:
        y, u = case.profile()
        inner = y < 300.0
        assert np.abs(u[inner] / law_of_the_wall(y[inner]) - 1.0).max() < 0.06


# --- the wing ---------------------------------------------------------------------------------------------------


def test_the_wing_of_the_case_is_that_of_the_mesh() -> None:
    area = 0.5 * (m6_wing.ROOT_CHORD + m6_wing.TIP_CHORD) * m6_wing.SEMI_SPAN
    assert (wing.SEMI_SPAN, wing.MEAN_CHORD) == (m6_wing.SEMI_SPAN, m6_wing.MEAN_CHORD)
    assert abs(wing.HALF_AREA / area - 1.0) < 1e-4 and abs(wing.TEMPERATURE - 460.0 / 1.8) < 0.05


def test_measured_pressure() -> None:
    rows = measured_pressure()
    assert rows.shape == (271, 3) and len(set(rows[:, 0])) == 7
    assert rows[:, 1].min() >= 0.0 and rows[:, 1].max() <= 1.0 and -1.5 < rows[:, 2].min() < rows[:, 2].max() < 1.3


def test_cut_through_triangles() -> None:
    """Of a flat wing from x = y to x = 2, cut at y = 0.5: from x = 0.5 on."""
    corners = np.array([[[0, 0, 0], [2, 0, 0], [1, 1, 0]], [[2, 0, 0], [2, 1, 0], [1, 1, 0]],
                        [[0, 2, 0], [1, 2, 0], [1, 3, 0]]], float)  # fmt: skip
    x, values = cut(corners, 0.5, np.array([7.0, 8.0, 9.0]))
    assert values.tolist() == [7.0, 8.0]
    assert np.allclose(x, [(0.5 * (0.5 + 1.5) - 0.5) / 1.5, (0.5 * (1.5 + 2.0) - 0.5) / 1.5])


@pytest.mark.slow
def test_equations_choose_gas_mesh_and_wall() -> None:
    euler = make("onera_m6", "mesh.cells=3000", "time.method=explicit")
    assert not euler.gas.viscous and euler.turbulence is None and euler.conditions()["wing"].kind == "slip"
    x, cp = euler.section(0.44)
    assert 0.0 < x.min() < 0.1 and 0.9 < x.max() < 1.0 and np.allclose(cp, 0.0, atol=1e-12)  # at first
    picture = euler.picture()
    assert len(picture.values) == len(picture.polygons) < len(euler.mesh.group("wing"))
    assert picture.curves == ("residual_density",), "over decades, which lift would be lost in"
    first, second, *_ = euler.charts({})
    assert (first.name, second.name) == ("section_20", "section_44") and first.downwards
    assert np.nanmin(first.curves["test 2308"]) < -0.9, "suction is negative, in the table as it was measured"
    rans = make("onera_m6", "mesh.cells=20000", "mesh.equations=rans", "time.method=explicit")
    assert rans.gas.law == "sutherland" and rans.conditions()["wing"].kind == "no_slip"
    assert rans.turbulence is not None and rans.turbulence.distance.numpy().min() < 3e-6
