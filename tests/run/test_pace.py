"""The size of chunks and the rates shown."""

from __future__ import annotations

import pytest

from meshloom.run.pace import Pace, rate_text, updates_text


def test_chunks_take_a_tenth_of_a_second():
    pace = Pace()
    assert pace.chunk() == 1
    pace.done(1, 5.0)  # compiling
    assert pace.chunk() == 1
    pace.done(1, 0.001)
    assert pace.chunk() == 100
    pace.done(100, 0.2)
    assert pace.chunk() == 50


def test_the_rate_is_the_mean_of_all_iterations_but_the_first():
    """Unknown until there is a second one: compiling is no rate."""
    pace = Pace()
    assert pace.rate == 0.0
    pace.done(1, 5.0)
    assert pace.rate == pace.seconds == pace.recent == 0.0
    pace.done(10, 1.0)
    pace.done(10, 3.0)
    assert pace.rate == pytest.approx(5.0) and pace.seconds == pytest.approx(4.0)


def test_a_large_first_chunk_is_left_out_too():
    pace = Pace()
    pace.done(1000, 5.0)
    assert pace.rate == 0.0 and pace.seconds == 0.0
    pace.done(10, 0.1)
    assert pace.rate == pytest.approx(100.0) and pace.seconds == pytest.approx(0.1)


def test_what_is_likely_to_come_follows_the_newest_chunks():
    pace = Pace()
    pace.done(1, 5.0)
    pace.done(100, 1.0)
    assert pace.recent == pytest.approx(100.0)
    for _ in range(30):
        pace.done(10, 1.0)
    assert pace.recent == pytest.approx(10.0, rel=0.01) and pace.rate == pytest.approx(400 / 31)


def test_rates_in_words():
    assert rate_text(198.21, 64, "cells") == "198.2 iterations/s, 0.0127 M cells/s"
    assert updates_text(2e4, 100, "points") == "2 M points/s"
    assert rate_text(0.0, 64, "cells") == updates_text(0.0, 64, "cells") == ""


def test_a_clock_that_stands_still_does_no_harm():
    pace = Pace()
    pace.done(1, 0.0)
    pace.done(1, 0.0)
    assert pace.chunk() >= 1 and pace.rate > 0.0
