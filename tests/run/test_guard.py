"""A case that is wrong in what it shows: it is found before the run. What goes wrong only later costs nothing else: the
run finishes, everything else is written, one line says what and where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import meshloom as ml
from meshloom import launch
from meshloom.case import Case, Chart, Picture, registry
from tests.cli.conftest import meshloom as meshloom  # the fixture
from tests.cli.harness import Command
from tests.run.cooling import Cooling

registry.pop("cooling", None)
DONE = {"run.toml", "monitors.csv", "checkpoint.h5", "fields.pvd"}


class Wrong(Cooling):
    """A case to be spoilt in one place after the other."""

    name: ClassVar[str] = "wrong"

    def picture(self) -> Picture:
        return Picture(self.t.numpy(), "t", (0.0, 1.0, 0.0, 1.0))


registry.pop("wrong")


def divides(self: Case, *given: Any) -> Any:
    return 1 / 0  # the line that is named


def of_wrong_size(self: Wrong) -> Any:
    return Picture(np.zeros(3), "t", (0.0, 1.0, 0.0, 1.0))


def nonsense(self: Case, *given: Any) -> Any:
    return 42


def flat(self: Case, recorded: np.ndarray) -> np.ndarray:
    return recorded[:, 0]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(registry, "wrong", Wrong)
    yield
    ml.use("numpy")


def line_of(what: Any) -> int:
    found: int = what.__code__.co_firstlineno
    return found


EVERY_WAY = pytest.mark.parametrize(
    ("method", "answer", "problem", "line", "missing"),
    [
        ("picture", divides, "ZeroDivisionError: division by zero", line_of(divides) + 1, "picture.png"),
        ("picture", nonsense, "AttributeError", line_of(nonsense), "picture.png"),
        ("picture", of_wrong_size, "Error: ", line_of(of_wrong_size), "picture.png"),
        ("maps", divides, "ZeroDivisionError: division by zero", line_of(divides) + 1, "map_"),
        ("charts", divides, "ZeroDivisionError: division by zero", line_of(divides) + 1, "chart_"),
        ("cell_fields", divides, "ZeroDivisionError: division by zero", line_of(divides) + 1, "fields.pvd"),
        ("monitor_rows", divides, "ZeroDivisionError: division by zero", line_of(divides) + 1, ""),
        ("monitor_rows", flat, "of shape (", line_of(flat), ""),
    ],
)


@pytest.fixture
def fails_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong was right when it was tried."""
    monkeypatch.setattr(launch, "rehearse", lambda case, history: None)


@EVERY_WAY
def test_it_is_found_before_the_first_iteration(
    meshloom: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    method: str, answer: Any, problem: str, line: int, missing: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(Wrong, method, answer)
    result = meshloom("run", "wrong", "--backend", "numpy", "--set", "output.plot=true", "--out", "a", "--quiet")
    problem = "TypeError: it gives 42" if answer is nonsense else problem
    result.refused(2, f"{method}() of case 'wrong' failed: ", problem, f"({__file__}:{line}); found before the first")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("method", "answer", "problem"),
    [
        ("steps_left", "many", "TypeError: it gives 'many' where a whole number of iterations, or None, is right"),
        ("steps_left", 3.7, "it gives 3.7 where a whole number"),
        ("time_span", 3, "TypeError: it gives 3 where (time now, time at the end), or None, is right"),
        ("time_span", ("a", "b"), "where (time now, time at the end)"),
        ("monitor_rows", [[1j, 2.0]], "ValueError: it gives complex values where real ones are right"),
        ("cell_fields", {3: np.zeros(12)}, "TypeError: a field is called 3 where a text is right"),
        ("picture", Picture(np.zeros(12), 5, (0.0, 1.0, 0.0, 1.0)), "TypeError: its label is 5"),  # type: ignore[arg-type]
        ("picture", Picture(np.zeros(12), "t", (1.0, 0.0, 0.0, 1.0)), "where xmin < xmax and ymin < ymax is right"),
        ("picture", Picture(np.zeros(12), "t", (0, "a", None, 1)), "(xmin, xmax, ymin, ymax) is right"),  # type: ignore
        ("maps", {3: Picture(np.zeros(12), "t", (0.0, 1.0, 0.0, 1.0))}, "TypeError: a name is 3"),
        ("charts", [Chart(3, np.zeros(1), {}, "x", "y")], "TypeError: its name or label is 3"),  # type: ignore[arg-type]
        ("charts", [Chart("c", np.zeros(1), {3: np.zeros(1)}, "x", "y")], "the name of a curve is 3"),  # type: ignore
    ],
)
def test_answers_of_wrong_kinds_are_found_too(
    meshloom: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str, answer: Any, problem: str
) -> None:
    monkeypatch.setattr(Wrong, method, lambda self, *given: answer)
    result = meshloom("run", "wrong", "--backend", "numpy", "--set", "output.plot=true", "--out", "a", "--quiet")
    result.refused(2, f"{method}() of case 'wrong' failed: ", problem, "; found before the first iteration")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(("name", "given"), [("state", "abc"), ("state", (1.0,)), ("recorded", (np.zeros(1),))])
