"""Stopping and going on: the same bits as without a stop."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import meshloom as ml
from tests import nursery
from tests.cli.harness import Command, files_below

MESH = ("--set", "mesh.i=12", "--set", "mesh.j=9", "--set", "output.plot=false", "--quiet")


def state(path: Path) -> bytes:
    with h5py.File(path) as file:
        values: np.ndarray = file["state/q"][...]
        return values.tobytes()


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("order", ["given", "rcm"])
def test_a_restarted_run_equals_an_uninterrupted_one(meshloom: Command, tmp_path: Path, backend: str, order: str):
    common = ("airfoil", *MESH, "--backend", backend, "--set", f"mesh.order={order}")
    assert meshloom("run", *common, "--iterations", "40", "--out", "whole").code == 0
    assert meshloom("run", *common, "--iterations", "20", "--out", "half").code == 0
    elsewhere = meshloom("run", "--restart", "half/checkpoint.h5", "--iterations", "40", "--out", "other", "--quiet")
    in_place = meshloom("run", "airfoil", "--restart", "half/checkpoint.h5", "--iterations", "40", "--quiet")
    assert (elsewhere.code, in_place.code) == (0, 0), elsewhere.err + in_place.err
    for folder in ("half", "other"):
        assert state(tmp_path / folder / "checkpoint.h5") == state(tmp_path / "whole" / "checkpoint.h5")
        assert (tmp_path / folder / "monitors.csv").read_bytes() == (tmp_path / "whole" / "monitors.csv").read_bytes()
    assert (tmp_path / "half" / "fields.pvd").read_text().count("<DataSet") == 2


@pytest.mark.parametrize(("before", "after"), [("given", "random"), ("random", "auto"), ("hilbert", "rcm")])
def test_a_restart_in_another_order_gives_the_same(meshloom: Command, tmp_path: Path, before: str, after: str):
    common = ("airfoil", *MESH, "--backend", "cpu", "--set", "mesh.order=given")
    assert meshloom("run", *common, "--iterations", "40", "--out", "whole").code == 0
    assert meshloom("run", *common, "--set", f"mesh.order={before}", "--iterations", "20", "--out", "half").code == 0
    going_on = ("--set", f"mesh.order={after}", "--iterations", "40", "--quiet")
    result = meshloom("run", "--restart", "half/checkpoint.h5", *going_on)
    assert result.code == 0, result.err
    found, whole = (np.frombuffer(state(tmp_path / name / "checkpoint.h5")) for name in ("half", "whole"))
    np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-12)
    assert not np.array_equal(found, whole), "another order of sums leaves its traces: the order was really changed"


@pytest.mark.parametrize(("step", "is_whole"), [("0.01", True), ("0.017", False)])
def test_a_run_taken_beyond_its_end(meshloom: Command, tmp_path: Path, step: str, is_whole: bool):
    """After whole steps, the fields of a run in one go bit for bit; a last step that was shortened is told of."""
    common = ("taylor_green_inc", "--set", "mesh.cells=[8,8]", "--set", f"time.dt={step}", "--set", "output.plot=false",
              "--backend", "numpy")  # fmt: skip
    assert meshloom("run", *common, "--set", "time.end=0.5", "--out", "whole", "--quiet").code == 0
    first = meshloom("run", *common, "--set", "time.end=0.3", "--out", "half")
    then = meshloom("run", "--restart", "half", "--set", "time.end=0.5")
    assert (first.code, then.code) == (0, 0)
    said = "the last step was shortened to end at time.end = 0.3: from here on steps are not those of a run to 0.5"
    assert (said in then.out) == (not is_whole) and said not in first.out
    whole, half = (h5py.File(tmp_path / name / "checkpoint.h5")["state"] for name in ("whole", "half"))
    assert all(np.array_equal(whole[name][...], half[name][...]) for name in whole) == is_whole
    again = meshloom("run", "--restart", "half", "--set", "time.end=0.6", "--iterations", "1000")
    assert again.code == 0 and ("shortened" in again.out) == (not is_whole)


#: Steps of one length that come to both ends but for rounding: computed from the size of cells; given, so that 70 and
#: 190 of them are 0.07 and 0.19; and implicit.
EVEN = {
    "plate.py": ("plate.end", (0.05, 0.1), ["plate.cells=20"]),
    "advection1d": ("time.end", (0.07, 0.19), ["mesh.points=16", "time.dt=0.001"]),
    "fv": ("time.end", (0.3, 0.7), ["mesh.along=3", "mesh.up=2", "time.mode=unsteady", "time.method=implicit",
                                    "time.dt=0.1"]),
}  # fmt: skip


@pytest.mark.parametrize("target", EVEN)
def test_whole_steps_go_on_beyond_the_end_bit_for_bit(meshloom: Command, tmp_path: Path, target: str):
    setting, (first, second), small = EVEN[target]
    if target.endswith(".py"):
        assert meshloom("new", target[:-3]).code == 0
    settings = [word for one in ("output.plot=false", "output.vtu=false", *small) for word in ("--set", one)]
    run = ("run", target, *settings, "--backend", "numpy", "--quiet")
    assert meshloom(*run, "--set", f"{setting}={second}", "--out", "whole").code == 0
    assert meshloom(*run, "--set", f"{setting}={first}", "--out", "half").code == 0
    then = meshloom("run", "--restart", "half", "--set", f"{setting}={second}")
    assert then.code == 0 and "shortened" not in then.out
    whole, half = (h5py.File(tmp_path / name / "checkpoint.h5")["state"] for name in ("whole", "half"))
    assert all(np.array_equal(whole[name][...], half[name][...]) for name in whole)


def test_a_restart_says_what_it_changes(meshloom: Command):
    meshloom("run", "airfoil", *MESH, "--backend", "numpy", "--iterations", "5", "--out", "a")
    result = meshloom("run", "--restart", "a/checkpoint.h5", "--iterations", "8", "--set", "mesh.order=rcm")
    assert result.code == 0, result.err
    assert "going on from a/checkpoint.h5, iteration 5" in result.out
    assert "run.iterations 5 -> 8" in result.out and 'mesh.order "auto" -> "rcm"' in result.out


def test_a_folder_stands_for_its_checkpoint(meshloom: Command, tmp_path: Path):
    run = ("run", "airfoil", *MESH, "--backend", "numpy", "--quiet")
    for name in "ab":
        assert meshloom(*run, "--iterations", "5", "--out", name).code == 0
    for place in ("a", "b/checkpoint.h5"):
        result = meshloom("run", "--restart", place, "--iterations", "8", "--quiet", "--json")
        assert result.code == 0 and result.json["iterations"] == 8, result.err
    assert state(tmp_path / "a" / "checkpoint.h5") == state(tmp_path / "b" / "checkpoint.h5")
    (tmp_path / "empty").mkdir()
    meshloom("run", "--restart", "empty").refused(2, "empty/checkpoint.h5: no such")


def test_a_mesh_file_that_has_changed_is_named(meshloom: Command, tmp_path: Path):
    run = ("run", "volna_lake", "--backend", "numpy", "--quiet", "--set", "output.plot=false")
    file = tmp_path / "coast.msh"
    ml.write(file, ml.generate.box((4, 4), cells="triangle"))
    assert meshloom(*run, "--iterations", "2", "--out", "a", "--set", f"mesh.file={file.name}").code == 0
    ml.write(file, ml.generate.box((5, 4), cells="triangle"), overwrite=True)
    again = meshloom("run", "--restart", "a/checkpoint.h5", "--iterations", "4")
    again.refused(2, "checkpoint of another mesh", "coast.msh, which may have changed since")


def test_a_slow_back_end_is_told_once_and_in_spite_of_quiet(meshloom: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ml, "backends", lambda ask=True: {"numpy": None, "cpu": "no compiler", "cuda": "no GPU"})
    for quiet in ((), ("--quiet",)):
        result = meshloom("run", "airfoil", *MESH[:-1], "--iterations", "1", *quiet)
        assert result.code == 0 and "which is slow" not in result.out
        assert result.err == "meshloom: the numpy back end is used, which is slow: no compiler\n"


def test_rows_past_the_checkpoint_are_computed_again(meshloom: Command, tmp_path: Path):
    run = ("run", "airfoil", *MESH, "--backend", "numpy", "--set", "output.checkpoint_every=10")
    assert meshloom(*run, "--iterations", "20", "--out", "a").code == 0
    whole = (tmp_path / "a" / "monitors.csv").read_bytes()
    assert meshloom(*run, "--iterations", "10", "--out", "b").code == 0
    with open(tmp_path / "b" / "monitors.csv", "a") as file:
        file.write("11,0.123\n12,0.")  # as a killed run leaves it
    assert meshloom("run", "--restart", "b/checkpoint.h5", "--iterations", "20", "--quiet").code == 0
    assert (tmp_path / "b" / "monitors.csv").read_bytes() == whole


def test_an_older_copy_goes_on_elsewhere(meshloom: Command, tmp_path: Path):
    run = ("run", "airfoil", *MESH, "--backend", "numpy")
    assert meshloom(*run, "--iterations", "5", "--out", "a").code == 0
    (tmp_path / "a" / "at5.h5").write_bytes((tmp_path / "a" / "checkpoint.h5").read_bytes())
    assert meshloom("run", "--restart", "a/checkpoint.h5", "--iterations", "9", "--quiet").code == 0
    before = files_below(tmp_path / "a")
    result = meshloom("run", "--restart", "a/at5.h5", "--iterations", "9", "--quiet", "--json")
    assert result.code == 0 and result.json["files"]["checkpoint.h5"] == "runs/airfoil-001/checkpoint.h5"
    assert files_below(tmp_path / "a") == before
    assert state(tmp_path / "runs" / "airfoil-001" / "checkpoint.h5") == state(tmp_path / "a" / "checkpoint.h5")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--iterations", "4"], ["already at iteration 5 of 4; give more with --iterations"]),
        (["--out", "b"], ["has reached its end (iteration 5); give a later one, such as --iterations 10"]),
        (["--iterations", "9", "--precision", "single"], ["double precision; give --precision double"]),
        (["--iterations", "9", "--set", "mesh.i=7"], ["checkpoint of another mesh"]),
        (["--iterations", "9", "--set", "mesh.j=x"], ["--set mesh.j=x"]),
    ],
)
def test_restarts_that_cannot_be(meshloom: Command, tmp_path: Path, arguments: list[str], parts: list[str]):
    meshloom("run", "airfoil", *MESH, "--backend", "numpy", "--iterations", "5", "--out", "a")
    before = files_below(tmp_path)
    meshloom("run", "--restart", "a/checkpoint.h5", *arguments).refused(2, *parts)
    assert files_below(tmp_path) == before


#: Cases that end at a time: to the bit, after the step that comes beyond it, and as a file of one's own has it.
TIMED = {
    "advection1d": ("time.end", 0.01, ["--set", "time.dt=0.001"]),
    "bookleaf_sod": ("time.end", 0.0035, ["--set", "mesh.cells=[4, 2]"]),
    "mine.py": ("plate.end", 0.02, ["--set", "plate.cells=5"]),
}


@pytest.mark.parametrize("target", TIMED)
def test_no_run_goes_back_to_an_earlier_time(meshloom: Command, tmp_path: Path, target: str):
    """Nor does one that is at its end say that files are made again for another one; with its own end it does so."""
    setting, end, small = TIMED[target]
    if target.endswith(".py"):
        assert meshloom("new", "mine").code == 0
    run = ("run", target, *small, "--set", f"{setting}={end}", "--backend", "numpy", "--set", "output.plot=false")
    assert meshloom(*run, "--out", "a").code == 0
    before = files_below(tmp_path)
    for earlier in (0.3 * end, 0.999 * end):
        again = meshloom("run", "--restart", "a", "--set", f"{setting}={earlier}")
        again.refused(2, "a/checkpoint.h5: already at time 0.0", f"; give a later one with --set {setting}")
        assert files_below(tmp_path) == before
    assert meshloom("run", "--restart", "a", "--quiet").code == 0
    assert meshloom("run", "--restart", "a", "--quiet", "--set", f"{setting}={2.0 * end}").code == 0


def test_damaged_checkpoints(meshloom: Command, tmp_path: Path):
    meshloom("run", "airfoil", *MESH, "--backend", "numpy", "--iterations", "5", "--out", "a")
    whole = (tmp_path / "a" / "checkpoint.h5").read_bytes()
    (tmp_path / "a" / "checkpoint.h5").write_bytes(whole[: len(whole) // 2])
    before = files_below(tmp_path)
    meshloom("run", "--restart", "a/checkpoint.h5", "--iterations", "9").refused(2, "truncated checkpoint")
    (tmp_path / "text.h5").write_text("no")
    meshloom("run", "--restart", "text.h5").refused(2, "text.h5: not a checkpoint, or damaged")
    assert {name: data for name, data in files_below(tmp_path).items() if name != "text.h5"} == before


# the campaigns ``terms`` and ``hangups`` of tests/attacks send the others in every run
@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGHUP))]
)
def test_stopping_by_signal_and_going_on(tmp_path: Path, number: signal.Signals):
    run = [sys.executable, "-m", "meshloom", "run", "airfoil", *MESH, "--backend", "numpy", "--iterations", "1000000"]
    process = subprocess.Popen([*run, "--out", "my run"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "my run" / "monitors.csv"
    deadline = time.monotonic() + 60.0
    while not (log.exists() and log.read_text().count("\n") > 5) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert err.count("\n") == 1 and "Traceback" not in err
    command = err.strip().split("go on with: meshloom ")[1]
    assert command == "run --restart 'my run/checkpoint.h5'"
    with h5py.File(tmp_path / "my run" / "checkpoint.h5") as file:
        reached = int(file.attrs["iteration"])
    assert reached == log.read_text().count("\n") - 1
    going_on = nursery.run(shlex.split(f"-m meshloom {command} --iterations {reached + 3} --quiet"), tmp_path)
    assert going_on.returncode == 0, going_on.stderr
    whole = nursery.run([*run[1:-1], str(reached + 3), "--out", "whole"], tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert (tmp_path / "whole" / "monitors.csv").read_bytes() == log.read_bytes()
    assert state(tmp_path / "whole" / "checkpoint.h5") == state(tmp_path / "my run" / "checkpoint.h5")


@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("airfoil", ["mesh.i=6", "mesh.j=4", "run.iterations=3"]),
        ("volna_lake", ["mesh.nx=6", "mesh.ny=4", "time.end=0.05"]),
        ("volna_lake", ["mesh.nx=6", "mesh.ny=4", "run.iterations=3"]),
        ("advection1d", ["mesh.points=16", "time.end=0.01"]),
        ("bookleaf_sod", ["mesh.cells=[4,3]", "time.end=0.2"]),
        ("lulesh", ["mesh.size=2", "time.end=0.0001"]),
        ("vortex_outflow", ["mesh.points=[16,16]", "time.end=0.1"]),
    ],
)
def test_what_a_finished_run_says_about_going_on_works(
    meshloom: Command, tmp_path: Path, case: str, settings: list[str]
):
    """The command as printed, with a space in its path: it takes the run as far again."""
    wanted = [word for one in (*settings, "output.plot=false") for word in ("--set", one)]
    first = meshloom("run", case, *wanted, "--backend", "numpy", "--out", "my run")
    assert first.code == 0, first.err
    command = re.search(r"\(go on: meshloom (.*)\)", first.out)
    assert command is not None, first.out
    with h5py.File(tmp_path / "my run" / "checkpoint.h5") as file:
        reached = int(file.attrs["iteration"])
    again = meshloom(*shlex.split(command[1]), "--json")
    assert again.code == 0, again.err
    assert again.json["iterations"] > reached and again.json["finished"]


@pytest.mark.parametrize(("case", "settings"), [
    pytest.param("volna_hump", ["mesh.nx=20", "mesh.ny=20", "time.end=1e6"], marks=pytest.mark.slow),
    pytest.param("airfoil", ["mesh.i=12", "mesh.j=9"], marks=pytest.mark.slow),  # as the one that SIGINT stops, above
])  # fmt: skip
def test_what_a_stopped_run_says_about_going_on_works(tmp_path: Path, case: str, settings: list[str]):
    """A real Ctrl-C; the command is taken from the output and run as printed, and goes on until it is stopped, too."""
    wanted = [word for one in (*settings, "output.plot=false", "run.iterations=1000000") for word in ("--set", one)]
    command = f"run {case} {shlex.join(wanted)} --backend cpu --threads 1 --quiet --out 'my run'"
    log, rows = tmp_path / "my run" / "monitors.csv", 5
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "meshloom", *shlex.split(command)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 60.0
        while not (log.exists() and log.read_text().count("\n") > rows) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130 and err.count("\n") == 1, err
        command = err.strip().split("go on with: meshloom ")[1]
        rows = log.read_text().count("\n")
    assert rows > 6


def test_a_second_signal_ends_at_once():
    script = (
        "import os, signal, time\n"
        "from meshloom.run.stop import StopRequest\n"
        "with StopRequest() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.6)\n"
        "    assert stop\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(5)\n"
        "    print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, env=os.environ)
    assert done.returncode == 130 and done.stdout == ""
