"""The benchmark of incompressible flow against published figures, on a few cells: its figures, and what is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import incompressible, record


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path) -> None:
    file = tmp_path / "incompressible.json"
    assert incompressible.main(["--device", "cpu", "--quick", "--only", "cavity", "--json", str(file)]) == 0
    (row,) = record.load(file)["rows"]
    assert row["name"] == "cavity, Re 100" and row["monitors"]["change"] < 1e-6
    assert 0.02 < row["off_ghia"] < 0.1, "eight cells are too few for more"
    assert row["found"]["v_min"] == pytest.approx(row["monitors"]["v_min"], abs=0.02)
    lines = incompressible.text_lines([record.load(file)])
    assert sum("**missed**" in one for one in lines) == 1 and sum("| met |" in one for one in lines) == 1


def test_the_peak_of_a_parabola_is_exact_and_of_a_slope_its_end() -> None:
    x = np.array([0.0, 0.1, 0.25, 0.5, 0.6])
    assert incompressible.peak(x, 2.0 - (x - 0.3) ** 2) == pytest.approx(2.0, abs=1e-12)
    assert incompressible.peak(x, x) == 0.6


def test_what_is_judged() -> None:
    def row(name: str, **figures: Any) -> dict[str, Any]:
        return {"name": name, "divergence": 1e-15} | figures

    rows = [row("cavity, Re 1000", off_ghia=0.02, off_botella_peyret=0.004), row("step, Re 100", off_erturk=0.031)]
    found = {goal.text: goal.met for goal in incompressible.goals(rows)}
    assert list(found.values()) == [True, False, True, True] and not any(
        "Re 1000: largest difference to Ghia" in one for one in found
    )
    assert "0.020 speeds of the lid away" in incompressible.text_lines([{"rows": rows}])[-1]
