"""bench.drawing draws by own code and by matplotlib, and tells what that took and how the pictures differ."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench import drawing
from meshloom.io.draw import surface

pytest.importorskip("matplotlib")


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface, "_PIXELS", 150)
    monkeypatch.setattr(drawing, "ROUNDS", 2)
    monkeypatch.setattr(drawing, "alone", lambda *words: _printed(capsys, *words))
    file = tmp_path / "drawing.json"
    assert drawing.main(["--polygons", "400", "--curves", "2", "--json", str(file)]) == 0
    rows = {(row["what"], row.get("scene"), row["by"]): row for row in json.loads(file.read_text())["rows"]}
    assert {what for what, _, _ in rows} == {"curves", "surface"} and {"wing", "planes"} <= {s for _, s, _ in rows}
    assert all(min(row["peak_MB"], row["first_s"], row["again_s"]) >= 0.0 for row in rows.values())
    assert rows["curves", None, "matplotlib"]["first_s"] > 0.0
    assert rows["surface", "wing", "matplotlib"]["other"] > 0.01, "its lower side is seen through the upper one"
    assert rows["curves", None, "own"]["bytes"] < rows["curves", None, "matplotlib"]["bytes"]
    assert rows["surface", "wing", "own"]["polygons"] == 400
    shown = capsys.readouterr().out
    assert "wing, 400 polygons" in shown and "2 curves" in shown and "of the pixels other" in shown


def _printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    """As ``alone``, but here."""
    assert drawing.main(["--alone", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_colours_are_compared_where_both_show_something() -> None:
    right = np.ones((2, 3, 3))
    right[0] = 0.5
    pixels = right.copy()
    pixels[0, 0] = 0.55  # hardly another one
    pixels[0, 1] = 0.9
    pixels[1, 1] = 0.2  # where the other picture is empty
    assert drawing.other_colours(pixels, right) == pytest.approx(1 / 3)


def test_polygons_that_hide_nothing_look_the_same() -> None:
    """Of both ways to draw: the same place, size and colours."""
    x, y = np.meshgrid(np.linspace(0.0, 1.0, 9), np.linspace(0.0, 1.0, 9))
    numbers = np.arange(81).reshape(9, 9)
    rows = np.stack((numbers[:-1, :-1], numbers[1:, :-1], numbers[1:, 1:], numbers[:-1, 1:]), axis=-1).reshape(-1, 4)
    points = np.stack((x.ravel(), y.ravel(), np.zeros(81)), axis=1)
    what = drawing._shown(points, rows, points[rows].mean(axis=1) @ (1.0, 0.3, 0.0))
    own, theirs = surface.painted(what), drawing.by_matplotlib(what)
    assert own.shape == theirs.shape and drawing.other_colours(theirs, own) < 0.01
    assert ((own < 1.0).any(axis=2) == (theirs < 1.0).any(axis=2)).mean() > 0.99
