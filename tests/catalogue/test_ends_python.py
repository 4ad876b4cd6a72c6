"""A case of one's own that ends Python, by ``sys.exit()`` or by hand: a mistake like any other, and nothing is lost."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import meshloom as ml
from meshloom.errors import RunError, UserError
from meshloom.run.place import is_mistake, one_line_for
from tests.catalogue.test_own_file import POT, QUICK
from tests.cli.conftest import meshloom as meshloom  # the fixture
from tests.cli.harness import Command

ENDS = {
    "sys.exit()": "SystemExit",
    "raise SystemExit(0)": "SystemExit: 0",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
}
LATER = "if self.t.numpy()[0] < 15.0:\n            "
BEFORE = {
    "the file": POT.replace("@dataclass", "END\n@dataclass", 1),
    "__init__": POT.replace("        self.config, ", "        END\n        self.config, "),
    "a kernel": POT.replace("    t *= 1.0", "    END\n    t *= 1.0"),
    "a program": POT.replace("            heat.value", "            END\n            heat.value"),
    "cell_fields": POT.replace("        return {", "        END\n        return {"),
    "coefficients": f"{POT}\n    def coefficients(self):\n        END\n",
    "monitor_rows": f"{POT}\n    def monitor_rows(self, recorded):\n        END\n",
    "picture": f"{POT}\n    def picture(self):\n        END\n",
}
DURING = {
    "a function that is called": POT.replace("= step\n", "= ml.program(lambda: (step(), ml.call(self.look)))\n")
    + f"\n    def look(self):\n        {LATER}END\n",
    "steps_left": f"{POT}\n    def steps_left(self, recorded):\n        {LATER}END\n",
}
AFTER = {
    "cell_fields": POT.replace("        return {", f"        {LATER}END\n        return {{"),
    "charts": f"{POT}\n    def charts(self, history):\n        {LATER}END\n        return ()\n",
    "monitor_rows": f"{POT}\n    def monitor_rows(self, recorded):\n        {LATER}END\n        return recorded\n",
    "picture": f"{POT}\n    def picture(self):\n        {LATER}END\n",
}


@pytest.fixture
def pot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Writes a file in which END is a way to end Python; returns it."""

    def written(text: str, end: str) -> Path:
        assert "END" in text
        path = tmp_path / "pot.py"
        path.write_text("import sys\n" + text.replace("END", end))
        return path

    return written


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("hook", BEFORE)
def test_it_is_refused_before_the_run(
    hook: str, end: str, meshloom: Command, pot: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = pot(BEFORE[hook], end)
    meshloom("run", "pot.py", *QUICK).refused(2, f"{path}:", f"{ENDS[end]}, which would end Python; raise an error")
    assert not [*(tmp_path / "runs").glob("*")]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("hook", DURING)
def test_a_run_ends_as_with_any_error(
    hook: str, end: str, meshloom: Command, pot: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = pot(DURING[hook], end)
    words = ("run", "pot.py", *QUICK, "--out", "a", "--set", "output.checkpoint_every=1")
    meshloom(*words).refused(1, f"{path}:", f"{ENDS[end]}, which would end Python")
    assert (tmp_path / "a" / "checkpoint.h5").exists()
    path.write_text(POT)
    assert meshloom("run", "--restart", "a", "--changed", "--quiet").code == 0
    assert len((tmp_path / "a" / "monitors.csv").read_text().splitlines()) == 1 + 6


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("hook", AFTER)
def test_what_cannot_be_shown_costs_nothing_else(
    hook: str, end: str, meshloom: Command, pot: Callable[[str, str], Path], tmp_path: Path
) -> None:
    pot(AFTER[hook], end)
    result = meshloom("run", "pot.py", *QUICK, "--out", "a")
    result.refused(3, f"{hook}() of case 'pot' failed: {ENDS[end]}, which would end Python", "everything else is there")
    assert {"checkpoint.h5", "monitors.csv", "report.html"} <= {one.name for one in (tmp_path / "a").iterdir()}


def test_from_python(pot: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    path = pot(DURING["steps_left"], "sys.exit()")
    with pytest.raises(RunError, match="SystemExit, which would end Python"):
        ml.run_case(path, {"run.backend": "numpy"}, progress=False)
    path = pot(BEFORE["__init__"], "sys.exit()")
    with pytest.raises(UserError, match="SystemExit, which would end Python"):
        ml.run_case(path, {"run.backend": "numpy"}, progress=False)


def stopped() -> None:
    signal.raise_signal(signal.SIGINT)


def stopped_and_raised_again() -> None:
    try:
        stopped()
    except KeyboardInterrupt:
        raise


def stopped_and_told() -> None:
    try:
        stopped()
    except KeyboardInterrupt:
        raise KeyboardInterrupt("I was stopped") from None


def raised() -> None:
    raise KeyboardInterrupt


def raised_twice() -> None:
    try:
        raised()
    except KeyboardInterrupt:
        raise KeyboardInterrupt("once more") from None


@pytest.mark.parametrize(
    ("own", "mistaken"),
    [(stopped, False), (stopped_and_raised_again, False), (stopped_and_told, False), (raised, True),
     (raised_twice, True), (sys.exit, True)],
)  # fmt: skip
def test_ctrl_c_is_no_mistake(own: Callable[[], None], mistaken: bool) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(BaseException) as caught:
            own()
        assert is_mistake(caught.value) == mistaken
        with pytest.raises(UserError if mistaken else KeyboardInterrupt), one_line_for(__file__, UserError):
            own()
    finally:
        signal.signal(signal.SIGINT, before)
