"""Before a run begins: which back end, what takes long, and settings that nothing can be computed with."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import meshloom as ml
from meshloom.backend import automatic_backend
from meshloom.case import RunOptions
from meshloom.config import parse_set
from meshloom.errors import UserError
from meshloom.launch import Request, _choose_backend, _differences, check, long_compilations, set_up
from meshloom.solvers.airfoil import Airfoil
from tests.one_line import one_line_from

NO_COMPILER, NO_GPU = "no C++ compiler was found", "there is no CUDA device"


@pytest.mark.parametrize(
    ("cpu", "cuda", "chosen"),
    [(None, None, "cuda"), (NO_COMPILER, None, "cuda"), (None, NO_GPU, "cpu"), (NO_COMPILER, NO_GPU, "numpy")],
)
def test_auto_takes_the_fastest(monkeypatch: pytest.MonkeyPatch, cpu: str | None, cuda: str | None, chosen: str):
    found = {"numpy": None, "cpu": cpu, "cuda": cuda}
    used: list[tuple[str, int, bool, str]] = []
    monkeypatch.setattr(ml, "backends", lambda ask=True: found)
    monkeypatch.setattr(ml, "use", lambda name, threads, reproducible, partition: used.append(
        (name, threads, reproducible, partition)))  # fmt: skip
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _choose_backend(RunOptions(threads=3, reproducible=True))
    assert automatic_backend(found) == chosen and used == [(chosen, 3, True, "rcb")]
    slow = [f"the numpy back end is used, which is slow: {NO_COMPILER}"]
    assert [str(warning.message) for warning in told] == (slow if chosen == "numpy" else [])


@pytest.mark.parametrize("name", ["numpy", "cpu", "cuda"])
def test_a_name_is_obeyed(monkeypatch: pytest.MonkeyPatch, name: str):
    used: list[str] = []
    monkeypatch.setattr(ml, "use", lambda name, **options: used.append(name))
    _choose_backend(RunOptions(backend=name))
    assert used == [name]


def test_loops_that_take_long_to_compile_are_announced():
    cells = ml.Set(3, "cells")
    u, v = cells.field("u"), cells.field("v")

    @ml.kernel
    def short(u: ml.Read, v: ml.Write):
        v[...] = u * u

    @ml.kernel
    def endless(u: ml.Read, v: ml.Write):
        total = u
        for k in range(1050):
            total = total * u + float(k)
        v[...] = total

    @ml.program
    def both() -> None:
        short(cells, u, v)
        endless(cells, u, v)

    before = ml.backend()
    try:
        ml.use("numpy")
        assert long_compilations(both) == []
        ml.use("cpu")
        [line] = long_compilations(both)
    finally:
        ml.use(before)
    assert line.startswith("loop endless has 2,099 operations: compiling it takes long"), line


def test_arithmetic_that_fails_while_a_case_is_set_up_is_about_its_settings(monkeypatch: pytest.MonkeyPatch):
    def fail(self: Airfoil, config: Any) -> None:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(Airfoil, "__init__", fail)
    job = check(Request("airfoil", (parse_set("flow.mach=0.125"), parse_set("run.backend=numpy"))))
    before = ml.backend()
    try:
        with one_line_from(UserError, r"airfoil: nothing .* \(float division by zero\); .*flow.mach 0.4 -> 0.125"):
            set_up(job)
    finally:
        ml.use(before)


def test_what_differs_is_named_entry_by_entry():
    """However long a table or a text is: both sides of a change never look the same."""
    many = [f"gauges.station_{k}=[{k}.0, 1.0]" for k in range(20)]
    config = check(Request("tsunami", tuple(map(parse_set, many)))).config
    other = ('gauges."Pier 3"=[3, 4]', "gauges.station_17=[0.5, 1.0]", 'schedule.remember="color"')
    changed = check(Request("tsunami", tuple(map(parse_set, (*many, *other))))).config
    there = ("gauges.station_17 [17.0, 1.0] -> [0.5, 1.0]", 'gauges."Pier 3" (none) -> [3, 4]')
    assert {*_differences(config, changed)} == {*there, 'schedule.remember (none) -> "color"'}
    assert 'gauges."Pier 3" [3, 4] -> (none)' in _differences(changed, config)
    folder = "/".join(["a" * 20] * 5)
    long = [check(Request("airfoil", (parse_set(f"mesh.file={folder}/{name}.su2"),))).config for name in "xy"]
    [text] = _differences(*long)
    before, after = text.removeprefix("mesh.file ").split(" -> ")
    assert before.endswith('x.su2"') and after.endswith('y.su2"') and len(text) < 150
    odd = check(Request("tsunami", (parse_set('gauges."a\\u009bb"=[3, 4]'),))).config
    assert all(text.isprintable() for text in _differences(config, odd))
