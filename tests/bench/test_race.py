"""The race on a mesh too small to measure anything, with emulated CUDA in place of a device."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import meshloom as ml
from bench import counted, race, record
from bench.race_loop import Choices, Data, Device, wished
from tests.bench.devices import Emulated

SMALL = ["--i", "8", "--j", "6", "--blocks", "32", "--precisions", "float64", "--layouts", "aos"]


def run(file: Path, *more: str, device: Device | None = None) -> dict[str, Any]:
    assert race.main([*SMALL, "--json", str(file), *more], device or Emulated()) == 0
    return record.load(file)


def test_a_whole_race(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orders = ["given", "random", "hilbert", "rcm", "gps", "rcb", "greedy"]
    result = run(tmp_path / "race.json", "--orders", *orders, "--strategies", "auto", "owner", "color")
    assert [o for o in result["orders"] if result["orders"][o]["complete"]] == orders
    assert all(result["orders"][o]["seconds"] >= 0 and result["orders"][o]["copy_GBps"] > 0 for o in orders)
    assert [r["order"] for r in result["variants"]] == [o for o in orders for _ in range(4)]
    for row in result["variants"]:
        assert row["ms"] > 0 and row["error"] < 1e-13 and row["reuse"] >= 1 and row["lines_per_block"] > 0
    blocks = [(r["block_colors"], r["thread_colors"]) for r in result["variants"] if r["block"] == 32]
    assert len(blocks) == 3 * len(orders) and min(min(colors) for colors in blocks) > 1
    assert {"date", "machine", "versions", "mesh"} <= set(result) and "stopped" not in result
    shown = capsys.readouterr().out
    assert shown.count(" of copy  occupancy") == len(result["variants"]) and "given, float64" in shown


@pytest.mark.slow
def test_every_layout_and_precision(tmp_path: Path) -> None:
    result = run(tmp_path / "race.json", "--orders", "given", "--strategies", "tile", "--layouts", "aos", "soa",
                 "aosoa8", "--precisions", "float64", "float32")  # fmt: skip
    assert len({(r["precision"], r["layout"]) for r in result["variants"] if r["ms"] > 0}) == 6


def test_an_ordering_that_is_missing_is_declined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(mesh: ml.Mesh, name: str) -> ml.Mesh:
        raise ml.errors.ScheduleError("ordering 'kaminpar' needs it: pip install it")

    monkeypatch.setattr(ml.Mesh, "reordered", refuse)
    result = run(tmp_path / "race.json", "--orders", "kaminpar", "given", "--strategies", "owner")
    assert "pip install" in result["orders"]["kaminpar"]["declined"]
    assert [r["order"] for r in result["variants"]] == ["given"]


@pytest.mark.slow
def test_time_that_is_up_keeps_what_is_there_and_a_later_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = [0.0]  # on a clock that goes on where something is measured, and nowhere else

    class Slow(Emulated):
        def seconds(self, run: Callable[[], Any]) -> float:
            passed[0] += 2.0
            return super().seconds(run)

    monkeypatch.setattr(race, "time", SimpleNamespace(monotonic=lambda: passed[0], perf_counter=time.perf_counter))
    file = tmp_path / "race.json"
    first = run(file, "--orders", "given", "rcm", "--strategies", "owner", "atomic", "--seconds", "1.0", device=Slow())
    assert "--seconds" in first["stopped"] and len(first["variants"]) == 1 and not first["orders"]["given"]["complete"]
    second = run(file, "--orders", "given", "--strategies", "owner", "atomic", "--resume")
    assert "stopped" not in second and len(second["variants"]) == 2 and len(second["resumed"]) == 1
    third = run(file, "--orders", "given", "rcm", "--strategies", "owner", "atomic", "--resume")
    assert third["variants"][:2] == second["variants"] and [r["order"] for r in third["variants"][2:]] == ["rcm"] * 2


def test_a_file_of_another_mesh_is_not_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "race.json"
    run(file, "--orders", "given", "--strategies", "owner")
    assert race.main(["--i", "4", "--j", "4", "--json", str(file), "--resume"], Emulated()) == 2
    assert "144 cells" in capsys.readouterr().err


def test_a_crash_leaves_the_finished_groups_in_the_file(tmp_path: Path) -> None:
    class Broken(Emulated):
        left = 3

        def seconds(self, run: Callable[[], Any]) -> float:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("the device fell off the bus")
            return super().seconds(run)

    file = tmp_path / "race.json"
    with pytest.raises(RuntimeError, match="bus"):
        run(file, "--orders", "given", "random", "--strategies", "owner", "atomic", device=Broken())
    assert [r["order"] for r in record.load(file)["variants"]] == ["given", "given", "random"]


def test_a_signal_ends_it_as_ctrl_c_does(tmp_path: Path) -> None:
    class Terminated(Emulated):
        def seconds(self, run: Callable[[], Any]) -> float:
            os.kill(os.getpid(), signal.SIGTERM)
            return super().seconds(run)

    result = run(tmp_path / "race.json", "--orders", "given", "--strategies", "owner", device=Terminated())
    assert result["stopped"] == "by SIGTERM" and result["variants"] == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_wrong_result_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(Emulated):
        def checker(self, data: Data) -> Callable[[], float]:
            return lambda: float("nan")

    file = tmp_path / "race.json"
    assert race.main([*SMALL, "--orders", "given", "--strategies", "owner", "--json", str(file)], Wrong()) == 1
    assert "WRONG" in race.line_of(record.load(file)["variants"][0])


def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if ml.backends()["cuda"] is None:
        pytest.skip("there is a device")
    assert race.main([]) == 2
    assert capsys.readouterr().err.startswith("bench.race needs a CUDA device: ")


def test_a_row_tells_the_schedule_that_it_asked_for() -> None:
    choices = Choices(("float64",), ("aos",), ("auto", *ml.strategies()), (32, 64), (0, 64))
    from bench.race_loop import wish_entries

    wishes = list(choices.wishes())
    assert len(wishes) >= 1 + 4 * len(ml.strategies())
    assert [wished(wish_entries(w)) for w in wishes] == wishes


def test_the_counted_process_launches_each_row(tmp_path: Path) -> None:
    rows = [{"precision": "float64", "layout": "aos", "strategy": s, "variant": "plain", "block": 32, "cap": None}
            for s in ("color", "staged", "owner")]  # fmt: skip
    job, done = tmp_path / "job.json", tmp_path / "done.json"
    job.write_text(json.dumps({"mesh": {"i": 8, "j": 6}, "order": "rcm", "rows": rows}))
    assert counted.main([str(job), str(done)], Emulated()) == 0
    colors, staged, owner = json.loads(done.read_text())
    assert colors >= 4 and (staged, owner) == (2, 1)
