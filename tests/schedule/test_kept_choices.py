"""Automatic choices are what they were before the fitted numbers moved from the code to the files of devices."""

from __future__ import annotations

import json
from typing import Any

import pytest

import meshloom as ml
from tests.schedule import kept_choices

KEPT = json.loads(kept_choices.FILE.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def emulated() -> None:
    ml.use("emulated")


def test_the_same_strategies_are_chosen_for_the_same_reasons() -> None:
    found = kept_choices.chosen_strategies()
    assert found.keys() == KEPT["strategies"].keys()
    for name, one in found.items():
        kept: dict[str, Any] = KEPT["strategies"][name]
        assert (one["auto"], one["fastest"]) == (kept["auto"], kept["fastest"]), name
        assert one["seconds"] == pytest.approx(kept["seconds"], rel=1e-12), name  # logarithms may differ in a digit


@pytest.mark.parametrize("what", ["blocks", "at_points", "line_forms", "votes"])
def test_blocks_tiles_lines_and_layouts_are_the_same(what: str) -> None:
    kept = {"at_points": "points", "line_forms": "lines"}.get(what, what)
    assert getattr(kept_choices, what)() == KEPT[kept]
