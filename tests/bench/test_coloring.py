"""The coloring benchmark on a small box: right answers in every form, and numberings that are what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from bench import coloring, record
from meshloom.native.algorithms import color_elements
from tests.bench.devices import Emulated


def test_faces_of_a_box() -> None:
    pairs = coloring.box_faces(3)
    assert pairs.shape == (3 * 2 * 9, 2) and (pairs[:, 0] < pairs[:, 1]).all()
    assert sorted(set((pairs[:, 1] - pairs[:, 0]).tolist())) == [1, 3, 9]
    met = np.bincount(pairs.ravel())
    assert met.min() == 3 and met.max() == 6, "a corner has three neighbours, the middle six"


def test_numberings_are_the_same_faces() -> None:
    pairs = coloring.box_faces(5)
    given, by_color, following = coloring.numberings(pairs, 125)
    for one in (given, by_color, following):
        np.testing.assert_array_equal(one.cells[one.pairs], pairs[one.faces])
    colors = color_elements([by_color.pairs], [125])
    assert (np.diff(colors) >= 0).all(), "faces lie by color"
    first = following.pairs[: np.count_nonzero(colors == 0)]
    np.testing.assert_array_equal(np.sort(first.ravel()), np.arange(first.size))
    assert np.abs(np.diff(first, axis=1)).max() == 1, "the largest color meets neighbouring cells"


def test_a_whole_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coloring, "PRECISIONS", ("float64",))
    file = tmp_path / "coloring.json"
    assert coloring.main(["--n", "4", "--blocks", "32", "--json", str(file)], Emulated()) == 0
    rows = record.load(file)["rows"]
    assert all(row["ms"] > 0 for row in rows)
    forms = {"color", "color variant=indices", "color, faces by color", "color, faces by color, cells following"}
    for loop in ("flux_sum", "local_maximum"):
        assert set(coloring.best_forms(rows, loop, "float64")) == forms | set(ml.strategies())
    assert "1.00 of plain color" in capsys.readouterr().out


def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if ml.backends()["cuda"] is None:
        pytest.skip("there is a device")
    assert coloring.main([]) == 2
    assert capsys.readouterr().err.startswith("bench.coloring needs a CUDA device: ")
