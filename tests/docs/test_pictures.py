"""The pictures of docs/pictures.md, the README and the first page are what their scripts draw."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.docs.test_docs import ROOT, START, blocks, program, run

PAGE = ROOT / "docs" / "pictures.md"
FIRST = {"README.md": "sound.png", "docs/index.md": "spread.png"}


def small(path: Path) -> np.ndarray:
    """A picture as 32 x 32 mean colours, and its shape: fonts and versions of matplotlib differ in single pixels."""
    from matplotlib.image import imread

    pixels = imread(path)[..., :3]
    rows, columns = (np.linspace(0, n, 33).astype(int) for n in pixels.shape[:2])
    strips = np.add.reduceat(np.add.reduceat(pixels, rows[:-1], axis=0), columns[:-1], axis=1)
    return strips / (np.diff(rows)[:, None, None] * np.diff(columns)[None, :, None])


def draw(script: str, folder: Path) -> list[str]:
    """Run a script in a folder: the names of the pictures that are there afterwards."""
    pytest.importorskip("matplotlib")
    (folder / "page.py").write_text(script, encoding="utf-8")
    done = run(["-c", START, "cpu", str(folder / "page.py")], folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(path.name for path in folder.glob("*.png"))


def check_same(name: str, folder: Path) -> None:
    """The committed picture is the one just drawn, but for fonts."""
    then, now = small(ROOT / "docs" / "img" / name), small(folder / name)
    assert now.std() > 0.02, f"{name} shows nothing"
    assert np.abs(then - now).mean() < 0.03, f"{name} has changed: put the new one into docs/img"


@pytest.mark.slow
def test_committed_pictures_are_drawn_by_the_page(tmp_path: Path) -> None:
    drawn = draw(program(PAGE), tmp_path)
    shown = re.findall(r"!\[[^\]]*\]\(img/(\w+\.png)\)", PAGE.read_text(encoding="utf-8"))
    assert sorted(shown) == drawn and len(shown) >= 5
    for name in shown:
        check_same(name, tmp_path)


@pytest.mark.parametrize("page", FIRST)
def test_the_first_script_of_a_page_draws_the_picture_below_it(page: str, tmp_path: Path) -> None:
    first = blocks(ROOT / page, "python")[0]
    assert draw(first.text, tmp_path) == [FIRST[page]]
    check_same(FIRST[page], tmp_path)
    below = (ROOT / page).read_text(encoding="utf-8").split(first.text)[1]
    assert re.match(r"```\n\n!\[[^\]]+\]\((docs/)?img/" + FIRST[page], below), "the picture stands right below"


def test_the_first_scripts_are_short() -> None:
    """What is not blank of the script: about twenty lines in the README, about ten on the first page."""
    longest = {"README.md": 22, "docs/index.md": 10}
    for page, limit in longest.items():
        lines = [line for line in blocks(ROOT / page, "python")[0].text.splitlines() if line.strip()]
        assert len(lines) <= limit, f"{page} begins with {len(lines)} lines"


def test_the_graph_in_the_docs_is_that_of_its_program(tmp_path: Path) -> None:
    page = ROOT / "docs" / "kernels.md"
    text = next(block.text for block in blocks(page, "python") if "dataflow.svg" in block.text)
    (tmp_path / "page.py").write_text(f"import meshloom as ml\n{text}", encoding="utf-8")
    done = run(["-c", START, "numpy", str(tmp_path / "page.py")], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    drawn = (tmp_path / "dataflow.svg").read_text(encoding="utf-8")
    assert drawn == (ROOT / "docs" / "img" / "dataflow.svg").read_text(encoding="utf-8")
