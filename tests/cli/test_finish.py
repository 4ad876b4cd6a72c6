"""``meshloom finish``, and restarts of runs that were killed: what their checkpoint should have had is made."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from meshloom.io import checkpoint as checkpoints
from meshloom.run.stop import StopRequest
from tests.cli.harness import Command, results_below

MESH = ("--set", "mesh.i=6", "--set", "mesh.j=4", "--backend", "numpy", "--set", "output.plot=false", "--quiet")
OUTPUT = ("--set", "output.every=4", "--set", "output.checkpoint_every=6")


@pytest.fixture
def done(meshloom: Command, tmp_path: Path) -> dict[str, bytes]:
    """A run of 12 iterations in the folder ``a``: all its files."""
    assert meshloom("run", "airfoil", *MESH, *OUTPUT, "--iterations", "12", "--out", "a").code == 0
    return results_below(tmp_path / "a")


def test_a_finished_run_is_finished_again(meshloom: Command, tmp_path: Path, done: dict[str, bytes]):
    for name in ("fields_0000012.vtu", "monitors.csv", "run.toml"):
        (tmp_path / "a" / name).unlink()
    result = meshloom("finish", "a", "--json")
    assert result.code == 0, result.err
    assert result.json["finished"] and result.json["iterations"] == 12 and result.json["seconds_per_iteration"] is None
    assert "no iteration, files are made again from a/checkpoint.h5, iteration 12" in result.err
    assert "without an iteration" in result.err
    assert results_below(tmp_path / "a") == done
    quiet = meshloom("finish", "a/checkpoint.h5", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "") and results_below(tmp_path / "a") == done


def test_pictures_and_charts_are_drawn_again(meshloom: Command, tmp_path: Path):
    small = ("--set", "mesh.points=16", "--iterations", "3", "--backend", "numpy", "--quiet", "--out", "a")
    assert meshloom("run", "advection1d", *small).code == 0
    before = results_below(tmp_path / "a")
    drawn = [name for name in before if name.startswith(("picture", "chart"))]
    assert len(drawn) == 5
    for name in drawn:
        (tmp_path / "a" / name).unlink()
    assert meshloom("finish", "a", "--quiet").code == 0
    assert results_below(tmp_path / "a") == before


def test_a_run_that_is_not_at_its_end(meshloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fields of its checkpoint's iteration are added; what it wrote later stays until it goes on, and goes then."""
    real = checkpoints.save
    with monkeypatch.context() as patched:  # killed after the fields of iteration 28, with a checkpoint of iteration 18
        patched.setattr(checkpoints, "save", lambda path, one: real(path, one) if one.iteration <= 18 else None)
        assert meshloom("run", "airfoil", *MESH, *OUTPUT, "--iterations", "28", "--out", "a").code == 0
    before = results_below(tmp_path / "a")
    result = meshloom("finish", "a", "--quiet")
    assert result.code == 0
    assert result.err == "meshloom: not at its end: iteration 18; go on with: meshloom run --restart a/checkpoint.h5\n"
    after = results_below(tmp_path / "a")
    assert {*after} - {*before} == {"fields_0000018.vtu"}
    assert {name for name in before if before[name] != after[name]} == {"fields.pvd", "chart_cp.csv"}
    assert after["fields.pvd"].count(b"<DataSet") == before["fields.pvd"].count(b"<DataSet") + 1
    assert meshloom("run", "--restart", "a/checkpoint.h5", "--iterations", "19", "--quiet").code == 0
    left = {name for name in results_below(tmp_path / "a") if name.startswith("fields_")}
    assert left == {f"fields_{n:07d}.vtu" for n in (4, 8, 12, 16, 18, 19)}
    assert (tmp_path / "a" / "fields.pvd").read_text().count("<DataSet") == len(left)


