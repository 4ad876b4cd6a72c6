"""The channel: the parabola of laminar flow at second order, what drives it against what holds it back, restarts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.config import Setting, build
from meshloom.errors import ConfigError
from meshloom.solvers.fractional_step import Channel
from meshloom.solvers.fractional_step.channel import parabola


@pytest.fixture(autouse=True)
def one_thread() -> None:
    ml.use("cpu", threads=1)


def channel(**settings: Any) -> Channel:
    """A case with settings such as mesh__cells=(4, 8)."""
    return Channel(build(Channel.Config, [Setting(tuple(k.split("__")), v, "test") for k, v in settings.items()]))


def run(case: Channel) -> dict[str, np.ndarray]:
    """All monitors until it has come to its end."""
    rows = []
    while left := case.steps_left(case.recorded_now()):
        rows.append(case.monitor_rows(case.program.run(left, record=case.recorded)))
    return dict(zip(case.monitors, np.concatenate(rows).T, strict=True))


def off_the_parabola(case: Channel) -> float:
    """The largest difference of the mean velocity, as a part of the largest velocity."""
    exact = parabola(case.cells.axes[1].centres, case.config.flow.reynolds_tau)
    return float(np.abs(case.mean_velocity() - exact).max() / exact.max())


@pytest.mark.parametrize(
    ("stretch", "scheme", "form"),
    [(0.0, "rk3", "collocated"), (1.0, "abcn", "collocated"),
     *(pytest.param(1.5, "rk3", form, marks=pytest.mark.slow) for form in ("collocated", "staggered"))],
)  # fmt: skip
def test_laminar_flow_is_a_parabola_at_second_order(stretch: float, scheme: str, form: str) -> None:
    errors = []
    for n in (6, 12):
        case = channel(
            mesh__cells=(2, n), mesh__stretch=stretch, time__steady=1e-7, scheme__time=scheme, scheme__form=form
        )
        told = run(case)
        assert told["change"][-1] < 1e-7 and (told["divergence"] < 1e-12).all()
        assert abs(told["balance"][-1] - 1.0) < 1e-6 and abs(told["re_tau_low"][-1] - 10.0) < 1e-5
        assert told["re_tau_high"][-1] == pytest.approx(told["re_tau_low"][-1], rel=1e-12)
        errors.append(off_the_parabola(case))
    widest = stretch / np.tanh(stretch) if stretch else 1.0  # cell, at the centre, in widths of even ones
    assert errors[1] == pytest.approx((widest / 12) ** 2, rel=0.05), "off by the square of the widest cell"
    assert abs(np.log2(errors[0] / errors[1]) - 2.0) < 0.25, errors


@pytest.mark.slow
def test_the_force_speeds_up_what_the_walls_do_not_hold_back() -> None:
    """d(bulk velocity)/dt = force - shear at the walls: to rounding with Euler's steps."""
    case = channel(mesh__cells=(4, 8), mesh__stretch=1.0, scheme__time="euler", time__dt=0.01, time__end=0.5)
    told = run(case)
    np.testing.assert_allclose(np.diff(told["bulk_velocity"]) / 0.01, 1.0 - told["balance"][:-1], rtol=0.0, atol=1e-12)
    assert 0.1 < told["balance"][-1] < 0.9


def test_in_space_laminar_flow_is_that_in_the_plane() -> None:
    ml.use("numpy")
    flat, deep = (channel(mesh__cells=cells, time__dt=0.05, time__end=0.5) for cells in ((3, 8), (3, 8, 4)))
    here, there = run(flat), run(deep)
    for name in ("bulk_velocity", "re_tau_low", "kinetic_energy"):
        np.testing.assert_allclose(there[name], here[name], rtol=1e-12, err_msg=name)


def test_other_numbers_of_axes_are_refused() -> None:
    with pytest.raises(ConfigError, match="two or three of them"):
        channel(mesh__cells=(8,))
