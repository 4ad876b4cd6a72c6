"""Cases that end at a time: never a step too many, progress by time, restarts, limits of healthy values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshloom.case import registry
from meshloom.config import build, parse_set
from meshloom.errors import RunError, UserError
from meshloom.io import checkpoint
from meshloom.io.vtk import Series
from meshloom.launch import Request, check, launch
from meshloom.run.folder import claim
from meshloom.run.pace import Pace
from meshloom.run.report import Advance, PlainReport, RunReport
from meshloom.run.runner import Outcome, Runner
from tests.cli.harness import results_below
from tests.run.cooling import GROWTH, Cooling, CoolingConfig


@pytest.fixture(autouse=True)
def registered(on_numpy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry, "cooling", Cooling)


def made(*changes: str) -> Cooling:
    return Cooling(build(CoolingConfig, map(parse_set, changes)))


def run(folder: Path, *changes: str, report: RunReport | None = None) -> Outcome:
    claimed = claim("cooling", folder)
    try:
        return Runner(made(*changes), claimed, report or RunReport()).run()
    finally:
        claimed.release()


def steps_to(end: float) -> int:
    time, dt, count = 0.0, 0.01, 0
    while time < end:
        dt = min(GROWTH * dt, end - time)
        time = end if dt >= end - time else time + dt
        count += 1
    return count


@pytest.mark.parametrize("chunk", [1, 5, 1000])
@pytest.mark.parametrize("end", [0.005, 0.5, 1.0, 7.3])
def test_it_ends_at_the_time_and_not_a_step_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk, end):
    monkeypatch.setattr(Pace, "chunk", lambda self: chunk)
    outcome = run(tmp_path / "a", f"pot.end={end}", "pot.rate=0.05")
    assert outcome.finished and outcome.iteration == steps_to(end) and outcome.monitors["time"] == end
    rows = np.loadtxt(tmp_path / "a" / "monitors.csv", delimiter=",", skiprows=1)
    assert len(np.atleast_2d(rows)) == outcome.iteration


def test_iterations_are_the_upper_limit(tmp_path: Path):
    outcome = run(tmp_path / "a", "run.iterations=3")
    assert outcome.finished and outcome.iteration == 3 and outcome.monitors["time"] < 1.0


def test_progress_goes_by_time(tmp_path: Path):
    seen: list[Advance] = []

    class Listener(RunReport):
        def advance(self, now: Advance) -> None:
            seen.append(now)

    run(tmp_path / "a", report=Listener())
    shares = [now.share for now in seen]
    assert shares == sorted(shares) and shares[-1] == 1.0 and seen[-1].is_last
    assert [now.is_last for now in seen].count(True) == 1
    assert seen[0].counter().startswith("1, time 0.01100/1") and seen[-1].left_text() == ""


def test_lines_name_the_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import sys

    run(tmp_path / "a", report=PlainReport(sys.stdout))
    assert f"iteration {steps_to(1.0)}, time 1.000/1  heat" in capsys.readouterr().out


def test_the_series_is_listed_by_time(tmp_path: Path):
    run(tmp_path / "a", "output.every=10")
    times = [time for time, _ in Series.resume(tmp_path / "a" / "fields.pvd").entries]
    assert len(times) == steps_to(1.0) // 10 + 1 and times[-1] == 1.0 and times[0] == pytest.approx(0.1753116706)


def test_a_restart_goes_on_with_the_globals_and_ends_the_same(tmp_path: Path):
    run(tmp_path / "whole", "run.backend=numpy")
    run(tmp_path / "part", "run.iterations=9", "run.backend=numpy")
    request = Request(None, (parse_set("run.iterations=100000"),), restart=tmp_path / "part" / "checkpoint.h5")
    launch(check(request), claim("cooling", tmp_path / "part", goes_on=True), RunReport(), 0.0)
    whole, part = (checkpoint.load(tmp_path / name / "checkpoint.h5") for name in ("whole", "part"))
    assert whole.iteration == part.iteration and whole.monitors.tobytes() == part.monitors.tobytes()
    assert {k: v.tobytes() for k, v in whole.state.items()} == {k: v.tobytes() for k, v in part.state.items()}
    with pytest.raises(UserError, match=r"has reached its end \(iteration \d+\)"):
        launch(check(request), claim("cooling", tmp_path / "elsewhere"), RunReport(), 0.0)
    assert not (tmp_path / "elsewhere").exists()


def test_a_restart_at_the_end_makes_what_is_missing(tmp_path: Path):
    run(tmp_path / "a", "run.backend=numpy")
    before = results_below(tmp_path / "a")
    for name in (name for name in before if name.startswith("fields")):
        (tmp_path / "a" / name).unlink()
    request = Request(None, restart=tmp_path / "a" / "checkpoint.h5")
    _, outcome = launch(check(request), claim("cooling", tmp_path / "a", goes_on=True), RunReport(), 0.0)
    assert outcome.finished and results_below(tmp_path / "a") == before


@pytest.mark.parametrize("longer", ["run.iterations=25", "pot.end=2"])
def test_fields_that_were_due_at_an_earlier_end_are_made_when_the_run_is_taken_further(tmp_path: Path, longer: str):
    """Killed between its last checkpoint and the fields, then continued beyond its first end."""
    run(tmp_path / "a", "run.backend=numpy", *(["run.iterations=20"] if "iterations" in longer else []))
    last = next((tmp_path / "a").glob("fields_*"))
    kept = last.read_bytes()
    last.unlink()
    request = Request(None, (parse_set(longer),), restart=tmp_path / "a" / "checkpoint.h5")
    launch(check(request), claim("cooling", tmp_path / "a", goes_on=True), RunReport(), 0.0)
    assert last.read_bytes() == kept and len(Series.resume(tmp_path / "a" / "fields.pvd").entries) == 2


def test_a_value_beyond_its_limit_is_named(tmp_path: Path):
    with pytest.raises(RunError) as raised:
        run(tmp_path / "a", "pot.rate=90", "output.checkpoint_every=1")
    message = str(raised.value)
    assert message.startswith("the solution broke down: t is -0.")
    assert "(must be above 0: colder than cold) in cell 0 at (0.125," in message
    assert " and 11 more after loop cool in iteration 2 (time 0.011); the last good checkpoint" in message, message
    assert message.endswith("(iteration 1)")
