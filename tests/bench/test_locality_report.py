"""The tables of the documentation are those of the result file."""

from __future__ import annotations

from pathlib import Path

from bench import report
from bench.locality_report import application_rows, loop_rows

FILE = "2026-11-15_locality_h200.json"


def test_the_documentation_shows_the_result_file() -> None:
    result = report.load(report.RESULTS / FILE)
    written = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    assert FILE in written
    for row in [*loop_rows(result), *application_rows(result)]:
        assert row in written
