"""The cases of finite volumes: exact solutions, published figures, and what a person meets at the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make, run_to_the_end
from tests.cli.conftest import meshloom  # noqa: F401  a fixture
from tests.cli.harness import Command


@pytest.fixture(autouse=True)
def on_one_thread() -> None:
    ml.use("numpy", threads=1)


# --- the shock tube ---------------------------------------------------------------------------------------------


#: At the ends of a tube, which waves do not reach; what a scheme smears of them does, and would go out.
WALLS = tuple(f"boundary.{end}.kind=slip" for end in ("xmin", "xmax"))


def sod_error(cells: tuple[int, int, int], kind: str, *more: str) -> float:
    """Mean error of the density at the end, by volume."""
    case = make("sod3d", f"mesh.cells={list(cells)}", f"mesh.kind={kind}", *WALLS, *more)
    rows = run_to_the_end(case)
    assert rows[-1, 0] == case.config.time.end, "the last step lands on the end"
    np.testing.assert_allclose(rows[:, -2:], np.tile(rows[0, -2:], (len(rows), 1)), rtol=1e-13)  # mass and energy
    volume = case.mesh.cell_volumes
    return float(np.abs(case.cell_fields()["density"] - case.solution().density) @ volume / volume.sum())


@pytest.mark.slow
def test_sod_on_hexahedra_and_tetrahedra():
    """First order is at 0.03 for 100 cells; tetrahedra are finer than their cuboids."""
    assert sod_error((50, 1, 1), "hexahedron") < 0.0105
    assert sod_error((16, 1, 1), "tetrahedron") < 0.025


@pytest.mark.slow
@pytest.mark.parametrize("flux", ["roe", "hllc", "slau2", "rusanov"])
def test_sod_converges(flux: str):
    ml.use("cpu")
    for kind, shape in (("hexahedron", (1, 1)), ("tetrahedron", (2, 2))):
        coarse, fine = (sod_error((n, *shape), kind, f"scheme.flux={flux}") for n in (50, 100))
        assert fine < 0.0075 and coarse / fine > 1.5


# --- bodies -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cylinder_at_40():
    """Published: drag 1.49 to 1.54, wake 2.2 to 2.35 diameters; 3 % beyond is the margin."""
    ml.use("cpu")
    case = make("cylinder", "mesh.around=128", "mesh.outward=96", "time.method=implicit")
    rows = case.monitor_rows(case.program.run(350, record=case.recorded))
    drag = rows[-1, case.monitors.index("drag")]
    assert 1.49 * 0.97 < drag < 1.54 * 1.03 and 2.2 * 0.97 < case.wake_length() < 2.35 * 1.03
    assert abs(rows[-1, case.monitors.index("lift")]) < 1e-6


@pytest.mark.slow
def test_a_tenth_of_the_speed_has_the_same_drag():
    """SLAU2 at Mach 0.01 and 0.1, within 2 %; the slow flow starts from the fast one, scaled as slow flow is."""
    ml.use("cpu")
    mesh, drag = ("mesh.around=48", "mesh.outward=40"), []
    fast, slow = make("cylinder", *mesh), make("cylinder", *mesh, "stream.mach=0.01")
    for case, iterations in ((fast, 5000), (slow, 8000)):
        if case is slow:
            V = fast.gas.primitives(fast.flow.u.numpy().T)
            scale = np.array([0.01, 0.1, 0.1, 0.01])[:, None]
            still = np.array([1.0, 0.0, 0.0, 1.0])[:, None]
            start = slow.stream[:, None] * still + scale * (V - fast.stream[:, None] * still)
            slow.flow.u.assign(slow.gas.conserved(start).T)
        rows = case.monitor_rows(case.program.run(iterations, record=case.recorded))
        assert rows[-1, 0] < 1e-6, "steady"
        drag.append(rows[-1, case.monitors.index("drag")])
    assert drag[1] == pytest.approx(drag[0], rel=0.02)


@pytest.mark.slow
def test_airfoil_at_mach_08():
    """Lift 0.348 to 0.363, drag 0.0221 to 0.0230, as published."""
    ml.use("cpu")
    case = make("naca0012_transonic", "mesh.around=256", "mesh.outward=96", "time.method=implicit")
    rows = case.monitor_rows(case.program.run(300, record=case.recorded))
    lift, drag = rows[-1, [case.monitors.index("lift"), case.monitors.index("drag")]]
    assert 0.348 < lift < 0.363 and 0.0221 < drag < 0.0230, (lift, drag)


def test_the_chart_of_a_wake_says_how_long_it_is() -> None:
    case = make("cylinder", "mesh.around=16", "mesh.outward=16", "mesh.far=10")
    V = case.start(case.mesh.cell_centroids)
    V[1] *= 0.1 * (case.mesh.cell_centroids[:, 0] - 2.5)
    case.flow.u.assign(case.gas.conserved(V).T)
    assert case.wake_length() == pytest.approx(2.0, abs=0.004)
    *_, chart = case.charts({})
    assert chart.name == "wake" and chart.y_label == "velocity on the axis (recirculation length: 2 diameters)"


# --- at the command line ----------------------------------------------------------------------------------------

MESH = """NDIME= 2
NELEM= 2
9 0 1 4 3
9 1 2 5 4
NPOIN= 6
0 0
1 0
2 0
0 1
1 1
2 1
NMARK= 3
MARKER_TAG= floor
MARKER_ELEMS= 2
3 0 1
3 1 2
MARKER_TAG= ends
MARKER_ELEMS= 2
3 0 3
3 2 5
MARKER_TAG= roof
MARKER_ELEMS= 2
3 3 4
3 4 5
"""
SETTINGS = """case = "fv"
[mesh]
file = "two.su2"
[boundary.floor]
kind = "slip"
[boundary.roof]
kind = "symmetry"
[boundary.ends]
kind = "farfield"
"""


def test_a_mesh_of_the_users_own(meshloom: Command, tmp_path: Path):  # noqa: F811
    (tmp_path / "two.su2").write_text(MESH)
    (tmp_path / "flow.toml").write_text(SETTINGS)
    numpy = ("--set", "run.backend=numpy", "--set", "output.plot=false")
    assert meshloom("run", "flow.toml", "--iterations", "3", *numpy, "--out", "a").code == 0
    assert (tmp_path / "a" / "chart_cp_floor.csv").exists()
    wrong = {
        'kind = "slip"': ('kind = "slipp"', "boundary.floor has the unknown kind 'slipp'; did you mean 'slip'?"),
        "[boundary.floor]": ("[boundary.flor]", "boundary.flor is no boundary group of the mesh"),
        '[boundary.ends]\nkind = "farfield"\n': ("", "boundary group 'ends' of the mesh (2 faces) has no condition"),
        'kind = "farfield"': ('kind = "outlet"\npressure = -1.0', "boundary.ends has a wrong entry: pressure must be"),
    }
    for right, (broken, says) in wrong.items():
        (tmp_path / "wrong.toml").write_text(SETTINGS.replace(right, broken))
        meshloom("run", "wrong.toml", *numpy, "--out", "b").refused(2, says)
    assert not (tmp_path / "b").exists()


def test_a_run_that_breaks_down_says_where(meshloom: Command):  # noqa: F811
    """A step fifty times too long."""
    run = (
        "run",
        "fv",
        "--set",
        "mesh.along=6",
        "--set",
        "mesh.up=3",
        "--set",
        "time.cfl=50",
        "--set",
        "run.backend=numpy",
    )
    meshloom(*run, "--iterations", "50", "--out", "a").refused(1, "pressure is ", "in cell ", " at (")


def test_one_run_is_two_with_a_restart(meshloom: Command, tmp_path: Path):  # noqa: F811
    small = ("--set", "mesh.around=8", "--set", "mesh.outward=4", "--set", "mesh.far=5", "--set", "run.backend=numpy",
             "--set", "output.plot=false", "--quiet")  # fmt: skip
    assert meshloom("run", "naca0012_transonic", *small, "--iterations", "6", "--out", "a").code == 0
    assert meshloom("run", "naca0012_transonic", *small, "--iterations", "3", "--out", "b").code == 0
    restart = ("run", "--restart", "b/checkpoint.h5", "--iterations", "6", "--quiet", "--set", "output.plot=false")
    assert meshloom(*restart).code == 0
    a, b = ((tmp_path / name / "monitors.csv").read_text() for name in "ab")
    assert a == b and len(a.splitlines()) == 7


def test_a_restart_says_what_it_cannot_change(meshloom: Command, tmp_path: Path):  # noqa: F811
    """In the words of the settings, and not in those of the fields that would be missing."""
    small = ("--set", "mesh.along=6", "--set", "mesh.up=3", "--set", "output.plot=false", "--set", "run.backend=numpy")
    assert meshloom("run", "fv", *small, "--iterations", "2", "--out", "a", "--quiet").code == 0
    result = meshloom("run", "--restart", "a", "--iterations", "4", "--quiet", "--set", "time.method=implicit")
    result.refused(2, "a run with time.method = 'explicit' cannot go on as 'implicit': run anew")
    plate = ("mesh.along=6", "mesh.up=5", "mesh.first_height=1e-3", "time.method=explicit")
    before, now = (make("flat_plate", *plate, f"turbulence.model={model}") for model in ("spalart_allmaras", "none"))
    assert "turbulence.model = 'spalart_allmaras' cannot go on as 'none'" in now.why_not_after(before.config)
