"""bench.starts runs one iteration with an empty cache and again, and writes a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import starts


@pytest.mark.slow
def test_a_quick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "AGAIN", 1)
    file = tmp_path / "starts.json"
    small = ("--set", "mesh.i=8", "--set", "mesh.j=12")
    assert starts.main(["--device", "cpu", "--only", "airfoil", *small, "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    (row,) = result["rows"]
    assert row["empty_s"] > row["again_s"] > 0.0 and len(row["all_s"]) == 2
    assert [one["limit"] for one in result["goals"]] == [*starts.AIMS["airfoil", "cpu"]]
    assert "airfoil on cpu" in capsys.readouterr().out


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts.ml, "backends", lambda: {"cuda": "there is no CUDA device"})
    assert starts.main(["--device", "cuda"]) == 2
    assert "cannot use cuda: there is no CUDA device" in capsys.readouterr().err
