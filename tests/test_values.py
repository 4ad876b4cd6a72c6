"""Programs follow the Python values that their functions read: recorded equals eager, or one line refuses it."""

from __future__ import annotations

import datetime
import decimal
import itertools
import os
import random
import time
from collections.abc import Callable
from decimal import getcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import ProgramError
from meshloom.operation import reads
from meshloom.operation.parameters import Given
from tests.counted import python_calls
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
LEVEL = 1


@ml.kernel
def add(u: ml.ReadWrite, by: ml.Read):
    u += by


class Settings:
    """Ways to hold a number."""

    of_class = 1

    def __init__(self) -> None:
        self.number, self.table, self.array = 1, {"a": 1, "b": [1]}, np.array([1])
        self.inner = SimpleNamespace(number=1)

    @property
    def as_property(self) -> int:
        return self.number

    def method(self) -> int:
        return self.inner.number


class Made:
    """Holds what its constructor found."""

    def __init__(self) -> None:
        self.number = LEVEL


def set_level(to: int) -> None:
    global LEVEL
    LEVEL = to


def level() -> int:
    return LEVEL


def whole(settings: Settings) -> int:
    return settings.number


def ways(s: Settings) -> dict[str, tuple[Callable[[], int], Callable[[int], None]]]:
    """How a number is read, and how it is changed."""
    cell = 1

    def set_cell(to: int) -> None:
        nonlocal cell
        cell = to

    def change(what: Any, name: Any) -> Callable[[int], None]:
        return lambda to: setattr(what, name, to) if isinstance(name, str) else what.__setitem__(name, to)

    return {
        "closure": (lambda: cell, set_cell),
        "global": (lambda: LEVEL, set_level),
        "helper": (lambda: level(), set_level),
        "attribute": (lambda: s.number, change(s, "number")),
        "attribute of an attribute": (lambda: s.inner.number, change(s.inner, "number")),
        "property": (lambda: s.as_property, change(s, "number")),
        "method": (lambda: s.method(), change(s.inner, "number")),
        "object passed on": (lambda: whole(s), change(s, "number")),
        "constructor": (lambda: Made().number, set_level),
        "class": (lambda: Settings.of_class, change(Settings, "of_class")),
        "item": (lambda: s.table["a"], lambda to: s.table.update(a=to)),
        "entry of a list": (lambda: s.table["b"][0], change(s.table["b"], 0)),
        "array": (lambda: int(s.array[0]), change(s.array, 0)),
        "environment": (lambda: int(os.environ["LEVEL"]), lambda to: os.environ.update(LEVEL=str(to))),
    }


WAYS = tuple(ways(Settings()))


def uses(cells: ml.Set, u: ml.Field, v: ml.Field, given: ml.Global) -> dict[str, Callable[[int], None]]:
    """What a number decides about."""
    inner = ml.program(lambda: add(cells, u, 3.0))
    return {
        "argument": lambda n: add(cells, u, 0.5 * n),
        "argument, twice": lambda n: (add(cells, u, float(n)), add(cells, v, float(3 - n)))[0],
        "kind of a number": lambda n: add(cells, u, n if n == 1 else float(n)),
        "count": lambda n: _times(n, lambda: add(cells, u, 1.0)),
        "branch": lambda n: add(cells, u, 1.0) if n == 1 else add(cells, v, 2.0),
        "which field": lambda n: add(cells, (u, v)[n % 2], 1.0),
        "fill": lambda n: (v.fill(float(n)), add(cells, u, 1.0))[0],
        "inner program": lambda n: (inner.run(n), None)[1],
        "global": lambda n: (setattr(given, "value", float(n)), add(cells, u, given))[0],
        "new field": lambda n: _with_new(cells, u, n),
    }


def _times(n: int, do: Callable[[], None]) -> None:
    for _ in range(n):
        do()


def _with_new(cells: ml.Set, u: ml.Field, n: int) -> None:
    new = cells.field("new")
    add(cells, new, float(n))
    add(cells, u, new)


USES = tuple(uses(s := ml.Set(1, "s"), s.field("u"), s.field("v"), ml.Global(0.0)))


