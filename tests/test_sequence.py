"""Programs and solvers one after the other: the same as calling them, stopped after whole rounds only."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import ProgramError, SolveError


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
