"""``ml.study`` and ``meshloom study``: every combination once, whatever happens in between."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import UserError
from meshloom.studies.record import StudyRow
from meshloom.studies.sweep import Study, last_line
from tests.catalogue.test_own_file import POT
from tests.cli.conftest import meshloom as meshloom  # the fixture
from tests.cli.harness import Command, files_below

FAILS = """
    def monitor_rows(self, recorded):
        if self.config.kettle.loss == 0.25 and recorded[0, 0] > 0.0:
            __import__("os").abort()
        return recorded
"""
#: A pot that may take its time, and whose process dies with a loss of 0.25.
SLOW = POT.replace("self.program = step", "self.program = ml.program(lambda: (step(), ml.call(self.wait)))").replace(
    'high=0.5)', 'high=0.5)\n    pause: float = option(0.0, "seconds of a step", low=0.0)'
) + "\n    def wait(self):\n        __import__('time').sleep(self.config.kettle.pause)\n" + FAILS  # fmt: skip
COMMON = {"run.backend": "numpy", "run.iterations": 3, "output.plot": False}


@pytest.fixture(autouse=True)
def in_its_folder(here: Callable[[str], None]) -> None:
    here(SLOW)


@pytest.mark.slow
def test_every_combination_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    found = ml.study("pot.py", {"kettle.loss": np.array([0.5, 0.25])}, COMMON, out="s")
    assert found.values("heat").tolist()[0] == 30.0 and np.isnan(found.values("heat")[1])
    assert [row.run for row in found.rows] == ["run-0001", "run-0002"] and found.axes == {"kettle.loss": (0.5, 0.25)}
    assert [row.why for row in found.failed] == [found.rows[1].why] and "signal 6" in found.rows[1].why
    printed = capfd.readouterr().out
    assert "study: 2 of 2: " in printed and str(found) in printed and "s/study.csv, " in printed
    with open("s/study.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["kettle.loss"] for row in rows] == ["0.5", "0.25"] and rows[0]["heat"] == "30.0"
    assert rows[0]["failed"] == "" and "signal 6" in rows[1]["failed"] and rows[1]["heat"] == ""
    assert (tmp_path / "s" / "run-0001" / "fields.pvd").exists()
    # Once more, with another value: what is done stays as it is, what failed is tried again.
    before = files_below(tmp_path / "s" / "run-0001")
    again = ml.study("pot.py", {"kettle.loss": [0.0, 0.25, 0.5]}, COMMON, out="s", progress=False, show="heat")
    assert [row.run for row in again.rows] == ["run-0003", "run-0002", "run-0001"] and len(again.failed) == 1
    assert files_below(tmp_path / "s" / "run-0001") == before and capfd.readouterr().out == ""
    assert again.values("heat").tolist()[::2] == [240.0, 30.0]
    assert (tmp_path / "s" / "study.png").stat().st_size > 5000
    with pytest.raises(UserError, match="no monitor, probe or integral 'haet'; did you mean 'heat'"):
        again.values("haet")


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ((True, False, None, False), "; 2 of 4 runs did not converge"),
        ((True, True), ""),
        ((None, None), ""),
        ((False,), "; 1 of 1 runs did not converge"),
    ],
)
def test_the_last_line_says_how_many_did_not_converge(verdicts: tuple[bool | None, ...], said: str) -> None:
    rows = tuple(StudyRow({"a.b": k}, f"run-{k}", converged=one, why="") for k, one in enumerate(verdicts))
    found = Study("pot", {"a.b": tuple(range(len(rows)))}, rows, Path("s"))
    assert last_line(found, ", s/study.png") == f"s/study.csv, s/study.png{said}"


@pytest.mark.slow
def test_a_verdict_of_runs_is_a_column() -> None:
    """Of runs that seek a steady state, and of no others."""
    stop = {"run.stop.monitor": "heat", "run.stop.below": 100.0, "run.stop.every": 1}
    found = begun({"kettle.loss": [0.5, 0.1, 0.25]}, stop, out="s")
    assert [row.converged for row in found.rows] == [True, False, None]  # the last one's process dies
    heads, *rows = (text.split() for text in str(found).splitlines())
    column = heads.index("converged")
    assert [row[column] for row in rows] == ["true", "false", "-"]
    with open("s/study.csv") as file:
        assert [row["converged"] for row in csv.DictReader(file)] == ["true", "false", ""]
    assert "converged" not in str(begun(out="t")) + Path("t/study.csv").read_text()


SCRIPT = """
import meshloom as ml
ml.study("pot.py", {"kettle.pause": [0.0, 0.1]}, {"run.backend": "numpy", "run.iterations": 25,
         "output.checkpoint_every": 1, "output.plot": False}, out="s", workers=2)