def _runs(backend: str, way: str, use: str, recorded: bool) -> list[float]:
    """The fields after runs with values that change between them."""
    ml.use(backend)
    cells = ml.Set(2, "cells")
    u, v, given = cells.field("u"), cells.field("v"), ml.Global(0.0, "given")
    read, change = ways(Settings())[way]
    do = uses(cells, u, v, given)[use]
    change(1)

    def step() -> None:
        do(read())

    run = ml.program(step) if recorded else step
    found: list[float] = []
    for value in (1, 1, 2, 3, 1):
        change(value)
        run()
        found += [u.numpy()[0], v.numpy()[0]]
    return found


@pytest.mark.filterwarnings("ignore:program")
@pytest.mark.parametrize("use", USES)
def test_what_was_read_is_followed(use: str) -> None:
    for way in WAYS:
        assert _runs("numpy", way, use, True) == _runs("numpy", way, use, False), way


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_back_end_follows(backend: str) -> None:
    for use in ("argument", "count", "branch"):
        assert _runs(backend, "item", use, True) == _runs("numpy", "item", use, False), use


def test_other_numbers_are_other_arguments_of_the_same_loops() -> None:
    """Nothing is made ready again, and values that alternate find what is there."""
    ml.use("cpu")
    cells, dt, times = ml.Set(2, "cells"), [0.5], [1]
    u = cells.field("u")

    @ml.program
    def step() -> None:
        for _ in range(times[0]):
            add(cells, u, dt[0])

    step.run(1)
    (loop,) = step.loops
    ready = step._tape().recording()
    dt[0] = 10.0
    step.run(2)
    assert step.loops == (loop,) and step._tape().recording() is ready and u.numpy()[0] == 20.5
    times[0] = 2
    step.run(1)
    assert len(step.loops) == 2 and u.numpy()[0] == 40.5
    times[0], dt[0] = 1, 1.0
    step.run(1)
    assert step.loops == (loop,) and step._tape().recording() is ready and u.numpy()[0] == 41.5


