"""Running a case from the command line: what comes out, and where."""

from __future__ import annotations

import csv
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import h5py
import numpy as np
import pytest

import meshloom as ml
from bench.airfoil import shuffled
from meshloom.cli.main import app
from meshloom.errors import CompilerError
from tests.cli.harness import Command

SMALL = ("--set", "mesh.i=6", "--set", "mesh.j=4", "--backend", "numpy", "--iterations", "12")


PAGE = ("report.html", "report.json")


def rows(path: Path) -> list[list[str]]:
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_the_command_of_the_manual(meshloom: Command):
    result = meshloom("run", "airfoil", "--set", "mesh.i=33", "--set", "mesh.j=47", "--iterations", "200", "--json")
    assert result.code == 0, result.err
    found = result.json
    assert found["case"] == "airfoil" and found["iterations"] == 200
    sizes = {"nodes": 100 * 48, "cells": 99 * 47, "faces": 98 * 47 + 99 * 46 + 33, "boundary_faces": 226}
    assert found["sizes"] == sizes
    assert 0.0 < found["monitors"]["rms"] < 1e-3
    assert found["wall_seconds"] > 0.0 and found["seconds_per_iteration"] > 0.0
    assert set(found["schedules"]) == {"save_soln", "adt_calc", "res_calc", "bres_calc", "update"}
    assert found["precision"] == "double" and found["threads"] >= 1 and found["backend"] in ("cuda", "cpu", "numpy")
    assert len(result.out.splitlines()) == 1, "stdout is the JSON line alone"
    assert "iteration 200/200" in result.err


AND_WHAT_IT_IMPORTED = """
import sys
from meshloom.cli.main import main
try:
    main()
finally:
    print(*sorted(sys.modules))
"""


def test_until_the_first_iteration_nothing_is_imported_that_is_not_needed(tmp_path: Path):
    """Libraries, drivers and other cases would take longer than the iteration: a person waits."""
    bare = ("--set", "output.vtu=false", "--set", "output.plot=false", "--quiet", "--iterations", "1")
    words = [sys.executable, "-c", AND_WHAT_IT_IMPORTED, "run", "airfoil", *SMALL[:-2], *bare]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    cases = {name.split(".")[2] for name in loaded if name.startswith("meshloom.solvers.")}
    assert {"airfoil"} <= cases <= {"airfoil", "stable"}
    heavy = {"scipy", "cupy", "matplotlib", "meshio", "pyvista", "pydantic", "numpy.ma"}
    assert not {*loaded, *(name.partition(".")[0] for name in loaded)} & heavy


def test_everything_is_written(meshloom: Command, tmp_path: Path):
    result = meshloom("run", "airfoil", *SMALL, "--set", "output.every=5")
    assert result.code == 0, result.err
    folder = tmp_path / "runs" / "airfoil-001"
    names = {path.name for path in folder.iterdir()}
    vtu = {f"fields_{n:07d}.vtu" for n in (5, 10, 12)}
    own = {"run.toml", "monitors.csv", "checkpoint.h5", "fields.pvd", "picture.png", "integrals.csv", *PAGE}
    assert names == own | {"chart_cp.csv", "chart_cp.png"} | vtu
    table = rows(folder / "monitors.csv")
    assert table[0] == ["iteration", "rms"] and [int(row[0]) for row in table[1:]] == list(range(1, 13))
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "fields.pvd").read_text().count("<DataSet") == 3
    assert tomllib.loads((folder / "run.toml").read_text())["run"]["iterations"] == 12
    for name in ("picture.png", "fields.pvd", "monitors.csv", "checkpoint.h5", "rms"):
        assert name in result.out


