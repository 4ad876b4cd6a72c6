"""``ml.march``: what comes out is that of the program run by itself; files, ends, restarts, and whatever goes wrong."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import RunError, UserError
from meshloom.io.vtk import Series
from tests.cli.harness import results_below
from tests.one_line import one_line_from

END = 1.0
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)], autouse=True)
def back_end(request: pytest.FixtureRequest) -> Iterator[str]:
    before = ml.backend()
    ml.use(request.param)
    yield request.param
    ml.use(before)


class Cooling:
    """Cells cool at a rate of 1; a clock that a kernel advances by a step that only the script sets."""

    def __init__(self, cells: int = 6) -> None:
        self.mesh = ml.generate.box((cells, 4), cells="triangle")
        on = self.mesh.cells
        self.u = on.field("u", data=1.0 + np.arange(len(on)))
        self.half = on.field("half")
        self.t, self.dt, self.heat = ml.Global(0.0, "t"), ml.Global(0.03, "dt"), ml.Global(0.0, "heat")
        self.clock = ml.Set(1, "clock")

        @ml.kernel
        def tick(dt: ml.Read, t: ml.ReadWrite):
            t[...] = t + dt

        @ml.kernel
        def cool(dt: ml.Read, u: ml.ReadWrite, half: ml.Write, heat: ml.Sum):
            after = u - dt * u
            u[...] = after
            half[...] = 0.5 * after
            heat += after

        @ml.program
        def step() -> None:
            self.heat.value = 0.0
            tick(self.clock, self.dt, self.t)
            cool(on, self.dt, self.u, self.half, self.heat)

        self.step = step

    @property
    def bits(self) -> bytes:
        return b"".join(one.numpy().tobytes() for one in (self.u, self.half, self.t, self.heat))


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "monitors.csv", encoding="ascii") as file:
        return list(csv.DictReader(file))


def test_steps_files_and_what_comes_back(tmp_path: Path):
    by_hand, one = Cooling(), Cooling()
    history = by_hand.step.run(25, record=(by_hand.heat,))
    done = ml.march(one.step, steps=25, every=10, show=(one.heat,), out=tmp_path / "run", fields={"u": one.u})
    assert one.bits == by_hand.bits
    assert (done.steps, done.why, done.folder) == (25, "steps", tmp_path / "run") and done.seconds > 0.0
    np.testing.assert_array_equal(done.history["heat"], history[:, 0])
    assert [float(row["heat"]) for row in rows(tmp_path / "run")] == history[:, 0].tolist()
    assert [time for time, _ in Series.resume(tmp_path / "run" / "fields.pvd").entries] == [10.0, 20.0, 25.0]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "checkpoint.h5", "fields.pvd", "fields_0000010.vtu", "fields_0000020.vtu", "fields_0000025.vtu", "monitors.csv",
        "report.html", "report.json",
    ]  # fmt: skip


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any):
    monkeypatch.chdir(tmp_path)
    one = Cooling()
    done = ml.march(one.step, steps=3, show=one.heat, fields=(one.u,), checkpoint=(one.u, one.t))
    assert done.folder is None and len(done.history["heat"]) == 3
    assert not list(tmp_path.iterdir()) and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("step", [0.03, 0.1, 0.25, 1.0, 7.0])
def test_a_run_lands_on_its_end_to_the_bit(step: float):
    one = Cooling()
    one.dt.value = step
    done = ml.march(one.step, until=(one.t, END, one.dt), show={"sum": one.heat})
    assert one.t.value == END and one.dt.value == step and done.why == "until"
    assert done.steps == max(1, int(np.ceil(END / step - 1e-8))) and list(done.history) == ["sum", "t"]


@pytest.mark.parametrize("end", [0.7, 0.1, 3.3])  # of these float32 has a number below, above and below
@pytest.mark.parametrize("has_step", [True, False])
@pytest.mark.parametrize("of_clock", [np.float32, np.float64])
def test_a_clock_in_single_precision_comes_to_its_end(end: float, has_step: bool, of_clock: type):
    """The end is a number of the clock's type: it would never come to another one. A step that is cut is rounded."""
    t, dt = ml.Global(0.0, "t", dtype=of_clock), ml.Global(0.03, "dt", dtype=np.float32)
    clock = ml.Set(1, "clock")

    @ml.kernel
    def tick(dt: ml.Read, t: ml.ReadWrite):
        t[...] = t + (dt if has_step else np.minimum(dt, end - t))

    @ml.program
    def step() -> None:
        tick(clock, dt, t)

    done = ml.march(step, until=(t, end, dt) if has_step else (t, end), steps=1000)
    assert done.why == "until" and t.value == of_clock(end)
    assert 0 <= done.steps - round(np.ceil(end / 0.03)) <= 1  # one more for what is rounded on the way
    if of_clock is np.float32:
        with one_line_from(UserError, r"the end of until is 1e\+39, more than the float32 of t holds"):
            ml.march(step, until=(t, 1e39))


