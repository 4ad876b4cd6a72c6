"""Kinetic energy: what the incompressible schemes lose of it, what they say about that, and steps that are too long."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.config import Setting, build, parse_settings
from meshloom.io import checkpoint as checkpoints
from meshloom.launch import Request, check, set_up
from meshloom.run.resume import history
from meshloom.solvers.fractional_step import BackwardStep, Channel, DecayingVortices, SquareCavity
from meshloom.solvers.fractional_step.case import IncompressibleCase
from meshloom.solvers.fractional_step.energy import BEFORE, LOST
from meshloom.solvers.stable import below

NEARLY_INVISCID: dict[str, Any] = {"mesh__cells": (16, 16), "flow__reynolds": 1e6, "time__end": 1.2}


@pytest.fixture(autouse=True)
def without_a_compiler() -> None:
    ml.use("numpy")


def case(kind: type[IncompressibleCase] = DecayingVortices, **settings: Any) -> IncompressibleCase:
    return kind(build(kind.Config, [Setting(tuple(k.split("__")), v, "test") for k, v in settings.items()]))


def budget(made: IncompressibleCase, steps: int = 0) -> tuple[float, np.ndarray, np.ndarray]:
    """The mean kinetic energy at the start, and after each step; and what the scheme has lost of it until then."""
    start = float(made.flow.energy.value) / made.cells.volume
    rows = made.monitor_rows(made.program.run(steps or made.steps_left(made.recorded_now()), record=made.recorded))
    found = dict(zip(made.monitors, rows.T, strict=True))
    return start, found["kinetic_energy"], found[LOST]


def test_by_default_nothing_is_lost_but_by_friction() -> None:
    """E(t) = exp(-4 nu t) / 4, which at Re 1e6 is all of it."""
    start, energy, lost = budget(case(**NEARLY_INVISCID))
    assert abs(start - 0.25) < 1e-12
    assert abs(energy[-1] / (0.25 * np.exp(-4e-6 * 1.2)) - 1.0) < 1e-6
    assert np.abs(lost).max() < 1e-12


def test_what_the_collocated_form_loses_is_told_and_falls_with_the_step() -> None:
    """There is no friction to speak of, so that what is missing is what the scheme has lost."""
    missing = []
    for dt in (0.24, 0.12):
        start, energy, lost = budget(case(**NEARLY_INVISCID, scheme__form="collocated", time__dt=dt))
        missing.append(start - energy[-1])
        assert abs(lost[-1] - missing[-1]) < 1e-3 * missing[-1]
    assert missing[1] < 0.6 * missing[0], missing


@pytest.mark.parametrize("form", ["collocated", "staggered"])
def test_friction_force_and_moving_walls_are_no_loss(form: str) -> None:
    """Where convection does nothing, between walls that drag the fluid or by a force: but for the steps in time."""
    lost = []
    for dt in (0.05, 0.025):
        made = case(Channel, mesh__cells=(4, 8), scheme__form=form, time__end=0.5, time__dt=dt, time__steady=0.0)
        _, energy, found = budget(made)
        lost.append(abs(found[-1]) / energy[-1])
    assert lost[0] < 0.02 and lost[1] < 0.35 * lost[0], lost
    _, energy, found = budget(case(SquareCavity, mesh__cells=(12, 12), scheme__form="staggered", time__cfl=0.3), 20)
    assert abs(found[-1]) < 0.02 * energy[-1]


@pytest.mark.slow
def test_what_flows_in_and_out_is_no_loss() -> None:
    """The channel in front of a step that is hardly one: what comes in goes out, and friction is paid by pressure."""
    made = case(BackwardStep, mesh__cells=4, mesh__upstream=2.0, mesh__downstream=6.0, mesh__growth=1.1)
    _, _, lost = budget(made, 60)
    rate = (lost[-1] - lost[-20]) / (19 * made.flow.clock.step)
    through = 1.0 * 0.6 / made.cells.volume  # kinetic energy of a parabola that comes in per unit of time, over volume
    assert abs(rate) < 0.05 * through, (rate, through)


def test_quick_loses_and_says_so() -> None:
    start, energy, lost = budget(case(**NEARLY_INVISCID, scheme__convection="quick"))
    assert lost[-1] > 1e-3 and abs(lost[-1] - (start - energy[-1])) < 1e-3 * lost[-1]


# --- checkpoints of before --------------------------------------------------------------------------------------------


def old_checkpoint(folder: Path) -> checkpoints.Checkpoint:
    """Of a version that knew neither the form nor the loss: both were collocated, and not counted."""
    made = case(mesh__cells=(8, 8), scheme__form="collocated")
    rows = made.monitor_rows(made.program.run(3, record=made.recorded))
    kept = [k for k, name in enumerate(made.monitors) if name != LOST]
    found = checkpoints.Checkpoint(
        case=made.name, iteration=3, precision="double", mesh=made.digest(),
        config=re.sub(r"(?m)^form = .*\n", "", made.settings(comments=False)),
        state={one.name: one.saved() for one in made.state if one.name not in (LOST, BEFORE)},
        monitor_names=tuple(made.monitors[k] for k in kept), monitors=rows[:, kept],
    )  # fmt: skip
    assert not [one for one in parse_settings(found.config, "old", folder) if one.key == ("scheme", "form")]
    checkpoints.save(folder / "checkpoint.h5", found)
    return found


@pytest.mark.slow
def test_an_old_checkpoint_keeps_its_form_and_begins_to_count(tmp_path: Path) -> None:
    old = old_checkpoint(tmp_path)
    job = check(Request(None, restart=tmp_path))
    assert job.config.scheme.form == "collocated"
    going_on = set_up(job)
    rows = history(going_on, old)
    assert np.isnan(rows[:, going_on.monitors.index(LOST)]).all()
    np.testing.assert_array_equal(np.delete(rows, going_on.monitors.index(LOST), axis=1), old.monitors)
    before = float(rows[-1, going_on.monitors.index("kinetic_energy")])
    _, energy, lost = budget(going_on, 1)
    friction = 4.0 * going_on.viscosity * going_on.flow.clock.step * before
    assert lost[0] > 0.0 and abs(lost[0] + friction - (before - energy[0])) < 0.2 * lost[0]


def test_a_restart_with_another_form_counts_from_there(tmp_path: Path) -> None:
    first, second = (case(mesh__cells=(8, 8), scheme__form=form) for form in ("collocated", "staggered"))
    first.program.run(3)
    for one, other in zip(first.state, second.state, strict=True):
        other.restore(one.saved())
    known = float(second.flow.budget.lost.value)
    second.restored()
    second.program.run(1)
    assert abs(float(second.flow.budget.lost.value) - known) < 1e-3 * second.cells.volume


# --- steps ------------------------------------------------------------------------------------------------------------


def test_a_step_that_is_not_known_to_be_stable_is_a_doubt() -> None:
    """Told by the run, as by all cases, and by nothing else: a warning of Python's would be in no report."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        long = case(time__dt=0.6)
        assert long.doubts() == (
            f"time.dt = 0.6 is longer than what is known to be stable, which is {below(long.longest)}",
        )
        assert case(time__cfl=1.1).doubts() == ("time.cfl = 1.1 is longer than what is known to be stable, which is 1",)
        assert case(time__cfl=1.0).doubts() == case(time__dt=long.longest).doubts() == ()
