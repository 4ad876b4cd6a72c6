"""Cases that end at a time: never a step too many, progress by time, restarts, limits of healthy values."""
# ruff: noqa: RUF009  section() and table() are dataclasses.field(): a new value for every instance

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import meshloom as ml
from meshloom.config import build, option, parse_set, section
from meshloom.errors import RunError, UserError
from meshloom.io import checkpoint
from meshloom.io.vtk import Series
from meshloom.run.folder import claim
from meshloom.run.launch import Request, check, launch
from meshloom.run.pace import Pace
from meshloom.run.report import Advance, PlainReport, Report
from meshloom.run.runner import Outcome, Runner
from meshloom.solvers import case as cases
from meshloom.solvers.case import Case, Limit, OutputOptions, RunOptions, schedule_table
from tests.cli.harness import files_below

GROWTH = 1.1


@dataclass(frozen=True)
class Pot:
    end: float = option(1.0, "time at the end", above=0.0)
    rate: float = option(0.5, "decay")


@dataclass(frozen=True)
class CoolingConfig:
    run: RunOptions = section(RunOptions, "How long, and on what.", iterations=100_000)
    pot: Pot = section(Pot, "The pot.")
    output: OutputOptions = section(OutputOptions, "What to write, and how often.", plot=False)
    schedule: dict[str, Any] = schedule_table("cool")


class Cooling(Case):
    """Cells cool; the step grows by a tenth each time and is cut to meet the end exactly."""

    name: ClassVar[str] = "cooling"
    title: ClassVar[str] = "a pot cools"
    Config: ClassVar[type] = CoolingConfig
    monitors: ClassVar[tuple[str, ...]] = ("heat", "time")
    end_setting: ClassVar[str] = "pot.end"
    limits: Mapping[str, Limit] = {"t": Limit(above=0.0, why="colder than cold"), "coldest": Limit(above=0.0)}

    def __init__(self, config: CoolingConfig):
        self.config = config
        self.mesh = ml.generate.box((4, 3))
        cells, clock = self.mesh.cells, ml.Set(1, "clock")
        self.t = cells.field("t", data=1.0 + np.arange(12.0))
        self.dt, self.time = ml.Global(0.01, "dt"), ml.Global(0.0, "time")
        self.heat, self.coldest = ml.Global(0.0, "heat"), ml.Global(0.0, "coldest")
        self.state, self.recorded = (self.t, self.dt, self.time), (self.heat, self.time, self.dt, self.coldest)
        end, rate = config.pot.end, config.pot.rate

        @ml.kernel
        def tick(dt: ml.ReadWrite, time: ml.ReadWrite):
            left = end - time
            new = np.minimum(GROWTH * dt, left)
            dt[...] = new
            time[...] = np.where(new >= left, end, time + new)

        @ml.kernel
        def cool(dt: ml.Read, t: ml.ReadWrite, heat: ml.Sum, coldest: ml.Min):
            after = t * (1.0 - rate * dt)
            t[...] = after
            heat += after
            coldest[...] = after

        @ml.program
        def iteration() -> None:
            tick(clock, self.dt, self.time)
            self.heat.value = 0.0
            self.coldest.value = np.inf
            cool(cells, self.dt, self.t, self.heat, self.coldest)

        self.program = iteration

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        return recorded[:, :2]

    def cell_fields(self) -> dict[str, np.ndarray]:
        return {"t": self.t.numpy()}

    def steps_left(self, recorded: np.ndarray) -> int:
        _, time, dt, _ = recorded
        left = self.config.pot.end - time
        if left <= 0.0:
            return 0
        return max(1, math.floor(math.log1p(left * (GROWTH - 1.0) / (GROWTH * dt)) / math.log(GROWTH) - 1e-9))

    def time_span(self, recorded: np.ndarray) -> tuple[float, float]:
        return float(recorded[1]), self.config.pot.end


cases._registry.pop("cooling")  # no case for other tests


@pytest.fixture(autouse=True)
def registered_on_numpy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(cases._registry, "cooling", Cooling)
    before = ml.backend(), ml.threads()
    ml.use("numpy")
    yield
    ml.use(before[0], threads=before[1])


def made(*changes: str) -> Cooling:
    return Cooling(build(CoolingConfig, map(parse_set, changes)))


