"""What the cost model says of the threads of a CPU, and that choices do not ask for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import meshloom as ml
from meshloom.schedule.choice.cost import Cost
from meshloom.target import CPU, Rates
from tests.fitted import changed
from tests.target.test_target import spread_loop


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = ml.backend(), ml.threads()
    yield
    ml.use(before[0], threads=before[1])


def rates(threads: int) -> Rates:
    return CPU.rates.on_threads(threads, CPU.cpu.threads.bytes_per_second)


def test_arithmetic_is_shared_and_memory_saturates() -> None:
    one, all_cores = 1 / CPU.rates.per_byte, CPU.cpu.threads.bytes_per_second
    for threads in (1, 2, 4, 8, 64):
        assert 1 / rates(threads).per_byte == pytest.approx(min(threads * one, all_cores))
        assert rates(threads).per_flop == pytest.approx(CPU.rates.per_flop / threads)
    moves, computes = Cost(1e9, 0.0, launches=0), Cost(0.0, 1e9, launches=0)
    assert moves.seconds(rates(64)) == moves.seconds(rates(32)) < moves.seconds(rates(2))
    assert computes.seconds(rates(64)) == pytest.approx(computes.seconds(rates(32)) / 2)


def test_one_thread_waits_for_nobody() -> None:
    """Blocks of few colors keep one thread as busy as any, and it goes on from color to color."""
    colored, plain = Cost(1e6, 1e6, rounds=9.0, concurrent_blocks=1.0), Cost(1e6, 1e6)
    assert colored.seconds(rates(1)) == plain.seconds(rates(1))
    assert colored.seconds(rates(2)) > plain.seconds(rates(2))
    assert Cost(0.0, 0.0, atomics=5.0, launches=0).seconds(rates(1)) == 5 * CPU.rates.per_atomic, "the same code"


def test_the_time_of_a_loop_depends_on_threads_and_its_choice_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, threads={"small_elements": 1})
    seconds, chosen = [], []
    for threads in (1, 2, 64):
        ml.use("cpu", threads=threads)
        loop = spread_loop(300)
        seconds.append(loop.estimate)
        chosen.append((loop.schedule, loop.reason))
    assert seconds[0] > seconds[1] > seconds[2] > 0.0
    assert len(set(chosen)) == 1
