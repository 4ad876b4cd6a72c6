"""The examples do what their first lines say, and are as short as scripts of this kind should be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.catalogue.test_start import code_lines
from tests.cli.conftest import meshloom as meshloom  # the fixture
from tests.cli.harness import Command
from tests.docs.test_docs import ROOT, run

EXAMPLES = ROOT / "examples"
MOST = {"heat.py": 40, "poisson.py": 20, "ball.py": 60}


@pytest.fixture(autouse=True)
def drawing() -> None:
    pytest.importorskip("matplotlib")


def said(name: str, folder: Path) -> str:
    """What an example prints."""
    done = run([str(EXAMPLES / name)], folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", MOST)
def test_lines(name: str) -> None:
    assert code_lines((EXAMPLES / name).read_text(encoding="utf-8")) <= MOST[name]


@pytest.mark.slow
def test_heat_goes_on(tmp_path: Path) -> None:
    """The second time there is nothing left to do, and what it had computed is there again."""
    first, again = (said("heat.py", tmp_path) for _ in range(2))
    mean = re.fullmatch(r"250 steps until 0.05, mean (0\.\d+)\n", first)
    assert mean and again == first and float(mean[1]) == pytest.approx(0.2786, abs=1e-4)
    names = {path.name for path in (tmp_path / "runs" / "heat").iterdir()}
    assert {"monitors.csv", "fields.pvd", "checkpoint.h5", "report.html"} <= names
    assert (tmp_path / "heat.png").stat().st_size > 10_000


def test_poisson(tmp_path: Path) -> None:
    """The membrane of a square is highest in its middle: 0.073671."""
    found = re.fullmatch(
        r"Report\(converged after \d+ iterations, .*\) largest (0\.\d+)\n", said("poisson.py", tmp_path)
    )
    assert found and float(found[1]) == pytest.approx(0.073671, abs=1e-4)
    assert (tmp_path / "poisson.png").exists()


@pytest.mark.slow
def test_ball(meshloom: Command, tmp_path: Path) -> None:
    """A case in space: picture, probe and page, and it goes on."""
    words = ("--backend", "numpy", "--quiet", "--set", "ball.cells=4", "--set", "probes.middle=[0.5, 0.5, 0.5]")
    result = meshloom("run", str(EXAMPLES / "ball.py"), *words, "--iterations", "20", "--out", "cold", "--json")
    assert result.code == 0, result.err
    assert 0.0 < result.json["monitors"]["hottest"] < 1.0
    assert {"picture.png", "probes.csv", "report.html"} <= {path.name for path in (tmp_path / "cold").iterdir()}
    assert meshloom("run", "--restart", "cold", "--iterations", "30", "--quiet").code == 0
    assert (tmp_path / "cold" / "probes.csv").read_text().splitlines()[-1].startswith("30,")
