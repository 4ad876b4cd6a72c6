"""Functions that programs call: the same as calling everything in turn, stopped after whole replays only."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make
from meshloom.errors import ProgramError, SolveError
from meshloom.operation.call import functions_of
from meshloom.operation.in_turn import calls_only_ours
from tests.at_once import THREADS, at_once
from tests.called_work import Work, add_one, double, expected


@pytest.fixture(params=["numpy", "cpu"], autouse=True)
def back_end(request: pytest.FixtureRequest) -> None:
    ml.use(request.param)


def test_calls_run_in_turn_and_globals_are_kept() -> None:
    work = Work()
    history = work.program.run(4, record=(work.total,))
    np.testing.assert_allclose(work.u.numpy(), expected(4)[-1], rtol=1e-15)
    np.testing.assert_allclose(history[:, 0], 5.0 * (np.array([0.0, *expected(3)]) + 1.0), rtol=1e-15)
    work.program()
    np.testing.assert_allclose(work.u.numpy(), expected(5)[-1], rtol=1e-15)
    assert work.squared == 5


def test_no_replay_compiles_and_changes_nothing() -> None:
    work = Work()
    assert work.program.run(0, record=(work.total,)).shape == (0, 1)
    assert work.squared == 0 and not work.u.numpy().any()


def test_loops_and_words_of_a_program_with_calls() -> None:
    work = Work()
    program, said = work.program, "square: a call from Python, which reads everything and writes everything"
    assert [loop.name for loop in program.loops if not loop.domain.all_memory] == ["add_one", "double"]
    assert f"part 2 of 3: {said}" in program.explain() and "double over cells" in program.explain()
    assert repr(program) == "Program(work: total = 0, add_one, square, double)"
    assert [one.name for one in program.operations] == ["total = 0", "add_one", "square", "double"]
    assert [one.name for one in program.steps] == ["total = 0", "add_one", "square", "double"]
    assert "square" in program.dataflow.svg() and "2  square over everything" in str(program.dataflow)
    assert {type(one) for one in (*program.operations, *program.steps, *program.loops)} == {ml.Operation}


def test_a_call_is_timed_as_any_operation() -> None:
    work = Work()
    work.program.run(3)
    (call,) = [one for one in work.program.operations if one.domain.is_call]
    assert call.calls == 3 and call.spent.seconds > 0.0 and call.seconds is not None
    assert [one.spent.calls for one in work.program.timed() if one.operation is call] == [3]
    call()
    assert work.squared == 4 and call.calls == 4


def test_a_program_inside_another_one_keeps_its_calls() -> None:
    work = Work()
    outer = ml.program(lambda: work.program.run(2))
    outer.run(2)
    assert work.squared == 4
    np.testing.assert_allclose(work.u.numpy(), expected(4)[-1], rtol=1e-15)


def test_repeated_until_a_global_says_so() -> None:
    work = Work()
    totals = 5.0 * (np.array([0.0, *expected(30)]) + 1.0)
    times = work.program.repeat(until=work.total > 20.0, at_most=30)
    assert times == 1 + int(np.argmax(totals > 20.0)) and work.squared == times


def test_what_a_call_sets_may_end_it() -> None:
    work, count = Work(), ml.Global(0, "count", dtype=np.int64)

    def tell() -> None:
        count.value = int(count.value) + 1

    def counted() -> None:
        work.before()
        ml.call(tell, reads=(count,), writes=(count,))

    assert ml.program(counted).repeat(until=count >= 4, at_most=30) == 4


def test_programs_with_arguments_call_too() -> None:
    work, seen = Work(), list[float]()

    @ml.program
    def step(u: ml.Field) -> None:
        double(work.cells, u)
        ml.call(lambda: seen.append(float(u.numpy()[0])))
        double(work.cells, u)

    other = work.cells.field("other", data=1.0)
    step.run(2, other)
    step(work.u)
    assert seen == [2.0, 8.0, 0.0] and other.numpy()[0] == 16.0
    bound = step.bind(other)
    bound.run(2)
    assert seen[3:] == [32.0, 128.0]


def test_a_schedule_that_comes_later_is_followed() -> None:
    work = Work()
    work.program.run(2)
    (loop,) = [one for one in work.program.loops if one.name == "double"]
    loop.reschedule(ml.Schedule("direct", block=64))
    work.program.run(2)
    np.testing.assert_allclose(work.u.numpy(), expected(4)[-1], rtol=1e-15)
    assert loop.schedule.block == 64


def test_a_field_that_moves_between_replays_is_found() -> None:
    work = Work()
    work.program.run(2)
    ml.use("numpy" if ml.backend() == "cpu" else "cpu")
    work.program.run(1)
    np.testing.assert_allclose(work.u.numpy(), expected(3)[-1], rtol=1e-15)


def test_ctrl_c_takes_effect_after_a_whole_replay() -> None:
    work = Work()

    def interrupt() -> None:
        if work.squared == 3:
            os.kill(os.getpid(), signal.SIGINT)

    def step() -> None:
        work.before()
        ml.call(work.square)
        ml.call(interrupt)
        work.behind()

    with pytest.raises(KeyboardInterrupt, match="stopped after 3 of 100 replays") as stop:
        ml.program(step).run(100, record=(work.total,))
    assert stop.value.replays == 3 and stop.value.history.shape == (3, 1)  # type: ignore[attr-defined]
    np.testing.assert_allclose(work.u.numpy(), expected(3)[-1], rtol=1e-15)


def test_ctrl_c_in_the_last_replay_is_not_lost() -> None:
    work = Work()

    def step() -> None:
        ml.call(lambda: os.kill(os.getpid(), signal.SIGINT))
        work.work()

    with pytest.raises(KeyboardInterrupt, match="stopped after 1 of 1 replays"):
        ml.program(step).run(1)
    assert work.squared == 1


def test_a_solve_that_fails_says_after_how_many_replays() -> None:
    work = Work()

    def fail() -> None:
        if work.squared == 3:
            raise SolveError("not solved")

    def step() -> None:
        work.work()
        ml.call(fail)

    program = ml.program(step)
    with pytest.raises(SolveError, match="not solved") as error:
        program.run(10)
    assert error.value.replays == 2
    work.squared = 0
    with pytest.raises(SolveError, match="not solved") as error:
        program.repeat(until=work.total < 0.0, at_most=10)
    assert error.value.replays == 2


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda w: ml.call(w.square), "ml.call of square outside of a program: call it itself"),
        (lambda w: ml.program(lambda: ml.call(3)).run(), "ml.call takes a function, got 3"),
        (lambda w: ml.program(lambda: ml.call(lambda x: x)).run(), "lambda> takes arguments, and is called without"),
        (lambda w: ml.program(lambda: ml.call(w.program.bind, reads=w.u)).run(), "reads takes a tuple of fields and"),
        (lambda w: ml.program(lambda: ml.call(w.square, writes=(w.u, 2))).run(), "of fields and Globals, got 2"),
        (lambda w: w.program.run(-1), "replays must be a whole number"),
        (lambda w: w.program.run(1, record=w.total), "record takes a tuple of Globals"),
        (lambda w: ml.program(lambda: ml.call(w.square, reads=(), writes=())).repeat(
            until=ml.Global(0.0, "other") > 1.0, at_most=1), "it never sets other"),
    ],
)
def test_what_is_wrong_is_one_line(make, says: str) -> None:  # type: ignore[no-untyped-def]
    work = Work()
    with pytest.raises(ProgramError, match=says) as error:
        make(work)
    assert "\n" not in str(error.value)
    assert work.squared == 0 and not work.u.numpy().any()


def test_python_values_are_followed_before_every_replay_or_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of the user's may set what a program reads; Meshloom's own sets nothing, and is trusted."""
    ml.use("numpy")
    cells, setting = ml.Set(2, "cells"), {"by": 1.0}
    u, asked = cells.field("u"), []

    @ml.kernel
    def add(u: ml.ReadWrite, by: ml.Read):
        u += by

    step = ml.program(lambda: add(cells, u, setting["by"]))
    looked = type(step)._own_tape
    monkeypatch.setattr(type(step), "_own_tape", lambda self: (asked.append(self), looked(self))[1])

    def growing() -> None:
        step()
        ml.call(lambda: setting.update(by=2.0 * setting["by"]))

    def both() -> None:
        step()
        ml.call(step.run)

    ml.program(growing).run(4)
    assert u.numpy()[0] == 1.0 + 2.0 + 4.0 + 8.0
    alone, counts = ml.program(both), list[int]()
    for rounds in (1, 3, 9):
        asked.clear()
        alone.run(rounds)
        counts.append(len(asked) - rounds)  # step.run itself looks once
    assert counts[1] == counts[2] and u.numpy()[0] == 15.0 + 26 * 16.0


