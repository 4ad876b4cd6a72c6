"""bench.strict runs both variants from one state, counts their operations and writes a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import strict


def test_a_quick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "strict.json"
    assert strict.main(["--backend", "numpy", "--quick", "--only", "airfoil", "--json", str(file)]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    assert row["operations_fast"] < row["operations_strict"] and 0.0 < row["apart"] < 1e-13
    assert row["ratio"] == pytest.approx(row["seconds_strict"] / row["seconds_fast"])
    assert "| airfoil |" in capsys.readouterr().out


def test_a_back_end_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert strict.main(["--backend", "abacus"]) == 1
    assert "cannot use abacus" in capsys.readouterr().err
