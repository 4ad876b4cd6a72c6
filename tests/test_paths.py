"""Every public function that takes a path: names that no file system has, folders and pipes where a file should be."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshloomError
from tests.one_line import one_line_from

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes that have names")
LIMIT = 5  # seconds: whoever waits for a pipe is ended by the alarm


class Waits(BaseException):
    """Which nobody takes for an error of a file."""


class Small:
    """A field on a mesh, one on a grid, and a program."""

    def __init__(self) -> None:
        ml.use("numpy")
        self.mesh, self.grid = ml.generate.box((2, 2)), ml.Grid((4, 4))
        self.u, self.g = self.mesh.cells.field("u", data=np.arange(4.0)), self.grid.field("g")
        self.step = ml.program(lambda: self.u.fill(1.0))


READERS: dict[str, Callable[[Small, Any], Any]] = {
    **{f"ml.read {ending}": (lambda small, path, ending=ending: ml.read(f"{path}{ending}"))
       for ending in (".msh", ".su2", ".vtu", ".cgns", ".dat")},
    "ml.load": lambda small, path: ml.load(path, small.u),
    "piccg": lambda small, path: ml.linalg.PICCG(path),
    "ml.run_case": lambda small, path: ml.run_case(f"{path}.toml", out=None),
    "ml.study": lambda small, path: ml.study(f"{path}.toml", {"run.iterations": [1]}),
}  # fmt: skip
WRITERS: dict[str, Callable[[Small, Any], Any]] = {
    **{f"ml.write {ending}": (lambda small, path, end=ending: ml.write(f"{path}{end}", small.mesh, overwrite=True))
       for ending in (".msh", ".su2", ".vtu")},
    "ml.write .vti": lambda small, path: ml.write(f"{path}.vti", small.grid, overwrite=True),
    "ml.save": lambda small, path: ml.save(path, small.u),
    "ml.plot": lambda small, path: ml.plot(small.u, save=f"{path}.png"),
}  # fmt: skip
FOLDERS: dict[str, Callable[[Small, Any], Any]] = {
    "ml.march": lambda small, path: ml.march(small.step, steps=1, out=path),
    "ml.march over": lambda small, path: ml.march(small.step, steps=1, out=path, overwrite=True),
    "ml.march on": lambda small, path: ml.march(small.step, steps=1, out=path, restart=True),
    "ml.run_case": lambda small, path: ml.run_case("airfoil", {"run.iterations": 1}, out=path),
    "ml.run_case on": lambda small, path: ml.run_case("airfoil", restart=path),
    "ml.study": lambda small, path: ml.study("airfoil", {"run.iterations": [1]}, out=path),
}
ALL = {f"{kind} {name}": function for kind, functions in
       (("from", READERS), ("to", WRITERS), ("into", FOLDERS)) for name, function in functions.items()}  # fmt: skip
SETTINGS = ("from ml.run_case", "from ml.study")  # may come through a pipe of a shell
ENDINGS = ("", ".msh", ".su2", ".vtu", ".cgns", ".dat", ".vti", ".png", ".toml")


@pytest.fixture(autouse=True)
def nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def waits(*_: Any) -> None:
        raise Waits

    before = signal.signal(signal.SIGALRM, waits)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000, "a\0b", "a/" * 3000 + "b", "\ud800"])
@pytest.mark.parametrize("which", ALL)
def test_names_that_no_file_has_are_refused(which: str, name: str) -> None:
    with one_line_from(MeshloomError):
        ALL[which](Small(), name)
    assert not os.listdir(".")


@pytest.mark.parametrize("which", [name for name in ALL if not name.startswith("into")])
def test_a_folder_is_no_file(which: str) -> None:
    for ending in ENDINGS:
        os.mkdir(f"there{ending}")
    with one_line_from(MeshloomError):
        ALL[which](Small(), "there")
    assert sorted(os.listdir(".")) == sorted(f"there{ending}" for ending in ENDINGS)


@pytest.mark.parametrize("which", [name for name in ALL if name not in SETTINGS])
def test_a_pipe_is_no_file(which: str) -> None:
    """Nobody waits for what comes through it, nor takes it away, nor says that there is nothing."""
    for ending in ENDINGS:
        os.mkfifo(f"there{ending}")
    with one_line_from(MeshloomError, "there"):
        ALL[which](Small(), "there")
    assert sorted(os.listdir(".")) == sorted(f"there{ending}" for ending in ENDINGS)


@pytest.mark.parametrize("which", [name for name in ALL if not name.startswith("into")])
def test_a_folder_that_is_not_there(which: str) -> None:
    with one_line_from(MeshloomError, "there"):
        ALL[which](Small(), "there/below")
    assert not os.listdir(".")
