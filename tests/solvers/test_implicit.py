"""Adams-Bashforth for convection with Crank-Nicolson for friction: order in time, sweeps that are enough, long steps
where friction is strong, restarts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.case.even_steps import EvenSteps
from meshloom.config import Setting, build
from meshloom.solvers.fractional_step import Channel, SquareCavity
from meshloom.solvers.fractional_step.boundary_conditions import HIGH, Wall
from meshloom.solvers.fractional_step.cells import CellGrid, stretched_edges
from meshloom.solvers.fractional_step.flow import IncompressibleFlow
from meshloom.solvers.fractional_step.implicit import sweeps_needed
from meshloom.solvers.fractional_step.schemes import ABCN
from meshloom.solvers.fractional_step.staggered import StaggeredFlow
from tests.solvers.test_cavity import BACKENDS, cavity
from tests.solvers.test_channel import channel, off_the_parabola, run
from tests.solvers.test_fractional_step import observed, periodic, stirred, walls

FORMS = {"collocated": IncompressibleFlow, "staggered": StaggeredFlow}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    ml.use("cpu", threads=1)


def between_walls() -> tuple[CellGrid, np.ndarray]:
    """A vortex that sticks to all walls, on stretched cells."""
    cells = CellGrid([stretched_edges(12, 0.0, 1.0, 1.0)] * 2, [False] * 2)
    x, y = np.meshgrid(*(np.pi * one.centres for one in cells.axes), indexing="ij")
    start = [np.sin(x) ** 2 * np.sin(2.0 * y), -(np.sin(y) ** 2) * np.sin(2.0 * x)]
    return cells, np.stack(start, axis=-1)


@pytest.mark.parametrize(
    ("form", "closed"),
    [("collocated", False), ("staggered", True),
     *(pytest.param(*one, marks=pytest.mark.slow) for one in (("collocated", True), ("staggered", False)))],
)  # fmt: skip
@pytest.mark.slow
def test_second_order_in_time(form: str, closed: bool) -> None:
    """On one grid, against very short steps, of velocities at centres and at faces; the last step is cut."""
    cells, start = between_walls() if closed else (periodic(12, bent=0.3), stirred(periodic(12, bent=0.3)))
    sides, viscosity, end = (walls(2), 0.05, 0.5) if closed else ({}, 0.02, 1.0)
    found = []
    for count in (16, 32, 64, 512):
        made = FORMS[form](cells, sides, viscosity, EvenSteps(end / (count - 0.5), end), scheme=ABCN, fade=0.2 * end)
        made.start(start)
        told = made.step.run(count, record=(made.time, made.divergence, *made.watched))
        assert told[-1, 0] == end and (told[:, 1] < 1e-13).all() and (told[:, 2] < 1e-12).all()
        found.append((made.velocity.numpy(), made.faces.numpy()))
    for which in (0, 1):
        errors = [float(np.abs(one[which] - found[-1][which]).max()) for one in found[:-1]]
        assert all(abs(one - 2.0) < 0.2 for one in observed(errors)), observed(errors)


@pytest.mark.parametrize("form", ["staggered", pytest.param("collocated", marks=pytest.mark.slow)])
def test_sweeps_are_enough_for_steps_that_friction_would_limit(form: str) -> None:
    """A hundred times as long as the longest that Euler's steps may have; between walls, beneath a lid."""
    cells = CellGrid([stretched_edges(9, 0.0, 1.0, 2.0), stretched_edges(8, 0.0, 1.0, 1.0)], [False] * 2)
    dt = 100.0 / (2.0 * sum(1.0 / h**2 for h in cells.narrowest))
    made = FORMS[form](cells, walls(2) | {(1, HIGH): Wall((1.0,))}, 1.0, EvenSteps(dt, 9.0), scheme=ABCN)
    made.start(0.0)
    told = made.step.run(20, record=(*made.watched, made.energy))
    assert made.implicit is not None and made.implicit.sweeps > 100
    assert (told[:, 0] < 1e-12).all() and 0.0 < told[-1, 1] < 0.1


def test_sweeps_follow_from_what_one_leaves() -> None:
    assert [sweeps_needed(radius, 1e-13) for radius in (0.0, 0.01, 0.36, 0.91)] == [3, 7, 19, 71]
    for radius in (0.1, 0.5, 0.9):
        weight, now, before = 2.0, radius, 1.0
        for _ in range(sweeps_needed(radius, 1e-13) - 1):
            weight = 1.0 / (1.0 - 0.25 * radius**2 * weight)
            now, before = before + weight * (radius * now - before), now
        assert abs(now) < 1e-13, "an error that Jacobi's sweeps reduce by the radius"


@pytest.mark.parametrize("form", ["staggered", pytest.param("collocated", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_step_is_limited_by_convection_alone_and_finds_the_parabola(form: str) -> None:
    case = channel(mesh__cells=(4, 12), mesh__stretch=2.0, scheme__time="abcn", scheme__form=form, time__steady=1e-5)
    explicit = channel(mesh__cells=(4, 12), mesh__stretch=2.0)
    assert case.flow.clock.step == pytest.approx(0.9 * 0.4 * (np.pi / 5.0)) and explicit.flow.clock.step < 0.01
    told = run(case)
    assert abs(told["balance"][-1] - 1.0) < 1e-4 and off_the_parabola(case) < 0.04


@pytest.mark.parametrize("form", FORMS)
def test_a_restart_goes_on_bit_for_bit(form: str) -> None:
    settings: dict[str, Any] = {"mesh__cells": (9, 8), "mesh__stretch": 1.0, "scheme__time": "abcn",
                                "scheme__form": form}  # fmt: skip
    whole, first, second = (cavity(SquareCavity, **settings) for _ in range(3))
    expected = whole.program.run(9, record=whole.recorded)[-1]
    first.program.run(4)
    for one, other in zip(first.state, second.state, strict=True):
        other.restore(one.saved())
    np.testing.assert_array_equal(second.program.run(5, record=second.recorded)[-1], expected)
    for one, other in zip(whole.state, second.state, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_back_end_gives_the_same(backend: str) -> None:
    ml.use("numpy")
    settings: dict[str, Any] = {"mesh__cells": (6, 7), "mesh__stretch": 1.0, "scheme__time": "abcn"}
    case = cavity(**settings)
    expected = case.program.run(4, record=case.recorded)
    ml.use(backend)
    case = cavity(**settings)
    np.testing.assert_allclose(case.program.run(4, record=case.recorded), expected, rtol=1e-10, atol=1e-13)


def test_what_the_sweeps_leave_is_watched_and_no_monitor() -> None:
    ml.use("numpy")
    case = Channel(build(Channel.Config, [Setting(("scheme", "time"), "abcn", "test")]))
    recorded = case.program.run(2, record=case.recorded)
    assert case.recorded[-1].name == "viscous_residual" and case.recorded[-1].name in case.limits
    assert case.monitor_rows(recorded).shape == (2, len(case.monitors)) and recorded.shape[1] == len(case.monitors) + 1
