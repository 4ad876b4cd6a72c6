"""The benchmark of light loops on a few elements: every width right, figures that fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshloom as ml
from bench import direct, record
from tests.bench.devices import Emulated
from tests.fitted import changed


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, vectors={"many": 1000})
    monkeypatch.setattr(direct, "NUMBERS", 5010)
    monkeypatch.setattr(direct, "PRECISIONS", ("float64",))
    monkeypatch.setitem(direct.BYTES, "float64", (8, 16))
    copies = [c for c in direct.CASES if c.kernel is direct.copy and c.dim == 1]
    others = [c for c in direct.CASES if c.sums or (c.dim == 5 and c.layout == "soa")]
    monkeypatch.setattr(direct, "CASES", (*copies, *others))
    file = tmp_path / "direct.json"
    assert direct.main(["--json", str(file)], Emulated()) == 0
    rows = record.load(file)["rows"]
    assert [(r["loop"], r["elements_per_thread"]) for r in rows] == [
        (name, k) for name in ("copy", "add_up", "update") for k in (1, 2)
    ]
    assert [r["bytes"] for r in rows[::2]] == [2 * 8 * 5010, 8 * 5010, 4 * 8 * 2505]
    assert [r["automatic"] for r in rows] == [False, True, False, False, True, False]
    out = capsys.readouterr().out
    assert "best of each" in out and "WRONG" not in out


def test_the_check_finds_a_wrong_result() -> None:
    ml.use("numpy")
    for case in direct.CASES:
        data = direct.Data(case, "float32", 450)
        assert data.error(data.loop(ml.Schedule())) < 1e-6
        assert data.error(lambda: None) > 1e-3


def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if ml.backends()["cuda"] is None:
        pytest.skip("there is a device")
    assert direct.main([]) == 2
    assert capsys.readouterr().err.startswith("bench.direct cannot use cuda: ")
