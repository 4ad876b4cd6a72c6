"""What a call in a program leaves behind it: temporary fields, Python values, functions that look alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import ProgramError, SolveError

N = 4000


@ml.kernel
def to(a: ml.Read, b: ml.Write):
    b[...] = a


@ml.kernel
def add(a: ml.Read, b: ml.ReadWrite):
    b[...] = b + a


@ml.kernel
def seven(a: ml.Write):
    a[...] = 7.0


@ml.kernel
def differences(q: ml.Read, r: ml.Inc):
    r[0] += q[0] - q[1]
    r[1] += q[1] - q[0]


@ml.kernel
def inverse(q: ml.Read, t: ml.Write):
    t[...] = 1.0 / q


@ml.kernel
def advance(r: ml.ReadWrite, q: ml.ReadWrite):
    q[...] = q + 1e-3 * r
    r[...] = 0.0


@ml.kernel
def below(a: ml.Read, b: ml.Write):
    b[...] = a[0, 0] + 10.0 * a[1, 0]


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated"])
@pytest.mark.parametrize("kind", ["part of a set", "box"])
def test_a_temporary_field_written_in_part_behind_a_call_keeps_the_rest(backend: str, kind: str) -> None:
    ml.use(backend)
    on: Any = ml.Set(N, "cells") if kind == "part of a set" else ml.Grid((40, 40), periodic=(True, True), name="g")
    part = on.subset(np.arange(5)) if kind == "part of a set" else on.box((0, 0), (1, 40))
    a, t, first, found = on.field("a", data=3.0), on.field("t", temporary=True), on.field("first"), on.field("found")

    def step() -> None:
        to(on, a, t)
        to(on, t, first)
        ml.call(lambda: None, reads=(), writes=())
        seven(part, t)
        if kind == "box":
            below(on, t[on.offsets((0, 0), (1, 0))], found)
        else:
            to(on, t, found)

    ml.program(step).run(2)
    shown = np.full(on.size, 3.0)
    shown[: 5 if kind == "part of a set" else 40] = 7.0
    expected = shown if kind == "part of a set" else shown + 10.0 * np.roll(shown, -40)
    np.testing.assert_array_equal(found.numpy().ravel(), expected)


class Settings:
    """What programs read."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.x, self.item, self.functions = 1, [1], {"f": self.one}

    def one(self) -> None:
        self.seen.append(1)

    def two(self) -> None:
        self.seen.append(2)

    def note(self, value: Any) -> None:
        self.seen.append(value)

    def made(self) -> Callable[[], None]:
        now = self.x
        return lambda: self.seen.append(now)

    def change(self) -> None:
        self.x, self.item[0], self.functions["f"] = 2, 2, self.two


SPELLED: dict[str, Callable[[Settings], Callable[[], None]]] = {
    "an item": lambda s: lambda: ml.call(s.functions["f"]),
    "partial of an item": lambda s: lambda: ml.call(partial(s.note, s.item[0])),
    "partial of an attribute": lambda s: lambda: ml.call(partial(s.note, s.x)),
    "a condition": lambda s: lambda: ml.call(s.one if s.x == 1 else s.two),
    "a default": lambda s: lambda: ml.call(lambda x=s.x: s.seen.append(x)),
    "a factory": lambda s: lambda: ml.call(s.made()),
    "a lambda": lambda s: lambda: ml.call(lambda: s.seen.append(s.x)),
}


@pytest.mark.parametrize("spelled", SPELLED)
def test_what_decides_which_function_is_called_is_followed(spelled: str) -> None:
    ml.use("numpy")
    settings = Settings()
    program = ml.program(SPELLED[spelled](settings))
    program.run(1)
    settings.change()
    program.run(1)
    assert settings.seen == [1, 2]


