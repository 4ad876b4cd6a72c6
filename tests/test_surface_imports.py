"""What ``import meshloom`` imports, and what waits until it is asked for."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import meshloom as ml

#: Rooms that many scripts do without.
ABOVE = ("case", "catalogue", "cli", "run", "solvers", "studies")
LATER = (*ABOVE, "compact", "io", "linalg", "mesh.generate", "mesh.generators")

SCRIPT = """
import json, sys
import meshloom as ml
loaded = sorted(sys.modules)
listed = dir(ml)
found = {name: getattr(ml, name) is getattr(ml, name) for name in ml.__all__}
from meshloom import *
print(json.dumps([loaded, listed, found, [name for name in ml.__all__ if name not in globals()]]))
"""


@pytest.fixture(scope="module")
def fresh() -> tuple[list[str], list[str], dict[str, bool], list[str]]:
    """Modules of a process that has imported the package, names that it lists, and what they are when asked for."""
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=Path(ml.__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded, listed, found, missing = json.loads(done.stdout)
    return loaded, listed, found, missing


def test_importing_the_package_imports_what_every_script_needs(fresh):
    loaded, *_ = fresh
    assert "meshloom.operation.loop" in loaded
    early = [name for name in loaded for room in LATER if f"{name}.".startswith(f"meshloom.{room}.")]
    assert not early, f"imported though nobody asked: {early}"
    assert not {"scipy", "h5py", "rich", "typer", "matplotlib", "mpi4py"} & set(loaded)


def test_dataclasses_of_the_start_are_those_that_take_less_time(fresh):
    """Those of the standard library took half of the time that importing the package takes."""
    loaded, *_ = fresh
    early = [name for name in loaded if name.startswith("meshloom.") and name != "meshloom.records"]
    assert len(early) > 100
    standard = []
    for name in early:
        tree = ast.parse(Path(importlib.import_module(name).__file__ or "").read_text(encoding="utf-8"))
        given = [one.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                 and node.module == "dataclasses" for one in node.names]  # fmt: skip
        standard += [name] if "dataclass" in given else []
    assert not standard, f"import dataclass from meshloom.records: {standard}"


def test_every_name_is_listed_and_found(fresh):
    _, listed, found, missing = fresh
    assert set(ml.__all__) <= set(listed)
    assert set(found) == set(ml.__all__) and all(found.values())
    assert not missing, f"import * leaves out {missing}"


def test_a_type_checker_knows_what_is_imported_later():
    """Both lists of it in the package's file say the same."""
    tree = ast.parse(Path(ml.__file__).read_text(encoding="utf-8"))
    checked = next(one for one in tree.body if isinstance(one, ast.If) and ast.unparse(one.test) == "_TYPE_CHECKING")
    told = {one.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for one in node.names}
    declared = {ast.unparse(node.target) for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert set(told) | declared == {*ml._WHERE, "world"}
    assert not set(told) & declared
    assert told == {name: ml._WHERE[name] for name in told}


def test_a_name_that_is_misspelt_is_refused():
    with pytest.raises(AttributeError, match="has no attribute 'linalgebra'"):
        getattr(ml, "linalgebra")  # noqa: B009  whose name no type checker knows
