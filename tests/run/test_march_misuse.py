"""``ml.march`` given what is wrong: one line that says what would be right, and nothing is begun or lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshloomError, RunError, UserError
from tests.one_line import one_line_from
from tests.run.test_march import Cooling, contents

pytestmark = pytest.mark.usefixtures("on_numpy")


def with_argument() -> ml.Program:
    @ml.program
    def takes(u: Any) -> None:
        u.fill(0.0)

    return takes


WRONG: dict[str, tuple[Callable[[Cooling], dict[str, Any]], str]] = {
    "no end": (lambda c: {}, r"how long\? give steps="),
    "steps": (lambda c: {"steps": 0}, "march: steps must be"),
    "a function": (lambda c: {"program": len, "steps": 1}, "expected a program, .*@ml.program"),
    "nothing to run": (lambda c: {"program": None, "steps": 1}, "expected a program, got None$"),
    "an open program": (lambda c: {"program": with_argument(), "steps": 1}, r"give takes\.bind"),
    "until": (lambda c: {"until": c.t}, r"until takes \(t, end\)"),
    "until a field": (lambda c: {"until": (c.u, 1.0)}, "time of until"),
    "until a vector": (lambda c: {"until": (ml.Global([1.0, 2.0], "v"), 1.0)}, "one floating number, v is 2"),
    "until nan": (lambda c: {"until": (c.t, np.nan)}, "end of until must be a finite number"),
    "another clock": (lambda c: {"until": (ml.Global(0.0, "other"), 1.0)}, "never sets other"),
    "a step of its own": (lambda c: {"until": (c.t, 1.0, c.heat)}, r"sets the step heat itself, .* np\.minimum"),
    "no step": (lambda c: {"until": (c.t, 1.0, ml.Global(0.0, "dt"))}, "the step dt is 0; it must be a number above"),
    "every": (lambda c: {"steps": 1, "every": -1}, "march: every must be"),
    "show": (lambda c: {"steps": 1, "show": c.u}, "march: show: expected a Global, got"),
    "show a number": (lambda c: {"steps": 1, "show": 3}, "show takes a tuple"),
    "show twice": (lambda c: {"steps": 1, "show": (c.heat, ml.Global(0.0, "heat"))}, "two are called 'heat'"),
    "show columns": (lambda c: {"steps": 1, "show": {"f[0]": c.heat, "f": ml.Global([1.0], "f")}}, "two columns"),
    "fields": (lambda c: {"steps": 1, "fields": {"u": np.zeros(3)}}, "march: fields: expected a Field, got"),
    "fields by number": (lambda c: {"steps": 1, "fields": {1: c.u}}, "names are strings, got 1"),
    "checkpoint": (lambda c: {"steps": 1, "checkpoint": "all"}, "checkpoint takes a tuple"),
    "checkpoint lacks": (lambda c: {"steps": 1, "checkpoint": c.u}, "checkpoint lacks t, which a step reads"),
    "checkpoint_seconds": (lambda c: {"steps": 1, "checkpoint_seconds": -1}, "checkpoint_seconds must be"),
    "stop": (lambda c: {"stop": True}, "stop takes a condition"),
    "stop with arguments": (lambda c: {"stop": lambda u: True}, "called without arguments"),
    "stop at nothing": (lambda c: {"stop": ml.Global(1.0, "other") < 0.0}, "it never sets other"),
    "stop says": (lambda c: {"stop": lambda: "yes", "steps": 3}, "must return True or False.*'yes'"),
    "restart": (lambda c: {"steps": 1, "restart": True}, r"give it, out=\.\.\."),
    "restart maybe": (lambda c: {"steps": 1, "restart": "yes"}, "march: restart"),
    "out": (lambda c: {"steps": 1, "out": 3}, "out is the path of a folder"),
    "watch": (lambda c: {"steps": 1, "watch": 1.5}, "march: watch"),
    "profile": (lambda c: {"steps": 1, "profile": "all"}, "march: profile must be True or False"),
    "progress": (lambda c: {"steps": 1, "progress": "bar"}, "march: progress"),
}


@pytest.mark.parametrize("which", WRONG)
def test_what_is_wrong_is_refused_before_anything_begins(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    one = Cooling()
    before = one.bits
    given, expected = WRONG[which]
    options = given(one)
    if which != "restart":
        options = {"out": tmp_path / "run"} | options
    with one_line_from(MeshloomError, expected):
        ml.march(options.pop("program", one.step), **options)
    assert one.bits == before and not list(tmp_path.iterdir())


def test_a_clock_that_stands_still_ends_the_run():
    one = Cooling()
    one.dt.value = 0.0
    with one_line_from(RunError, "march: t did not grow in step 1, where it is 0: step must add its step to it"):
        ml.march(one.step, until=(one.t, 1.0))


def test_fields_that_no_file_shows(tmp_path: Path):
    one, other = Cooling(), Cooling()
    for fields, expected in (
        ({"p": one.mesh.faces.field("p")}, "field p lives on faces, where files have no place for it"),
        ({"p": ml.Set(3, "things").field("p")}, "field p lives on things, which is no mesh's"),
        ({"u": one.u, "v": other.u}, "fields u and v live on two meshes or grids"),
    ):
        with one_line_from(UserError, expected):
            ml.march(one.step, steps=1, fields=fields, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_not_taken(tmp_path: Path):
    one = Cooling()
    ml.march(one.step, steps=3, out=tmp_path / "run", show=one.heat)
    before = contents(tmp_path / "run")
    with one_line_from(UserError, "already holds a run; give overwrite=True, another out, or restart=True to go on"):
        ml.march(one.step, steps=3, out=tmp_path / "run")
    with one_line_from(UserError, "give one of them"):
        ml.march(one.step, steps=3, out=tmp_path / "run", restart=True, overwrite=True)
    assert contents(tmp_path / "run") == before
    assert ml.march(one.step, steps=4, out=tmp_path / "run", overwrite=True).steps == 4


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path):
    one = Cooling()
    ml.march(one.step, steps=3, out=tmp_path / "run", show=one.heat)
    before, longer, moved, same = contents(tmp_path / "run"), Cooling(8), Cooling(), Cooling()
    moved.mesh.cells.points = moved.mesh.cells.points + 1.0
    extra = same.mesh.cells.field("extra")
    everything = (same.u, same.half, same.t, same.heat)
    for other, options, expected in (
        (longer, {"show": longer.heat}, r"does not fit: field \w+ \(64,\) float64 is \(48,\)"),
        (moved, {"show": moved.heat}, "checkpoint of another mesh or grid"),
        (same, {"show": (same.heat, same.dt)}, "other monitors: not in it: dt"),
        (same, {"show": same.heat, "steps": 2}, "already at step 3 of 2; give more steps"),
        (same, {"show": same.heat, "checkpoint": (*everything, extra)}, "field extra .* is missing"),
        (same, {"show": same.heat, "checkpoint": everything[::2]}, "holds half, heat, too"),
        (same, {"show": same.heat, "checkpoint": ()}, "nothing to put it into"),
    ):
        bits = other.bits
        with one_line_from(UserError, expected):
            ml.march(other.step, **({"steps": 5, "out": tmp_path / "run", "restart": True} | options))
        assert other.bits == bits and contents(tmp_path / "run") == before
    (tmp_path / "run" / "checkpoint.h5").write_bytes(b"nonsense")
    with one_line_from(UserError, "not a checkpoint, or damaged"):
        ml.march(same.step, steps=5, out=tmp_path / "run", restart=True, show=same.heat)


@pytest.mark.parametrize("exact", [True, False])
def test_no_run_goes_back_to_an_earlier_time(tmp_path: Path, exact: bool):
    """With its own end, which its last step may go beyond, it is at its end."""
    one = Cooling()

    def march(end: float) -> ml.Done:
        until = (one.t, end, one.dt) if exact else (one.t, end)
        return ml.march(one.step, until=until, out=tmp_path / "run", restart=True, show=one.heat)

    dt = float(one.dt)
    steps, before, bits = march(5.5 * dt).steps, contents(tmp_path / "run"), one.bits
    assert steps == 6
    for end in (0.5 * dt, 4.9 * dt, *([5.4 * dt] if exact else [])):
        with one_line_from(UserError, "already at t = [0-9.e-]+ of .*; give a later end in until"):
            march(end)
        assert one.bits == bits and contents(tmp_path / "run") == before
    assert march(5.5 * dt).steps == 6 and march(7.5 * dt).steps == 8


def test_a_run_without_checkpoints_is_a_run(tmp_path: Path):
    one = Cooling()
    ml.march(one.step, steps=3, out=tmp_path / "run", checkpoint=(), fields=one.u)
    assert not (tmp_path / "run" / "checkpoint.h5").exists()
    with one_line_from(UserError, "already holds a run; give overwrite=True or another out"):
        ml.march(one.step, steps=3, out=tmp_path / "run", restart=True)
    assert (tmp_path / "run" / "fields_0000003.vtu").exists()


def test_no_march_in_a_program():
    one = Cooling()
    with one_line_from(MeshloomError, "march"):
        ml.program(lambda: ml.march(one.step, steps=1))()
