"""Programs whose functions have parameters: fields and globals that are filled in by whoever calls them."""

from __future__ import annotations

import gc
import re
import weakref
from collections import Counter
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError, MeshloomError, ProgramError
from meshloom.operation.program import MOST_CACHED, Program
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
every_backend = pytest.mark.parametrize("backend", BACKENDS)


times_recorded: Counter[Any] = Counter()  # by the function of a program: one that counts by itself is refused


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Program._recorded

    def counted(self: Program, *given: Any) -> Any:
        times_recorded[self.function] += 1
        return record(self, *given)

    monkeypatch.setattr(Program, "_recorded", counted)


@ml.kernel
def scaled(u: ml.Read, by: ml.Read, out: ml.Write):
    out[...] = by * u


@ml.kernel
def summed(u: ml.Read, total: ml.Sum):
    total += u


class World:
    """A program of two fields and a global: the first one times a constant goes to the second one, summed up."""

    def __init__(self, backend: str):
        ml.use(backend)
        self.cells, self.by = ml.Set(6, "cells"), ml.Global(3.0, "by")

        @ml.program
        def apply(x, y, total):  # type: ignore[no-untyped-def]
            between = self.cells.field("between")
            total.value = 0.0
            scaled(self.cells, x, self.by, between)
            scaled(self.cells, between, self.by, y)
            summed(self.cells, y, total)

        self.apply: ml.Program = apply

    @property
    def recorded(self) -> int:
        """How often its function has run."""
        return times_recorded[self.apply.function]

    def field(self, value: float) -> ml.Field:
        return self.cells.field(f"f{value:g}", data=np.full(6, value))


@every_backend
def test_each_combination_of_arguments_is_recorded_once(backend: str) -> None:
    w = World(backend)
    a, b, c, total = w.field(1.0), w.field(2.0), w.field(0.0), ml.Global(0.0, "total")
    w.apply(a, c, total)
    assert c.numpy().tolist() == [9.0] * 6 and total.value == 54.0 and w.recorded == 1
    for k in range(3):
        a.fill(float(k))
        w.apply(a, c, total)
        assert c.numpy().tolist() == [9.0 * k] * 6
        w.apply(b, c, total)
        assert c.numpy().tolist() == [18.0] * 6 and total.value == 108.0
        w.apply(a, total=total, y=b)
        assert b.numpy().tolist() == [9.0 * k] * 6
        b.fill(2.0)
    assert w.recorded == 3, "a -> c, b -> c, a -> b"
    w.by.value = 1.0
    assert w.apply.run(2, b, c, total, record=(total,)).tolist() == [[12.0], [12.0]]
    assert w.apply.repeat(b, c, total=total, until=total > 0.0, at_most=5) == 1
    assert w.recorded == 3 and repr(w.apply) == "Program(apply of x, y, total)"


@every_backend
def test_what_moves_or_changes_is_followed(backend: str) -> None:
    ml.use(backend)
    cells, factor = ml.Set(5, "cells"), [2.0]

    @ml.kernel
    def times(u: ml.Read, out: ml.Write):
        out[...] = factor[0] * u

    @ml.program
    def apply(x, y):  # type: ignore[no-untyped-def]
        y.fill(-1.0)
        times(cells, x, y)

    x, y = cells.field("x", 2, data=np.ones((5, 2))), cells.field("y", 2)
    for value in (2.0, 3.0, 2.0):
        factor[0] = value
        apply(x, y)
        assert (y.numpy() == value).all()
    x.relayout("soa")
    x.assign(np.full((5, 2), 4.0))
    apply(x, y)
    assert (y.numpy() == 8.0).all()
    ml.use("numpy")
    apply(x, y)
    ml.use(backend)
    apply(x, y)
    assert (y.numpy() == 8.0).all()


