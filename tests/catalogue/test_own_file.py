"""Cases in files of one's own, on the command line: as ready ones, and every mistake in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.case import Case, registry
from meshloom.solvers import cases
from tests.cli.conftest import meshloom as meshloom  # the fixture
from tests.cli.harness import Command, files_below

POT = """
from dataclasses import dataclass
import meshloom as ml
from meshloom.case import Case, CaseConfig, option, section

@dataclass(frozen=True)
class Kettle:
    loss: float = option(0.1, "of heat in a step", low=0.0, high=0.5)

@dataclass(frozen=True)
class Settings(CaseConfig):
    kettle: Kettle = section(Kettle, "The kettle.")

@ml.kernel
def cool(t: ml.ReadWrite, loss: ml.Read, heat: ml.Sum):
    t *= 1.0 - loss
    heat += t

class Pot(Case):
    name, title, Config, monitors = "pot", "a pot cools", Settings, ("heat",)

    def __init__(self, config):
        self.config, self.mesh = config, ml.generate.box((4, 3))
        self.t, heat = self.mesh.cells.field("t", dtype=self.dtype, data=20.0), ml.Global(0.0, "heat")
        self.state, self.recorded = (self.t,), (heat,)

        @ml.program
        def step():
            heat.value = 0.0
            cool(self.mesh.cells, self.t, config.kettle.loss, heat)

        self.program = step

    def cell_fields(self):
        return {"t": self.t}
