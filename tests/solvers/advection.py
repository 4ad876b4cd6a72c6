"""Runs of the advection cases on the NumPy back end, shared by the tests: each is made once."""

from __future__ import annotations

from functools import cache

import pytest

import meshloom as ml
from meshloom.config import build, parse_set
from meshloom.solvers import find_case
from meshloom.solvers.advection.base import AdvectionCase


def make(name: str, *settings: str) -> AdvectionCase:
    cls = find_case(name)
    made = cls(build(cls.Config, [parse_set(text) for text in settings]))
    assert isinstance(made, AdvectionCase)
    return made


@cache
def monitors(name: str, *settings: str) -> dict[str, float]:
    """The monitors at the end of a run."""
    before = ml.backend()
    ml.use("numpy")
    try:
        made = make(name, *settings)
        rows = made.monitor_rows(made.program.run(made.steps.count, record=made.recorded))
        assert made.steps_left(made.recorded_now()) == 0
        assert rows[-1, 0] == pytest.approx(made.config.time.end, rel=1e-14)
    finally:
        ml.use(before)
    return dict(zip(made.monitors, rows[-1], strict=True))
