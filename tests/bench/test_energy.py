"""Kinetic energy of vortices: what is measured, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import meshloom as ml
from bench import energy


@pytest.mark.slow
def test_every_run_has_a_row_with_its_energies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ml, "use", lambda *given, **options: None)  # what is compiled is no matter
    monkeypatch.setattr(energy, "CELLS", (6, 6))
    monkeypatch.setattr(energy, "ROWS", (energy.ROWS[0], energy.ROWS[-1]))
    with ml.using("numpy"):
        assert energy.main(["--end", "0.5", "--json", str(tmp_path / "found.json")]) == 0
    result = json.loads((tmp_path / "found.json").read_text())
    staggered, collocated = result["rows"]
    assert result["quick"] and (staggered["steps"], collocated["steps"]) == (2, 10)
    assert staggered["energy_at_start"] == pytest.approx(0.25) and abs(staggered["lost"]) < 1e-6
    missing = collocated["energy_at_start"] - collocated["energy_at_end"]
    assert collocated["lost"] == pytest.approx(missing, abs=1e-5) and missing > 1e-4
    head, _, *rows = energy.text_lines(result)
    assert rows[0] == "| staggered | central | 0.25 | 0.2500 | 0.2500 | 0.0000 |" and len(rows) == 2
    assert head.count("|") == rows[1].count("|") and rows[1] in capsys.readouterr().out


def test_nothing_is_less_than_nothing() -> None:
    assert [energy._four_places(x) for x in (-1e-9, 1e-9, -0.01)] == ["0.0000", "0.0000", "-0.0100"]
