"""Whoever writes a file follows links, and leaves alone what is no file: every public writer and file of a run."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshloomError, RunError, UserError
from meshloom.io.files import write_atomically
from meshloom.run import files
from tests.one_line import one_line_from

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes that have names")
PAGES = ("report.html", "report.json")  # which tell when a run was


def _box() -> ml.Mesh:
    return ml.generate.box((3, 2))


_BOX = _box()


def _on_cells() -> ml.Field:
    return _BOX.cells.field("u", data=np.arange(6.0))


WRITERS: dict[str, Callable[[Path], object]] = {
    "a.h5": lambda path: ml.save(path, _on_cells()),
    "a.vtu": lambda path: ml.write(path, _box(), overwrite=True),
    "a.msh": lambda path: ml.write(path, _box(), overwrite=True),
    "a.vti": lambda path: ml.write(path, ml.Grid((3, 4)), overwrite=True),
    "a.png": lambda path: ml.plot(_on_cells(), save=path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_link_stays_and_leads_to_what_was_written(name: str, tmp_path: Path) -> None:
    """Whether there was a file at its end or not, and over another link."""
    write, plain = WRITERS[name], tmp_path / name
    write(plain)
    (tmp_path / "else").mkdir()
    for what, before in {"old": b"old", "none": None}.items():
        target, between, link = (
            tmp_path / "else" / f"{what}-{name}",
            tmp_path / f"{what}-b",
            tmp_path / f"{what}-{name}",
        )
        if before is not None:
            target.write_bytes(before)
        between.symlink_to(target.relative_to(tmp_path))
        link.symlink_to(between)
        write(link)
        assert link.is_symlink() and between.is_symlink() and not target.is_symlink()
        assert len(target.read_bytes()) == len(plain.read_bytes())
        assert [path.name for path in (tmp_path / "else").glob(".*")] == []


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_no_file_is_refused_and_stays(name: str, tmp_path: Path) -> None:
    write, path = WRITERS[name], tmp_path / name
    os.mkfifo(path)
    with one_line_from(UserError, f"cannot write .*{name}: it is a pipe, not a file; give the name of a file"):
        write(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    path.unlink()
    path.symlink_to("/dev/null")
    with one_line_from(UserError, f"cannot write .*{name}: it leads to a device, not a file; give the name of a file"):
        write(path)
    assert path.is_symlink() and stat.S_ISCHR(path.stat().st_mode)
    path.unlink()
    path.symlink_to(path)
    with one_line_from(MeshloomError, name):
        write(path)
    path.unlink()
    path.mkdir()
    with one_line_from(MeshloomError, "folder"):
        write(path)
    assert [*tmp_path.iterdir()] == [path]


def test_a_link_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.h5").symlink_to(tmp_path / "none/b.h5")
    with one_line_from(RunError, r"cannot write .*a\.h5: No such file"):
        ml.save(tmp_path / "a.h5", _on_cells())


@ml.kernel
def halve(u: ml.ReadWrite, total: ml.Sum):
    u *= 0.5
    total += u


def marched(out: Path, steps: int) -> list[Path]:
    """A run with files of every kind; these."""
    ml.use("numpy")
    mesh, total = _box(), ml.Global(0.0, "total")
    u = mesh.cells.field("u", data=np.arange(6.0))

    @ml.program
    def step() -> None:
        total.value = 0.0
        halve(mesh.cells, u, total)

    ml.march(step, steps=steps, out=out, fields={"u": u}, every=1, probe_every=1, show=total, restart=True,
             probes={"p": (0.3, 0.6)}, integrals={"all": "u"}, surface=["xmin"], progress=False,
             lines={"up": {"from": (0.5, 0.1), "to": (0.5, 0.9), "points": 3}})  # fmt: skip
    return sorted(out.iterdir())


@pytest.fixture
def drawn_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are written as ever, but nothing is drawn."""
    monkeypatch.setattr(files, "draw", lambda task, path, *_: write_atomically(path, b"drawn"))


@pytest.mark.usefixtures("drawn_quickly")
def test_files_of_a_run_that_are_links(tmp_path: Path) -> None:
    """As where somebody keeps them on another disk: they stay links, and the run goes on behind them."""
    wanted = {path.name: path.read_bytes() for path in marched(tmp_path / "whole", 4)}
    (tmp_path / "disk").mkdir()
    linked = marched(tmp_path / "run", 2)
    for path in linked:
        path.rename(tmp_path / "disk" / path.name)
        path.symlink_to(tmp_path / "disk" / path.name)
    found = {path.name: path.read_bytes() for path in marched(tmp_path / "run", 4)}
    assert len(linked) >= 12 and all(path.is_symlink() for path in linked)
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name] and name not in PAGES] == []


@pytest.mark.usefixtures("drawn_quickly")
def test_files_of_a_run_that_are_pipes(tmp_path: Path) -> None:
    """None is waited for or replaced; the run ends in one line, or has it with what it cannot show."""
    for path in marched(tmp_path / "whole", 1):
        (tmp_path / f"in-{path.name}").mkdir()
        pipe = tmp_path / f"in-{path.name}" / path.name
        os.mkfifo(pipe)
        if path.name not in PAGES and path.suffix != ".png":
            with one_line_from(UserError, f"cannot write .*{path.name}: it is a pipe"):
                marched(pipe.parent, 1)
        else:
            marched(pipe.parent, 1)
        assert stat.S_ISFIFO(pipe.stat().st_mode), path.name
