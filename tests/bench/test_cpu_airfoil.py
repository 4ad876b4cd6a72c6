"""The benchmark runs, on a mesh too small to measure anything, and writes a whole result."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import cpu_airfoil, measure, record, report
from bench.measure import fastest, repetitions
from bench.report import Goal


@pytest.mark.slow
def test_quick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    assert cpu_airfoil.main(["--quick", "--json", str(path)]) == 0
    result = record.load(path)
    assert result["mesh"]["cells"] == 3 * 8 * 12
    assert result["step"]["agreement"] < 1e-10
    assert set(result["step"]["best"]) >= {"Meshloom", "C++ block coloring", "C++ gather", "C++ fused", "NumPy"}
    assert all(taken > 0 for taken in result["step"]["seconds"].values())
    assert {"date", "machine", "versions", "schedules", "overheads", "starts", "memory", "plans"} <= set(result)
    assert len(result["goals"]) >= 9 and all(isinstance(goal["met"], bool) for goal in result["goals"])
    shown = capsys.readouterr().out
    assert "Goals" in shown and "res_calc by strategy" in shown
    for goal in report.goals(result):
        assert f"| {goal.text} | {goal.aim()} | {goal.figure()} |" in report.markdown(result)


def test_goal_knows_its_sense() -> None:
    assert Goal("a", 1.0, "at most", 1.05).met and not Goal("a", 1.1, "at most", 1.05).met
    assert Goal("a", 21.0, "at least", 20.0).met and not Goal("a", 19.0, "at least", 20.0).met
    assert Goal("a", 1.234, "at most", 15.0, " µs").figure() == "1.23 µs"


def test_fastest_takes_turns_and_the_minimum() -> None:
    calls: list[str] = []
    times = fastest({"a": lambda n: calls.append("a"), "b": lambda n: calls.append("b")}, rounds=3, target=1e-7)
    assert calls[-6:] == ["a", "b"] * 3
    assert 0 <= times["a"] < 1e-3


def test_repetitions_fill_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes as fast as the work does."""
    clock = [0.0]
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def work(n: int) -> None:
        clock[0] += 0.001 * n

    assert repetitions(work, 0.05) == 50
