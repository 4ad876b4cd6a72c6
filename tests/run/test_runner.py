"""The time loop: chunks change nothing, files come when due, a breakdown is traced to its loop and cell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import meshloom as ml
from meshloom.config import build, parse_set
from meshloom.errors import RunError
from meshloom.io import checkpoint
from meshloom.launch import Request, check, folder_for, launch
from meshloom.run.diagnose import breakdown, take_snapshot
from meshloom.run.folder import RunFolder, claim
from meshloom.run.pace import Pace
from meshloom.run.report import Advance, RunReport
from meshloom.run.runner import Outcome, Runner
from meshloom.solvers.airfoil import Airfoil, AirfoilConfig

pytestmark = pytest.mark.usefixtures("on_numpy")


def small(*changes: str) -> Airfoil:
    settings = ("mesh.i=6", "mesh.j=4", "output.plot=false", "run.iterations=30", *changes)
    return Airfoil(build(AirfoilConfig, map(parse_set, settings)))


def run(folder: Path, *changes: str, report: RunReport | None = None) -> Outcome:
    return Runner(small(*changes), claim("airfoil", folder), report or RunReport()).run()


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int):
    run(tmp_path / "a")
    monkeypatch.setattr(Pace, "chunk", lambda self: chunk)
    run(tmp_path / "b")
    assert (tmp_path / "a" / "monitors.csv").read_bytes() == (tmp_path / "b" / "monitors.csv").read_bytes()
    first, second = (checkpoint.load(tmp_path / name / "checkpoint.h5") for name in "ab")
    assert first.state["q"].tobytes() == second.state["q"].tobytes()


@pytest.mark.parametrize("stop", [[], ["run.stop.monitor='rms'", "run.stop.below=1e-9"]])
def test_a_chunk_costs_the_same_however_many_there_were_before(monkeypatch: pytest.MonkeyPatch, stop: list[str]):
    """A run of days has a million: whoever looks through all of them after each never ends."""
    looked_at: list[int] = []

    class Parts(list[np.ndarray]):
        def __iter__(self) -> Iterator[np.ndarray]:
            for part in super().__iter__():
                looked_at.append(1)
                yield part

    monkeypatch.setattr(Pace, "chunk", lambda self: 1)
    runner = Runner(small(*stop), None, RunReport())
    runner.history = Parts(runner.history)
    counts = []
    for _ in range(20):
        looked_at.clear()
        runner._advance()
        runner._left()
        counts.append(len(looked_at))
    assert counts[-1] <= counts[1]


@pytest.mark.slow
def test_copies_of_a_large_state_take_a_small_part_of_the_time(monkeypatch: pytest.MonkeyPatch):
    """Of one that takes 3 s to copy there is no copy in every second."""
    now, copies = [0.0], list[float]()
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])

    def slow(task: Any) -> Any:
        now[0] += 3.0
        copies.append(now[0])
        return take_snapshot(task)

    monkeypatch.setattr("meshloom.run.runner.time", clock)
    monkeypatch.setattr("meshloom.run.runner.take_snapshot", slow)
    monkeypatch.setattr(Pace, "chunk", lambda self: 1)
    runner = Runner(small("run.iterations=1000"), None, RunReport())
    for _ in range(400):
        now[0] += 1.0
        runner._advance()
    assert copies == [3.0, 157.0, 311.0]


def test_checkpoints_by_iterations_and_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    saved: list[int] = []
    real = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda path, one: (saved.append(one.iteration), real(path, one)))
    run(tmp_path / "a", "output.checkpoint_every=8", "output.checkpoint_seconds=0.0")
    assert saved == [8, 16, 24, 30]
    saved.clear()
    monkeypatch.setattr(Pace, "chunk", lambda self: 1)
    run(tmp_path / "b", "output.checkpoint_seconds=1e-9")
    assert saved == list(range(1, 31))


def test_fields_only_where_wanted(tmp_path: Path):
    run(tmp_path / "a", "output.vtu=false", "output.every=5")
    assert not list((tmp_path / "a").glob("*.vtu")) and not (tmp_path / "a" / "fields.pvd").exists()


def test_the_report_follows(tmp_path: Path):
    seen: list[Advance] = []

    class Listener(RunReport):
        def advance(self, now: Advance) -> None:
            seen.append(now)

    outcome = run(tmp_path / "a", report=Listener())
    assert seen[0].iteration == 1 and seen[-1].iteration == 30 and seen[-1].cells == 72
    assert seen[-1].monitors == outcome.monitors and outcome.finished
    assert 0.0 < outcome.seconds_to_first_iteration <= outcome.seconds


def test_a_signal_stops_after_the_chunk_with_a_checkpoint(tmp_path: Path):
    class Impatient(RunReport):
        def advance(self, now: Advance) -> None:
            if now.iteration >= 5:
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    outcome = run(tmp_path / "a", "run.iterations=1000000", report=Impatient())
    assert not outcome.finished and signal.getsignal(signal.SIGINT) is before
    saved = checkpoint.load(tmp_path / "a" / "checkpoint.h5")
    assert saved.iteration == outcome.iteration == len(saved.monitors)


def test_a_signal_before_the_first_iteration_of_a_run_that_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It has its files already: then it also has a checkpoint, and the command that is printed works."""
    begin = RunFolder.begin

    def signalled(self: RunFolder) -> None:
        begin(self)
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "begin", signalled)
        folder = claim("airfoil", tmp_path / "a")
        outcome = Runner(small(), folder, RunReport()).run()
        folder.release()
    assert not outcome.finished and outcome.stopped_by == signal.SIGTERM
    restart = Request(None, restart=tmp_path / "a" / "checkpoint.h5")
    job = check(restart)
    assert launch(job, folder_for(restart, job), RunReport(), 0.0)[1].finished
    run(tmp_path / "b")
    assert (tmp_path / "a" / "monitors.csv").read_bytes() == (tmp_path / "b" / "monitors.csv").read_bytes()