@pytest.mark.parametrize("of", ["nothing", "arguments", "what it makes", "arguments and what it makes"])
def test_another_number_is_one_recording(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler, nothing made ready again, whatever a program is given and makes; values that alternate find what
    is there."""
    ml.use("cpu")
    cells, setting, loops = ml.Set(2, "cells"), {"dt": 0.5, "times": 10}, []
    u, v = cells.field("u"), cells.field("v", data=1.0)

    def step(u: ml.Field, v: ml.Field) -> None:
        if "makes" in of:
            total = v.max()
            add(cells, u, total)
        for _ in range(setting["times"]):
            add(cells, u, setting["dt"])

    program = ml.program(step) if "arguments" in of else ml.program(lambda: step(u, v))
    run = partial(program, u, v) if "arguments" in of else program
    run()
    setting["times"] = 9
    run()
    monkeypatch.setattr("meshloom.operation.tape.fuse", lambda *_: loops.append("fused"))
    monkeypatch.setattr("meshloom.operation.program.Tape", lambda *_: loops.append("taped"))
    recorded = python_calls(lambda: program._recorded(Given((u, v) if "arguments" in of else (), {})), before=0)
    for times, dt in ((9, 2.0), (10, 3.0), (9, 2.0), (9, 7.0)):
        setting["times"], before = times, u.numpy()[0]
        setting["dt"] = dt
        taken = python_calls(run, before=0)
        assert u.numpy()[0] == before + times * dt + ("makes" in of)
        assert taken < 6 * recorded, (taken, recorded)
    assert not loops


def test_programs_run_on_the_back_end_in_use() -> None:
    """As calls of kernels do, whether values have changed or not."""
    cells, dt, used = ml.Set(2, "cells"), [1.0], []
    u = cells.field("u")
    plain, given = ml.program(lambda: add(cells, u, dt[0])), ml.program(lambda u: add(cells, u, dt[0]))
    bound, runs = given.bind(u), []
    for backend in ("cpu", "numpy", "numpy", "cpu"):
        with ml.using(backend):
            for program in (plain, bound):
                program.run(1)
                used.append({loop.backend.name for loop in program.loops} == {backend})
            given(u)
            runs.append(next(reversed(given._cached))[0][0] == backend or len(runs) == 3)
        dt[0] += len(used) == 4
    assert all(used) and all(runs) and u.numpy()[0] == 3 * 1.0 + 3 * 1.0 + 2 * 3 * 2.0


def test_programs_of_arguments_and_those_with_calls_follow() -> None:
    ml.use("numpy")
    cells, dt = ml.Set(2, "cells"), [1.0]
    u = cells.field("u")
    inner = ml.program(lambda x: add(cells, x, dt[0]))
    outer = ml.program(lambda: inner(u))
    bound = inner.bind(u)

    def double() -> None:
        dt[0] *= 2

    doubling = ml.program(lambda: (add(cells, u, dt[0]), ml.call(double)))
    for value in (1.0, 10.0, 1.0):
        dt[0] = value
        inner(u)
        outer()
        bound()
    assert u.numpy()[0] == 36.0
    dt[0] = 1.0
    doubling.run(3)
    assert u.numpy()[0] == 36.0 + 1.0 + 2.0 + 4.0


class Metres(float):
    scale = 1.0


class Name(str):
    scale = 1.0


class Sampled(np.ndarray):
    scale = 1.0


@pytest.mark.parametrize("one", [Metres(2.0), Name("inlet"), np.ones(2).view(Sampled)], ids=["float", "str", "array"])
def test_attributes_of_derived_numbers_texts_and_arrays_are_followed(one: Any) -> None:
    cells = ml.Set(2, "cells")
    u = cells.field("u")
    step = ml.program(lambda: add(cells, u, one.scale))
    for value in (1.0, 10.0, 100.0):
        one.scale = value
        step()
    assert u.numpy()[0] == 111.0


COUNT = itertools.count(1)
REFUSED: dict[str, tuple[Callable[[], float], str]] = {
    "random": (lambda: random.random(), "draws random numbers"),
    "np.random": (lambda: np.random.rand(), "draws random numbers"),
    "Generator": (lambda: RNG.normal(), "draws random numbers"),
    "clock": (lambda: time.perf_counter(), "reads the time"),
    "date": (lambda: datetime.datetime.now().timestamp(), "reads the time"),
    "iterator": (lambda: next(COUNT), "reads an iterator"),
    "np.geterr": (lambda: len(np.geterr()["over"]), "reads settings of numpy"),
    "decimal": (lambda: decimal.getcontext().prec, "reads settings of"),
    "decimal by name": (lambda: getcontext().prec, "reads settings of"),
    "counter": (lambda: counted(), "changes what it reads"),
    "first time": (lambda: first_time(), "changes what it reads"),
    "sorted in place": (lambda: smallest_first(), "changes what it reads"),
}
RNG, calls = np.random.default_rng(1), [0]
begun, numbers = {"already": False}, np.array([3.0, 1.0])


def first_time() -> float:
    """The second time is as the third: what is changed need not change for ever."""
    before, begun["already"] = begun["already"], True
    return 1.0 if before else 10.0


def smallest_first() -> float:
    found = float(numbers[0])
    numbers.sort()
    return found


def counted() -> int:
    calls[0] += 1
    return calls[0]


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_replay_could_repeat_is_refused(what: str) -> None:
    read, words = REFUSED[what]
    cells = ml.Set(2, "cells")
    u = cells.field("u")
    step = ml.program(lambda: add(cells, u, read()))
    with one_line_from(ProgramError, f"{__file__}.*{words}"):
        step.run(1)


@pytest.mark.filterwarnings("ignore:program")
def test_what_differs_at_once_is_refused_though_nobody_can_compare_it() -> None:
    cells = ml.Set(2, "cells")
    u = cells.field("u")
    # six bytes: two of them were alike once in some hundred runs
    step = ml.program(lambda: add(cells, u, float(os.times().elapsed + int.from_bytes(os.urandom(6), "little"))))
    with pytest.raises(ProgramError, match="something else each time"):
        for _ in range(3):
            step.run(1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_program_makes_each_time_may_be_kept(backend: str) -> None:
    """A reduction in a table of the user's is that of its replay; one of the replay before is refused."""
    ml.use(backend)
    cells = ml.Set(3, "cells")
    u, found, level = cells.field("u", data=2.0), {}, {"by": 1.0}

    @ml.program
    def step() -> None:
        add(cells, u, level["by"])
        found["most"] = u.max()
        add(cells, u, found["most"])

    for by in (1.0, 1.0, 3.0):
        level["by"], before = by, u.numpy()[0]
        step()
        assert float(found["most"]) == before + by and (u.numpy() == 2.0 * (before + by)).all()

    @ml.program
    def late() -> None:
        add(cells, u, found["most"])
        found["most"] = u.max()

    with one_line_from(ProgramError, "program late changes what it reads"):
        late()
    waiting = [1.0, 2.0]

    @ml.program
    def once() -> None:
        for by in waiting:
            add(cells, u, by)
        waiting.clear()

    with one_line_from(ProgramError, "program once changes what it reads"):
        once()


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_kernel_with_one_number_over_several_parts(backend: str) -> None:
    """All but the part is the same, down to the number: each is a loop of its own."""
    ml.use(backend)
    cells, grid = ml.Set(6, "cells"), ml.Grid((3, 4))
    u, v = cells.field("u"), grid.field("v")
    parts = [cells.subset([0, 1]), cells.subset([3, 4, 5])]

    @ml.program
    def step() -> None:
        for part in parts:
            add(part, u, 2.0)
        for low, high in ((0, 1), (2, 3)):
            add(grid.box((low, 0), (high, 4)), v, 3.0)

    step.run(2)
    np.testing.assert_array_equal(u.numpy(), [4.0, 4.0, 0.0, 4.0, 4.0, 4.0])
    np.testing.assert_array_equal(v.numpy().reshape(3, 4)[:, 0], [6.0, 0.0, 6.0])


def test_names_of_fields_are_followed() -> None:
    ml.use("numpy")
    cells = ml.Set(2, "cells")
    u = cells.field("u")

    def named(field: ml.Field) -> float:
        return float(len(field.name))

    programs = ml.program(lambda: add(cells, u, len(u.name) + 0.0)), ml.program(lambda: add(cells, u, named(u)))
    given = ml.program(lambda f: add(cells, f, len(u.name) + 0.0))
    for u.name in ("u", "velocity", "u"):
        before = u.numpy()[0]
        for run in (*programs, partial(given, u)):
            run()
        assert u.numpy()[0] == before + 3 * len(u.name)


def test_every_room_of_the_package_is_looked_into_or_not_on_purpose() -> None:
    """A new one is looked into, as what users write, until somebody decides; those that hold equations stay so."""
    folder = Path(reads.__file__).parents[1]
    rooms = {one.stem for one in folder.iterdir() if one.suffix == ".py" or (one / "__init__.py").exists()}
    rooms = {folder.name if one == "__init__" else one for one in rooms}
    assert rooms - {*reads._CLOSED, *reads._NUMBERED} == {"solvers", "case", "catalogue"}
    assert {*reads._CLOSED, *reads._NUMBERED} <= rooms


def test_indices_of_a_map_are_followed() -> None:
    """A program that reads them records again where they were assigned."""
    ml.use("numpy")
    cells = ml.Set(3, "cells")
    u, at = cells.field("u"), ml.Map(cells, cells, [0, 1, 2], "at")
    alone, given = ml.program(lambda: add(cells, u, float(at.indices[0, 0]))), ml.program(
        lambda u: add(cells, u, float(at.indices[0, 0])))  # fmt: skip
    for first in (0, 2, 1, 1):
        at.assign([[first], [1], [2]])
        for run in (alone, lambda: given(u)):
            u.fill(0.0)
            run()
            assert u.numpy()[0] == first


@pytest.mark.optimised  # as for users: nothing is contracted otherwise
@pytest.mark.parametrize("fuse", [True, False])
def test_contraction_is_that_of_now(fuse: bool) -> None:
    """``ml.use`` may change between two runs how a back end rounds: what was compiled for the other way is not used."""
    cells, numbers = ml.Set(500, "cells"), np.random.default_rng(3).random((3, 500))
    a, b, c = (cells.field(name, data=one) for name, one in zip("abc", numbers, strict=True))
    r = cells.field("r")

    @ml.kernel
    def combined(a: ml.Read, b: ml.Read, c: ml.Read, r: ml.Write):
        r[...] = a * b + c

    program = ml.Program(lambda: combined(cells, a, b, c, r), fuse=fuse)
    rounded = numbers[0] * numbers[1] + numbers[2]
    try:
        for contract in (True, False, True, False):
            ml.use("cpu", contract=contract)
            program.run(2)
            assert contract or (r.numpy() == rounded).all()
    finally:
        ml.use("cpu", contract=True)
