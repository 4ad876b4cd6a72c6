"""Programs and solvers one after the other: the same as calling them, stopped after whole rounds only."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make
from meshloom.errors import ProgramError, SolveError
from meshloom.operation.sequence import calls_only_ours
from tests.at_once import THREADS, at_once


@ml.kernel
def add_one(u: ml.ReadWrite, total: ml.Sum):
    u += 1.0
    total += u


@ml.kernel
def double(u: ml.ReadWrite):
    u[...] = 2.0 * u


class Work:
    """u + 1, then u squared by NumPy, then twice that."""

    def __init__(self) -> None:
        self.cells = ml.Set(5, "cells")
        self.u, self.total = self.cells.field("u", data=0.0), ml.Global(0.0, "total")
        self.squared = 0
        self.sequence = ml.Sequence(ml.program(self.before), self.square, ml.program(self.behind), name="work")

    def before(self) -> None:
        self.total.value = 0.0
        add_one(self.cells, self.u, self.total)

    def square(self) -> None:
        self.squared += 1
        self.u.assign(np.sqrt(self.u.numpy()))

    def behind(self) -> None:
        double(self.cells, self.u)


def expected(rounds: int) -> list[float]:
    """u after each round."""
    found, u = [], 0.0
    for _ in range(rounds):
        u = 2.0 * np.sqrt(u + 1.0)
        found.append(u)
    return found


@pytest.fixture(params=["numpy", "cpu"], autouse=True)
def back_end(request: pytest.FixtureRequest) -> None:
    ml.use(request.param)


def test_parts_run_in_turn_and_globals_are_kept() -> None:
    work = Work()
    history = work.sequence.run(4, record=(work.total,))
    np.testing.assert_allclose(work.u.numpy(), expected(4)[-1], rtol=1e-15)
    np.testing.assert_allclose(history[:, 0], 5.0 * (np.array([0.0, *expected(3)]) + 1.0), rtol=1e-15)
    work.sequence()
    np.testing.assert_allclose(work.u.numpy(), expected(5)[-1], rtol=1e-15)
    assert work.squared == 5


def test_no_round_compiles_and_changes_nothing() -> None:
    work = Work()
    assert work.sequence.run(0, record=(work.total,)).shape == (0, 1)
    assert work.squared == 0 and not work.u.numpy().any()


def test_loops_and_words_of_a_sequence() -> None:
    work = Work()
    assert [loop.name for loop in work.sequence.loops if not loop.domain.all_memory] == ["add_one", "double"]
    assert "part 2 of 3: Work.square" in work.sequence.explain() and "double over cells" in work.sequence.explain()
    assert repr(work.sequence) == "Sequence(work: program before, Work.square, program behind)"


def test_a_schedule_that_comes_later_is_followed() -> None:
    work = Work()
    work.sequence.run(2)
    (loop,) = [one for one in work.sequence.loops if one.name == "double"]
    loop.reschedule(ml.Schedule("direct", block=64))
    work.sequence.run(2)
    np.testing.assert_allclose(work.u.numpy(), expected(4)[-1], rtol=1e-15)
    assert loop.schedule.block == 64


def test_a_field_that_moves_between_rounds_is_found() -> None:
    work = Work()
    work.sequence.run(2)
    ml.use("numpy" if ml.backend() == "cpu" else "cpu")
    work.sequence.run(1)
    np.testing.assert_allclose(work.u.numpy(), expected(3)[-1], rtol=1e-15)


def test_ctrl_c_takes_effect_after_a_whole_round() -> None:
    work = Work()

    def interrupt() -> None:
        if work.squared == 3:
            os.kill(os.getpid(), signal.SIGINT)

    sequence = ml.Sequence(*work.sequence.parts[:2], interrupt, work.sequence.parts[2])
    with pytest.raises(KeyboardInterrupt, match="stopped after 3 of 100 rounds") as stop:
        sequence.run(100, record=(work.total,))
    assert stop.value.replays == 3 and stop.value.history.shape == (3, 1)  # type: ignore[attr-defined]
    np.testing.assert_allclose(work.u.numpy(), expected(3)[-1], rtol=1e-15)


def test_ctrl_c_in_the_last_round_is_not_lost() -> None:
    work = Work()
    sequence = ml.Sequence(lambda: os.kill(os.getpid(), signal.SIGINT), *work.sequence.parts)
    with pytest.raises(KeyboardInterrupt, match="stopped after 1 of 1 rounds"):
        sequence.run(1)
    assert work.squared == 1


def test_a_program_with_arguments_is_bound_first() -> None:
    work = Work()
    twice = ml.program(lambda u: double(work.cells, u))
    ml.Sequence(twice.bind(work.u), *work.sequence.parts).run(2)
    assert work.u.numpy()[0] == pytest.approx(2.0 * np.sqrt(2.0 * expected(1)[0] + 1.0))
    with pytest.raises(ProgramError, match="takes arguments"):
        ml.Sequence(twice)


def test_a_solve_that_fails_says_after_how_many_rounds() -> None:
    work = Work()

    def fail() -> None:
        if work.squared == 3:
            raise SolveError("not solved")

    with pytest.raises(SolveError, match="not solved") as error:
        ml.Sequence(*work.sequence.parts, fail).run(10)
    assert error.value.replays == 2


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda w: ml.Sequence(), "give the programs and functions"),
        (lambda w: ml.Sequence(w.sequence.parts[0], 3), "is made of programs and functions, got 3"),
        (lambda w: ml.Sequence(w.sequence.parts[0], lambda x: x), "lambda> takes arguments, and is called without any"),
        (lambda w: w.sequence.run(-1), "rounds must be a whole number"),
        (lambda w: w.sequence.run(1, record=w.total), "record takes a tuple of Globals"),
        (lambda w: ml.program(lambda: w.sequence.run(1)).run(), "running sequence work inside a program"),
    ],
)
def test_what_is_wrong_is_one_line(make, says: str) -> None:  # type: ignore[no-untyped-def]
    work = Work()
    with pytest.raises(ProgramError, match=says) as error:
        make(work)
    assert "\n" not in str(error.value)
    assert work.squared == 0 and not work.u.numpy().any()


def test_python_values_are_followed_before_every_round_or_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's function between programs may set what they read; Meshloom's own sets nothing, and is trusted."""
    ml.use("numpy")
    cells, setting = ml.Set(2, "cells"), {"by": 1.0}
    u, asked = cells.field("u"), []

    @ml.kernel
    def add(u: ml.ReadWrite, by: ml.Read):
        u += by

    step = ml.program(lambda: add(cells, u, setting["by"]))
    looked = type(step)._own_tape
    monkeypatch.setattr(type(step), "_own_tape", lambda self: (asked.append(self), looked(self))[1])
    ml.Sequence(step, lambda: setting.update(by=2.0 * setting["by"])).run(4)
    assert u.numpy()[0] == 1.0 + 2.0 + 4.0 + 8.0
    alone = ml.Sequence(step, step.run)
    counts = []
    for rounds in (1, 3, 9):
        asked.clear()
        alone.run(rounds)
        counts.append(len(asked) - rounds)  # step.run itself looks once
    assert counts[1] == counts[2] and u.numpy()[0] == 15.0 + 26 * 16.0


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
    ml.Sequence,
    lambda double: ml.Sequence(ml.Sequence(double)).run,
    _held_in_a_solver,
    lambda double: ml.Sequence(partial(partial(double))),
], ids=["sequence", "method of a sequence", "refreshed preconditioner", "partial"])  # fmt: skip
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

    step, double = ml.program(lambda: add(cells, u, setting["by"])), _Holder(setting).double
    part = wrapped(double)
    assert not calls_only_ours(part)
    ml.Sequence(step, part).run(4)
    assert u.numpy()[0] == 1.0 + 2.0 + 4.0 + 8.0