@pytest.mark.parametrize("replaces", [False, True])
def test_a_run_that_begins_at_its_end_is_a_whole_one(tmp_path: Path, replaces: bool):
    """Nothing is to be done, but the folder has what a run leaves, and none of the one of before."""
    one, folder = Cooling(), tmp_path / "run"
    if replaces:
        ml.march(one.step, steps=3, out=folder, fields=one.u, probes={"old": (0.5, 0.4)})
    one.t.value = END
    said = {"until": (one.t, END, one.dt), "out": folder, "fields": one.u, "probes": {"p": (0.5, 0.4)}}
    done = ml.march(one.step, **said, overwrite=replaces)
    assert (done.steps, done.why) == (0, "until")
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint.h5", "fields.pvd", "fields_0000000.vtu", "monitors.csv", "probes.csv", "report.html", "report.json",
    ]  # fmt: skip
    with open(folder / "probes.csv", encoding="ascii") as file:
        (row,) = csv.DictReader(file)
    assert float(row["time"]) == END and "p.u" in row
    again = ml.march(one.step, **said | {"until": (one.t, END + 0.05, one.dt)}, restart=True)
    assert (again.steps, one.t.value) == (2, END + 0.05)
    with open(folder / "probes.csv", encoding="ascii") as file:
        assert [row["iteration"] for row in csv.DictReader(file)] == ["2"]  # that of the end before goes


def test_a_program_that_knows_its_step_ends_where_it_says(tmp_path: Path):
    """Without the step nothing is cut: the first step that reaches the end is the last."""
    one = Cooling()
    done = ml.march(one.step, until=(one.t, END), out=tmp_path / "run", fields=one.u)
    assert done.steps == 34 and one.t.value == pytest.approx(34 * 0.03)
    assert [time for time, _ in Series.resume(tmp_path / "run" / "fields.pvd").entries] == [one.t.value]


def test_steps_are_the_most_also_where_a_time_ends_it():
    one = Cooling()
    done = ml.march(one.step, steps=5, until=(one.t, END, one.dt))
    assert (done.steps, done.why) == (5, "steps") and one.t.value == pytest.approx(0.15)


def test_a_condition_stops_after_the_step_in_which_it_holds():
    by_hand, one = Cooling(), Cooling()
    times = by_hand.step.repeat(until=by_hand.heat < 500.0, at_most=1000)
    done = ml.march(one.step, stop=one.heat < 500.0)
    assert (done.steps, done.why) == (times, "stop") and one.bits == by_hand.bits
    assert list(done.history) == ["heat"] and done.history["heat"][-1] < 500.0 <= done.history["heat"][-2]


@pytest.mark.parametrize(("every", "steps"), [(0, 7), (5, 10)])
def test_a_function_stops_when_it_is_asked(every: int, steps: int):
    one = Cooling()
    asked: list[float] = []

    def cold() -> bool:
        asked.append(one.t.value)
        return one.t.value > 6.5 * one.dt.value

    done = ml.march(one.step, steps=50, every=every, stop=cold)
    assert (done.steps, done.why) == (steps, "stop") and len(asked) == 1 + steps // (every or 1)