def test_functions_that_look_alike_are_told_apart() -> None:
    """Of the same text in another module, or given a number that is equal and another one."""
    ml.use("numpy")
    cells = ml.Set(4, "cells")
    a, b = cells.field("a"), cells.field("b")
    seen: list[Any] = []
    functions = []
    for number in range(2):
        module = ModuleType("case")
        exec("def work():\n    note(value)\n", vars(module))
        vars(module).update(note=seen.append, value=number)
        functions.append(module.work)
    given = [*functions, *(partial(seen.append, one) for one in (1, 1.0, True, 0.0, -0.0))]
    now = [given[0]]

    @ml.program
    def step() -> None:
        function = now[0]
        to(cells, a, b)
        ml.call(function, reads=(), writes=())

    for one in given:
        now[0] = one
        step.run(1)
    assert list(map(repr, seen)) == ["0", "1", "1", "1.0", "True", "0.0", "-0.0"]


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("what", ["made inside", "a temporary field", "a fill"])
def test_what_was_not_stored_before_a_call_is_not_read_behind_it(backend: str, what: str) -> None:
    """The call changes what the program does behind it, in the middle of a replay."""
    ml.use(backend)
    cells = ml.Set(N, "cells")
    a, b, t = cells.field("a", data=1.0), cells.field("b", data=0.0), cells.field("t", temporary=True)
    more = [False]

    def turn() -> None:
        more[0] = True

    def step() -> None:
        used = a.like("x") if what == "made inside" else b if what == "a fill" else t
        if what == "a fill":
            b.fill(3.0)
        else:
            to(cells, a, used)
            add(cells, used, b)
        ml.call(turn, reads=(), writes=())
        if what == "a fill" and not more[0]:
            b.fill(7.0)
        if more[0]:
            add(cells, a if what == "a fill" else used, b)

    program = ml.program(step)
    with pytest.raises(ProgramError, match=r"turn has changed a Python value by which [xtb] is read behind it"):
        program.run(1)
    program.run(1)
    assert b.numpy()[0] == (4.0 if what == "a fill" else 3.0)  # of the replay before one half was done


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("anew", [False, True])
def test_which_fill_a_value_behind_a_call_comes_from(backend: str, anew: bool) -> None:
    """The same fill stands behind the call, too, so that the first one is left out; then that is another value than the
    one that is read, unless something else sets all of it."""
    ml.use(backend)
    cells = ml.Set(N, "cells")
    a, b = cells.field("a", data=1.0), cells.field("b", data=5.0)
    more = [False]

    def turn() -> None:
        more[0] = True

    @ml.program
    def step() -> None:
        b.fill(3.0)
        ml.call(turn, reads=(), writes=())
        if not more[0]:
            b.fill(3.0)
        elif anew:
            to(cells, a, b)
        add(cells, a, b)

    if anew:
        step.run(1)
        assert b.numpy()[0] == 2.0
    else:
        with pytest.raises(ProgramError, match="turn has changed a Python value by which b is read behind it"):
            step.run(1)


@pytest.mark.parametrize("called", [False, True])
def test_what_is_between_calls_is_done_once_in_every_replay(called: bool) -> None:
    """A replay may do what the next one begins with, but not where each of them is run by itself."""
    ml.use("emulated")
    cells, edges = ml.Set(N, "cells"), ml.Set(N, "edges")
    ends = ml.Map(edges, cells, np.stack([np.arange(N), (np.arange(N) + 1) % N], axis=1), "ends")
    a, t, r = cells.field("a", data=1.0), cells.field("t", temporary=True), cells.field("r")
    loop = differences.loop(edges, t[ends], r[ends], schedule="atomic")  # which joins no other

    def step() -> None:
        inverse(cells, a, t)
        loop()
        advance(cells, r, a)
        if called:
            ml.call(lambda: None, reads=(), writes=())

    program = ml.program(step)
    program.run(2)
    (fused,) = [one.fusion()[0] for one in program.segments]
    assert bool(fused.prologue) == (not called), "it pays over many replays, and is not offered to one"
    np.testing.assert_array_equal(a.numpy(), 1.0)


