"""The benchmark of layouts on a few points: what it counts, that all layouts are right, and that it sees a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench import layout_report, layout_steps, layouts, record
from tests.bench.devices import Emulated

#: Reads and writes of vectors, of scalars, and flops, by hand.
COUNTED = {
    # u at 19 points, U 6, spread 9, shear 12; J
    ("general", "u*"): (57 + 6 + 9 + 12, 3, 1, 0),
    # u at 4 points, base of each axis at 2; J at 4
    ("general", "interpolate"): (12 + 18, 3, 4, 0),
    ("general", "Poisson"): (6 + 9 + 12, 0, 19, 1),
    ("general", "project points"): (3 + 9, 3, 6, 0),
    # U 3, spread 6, shear 3 at the point and 2 at each of three neighbours; p at 16 points
    ("general", "project faces"): (3 + 6 + 9, 3, 16, 0),
    ("orthogonal", "u*"): (21 + 6 + 9, 3, 7, 0),
    ("orthogonal", "interpolate"): (6 + 6, 3, 4, 0),
    ("orthogonal", "Poisson"): (6 + 9, 0, 14, 1),
    ("orthogonal", "project points"): (3 + 3, 3, 6, 0),
    ("orthogonal", "project faces"): (3 + 6, 3, 8, 0),
}


@pytest.mark.parametrize("form", layout_steps.FORMS)
def test_accesses_are_counted_as_the_paper_does(form: str) -> None:
    ml.use("numpy")
    for one in layouts.counts_of(form):
        found = tuple(one[key] for key in ("vector_reads", "vector_writes", "scalar_reads", "scalar_writes"))
        assert found == COUNTED[form, one["step"]], one["step"]
        assert one["vs"] == sum(found[:2]) / sum(found[2:]) and one["bf"] == 8 * sum(found) / one["flops"]
        twice = 3 if one["step"] == "project faces" else 0  # U is read and written: the engine counts it once
        assert one["engine_vs"] == pytest.approx((sum(found[:2]) - twice) / sum(found[2:]))


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "VARIANTS", ("plain", "single"))
    monkeypatch.setattr(layouts, "BLOCKS", (64,))
    monkeypatch.setattr(layouts, "SCHEMES", ("euler",))
    monkeypatch.setattr(layouts, "TILES", ("single", "slab2"))
    file, picture = tmp_path / "layouts.json", tmp_path / "layouts.png"
    given = ["--points", "8", "--forms", "orthogonal", "--layouts", "aos", "soa", "--auto", "--tiles",
             "--json", str(file), "--plot", str(picture)]  # fmt: skip
    assert layouts.main(given, Emulated()) == 0
    result = record.load(file)
    assert len(result["rows"]) == 10 and not any("wrong" in row for row in result["rows"])
    for layout in ("aos", "soa"):
        assert sum(row["share"] for row in result["rows"] if row["layout"] == layout) == pytest.approx(1.0)
    assert all(row["speedup"] == 1.0 for row in result["rows"] if row["layout"] == "aos")
    assert result["differs_from_numpy"]["orthogonal"] < 1e-12
    (verdict,), (step, euler) = result["automatic"], result["wholes"]
    assert verdict["chosen"] == "soa" and verdict["slower_by"] >= 0.0
    assert [one["operations"] for one in step["parts"]] == [
        ["predict", "interpolate", "divergence"], ["project_points", "project_faces"]]  # fmt: skip
    # u, U, J and metrics read, u*, U and divergence written; u*, p, metrics, U and J read, u and U written
    assert [one["bytes"] for one in step["parts"]] == [
        8**4 * (3 + 3 + 1 + 3 + 3 + 3 + 1),
        8**4 * (3 + 1 + 3 + 3 + 1 + 6),
    ]
    assert euler["whole"] == "cavity3d, euler"
    assert [(one["loop"], one["tile"]) for one in euler["tiles"]] == [
        (loop, tile) for loop in ("predict", "to_faces_and_source", "project_last", "measure_power")
        for tile in ([1, 1, 1], [2, 1, 1])]  # fmt: skip  # lines of 8 points are no vectors
    # u and U read, u*, U and b written; u, u*, p and U read, u and U written
    assert [one["bytes"] for one in euler["parts"]] == [8**4 * 13, 8**4 * 16]
    assert step["bytes_of_loops"] >= step["bytes"] and euler["bytes_of_loops"] >= euler["bytes"]
    again = tmp_path / "again.png"
    assert layouts.main(["--again", str(file), "--plot", str(again)]) == 0
    assert again.read_bytes() == picture.read_bytes()
    by_layout = {row["layout"]: {tuple(one["tile"]): one["ms"] for one in row["tried"]}
                 for row in result["rows"] if row["step"] == "u*"}  # fmt: skip
    alone = layout_report.without_vectors(result["rows"], "orthogonal", "u*", "soa")
    assert alone == pytest.approx(by_layout["aos"][1, 1, 1] / by_layout["soa"][1, 1, 1])
    assert picture.stat().st_size > 10_000 and "1.5; engine's 1.50" in capsys.readouterr().out
    assert sum(line.startswith("| ") for line in layout_report.time_lines(result)) == 7
    assert len(layout_report.count_lines(result)) == 7 and len(layout_report.whole_lines(result)) == 2 + 2 + 1 + 2 + 1


@pytest.mark.parametrize(("scheme", "needed", "moved"), [
    # u and U read, u*, U* and b written; u, u*, p and U* read, u and U written; u again for its power
    ("euler", (13, 16), (9 + 7, 16 + 3)),
    # in between u*, p, U*, u and U read, u*, U* and b written: what stages have of u and U stays within a program
    ("rk3", (13, 20, 20, 16), (9 + 13, 13 + 12 + 19, 13 + 12 + 19, 16 + 3)),
])  # fmt: skip
def test_whole_loops_of_a_cavity_are_few(scheme: str, needed: tuple[int, ...], moved: tuple[int, ...]) -> None:
    """Numbers for a cell, at least and by the loops over all cells: what these look at beyond sides is left out."""
    ml.use("numpy")
    n = 32
    programs = layouts.between_calls(layouts.cavity(n, scheme).program)
    assert layouts.needed_bytes(programs) == [8 * n**3 * each for each in needed]
    whole = [[one.compulsory for one in program.loops if one.elements >= n**3] for program in programs]
    assert [len(one) for one in whole] == {"euler": [2, 2], "rk3": [2, 3, 3, 2]}[scheme]
    for bytes_of_loops, each in zip(whole, moved, strict=True):
        assert 1.0 <= sum(bytes_of_loops) / (8 * n**3 * each) < 1.0 + 3.0 / n


def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout whose sweep is a little off is named before anything is timed."""
    right = layout_steps.Laid.step

    def wrong(laid: layout_steps.Laid, name: str) -> None:
        laid.dt.value = 1e-3 * (1.0 + 1e-6) if laid.layout == "aosoa8" else 1e-3
        right(laid, name)

    ml.use("numpy")
    assert layouts.check_small("orthogonal", ["aos", "aosoa8"], "numpy") < 1e-14
    monkeypatch.setattr(layout_steps.Laid, "step", wrong)
    with pytest.raises(SystemExit, match=r"u\*, orthogonal, aosoa8 on numpy differs from NumPy by"):
        layouts.check_small("orthogonal", ["aos", "aosoa8"], "numpy")