def run(folder: Path, *changes: str, report: Report | None = None) -> Outcome:
    claimed = claim("cooling", folder)
    try:
        return Runner(made(*changes), claimed, report or Report()).run()
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

    class Listener(Report):
        def advance(self, now: Advance) -> None:
            seen.append(now)

    run(tmp_path / "a", report=Listener())
    shares = [now.share for now in seen]
    assert shares == sorted(shares) and shares[-1] == 1.0 and seen[-1].is_last
    assert [now.is_last for now in seen].count(True) == 1
    assert seen[0].counter().startswith("1, time 1.100e-02/1") and seen[-1].left_text() == ""


def test_lines_name_the_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import sys

    run(tmp_path / "a", report=PlainReport(sys.stdout))
    assert f"iteration {steps_to(1.0)}, time 1.000e+00/1  heat" in capsys.readouterr().out


def test_the_series_is_listed_by_time(tmp_path: Path):
    run(tmp_path / "a", "output.every=10")
    times = [time for time, _ in Series.resume(tmp_path / "a" / "fields.pvd").entries]
    assert len(times) == steps_to(1.0) // 10 + 1 and times[-1] == 1.0 and times[0] == pytest.approx(0.1753116706)


def test_a_restart_goes_on_with_the_globals_and_ends_the_same(tmp_path: Path):
    run(tmp_path / "whole", "run.backend=numpy")
    run(tmp_path / "part", "run.iterations=9", "run.backend=numpy")
    request = Request(None, (parse_set("run.iterations=100000"),), restart=tmp_path / "part" / "checkpoint.h5")
    launch(check(request), claim("cooling", tmp_path / "part", goes_on=True), Report(), 0.0)
    whole, part = (checkpoint.load(tmp_path / name / "checkpoint.h5") for name in ("whole", "part"))
    assert whole.iteration == part.iteration and whole.monitors.tobytes() == part.monitors.tobytes()
    assert {k: v.tobytes() for k, v in whole.state.items()} == {k: v.tobytes() for k, v in part.state.items()}
    with pytest.raises(UserError, match=r"has reached its end \(iteration \d+\)"):
        launch(check(request), claim("cooling", tmp_path / "elsewhere"), Report(), 0.0)
    assert not (tmp_path / "elsewhere").exists()


def test_a_restart_at_the_end_makes_what_is_missing(tmp_path: Path):
    run(tmp_path / "a", "run.backend=numpy")
    before = files_below(tmp_path / "a")
    for name in (name for name in before if name.startswith("fields")):
        (tmp_path / "a" / name).unlink()
    request = Request(None, restart=tmp_path / "a" / "checkpoint.h5")
    _, outcome = launch(check(request), claim("cooling", tmp_path / "a", goes_on=True), Report(), 0.0)
    assert outcome.finished and files_below(tmp_path / "a") == before


@pytest.mark.parametrize("longer", ["run.iterations=25", "pot.end=2"])
def test_fields_that_were_due_at_an_earlier_end_are_made_when_the_run_is_taken_further(tmp_path: Path, longer: str):
    """Killed between its last checkpoint and the fields, then continued beyond its first end."""
    run(tmp_path / "a", "run.backend=numpy", *(["run.iterations=20"] if "iterations" in longer else []))
    last = next((tmp_path / "a").glob("fields_*"))
    kept = last.read_bytes()
    last.unlink()
    request = Request(None, (parse_set(longer),), restart=tmp_path / "a" / "checkpoint.h5")
    launch(check(request), claim("cooling", tmp_path / "a", goes_on=True), Report(), 0.0)
    assert last.read_bytes() == kept and len(Series.resume(tmp_path / "a" / "fields.pvd").entries) == 2


def test_a_value_beyond_its_limit_is_named(tmp_path: Path):
    with pytest.raises(RunError) as raised:
        run(tmp_path / "a", "pot.rate=90", "output.checkpoint_every=1")
    message = str(raised.value)
    assert message.startswith("t is -0.") and "(must be above 0: colder than cold) in cell 0 at (0.125," in message
    assert " and 11 more after loop cool in iteration 2; the last good checkpoint" in message, message
    assert message.endswith("(iteration 1)")
