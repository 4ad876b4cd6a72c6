"""The measurements of the flow cases, on grids so small that nothing is measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import meshloom as ml
from bench import flow_truth, vortex
from tests.backend import streams  # noqa: F401 registers the back end silent


@pytest.fixture(autouse=True)
def numpy_backend() -> Iterator[None]:
    before = ml.backend()
    ml.use("numpy")
    yield
    ml.use(before)


def test_a_right_hand_side_in_the_plane_has_14_derivatives_and_counts_its_bytes():
    row = vortex.measure(vortex.vortex(8), 1e9, rounds=1, target=1e-3)
    slopes, flux_x, flux_y = 4 + 3, 4 + 5 + 4, 4 + 5 + 4 + 4  # values per point: read, and written
    assert row["derivatives"] == 14
    assert row["bytes_of_right_hand_side"] == 8 * 64 * (2 * slopes + flux_x + flux_y)
    assert row["ms_in_a_step"].keys() == vortex.TIMES.keys() - {"step_in_one_branch"}, "there are none without a GPU"
    assert row["share_of_compulsory_bytes"] > 0.0


def test_branches_and_launches_are_counted_on_a_device() -> None:
    ml.use("silent")
    case = vortex.vortex(16)
    programs = vortex.parts(case)
    assert programs.keys() == vortex.TIMES.keys()
    assert programs["step"].launches == programs["step_in_one_branch"].launches > 30
    assert "at the same time" in programs["step"].graph
    assert "one after the other" in programs["step_in_one_branch"].graph


def test_goals_compare_what_was_measured():
    def rows(share: float, ns: float) -> dict[str, object]:
        return {"vortex_outflow": [{"share_of_compulsory_bytes": share}],
                "taylor_green": [{"ns_per_cell_equation_right_hand_side": ns}]}  # fmt: skip

    assert [goal.met for goal in vortex.goals(rows(0.7, 0.2))] == [True, True]
    assert [goal.met for goal in vortex.goals(rows(0.5, 0.4))] == [False, False]


@pytest.mark.slow
def test_the_comparison_with_twice_the_domain_and_with_published_curves(tmp_path: Path):
    row = flow_truth.vortex_against_twice_the_domain(12, 0.3)
    assert row["time"][-1] == pytest.approx(0.3)
    assert row["largest"][0] == pytest.approx(row["largest_in_twice"][0], rel=0.01)
    box = flow_truth.taylor_green_curves(8, 0.8)
    assert box["off_by"]["kinetic_energy"] < 1e-3
    flow_truth.draw(json.loads(json.dumps({"vortex_outflow": row, "taylor_green": [box]})), tmp_path)
    assert (tmp_path / "vortex_outflow.png").is_file() and (tmp_path / "taylor_green.png").is_file()