def cut_off(one: Cooling, folder: Path, at: int, **options: Any) -> None:
    """A run that dies in its step number ``at``, after whatever was written before."""
    asked = iter(range(10**6))  # before the first step, too

    def dies() -> bool:
        if next(asked) == at:
            raise ZeroDivisionError("of a test")
        return False

    with pytest.raises(ZeroDivisionError):
        ml.march(one.step, out=folder, stop=dies, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {name: text for name, text in results_below(folder).items() if name != "checkpoint.h5"}


@pytest.mark.parametrize("at", [3, 12, 33])
def test_a_run_that_was_cut_off_goes_on_to_the_same_bits(tmp_path: Path, at: int):
    def wanted(one: Cooling) -> dict[str, Any]:
        return {"until": (one.t, END, one.dt), "show": (one.heat,), "fields": (one.u, one.half), "checkpoint_every": 4}

    whole, first, second = Cooling(), Cooling(), Cooling()
    done = ml.march(whole.step, out=tmp_path / "whole", **wanted(whole), every=10)
    cut_off(first, tmp_path / "run", at, **wanted(first))
    again = ml.march(second.step, out=tmp_path / "run", restart=True, **wanted(second), every=10)
    assert second.bits == whole.bits and again.steps == done.steps
    np.testing.assert_array_equal(again.history["heat"], done.history["heat"])
    expected = contents(tmp_path / "whole")
    found = contents(tmp_path / "run")
    assert found["monitors.csv"] == expected["monitors.csv"]
    assert found["fields_0000034.vtu"] == expected["fields_0000034.vtu"]


def test_a_finished_run_that_is_restarted_stays_as_it_is(tmp_path: Path):
    """Also one that a condition has ended: a script that is run twice does nothing the second time."""
    first, second = Cooling(), Cooling()
    done = ml.march(first.step, stop=first.heat < 500.0, out=tmp_path / "run", fields=(first.half,))
    before = contents(tmp_path / "run")
    again = ml.march(second.step, stop=second.heat < 500.0, out=tmp_path / "run", fields=(second.half,), restart=True)
    assert second.bits == first.bits and contents(tmp_path / "run") == before
    assert (again.steps, again.why) == (done.steps, "stop")


def test_more_steps_after_a_restart(tmp_path: Path):
    whole, one = Cooling(), Cooling()
    ml.march(whole.step, steps=20)
    ml.march(one.step, steps=8, out=tmp_path / "run")
    other = Cooling()
    done = ml.march(other.step, steps=20, out=tmp_path / "run", restart=True)
    assert done.steps == 20 and other.bits == whole.bits


def test_restart_begins_where_there_is_nothing_to_go_on_from(tmp_path: Path):
    one = Cooling()
    assert ml.march(one.step, steps=2, out=tmp_path / "run", restart=True).steps == 2
    other, third = Cooling(), Cooling()
    cut_off(other, tmp_path / "cut", 2)
    assert ml.march(third.step, steps=2, out=tmp_path / "cut", restart=True).steps == 2 and third.bits == one.bits


def test_a_checkpoint_is_independent_of_the_order_in_memory(tmp_path: Path):
    def made(order: str) -> tuple[ml.Program, ml.Field, ml.Mesh]:
        mesh = ml.generate.box((6, 5)).arranged(order)
        u = mesh.cells.field("u", 2, data=np.arange(60.0).reshape(30, 2), layout="aos" if order == "given" else "soa")

        @ml.kernel
        def grow(u: ml.ReadWrite):
            u *= 1.5

        return ml.program(lambda: grow(mesh.cells, u)), u, mesh

    first, u, first_mesh = made("given")
    ml.march(first, steps=2, out=tmp_path / "run", checkpoint=u)
    second, v, second_mesh = made("hilbert")
    ml.march(second, steps=3, out=tmp_path / "run", checkpoint=v, restart=True)
    first()
    np.testing.assert_array_equal(u.numpy(), v.numpy())
    assert first_mesh.digest == second_mesh.digest


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_run_that_was_killed_goes_on_to_the_same_bits(tmp_path: Path, back_end: str):
    if back_end != "numpy":
        pytest.skip("one back end shows it")
    text = f"""
import os, signal
import meshloom as ml
from tests.cli.harness import results_below
from tests.run.test_march import Cooling
ml.use("numpy")
one = Cooling()
def dies():
    if one.t.value > 13.5 * one.dt.value:
        os.kill(os.getpid(), signal.SIGKILL)
    return False
ml.march(one.step, until=(one.t, 1.0, one.dt), out={str(tmp_path / "run")!r}, show=one.heat, stop=dies,
         fields=one.u, checkpoint_every=5)
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    whole, one = Cooling(), Cooling()
    for who, folder in ((whole, "whole"), (one, "run")):
        ml.march(who.step, until=(who.t, END, who.dt), out=tmp_path / folder, show=who.heat, fields=who.u, restart=True)
    assert one.bits == whole.bits and contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_lines_where_they_are_asked_for(capfd: Any):
    one = Cooling()
    ml.march(one.step, until=(one.t, END, one.dt), show=one.heat, progress=True)
    out, err = capfd.readouterr()
    assert not out and re.fullmatch(r"iteration 34, time 1\.000/1  heat \S+.*\n", err), err
    ml.march(one.step, stop=one.heat < 300.0, progress=True)
    assert re.match(r"iteration \d+  \n|iteration \d+\b(?!/)", capfd.readouterr().err)


def test_grids_and_calls(tmp_path: Path):
    grid = ml.Grid((5, 4), ghosts=1)
    u, far = grid.field("u", 2, data=1.0), ml.Global(0.0, "far")

    @ml.kernel
    def grow(u: ml.ReadWrite, far: ml.Max):
        u *= 2.0
        far[...] = u[0]

    @ml.program
    def first() -> None:
        far.value = 0.0
        grow(grid, u, far)

    calls: list[int] = []

    def look() -> None:
        calls.append(1)

    @ml.program
    def both() -> None:
        first()
        ml.call(look)

    with one_line_from(UserError, "program both calls look, which does not say .* give writes=.* or checkpoint="):
        ml.march(both, steps=2, out=tmp_path / "run")
    done = ml.march(both, steps=3, show=far, out=tmp_path / "run", fields=u, checkpoint=u)
    assert len(calls) == 3 and done.history["far"].tolist() == [2.0, 4.0, 8.0]
    assert (tmp_path / "run" / "fields_0000003.vti").exists()

    @ml.program
    def saying() -> None:
        first()
        ml.call(look, reads=(), writes=(far,))

    ml.march(saying, steps=2, out=tmp_path / "other")
    assert len(calls) == 5 and (tmp_path / "other" / "checkpoint.h5").exists()


def test_what_is_not_finite_is_found_with_its_loop_step_and_cell(tmp_path: Path):
    """Nothing is shown: the fields themselves are looked at before a checkpoint is written."""
    mesh = ml.generate.box((4, 3))
    u = mesh.cells.field("u", data=np.where(np.arange(12) == 7, 10.0, 1e300))

    @ml.kernel
    def sink(u: ml.ReadWrite):
        u[...] = np.log(u)

    @ml.program
    def step() -> None:
        sink(mesh.cells, u)

    ml.march(step, steps=2, out=tmp_path / "run", checkpoint_every=1)
    saved = (tmp_path / "run" / "checkpoint.h5").read_bytes()
    told = r"with ml.debug\(nan=True\) the kernel's line and what it read are told, too"
    expected = rf"u is NaN in cells element 7 at \(0.875, 0.5\) after loop sink in iteration 4; {told}; the last good"
    with one_line_from(RunError, expected):
        ml.march(step, steps=6, out=tmp_path / "run", restart=True)
    assert (tmp_path / "run" / "checkpoint.h5").read_bytes() == saved
    u.fill(0.5)
    everywhere = rf"u is NaN in cells element 0 .* and 11 more after loop sink in iteration 2; {told}$"
    with one_line_from(RunError, everywhere):
        ml.march(step, steps=6, checkpoint=u)
    u.fill(0.5)
    assert ml.march(step, steps=6, watch=False).steps == 6 and np.isnan(u.numpy()).all()


@ml.kernel
def tenfold(u: ml.ReadWrite, total: ml.Sum):
    u *= 1e10
    total += u


@pytest.mark.parametrize("shows", [False, True])
def test_iterations_after_a_breakdown_are_no_part_of_the_run(tmp_path: Path, shows: bool):
    """Whether a monitor shows it at once, or it is found in the state after a chunk of iterations."""
    cells = ml.Set(4, "cells")
    u, total = cells.field("u", data=1.0), ml.Global(0.0, "total")

    @ml.program
    def step() -> None:
        total.value = 0.0
        tenfold(cells, u, total)

    with one_line_from(RunError, "u is infinite in cells element 0 and 3 more after loop tenfold in iteration 31"):
        ml.march(step, steps=100, show=(total,) if shows else (), out=tmp_path / "run", fields={})
    assert [row["iteration"] for row in rows(tmp_path / "run")] == [str(k) for k in range(1, 31)]
    told = json.loads((tmp_path / "run" / "report.json").read_text())
    assert told["iteration"] <= 30, told["iteration"]


def test_ctrl_c_leaves_a_checkpoint_and_raises(tmp_path: Path):
    one, other = Cooling(), Cooling()
    asked: list[int] = []

    def impatient() -> bool:
        asked.append(1)
        if len(asked) == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return False

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=r"march of step: stopped after step \d+; go on with restart=True") as e:
        ml.march(one.step, steps=10**6, stop=impatient, out=tmp_path / "run")
    done: ml.Done = vars(e.value)["done"]
    assert signal.getsignal(signal.SIGINT) is before and done.why == "signal" and 6 <= done.steps < 10**6
    assert ml.march(other.step, steps=done.steps, out=tmp_path / "run", restart=True).steps == done.steps
    assert other.bits == one.bits


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_signal_that_ends_the_process_ends_it_after_the_checkpoint(tmp_path: Path, back_end: str):
    if back_end != "numpy":
        pytest.skip("one back end shows it")
    text = f"""
import os, signal
import meshloom as ml
ml.use("numpy")
s = ml.Set(3, "s")
u = s.field("u")
@ml.kernel
def count(u: ml.ReadWrite):
    u += 1.0
@ml.program
def step():
    count(s, u)
ml.march(step, steps=10**6, out={str(tmp_path / "run")!r}, every=10,
         stop=lambda: u.numpy()[0] >= 100 and os.kill(os.getpid(), signal.SIGTERM) is not None)
print("not reached")
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGTERM and "not reached" not in ended.stdout, ended.stderr
    assert (tmp_path / "run" / "checkpoint.h5").exists()


@pytest.mark.parametrize(("length", "is_whole"), [(0.01, True), (0.017, False)])
def test_a_march_taken_beyond_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], length: float, is_whole: bool
) -> None:
    """After whole steps, the fields of a march in one go bit for bit; a last step that was shortened is told of."""
    ml.use("numpy")

    @ml.kernel
    def decay(dt: ml.Read, u: ml.ReadWrite):
        u[...] = u - dt * u * u

    @ml.kernel
    def tick(dt: ml.Read, t: ml.ReadWrite):
        t += dt

    def marched(folder: str, *ends: float) -> bytes:
        for end in ends:
            cells, one = ml.Set(7, "cells"), ml.Set(1, "clock")
            u = cells.field("u", data=np.linspace(1.0, 2.0, 7))
            t, dt = ml.Global(0.0, "t"), ml.Global(length, "dt")

            @ml.program
            def step() -> None:
                decay(cells, dt, u)  # noqa: B023
                tick(one, dt, t)  # noqa: B023

            ml.march(step, until=(t, end, dt), out=tmp_path / folder, restart=True, progress=True)
            assert float(t) == end
        return u.numpy().tobytes()

    whole = marched("whole", 0.5)
    assert "shortened" not in capsys.readouterr().err
    assert (marched("half", 0.3, 0.5) == whole) == is_whole
    said = "the last step was shortened to end at t = 0.3: from here on steps are not those of a run to 0.5"
    assert (said in capsys.readouterr().err) == (not is_whole)