@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_ready_cases_solve_by_calls_only_ours(backend: str) -> None:
    """Or every step of theirs would look at all Python values between its parts."""
    ml.use(backend)
    cavity = ("cavity2d", "mesh.cells=[4,4]")
    staggered = ("cavity3d", "mesh.cells=[4,4,4]", "scheme.form=staggered")
    implicit = ("fv", "mesh.along=3", "mesh.up=2", "time.method=implicit")
    for name in (cavity, (*cavity, "pressure.solver=multigrid"), staggered, implicit):
        sequence = make(*name).program
        assert isinstance(sequence, ml.Sequence)
        sequence.run(1)
        assert calls_only_ours(*sequence.parts), name


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
def test_values_of_kernels_are_followed_between_parts(backend: str, what: str) -> None:
    """As those of programs are: a function of the user's between two rounds sets them."""
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
    sequence = ml.Sequence(ml.program(lambda: add(cells, u)), between)
    sequence.run(3)
    assert u.numpy()[0] == 111.0
    sequence.run(2)
    assert u.numpy()[0] == 11111.0


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_program_of_a_sequence_is_used_by_one_thread_at_a_time(backend: str) -> None:
    """Whether it runs in a sequence, in two, or by itself."""
    ml.use(backend)
    cells = ml.Set(50, "cells")
    u, total = cells.field("u", data=0.0), ml.Global(0.0, "total")

    @ml.program
    def step() -> None:
        add_one(cells, u, total)

    step.run(1)
    others = [ml.Sequence(step, name=name) for name in ("one", "another")]
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

    sequence = ml.Sequence(step)
    sequence.run(2)
    fused = [one.calls for one in step.loops]
    step.fuse = False
    sequence.run(2)
    assert fused == [0, 0] and [one.calls for one in step.loops] == [2, 2]


def test_its_loops_are_those_of_now() -> None:
    """A program that has recorded again has other ones."""
    ml.use("numpy")
    work, setting = Work(), {"times": 1}

    @ml.program
    def several() -> None:
        for _ in range(setting["times"]):
            double(work.cells, work.u)

    sequence = ml.Sequence(several, name="several")
    for times in (1, 3, 1):
        setting["times"] = times
        assert [one.name for one in sequence.loops] == ["double"] * times
        sequence.run(1)
        assert sequence.loops == several.loops
