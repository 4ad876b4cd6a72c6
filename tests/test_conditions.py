"""Comparisons of Globals as conditions, and programs that repeat until one holds."""

from __future__ import annotations

import operator
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError, ProgramError
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
every_backend = pytest.mark.parametrize("backend", BACKENDS)


@ml.kernel
def up(u: ml.ReadWrite, largest: ml.Max):
    u += 1
    largest[...] = u


class Counter:
    """A program that counts up; its Global of any type holds how often it ran."""

    def __init__(self, backend: str, dtype: Any = np.float64, start: float = 0, fuse: bool = True):
        ml.use(backend)
        self.cells = ml.Set(5, "cells")
        self.u = self.cells.field("u", data=np.full(5, start, dtype))
        self.count = ml.Global(np.array(start, dtype), "count")
        self.program = ml.program(fuse=fuse)(self.step)

    def step(self) -> None:
        self.count.value = 0
        up(self.cells, self.u, self.count)


# ----- conditions ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sign", SIGNS)
def test_a_condition_is_what_python_says_of_the_values_now(sign: str) -> None:
    compare = SIGNS[sign]
    g, h = ml.Global(2.0, "g"), ml.Global(3, "h")
    for other in (1, 2, 3.5, -np.inf, np.nan, np.float32(2.0), np.int32(2), np.array(2.0)):
        assert bool(compare(g, other)) == compare(2.0, other)
        assert bool(compare(other, g)) == compare(other, 2.0), "with the number on the left"
    condition = compare(g, h)
    for value in (2.0, 3.0, 4.0, np.nan):
        g.value = value
        assert bool(condition) == compare(value, 3), "asked anew every time"
    assert repr(compare(g, 1e-6)) == f"g {sign} 1e-06" and repr(condition) == f"g {sign} h"
    assert repr(np.float64(1e-6) < g) == "g > 1e-06"


def test_whole_numbers_compare_as_such() -> None:
    g = ml.Global(2**62 + 1, "g", dtype=np.int64)
    assert g > 2**62 and not g > 2**62 + 1 and g < 10**30 and not g < -(10**400) and g < 10**400
    assert g > ml.Global(2**62, dtype=np.int64)


def test_equality_stays_identity() -> None:
    g = ml.Global(1.0)
    assert g == g and g != ml.Global(1.0) and hash(g) == hash(g)


@pytest.mark.parametrize("other", ["1", None, 1j, [1.0], np.ones(1), True])
def test_other_things_do_not_compare(other: Any) -> None:
    g = ml.Global(1.0, "g")
    with one_line_from(MeshError, "^global g compares with a number or another Global"):
        g < other  # noqa: B015
    with one_line_from(MeshError, "global v has 3 values"):
        ml.Global([1.0, 2.0, 3.0], "v") < 1.0  # noqa: B015
    with one_line_from(MeshError, "global v has 3 values"):
        g < ml.Global([1.0, 2.0, 3.0], "v")  # noqa: B015
    with one_line_from(MeshError, "^global g compares with a number"):
        g < ml.Set(3).field("u")  # noqa: B015


def test_a_condition_is_one_comparison() -> None:
    g = ml.Global(1.0, "g")
    for joined in (lambda: (g < 1.0) & (g > 0.0), lambda: (g < 1.0) | True, lambda: ~(g < 1.0)):
        with one_line_from(ProgramError, "^g < 1.0: a condition is one comparison"):
            joined()


def test_the_truth_of_a_condition_is_refused_in_a_recording() -> None:
    ml.use("numpy")
    counter = Counter("numpy")

    @ml.program
    def step() -> None:
        if counter.count < 3.0:
            counter.step()

    with one_line_from(ProgramError, "asking whether count < 3.0 inside a program would happen once"):
        step()


# ----- programs that repeat -----------------------------------------------------------------------------------------
@every_backend
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int32])
@pytest.mark.parametrize("sign", SIGNS)
def test_it_is_asked_after_each_run(backend: str, dtype: Any, sign: str) -> None:
    for limit in (4, 4.5, ml.Global(4, "limit", dtype=np.int32), ml.Global(4.0, "limit")):
        counter = Counter(backend, dtype)
        number = limit.value if isinstance(limit, ml.Global) else limit
        expected = next((n for n in range(1, 8) if SIGNS[sign](n, number)), 7)
        assert counter.program.repeat(until=SIGNS[sign](counter.count, limit), at_most=7) == expected
        assert counter.u.numpy().tolist() == [expected] * 5 and counter.count.value == expected


@every_backend
@pytest.mark.parametrize("fuse", [True, False])
def test_there_is_at_least_one_run_and_it_goes_on_from_there(backend: str, fuse: bool) -> None:
    counter = Counter(backend, fuse=fuse)
    for n in (1, 2, 3):
        assert counter.program.repeat(until=counter.count > -1.0, at_most=500) == 1, "true before, too"
        assert counter.u.numpy()[0] == n
    assert counter.program.repeat(until=counter.count >= 40, at_most=500) == 37
    assert counter.program.repeat(until=counter.count >= 1000, at_most=1) == 1
    counter.program.run(2)
    assert counter.u.numpy()[0] == 43.0