@pytest.mark.slow
def test_a_run_stopped_before_its_first_iteration(meshloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing has happened yet, which is no reason to fail."""
    with monkeypatch.context() as patched:
        patched.setattr(StopRequest, "__enter__", lambda self: self._on_signal(signal.SIGINT, None) or self)
        assert meshloom("run", "advection1d", "--set", "mesh.points=16", "--out", "a", "--quiet").code == 130
    result = meshloom("finish", "a", "--quiet")
    assert result.code == 0 and "not at its end: iteration 0" in result.err, result.err
    assert (tmp_path / "a" / "picture.png").exists() and (tmp_path / "a" / "fields_0000000.vti").exists()


def test_fields_lost_with_a_checkpoint_are_made_by_a_restart(meshloom: Command, tmp_path: Path, done: dict[str, bytes]):
    """Killed between the checkpoint and its fields; and between these and the list of them."""
    assert meshloom("run", "airfoil", *MESH, *OUTPUT, "--iterations", "24", "--out", "b").code == 0
    wanted = results_below(tmp_path / "b")
    (tmp_path / "a" / "fields_0000012.vtu").unlink()
    (tmp_path / "a" / "fields.pvd").write_bytes(done["fields.pvd"].replace(b"fields_0000012", b"fields_none"))
    assert meshloom("run", "--restart", "a/checkpoint.h5", "--iterations", "24", "--quiet").code == 0
    assert results_below(tmp_path / "a") == wanted


def test_a_restart_elsewhere_takes_no_list_of_another_run(meshloom: Command, tmp_path: Path, done: dict[str, bytes]):
    assert meshloom("run", "airfoil", *MESH, "--iterations", "3", "--out", "b").code == 0
    going_on = ("--restart", "a/checkpoint.h5", "--iterations", "14", "--out", "b", "--overwrite", "--quiet")
    assert meshloom("run", *going_on).code == 0
    assert "fields_0000003" not in (tmp_path / "b" / "fields.pvd").read_text()


def test_a_run_ended_early_is_at_its_end(meshloom: Command, done: dict[str, bytes]):
    """What was the middle of a run is the end of one with fewer iterations, and the checkpoint says so."""
    going_on = ("run", "--restart", "a/checkpoint.h5", "--quiet", "--iterations")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StopRequest, "__enter__", lambda self: self._on_signal(signal.SIGINT, None) or self)
        assert meshloom(*going_on, "40").code == 130
    assert meshloom("finish", "a", "--json", "--quiet").json["finished"] is False
    assert meshloom(*going_on, "12").code == 0
    assert meshloom("finish", "a", "--json", "--quiet").json["finished"] is True


def test_what_cannot_be_finished(meshloom: Command, tmp_path: Path):
    for name in ("empty", "torn", "a"):
        (tmp_path / name).mkdir()
    (tmp_path / "torn" / "checkpoint.h5").write_text("no")
    (tmp_path / "a" / "monitors.csv").write_text("iteration,rms\n")
    before = results_below(tmp_path)
    for run, part in {
        "none": "none: no such folder; give the folder of a run or its checkpoint.h5",
        "none/checkpoint.h5": "none/checkpoint.h5: no such checkpoint file",
        "empty": "empty/checkpoint.h5: no such checkpoint file",
        "a/monitors.csv": "a/monitors.csv: not a run; give its folder or its checkpoint.h5",
        "torn": "torn/checkpoint.h5: not a checkpoint",
    }.items():
        meshloom("finish", run).refused(2, part)
        assert results_below(tmp_path) == before


def test_a_run_that_fails_before_its_first_checkpoint_replaces_nothing(
    meshloom: Command, tmp_path: Path, done: dict[str, bytes]
):
    unstable = ("--set", "flow.cfl=1000", "--iterations", "50", "--out", "a", "--overwrite", "--set", "mesh.i=12")
    failed = meshloom("run", "airfoil", *MESH, *unstable)
    warned = "flow.cfl = 1000 is longer"
    failed.refused(1, "no checkpoint had been written yet, a holds the run of before", warned=warned)
    assert results_below(tmp_path / "a") == done


def test_a_run_that_failed_before_its_first_checkpoint_does_not_block(meshloom: Command, tmp_path: Path):
    run = ("run", "airfoil", *MESH, "--set", "mesh.i=12", "--iterations", "50", "--out", "a")
    failed = meshloom(*run, "--set", "flow.cfl=1000")
    failed.refused(1, "no checkpoint had been written yet", warned="flow.cfl = 1000 is longer")
    assert (tmp_path / "a" / "monitors.csv").exists(), "for a person to look at"
    assert meshloom(*run).code == 0


def test_a_steady_run_ends_with_a_verdict(meshloom: Command, tmp_path: Path):
    small = ("--set", "mesh.i=6", "--set", "mesh.j=4", "--backend", "numpy", "--set", "output.plot=false")
    told = meshloom("run", "airfoil", *small, "--iterations", "4", "--out", "a", "--json", "--quiet").json
    assert told["finished"] and told["converged"] is False and "4 iterations are too few" in told["verdict"]
    stop = ("--set", "run.stop.monitor=rms", "--set", "run.stop.below=1", "--set", "run.stop.every=1")
    done = meshloom("run", "airfoil", *small, *stop, "--iterations", "4", "--out", "b", "--set", "flow.cfl=1.5")
    assert "  verdict " in done.out and "converged: rms is" in done.out, done.out
    words = "flow.cfl = 1.5 is longer than what is known to be stable, which is 1"
    assert f"\nwarning: {words}\n" in done.out and re.search(rf"\n  warning +{words}\n", done.out), done.out
    assert re.search(rf">warning<.*?>{words}<", (tmp_path / "b" / "report.html").read_text(), re.DOTALL)
    quiet = ("--iterations", "1", "--set", "flow.cfl=1.5", "--quiet")
    assert meshloom("run", "airfoil", *small, *quiet, "--out", "c").err == f"meshloom: warning: {words}\n"
    assert meshloom("run", "airfoil", *small, *quiet, "--out", "d", "--json").json["warnings"] == [words]
    assert told["warnings"] == []
    assert "converged: rms is" in (tmp_path / "b" / "report.html").read_text()
