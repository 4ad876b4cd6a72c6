"""Probes, lines, integrals, surface files, forces and the end at a residual, for cases by their settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.config import build, parse_set
from meshloom.io.vtk import Series
from meshloom.solvers.airfoil import Airfoil
from tests.cli.harness import Command, files_below, table

PLAINLY = ("--backend", "numpy", "--set", "output.plot=false")  # as quick as it goes
SMALL = ("run", "airfoil", "--set", "mesh.i=8", "--set", "mesh.j=12", "--set", "flow.incidence=2", *PLAINLY, "--quiet")
PROBES = ("--set", "probes.wake=[1.3, 0.05]", "--set", 'probes."over it"={at=[0.4, 0.5], fields=["mach", "velocity"]}')
INTEGRALS = ("--set", "integrals.mass=density", "--set", 'integrals.push={of="pressure", over="wall", normal=true}')


def airfoil(*settings: str) -> Airfoil:
    ml.use("numpy")
    given = ("mesh.i=8", "mesh.j=12", "flow.incidence=2", *settings)
    return Airfoil(build(Airfoil.Config, [parse_set(one) for one in given]))


def test_rows_are_those_of_the_fields(meshloom: Command, tmp_path: Path) -> None:
    assert meshloom(*SMALL, *PROBES, *INTEGRALS, "--iterations", "25", "--out", "a").code == 0
    probes, integrals = table(tmp_path / "a/probes.csv"), table(tmp_path / "a/integrals.csv")
    assert probes["iteration"].tolist() == integrals["iteration"].tolist() == [10, 20, 25]
    case = airfoil()
    mesh, place = case.mesh, np.array([1.3, 0.05])
    corners = mesh.coordinates.numpy()[mesh.cell_nodes.indices]
    side, out = np.roll(corners, -1, axis=1) - corners, place - corners  # counter-clockwise: inside is to the left
    (cell,) = np.flatnonzero((side[..., 0] * out[..., 1] - side[..., 1] * out[..., 0] > 0.0).all(axis=1))
    for row, count in enumerate((10, 10, 5)):
        case.program.run(count)
        fields = case.cell_fields()
        assert probes["wake.mach"][row] == fields["mach"][cell] and probes["wake.cp"][row] == fields["cp"][cell]
        assert integrals["mass"][row] == pytest.approx(mesh.cell_volumes @ fields["density"], rel=1e-12)
        wall = mesh.group("wall")
        push = fields["pressure"][mesh.boundary_cells.indices[wall, 0]] @ mesh.boundary_normals[wall]
        np.testing.assert_allclose([integrals["push[0]"][row], integrals["push[1]"][row]], push, atol=1e-12)
        # lift and drag by hand: the same force across and along the stream, over dynamic pressure and chord
        angle = np.deg2rad(2.0)
        chord = np.ptp(mesh.coordinates.numpy()[mesh.boundary_nodes.indices[wall], 0])
        unit = 0.5 * case.gas.gamma * case.gas.mach**2 * chord
        lift = (push[1] * np.cos(angle) - push[0] * np.sin(angle)) / unit
        drag = (push[0] * np.cos(angle) + push[1] * np.sin(angle)) / unit
        assert integrals["lift"][row] == pytest.approx(lift, abs=1e-10)
        assert integrals["drag"][row] == pytest.approx(drag, abs=1e-10)
    assert [name for name in probes if name.startswith("over it")] == [
        "over it.mach", "over it.velocity[0]", "over it.velocity[1]"]  # fmt: skip


def test_lift_drag_and_cp_without_being_asked(meshloom: Command, tmp_path: Path) -> None:
    assert meshloom(*SMALL, "--iterations", "30", "--out", "a").code == 0
    assert table(tmp_path / "a/integrals.csv")["iteration"].tolist() == [30]
    assert not (tmp_path / "a/probes.csv").exists()
    curves, case = table(tmp_path / "a/chart_cp.csv"), airfoil()
    case.program.run(30)
    pressure = case.cell_fields()["pressure"][case.mesh.boundary_cells.indices[case.mesh.group("wall"), 0]]
    expected = (pressure - 1.0) / (0.5 * case.gas.gamma * case.gas.mach**2)
    found = np.where(np.isnan(curves["above"]), curves["below"], curves["above"])
    np.testing.assert_allclose(np.sort(found), np.sort(expected), atol=1e-12)
    assert np.nanmean(curves["above"]) < np.nanmean(curves["below"])  # which is what lifts it


def test_the_chord_is_that_of_the_mesh() -> None:
    """An airfoil of chord 2 somewhere else has the same coefficients over the same parts of its chord."""
    usual, large = airfoil(), airfoil()
    large.mesh.coordinates.assign(2.0 * large.mesh.coordinates.numpy() + [8.0, 4.0])
    for case in (usual, large):
        case.program.run(30)
    (one,), (other,) = usual.charts({}), large.charts({})
    np.testing.assert_allclose(one.x, other.x, atol=1e-12)
    assert other.x.min() > 0.0 and other.x.max() < 1.0 and one.downwards
    np.testing.assert_allclose(one.curves["above"], other.curves["above"], atol=1e-9)
    assert usual.coefficients() == pytest.approx(large.coefficients(), rel=1e-9)


def test_a_restart_goes_on_with_the_rows(meshloom: Command, tmp_path: Path) -> None:
    words = (*SMALL, *PROBES, *INTEGRALS, "--set", 'output.surface=["wall"]', "--set", "output.every=10")
    assert meshloom(*words, "--iterations", "40", "--out", "whole").code == 0
    assert meshloom(*words, "--iterations", "20", "--out", "half").code == 0
    with (tmp_path / "half/probes.csv").open("a") as file:
        file.write("30,1.0\n40,2")  # what a run that was killed had got to after its checkpoint
    assert meshloom("run", "--restart", "half", "--iterations", "40", "--quiet").code == 0
    assert meshloom("run", "--restart", "half", "--quiet").code == 0  # at its end: its files are made again
    for name in ("probes.csv", "integrals.csv"):
        assert (tmp_path / "half" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    for name in ("half", "whole"):
        entries = Series.resume(tmp_path / name / "surface.pvd").entries
        assert [time for time, _ in entries] == [10, 20, 30, 40] and all(
            (tmp_path / name / f).exists() for _, f in entries
        )
    assert meshloom("run", "--restart", "half", "--iterations", "45", "--quiet").code == 0
    assert meshloom("run", "--restart", "half", "--quiet").code == 0
    assert table(tmp_path / "half/probes.csv")["iteration"].tolist() == [10, 20, 30, 40, 45]
    assert meshloom("run", "--restart", "half", "--iterations", "50", "--quiet").code == 0
    assert table(tmp_path / "half/probes.csv")["iteration"].tolist() == [10, 20, 30, 40, 50]  # 45 is no end any more
    before = files_below(tmp_path / "half")
    other = meshloom("run", "--restart", "half", "--iterations", "60", "--set", "probes.more=[0, 1]", "--quiet")
    other.refused(2, "half/probes.csv: the run that is continued has other columns (more.cp, more.density")
    assert files_below(tmp_path / "half") == before


def test_lines_and_surfaces(meshloom: Command, tmp_path: Path) -> None:
    meshio = pytest.importorskip("meshio")
    asked = ('lines.across={from=[0.5, -1], to=[0.5, 1], points=21, fields=["mach"]}', 'output.surface=["wall"]')
    words = [word for one in asked for word in ("--set", one)]
    assert meshloom(*SMALL, *words, "--iterations", "10", "--out", "a").code == 0
    line = table(tmp_path / "a/chart_across.csv")
    assert line["distance"].tolist() == np.linspace(0.0, 2.0, 21).tolist()
    assert np.isnan(line["mach"][10]) and not np.isnan(line["mach"][[0, 1, 19, 20]]).any()  # the middle is in the body
    case = airfoil()
    case.program.run(10)
    faces = meshio.read(tmp_path / "a/surface_0000010.vtu")
    cells, wall = case.mesh.boundary_cells.indices[:, 0], case.mesh.group("wall")
    assert faces.cells[0].type == "line" and len(faces.cells[0].data) == len(wall)
    np.testing.assert_array_equal(faces.cell_data["cp"][0], case.cell_fields()["cp"][cells[wall]])
    ends = faces.points[faces.cells[0].data][:, :, :2]
    np.testing.assert_array_equal(ends, case.mesh.coordinates.numpy()[case.mesh.boundary_nodes.indices[wall]])


@pytest.mark.parametrize("relative", [False, True])
def test_the_end_at_a_residual(relative: bool, meshloom: Command, tmp_path: Path) -> None:
    assert meshloom(*SMALL, "--iterations", "100", "--out", "long").code == 0
    rms = table(tmp_path / "long/monitors.csv")["rms"]
    below = float(rms[54] / (rms[0] if relative else 1.0))
    first = next(k for k in range(10, 101, 10) if rms[k - 1] < rms[54])
    assert 0 < first < 100
    words = ("--set", f"run.stop={{monitor='rms', below={below!r}, relative={str(relative).lower()}}}")
    result = meshloom(*SMALL[:-1], *words, "--iterations", "100", "--out", "a")
    assert result.code == 0 and f"ended after iteration {first}: rms is" in result.out + result.err
    assert table(tmp_path / "a/monitors.csv")["rms"].tolist() == rms[:first].tolist()
    again = meshloom("run", "--restart", "a", "--quiet", "--json")
    assert again.code == 0 and again.json["iterations"] == first  # it has come to its end
    assert meshloom("run", "--restart", "a", "--set", f"run.stop.below={below / 1e6!r}", "--quiet").code == 0
    assert table(tmp_path / "a/monitors.csv")["rms"].tolist() == rms.tolist()


MISUSE = {
    "lines.cp={from=[-1, 0.5], to=[2, 0.5]}": ("lines.cp: airfoil has a chart of that name; take another",),
    "probes.w=[0.5, 0.0]": ("probes.w at (0.5, 0) lies in no cell; the nearest one, ", "has its middle at ("),
    "probes.w=[1, 2, 3]": ("probes.w is at [1.0, 2.0, 3.0]; a place here is [x, y]",),
    "probes.w={at=[0, 2], fields=['mahc']}": ("probes.w names the field 'mahc'; did you mean 'mach'?",),
    "probes.w=three": ("probes.w is 'three'; a place is [x, y]",),
    "probes.w={place=[1, 2]}": ("probes.w has the unknown key 'place'",),
    "integrals.a=presure": ("integrals.a names the field 'presure'; did you mean 'pressure'?",),
    "integrals.a={of='pressure', over='wal'}": ("integrals.a is over 'wal'; did you mean 'wall'?",),
    "integrals.a={of='velocity', over='wall', normal=true}": ("normal = true is for a field of one number",),
    "integrals.lift=pressure": ("integrals.lift: the case has a coefficient of that name",),
    "output.surface=['wing']": ("surface names 'wing', which is no boundary group", "wall, farfield"),
    "run.stop.monitor=rsm": ("run.stop.monitor names 'rsm'", "rms"),
    **{f"run.stop.{one}": (f"run.stop.{one.partition('=')[0]}: nothing says which monitor ends the run; give"
                           " run.stop.monitor, one of rms",) for one in ("below=1e-2", "relative=true", "every=5")},
    "run.stop.monitor=rms": ("run.stop.below: give the number above 0 below which rms ends the run",),
    "lines.a={from=[0, 0]}": ("lines.a has no to",),
    "lines.a={from=[900, 0], to=[901, 0]}": ("lines.a from [900.0, 0.0] to [901.0, 0.0] meets no cell",),
    "lines.a={from=[0, 1], to=[1, 1], points=1}": ("lines.a has points 1; it must be a whole number from 2",),
}


@pytest.mark.parametrize("setting", MISUSE)
def test_misuse_is_refused_before_the_run(setting: str, meshloom: Command, tmp_path: Path) -> None:
    meshloom(*SMALL, "--iterations", "3", "--set", setting, "--out", "a").refused(2, *MISUSE[setting])
    assert not (tmp_path / "a").exists()


def test_a_case_on_a_grid(meshloom: Command, tmp_path: Path) -> None:
    words = ("run", "cavity2d", "--set", "mesh.cells=[12, 12]", *PLAINLY, "--quiet", "--iterations", "20")
    asked = ("probes.middle={at=[0.5, 0.5], fields=['pressure']}", "integrals.total=pressure")
    settings = [word for one in asked for word in ("--set", one)]
    result = meshloom(*words, *settings, "--out", "a")
    assert result.code == 0, result.err
    rows = table(tmp_path / "a/probes.csv")
    assert rows["iteration"].tolist() == [10, 20] and (np.diff(rows["time"]) > 0.0).all()
    assert np.isfinite(rows["middle.pressure"]).all()
    meshloom(*words, "--set", "probes.p=[2, 0.5]", "--out", "b").refused(2, "lies beyond the grid, whose x goes from")
    meshloom(*words, "--set", "output.surface=['lid']", "--out", "b").refused(2, "no boundary group; a grid has none")


@pytest.mark.slow
def test_a_mesh_that_moves(meshloom: Command, tmp_path: Path) -> None:
    """Cells and volumes are those of now: mass stays, and a probe sees other cells pass by."""
    words = ("run", "lulesh", "--set", "mesh.size=4", *PLAINLY, "--quiet", "--iterations", "60", "--out", "a")
    asked = ("probes.p={at=[0.3, 0.3, 0.3], fields=['density', 'velocity']}", "integrals.mass=density")
    result = meshloom(*words, *[word for one in asked for word in ("--set", one)])
    assert result.code == 0, result.err
    mass, seen = table(tmp_path / "a/integrals.csv")["mass"], table(tmp_path / "a/probes.csv")
    np.testing.assert_allclose(mass, 1.125**3, rtol=1e-10)
    assert np.isfinite(seen["p.density"]).all() and seen["p.density"][-1] != 1.0 and seen["p.velocity[0]"][-1] > 0.0