"""
QUICK = ("--backend", "numpy", "--iterations", "6", "--quiet")


@pytest.fixture
def pot(tmp_path: Path) -> Path:
    path = tmp_path / "own" / "pot.py"
    path.parent.mkdir()
    path.write_text(POT)
    return path


def changed(pot: Path, *pairs: tuple[str, str]) -> None:
    text = POT
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    pot.write_text(text)


def test_it_runs_as_a_ready_one(meshloom: Command, pot: Path, tmp_path: Path) -> None:
    assert meshloom("run", "own/pot.py", *QUICK, "--set", "kettle.loss=0.5").code == 0
    run = tmp_path / "runs" / "pot-001"
    assert (run / "monitors.csv").read_text().splitlines()[-1] == f"6,{12 * 20.0 / 64}"
    assert (run / "run.toml").read_text().startswith(f'case = "{pot}:Pot"\ncase_sha256 = "')
    assert meshloom("run", "runs/pot-001/run.toml", "--quiet", "--out", "again").code == 0
    assert (tmp_path / "again" / "monitors.csv").read_bytes() == (run / "monitors.csv").read_bytes()
    assert "pot" not in registry and "pot" not in cases()
    shown = meshloom("show", "own/pot.py:Pot", "--set", "kettle.loss=0.2")
    assert shown.code == 0 and "# of heat in a step (a number from 0.0 up to 0.5)\nloss = 0.2" in shown.out
    assert "Loops: cool." in shown.out and "sha256" not in shown.out
    meshloom("run", "own/pot.py", *QUICK, "--set", "schedule.coool=tile").refused(2, "did you mean 'cool'?")
    assert meshloom("run", "own/pot.py", *QUICK, "--precision", "single").code == 0


def test_it_goes_on_where_it_stopped(meshloom: Command, pot: Path, tmp_path: Path) -> None:
    settings = ("own/pot.py", "--backend", "numpy", "--quiet")
    assert meshloom("run", *settings, "--iterations", "9", "--out", "whole").code == 0
    assert meshloom("run", *settings, "--iterations", "4", "--out", "half").code == 0
    assert meshloom("run", "--restart", "half", "--iterations", "9", "--quiet").code == 0
    assert (tmp_path / "half" / "monitors.csv").read_bytes() == (tmp_path / "whole" / "monitors.csv").read_bytes()


def test_a_file_that_has_changed_goes_on_when_told(meshloom: Command, pot: Path, tmp_path: Path) -> None:
    assert meshloom("run", "own/pot.py", *QUICK, "--out", "a").code == 0
    pot.write_text(POT + "# another line\n")
    before = files_below(tmp_path / "a")
    for words in (("run", "--restart", "a", "--iterations", "8"), ("finish", "a")):
        meshloom(*words, "--quiet").refused(2, f"{pot} has changed since", "give --changed")
    assert files_below(tmp_path / "a") == before
    result = meshloom("run", "a/run.toml", "--quiet", "--out", "b")  # a new run, which may
    assert result.code == 0 and result.err == f"meshloom: a/run.toml: {pot} has changed since this was written\n"
    assert meshloom("finish", "a", "--changed", "--quiet").code == 0
    assert meshloom("run", "--restart", "a", "--iterations", "8", "--changed", "--quiet").code == 0
    assert (tmp_path / "a" / "monitors.csv").read_text().count("\n") == 9
    assert meshloom("run", "--restart", "a", "--iterations", "9", "--quiet").code == 0  # it is known as it is now


def test_a_file_that_has_moved_is_named(meshloom: Command, pot: Path, tmp_path: Path) -> None:
    assert meshloom("run", "own/pot.py", *QUICK, "--out", "a").code == 0
    (tmp_path / "new").mkdir()
    pot.rename(tmp_path / "new" / "kettle.py")
    meshloom("run", "--restart", "a", "--iterations", "8").refused(2, "a/checkpoint.h5:1: ", "name it: meshloom run")
    assert meshloom("run", "new/kettle.py", "--restart", "a", "--iterations", "8", "--quiet").code == 0
    assert meshloom("run", "--restart", "a", "--iterations", "9", "--quiet").code == 0


def test_toml_beside_it(meshloom: Command, pot: Path, tmp_path: Path) -> None:
    toml = pot.with_name("small.toml")
    toml.write_text('case = "pot.py:Pot"\n[kettle]\nloss = 0.0\n[run]\niterations = 2\nbackend = "numpy"\n')
    result = meshloom("run", "own/small.toml", "--json")  # its path begins where the TOML file is
    assert result.code == 0 and result.json["monitors"] == {"heat": 240.0}
    toml.write_text('case = "pots.py"\n')
    meshloom("run", "own/small.toml").refused(2, "own/small.toml:1: ", "own/pots.py: ", "No such file")


def test_a_module_beside_it(meshloom: Command, pot: Path) -> None:
    pot.with_name("how_much_is_lost.py").write_text("LOSS = 0.25\n")
    changed(pot, ("import meshloom as ml", "import meshloom as ml\nfrom how_much_is_lost import LOSS"),
            ("option(0.1", "option(LOSS"))  # fmt: skip
    assert "loss = 0.25" in meshloom("show", "own/pot.py").out


def test_one_of_several(meshloom: Command, pot: Path) -> None:
    pot.write_text(POT + '\nclass Big(Pot):\n    name = "big"\n')
    meshloom("run", "own/pot.py").refused(2, "several cases in it; name one of pot.py:Pot, pot.py:Big")
    assert meshloom("run", "own/pot.py:Big", *QUICK).code == 0
    meshloom("run", "own/pot.py:Pots").refused(2, "no case 'Pots' in it; did you mean 'Pot'?")
    pot.write_text(POT.replace("class Pot(Case):\n    name, title,", "class Common(Case):\n    title,")
                   .replace('= "pot", "a pot', '= "a pot') + '\nclass Pot(Common):\n    name = "pot"\n')  # fmt: skip
    assert meshloom("run", "own/pot.py", *QUICK).code == 0


def test_the_name_of_a_ready_case_is_not_taken(meshloom: Command, pot: Path) -> None:
    ready = cases()["airfoil"]
    changed(pot, ('= "pot"', '= "airfoil"'))
    assert meshloom("run", "own/pot.py", *QUICK, "--out", "a").code == 0
    assert meshloom("run", "--restart", "a", "--iterations", "7", "--quiet").code == 0
    assert cases()["airfoil"] is ready

    class Other(Case):
        name = "airfoil"

    assert cases()["airfoil"] is ready and not issubclass(ready, Other)


WRONG = [
    (("class Pot", "class Pot("), "pot.py:19: not Python: "),
    (("import meshloom as ml", "import meshlom as ml"), "pot.py:3: ModuleNotFoundError: No module named 'meshlom'"),
    (("import meshloom as ml", "import meshloom as ml\nraise SystemExit(3)"), "pot.py:4: SystemExit: 3"),
    (("heat: ml.Sum", "heat: ml.Sun"), "pot.py:14: kernel cool: parameter heat: 'Sun' is no access mode"),
    (("t *= 1.0 - loss", "loss *= 2.0"), "pot.py:"),
    (("class Pot(Case)", "class Pot"), "no case in it; derive a class"),
    (('"pot", "a pot cools", Settings, ("heat",)', '"a/b", "a pot cools", Settings, ("heat",)'),
     "pot.py:19: class Pot has name = 'a/b', which no folder can have"),
    (('Settings, ("heat",)', 'Settings, ("heat")'), "has monitors = 'heat'; it must be a tuple of names"),
    (('Settings, ("heat",)', 'Settings, ("a", "a")'), "has two monitors called 'a'"),
    (('Settings, ("heat",)', 'Settings, (" ",)'), "has a monitor ' '; it needs a name"),
    (('Settings, ("heat",)', 'Settings, ("iteration",)'), "has a monitor 'iteration'; it needs a name, other than"),
    (('Settings, ("heat",)', 'Settings(), ("heat",)'), "it must be a dataclass derived from CaseConfig"),
    (("name, title, Config, monitors", "name, title, Config, monitor"), "class Pot has no monitors: "),
    (("def cell_fields", "def fields"), "class Pot lacks cell_fields()"),
    (("Settings(CaseConfig)", "Settings"), "has a Config without the section run"),
    (('option(0.1, "of heat in a step", low=0.0, high=0.5)', "0.1"), "kettle.loss without a word about it; write"),
    (("option(0.1,", "option(0.7,"), "has a wrong default: kettle.loss must be a number from 0.0 up to 0.5, got 0.7"),
    (("loss: float", "loss: list"), "has the setting kettle.loss of type <class 'list'>"),
    (("@dataclass(frozen=True)\nclass Kettle", "class Kettle"), "has the setting kettle of type "),
    (("data=20.0", "data=[1.0]"), "pot.py:24: "),
    (("self.program = step", "self.program = step(1)"), "pot.py:32: "),
    (("config.kettle.loss, heat", "1 / 0, heat"), "pot.py:30: ZeroDivisionError: division by zero"),
    (('{"t": self.t}', '{"t": self.tt}'), "AttributeError: 'Pot' object has no attribute 'tt' ("),
    (('{"t": self.t}', '{"t": [1.0, 2.0]}'), "cell_fields() of case 'pot' failed: ValueError: 't' is an array"),
    (("(heat,)", "(heat, heat)"), "monitor_rows() of case 'pot' failed: ValueError: it gives an array of shape (1, 2)"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_every_mistake_is_one_line(
    meshloom: Command, pot: Path, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    changed(pot, change)
    meshloom("run", "own/pot.py", *QUICK).refused(2, str(pot), said)
    assert not [*(tmp_path / "runs").glob("*")]


def test_a_precision_that_it_has_not_heard_of(meshloom: Command, pot: Path) -> None:
    changed(pot, ("dtype=self.dtype, ", ""))
    meshloom("run", "own/pot.py", *QUICK, "--precision", "single").refused(
        2, "float32; make them with dtype=self.dtype"
    )


LOOK = """
    def look(self):
        float("x" if self.t.numpy()[0] < 15 else 1)
"""


def test_what_breaks_while_it_runs_is_one_line(meshloom: Command, pot: Path) -> None:
    changed(pot, ("self.program = step\n", f"self.program = ml.program(lambda: (step(), ml.call(self.look)))\n{LOOK}"))
    meshloom("run", "own/pot.py", *QUICK).refused(1, f"{pot}:35: ValueError: could not convert")


def test_a_script_is_not_run(meshloom: Command, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text('open("was_run", "w")\n')
    meshloom("run", "script.py").refused(2, "a script is run by: python script.py")
    assert not (tmp_path / "was_run").exists()
    for name in ("missing.py", "missing.py:Pot", "script.py:"):
        assert meshloom("run", name).code == 2
    (tmp_path / "binary.py").write_bytes(b"class\0")
    meshloom("run", "binary.py").refused(2, "binary.py", "not Python")
    (tmp_path / "folder.py").mkdir()
    meshloom("run", "folder.py").refused(2, "folder.py: the file of the case cannot be read: Is a directory")
