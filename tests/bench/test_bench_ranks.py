"""bench.ranks starts ranks next to threads, and writes a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench import ranks
from bench.node_memory import memory_mb, watch


@pytest.mark.slow
def test_a_quick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "CASES", {2: {"airfoil": ("airfoil", ("mesh.i=8", "mesh.j=12"), 2)}})
    file = tmp_path / "ranks.json"
    assert ranks.main(["--device", "numpy", "--only", "airfoil", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert [(r["ranks"], r["threads"], r["reproducible"]) for r in result["rows"]] == [
        (n, t, same) for n, t in ranks.WAYS[2] for same in (True, False)
    ]
    assert all(r["ms"] > 0.0 and len(r["seconds"]) == ranks.TIMINGS for r in result["rows"]), result["rows"]
    assert all(r["node_set_up_mb"] > 0.5 * r["ranks"] * r["after_set_up_mb"] for r in result["rows"]), result["rows"]
    assert [one["limit"] for one in result["goals"]] == [1.05, 1.85, 1.1, 1.1]
    assert "airfoil, 2 x 1, same bits True" in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_made_ready_is_told_of_one_rank_and_of_four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "CUT", ("airfoil", ("mesh.i=40", "mesh.j=60"), 0))
    file = tmp_path / "ranks.json"
    assert ranks.main(["--device", "numpy", "--only", "ready", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert [(r["case"], r["ranks"]) for r in result["rows"]] == [(ranks.READY, 1), (ranks.READY, 4)]
    assert all(r["cut_seconds"] > 0.0 and r["after_set_up_mb"] > 0.0 for r in result["rows"]), result["rows"]
    assert [one["limit"] for one in result["goals"]] == [0.35, 2.0, ranks.CUT_SECONDS]
    assert not any("problem" in r for r in result["rows"]) and ranks.text_lines(result)


def test_without_a_launcher(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "launcher", lambda: None)
    assert ranks.main([]) == 2
    assert "needs mpirun" in capsys.readouterr().err


def test_neither_mode_is_always_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is the same must get the same row, even where whatever runs first is slower."""
    order: list[bool] = []

    def timed(_way: object, _device: str, same: bool, _case: object) -> dict[str, object]:
        order.append(same)
        return {"reproducible": same, "ms": 1.2 if len(order) == 1 else 1.0}

    monkeypatch.setattr(ranks, "timed", timed)
    rows = ranks.compared((1, 2), "cpu", ("stencil", ("192",), 5))
    assert order == [True, False, False, True] and [r["ms"] for r in rows] == [1.0, 1.0]
    assert [r["reproducible"] for r in rows] == [True, False]


def test_a_row_that_fails_is_a_row() -> None:
    row = ranks.timed((1, 1), "numpy", True, ("airfoil", ("mesh.i=none",), 1))
    assert "mesh.i" in row["problem"] and "ms" not in row
    assert ranks.goals([row], "numpy") == []


def test_memory_of_a_node_is_what_it_is_at_most() -> None:
    most = watch([os.getpid()])
    assert most() > 0.9 * memory_mb() > 0.0
    assert watch([0])() == 0.0, "there is none any more"


def test_set_up_of_four_ranks_is_compared_with_one() -> None:
    """Earlier files do not tell the memory of the node."""
    known = {"case": "airfoil", "threads": 1, "reproducible": True, "after_set_up_mb": 2.0, "set_up_seconds": 3.0}
    rows = [known | {"ranks": n} for n in (1, 4)]
    assert [one.limit for one in ranks.goals(rows, "cpu")] == [0.35, 1.5]
    rows = [one | {"node_set_up_mb": 100.0 * one["ranks"] ** 0.5} for one in rows]
    (of_node,) = [one for one in ranks.goals(rows, "cpu") if "node" in one.text]
    assert (of_node.text, of_node.value, of_node.limit, of_node.met) == (
        "airfoil, memory of the node during set-up, 4 ranks over 1", 2.0, 2.0, True
    )
