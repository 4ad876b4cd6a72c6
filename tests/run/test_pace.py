"""The size of chunks and the rates shown."""

from __future__ import annotations

import pytest

from meshloom.run.pace import Pace


def test_chunks_take_a_tenth_of_a_second():
    pace = Pace()
    assert pace.chunk() == 1
    pace.done(1, 5.0)  # compiling
    assert pace.chunk() == 1
    pace.done(1, 0.001)
    assert pace.chunk() == 100
    pace.done(100, 0.2)
    assert pace.chunk() == 50


def test_the_mean_leaves_the_first_iteration_out():
    pace = Pace()
    pace.done(1, 5.0)
    assert pace.seconds_per_iteration == 5.0
    pace.done(10, 1.0)
    pace.done(10, 3.0)
    assert pace.seconds_per_iteration == pytest.approx(0.2)


def test_a_large_first_chunk_is_left_out_too():
    pace = Pace()
    pace.done(1000, 5.0)
    assert pace.seconds_per_iteration == pytest.approx(0.005) and pace.seconds == 0.0
    pace.done(10, 0.1)
    assert pace.seconds_per_iteration == pytest.approx(0.01) and pace.seconds == pytest.approx(0.1)


def test_the_rate_forgets_compiling_and_follows():
    pace = Pace()
    pace.done(1, 5.0)
    assert pace.rate == 0.0, "compiling is no rate"
    pace.done(100, 1.0)
    assert pace.rate == pytest.approx(100.0)
    for _ in range(30):
        pace.done(10, 1.0)
    assert pace.rate == pytest.approx(10.0, rel=0.01)


def test_a_clock_that_stands_still_does_no_harm():
    pace = Pace()
    pace.done(1, 0.0)
    assert pace.chunk() >= 1 and pace.seconds_per_iteration > 0.0