@every_backend
def test_large_whole_numbers_are_exact(backend: str) -> None:
    counter = Counter(backend, np.int64, start=2**60)
    assert counter.program.repeat(until=counter.count > 2**60 + 2, at_most=9) == 3


@every_backend
def test_not_a_number_is_never_less(backend: str) -> None:
    counter, nan = Counter(backend), ml.Global(np.nan, "nan")
    assert counter.program.repeat(until=nan < counter.count, at_most=5) == 5
    assert counter.program.repeat(until=counter.count > np.nan, at_most=5) == 5
    assert counter.u.numpy()[0] == 10.0


@every_backend
def test_constants_of_fused_programs_are_made_true_by_the_first_run(backend: str) -> None:
    """A field that is cleared at the end of each run: the first one goes loop by loop, and counts as well."""
    ml.use(backend)
    cells = ml.Set(6, "cells")
    u, add, total = cells.field("u"), cells.field("add", data=np.full(6, 10.0)), ml.Global(0.0, "total")

    @ml.kernel
    def feed(u: ml.Read, add: ml.Inc):
        add += 1.0 + 0.0 * u

    @ml.kernel
    def take(u: ml.ReadWrite, add: ml.ReadWrite, total: ml.Max):
        u += add
        add[...] = 0.0
        total[...] = u

    @ml.program
    def step() -> None:
        feed(cells, u, add)
        total.value = 0.0
        take(cells, u, add, total)

    assert step.repeat(until=total > 10.0, at_most=9) == 1 and total.value == 11.0
    assert step.repeat(until=total > 14.0, at_most=9) == 4
    add.fill(10.0)
    assert step.repeat(until=total > 27.0, at_most=9) == 3 and total.value == 28.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_stops_it_after_a_whole_run(backend: str) -> None:
    counter = Counter(backend)
    counter.program()
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match=r"program step: stopped after \d+ of 1000000000000 replays") as caught:
        counter.program.repeat(until=counter.count < 0.0, at_most=10**12)
    assert time.monotonic() - start < 2.0, "about a second, on a busy machine"
    timer.join()
    stopped: Any = caught.value
    assert stopped.history.shape == (stopped.replays, 0) and counter.u.numpy()[0] == stopped.replays + 1.0


def test_no_python_runs_between_the_runs_of_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter("cpu")
    counter.program()
    from meshloom.native import runtime

    calls: list[int] = []
    native = runtime.library().ml_replay
    monkeypatch.setattr(runtime.library(), "ml_replay", lambda *a: (calls.append(1), native(*a)))
    assert counter.program.repeat(until=counter.count > 1000.0, at_most=10**6) == 1000
    assert len(calls) < 20, "once every tenth of a second"


@pytest.mark.parametrize(("until", "at_most", "why"), [
    (True, 3, "until takes a condition, .* as in residual < 1e-6; got True"), (1e-6, 3, "until takes a condition"),
    (None, 0, "at_most must be a whole number from 1 to .*, got 0"),
    (None, 2.0, "at_most must be a whole number from 1 to"), (None, 2**60, "at_most must be a whole number"),
])  # fmt: skip
def test_wrong_use_changes_nothing(until: Any, at_most: Any, why: str) -> None:
    counter = Counter("numpy")
    condition = counter.count > 2 if until is None else until
    with one_line_from(ProgramError, why):
        counter.program.repeat(until=condition, at_most=at_most)
    with one_line_from(ProgramError, "takes no arguments, got 1"):
        counter.program.repeat(counter.u, until=counter.count > 2, at_most=3)
    assert not counter.u.numpy().any()


@every_backend
def test_what_the_program_never_sets_decides_nothing(backend: str) -> None:
    counter, other = Counter(backend), ml.Global(1.0, "other")
    with one_line_from(ProgramError, "it never sets other, so other < 2.0 would stay as it is; repeat until something"):
        counter.program.repeat(until=other < 2.0, at_most=5)
    with one_line_from(ProgramError, "it never sets other or other"):
        counter.program.repeat(until=other < other, at_most=5)
    assert not counter.u.numpy().any()

    @ml.program
    def step(count: ml.Global) -> None:
        count.value = 0.0
        up(counter.cells, counter.u, count)

    assert step.repeat(counter.count, until=counter.count >= 2.0, at_most=9) == 2
    for _ in range(2):  # recorded, and found again
        with one_line_from(ProgramError, "it never sets count, so count > 9.0"):
            step.repeat(other, until=counter.count > 9.0, at_most=9)
    assert step.repeat(other, until=other > 3.0, at_most=9) == 2
    with one_line_from(ProgramError, "it never sets count"):
        step.repeat(other, until=counter.count > 9.0, at_most=9)
    assert counter.u.numpy().tolist() == [4.0] * 5
