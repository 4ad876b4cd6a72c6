"""``ml.save`` and ``ml.load``: what is loaded is what was saved, or one line says why not and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshloomError, UserError
from meshloom.io import checksummed
from tests.one_line import one_line_from


def mesh_field(order: str = "given", layout: str = "aos", shape: tuple[int, int] = (5, 4)) -> ml.Field:
    mesh = ml.generate.box(shape).arranged(order)
    field = mesh.cells.field("u", 2, layout=layout)
    field.set.kept["for this test"] = mesh  # which would go
    return field


def test_fields_and_globals_come_back(tmp_path: Path):
    u, t = mesh_field(), ml.Global(0.25, "t")
    force, count = ml.Global([1.0, np.nan, -np.inf], "force"), ml.Global(2**60 + 1, "count")
    u.assign(np.arange(40.0).reshape(20, 2))
    ml.save(tmp_path / "state.h5", u, t, force, count)
    before = [one.numpy() for one in (u, t, force, count)]
    for one in (u, t, force, count):
        one.assign(0)
    ml.load(str(tmp_path / "state.h5"), count, u, force, t)
    for one, values in zip((u, t, force, count), before, strict=True):
        np.testing.assert_array_equal(one.numpy(), values)


def test_values_are_by_number_whatever_the_order_and_the_layout(tmp_path: Path):
    first, second = mesh_field(), mesh_field("hilbert", "aosoa8")
    first.assign(np.arange(40.0).reshape(20, 2))
    assert second.set.numbering is not None
    ml.save(tmp_path / "a.h5", first)
    ml.load(tmp_path / "a.h5", second)
    np.testing.assert_array_equal(second.numpy(), first.numpy())
    ml.save(tmp_path / "b.h5", second)
    with h5py.File(tmp_path / "b.h5") as file:  # as any other program reads it
        np.testing.assert_array_equal(file["values/u"][...], first.numpy())


def test_ghosts_of_a_grid_are_saved_and_padding_is_not(tmp_path: Path):
    fields = [ml.Grid((4, 5), ghosts=1, aligned=aligned).field("u") for aligned in (True, False)]
    fields[0].fill(7.0)
    ml.save(tmp_path / "a.h5", fields[0])
    ml.load(tmp_path / "a.h5", fields[1])
    assert (fields[1].set.shaped(fields[1], ghosts=True) == 7.0).all()  # type: ignore[attr-defined]


def test_names_of_ones_own(tmp_path: Path):
    s = ml.Set(3, "s")
    u, v = s.field("u", data=1.0), s.field("u", data=2.0)
    ml.save(tmp_path / "a.h5", {"a/b .": u, "": v}, third=u)
    ml.load(tmp_path / "a.h5", {"a/b .": v}, third=v)
    assert (v.numpy() == 1.0).all()
    ml.load(tmp_path / "a.h5", {"": u})
    assert (u.numpy() == 2.0).all()


def test_saving_replaces_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    u = ml.Set(3, "s").field("u", data=1.0)
    ml.save(tmp_path / "a.h5", u)
    before = (tmp_path / "a.h5").read_bytes()
    u.fill(2.0)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with one_line_from(MeshloomError, r"cannot write .*a\.h5: disk full"):
            ml.save(tmp_path / "a.h5", u)
    assert (tmp_path / "a.h5").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a.h5"]
    ml.save(tmp_path / "a.h5", u)
    ml.load(tmp_path / "a.h5", u)
    assert (u.numpy() == 2.0).all()


def test_what_does_not_fit_is_refused_and_nothing_is_loaded(tmp_path: Path):
    u, t = mesh_field(), ml.Global(1.0, "t")
    u.fill(1.0)
    ml.save(tmp_path / "a.h5", u, t)
    scalar = ml.Set(20, "cells").field("u")
    moved = mesh_field()
    moved.set.points = moved.set.points + 1.0
    for one, expected in (
        (mesh_field(shape=(4, 5)), r"'u' was saved on another mesh with as many elements \(digest"),
        (moved, "'u' was saved on another mesh"),
        (mesh_field(shape=(5, 5)), r"'u' has the shape \(20, 2\) there, and \(25, 2\) here on cells"),
        (scalar, r"'u' has the shape \(20, 2\) there, and \(20,\) here"),
        (ml.Set(20).field("u", 2, dtype=int), "'u' holds int64, got float64"),
        (ml.Set(20).field("v", 2), "there is no 'v' in it; "),
    ):
        t.value = 5.0
        with one_line_from(UserError, expected):
            ml.load(tmp_path / "a.h5", t, one)
        assert t.value == 5.0 and not one.numpy().any()
    single = ml.Set(20).field("u", 2, dtype=np.float32)  # a plain set has no identity but its size
    ml.load(tmp_path / "a.h5", single)
    assert (single.numpy() == 1.0).all()


def test_parts_of_a_set_are_known_by_their_members(tmp_path: Path):
    cells = ml.Set(6, "cells")
    first, second = cells.subset([0, 2]).field("u", data=1.0), cells.subset([0, 3]).field("u")
    ml.save(tmp_path / "a.h5", first)
    with one_line_from(UserError, "another mesh"):
        ml.load(tmp_path / "a.h5", second)


WRONG: dict[str, tuple[Callable[[Path, ml.Field], Any], str]] = {
    "no path": (lambda p, u: ml.save(u), "save: the first argument is the path"),  # type: ignore[arg-type]
    "nothing": (lambda p, u: ml.save(p / "new.h5"), r"save: give the fields and globals, as in save\(path, u, t\)"),
    "arrays": (lambda p, u: ml.save(p / "new.h5", u.numpy()), "expected a Field or Global, got"),  # type: ignore[arg-type]
    "two of a name": (lambda p, u: ml.save(p / "new.h5", u, u.like("u")), "two are called 'u'; give them names"),
    "no folder": (lambda p, u: ml.save(p / "no" / "new.h5", u), "cannot write .*No such file"),
    "a number as a name": (lambda p, u: ml.load(p / "a.h5", {1: u}), "names are strings"),  # type: ignore[dict-item]
    "another name": (lambda p, u: ml.load(p / "a.h5", {"h": u}), r"there is no 'h' in it; it holds u$"),
    "no file": (lambda p, u: ml.load(p / "none.h5", u), "no such saved state file"),
    "into a folder": (lambda p, u: ml.save("", u), "path of the file, and '' is a folder"),
    "a folder": (lambda p, u: ml.load(p, u), "it is a folder, not a saved state file"),
    "in a program": (lambda p, u: ml.program(lambda: ml.save(p / "new.h5", u))(), "saving fields"),
    "loaded in a program": (lambda p, u: ml.program(lambda: ml.load(p / "a.h5", u))(), "loading fields"),
}


@pytest.mark.parametrize("which", WRONG)
def test_misuse(which: str, tmp_path: Path):
    u = ml.Set(3, "s").field("u", data=1.0)
    ml.save(tmp_path / "a.h5", u)
    attack, expected = WRONG[which]
    with one_line_from(MeshloomError, expected):
        attack(tmp_path, u)
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"] and (u.numpy() == 1.0).all()


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be whole: who took it for damaged might delete it."""
    ml.save(tmp_path / "whole.h5", ml.Global(1.0, "mass"))

    def refused(*given: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checksummed, "open", refused, raising=False)
    with one_line_from(UserError, r"whole\.h5: it cannot be read: Permission denied$"):
        ml.load(tmp_path / "whole.h5", ml.Global(0.0, "mass"))


