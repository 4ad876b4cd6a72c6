"""The figures on the page about water are those of the result file; the bench itself on its smallest mesh."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import meshloom as ml
from bench import volna_exact

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "volna.md").read_text(encoding="utf-8")
RESULT = json.loads(next(iter(sorted((ROOT / "bench" / "results").glob("*volna-exact*.json")))).read_text())


@pytest.mark.parametrize(
    ("kind", "heading"), [("dam", "| squares along the channel |"), ("bowl", "| squares along the bowl")]
)
def test_tables_of_errors_and_orders(kind: str, heading: str):
    start = PAGE.index(heading)
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in PAGE[start:].split("\n\n")[0].splitlines()[2:]]
    assert [int(row[0]) for row in rows] == RESULT[f"{kind}_cells"]
    for column, scheme in ((1, "v17"), (3, "v18")):
        assert [row[column] for row in rows] == [f"{e:.4f}" for e in RESULT[f"{kind}_{scheme}"]["errors"]]
        assert [row[column + 1] for row in rows[1:]] == [f"{o:.2f}" for o in RESULT[f"{kind}_{scheme}"]["orders"]]


def test_distances_from_the_original():
    def most(scheme: str, what: str, measure: str) -> str:
        return f"{max(v[what][measure] for k, v in RESULT.items() if k.startswith(f'volna_{scheme}')):.1e}"

    text = " ".join(PAGE[PAGE.index("**The original program**") :].split())
    written = re.findall(r"\d\.\de-\d\d", text.split("**Rest.**")[0])
    assert written == [
        most("v17", "original", "depth_max"),
        most("v18", "original", "depth_mean"),
        most("v18", "original", "depth_max"),
        most("v18", "renumbered", "depth_mean"),
        most("v18", "renumbered", "depth_max"),
    ]


def test_the_bench_repeats_its_first_figures():
    ml.use("cpu", threads=1)
    for make, kind in ((volna_exact.dam, "dam"), (volna_exact.bowl, "bowl")):
        found = volna_exact.error(make("v17", RESULT[f"{kind}_cells"][0]))
        assert found == pytest.approx(RESULT[f"{kind}_v17"]["errors"][0], rel=1e-6)