"""


def done_runs(folder: Path) -> list[str]:
    try:
        return [row["run"] for row in json.loads((folder / "study.json").read_text())["rows"] if not row["why"]]
    except FileNotFoundError:
        return []


def wait_for(what: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


SCRIPT_WORDS = ("script.py",)
COMMAND_WORDS = ("-m", "meshloom", "study", "pot.py", "--over", "kettle.pause=[0.0,0.1]", "--set", "run.backend=numpy",
                 "--set", "run.iterations=25", "--set", "output.checkpoint_every=1", "--set", "output.plot=false",
                 "--out", "s", "--workers", "2")  # fmt: skip


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        (SCRIPT_WORDS, signal.SIGKILL, -9),
        pytest.param(SCRIPT_WORDS, signal.SIGINT, -2, marks=pytest.mark.slow),
        pytest.param(COMMAND_WORDS, signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(COMMAND_WORDS, signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_study_that_was_stopped_goes_on(
    tmp_path: Path, words: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    """Also where nobody guards the script by __main__: no process of it imports the script again."""
    folder = tmp_path / "s"
    (tmp_path / "script.py").write_text(SCRIPT)
    child = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
    wait_for(lambda: done_runs(folder) and len(monitors(folder, 2)) > 3)
    os.kill(child.pid, number)
    _, said = child.communicate(timeout=60)
    assert child.returncode == code and (number == signal.SIGKILL or "goes on with" in said)
    first = files_below(folder / "run-0001")
    assert done_runs(folder) == ["run-0001"]
    wait_for(lambda: not locked_by_a_run(folder / "run-0002"))
    reached = len(monitors(folder, 2)) - 1
    assert 3 <= reached < 25 and (folder / "run-0002" / "checkpoint.h5").exists()
    after = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)
    assert after.returncode == 0, after.stderr
    assert "study: 1 of 2 runs are done already" in after.stdout
    assert files_below(folder / "run-0001") == first and sorted(done_runs(folder)) == ["run-0001", "run-0002"]
    assert monitors(folder, 1) == monitors(folder, 2)


def monitors(folder: Path, run: int) -> list[str]:
    try:
        return (folder / f"run-{run:04d}" / "monitors.csv").read_text().splitlines()
    except FileNotFoundError:
        return []


def locked_by_a_run(folder: Path) -> bool:
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def begun(over: Any = None, settings: Any = None, **more: Any) -> Any:
    return ml.study("pot.py", over or {"kettle.loss": [0.1]}, COMMON | (settings or {}), progress=False, **more)


@pytest.mark.slow
def test_another_study_is_not_mixed_in(tmp_path: Path) -> None:
    begun(out="s")
    before = files_below(tmp_path / "s")
    for call, said in (
        (lambda: begun(out="s", settings={"run.iterations": 4}), "a study with run.iterations = 3, not 4"),
        (lambda: begun({"kettle.pause": [0.0]}, out="s"), "a study over kettle.loss"),
        (lambda: ml.study("airfoil", {"flow.mach": [0.3]}, out="s"), "a study of '"),
        (lambda: begun(out="."), ". holds other files, and no study"),
    ):
        with pytest.raises(UserError) as caught:
            call()
        assert said in str(caught.value) and "choose another out" in str(caught.value)
    (tmp_path / "pot.py").write_text(SLOW + "#\n")
    with pytest.raises(UserError, match="has changed since the study began"):
        begun(out="s")
    assert files_below(tmp_path / "s") == before
    (tmp_path / "s" / "study.json").write_text("{")
    with pytest.raises(UserError, match=r"study.json: not the record of a study"):
        begun(out="s")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ml.study("pot.py", {}), "say which settings take which values"),
        (lambda: ml.study("pot.py", [1]), "say which settings"),  # type: ignore[arg-type]
        (lambda: ml.study("pot.py", {"kettle.loss": 0.1}), "takes a list of values"),  # type: ignore[dict-item]
        (lambda: ml.study("pot.py", {"kettle.loss": "0.1"}), "takes a list of values"),
        (lambda: ml.study("pot.py", {"kettle.loss": []}), "takes a list of values"),
        (lambda: ml.study("pot.py", {"kettle.loss": [0.1, 0.1]}), "has the value 0.1 twice"),
        (lambda: ml.study("pot.py", {"kettle.loss": [object()]}), "is no value of a setting"),
        (lambda: ml.study("pot.py", {"kettle.lost": [0.1]}), "study: 'kettle.lost': unknown key"),
        (lambda: ml.study("pot.py", {"kettle.loss": [0.1, 9.0]}), "must be a number from 0.0 up to 0.5, got 9.0"),
        (lambda: ml.study("pot.py", {"kettle.loss": [0.1]}, {"kettle.loss": 0.2}), "kettle.loss varies, and is among"),
        (lambda: ml.study("pot.py", {"kettle.loss": [0.1]}, workers=0), "workers must be a whole number from 1"),
        (lambda: ml.study("pot.py", {"kettle.loss": [0.1]}, show="t"), "show names 't'"),
        (lambda: ml.study("pot.py", {"kettle.loss": [0.1]}, out=3), "out is the path"),  # type: ignore[arg-type]
        (lambda: ml.study("pot", {"kettle.loss": [0.1]}), "unknown case 'pot'"),
        (lambda: ml.study(int, {"kettle.loss": [0.1]}), "other processes cannot find the class int"),  # type: ignore[arg-type]
        (
            lambda: ml.study("pot.py", {"kettle.lost": range(1, 200), "kettle.found": range(100)}),
            "19,900 runs, at most",  # and it does not begin with them if this is not said: there are no such settings
        ),
    ],
)
def test_misuse_is_one_line(call: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        call()
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["pot.py"]


def test_on_the_command_line(meshloom: Command, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "pot.py").rename(tmp_path / "own" / "pot.py")
    (tmp_path / "own" / "s.toml").write_text(
        'case = "pot.py:Pot"\n[run]\nbackend = "numpy"\niterations = 2\n[output]\nplot = false\n'
        "[study]\nkettle.loss = [0.25]\n"
    )
    result = meshloom("study", "own/s.toml", "--set", "output.vtu=false")
    result.refused(1, "1 of 1 runs failed, first run-0001: its process was ended by signal 6")
    assert "kettle.loss  seconds       run\n       0.25" in result.out and "studies/pot/study.csv" in result.out
    assert not [*(tmp_path / "studies" / "pot" / "run-0001").glob("*.vtu")]
    meshloom("study", "own/pot.py").refused(2, "what varies? give --over")
    words = ("study", "own/pot.py", "--over", "kettle.loss=[0.1]", "--backend", "numpy", "--threads", "1")
    meshloom(*words, "--iterations", "x").refused(2, "--iterations x")
    meshloom(*words, "--precision", "half").refused(2, "--precision half")
    meshloom("study", "own/pot.py", "--over", "kettle.loss=0.1").refused(2, "--over: kettle.loss takes a list")
    meshloom("study", "own/pot.py", "--over", "kettle.loss=[9]").refused(2, "kettle.loss must be")
    meshloom("study", "own/s.toml", "--over", "kettle.loss=[0]").refused(2, "says what varies in its [study]")
    meshloom("study", "own/pot.py", "--over", "kettle.loss=[0]", "--workers", "x").refused(2, "--workers must be")
    meshloom("run", "own/s.toml").refused(2, "own/s.toml:7: unknown key 'study")
    meshloom("study", "missing.toml", "--over", "a.b=[1]").refused(2, "missing.toml: cannot be read")
