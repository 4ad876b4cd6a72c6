"""The figures on the page about water are those of the result file; the bench itself on its smallest mesh."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import meshloom as ml
from bench import volna_exact
from bench.record import RESULTS, load
from bench.tables import marks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "volna.md").read_text(encoding="utf-8")
(NAMED,) = {name for kind, (name,), _ in marks(PAGE) if kind.startswith("volna")}  # both tables are of one run
RESULT = load(RESULTS / NAMED)


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


@pytest.mark.slow
def test_the_bench_repeats_its_first_figures():
    ml.use("cpu", threads=1)
    for make, kind in ((volna_exact.dam, "dam"), (volna_exact.bowl, "bowl")):
        found = volna_exact.error(make("v17", RESULT[f"{kind}_cells"][0]))
        assert found == pytest.approx(RESULT[f"{kind}_v17"]["errors"][0], rel=1e-6)
