"""A step that is longer than what is known to be stable is refused, or a doubt that the run tells."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make
from meshloom.case import Case
from meshloom.catalogue import case_names, find
from meshloom.config import Setting, build
from meshloom.errors import ConfigError
from meshloom.solvers.finite_volume.stability import in_time, longest_cfl, towards_steady
from meshloom.solvers.stable import below, doubts_longer, refuse_longer
from tests.one_line import one_line_from


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("stages", "smoothing"), [(in_time, 0.0), (towards_steady, 0.0), (towards_steady, 0.5)])
def test_waves_grow_beyond_the_limit_alone(order: int, stages, smoothing: float) -> None:
    """By the scheme itself on a periodic row of cells, not by its symbol."""
    count, limit = 64, longest_cfl(order, smoothing, stages)
    shift = np.roll(np.eye(count), -1, axis=1).T  # of the cell upwind
    face = np.eye(count) + (0.25 * (shift.T - shift) if order == 2 else 0.0)
    rate = -(np.eye(count) - shift) @ face
    share = np.eye(count)
    for _ in range(2):
        share = (np.eye(count) + smoothing * (shift + shift.T) @ share) / (1.0 + 2.0 * smoothing)
    waves = np.linalg.eigvals(share @ rate)
    assert np.abs(stages(0.999 * limit * waves)).max() <= 1.0 + 1e-9
    assert np.abs(stages(1.05 * limit * waves)).max() > 1.0 + 1e-4


def test_what_a_person_is_told_to_type_is_accepted() -> None:
    for limit in (1.17576, 0.0999, 12.3456, 7.0):
        refuse_longer("time.cfl", float(below(limit)), limit)
        assert doubts_longer("time.cfl", float(below(limit)), limit) == ()
        assert float(below(limit)) == pytest.approx(limit, rel=0.01)
    assert doubts_longer("time.dt", 0.1, 0.0) == ("time.dt = 0.1: no step is known to be stable",)


def test_steps_in_time_are_refused_and_those_towards_a_steady_flow_doubted() -> None:
    tube = ("mesh.cells=[8,2,2]", "run.backend=numpy")
    with one_line_from(ConfigError, r"time\.cfl = 2\.5: longer than the scheme is stable for in time; at most 1\.17"):
        make("sod3d", *tube, "time.cfl=2.5")
    assert make("sod3d", *tube, "time.cfl=1.17").doubts() == ()
    channel = ("mesh.along=6", "mesh.up=3")
    assert make("fv", *channel, "time.cfl=2.4").doubts() == ()
    assert "time.cfl = 3 is longer than what is known" in make("fv", *channel, "time.cfl=3").doubts()[0]
    assert make("fv", *channel, "time.cfl=3", "time.method=implicit").doubts() == ()


# --- every case there is ----------------------------------------------------------------------------------------------

SETS_A_STEP = ("dt", "cfl", "courant")  # what settings are called that say how long a step is
WORDS = r"longer than (?:the scheme is stable for.*; at most|what is known to be stable, which is) ([-+.e\d]+)"


def steps_of(case: type[Case]) -> dict[str, float]:
    """The settings that make a case's steps longer, with the largest that each takes; implicit steps have no limit."""
    config = case.Config()
    sections = {one.name: getattr(config, one.name) for one in fields(config)}
    return {
        f"{section}.{one.name}": float(one.metadata["high"] or 1e6)
        for section, options in sections.items()
        if is_dataclass(options)
        for one in fields(options)
        if one.name in SETS_A_STEP and "implicit" not in one.metadata["doc"]
    }


def said_of(case: type[Case], **settings: Any) -> str:
    """What a case says of its steps, in words of ours: refused or doubted; any other line fails."""
    given = {**case.small, **settings}
    try:
        made = case(build(case.Config, [Setting(tuple(key.split(".")), value, "test") for key, value in given.items()]))
    except ConfigError as refused:
        return str(refused)
    return " ".join(made.doubts())


@pytest.mark.parametrize("name", case_names())
def test_no_case_takes_ten_times_its_stable_step_without_a_word(name: str) -> None:
    """In the same words. A case whose settings have other names for a step must be found here, too."""
    ml.use("numpy")
    case = find(name)
    keys = steps_of(case)
    assert keys, f"{name}: which setting says how long its steps are?"
    for key, high in keys.items():
        most = re.search(WORDS, said_of(case, **{key: high}))
        assert most is not None, f"{name}: {key} = {high:g} is taken without a word"
        limit = float(most[1])
        assert said_of(case, **{key: limit}) == ""
        assert high <= 10.0 * limit or re.search(WORDS, said_of(case, **{key: 10.0 * limit}))