def test_the_large_grid_is_compared_too() -> None:
    ml.use("numpy")
    flow = layout_steps.Flow("orthogonal", (6, 6, 6))
    expected, laid = layouts.Expected(flow.laid("soa")), flow.laid("aos")
    for step in layout_steps.STEPS:
        found = laid.prepared(step)
        laid.step(step)
        assert expected.error(step, found) < 1e-14
        values = found.numpy()
        values[3, 2, 1] *= 1.0 + 1e-6
        found.assign(values)
        assert expected.error(step, found) > 1e-9, step


def test_large_grids_repeat_a_piece() -> None:
    ml.use("numpy")
    assert [layout_steps.largest_part(n) for n in (256, 8, 31, 37, 96)] == [32, 8, 31, 37, 32]
    small, large = (layout_steps.Flow("general", (n, 5, n)).laid("soa") for n in (32, 64))
    for step in layout_steps.STEPS:
        np.testing.assert_allclose(
            large.result(step),
            np.tile(small.result(step), (2, 1, 2, 1)[: large.prepared(step).numpy().ndim]),
            rtol=1e-12,
        )


@pytest.mark.parametrize(
    ("found", "printed", "word"), [(1.8, 1.71, "yes"), (1.02, 0.97, "yes"), (0.9, 1.71, "no"), (None, 1.0, "-")]
)
def test_the_same_sign_as_in_the_paper(found: Any, printed: float, word: str) -> None:
    assert layout_report.as_printed(found, printed) == word


def test_goals_are_those_of_the_cavity() -> None:
    result = {
        "points": 256,
        "wholes": [{"whole": "cavity3d, rk3", "share_of_copy": 0.7}, {"whole": "general", "share_of_copy": 0.9}],
    }
    assert [(goal.value, goal.met) for goal in layout_report.goals(result)] == [(0.7, False)]
