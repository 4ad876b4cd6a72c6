"""Where the time of a run goes: rows add up, bytes and calls are those of the loops, and nothing is made up."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.cpu import CpuBackend
from meshloom.errors import RunError
from meshloom.operation.program import MOST_TAPES
from meshloom.run.times import REST, LoopTime, RunTimes, TimeTable, as_text
from tests.run.scripted import Hot


@ml.kernel
def flow(u: ml.Read, gain: ml.Inc):
    heat = 0.1 * (u[0] - u[1])
    gain[0] -= heat
    gain[1] += heat


@ml.kernel
def add(gain: ml.Read, u: ml.ReadWrite, total: ml.Sum):
    u[...] = u + gain
    total += u


def conduction() -> tuple[ml.Program, ml.Field]:
    mesh = ml.generate.box((12, 9))
    u, gain, total = mesh.cells.field("u", data=np.arange(108.0)), mesh.cells.field("gain"), ml.Global(0.0, "total")

    @ml.program
    def conduct() -> None:
        gain.fill(0.0)
        flow(mesh.faces, u[mesh.face_cells], gain[mesh.face_cells])
        total.value = 0.0
        add(mesh.cells, gain, u, total)

    return conduct, u


def timed(program: Any, chunks: tuple[int, ...], measured: bool = False) -> TimeTable:
    times = RunTimes(program)
    for count in chunks:
        times.done(count, _seconds(program, count))
    found = times.table(measured=measured)
    assert found is not None
    return found


def _seconds(program: Any, count: int) -> float:
    before = time.perf_counter()
    program.run(count)
    return time.perf_counter() - before


def check_sums(table: TimeTable) -> None:
    assert sum(row.seconds for row in table.rows) == pytest.approx(table.seconds)
    assert all(row.seconds > 0.0 for row in table.rows)


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated"])
def test_loops_of_a_program(backend: str):
    with ml.using(backend):
        program, _ = conduction()
        program.run(3)  # before the run: not counted
        table = timed(program, (1, 5, 4))
        steps = program.steps
    check_sums(table)
    loops = [row for row in table.rows if row.name != REST]
    assert {row.calls for row in loops} == {9}, "the first chunk is not counted"
    assert table.copy is None and "first iteration" in table.unit
    by_name = {loop.name: loop for loop in program.loops}
    if backend == "numpy":
        assert {row.name for row in loops} == set(by_name) and "by itself" in table.unit
        for row in loops:
            assert (row.bytes, row.flops) == (by_name[row.name].compulsory, by_name[row.name].flops)
    else:
        assert sorted(row.name for row in loops) == sorted(step.name for step in steps)
        assert sum(row.bytes or 0.0 for row in loops) == sum(step.compulsory for step in steps)


def test_fused_loops_are_one_row():
    with ml.using("emulated"):
        program, _ = conduction()
        table = timed(program, (1, 2))
    (fused,) = [row for row in table.rows if "+" in row.name]
    assert "2 loops as one over cells" in fused.what and "became one" in table.unit


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_functions_that_are_called_have_rows(backend: str):
    with ml.using(backend):
        first, u = conduction()
        other, _ = conduction()
        other.name = "other"

        def solve() -> float:
            return float(np.linalg.norm(u.numpy()))

        @ml.program
        def both() -> None:
            first()
            ml.call(solve)
            other()

        table = timed(both, (1, 6))
    check_sums(table)
    (row,) = [one for one in table.rows if one.name == "solve"]
    assert row.calls == 6 and row.bytes is None and row.rate is None and "as a whole" in table.unit
    assert {one.calls for one in table.rows if one.name != REST} == {6}
    assert len([one for one in table.rows if one.calls]) > 2, "what is between is timed loop by loop"


@pytest.mark.parametrize(("backend", "held"), [("numpy", False), ("numpy", True), ("cpu", False)])
def test_what_is_no_longer_recorded_is_counted(backend: str, held: bool):
    """A program for many Python values keeps the recordings of a few, and the times of all; ``held``: a loop that is
    recorded again and again is counted once."""
    with ml.using(backend):
        cells = ml.Set(20, "cells")
        u, steps = cells.field("u"), {"power": 0}
        loops = [one.loop(cells, u) for one in (shift, stretch)]

        @ml.program
        def step() -> None:
            loops[0]() if held else shift(cells, u)
            for _ in range(steps["power"]):
                loops[1]() if held else stretch(cells, u)

        def next_power() -> None:
            steps["power"] = (steps["power"] + 1) % 7

        program = ml.program(lambda: (ml.call(next_power), step()))
        program.run(9)  # before the run: not counted
        times = RunTimes(program)
        for count in (1, 8, 12):
            times.done(count, _seconds(program, count))
        table = times.table(measured=False)
        assert table is not None and len(program._tapes) == MOST_TAPES
    check_sums(table)
    counted = {name: sum(row.calls for row in table.rows if name in row.name) for name in ("shift", "stretch")}
    powers = [(k + 1) % 7 for k in range(10, 30)]
    if backend == "numpy":
        assert counted == {"shift": 20, "stretch": sum(powers)}
    else:
        assert counted["shift"] == 20, "however they are fused"


@ml.kernel
def shift(u: ml.ReadWrite):
    u += 1.0


@ml.kernel
def stretch(u: ml.ReadWrite):
    u *= 0.5


def test_only_one_iteration_is_better_than_nothing():
    with ml.using("numpy"):
        program = Hot().step
        table = timed(program, (1,))
        assert RunTimes(program).table(measured=False) is None
    assert "no second iteration" in table.unit and {row.calls for row in table.rows if row.name != REST} == {1}


def test_a_graph_is_one_row(monkeypatch: pytest.MonkeyPatch):
    """As on a device, where single operations have no time."""
    with ml.using("emulated"):
        program, _ = conduction()
        program.run(1)
        monkeypatch.setattr(type(program), "timed", lambda self: [])
        table, moved = timed(program, (1, 4)), sum(step.compulsory for step in program.steps)
    (row,) = table.rows
    assert row.name == "conduct" and row.calls == 4 and row.seconds == table.seconds and "one graph" in row.what
    assert row.bytes == moved and "unit of time" in table.unit


def test_the_limit_is_measured_when_asked_for(monkeypatch: pytest.MonkeyPatch):
    with ml.using("cpu"):
        program, _ = conduction()
        monkeypatch.setattr(CpuBackend, "copy_bandwidth", lambda self: 1e9, raising=False)
        monkeypatch.setattr(CpuBackend, "rate", lambda self, kind, dtype: 1e15)
        table = timed(program, (1, 3), measured=True)
    assert table.copy == 1e9
    row = table.rows[0]
    assert row.bytes is not None and table.of_copy(row) == pytest.approx(row.bytes * 3 / row.seconds / 1e9)
    assert table.of_limit(row) == pytest.approx(table.of_copy(row)) and row.binds == "bytes"


def test_what_computes_more_than_it_moves_is_bound_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the steps' limit is one thing, half another: the longer one is named, both count."""
    points = ml.Set(64, "points")
    u, v = points.field("u", data=2.0), points.field("v")

    @ml.kernel
    def rooted(u: ml.Read, v: ml.Write):
        x = u
        for _ in range(5):
            x = np.sqrt(x) + 1.5
        v[...] = x

    monkeypatch.setattr(CpuBackend, "copy_bandwidth", lambda self: 1e9)
    monkeypatch.setattr(CpuBackend, "rate", lambda self, kind, dtype: {"square root": 1e6}.get(kind))
    with ml.using("cpu"):
        limit = rooted.loop(points, u, v).limit
        table = timed(ml.Program(lambda: rooted(points, u, v)), (1, 3), measured=True)
    assert limit.parts == pytest.approx({"bytes": 64 * 16 / 1e9, "arithmetic": 5 * 64 / 1e6})
    assert (limit.binds, limit.words) == ("arithmetic", "arithmetic (square root)")
    (row, *_) = table.rows
    assert row.limit == pytest.approx(5 * 64 / 1e6) and row.binds == "arithmetic (square root)"


