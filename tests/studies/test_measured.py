"""What runs of a study integrate and probe: beside the monitors, and refused before the first run if it is missing."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import UserError
from tests.catalogue.test_own_file import POT
from tests.cli.conftest import meshloom as meshloom  # the fixture
from tests.cli.harness import Command

#: A pot that tells a coefficient by itself, as wide as it is told.
WIDE = POT.replace("ml.generate.box((4, 3))", "ml.generate.box((4, 3), extent=(config.kettle.width, 1.0))").replace(
    "high=0.5)", 'high=0.5)\n    width: float = option(1.0, "of the pot", low=0.5)'
) + """
    def coefficients(self):
        return {"warmth": float(self.t.numpy().max())}
"""  # fmt: skip
COMMON = {"run.backend": "numpy", "run.iterations": 3, "output.plot": False, "output.vtu": False}
LOSSES = {"kettle.loss": [0.0, 0.5]}


@pytest.fixture(autouse=True)
def in_its_folder(here: Callable[[str], None]) -> None:
    here(WIDE)


@pytest.mark.slow
def test_it_is_in_the_table_and_the_picture(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "pot.py").write_text(WIDE.replace(".max())}", '.max()), "heat": -1.0}'))
    push = {"of": "t", "over": "xmax", "normal": True}
    asked = {"probes.middle": [0.5, 0.5], "integrals.all": "t", "integrals.push": push}
    found = ml.study("pot.py", LOSSES, COMMON | asked, out="s", show="middle.t")
    assert found.values("middle.t").tolist() == [20.0, 2.5] and np.allclose(found.values("all"), [20.0, 2.5])
    assert np.allclose(found.values("push[0]"), [20.0, 2.5]) and np.allclose(found.values("push[1]"), 0.0)
    assert found.values("warmth").tolist() == [20.0, 2.5]
    assert found.values("heat").tolist() == [240.0, 30.0]  # the monitor, not the coefficient of the same name
    names = ["kettle.loss", "heat", "warmth", "all", "push[0]", "push[1]", "middle.t", "iterations", "seconds", "run"]
    with open("s/study.csv") as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) == {*names, "failed"} and rows[1]["middle.t"] == "2.5" and rows[1]["failed"] == ""
    heads = str(found).splitlines()[0].split()
    assert set(heads) == set(names) - {"iterations"} and "middle.t 2.5" in capfd.readouterr().out
    assert (tmp_path / "s" / "study.png").stat().st_size > 5000
    with pytest.raises(UserError, match=r"no monitor, probe or integral 'midle\.t'; did you mean 'middle\.t'"):
        found.values("midle.t")


def test_run_case_gives_it_too() -> None:
    done = ml.run_case("pot.py", COMMON | {"kettle.loss": 0.5, "probes.middle": [0.5, 0.5]}, out="r", progress=False)
    assert done.measured == {"warmth": 2.5, "middle.t": 2.5} and done.monitors == {"heat": 30.0}


@pytest.mark.parametrize(
    ("over", "settings", "show", "said"),
    [
        (LOSSES, {}, "warmht", "study: show names 'warmht'; did you mean 'warmth'?"),
        (LOSSES, {}, ["warmth"], "study: show names ['warmth']"),
        (LOSSES, {"probes.p": [9.0, 9.0]}, None, "kettle.loss = 0.0: probes.p at (9, 9) lies in no cell"),
        (LOSSES, {"probes.p": {"at": [0.5, 0.5], "fields": ["u"]}}, None, "probes.p names the field 'u'"),
        ({"probes.p": [[0.5, 0.5], [0.5, 7.0]]}, {}, None, "probes.p = [0.5, 7.0]: probes.p at (0.5, 7) lies in no"),
        ({"kettle.width": [2.0, 1.0]}, {"probes.p": [1.5, 0.5]}, None, "kettle.width = 1.0: probes.p at (1.5, 0.5)"),
        (LOSSES, {"lines.l": {"from": [5, 5], "to": [6, 6]}}, None, "lines.l from [5.0, 5.0] to [6.0, 6.0] meets no"),
        (LOSSES, {"integrals.i": {"of": "t", "over": "lid"}}, None, "integrals.i is over 'lid'"),
        (LOSSES, {"integrals.heat": "t"}, None, "two columns of its table would be called 'heat'"),
        (LOSSES, {"integrals.run": "t"}, None, "two columns of its table would be called 'run'"),
        (LOSSES, {"probes.q": [0.5, 0.5], "integrals.'q.t'": "t"}, None, "columns of its table would be called 'q.t'"),
        (LOSSES, {"output.surface": ["lid"]}, None, "surface names 'lid', which is no boundary group"),
        (LOSSES, {"run.stop.monitor": "haet", "run.stop.below": 1.0}, None, "run.stop.monitor names 'haet'"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused_before_the_first_run(
    over: Any, settings: dict[str, Any], show: Any, said: str, tmp_path: Path
) -> None:
    before = ml.backend(), ml.threads()
    with pytest.raises(UserError) as caught:
        ml.study("pot.py", over, COMMON | settings, show=show)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["pot.py"] and (ml.backend(), ml.threads()) == before


@pytest.mark.slow
def test_a_case_that_cannot_be_set_up_is_a_row_as_before(tmp_path: Path) -> None:
    made = "        self.t, heat"
    (tmp_path / "pot.py").write_text(WIDE.replace(made, f"        1 / config.kettle.loss\n{made}"))
    found = ml.study("pot.py", LOSSES, COMMON | {"probes.p": [0.5, 0.5]}, show="p.t", progress=False, out="s")
    assert "ZeroDivisionError" in found.rows[0].why and found.values("p.t")[1] == 2.5


def test_on_the_command_line(meshloom: Command, tmp_path: Path) -> None:
    words = ("study", "pot.py", "--over", "kettle.loss=[0.5]", "--backend", "numpy", "--iterations", "3", "--set",
             "output.plot=false")  # fmt: skip
    meshloom(*words, "--set", "probes.p=[3, 3]").refused(2, "probes.p at (3, 3) lies in no cell")
    meshloom(*words, "--set", "integrals.sum=t", "--show", "smu").refused(2, "show names 'smu'")
    assert [path.name for path in tmp_path.iterdir()] == ["pot.py"]
    assert meshloom(*words, "--set", "integrals.sum=t", "--show", "sum").code == 0