def test_fields_are_in_the_users_numbering(meshloom: Command, tmp_path: Path):
    meshio = pytest.importorskip("meshio")
    for name, order in (("a", "given"), ("b", "random")):
        result = meshloom("run", "airfoil", *SMALL, "--out", name, "--set", f"mesh.order={order}")
        assert result.code == 0, result.err
    first, second = (meshio.read(tmp_path / name / "fields_0000012.vtu") for name in "ab")
    np.testing.assert_array_equal(first.points, second.points)
    np.testing.assert_array_equal(first.cells[0].data, second.cells[0].data)
    assert {"mach", "pressure", "density", "velocity", "q"} <= set(first.cell_data)
    for field in ("mach", "pressure", "density", "q"):
        np.testing.assert_allclose(first.cell_data[field][0], second.cell_data[field][0], rtol=1e-11, atol=1e-13)
    with h5py.File(tmp_path / "a" / "checkpoint.h5") as one, h5py.File(tmp_path / "b" / "checkpoint.h5") as other:
        np.testing.assert_allclose(one["state/q"][...], other["state/q"][...], rtol=1e-11, atol=1e-13)
        assert one.attrs["mesh"] == other.attrs["mesh"]


def test_the_numbering_is_told(meshloom: Command, tmp_path: Path):
    ml.write(tmp_path / "shuffled.dat", shuffled(ml.generate.naca0012(60, 50)))
    bare = ("--backend", "numpy", "--iterations", "1", "--set", "output.vtu=false", "--set", "output.plot=false")
    shown = meshloom("run", "airfoil", *bare, "--set", "mesh.file=shuffled.dat")
    assert shown.code == 0, shown.err
    [line] = [line.split(maxsplit=1) for line in shown.out.splitlines() if line.startswith("  numbering")]
    assert line[1].startswith("renumbered by hilbert: blocks of 1024 faces load ")
    found = meshloom("run", "airfoil", *SMALL, "--set", "output.plot=false", "--quiet", "--json").json["numbering"]
    assert found == "as given: all 72 cells together load no more memory than they need"


def test_numbers_of_runs_count_up(meshloom: Command, tmp_path: Path):
    for _ in range(2):
        assert meshloom("run", "airfoil", *SMALL, "--quiet", "--set", "output.plot=false").code == 0
    assert sorted(os.listdir(tmp_path / "runs")) == ["airfoil-001", "airfoil-002"]


def test_quiet_says_nothing(meshloom: Command):
    result = meshloom("run", "airfoil", *SMALL, "--quiet", "--set", "output.plot=false")
    assert (result.code, result.out, result.err) == (0, "", "")
    with_json = meshloom("run", "airfoil", *SMALL, "--quiet", "--json", "--set", "output.plot=false")
    assert with_json.err == "" and with_json.json["iterations"] == 12


def test_shown_configuration_runs(meshloom: Command, tmp_path: Path):
    shown = meshloom("show", "airfoil", "--set", "mesh.i=6", "--set", "mesh.j=4", "--set", "schedule.res_calc=owner")
    assert shown.code == 0 and tomllib.loads(shown.out)["case"] == "airfoil"
    (tmp_path / "mine.toml").write_text(shown.out)
    result = meshloom("run", "mine.toml", "--backend", "numpy", "--iterations", "3", "--json")
    assert result.code == 0, result.err
    assert result.json["sizes"]["cells"] == 72 and "owner" in result.json["schedules"]["res_calc"]
    again = meshloom("show", "mine.toml")
    assert again.out == shown.out


def test_schedules_from_the_configuration(meshloom: Command, tmp_path: Path):
    (tmp_path / "mine.toml").write_text(
        'case = "airfoil"\n[mesh]\ni = 6\nj = 4\n[schedule]\ndefault = "owner"\n'
        'res_calc = {strategy = "color", block = 64}\nadt_calc = {registers = 64}\n[output]\nplot = false\n'
    )
    result = meshloom("run", "mine.toml", "--backend", "numpy", "--iterations", "2", "--json")
    assert result.code == 0, result.err
    schedules = result.json["schedules"]
    assert schedules["res_calc"].startswith("color") and "64" in schedules["res_calc"]
    assert schedules["bres_calc"].startswith("owner")
    assert "registers=64" in schedules["adt_calc"]
    assert not schedules["save_soln"].startswith("owner"), "a loop without races has no use for it"


@pytest.mark.slow
def test_single_precision(meshloom: Command, tmp_path: Path):
    result = meshloom("run", "airfoil", *SMALL, "--precision", "single", "--json", "--out", "single")
    double = meshloom("run", "airfoil", *SMALL, "--json", "--out", "double")
    assert result.json["precision"] == "single"
    assert result.json["monitors"]["rms"] == pytest.approx(double.json["monitors"]["rms"], rel=1e-3)
    with h5py.File(tmp_path / "single" / "checkpoint.h5") as file:
        assert file["state/q"].dtype == np.float32


