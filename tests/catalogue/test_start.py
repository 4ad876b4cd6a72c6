"""``meshloom new``: what it writes runs at once, is short, and takes no other file's place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import meshloom as ml
from meshloom.catalogue.start import text_of
from meshloom.config import flatten
from meshloom.launch import Request, check
from tests.cli.conftest import meshloom as meshloom  # the fixture
from tests.cli.harness import Command

SMALL = {"mesh": ("plate.cells=12", "cpu", 0.0), "grid": ("dish.points=12", "numpy", 0.1)}


def code_lines(text: str) -> int:
    """Lines that are neither empty, nor a comment, nor the text of a docstring."""
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = enumerate(text.splitlines(), start=1)
    return sum(1 for k, line in lines if line.strip() and not line.strip().startswith("#") and k not in said)


@pytest.mark.parametrize("kind", SMALL)
def test_it_runs_at_once(meshloom: Command, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib")
    assert meshloom("new", "first_try", "--kind", kind).out.startswith("first_try.py is written; try: meshloom run")
    text = (tmp_path / "first_try.py").read_text()
    assert code_lines(text) <= 60 and "class FirstTry(" in text and "mycase" not in text.lower()
    setting, backend, least = SMALL[kind]
    run_it = ("run", "first_try.py", "--set", setting, "--backend", backend, "--quiet")
    result = meshloom(*run_it, "--iterations", "50", "--json")
    assert result.code == 0, result.err
    run = tmp_path / "runs" / "first_try-001"
    assert {path.name for path in run.iterdir()} >= {"picture.png", "monitors.csv", "fields.pvd", "checkpoint.h5"}
    values = list(result.json["monitors"].values())
    assert len(values) == 2 and all(least < value < 1e3 for value in values)
    assert meshloom("run", "--restart", "runs/first_try-001", "--iterations", "60", "--quiet").code == 0
    single = meshloom(*run_it, "--backend", "numpy", "--iterations", "5", "--precision", "single", "--out", "single")
    assert single.code == 0, single.err


@pytest.mark.parametrize(("kind", "small"), [("mesh", {"plate.cells": 6}), ("grid", {"dish.points": 12})])
def test_every_number_that_can_be_set_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, small: dict[str, int]
) -> None:
    """A study over it, which shows the first monitor, has not one result in all rows."""
    monkeypatch.chdir(tmp_path)
    Path("tried.py").write_text(text_of("tried", kind))
    most = {} if kind == "mesh" else {"run.iterations": 20}  # one ends at a time, the other after so many steps
    common = {"run.backend": "numpy", "output.plot": False, "output.vtu": False} | most | small
    settings = flatten(check(Request("tried.py")).config) | small
    own = {key: value for key, value in settings.items() if key.startswith(next(iter(small)).split(".")[0])}
    assert len(own) > 2 and all(isinstance(value, int | float) for value in own.values())

    def result(changed: dict[str, float]) -> float:
        done = ml.run_case("tried.py", common | changed, progress=False)
        return next(iter(done.monitors.values()))

    before = result({})
    for key, value in own.items():
        other = value + 2 if isinstance(value, int) else 1.5 * value
        assert abs(result({key: other}) - before) > 1e-6 * abs(before), key


@pytest.mark.parametrize("across", [1, 2])
def test_heat_is_what_mathematics_says(meshloom: Command, tmp_path: Path, across: int) -> None:
    """A rod that is warm at one end and insulated at the other: its mean is a sum of exponentials, on a mesh of squares
    and on the one of flat cells that somebody has put into its place."""
    import numpy as np

    meshloom("new", "rod")
    text = (tmp_path / "rod.py").read_text()
    assert "box((plate.cells, plate.cells))" in text
    (tmp_path / "rod.py").write_text(text.replace("box((plate.cells, plate", f"box((plate.cells, {across} * plate"))
    words = ("--backend", "numpy", "--set", "plate.end=0.2", "--set", "output.plot=false", "--json", "--quiet")
    found = meshloom("run", "rod.py", *words, "--set", "plate.cells=20").json
    assert found["iterations"] == 400 * across
    mean, time = found["monitors"]["mean"], found["monitors"]["time"]
    k = (np.arange(200) + 0.5) * np.pi
    assert time == 0.2 and mean == pytest.approx(1.0 - np.sum(2.0 / k**2 * np.exp(-(k**2) * time)), rel=2e-3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("3d",), "cannot be the name of a case"),
        (("my-case",), "cannot be the name of a case"),
        (("../x",), "cannot be the name of a case"),
        (("",), "cannot be the name of a case"),
        (("class",), "cannot be the name of a case"),
        (("größe",), "cannot be the name of a case"),
        (("airfoil",), "is a case already"),
        (("numpy",), "is a module"),
        (("heat", "--kind", "gird"), "unknown kind of a case 'gird'; did you mean 'grid'?"),
    ],
)
def test_wrong_names_are_refused(meshloom: Command, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    meshloom("new", *words).refused(2, said)
    assert not [*tmp_path.iterdir()]


def test_nothing_is_overwritten(meshloom: Command, tmp_path: Path) -> None:
    (tmp_path / "mine_too.py").write_text("precious")
    meshloom("new", "mine_too").refused(2, "mine_too.py is there already")
    assert (tmp_path / "mine_too.py").read_text() == "precious"
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    meshloom("new", "gone").refused(2, "gone.py is there already")


def test_names_that_the_text_uses_itself(meshloom: Command, tmp_path: Path) -> None:
    for name in ("plate", "settings", "case_", "_", "x1"):
        assert meshloom("new", name).code == 0, name
        assert meshloom("show", f"{name}.py").code == 0, name
