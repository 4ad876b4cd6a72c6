"""The airfoil case: published residuals, and what any inviscid flow must obey."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench.airfoil import shuffled
from meshloom.config import build, parse_set
from meshloom.errors import ConfigError, MeshError
from meshloom.solvers import cases, find_case
from meshloom.solvers.airfoil import (
    FAR_FIELD,
    Airfoil,
    AirfoilConfig,
    AirfoilFlowOptions,
    AirfoilGas,
    AirfoilMeshOptions,
    _boundary_kind,
    kernels,
)
from tests.mesh.mixed_samples import plane
from tests.one_line import one_line_from

TRUTH = json.loads((Path(__file__).parents[1] / "data" / "airfoil_rms.json").read_text())


@pytest.fixture(autouse=True)
def one_thread_and_the_same_backend_afterwards() -> Iterator[None]:
    """One thread: these meshes are small, and test machines are busy."""
    before = ml.backend(), ml.threads()
    ml.use(before[0], threads=1)
    yield
    ml.use(before[0], threads=before[1])


def airfoil(**settings: Any) -> Airfoil:
    """A case with ``mesh_i=20`` and so on; a double underscore is not needed, sections are one word."""
    changes = [parse_set(f"{key.replace('_', '.', 1)}={json.dumps(value)}") for key, value in settings.items()]
    return Airfoil(build(AirfoilConfig, changes))


def rms_after(case: Airfoil, iterations: int) -> np.ndarray:
    return case.monitor_rows(case.program.run(iterations, record=case.recorded))[:, 0]


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize(("i", "j"), [(20, 30), pytest.param(40, 60, marks=pytest.mark.slow)])
def test_residuals_of_the_reference(backend: str, i: int, j: int):
    ml.use(backend)
    rms = rms_after(airfoil(mesh_i=i, mesh_j=j), 100)
    for iteration, value in TRUTH[f"{i}x{j}"].items():
        if int(iteration) <= 100:
            assert rms[int(iteration) - 1] == pytest.approx(value, rel=1e-9), iteration


@pytest.mark.slow
def test_residuals_with_constants_in_double_precision():
    rms = rms_after(airfoil(mesh_i=40, mesh_j=60, flow_float_constants=False), 100)
    for iteration, value in TRUTH["double_constants_40x60"].items():
        assert rms[int(iteration) - 1] == pytest.approx(value, rel=1e-9)


def test_residuals_in_single_precision():
    case = airfoil(mesh_i=20, mesh_j=30, run_precision="single")
    assert case.q.dtype == np.float32 and case.rms.dtype == np.float64
    rms = rms_after(case, 100)
    for iteration in (1, 10, 100):
        assert rms[iteration - 1] == pytest.approx(TRUTH["20x30"][str(iteration)], rel=1e-3)


@pytest.mark.parametrize("order", [name for name in ml.orderings() if name not in ("given", "kaminpar", "metis")])
def test_every_numbering_gives_the_same_flow(order: str):
    given, moved = airfoil(mesh_i=9, mesh_j=7), airfoil(mesh_i=9, mesh_j=7, mesh_order=order)
    np.testing.assert_allclose(rms_after(moved, 20), rms_after(given, 20), rtol=1e-10)
    fields = given.cell_fields()
    for name, values in moved.cell_fields().items():
        np.testing.assert_allclose(values, fields[name], rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("order", ["random", "hilbert"])
def test_fused_loops_of_a_gpu_go_by_position_too(order: str):
    ml.use("numpy")
    expected = airfoil(mesh_i=9, mesh_j=7)
    rms = rms_after(expected, 5)
    ml.use("emulated")
    moved = airfoil(mesh_i=9, mesh_j=7, mesh_order=order)
    np.testing.assert_allclose(rms_after(moved, 5), rms, rtol=1e-11)
    np.testing.assert_allclose(moved.q.numpy(), expected.q.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", [pytest.param("numpy", marks=pytest.mark.slow), "cpu"])
@pytest.mark.slow
def test_a_shuffled_mesh_is_arranged_by_itself_and_gives_the_same_flow(backend: str, tmp_path: Path):
    ml.use(backend)
    ml.write(tmp_path / "shuffled.dat", shuffled(ml.generate.naca0012(60, 50)))
    wanted = {"auto": "hilbert", "given": "given"}
    runs = {order: airfoil(mesh_file=str(tmp_path / "shuffled.dat"), mesh_order=order) for order in wanted}
    assert {order: case.mesh.arrangement.order for order, case in runs.items()} == wanted
    np.testing.assert_allclose(rms_after(runs["auto"], 20), rms_after(runs["given"], 20), rtol=1e-11)
    fields = runs["given"].cell_fields()
    for name, values in runs["auto"].cell_fields().items():
        np.testing.assert_allclose(values, fields[name], rtol=1e-12, atol=1e-12, err_msg=name)


def test_the_flow_is_symmetric_at_zero_incidence():
    i, j = 12, 10
    case = airfoil(mesh_i=i, mesh_j=j)
    case.program.run(300)
    q = case.q.numpy().reshape(j, 3 * i, 4)
    mirror = q[:, ::-1] * np.array([1.0, 1.0, -1.0, 1.0])
    np.testing.assert_allclose(q, mirror, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("cells", ["quad", "triangle", "mixed"])
@pytest.mark.parametrize("incidence", [0.0, 20.0])
def test_a_free_stream_stays_a_free_stream(tmp_path: Path, cells: str, incidence: float):
    mesh = ml.Mesh.from_cells(*plane(1, polygons=False)) if cells == "mixed" else ml.generate.box((7, 5), cells=cells)
    ml.write(tmp_path / "box.msh", mesh)
    case = airfoil(
        mesh_file=str(tmp_path / "box.msh"), mesh_walls=[], mesh_farfield=list(mesh.groups), flow_incidence=incidence
    )
    rms = rms_after(case, 20)
    assert rms.max() < 1e-14
    np.testing.assert_allclose(case.q.numpy(), np.tile(case.gas.free_stream, (len(mesh.cells), 1)), rtol=1e-13)


@pytest.mark.slow
def test_stagnation_pressure_and_suction():
    """The flow comes to rest at the nose, with the isentropic pressure there, and is fastest above the airfoil."""
    case = airfoil(mesh_i=40, mesh_j=60)
    case.program.run(1500)
    fields, gas = case.cell_fields(), case.gas
    rest = (1.0 + 0.5 * (gas.gamma - 1.0) * gas.mach**2) ** (gas.gamma / (gas.gamma - 1.0))
    assert fields["pressure"].max() == pytest.approx(rest, rel=0.06), "5 % too high on this mesh, 3.7 % on 100 x 150"
    x, _ = case.mesh.cells.points[np.argmax(fields["pressure"])]
    assert abs(x) < 0.05, "the stagnation point is at the nose"
    fastest = np.argmax(fields["mach"])
    assert 0.43 < fields["mach"][fastest] < 0.5 and 0.1 < case.mesh.cells.points[fastest, 0] < 0.3
    far = np.hypot(*case.mesh.cells.points.T) > 8.0
    np.testing.assert_allclose(fields["mach"][far], gas.mach, rtol=0.01)


def force_on_wall(case: Airfoil) -> np.ndarray:
    """Pressure force (drag, lift) on the solid faces."""
    mesh, wall = case.mesh, case.mesh.group("wall")
    pressure = case.cell_fields()["pressure"][mesh.boundary_cells.indices[wall, 0]]
    force: np.ndarray = (pressure[:, None] * mesh.boundary_normals[wall]).sum(axis=0)
    return force


@pytest.mark.slow
def test_lift_has_the_sign_of_the_incidence():
    lift = {}
    for angle in (-2.0, 0.0, 2.0):
        case = airfoil(mesh_i=20, mesh_j=30, flow_incidence=angle)
        case.program.run(600)
        lift[angle] = force_on_wall(case)[1]
    assert abs(lift[0.0]) < 1e-10
    assert lift[2.0] > 0.01 and lift[-2.0] == pytest.approx(-lift[2.0], rel=1e-9)


def test_fluxes_between_cells_conserve():
    gas = AirfoilGas.of(AirfoilConfig().flow)
    mesh, rng = ml.generate.naca0012(8, 6), np.random.default_rng(5)
    q = mesh.cells.field("q", 4, data=gas.free_stream * rng.uniform(0.8, 1.2, (len(mesh.cells), 4)))
    adt, res = mesh.cells.field("adt", data=rng.uniform(1, 2, len(mesh.cells))), mesh.cells.field("res", 4)
    cells = mesh.face_cells
    kernels(gas).res_calc(mesh.faces, mesh.coordinates[mesh.face_nodes], q[cells], adt[cells], res[cells])
    assert np.abs(res.numpy()).max() > 0.01
    np.testing.assert_allclose(res.numpy().sum(axis=0), 0.0, atol=1e-11)


def test_kernels_element_by_element_agree_with_the_program():
    """One stage, each kernel called plainly as the Python function it is."""
    case = airfoil(mesh_i=4, mesh_j=3)
    gas, mesh = case.gas, case.mesh
    x, cells, own = mesh.coordinates, mesh.face_cells, mesh.boundary_cells
    q = mesh.cells.field("q", 4, data=case.q.numpy())
    qold, adt, res = mesh.cells.field("qold", 4), mesh.cells.field("adt"), mesh.cells.field("res", 4)
    rms, plain = ml.Global(0.0), kernels(gas)
    plain.save_soln.python(mesh.cells, q, qold)
    for _ in range(2):
        plain.adt_calc.python(mesh.cells, x[mesh.cell_nodes], q, adt)
        res.fill(0.0)
        plain.res_calc.python(mesh.faces, x[mesh.face_nodes], q[cells], adt[cells], res[cells])
        plain.bres_calc.python(
            mesh.boundary_faces, x[mesh.boundary_nodes], q[own], adt[own], res[own], mesh.boundary_group
        )
        rms.value = 0.0
        plain.update.python(mesh.cells, qold, q, res, adt, rms)
    recorded = case.program.run(1, record=case.recorded)
    assert recorded[0, 0] == pytest.approx(rms.value, rel=1e-12)
    np.testing.assert_allclose(case.q.numpy(), q.numpy(), rtol=1e-13)


def test_cases_are_found_by_name():
    assert cases()["airfoil"] is Airfoil and find_case("airfoil") is Airfoil


def test_solvers_do_not_speak_of_execution():
    """Layouts, threads and strategies belong to the engine: the physics never names them."""
    text = (Path(ml.__file__).parent / "solvers" / "airfoil.py").read_text()
    for word in ("layout", "thread", "Schedule(", "numpy back end"):
        assert word not in text, word


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_reference_run_reaches_the_published_residual(backend: str) -> None:
    """720,000 cells, 1000 iterations: the official test of the original program, here at every printed iteration."""
    from bench.airfoil_reference import PUBLISHED, reference_run

    ml.use(backend, threads=len(os.sched_getaffinity(0)))
    rows = reference_run(backend, "double")["iterations"]
    assert rows["1000"]["rms"] == pytest.approx(PUBLISHED["double"], rel=1e-7)
    assert max(row["relative"] for row in rows.values()) < 1e-9


def test_groups_that_nobody_named_and_names_that_no_group_has():
    mesh = ml.generate.box((3, 1))
    first, *others = mesh.groups  # xmin, one face
    with one_line_from(MeshError, "^1 boundary face is neither wall nor far field; .* groups .*" + first):
        _boundary_kind(mesh, AirfoilMeshOptions(walls=(), farfield=tuple(others)))
    with one_line_from(MeshError, f"mesh.walls names 'body', which is no boundary group .*; allowed: {first}, "):
        _boundary_kind(mesh, AirfoilMeshOptions(walls=("body",), farfield=(first, *others)))
    options = AirfoilMeshOptions(farfield=(first, *others))  # 'wall', the default, need not exist
    kinds = _boundary_kind(mesh, options).numpy()
    assert (kinds == FAR_FIELD).all()


@pytest.mark.parametrize("key", ["mach", "incidence", "cfl", "dissipation"])
def test_what_settings_allow_can_be_computed_with(key: str) -> None:
    """Lift and drag are numbers from end to end, in double and in single precision; below there is a line."""
    ml.use("numpy")
    rule = next(one.metadata for one in fields(AirfoilFlowOptions) if one.name == key)
    least = 1e-100 if rule["low"] is None else rule["low"]  # no number is smaller
    for value, precision in product((least, rule["high"]), ("double", "single")):
        words = ("mesh.i=4", "mesh.j=6", f"flow.{key}={value!r}", f"run.precision={precision}")
        case = Airfoil(build(AirfoilConfig, [parse_set(word) for word in words]))
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            found = case.coefficients()
        assert len(found) == 2 and all(np.isfinite(one) for one in found.values())
    with one_line_from(ConfigError, "flow.mach must be a number from 0.001 up to 10.0"):
        build(AirfoilConfig, [parse_set("flow.mach=1e-100")])
