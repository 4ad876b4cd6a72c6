"""The stencil benchmark on tiny grids: every variant right, figures that fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshloom as ml
from bench import grid, record
from tests.bench.devices import Emulated


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "SHAPES", ((10, 128),))
    monkeypatch.setattr(grid, "PRECISIONS", ("float64",))
    monkeypatch.setattr(grid, "BLOCKS", (64,))
    monkeypatch.setattr(grid, "USUAL_BLOCK", 64)
    monkeypatch.setattr(grid, "STENCILS", ((2, False), (2, True)))
    monkeypatch.setattr(grid.ml, "variants", lambda name: ("slab4",))
    file = tmp_path / "grid.json"
    assert grid.main(["--json", str(file)], Emulated()) == 0
    result = record.load(file)
    assert len(result["rows"]) == 2 * 2 and not any("wrong" in row for row in result["rows"])
    closed, around = (next(r for r in result["rows"] if r["stencil"] == "stencil9" and r["periodic"] is p
                           and r["schedule"].endswith("slab4")) for p in (False, True))  # fmt: skip
    assert around["bytes_per_point"] == 16.0 and closed["bytes"] == 8 * (10 * 128 - 16 + 6 * 124)
    assert around["tile"] == [4, 2] and "of copy" in capsys.readouterr().out
    assert len(grid.best_rows(result["rows"])) == 2


def test_the_check_finds_a_wrong_result() -> None:
    ml.use("numpy")
    stencil = grid.Stencil((6, 7), 1, True, "float64")
    stencil.loop(ml.Schedule("box"))()
    assert stencil.error() < 1e-14
    stencil.out.fill(0.5)
    assert stencil.error() > 0.1


def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if ml.backends()["cuda"] is None:
        pytest.skip("there is a device")
    assert grid.main([]) == 2
    assert capsys.readouterr().err.startswith("bench.grid cannot use cuda: ")