def test_values_are_followed_in_the_middle_of_a_replay() -> None:
    """What comes behind the call takes the new ones, whether that are other numbers or other loops; where other
    functions should have been called before, nobody knows where to go on."""
    work, setting = Work(), {"times": 1}

    def step() -> None:
        ml.call(lambda: setting.update(times=setting["times"] + 1))
        for _ in range(setting["times"]):
            double(work.cells, work.u)

    work.u.assign(1.0)
    ml.program(step).run(3)
    assert work.u.numpy()[0] == 2.0 ** (2 + 3 + 4)

    def other() -> None:
        for _ in range(setting["times"] - 4):
            ml.call(work.square)
        work.before()
        ml.call(lambda: setting.update(times=5))
        work.behind()

    with pytest.raises(ProgramError, match="has changed a Python value by which other functions are called before it"):
        ml.program(other).run(2)


def test_what_a_called_function_reads_is_its_own_business(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs at every replay, so it may read the time, draw numbers and count; none of it is recorded."""
    work, seen, recorded = Work(), list[float](), list[object]()
    words, record = iter("abc"), ml.Program._recorded
    monkeypatch.setattr(ml.Program, "_recorded", lambda self, given: (recorded.append(given), record(self, given))[1])

    class Counter:
        count = 0

        def look(self) -> None:
            self.count += 1
            seen.append(time.perf_counter() + np.random.default_rng().normal() * 0.0)
            next(words)

    counter = Counter()

    def step() -> None:
        work.before()
        ml.call(counter.look)
        ml.call(partial(counter.look))
        ml.call(lambda: counter.look(), reads=(), writes=())

    program = ml.program(step)
    program.run(1)
    before = len(recorded)
    assert counter.count == 3 and len(seen) == 3
    words = iter("abcdef")
    program.run(2)
    assert counter.count == 9 and len(recorded) == before
    counter.look = lambda: None  # type: ignore[method-assign]
    program.run(1)
    assert counter.count == 9, "another function in its place is another program"


class _Holder:
    """Of the user's own, with a method that sets a value."""

    def __init__(self, setting: dict[str, float]):
        self.setting = setting

    def double(self) -> None:
        self.setting["by"] *= 2.0


def _held_in_a_solver(double: Callable[[], None]) -> Callable[[], None]:
    """A method of the package's that calls a function of the user's, as preconditioners are refreshed."""
    cells = ml.Set(2, "unknowns")
    x, b = cells.field("x"), cells.field("b", data=np.ones(2))

    class Refreshed:
        def refresh(self) -> None:
            double()

        def __call__(self, r: ml.Field, z: ml.Field) -> None:
            copy(r.set, r, z)

    @ml.kernel
    def copy(r: ml.Read, z: ml.Write):
        z[...] = r

    solver = ml.linalg.ConjugateGradients(lambda x, y: copy(x.set, x, y), preconditioner=Refreshed())
    return partial(solver.solve, x, b)


@pytest.mark.parametrize("wrapped", [
    lambda double: ml.program(lambda: ml.call(double)),
    lambda double: ml.program(lambda: ml.call(ml.program(lambda: ml.call(double)).run)).run,
    _held_in_a_solver,
    lambda double: partial(partial(double)),
], ids=["program", "method of a program", "refreshed preconditioner", "partial"])  # fmt: skip
def test_a_callback_that_a_function_of_the_package_calls_is_followed(
    wrapped: Callable[[Callable[[], None]], Callable[[], Any]],
) -> None:
    """Whose function a part is says nothing of what it calls."""
    ml.use("numpy")
    cells, setting = ml.Set(2, "cells"), {"by": 1.0}
    u = cells.field("u")

    @ml.kernel
    def add(u: ml.ReadWrite, by: ml.Read):
        u += by

    called = wrapped(_Holder(setting).double)
    assert not calls_only_ours(called)

    def step() -> None:
        add(cells, u, setting["by"])
        ml.call(called)

    ml.program(step).run(4)
    assert u.numpy()[0] == 1.0 + 2.0 + 4.0 + 8.0


@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_ready_cases_solve_by_calls_only_ours(backend: str) -> None:
    """Or every step of theirs would look at all Python values between its parts."""
    ml.use(backend)
    cavity = ("cavity2d", "mesh.cells=[4,4]")
    staggered = ("cavity3d", "mesh.cells=[4,4,4]", "scheme.form=staggered")
    implicit = ("fv", "mesh.along=3", "mesh.up=2", "time.method=implicit")
    for name in (cavity, (*cavity, "pressure.solver=multigrid"), staggered, implicit):
        program = make(*name).program
        program.run(1)
        called = functions_of(program.operations)
        assert called and calls_only_ours(*called), name


def stand_in(module: str, name: str) -> Callable[[], None]:
    """A callable object of such a class of a library's."""
    return type(name, (), {"__module__": module, "__call__": lambda self: None})()  # type: ignore[no-any-return]


class _Table(dict[str, float]):
    """Of the user's, who may have changed what a dictionary does."""


class _Number:
    def __add__(self, other: float) -> float:
        return other


def test_which_callables_of_libraries_call_nothing_of_the_users() -> None:
    """Kernels of a GPU do not; what wraps a function of Python may, and what writes to arrays changes values itself."""
    assert calls_only_ours(stand_in("cupy._core._kernel", "ElementwiseKernel"))
    assert calls_only_ours(partial(dict, {"a": 1.0}), ml.Global)
    for one in (
        partial(np.frompyfunc(lambda x: x, 1, 1), 1.0),
        partial(np.add, np.ones(2), 1.0, np.ones(2)),
        partial(np.vectorize(lambda x: x), 1.0),
        stand_in("cupy._core.fusion", "Fusion"),
        stand_in("cupy._functional.vectorize", "vectorize"),
        stand_in("somebody", "ElementwiseKernel"),
        partial(np.add, np.array([_Number()], dtype=object), 1.0),
        partial(dict, _Table(a=1.0)),
        _Number,
    ):
        assert not calls_only_ours(one), one


SCALE = 1.0


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated"])
@pytest.mark.parametrize("what", ["global", "array", "class", "ufunc"])
def test_values_of_kernels_are_followed_between_calls(backend: str, what: str) -> None:
    """As those of programs are: a function of the user's sets them."""
    global SCALE
    ml.use(backend)
    cells, table, SCALE = ml.Set(4, "cells"), np.ones(3), 1.0
    u = cells.field("u", data=0.0)

    @ml.kernel
    def add(u: ml.ReadWrite):
        u += table[0] * SCALE

    def grow() -> None:
        global SCALE
        if what == "array":
            table[0] *= 10.0
        else:
            SCALE *= 10.0

    class Grow:
        def __init__(self) -> None:
            grow()

    between = {"class": Grow, "ufunc": partial(np.multiply, table, 10.0, table)}.get(what, grow)

    def step() -> None:
        add(cells, u)
        ml.call(between)

    program = ml.program(step)
    program.run(3)
    assert u.numpy()[0] == 111.0
    program.run(2)
    assert u.numpy()[0] == 11111.0


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_program_with_calls_is_used_by_one_thread_at_a_time(backend: str) -> None:
    """Whether it runs in another one, in two, or by itself."""
    ml.use(backend)
    cells = ml.Set(50, "cells")
    u, total = cells.field("u", data=0.0), ml.Global(0.0, "total")

    @ml.program
    def step() -> None:
        add_one(cells, u, total)

    step.run(1)
    others = [ml.program(lambda: ml.call(step)) for _ in range(2)]
    for one in others:
        one.run(1)
    at_once(lambda k: (*others, step)[k].run(5), turns=30)
    assert set(u.numpy()) == {3.0 + THREADS * 150.0}


def test_a_way_to_run_that_was_asked_for_since_is_taken() -> None:
    """What was made ready for another one does not serve: loop by loop, the loops are timed each by itself."""
    ml.use("cpu")
    cells = ml.Set(5, "cells")
    u, total = cells.field("u", data=0.0), ml.Global(0.0, "total")

    @ml.program
    def step() -> None:
        add_one(cells, u, total)
        double(cells, u)

    def called() -> None:
        step()
        ml.call(lambda: None)

    program = ml.program(called)
    program.run(2)
    fused = [one.calls for one in program.loops]
    program.fuse = False
    program.run(2)
    assert fused == [0, 0] and [one.calls for one in program.loops] == [2, 2]
