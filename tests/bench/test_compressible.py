"""The benchmark of compressible flow against published figures, on a few cells: its figures, and what is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import compressible, published, record
from bench.cases import make


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path) -> None:
    file = tmp_path / "compressible.json"
    assert compressible.main(["--device", "cpu", "--quick", "--only", "street", "cylinder", "--json", str(file)]) == 0
    street, cylinder = record.load(file)["rows"]
    assert street["steps"] > 3 and street["swing"] > 0.0 and street["strouhal"] == 0.0, "too short for one period"
    assert cylinder["drag"] > 5.0 and cylinder["cells"] == 16 * 12
    lines = compressible.text_lines([record.load(file)])
    assert sum("**missed**" in one for one in lines) == 3


def test_a_frequency_is_that_of_the_last_part() -> None:
    t = np.linspace(0.0, 50.0, 4001)
    wave = 0.3 + np.where(t < 25.0, np.sin(9.0 * t), np.sin(2.0 * np.pi * 0.165 * t))
    assert compressible.frequency(t, wave) == pytest.approx(0.165, rel=1e-4)
    assert compressible.late_mean(t, 2.0 * t) == pytest.approx(80.0, rel=1e-3)
    assert compressible.frequency(t, t) == 0.0


def test_settled_is_from_where_on_a_curve_stays() -> None:
    assert compressible.steady_from(np.array([0.5, 1.0, 2.0, 0.999, 1.002, 1.0])) == 3
    assert compressible.steady_from(np.array([1.0, 1.0])) == 0


def test_what_is_judged() -> None:
    def row(name: str, cells: int, **figures: Any) -> dict[str, Any]:
        return {"name": name, "cells": cells, "steps": 1, "seconds": 1.0} | figures

    rows = [
        row("airfoil, 128 x 48, implicit", 1, lift=0.2, drag=0.1),
        row("airfoil, 256 x 96, implicit", 2, lift=0.35, drag=0.0231),
        row("cylinder, Re 40, Mach 0.1, implicit", 1, drag=1.55, wake=2.0),
        row("cylinder, Re 40, Mach 0.01, implicit", 1, drag=1.6, wake=2.2),
        row("street, Re 100, explicit", 1, strouhal=0.166), row("plate, 68 x 48, implicit", 1, friction=0.0027),
    ]  # fmt: skip
    assert [goal.met for goal in compressible.goals(rows)] == [True, False, True, False, False, True, True]
    assert compressible.beyond(-1.0, (1.0, 2.0)) == float("inf")


class Made(Exception):
    """A case was to be made."""


def test_settings_do_not_go_by_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four hundred steps of the other method would be another flow: each row says which it takes."""

    def make(name: str, *settings: str) -> Any:
        raise Made(settings)

    monkeypatch.setattr(compressible, "make", make)
    for quick in (True, False):
        for name, run in (one for rows in compressible.work(quick).values() for one in rows):
            with pytest.raises(Made) as made:
                run()
            method = "explicit" if name.startswith("street") else "implicit"
            assert f"time.method={method}" in made.value.args[0] and name.endswith(f", {method}"), name


def test_rows_are_told_and_the_latest_counts() -> None:
    row = {"name": "plate", "cells": 12, "steps": 3, "friction": 0.002713, "y_plus": [1.0], "found": {"u": 1}}
    assert published.line_of(row) == "plate: 12 cells, 3 steps, friction 0.002713; {'u': 1}"
    assert published.latest([{"rows": [row, {"name": "wing"}]}, {"rows": [row | {"cells": 13}]}]) == [
        row | {"cells": 13}, {"name": "wing"}]  # fmt: skip


@pytest.mark.slow
def test_sections_of_a_wing_are_drawn_beside_the_taps(tmp_path: Path) -> None:
    case = make("onera_m6", "mesh.cells=3000", "time.method=explicit", "time.cfl=0.1")
    sections = compressible.sections_of(case)
    assert list(sections) == ["20", "44", "65", "80", "90", "96", "99"]
    assert all(np.all(np.diff(one["x"]) >= 0.0) and len(one["x"]) == len(one["cp"]) > 10 for one in sections.values())
    assert min(sections["44"]["x"]) >= 0.0 and max(sections["44"]["x"]) <= 1.0
    row = {"name": "wing, Euler, level 1, implicit", "cells": 3000, "sections": sections}
    compressible.draw([{"name": "airfoil"}, row], tmp_path / "wing.png")
    assert (tmp_path / "wing.png").stat().st_size > 20_000
    with pytest.raises(SystemExit, match="no row of these results is a wing"):
        compressible.draw([{"name": "airfoil"}], tmp_path / "none.png")
    with pytest.raises(SystemExit):
        compressible.main(["--draw", "wing.png"])


def test_a_wing_is_judged_by_means_over_a_swing_and_tells_how_single_steps_swing() -> None:
    steps = np.arange(400)
    lift = 0.3 * (1.0 - np.exp(-steps / 30.0))
    drag = 0.02 * (1.0 + 0.03 * np.sin(2.0 * np.pi * steps / 25.0))
    history = {"lift": lift.tolist(), "drag": drag.tolist()}
    at = compressible.steps_to_engineering(history)
    assert 150 < at < 250 and compressible.swings(history)["drag"] == pytest.approx(0.03, rel=0.05)
    row = {"name": "wing, Euler, level 3", "history": history, "steps": 400, "made_in": 20.0, "seconds": 100.0}
    whole, lift_swings, drag_swings = compressible.goals([row])
    assert whole.met and whole.value == 120.0 and f"from step {at} on" in whole.text
    assert lift_swings.met and not drag_swings.met and drag_swings.value == pytest.approx(0.03, rel=0.05)
    assert compressible.steps_to_engineering({"lift": [1.0, 2.0], "drag": [1.0, 1.0]}) == 2