@every_backend
def test_nothing_keeps_its_arguments(backend: str) -> None:
    w = World(backend)
    total = ml.Global(0.0, "total")
    keep = w.field(1.0), w.field(2.0)
    w.apply(*keep, total)
    gc.disable()
    try:
        for k in range(5):
            x, y = w.field(float(k)), w.field(0.0)
            w.apply(x, y, total)
            w.apply(x, y, total)
            assert total.value == 6 * 9.0 * k
            w.apply.explain(x, y, total)
            gone = [weakref.ref(one) for one in (x, y, x.storage, y.storage)]
            del x, y
            assert [ref() for ref in gone] == [None] * 4, "at once"
        assert len(w.apply._cached) == 1

        @ml.program
        def short(x, cells=w.cells, by=w.by, y=keep[1]):  # type: ignore[no-untyped-def]
            scaled(cells, x, by, y)

        short(keep[0])
        program, kept = weakref.ref(short), weakref.ref(next(iter(short._cached.values()))[0])
        del short
        assert program() is None and kept() is None
    finally:
        gc.enable()


@pytest.mark.slow
def test_only_so_many_combinations_stay_ready() -> None:
    w = World("cpu")
    total, y = ml.Global(0.0), w.field(0.0)
    fields = [w.field(float(k)) for k in range(2 * MOST_CACHED)]
    for turn in (1, 2):
        for k, one in enumerate(fields):
            w.apply(one, y, total)
            assert total.value == 54.0 * k
        assert w.recorded == turn * len(fields) and len(w.apply._cached) == MOST_CACHED


@every_backend
def test_inside_another_program_it_is_inlined(backend: str) -> None:
    w = World(backend)
    a, b, total = w.field(1.0), w.field(0.0), ml.Global(0.0, "total")

    @ml.program
    def outer() -> None:
        w.apply(a, b, total)
        w.apply.run(2, b, total=total, y=a)

    @ml.program
    def of_two(x, y):  # type: ignore[no-untyped-def]
        w.apply(x, y, total)
        w.apply(y, x, total)

    assert len(outer.loops) == 3 * len(w.apply.bind(a, b, total).loops)
    outer.run(2)
    assert a.numpy()[0] == 9.0**4 and total.value == 6 * 9.0**4
    a.fill(1.0)
    of_two.run(2, a, b)
    assert a.numpy()[0] == 9.0**4


def test_a_captured_field_may_be_an_argument_as_well() -> None:
    for backend in ("numpy", "cpu", "emulated"):
        w = World(backend)
        a, b = w.field(1.0), w.field(0.0)

        @ml.program
        def apply(x, y, a=a, cells=w.cells, by=w.by):  # type: ignore[no-untyped-def]
            scaled(cells, x, by, y)
            scaled(cells, a, by, x)

        for x, y in ((b, a), (a, b)):
            with pytest.raises(MeshloomError) if x is a else pytest.raises(ZeroDivisionError):
                apply(x, y)
                assert x.numpy()[0] == 0.0 and y.numpy()[0] == 0.0
                1 / 0  # noqa: B018


def test_bound_programs_are_programs_without_parameters() -> None:
    w = World("cpu")
    a, b, total = w.field(1.0), w.field(0.0), ml.Global(0.0, "total")
    bound = w.apply.bind(a, b, total)
    assert bound.run(2, (total,)).tolist() == [[54.0], [54.0]] and bound.bind() is bound
    assert [o.name for o in bound.loops] == ["total = 0", "scaled", "scaled", "summed"]
    assert re.fullmatch(r"Program\(apply: .*summed\)", repr(bound))
    assert w.apply.explain(a, b, total).count("scaled over cells") == 2 == bound.explain().count("scaled over cells")
    bound()
    assert total.value == 54.0


def test_default_values_are_no_arguments() -> None:
    """The usual way to capture what a name means now."""
    ml.use("numpy")
    cells = ml.Set(3, "cells")
    fields = [cells.field("a"), cells.field("b")]
    programs = [ml.program(lambda one=one, value=value: one.fill(value)) for value, one in enumerate(fields, 1)]
    for one in programs:
        one.run(2)
        assert len(one.loops) == 1
    assert [one.numpy()[0] for one in fields] == [1.0, 2.0]


