"""The clock of flows: it ends exactly at the end, after as many steps as it says, none of them a sliver."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.case.even_steps import SLACK, EvenSteps, tick
from meshloom.errors import MeshError


def ticked(clock: EvenSteps, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """(lengths, times) of all steps that are left at time 0; then none is."""
    ml.use("cpu", threads=1)
    one, dt, time = ml.Set(1, "clock"), ml.Global(0.0, "dt", dtype=dtype), ml.Global(0.0, "time")

    def step() -> None:
        tick(one, dt, time, clock.step, clock.end)

    history = ml.program(step).run(clock.steps_left(0.0), record=(dt, time))
    assert clock.steps_left(float(time.value)) == 0
    return history[:, 0], history[:, 1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("step", "end"), [(0.01, 500.0), (1e-4, 10.0), (1.0 / 300.0, 100.0)])
def test_rounding_of_many_steps_makes_no_further_one(step: float, end: float, dtype: type) -> None:
    """A step of 1e-8 of the others' length has a pressure, and a change, that are rounding divided by that length."""
    lengths, times = ticked(EvenSteps(step, end), dtype)
    assert len(lengths) == round(end / step) and times[-1] == end
    np.testing.assert_allclose(lengths, step, rtol=2.0 * SLACK)
    assert lengths.max() <= EvenSteps(step, end).longest


@pytest.mark.parametrize(("step", "ends"), [(0.01, (0.3, 0.5)), (0.1, (0.7, 1.9)), (1.0 / 300.0, (1.0, 7.0 / 3.0))])
@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_going_on_has_the_steps_of_a_run_in_one_go(backend: str, step: float, ends: tuple[float, float]) -> None:
    """Where the first end is a whole number of steps away, bit for bit: lengths, and times but for that end, which is
    the number that was given."""
    ml.use(backend)
    dt, time, one = ml.Global(0.0, "dt"), ml.Global(0.0, "time"), ml.Set(1, "clock")

    def run_to(end: float) -> np.ndarray:
        clock = EvenSteps(step, end)
        assert clock.is_whole(end)
        program = ml.program(lambda: tick(one, dt, time, clock.step, clock.end))
        return program.run(clock.steps_left(float(time.value)), record=(dt, time))

    parts = np.concatenate([run_to(end) for end in ends])
    time.value = 0.0
    whole = run_to(ends[1])
    assert len(parts) == len(whole) == round(ends[1] / step)
    np.testing.assert_array_equal(parts[:, 0], whole[:, 0])
    same = parts[:, 1] == whole[:, 1]
    assert same.sum() >= len(same) - 1 and (parts[~same, 1] == ends[0]).all()
    assert not EvenSteps(0.3, 1.0).is_whole(1.0)


@pytest.mark.parametrize("roundings", [-200, -30, 30, 200])
@pytest.mark.parametrize("count", [100, 1000, 40_000])
def test_a_step_that_was_computed_is_whole(count: int, roundings: int) -> None:
    """Such as the size of a cell, in place of the number that was meant: what it adds up to is no step to shorten."""
    ml.use("numpy")
    step = 0.05 / count * (1.0 + roundings * np.finfo(np.float64).eps)
    dt, time, one = ml.Global(0.0, "dt"), ml.Global(0.0, "time"), ml.Set(1, "clock")
    for end in (0.05, 0.1):
        clock = EvenSteps(step, end)
        assert clock.is_whole(end)
        time.value = (round(end / step) - 1) * step
        tick(one, dt, time, clock.step, clock.end)
        assert (float(dt), float(time)) == (step, end) and clock.steps_left(end) == 0
        tick(one, dt, time, clock.step, 2.0 * end)
        assert (float(dt), float(time)) == (step, (round(end / step) + 1) * step), "as in a run in one go"


@pytest.mark.parametrize("count", [3, 100, 40_000])
def test_a_step_that_is_another_one_is_cut(count: int) -> None:
    """By more than a hundred-millionth, however many there are."""
    for share in (0.5, 1.0 - 1e-6, 1.0 + 1e-6):
        end = 0.05 * (1.0 + (share - 1.0) / count)
        assert not EvenSteps(0.05 / count, end).is_whole(end)


def test_the_last_step_may_be_a_little_longer() -> None:
    clock = EvenSteps(0.25, 0.75 + 0.2 * SLACK)
    lengths, times = ticked(clock, np.float64)
    assert len(lengths) == 3 and times[-1] == clock.end and 0.25 < lengths[-1] <= clock.longest


def test_the_last_step_is_cut() -> None:
    lengths, times = ticked(EvenSteps(0.3, 1.0), np.float64)
    np.testing.assert_allclose(lengths, [0.3, 0.3, 0.3, 0.1], rtol=1e-12)
    assert times[-1] == 1.0


def test_steps_beyond_the_end_are_whole() -> None:
    """A step of length 0 would divide by it: whoever goes on by hand goes on, and finds no NaN."""
    ml.use("cpu", threads=1)
    one, dt, time = ml.Set(1, "clock"), ml.Global(0.0, "dt"), ml.Global(0.0, "time")
    history = ml.program(lambda: tick(one, dt, time, 0.4, 1.0)).run(5, record=(dt, time))
    np.testing.assert_allclose(
        history, np.transpose([[0.4, 0.4, 0.2, 0.4, 0.4], [0.4, 0.8, 1.0, 1.4, 1.8]]), rtol=1e-12
    )


@pytest.mark.parametrize(("step", "end"), [(0.0, 1.0), (-1.0, 1.0), (np.nan, 1.0), (np.inf, 1.0), (0.1, np.nan)])
def test_clocks_that_never_tick(step: float, end: float) -> None:
    with pytest.raises(MeshError, match="a step must be a number above 0"):
        EvenSteps(step, end)
