"""Control loops: a program that sets its own Globals, on every back end, without going back to Python."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError, MeshError
from meshloom.library.control import NOWHERE


@pytest.fixture(params=["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)], autouse=True)
def back_end(request: pytest.FixtureRequest) -> Iterator[str]:
    before = ml.backend()
    ml.use(request.param)
    yield request.param
    ml.use(before)


@ml.kernel
def decay(dt: ml.Read, rate: ml.Read, u: ml.ReadWrite, limit: ml.Write, smallest: ml.Min):
    u[...] = u / (1.0 + dt * rate)
    limit[...] = 0.25 / (rate * (1.0 + u))
    smallest[...] = 0.25 / (rate * (1.0 + u))


@ml.kernel
def tick(smallest: ml.Read, dt: ml.ReadWrite, time: ml.ReadWrite, cycle: ml.ReadWrite, both: ml.Write):
    old = dt + 0.0
    dt[...] = np.clip(smallest, 0.9 * old, 1.2 * old)
    time += dt
    cycle += 1
    both[0] = old
    both[1] = time


class Decay:
    """Values that decay with a time step that the program chooses."""

    def __init__(self, n: int = 2000):
        rng = np.random.default_rng(5)
        self.cells, self.clock = ml.Set(n, "cells"), ml.Set(1, "clock")
        self.rates = np.round(1.0 + rng.random(n), 2)  # many cells share a rate
        self.rate = self.cells.field("rate", data=self.rates)
        self.u = self.cells.field("u", data=np.ones(n))
        self.limit = self.cells.field("limit")
        self.smallest, self.dt, self.time = ml.Global(0.0, "smallest"), ml.Global(0.1, "dt"), ml.Global(0.0, "time")
        self.cycle = ml.Global(0, "cycle", dtype=np.int32)
        self.where = ml.Global(0, "where", dtype=np.int64)
        self.both = ml.Global(np.zeros(2), "both")

    def step(self) -> None:
        self.smallest.value = np.inf
        decay(self.cells, self.dt, self.rate, self.u, self.limit, self.smallest)
        ml.locate(self.limit, self.smallest, self.where)
        tick(self.clock, self.smallest, self.dt, self.time, self.cycle, self.both)

    def by_hand(self, steps: int) -> np.ndarray:
        """(steps, 3): dt, time and the place of the smallest limit after each step."""
        u, dt, time, rows = np.ones(len(self.rates)), 0.1, 0.0, []
        for _ in range(steps):
            u = u / (1.0 + dt * self.rates)
            limit = 0.25 / (self.rates * (1.0 + u))
            dt = min(max(limit.min(), 0.9 * dt), 1.2 * dt)
            time += dt
            rows.append((dt, time, np.argmin(limit)))
        return np.array(rows)


def test_a_program_chooses_its_time_step() -> None:
    case = Decay()
    history = ml.program(case.step).run(12, record=(case.dt, case.time, case.where, case.cycle))
    wanted = case.by_hand(12)
    np.testing.assert_allclose(history[:, :2], wanted[:, :2], rtol=1e-13)
    np.testing.assert_array_equal(history[:, 2], wanted[:, 2])
    np.testing.assert_array_equal(history[:, 3], np.arange(1, 13))
    assert case.cycle.value == 12 and isinstance(case.cycle.value, int)
    np.testing.assert_allclose(case.both.value, [wanted[-2, 0], wanted[-1, 1]], rtol=1e-13)


def test_eager_calls_and_the_plain_function_agree() -> None:
    replayed, called, plain = Decay(50), Decay(50), Decay(50)
    ml.program(replayed.step).run(4)
    for _ in range(4):
        called.step()
        plain.smallest.value = np.inf
        decay.python(plain.cells, plain.dt, plain.rate, plain.u, plain.limit, plain.smallest)
        tick.python(plain.clock, plain.smallest, plain.dt, plain.time, plain.cycle, plain.both)
    for name in ("dt", "time", "cycle"):
        assert getattr(called, name).value == getattr(replayed, name).value
        assert getattr(plain, name).value == pytest.approx(getattr(replayed, name).value, rel=1e-13)
    np.testing.assert_allclose(plain.both.value, replayed.both.value, rtol=1e-13)


def test_a_component_that_is_not_set_stays() -> None:
    @ml.kernel
    def second(pair: ml.ReadWrite):
        pair[1] = pair[0] + 1.0

    pair = ml.Global([4.0, 0.0], "pair")
    second(ml.Set(1, "clock"), pair)
    assert pair.value.tolist() == [4.0, 5.0]


def test_a_control_loop_explains_itself() -> None:
    case = Decay()
    loop = tick.loop(case.clock, case.smallest, case.dt, case.time, case.cycle, case.both)
    loop()
    assert "tick over clock: 1 element" in loop.explain()


@pytest.mark.parametrize("n", [0, 2, 2000])
def test_setting_a_global_over_other_sets_is_refused(n: int) -> None:
    case = Decay()
    with pytest.raises(KernelError, match=rf"parameter dt: a Global can be ReadWrite only .* many has {n}; use Sum"):
        tick(ml.Set(n, "many"), case.smallest, case.dt, case.time, case.cycle, case.both)


def test_locate_says_nowhere_and_refuses_what_it_cannot_do() -> None:
    case = Decay(20)
    case.smallest.value = -1.0
    ml.locate(case.limit, case.smallest, case.where)
    assert case.where.value == NOWHERE
    with pytest.raises(MeshError, match="cycle must be one int64"):
        ml.locate(case.limit, case.smallest, case.cycle)
    with pytest.raises(MeshError, match="one value each, got 1 and 2"):
        ml.locate(case.limit, case.both, case.where)


def test_an_integer_can_be_reset_to_any_of_its_values() -> None:
    """2**62 + 1 is no double: a fill must not take the way through one."""
    counter = ml.Global(0, "counter", dtype=np.int64)

    @ml.kernel
    def keep(counter: ml.ReadWrite):
        counter[...] = counter + 1

    def body() -> None:
        counter.value = 2**62 + 1
        keep(ml.Set(1, "clock"), counter)

    ml.program(body).run(2)
    assert counter.value == 2**62 + 2
