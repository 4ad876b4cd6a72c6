"""The pictures of docs/pictures.md are what its commands draw."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.docs.test_docs import ROOT, START, program, run

PAGE = ROOT / "docs" / "pictures.md"


def small(path: Path) -> np.ndarray:
    """A picture as 32 x 32 mean colours, and its shape: fonts and versions of matplotlib differ in single pixels."""
    from matplotlib.image import imread

    pixels = imread(path)[..., :3]
    rows, columns = (np.linspace(0, n, 33).astype(int) for n in pixels.shape[:2])
    strips = np.add.reduceat(np.add.reduceat(pixels, rows[:-1], axis=0), columns[:-1], axis=1)
    return strips / (np.diff(rows)[:, None, None] * np.diff(columns)[None, :, None])


def test_committed_pictures_are_drawn_by_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "page.py").write_text(program(PAGE), encoding="utf-8")
    done = run(["-c", START, "cpu", str(tmp_path / "page.py")], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    shown = re.findall(r"!\[[^\]]*\]\(img/(\w+\.png)\)", PAGE.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(path.name for path in tmp_path.glob("*.png")) and len(shown) >= 5
    for name in shown:
        then, now = small(ROOT / "docs" / "img" / name), small(tmp_path / name)
        assert np.abs(then - now).mean() < 0.03, f"{name} has changed: put the new one into docs/img"
