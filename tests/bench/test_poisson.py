"""The benchmark of Poisson solvers on a few cells: figures that fit together, and checks that find mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench import poisson, record


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poisson, "TRIED", (2, 4))
    monkeypatch.setattr(poisson, "MOST_ON_CORES", {2: 150})
    file, names = tmp_path / "poisson.json", ["fast", "multigrid cg", "cg", "CuPy cg", "SciPy cg"]
    assert (
        poisson.main(["--device", "cpu", "--sides", "12", "13", "--cubes", "--only", *names, "--json", str(file)]) == 0
    )
    result = record.load(file)
    rows = result["rows"]
    assert [(row["method"], row["periodic"], row["stretched"]) for row in rows[:9]] == [
        *((name, False, False) for name in names), ("fast", True, False), ("multigrid cg", True, False),
        ("fast", False, True), ("multigrid cg", False, True)]  # fmt: skip
    timed = [row for row in rows if "s" in row]
    assert all(row["residual"] <= poisson.TOL * 1.01 and row["iterations"] >= 1 for row in timed)
    for row in timed:
        share = row["bytes_per_cell"] * row["shape"][0] ** 2 / row["s"] / (result["copy_GBps"] * 1e9)
        assert row["share_of_copy"] == pytest.approx(share)
    not_run = {(row["shape"][0], row["method"]): row["not_run"] for row in rows if "s" not in row}
    assert not_run == {(12, "CuPy cg"): "needs a GPU", (13, "CuPy cg"): "needs a GPU",
                       (13, "SciPy cg"): "too large for the cores"}  # fmt: skip
    cg, scipy = (next(row for row in rows if row["method"] == name) for name in ("cg", "SciPy cg"))
    assert abs(cg["iterations"] - scipy["iterations"]) <= 1
    lines = poisson.text_lines(result)
    assert sum(line.startswith("| 12 x 12 |") for line in lines) == 5
    assert sum("most iterations" in line for line in lines) == 2


def test_a_row_that_takes_too_long_is_cut_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("numpy")
    monkeypatch.setattr(poisson, "TRIED", (2, 4))
    monkeypatch.setattr(poisson, "LONGEST", 1e-6)
    row = poisson.measured("cg", poisson.Problem((15, 15)), poisson.Cpu(), 1e9)
    assert row["not_run"] == "more than 0 s" and "s" not in row


def test_a_wrong_solution_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("numpy")

    class Liar(poisson.Direct):
        def solve(self, most: int | None) -> bool:
            done = super().solve(most)
            self.x.assign(self.x.numpy() * (1.0 + 1e-6))
            return done

    def make(problem: poisson.Problem) -> Any:
        return Liar(problem, ml.linalg.FastPoisson(problem.poisson))

    monkeypatch.setitem(poisson.METHODS, "fast", make)
    assert poisson.measured("fast", poisson.Problem((9, 9)), poisson.Cpu(), 1e9)["wrong"] > 1e-7


@pytest.mark.parametrize("stretched", [False, True])
def test_the_problem_is_what_it_says(stretched: bool) -> None:
    ml.use("numpy")
    problem = poisson.Problem((9, 9), stretched=stretched)
    widths = problem.poisson.axes[0].widths
    assert widths.max() / widths.min() == pytest.approx(100.0 if stretched else 1.0)
    matrix = problem.matrix
    assert abs(matrix - matrix.T).max() < 1e-12 * abs(matrix).max()
    assert np.linalg.eigvalsh(matrix.toarray()).min() > 0.0


def test_goals_are_those_of_the_sizes_they_name() -> None:
    def row(method: str, shape: list[int], seconds: float, iterations: int = 9, **more: Any) -> dict[str, Any]:
        return {"method": method, "shape": shape, "stretched": False, "periodic": False, "s": seconds,
                "iterations": iterations} | more  # fmt: skip

    rows = [row("fast", [512] * 3, 1.0, share_of_copy=0.5, periodic=True), row("CuPy cg", [2048] * 2, 6.0),
            row("piccg stencil", [2048] * 2, 1.0), row("piccg general", [2048] * 2, 3.0),
            row("piccg stencil", [256] * 2, 1e-9), row("multigrid cg", [256] * 2, 1.0, 13),
            row("multigrid cg", [256] * 2, 1.0, 20, stretched=True)]  # fmt: skip
    assert [(goal.value, goal.met) for goal in poisson.goals(rows)] == [
        (0.5, False), (13, False), (20, True), (6.0, True), (2.0, False)]  # fmt: skip
