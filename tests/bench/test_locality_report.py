"""The tables of the documentation are those of the result file."""

from __future__ import annotations

from pathlib import Path

from bench import record
from bench.locality_report import application_rows, loop_rows, short_rows

FILE = "2026-11-15_locality_h200.json"


def test_the_documentation_shows_the_result_file() -> None:
    result = record.load(record.RESULTS / FILE)
    root = Path(__file__).parents[2]
    for page, rows in (("docs/benchmarks.md", [*loop_rows(result), *application_rows(result)]),
                       ("README.md", short_rows(result))):  # fmt: skip
        written = (root / page).read_text()
        assert FILE in written
        for row in rows:
            assert row in written, page
