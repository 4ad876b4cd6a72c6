"""The run of all comparisons: what it says of rows that are met, missed, absent or broken; and its result file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import meshloom as ml
from bench import record, truth
from bench.truth_cases import NOT_HERE, Check, Row, Rows, bookleaf_short_run, checks, miniaero_run

RESULT = record.RESULTS / "2026-11-15_truth_cpu.json"


@pytest.fixture(autouse=True)
def same_backend_afterwards() -> Iterator[None]:
    before = ml.backend(), ml.threads()
    ml.use("cpu", threads=1)
    yield
    ml.use(before[0], threads=before[1])


def test_verdicts():
    row = Rows("water", "pond")
    assert row.number("steps", 3, 3, (0.0, 0.0)).verdict == "met"
    assert row.number("steps", 3, 4, (0.0, 0.0)).verdict == "missed"
    assert row.number("energy", 1.0 + 1e-7, 1.0, (1e-6, 1e-3)).verdict == "met"
    assert row.number("energy", 1e-9, 2e-9, (1e-6, 1e-3)).error == pytest.approx(0.5)
    assert row.number("energy", 1e-9, 2e-9, (1e-6, 1e-3), floor=1.0).verdict == "met"
    assert row.differ("fields", float("nan"), (1e-6, 1e-3)).verdict == "missed"
    assert row.absent("fields").verdict == "not here"
    assert Row("water", "pond", "run", note="ValueError: dry").verdict == "missed"


def broken(_: Path | None) -> Iterator[Row]:
    yield Rows("water", "pond").differ("fields", 0.0, (1.0, 1.0))
    raise ValueError("no water\nin the pond")


def test_a_run_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    some = [
        Check("water", "pond", "unit", broken),
        Check("miniaero", "sod 1", "unit", partial(miniaero_run, "sod", 1)),
        Check("water", "sea", "unit", broken, quick=False),
    ]
    monkeypatch.setattr(truth, "checks", lambda: some)
    assert truth.main(["--unit", "unit", "--quick", "--json", str(tmp_path / "rows.json")]) == 0
    rows = [Row(**row) for row in json.loads((tmp_path / "rows.json").read_text())["rows"]]
    assert [row.verdict for row in rows] == ["met", "missed", "met", "met", "met"]
    assert rows[1].note == truth.cells(rows[1])[-1] == "ValueError: no water"


def test_a_process_that_dies_is_a_missed_row(monkeypatch: pytest.MonkeyPatch):
    options = truth.parse(["--jobs", "1"])
    monkeypatch.setattr(truth.sys, "executable", "false")
    result = truth.run_all(options)
    assert result["verdicts"] == {"missed": len(truth.units())}
    assert {row["note"] for row in result["rows"]} == {"ended with 1"}


@pytest.mark.slow
def test_without_the_folder_some_rows_are_not_here(tmp_path: Path):
    absent = {row.what for row in bookleaf_short_run(tmp_path) if row.verdict != "met"}
    assert absent == {"all fields at the end", "time of every step", "dt of every step"}


def test_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert truth.main(["--truth", str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        truth.main(["--unit", "lulesh"])


def test_the_result_file_holds_every_comparison_and_all_are_met():
    result = record.load(RESULT)
    rows = truth.load_rows(result)
    assert {row.verdict for row in rows} == {"met"} and not result["quick"]
    assert {(row.application, row.case) for row in rows if row.application != "lulesh"} >= {
        ("bookleaf", "noh_small"), ("bookleaf", "blast_sm_lag_small"), ("miniaero", "ramp, 400 steps"),
        ("volna", "v17 hump_180_60_t5"), ("volna", "v18 dambreak_400_20_t0.5"),
    }  # fmt: skip
    assert len({(row.application, row.case) for row in rows}) == len(
        {(check.application, check.unit, check.case) for check in checks()}
    )


def test_what_was_not_made_is_no_miss_and_hides_none() -> None:
    near = Row("water", "pond", "depth", error=1e-10, bound=1e-9)
    far = Row("water", "pond", "speed", error=2.0, bound=1.0)
    absent = Row("water", "pond", "all of it", note=NOT_HERE)
    assert truth.told_case([near, absent]) == "depth: 1.0e-10 of 1e-09; 1 not made"
    assert truth.told_case([absent, far]) == "speed: **missed**; 1 not made"
    assert truth.told_case([absent]) == "all of it: **not here**"
    result = {"backend": "cuda", "verdicts": {"met": 1, NOT_HERE: 1}, "rows": [{}, {}]}
    assert truth.told_counts(result).startswith("1 of 1 comparisons are met on cuda (1 more were not made: ")
    assert truth.told_counts(result | {"verdicts": {"met": 2}}) == "2 of 2 comparisons are met on cuda"