def test_layouts_that_are_explained_are_those_that_run() -> None:
    """One loop before a call likes another layout than sixty behind it: these win, and that is said of both parts."""
    ml.use("emulated")
    cells, edges = ml.Set(N, "cells"), ml.Set(2 * N, "edges")
    ends = ml.Map(edges, cells, np.random.default_rng(1).integers(0, N, (2 * N, 2)), "ends")
    q, first, then = (cells.field(name, 4) for name in ("q", "first", "then"))
    before, behind = (differences.loop(edges, q[ends], found[ends], schedule=how)
                      for found, how in ((first, "atomic"), (then, "owner")))  # fmt: skip

    def step() -> None:
        before()
        ml.call(lambda: None, reads=(), writes=())
        for _ in range(60):
            behind()

    program = ml.program(step)
    said, voted = program.explain(), program.layouts
    assert ml.program(before).layouts.get(q) != voted.get(q), "alone it would have another"
    for field in (q, first, then):
        assert (f"layout of {field.name}: " in said) == (field in voted)


def test_a_call_is_told_from_another_by_its_function() -> None:
    ml.use("numpy")
    seen: list[int] = []

    def step() -> None:
        ml.call(partial(seen.append, 1), (), ())
        ml.call(partial(seen.append, 2), (), ())

    both = ml.program(step)
    one, other = both.operations
    assert one.content != other.content and one.content == ml.program(step).operations[0].content


def test_what_would_not_run_is_refused() -> None:
    ml.use("numpy")

    def generator() -> Any:
        yield 1

    async def coroutine() -> None:
        return

    for one in (generator, coroutine):
        with pytest.raises(ProgramError, match="is a generator or a coroutine, of which a call does nothing"):
            ml.program(lambda one=one: ml.call(one)).run(1)


def test_a_call_that_may_set_anything_may_end_a_repetition() -> None:
    ml.use("numpy")
    total = ml.Global(0.0, "total")

    def count() -> None:
        total.value = float(total.value) + 1.0

    assert ml.program(lambda: ml.call(count)).repeat(until=total > 4.5, at_most=20) == 5


def test_what_a_solver_reports_is_not_there_while_a_program_is_recorded() -> None:
    ml.use("numpy")
    grid = ml.Grid((8, 8), extent=((0.0, 1.0), (0.0, 1.0)), ghosts=1, name="g")
    solver = ml.linalg.FastPoisson(ml.linalg.Poisson(grid))
    x, b = grid.field("x"), grid.field("b")

    def shows() -> None:
        assert "reports at every replay" in repr(solver.solve(x, b))

    ml.program(shows).run(1)
    for use in (bool, list):
        with pytest.raises(ProgramError, match="reports is known at every replay"):
            ml.program(lambda use=use: use(solver.solve(x, b))).run(1)
    with pytest.raises(TypeError, match=r"FastPoisson\.solve\(\): missing a required argument: 'b'"):
        ml.program(lambda: solver.solve(x)).run(1)  # type: ignore[call-arg]


def test_a_krylov_solver_says_that_it_takes_no_temporary_field() -> None:
    ml.use("numpy")
    cells = ml.Set(8, "cells")
    x, a = cells.field("x"), cells.field("a", data=1.0)
    solver = ml.linalg.ConjugateGradients(lambda given, found: to(cells, given, found))

    def step() -> None:
        b = a.like("b")
        to(cells, a, b)
        solver.solve(x, b)

    with pytest.raises(ProgramError, match=r"b is a temporary field \(b\), which a solver .* temporary=False"):
        ml.program(step).run(1)


def test_sequence_says_what_has_taken_its_place() -> None:
    with pytest.raises(AttributeError, match=r"ml\.Sequence is gone: .*ml\.call"):
        _ = ml.Sequence  # type: ignore[attr-defined]


def test_a_function_that_fails_once_is_told_in_its_own_words(tmp_path: Any) -> None:
    ml.use("numpy")
    cells = ml.Set(4, "cells")
    u, v, calls = cells.field("u", data=1.0), cells.field("v", data=1.0), [0]

    def fails() -> None:
        calls[0] += 1
        if calls[0] == 4:
            raise SolveError("the valve is stuck")

    def step() -> None:
        add(cells, v, u)
        ml.call(fails, reads=(), writes=())

    with pytest.raises(ml.errors.MeshloomError, match=r"the valve is stuck in iteration 4; .* did not fail again"):
        ml.march(ml.program(step), steps=10)
