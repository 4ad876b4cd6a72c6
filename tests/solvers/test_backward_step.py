"""The backward-facing step: where the flow attaches again, against Erturk's tables; restarts, monitors, charts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.config import Setting, build
from meshloom.solvers.fractional_step import BackwardStep
from meshloom.solvers.fractional_step.backward_step import LOWER, UPPER, first_turning

COARSE: dict[str, Any] = {"mesh__cells": 8, "mesh__upstream": 3.0, "mesh__downstream": 12.0, "mesh__growth": 1.05,
                          "mesh__widest": 0.5, "time__steady": 1e-4}  # fmt: skip
TINY: dict[str, Any] = COARSE | {"mesh__cells": 3, "mesh__growth": 1.3, "mesh__widest": 1.0}


def case_of(**settings: Any) -> BackwardStep:
    """A case with settings such as mesh__cells=8."""
    given = [Setting(tuple(key.split("__")), value, "test") for key, value in settings.items()]
    return BackwardStep(build(BackwardStep.Config, given))


def steady(case: BackwardStep) -> dict[str, float]:
    """The monitors when it has come to its end."""
    while left := case.steps_left(case.recorded_now()):
        recorded = case.program.run(left, record=case.recorded)
        assert (recorded[:, 2] < 1e-10).all(), "div U in units of speed over width, in every step"
        assert (np.abs(recorded[:, -1]) < 1e-12).all(), "what flows in flows out"
    return dict(zip(case.monitors, case.monitor_rows(recorded)[-1], strict=True))


@pytest.mark.slow
def test_a_coarse_grid_has_the_eddy_already() -> None:
    ml.use("cpu", threads=1)
    case = case_of(**COARSE)
    monitors = steady(case)
    assert monitors["change"] < 1e-4 and monitors["time"] < 60.0
    assert abs(monitors["reattachment"] / 2.922 - 1.0) < 0.015
    assert monitors["separation_top"] == monitors["reattachment_top"] == 0.0
    developed = 6.0 * 0.5 / 2.0  # slope of a parabola at the wall: 6 times its mean over its height
    np.testing.assert_allclose([case.wall_shear(wall)[-5] for wall in (LOWER, UPPER)], developed, rtol=0.03)
    (chart,) = case.charts({})
    assert chart.dots == ("reattachment",) and (np.diff(chart.x) > 0.0).all()
    marked = np.isfinite(chart.curves["reattachment"])
    assert marked.sum() == 1 and np.isclose(chart.x[marked][0], monitors["reattachment"])
    assert abs(chart.curves["lower wall"][marked][0]) < 1e-12
    image = case.picture()
    solid = np.isnan(image.values)
    assert solid.any() and (solid == ((image.x[:, None] < 0.0) & (image.y < 1.0))).all()
    assert image.x[0] < -1.0 and image.x[-1] > 5.0


@pytest.mark.parametrize("scheme", ["rk3", "euler"])
@pytest.mark.slow
def test_a_restart_goes_on_bit_for_bit(scheme: str) -> None:
    ml.use("cpu", threads=1)
    whole, first, second = (case_of(**TINY, scheme__time=scheme) for _ in range(3))
    expected = whole.program.run(12, record=whole.recorded)[-1]
    first.program.run(5)
    for one, other in zip(first.state, second.state, strict=True):
        other.restore(one.saved())
    np.testing.assert_array_equal(second.program.run(7, record=second.recorded)[-1], expected)
    for one, other in zip(whole.state, second.state, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_what_comes_in_is_a_parabola_of_mean_one() -> None:
    ml.use("numpy")
    for cells in (3, 8):
        case = case_of(**TINY | {"mesh__cells": cells})
        inlet = case.inlet()
        assert not inlet[:cells].any() and np.isclose(inlet.sum() / cells, 1.0) and (inlet[cells:] > 0.0).all()
        y = np.arange(0.5, cells) / cells
        np.testing.assert_allclose(inlet[cells:], 6.0 * y * (1.0 - y) - 0.5 / cells**2)
        faces = case.grid.shaped(case.flow.faces)[0, :, 0]
        np.testing.assert_allclose(faces, inlet, atol=1e-14)


def test_turnings_are_found_on_both_walls() -> None:
    """The loops find what arrays show, for any velocities, and nothing is 0."""
    ml.use("numpy")
    case = case_of(**TINY)
    x, dice = case.cells.axes[0].centres[case.first :], np.random.default_rng(0)
    for round_ in range(20):
        u = dice.standard_normal((*case.cells.shape, 2)) + (round_ % 5 - 2)
        case.flow.velocity.assign(u)
        ml.program(case.look).run()
        found = dict(zip(case.monitors, case.monitor_rows(case.recorded_now()[None])[0], strict=True))
        lower, upper = case.wall_shear(LOWER), case.wall_shear(UPPER)
        expected = first_turning(x, lower), first_turning(x, -upper), first_turning(x, upper)
        np.testing.assert_allclose([found[name] for name in case.monitors[5:8]], expected)
    case.flow.velocity.assign(1.0)
    ml.program(case.look).run()
    assert not case.monitor_rows(case.recorded_now()[None])[0, 5:8].any()


def test_shear_and_turning_are_exact_for_parabolas() -> None:
    ml.use("numpy")
    case = case_of(**TINY)
    x, y = (one.centres for one in case.cells.axes)
    u = (0.3 * x[:, None] - 1.0) * y + 5.0 * y**2
    case.flow.velocity.assign(np.stack([u, 0.0 * u], axis=-1))
    behind = x[case.first :]
    np.testing.assert_allclose(case.wall_shear(), 0.3 * behind - 1.0)
    assert np.isclose(first_turning(behind, case.wall_shear()), 1.0 / 0.3)
    assert first_turning(behind, -case.wall_shear()) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("reynolds", "erturk"), [(100.0, 2.922), (400.0, 8.237)])
def test_reattachment_as_erturk_has_it(reynolds: float, erturk: float) -> None:
    """With the settings that a person gets."""
    ml.use("cpu", threads=1)
    monitors = steady(case_of(flow__reynolds=reynolds))
    assert abs(monitors["reattachment"] / erturk - 1.0) < 0.015
    assert bool(monitors["separation_top"]) == (reynolds == 400.0)
