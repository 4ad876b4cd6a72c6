"""Cases of installed packages: listed and run by name; a broken one costs a line, and the others nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.catalogue.test_own_file import POT, QUICK
from tests.cli.conftest import meshloom as meshloom  # the fixture
from tests.cli.harness import Command

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A package of that name with entry points, and a module with the text of a case."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def call(package: str, text: str, **offered: str) -> None:
        info = site / f"{package}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
        entries = "".join(f"{name} = {value}\n" for name, value in offered.items())
        (info / "entry_points.txt").write_text(f"[meshloom.cases]\n{entries}")
        (site / f"{package}.py").write_text(text)
        monkeypatch.delitem(sys.modules, package, raising=False)

    return call


def test_it_is_listed_shown_run_and_gone_on_with(meshloom: Command, install: Install) -> None:
    install("kitchen_one", POT, pot="kitchen_one:Pot")
    listed = meshloom("cases")
    assert "\npot                 a pot cools\n" in listed.out and "\nairfoil " in listed.out and listed.err == ""
    assert 'case = "pot"\n' in meshloom("show", "pot").out
    assert meshloom("run", "pot", *QUICK, "--out", "a").code == 0
    assert meshloom("run", "--restart", "a", "--iterations", "8", "--quiet").code == 0
    meshloom("run", "pott").refused(2, "unknown case 'pott'; did you mean 'pot'?")
    meshloom("new", "pot").refused(2, "is a case already")


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        (
            "import no_such_thing",
            "kitchen_two:Pot",
            "ModuleNotFoundError: No module named 'no_such_thing'",
        ),
        ("raise SystemExit(7)", "kitchen_two:Pot", "SystemExit: 7"),
        (POT, "kitchen_two:Pots", "AttributeError"),
        (POT, "kitchen_two:cool", "expected a class derived from meshloom.case.Case"),
        (POT.replace("def cell_fields", "def fields"), "kitchen_two:Pot", "class Pot lacks cell_fields()"),
        (POT.replace('= "pot"', '= "kettle"'), "kitchen_two:Pot", "calls itself 'kettle'"),
    ],
)
def test_a_broken_one_takes_nothing_down(meshloom: Command, install: Install, text: str, value: str, said: str) -> None:
    install("kitchen_two", text, pot=value)
    listed = meshloom("cases")
    assert listed.code == 0 and "\nairfoil " in listed.out and "\npot" not in listed.out
    assert listed.err.count("\n") == 1 and listed.err.startswith("meshloom: left out: case 'pot' of kitchen_two 1.5")
    assert said in listed.err
    meshloom("run", "pot").refused(2, "case 'pot' of kitchen_two 1.5", said)
    assert meshloom("show", "airfoil").err == ""


def test_names_that_clash(meshloom: Command, install: Install) -> None:
    install("kitchen_three", POT, pot="kitchen_three:Pot")
    install("kitchen_four", POT.replace('= "pot"', '= "airfoil"'), pot="kitchen_four:Pot", airfoil="kitchen_four:Pot")
    meshloom("run", "pot").refused(2, "case 'pot' is offered by", "kitchen_three 1.5", "kitchen_four 1.5", "uninstall")
    shown = meshloom("show", "airfoil")
    assert "mach = " in shown.out and shown.code == 0  # the ready one
    assert shown.err == "meshloom: case 'airfoil' of kitchen_four 1.5 is left out: a ready case has that name\n"
    listed = meshloom("cases")
    assert listed.code == 0 and listed.err.count("\n") == 2 and "\nairfoil             inviscid" in listed.out