def test_damaged_files_and_those_of_others(tmp_path: Path):
    u = ml.Set(3, "s").field("u", data=1.0)
    ml.save(tmp_path / "a.h5", u)
    whole = (tmp_path / "a.h5").read_bytes()
    for damaged in (whole[:-1], whole[:600], whole[:700] + b"x" + whole[701:], b"", b"CDF"):
        (tmp_path / "bad.h5").write_bytes(damaged)
        with one_line_from(UserError, "damaged"):
            ml.load(tmp_path / "bad.h5", u)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["u"] = [1.0, 2.0, 3.0]
    with one_line_from(UserError, "an HDF5 file, but not a Meshloom saved state"):
        ml.load(tmp_path / "other.h5", u)
    step = ml.program(lambda: u.fill(0.0))
    ml.march(step, steps=1, out=tmp_path / "run")
    with one_line_from(UserError, "not a Meshloom saved state; take one that ml.save wrote"):
        ml.load(tmp_path / "run" / "checkpoint.h5", u)


@pytest.mark.parametrize("moment", ["_check_intact", "checksums_of", "_refusals"])
def test_what_is_put_in_its_place_meanwhile_is_not_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Somebody saves again while it is loaded: all that is read is of one file."""
    cells = ml.Set(3000, "cells")
    path, loaded = tmp_path / "state.h5", cells.field("loaded")
    ml.save(path, u=cells.field("u", data=1.0))
    original, done = getattr(checksummed, moment), []

    def replaced(*given: Any) -> Any:
        if not done:
            done.append(True)
            ml.save(path, u=cells.field("u", data=2.0), more=ml.Global(3.0, "more"))
        return original(*given)

    monkeypatch.setattr(checksummed, moment, replaced)
    ml.load(path, u=loaded)
    assert done and set(loaded.numpy()) in ({1.0}, {2.0})