def multigrid(x, depth):  # type: ignore[no-untyped-def]
    depth.value = 1.0
    if len(x) > 1:
        cycle(ml.Set(len(x) // 2, "coarse").field("x", temporary=False), depth)


cycle = ml.program(multigrid)


def test_it_may_call_itself_with_other_arguments() -> None:
    ml.use("numpy")
    x, depth = ml.Set(8).field("x"), ml.Global(0.0, "depth")
    cycle(x, depth)
    assert [o.name for o in cycle.bind(x, depth).operations] == ["depth = 1", *["x = 0", "depth = 1"] * 3]

    @ml.program
    def endless(x):  # type: ignore[no-untyped-def]
        endless(x)

    @ml.program
    def deeper(x):  # type: ignore[no-untyped-def]
        deeper(x.set.field("more"))

    for one in (endless, deeper):
        with one_line_from(ProgramError, "calls itself again and again: it would never end"):
            one(x)


# ----- what a person gets wrong -------------------------------------------------------------------------------------
def line_of(program: ml.Program, text: str) -> int:
    import inspect

    lines, first = inspect.getsourcelines(program.function)
    return first + next(k for k, line in enumerate(lines) if text in line)


def test_a_loop_that_refuses_names_the_line_of_the_program() -> None:
    w = World("numpy")
    other, total = ml.Set(3, "others").field("other"), ml.Global(0.0, "total")
    a, b = w.field(1.0), w.field(2.0)
    line = line_of(w.apply, "scaled(self.cells, x, self.by, between)")
    with one_line_from(MeshError, rf"test_program_parameters\.py:{line}: program apply with other, f2, total: .* lives"
                                  r" on others"):  # fmt: skip
        w.apply(other, b, total)
    with one_line_from(ProgramError, "program apply with f1, f2, total: reading global total"):
        _reading(w)(a, b, total)
    assert a.numpy()[0] == 1.0 and b.numpy()[0] == 2.0 and total.value == 0.0 and not w.apply._cached


def _reading(w: World) -> ml.Program:
    @ml.program
    def apply(x, y, total):  # type: ignore[no-untyped-def]
        if total.value > 0:
            w.apply(x, y, total)

    return apply


def wrong_arguments(w: World) -> list[tuple[tuple[Any, ...], dict[str, Any], str]]:
    a, b, total = w.field(1.0), w.field(2.0), ml.Global(0.0, "total")
    return [
        ((a, b), {}, r"takes 3 arguments \(x, y, total\), got 2"), ((), {}, "takes 3 arguments"),
        ((a, b, total, total), {}, "got 4"), ((a, b), {"totl": total}, "got 3, among them totl"),
        ((a, 2.0, total), {}, r"parameter y: expected a field, .* got float; a number goes in as ml.Global\(2.0\)"),
        ((a, np.ones(6), total), {}, "an array goes in as set.field"), ((a, b, None), {}, "got NoneType"),
        ((a, b, [total]), {}, "parameter total: .* got list"),
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["call", "run", "repeat", "bind", "explain", "inside"])
def test_wrong_arguments_are_one_line_with_the_line_of_the_program(way: str) -> None:
    w = World("numpy")
    until = ml.Global(0.0) < 1.0
    for given, named, why in wrong_arguments(w):
        ways = {
            "call": lambda g, n: w.apply(*g, **n), "run": lambda g, n: w.apply.run(2, *g, **n),
            "repeat": lambda g, n: w.apply.repeat(*g, until=until, at_most=2, **n),
            "bind": lambda g, n: w.apply.bind(*g, **n), "explain": lambda g, n: w.apply.explain(*g, **n),
            "inside": lambda g, n: ml.program(lambda: w.apply(*g, **n)).run(),
        }  # fmt: skip
        with one_line_from(ProgramError, rf"test_program_parameters\.py:\d+: program apply.*{why}"):
            ways[way](given, named)
    assert not w.recorded
    with one_line_from(ProgramError, r"program apply takes arguments: ask apply.bind\(x, y, total\)"):
        w.apply.loops  # noqa: B018


def test_looking_at_a_program_that_is_given_something_runs_nothing() -> None:
    def star(*given):  # type: ignore[no-untyped-def]
        raise AssertionError("nobody called it")

    assert repr(ml.program(star)) == "Program(star of what it is given)"
    assert repr(ml.program(lambda **given: star(given))).endswith("of what it is given)")


def test_looking_at_a_program_that_cannot_be_recorded_tells_its_name() -> None:
    def nothing() -> None: ...

    assert repr(ml.program(nothing)) == "Program(nothing)"
    with one_line_from(ml.errors.KernelError, "program nothing calls no kernel"):
        ml.program(nothing).run()