def test_a_checkpoint_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []

    class Asking(RunReport):
        def advance(self, now: Advance) -> None:
            if now.iteration in (7, 9):
                os.kill(os.getpid(), signal.SIGUSR1)

        def message(self, text: str) -> None:
            said.append(text)
            assert f"iteration {checkpoint.load(place).iteration}:" in text

    place = tmp_path / "a" / "checkpoint.h5"
    monkeypatch.setattr(Pace, "chunk", lambda self: 1)
    assert run(tmp_path / "a", "output.checkpoint_seconds=0.0", report=Asking()).finished
    assert said == [f"checkpoint of iteration {n}: {place}" for n in (7, 9)]


@pytest.mark.parametrize("where", ["set_up", "_announce"])
def test_a_folder_is_given_back_when_a_signal_ends_the_process(tmp_path: Path, where: str):
    """Out of the middle of setting up: the process ends at once, without unwinding."""
    script = (
        "import os, signal, sys\n"
        "sys.argv = ['meshloom', 'run', 'airfoil', '--out', 'a', '--backend', 'numpy', '--set', 'mesh.i=6',"
        " '--set', 'mesh.j=4']\n"
        "import meshloom.launch as launch\n"
        f"launch.{where} = lambda *_: (print(*os.listdir('a')), os.kill(os.getpid(), signal.SIGTERM), print('here'))\n"
        "from meshloom.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 143 and done.stderr == "meshloom: stopped before the first iteration\n"
    assert "here" not in done.stdout and not (tmp_path / "a").exists()


def test_a_full_disk_under_the_monitors_keeps_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from meshloom.io.monitors import MonitorLog

    real = MonitorLog.append

    def append(self: Any, values: np.ndarray) -> None:
        if self._written >= 16:
            self._file.close()
            self._file = open("/dev/full", "a")  # noqa: SIM115  closed by the log
        real(self, values)

    monkeypatch.setattr(MonitorLog, "append", append)
    with pytest.raises(RunError, match=r"monitors\.csv: disk full .*; the last good checkpoint is .* \(iteration 16\)"):
        run(tmp_path / "a", "output.checkpoint_every=8")
    assert checkpoint.load(tmp_path / "a" / "checkpoint.h5").iteration == 16


def test_fields_that_cannot_be_written_keep_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where it is the only one, at the end of the run."""

    def write_fields(self: Airfoil, path: Path) -> None:
        raise RunError(f"{path}: disk full")

    monkeypatch.setattr(Airfoil, "write_fields", write_fields)
    with pytest.raises(RunError, match=r"disk full; the last good checkpoint is .* \(iteration 20\)"):
        run(tmp_path / "a", "run.iterations=20", "output.vtu=true")
    assert checkpoint.load(tmp_path / "a" / "checkpoint.h5").iteration == 20


def test_a_checkpoint_that_was_moved_away_is_not_promised(tmp_path: Path):
    class Mover(RunReport):
        def advance(self, now: Advance) -> None:
            if (tmp_path / "a" / "checkpoint.h5").exists():
                (tmp_path / "a").rename(tmp_path / "b")

    with pytest.raises(RunError, match=r"iteration 8, is not at .*a/checkpoint\.h5 any more"):
        run(tmp_path / "a", "output.checkpoint_every=8", report=Mover())
    assert checkpoint.load(tmp_path / "b" / "checkpoint.h5").iteration == 8


@pytest.mark.parametrize("order", ["given", "random"])
def test_a_breakdown_is_traced_to_loop_iteration_and_cell(order: str):
    """One cell gets a negative pressure: its speed of sound is NaN in the first loop that asks for it."""
    case = small(f"mesh.order={order}")
    case.program.run(3)
    q = case.q.numpy()
    q[41, 3] = -5.0
    case.q.assign(q)
    text = breakdown(case, take_snapshot(case), 3, 10).text
    x, y = case.mesh.cells.points[41]
    assert text == (
        f"the solution broke down: adt is NaN in cell 41 at ({x:.4g}, {y:.4g}) after loop adt_calc in iteration 4;"
        " a smaller flow.cfl or more flow.dissipation may help"
    )
    hasty = small(f"mesh.order={order}", "flow.cfl=1.5")
    hasty.q.assign(q)
    warned = breakdown(hasty, take_snapshot(hasty), 3, 10).text
    assert warned.endswith("in iteration 4; flow.cfl = 1.5 is longer than what is known to be stable, which is 1")


def test_elements_of_all_sets_are_told_with_their_places(monkeypatch: pytest.MonkeyPatch):
    """But of faces whose nodes have moved since: nobody knows where these are."""
    case = small()
    nodes, faces = case.mesh.nodes, case.mesh.faces
    x, y = case.node_positions()[5]
    assert case.location_of(nodes, 5) == f"node 5 at ({x:.4g}, {y:.4g})"
    assert re.fullmatch(r"faces element 3 at \(\S+, \S+\)", case.location_of(faces, 3))
    moved = case.node_positions() + 1.0
    monkeypatch.setattr(type(case), "node_positions", lambda self: moved)
    assert case.location_of(nodes, 5) == f"node 5 at ({x + 1.0:.4g}, {y + 1.0:.4g})"
    assert case.location_of(faces, 3) == "faces element 3"


class Asked:
    """What a breakdown asks of a task, which has nothing to say about itself."""

    limits: ClassVar[dict[str, Any]] = {}
    recorded: tuple[ml.Global, ...] = ()

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        return recorded

    def location_of(self, on: ml.Set, element: int) -> str:
        return f"cell {element}"

    def recorded_now(self) -> np.ndarray:
        return np.concatenate([np.atleast_1d(one.numpy()) for one in self.recorded])

    def time_span(self, recorded: np.ndarray) -> tuple[float, float] | None:
        return None

    def doubts(self) -> tuple[str, ...]:
        return ()

    def cure(self, state: str) -> str:
        return ""


class Hidden(Asked):
    """``ratio`` is 0/0 in one cell, which fast algebra hides: its factor cancels."""

    def __init__(self) -> None:
        cells = ml.Set(20, "cells")
        a, b = cells.field("a", data=1.0), cells.field("b", data=np.r_[np.ones(7), 0.0, np.ones(12)])
        hidden, shown, self.total = cells.field("hidden"), cells.field("shown"), ml.Global(0.0, "total")

        @ml.kernel
        def hide(a: ml.Read, b: ml.Read, hidden: ml.Write):
            hidden[...] = (a / b) * b

        @ml.kernel
        def show(hidden: ml.Read, b: ml.Read, shown: ml.Write, total: ml.Sum):
            shown[...] = np.sqrt(b - 0.5) + hidden
            total += np.sqrt(b - 0.5) + hidden

        def step() -> None:
            self.total.value = 0.0
            hide(cells, a, b, hidden)
            show(cells, hidden, b, shown, self.total)

        self.program, self.state, self.recorded = ml.program(step), (b, hidden, shown), (self.total,)


@pytest.mark.parametrize("back_end", ["numpy", "cpu"])
def test_a_division_by_zero_that_cancels_is_found(back_end: str):
    """The first loop divides by zero; with fast algebra nothing shows before the second one."""
    ml.use(back_end)
    case: Any = Hidden()
    case.program.run(1)
    hidden, shown = case.state[1:]
    assert np.isfinite(hidden.numpy()).all() and np.isnan(shown.numpy()[7])
    found = breakdown(case, take_snapshot(case), 0, 3).text
    what = "the solution broke down: hidden is infinite in cell 7 after loop hide in iteration 1"
    assert found == what or "hidden is NaN" in found


@pytest.mark.parametrize("breaks_at", [1, 2, 700, 999, 1000])
@pytest.mark.parametrize("is_shown", [True, False])
def test_a_breakdown_is_found_among_many_iterations_with_few_looks(
    breaks_at: int, is_shown: bool, monkeypatch: pytest.MonkeyPatch
):
    """Also where no monitor shows it, and only the state tells."""
    on, looks = ml.Set(1, "cells"), list[int]()
    left, root, total = on.field("left", data=breaks_at - 0.5), on.field("root"), ml.Global(0.0, "total")

    @ml.kernel
    def fall(left: ml.ReadWrite, root: ml.Write, total: ml.Max):
        left[...] = left - 1.0
        root[...] = np.sqrt(left)
        total[...] = np.sqrt(left) if is_shown else left

    @ml.program
    def step() -> None:
        total.value = 0.0
        fall(on, left, root, total)

    def look(task: Any) -> Any:
        looks.append(1)
        return take_snapshot(task)

    task: Any = Asked()
    task.program, task.state, task.recorded = step, (left, root), (total,)
    monkeypatch.setattr("meshloom.run.diagnose.take_snapshot", look)
    text = breakdown(task, take_snapshot(task), 0, 1000).text
    what = f"the solution broke down: root is NaN in cell 0 after loop fall in iteration {breaks_at}"
    assert text == what and len(looks) <= 10


def test_a_breakdown_that_cannot_be_repeated_says_so():
    case = small()
    assert "repeating them stays finite" in breakdown(case, take_snapshot(case), 0, 2).text