def test_in_words():
    limited = LoopTime("a" * 60, "loop over cells", 1.5, 3, 2e9, 1e9, limit=0.25, binds="bytes")
    rows = (limited, LoopTime("solve", "function", 0.5, 3))
    known = as_text(TimeTable(2.0, rows, "A row is a loop by itself.", 8e9)).splitlines()
    assert known[1].split() == [
        "loop",
        "seconds",
        "share",
        "calls",
        "ms",
        "each",
        "MB",
        "each",
        "GB/s",
        "GFlop/s",
        "of",
        "limit",
        "by",
    ]
    assert known[2].split()[1:] == ["1.500", "75.0", "%", "3", "500", "2000", "4", "2", "0.50", "bytes"]
    assert known[3].split() == ["solve", "0.500", "25.0", "%", "3", "166.7"] and "8 GB/s" in known[-1]
    assert "not measured" in as_text(TimeTable(2.0, rows, "", None)) and max(map(len, known[1:4])) <= 120
    table = TimeTable(2.0, rows, "x", None)
    assert TimeTable.from_json(json.loads(json.dumps(asdict(table)))) == table


def test_march_keeps_the_times(tmp_path: Path):
    with ml.using("numpy"):
        one = Hot()
        ml.march(one.step, steps=30, out=tmp_path / "a")
    found = json.loads((tmp_path / "a" / "report.json").read_text())["times"]
    assert {row["name"]: row["calls"] for row in found["rows"]}["warm"] == 29


def test_a_script_asks_for_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same table as on the command line, with the limit measured; printed unless nothing is to be."""
    monkeypatch.setattr(CpuBackend, "copy_bandwidth", lambda self: 8e9)
    with ml.using("cpu"):
        hot = Hot()
        done = ml.march(hot.step, steps=7, out=tmp_path / "a", profile=True)
        assert done.times is not None and done.times.copy == 8e9 and done.times.of_limit(done.times.rows[0]) is not None
        assert capsys.readouterr().out == f"{as_text(done.times)}\n" == f"{done.times}\n"
        assert '"of limit"' in str(done.times)
        assert "All that the loops say of themselves" in (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
        silent = ml.march(hot.step, steps=7, profile=True, progress=False)
        assert capsys.readouterr().out == "" and silent.times is not None and silent.times.copy == 8e9
        plain = ml.march(hot.step, steps=7)
        assert capsys.readouterr().out == "" and plain.times is not None and plain.times.copy is None
        over = ml.march(hot.step, steps=7, out=tmp_path / "a", restart=True, profile=True)
        assert over.times is None and capsys.readouterr().out == "time by loop: there was no iteration\n"


def test_a_broken_run_prints_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    hot = Hot()
    with pytest.raises(RunError, match=r"not finite|inf"):
        ml.march(hot.step, steps=9, stop=hot.breaks(3), show=(hot.heat,), profile=True)
    assert capsys.readouterr().out == ""
