"""The benchmark of conjugate gradients on a few points: figures that fit together, and a check that finds a mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from bench import krylov, record


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(krylov, "ITERATIONS", (2, 12))
    file = tmp_path / "krylov.json"
    assert krylov.main(["--device", "cpu", "--sides", "12", "--json", str(file)]) == 0
    result = record.load(file)
    assert [row["kind"] for row in result["rows"]] == ["grid", "formula", "map", "SciPy's cg, CSR"]
    grid, formula = result["rows"][:2]
    assert formula["bytes"] == 8 * 11 * 144 and grid["bytes"] > formula["bytes"] + 8 * 5 * 144 - 1
    assert grid["share_of_copy"] == pytest.approx(grid["bytes"] / grid["ms"] * 1e3 / (result["copy_GBps"] * 1e9))
    assert sum(line.startswith("| 12 x 12 |") for line in krylov.text_lines(result)) == 4
    assert "WRONG" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["grid", "formula", "map"])
def test_the_three_forms_are_one_matrix(kind: str) -> None:
    ml.use("numpy")
    problem, matrix = krylov.Problem(kind, 9), krylov.poisson(9)
    x = np.random.default_rng(3).random(81)
    problem.x.assign(x.reshape(problem.x.numpy().shape))
    y = problem.x.like("y")
    problem.operator(problem.x, y)
    np.testing.assert_allclose(y.numpy().reshape(-1), matrix @ x, rtol=1e-13)


def test_the_check_finds_a_wrong_solution() -> None:
    ml.use("numpy")
    problem, matrix = krylov.Problem("grid", 9), krylov.poisson(9)
    report = problem.solve(5)
    assert problem.residual(np, matrix) == pytest.approx(report.residual, rel=1e-9)
    problem.x.assign(problem.x.numpy() * (1.0 + 1e-6))
    assert abs(problem.residual(np, matrix) / report.residual - 1.0) > 1e-9


def test_the_goal_is_that_of_the_large_grid() -> None:
    rows = [{"kind": kind, "side": side, "ms": 1.0, "share_of_copy": share}
            for kind, side, share in (("grid", 4096, 0.79), ("grid", 64, 0.9), ("map", 4096, 0.9))]  # fmt: skip
    assert [(goal.value, goal.met) for goal in krylov.goals(rows)] == [(0.79, False)]
