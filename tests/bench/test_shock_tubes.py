"""Tubes of gas: what is beyond exact bounds, what breaks down, and how both are told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench import shock_tubes


def test_what_is_beyond_the_exact_bounds_is_a_share_of_the_largest() -> None:
    bounds = shock_tubes.exact_density("lax", np.linspace(0.0, 1.0, 10_001))
    low, high = bounds.min(), bounds.max()
    assert shock_tubes.beyond("lax", np.array([low, high])) == pytest.approx(0.0, abs=1e-12)
    assert shock_tubes.beyond("lax", np.array([low, 1.1 * high])) == pytest.approx(0.1)
    assert shock_tubes.beyond("lax", np.array([low - 0.2 * high, high])) == pytest.approx(0.2)
    assert shock_tubes.beyond("lax", np.array([0.5 * (low + high)])) < 0.0


@pytest.mark.parametrize(("kind", "cells"), [("quad", 20), ("triangle", 40), ("mixed", 30)])
def test_strips_cover_the_tube(kind: str, cells: int) -> None:
    mesh = shock_tubes.strip(kind, 10)
    assert mesh.cells.size == cells and mesh.cell_volumes.sum() == pytest.approx(0.2)
    exact = shock_tubes.exact_density("toro 1", mesh.cell_centroids[:, 0])
    assert shock_tubes.mean_error("toro 1", mesh, exact) == 0.0
    assert shock_tubes.mean_error("toro 1", mesh, exact + 0.1 * exact.max()) == pytest.approx(0.1)


def test_every_tube_on_every_strip_has_a_cell_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(tube: str, kind: str, scheme: object, n: int) -> tuple[object, np.ndarray]:
        if (tube, kind) == ("toro 3", "mixed"):
            raise shock_tubes.BrokenDown("at time 0.1")
        mesh = shock_tubes.strip(kind, n)
        return mesh, shock_tubes.exact_density(tube, mesh.cell_centroids[:, 0])

    monkeypatch.setattr(shock_tubes, "burst", burst)
    assert shock_tubes.main(["--cells", "4", "--only", "strong", "--json", str(tmp_path / "found.json")]) == 0
    result = json.loads((tmp_path / "found.json").read_text())
    assert len(result["rows"]) == len(shock_tubes.TUBES) * len(shock_tubes.KINDS) and result["quick"]
    head, _, *rows = shock_tubes.text_lines(result)
    assert len(rows) == len(shock_tubes.TUBES) and "strong, mixed" in head
    assert rows[2].startswith("| Toro 3 | inside (0.0 %) | inside (0.0 %) | breaks down |")
