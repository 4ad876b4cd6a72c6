"""Every case that seeks a steady state says at its end whether it has come there."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.case import Case
from meshloom.catalogue import case_names, find
from meshloom.config import Setting, build
from meshloom.run.verdict import CONVERGED, GROWING, STALLED, TOO_SHORT
from tests.solvers.test_stable import steps_of

COUNT = 64  # iterations
FLAT = np.ones(COUNT)
FALLING = np.geomspace(1.0, 1e-12, COUNT)
RISING = np.concatenate([np.geomspace(1.0, 1e-2, COUNT // 2), np.geomspace(1e-2, 10.0, COUNT // 2)])


def small(name: str) -> Case:
    """On its smallest mesh, with its usual settings."""
    ml.use("numpy")
    case = find(name)
    return case(build(case.Config, [Setting(tuple(key.split(".")), one, "test") for key, one in case.small.items()]))


@pytest.mark.parametrize("name", case_names())
def test_a_run_to_a_steady_state_ends_with_a_verdict(name: str) -> None:
    """A case goes to a time, by steps of a length that is given, or towards a steady state: whoever does none of the
    former, or may end before its time, must say by which residual it is judged. Histories are made up: how many
    iterations a flow takes is another matter."""
    case = small(name)
    goes_on_in_time = case.time_span(case.recorded_now()) is not None or "time.dt" in steps_of(type(case))
    if case.residual is None:
        assert goes_on_in_time and not case.early_end(), f"{name}: by which residual is it steady?"
        assert case.verdict(dict.fromkeys(case.monitors, FALLING)) is None
        return
    residual, _limit = case.residual
    assert residual in case.monitors
    for history, state in ((FLAT, STALLED), (FALLING, CONVERGED), (RISING, GROWING), (FLAT[:4], TOO_SHORT)):
        found = case.verdict({residual: history})
        assert found is not None and found.state == state and found.converged is (state == CONVERGED), found
        assert residual in found.text or state == TOO_SHORT


@pytest.mark.slow
@pytest.mark.parametrize("name", case_names())
def test_a_few_iterations_have_a_verdict(name: str) -> None:
    """32 of them: fewer do not tell a fall from a swing, as those of the first 8 of naca0012_transonic."""
    case = small(name)
    if case.residual is not None:
        rows = case.monitor_rows(case.program.run(32, record=case.recorded))
        found = case.verdict(dict(zip(case.monitors, rows.T, strict=True)))
        assert found is not None and found.state != TOO_SHORT
