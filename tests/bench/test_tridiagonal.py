"""The benchmark of line loops on grids too small to measure anything: right answers, and what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshloom as ml
from bench import report, tridiagonal
from bench.locality import Cpu


def test_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STRIDED", "CONTIGUOUS", "AHEAD"):
        monkeypatch.setattr(tridiagonal, name, ())
    monkeypatch.setattr(tridiagonal, "FLUX", ({},))
    file = tmp_path / "tridiagonal.json"
    assert tridiagonal.main(["--quick", "--n", "9", "--json", str(file)], Cpu()) == 0
    rows = report.load(file)["rows"]
    assert all(row["ms"] > 0 for row in rows) and {row["case"] for row in rows} == {"flux", "derivative"}
    assert {(row["precision"], row["periodic"]) for row in rows} >= {("float32", True), ("float64", False)}
    assert "derivative 9^3 x1 float64 periodic axis 2: usual " in capsys.readouterr().out


def test_every_method_is_checked() -> None:
    ml.use("cpu")
    rows = list(tridiagonal.method_rows([(6, 40)], Cpu(), 1e10))
    done = {row["case"] for row in rows if "ms" in row}
    assert done == set(ml.linalg.tridiagonal.methods()) and not any("wrong" in row for row in rows)


def test_a_wrong_answer_is_seen() -> None:
    """The check of some lines notices a field that is not the derivative."""
    ml.use("numpy")
    fields = tridiagonal.Fields((7, 8, 9), True, "float64")
    operator = fields.operator(1)
    ml.linalg.LineLoop(fields.grid, 1, operator, fields.f, fields.out)()
    assert fields.error(1, operator) < 1e-14
    assert fields.error(0, fields.operator(0)) > 0.1
