"""The benchmark of the blast wave runs, on a mesh too small to measure anything, and writes a whole result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import meshloom as ml
from bench import lulesh


@pytest.fixture(autouse=True)
def same_backend_afterwards() -> Iterator[None]:
    before = ml.backend()
    yield
    ml.use(before)


@pytest.mark.slow
def test_quick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    assert lulesh.main(["--sizes", "5", "--cycles", "3", "--json", str(path)]) == 0
    result = json.loads(path.read_text())
    assert result["check"]["cycles"] == 231 and result["check"]["relative_error"] < 1e-12
    (row,) = result["runs"]
    assert row["zones"] == 125 and row["zones_per_second"] > 0 and set(row["loops"]) >= {"forces", "material"}
    assert "zones/s" in capsys.readouterr().out


@pytest.mark.slow
def test_a_wrong_answer_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lulesh.CHECK, "origin_energy", 27205.3117)
    with pytest.raises(SystemExit, match="231 cycles and origin energy"):
        lulesh.main(["--sizes", "5", "--json", str(tmp_path / "result.json")])