def test_without_matplotlib_the_run_succeeds(meshloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = importlib.__import__

    def without(name: str, *others: object, **more: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *others, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("builtins.__import__", without)
    result = meshloom("run", "airfoil", *SMALL, "--out", "plain")
    assert result.code == 0, result.err
    assert "no picture: matplotlib is not installed; pip install '.[plot]'" in result.out
    assert not (tmp_path / "plain" / "picture.png").exists()


def test_a_mesh_file_with_its_own_group_names(meshloom: Command, tmp_path: Path):
    pytest.importorskip("meshio")
    mesh = ml.generate.box((6, 5))
    ml.write(tmp_path / "box.su2", mesh)
    names = list(mesh.groups)
    (tmp_path / "box.toml").write_text(
        f'case = "airfoil"\n[mesh]\nfile = "box.su2"\nwalls = []\nfarfield = {json.dumps(names)}\n'
    )
    result = meshloom("run", "box.toml", "--backend", "numpy", "--iterations", "3", "--json")
    assert result.code == 0, result.err
    assert result.json["sizes"]["cells"] == 30
    assert result.json["monitors"]["rms"] < 1e-14, "a free stream stays a free stream"
    refused = meshloom("run", "box.toml", "--backend", "numpy", "--set", "mesh.farfield=inlet")
    refused.refused(2, "mesh.farfield names 'inlet', which is no boundary group of the mesh; allowed:", names[0])
    refused = meshloom("run", "box.toml", "--backend", "numpy", "--set", f"mesh.walls={names[0]}a")
    refused.refused(2, f"mesh.walls names '{names[0]}a'", f"did you mean '{names[0]}'?")
    refused = meshloom("run", "box.toml", "--backend", "numpy", "--set", f"mesh.farfield={names[0]}")
    refused.refused(2, "boundary faces are neither", "mesh.walls or mesh.farfield", names[1])


def test_cases_version_info_and_help(meshloom: Command):
    assert "airfoil" in meshloom("cases").out
    assert meshloom("--version").out.startswith("meshloom 0.")
    info = meshloom("info")
    assert info.code == 0
    for word in ("python", "machine", "compiler", "nvrtc", "numpy: available", "cpu:", "cuda:", "bandwidth"):
        assert word in info.out
    assert info.out.count("run takes this one") == 1
    help_text = meshloom("run", "--help").out
    for word in ("--restart", "--set", "--json", "--overwrite", "meshloom show airfoil"):
        assert word in help_text
    for command in ((), ("run",), ("show",), ("partition",), ("info",), ("cases",)):
        assert "<bool>" not in meshloom(*command, "--help").out


def test_examples_of_the_help_are_shown_word_for_word(meshloom: Command):
    """Also words in brackets, which are markup elsewhere."""
    for command in app.registered_commands:
        assert command.callback is not None
        shown = meshloom(command.name or command.callback.__name__, "--help").out
        assert not set((command.epilog or "").replace("\\[", "[").split()) - set(shown.split()), shown
    assert "[study]" in meshloom("study", "--help").out


def test_info_without_compilers(meshloom: Command, monkeypatch: pytest.MonkeyPatch):
    def missing(*_: object) -> str:
        raise CompilerError("none here")

    for name in ("host_compiler", "nvrtc.version", "copy_bandwidth"):
        monkeypatch.setattr(f"meshloom.cli.info.{name}", missing)
    info = meshloom("info")
    assert info.code == 0, info.err
    for line in ("compiler   none: none here", "nvrtc      not installed", "bandwidth  not measured"):
        assert line in info.out


def test_info_names_the_gpu(meshloom: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("meshloom.cli.info.copy_bandwidth", lambda: 4.2e10)
    monkeypatch.setattr("meshloom.cli.info.gpu_names", lambda: ["Model A", "Model B"])
    monkeypatch.setattr(ml, "backends", lambda ask=True: {"numpy": None, "cpu": None, "cuda": None})
    out = meshloom("info").out
    assert "gpu        Model A, Model B\n" in out and "cuda: available (run takes this one)" in out
    assert "42.0 GB/s copy" in out


def _seconds(span: str) -> float:
    """``"1 h 29 min"``, ``"2 min 31 s"`` or ``"0.4 s"`` in seconds."""
    parts = {unit: float(number) for number, unit in re.findall(r"(\S+) (h|min|s)\b", span)}
    return 3600 * parts.get("h", 0.0) + 60 * parts.get("min", 0.0) + parts.get("s", 0.0)


def test_the_start_and_the_end_in_words(meshloom: Command):
    small = ("run", "airfoil", "--set", "mesh.i=20", "--set", "mesh.j=30", "--set", "output.plot=false")
    on_numpy = meshloom(*small, "--backend", "numpy", "--iterations", "2")
    assert "airfoil: 1,800 cells, 3,530 faces; back end numpy, double precision;" in on_numpy.out
    span = r"(\S+ h \S+ min|\S+ min \S+ s|\S+ s)"  # from the start of the process, which here is that of all tests
    parts = re.search(
        rf"time +{span}: {span} until the first iteration .*, {span} iterating, {span} writing\n", on_numpy.out
    )
    assert parts, on_numpy.out
    whole, *pieces = map(_seconds, parts.groups())
    assert sum(pieces) == pytest.approx(whole, rel=0.1)
    rates = re.findall(r"\S+ iterations/s, \S+ M cells/s", on_numpy.out)
    assert len(rates) == 2 and rates[0] == rates[1], "the last line of progress, and the summary"
    alone = meshloom(*small, "--backend", "numpy", "--iterations", "1", "--json")
    assert "iterations/s" not in alone.err and alone.json["seconds_per_iteration"] is None, "there was no second one"
    if ml.backends()["cpu"] is None:
        one = meshloom(*small, "--backend", "cpu", "--threads", "1", "--iterations", "2")
        assert "; back end cpu, 1 thread, double precision;" in one.out


def test_a_back_end_that_is_not_there(meshloom: Command, tmp_path: Path):
    reason = ml.backends()["cuda"]
    if reason is None:
        pytest.skip("this machine has a GPU")
    meshloom("run", "airfoil", "--backend", "cuda").refused(2, f"back end 'cuda' cannot be used here: {reason}")
    assert not list(tmp_path.rglob("run.toml"))
    meshloom("run", "airfoil", "--backend", "gpu").refused(2, "--backend gpu", "one of auto, numpy, cpu, cuda")


def test_the_version_needs_no_metadata(meshloom: Command, monkeypatch: pytest.MonkeyPatch):
    """A checkout that is not installed has none."""

    def none(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    assert meshloom("--version").out == f"meshloom {ml.__version__}\n"
    assert meshloom("info").out.startswith(f"meshloom   {ml.__version__}\n")


@pytest.mark.slow
def test_python_dash_m(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "meshloom", "run", "airfoil", *SMALL, "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["iterations"] == 12


def test_light_commands_do_not_load_heavy_packages():
    heavy = ("matplotlib", "h5py", "jinja2", "meshio", "numba")
    script = f"import sys, meshloom.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_emulated_gpu_can_be_asked_for(meshloom: Command):
    result = meshloom("run", "advection1d", "--backend", "emulated", "--iterations", "2", "--json",
                      "--set", "output.plot=false")  # fmt: skip
    assert result.code == 0 and result.json["backend"] == "emulated"


def test_list_is_what_people_try_first(meshloom: Command):
    assert meshloom("list").out == meshloom("cases").out != ""


def test_what_breaks_down_or_is_refused_prints_no_json(meshloom: Command):
    """Whoever reads stdout finds an object of a run that came to something, or nothing."""
    words = ("run", "airfoil", "--set", "mesh.i=4", "--set", "mesh.j=6", "--backend", "numpy", "--quiet", "--json")
    broken = meshloom(*words, "--set", "flow.cfl=400", "--iterations", "50")
    broken.refused(1, "the solution broke down", warned="flow.cfl")
    refused = meshloom(*words, "--set", "flow.cfl=-1")
    refused.refused(2, "flow.cfl must be")
    assert broken.out == refused.out == ""