def test_state_and_recorded_are_fields_and_globals(
    meshloom: Command, monkeypatch: pytest.MonkeyPatch, name: str, given: Any
) -> None:
    made = Wrong.__init__

    def spoilt(self: Wrong, config: Any) -> None:
        made(self, config)
        setattr(self, name, given)

    monkeypatch.setattr(Wrong, "__init__", spoilt)
    meshloom("run", "wrong", "--backend", "numpy", "--quiet").refused(2, f"self.{name} = ", "it must be a tuple of")


def test_steps_left_below_zero_is_the_end(meshloom: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a formula for a time that is past."""
    right = Wrong.steps_left
    monkeypatch.setattr(Wrong, "steps_left", lambda self, recorded: (right(self, recorded) or 0) or -5)
    result = meshloom("run", "wrong", "--backend", "numpy", "--out", "a", "--json", "--quiet")
    assert result.code == 0 and result.json["finished"], result.err


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_monitors_that_fail_at_any_time_cost_no_run(
    meshloom: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, calls: int
) -> None:
    right, asked = Wrong.monitor_rows, list[int]()

    def later(self: Wrong, recorded: np.ndarray) -> np.ndarray:
        asked.append(len(recorded))
        return right(self, recorded) if len(asked) <= calls else divides(self)

    monkeypatch.setattr(Wrong, "monitor_rows", later)
    run = ("run", "wrong", "--backend", "numpy", "--set", "output.every=3", "--out", "a", "--json", "--quiet")
    result = meshloom(*run)
    assert result.code == 3 and result.json["finished"], result.err
    assert (tmp_path / "a" / "checkpoint.h5").exists()


@pytest.mark.parametrize("answer", [nonsense, divides])
def test_what_nobody_asked_for_is_not_tried(meshloom: Command, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(Wrong, "picture", answer)
    assert meshloom("run", "wrong", "--backend", "numpy", "--set", "output.plot=false", "--quiet").code == 0


def test_several_are_found_at_once(meshloom: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wrong, "picture", divides)
    monkeypatch.setattr(Wrong, "cell_fields", lambda self: {"t": np.zeros(3)})
    result = meshloom("run", "wrong", "--backend", "numpy", "--set", "output.plot=true", "--quiet")
    result.refused(2, "picture() of", "cell_fields() of", "'t' is an array of shape (3,)", "(12,) is right")


@EVERY_WAY
@pytest.mark.usefixtures("fails_later")
def test_a_finished_run_loses_nothing_else(
    meshloom: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    method: str, answer: Any, problem: str, line: int, missing: str,
) -> None:  # fmt: skip
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(Wrong, method, answer)
    run = ("run", "wrong", "--backend", "numpy", "--set", "output.plot=true", "--out", "a", "--json", "--quiet")
    result = meshloom(*run)
    assert result.code == 3, result.err
    result.refused(3, f"{method}() of case 'wrong' failed: ", problem, f"({__file__}:{line}); everything else is there")
    assert result.json["finished"] and len(result.json["failures"]) == 1
    files = {path.name for path in (tmp_path / "a").iterdir()}
    assert files >= (DONE | {"picture.png"}) - {missing} and missing not in files
    assert (tmp_path / "a" / "monitors.csv").read_text().count("\n") == result.json["iterations"] + 1
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(registry, "wrong", Wrong)
    mended = meshloom("run", "--restart", "a/checkpoint.h5", "--set", "pot.end=2.0", "--quiet", "--out", "b")
    assert mended.code == 0, mended.err


@pytest.mark.usefixtures("fails_later")
def test_what_fails_while_it_runs_is_said_once(meshloom: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wrong, "cell_fields", divides)
    result = meshloom("run", "wrong", "--backend", "numpy", "--set", "output.every=3", "--out", "a")
    assert result.code == 3 and "Traceback" not in result.out + result.err
    assert result.out.count("the run is not affected") == 1 and result.err.count("\n") == 1


def test_nothing_is_wrong(meshloom: Command) -> None:
    result = meshloom("run", "wrong", "--backend", "numpy", "--out", "a", "--json")
    assert result.code == 0 and result.json["failures"] == []
