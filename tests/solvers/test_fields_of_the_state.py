"""What a case writes depends on its state alone: a restart, and ``finish``, write it before any step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.case import Case, GridCase
from meshloom.config import Setting, build
from meshloom.solvers import cases


def made(case: type[Case]) -> Case:
    small = [Setting(tuple(key.split(".")), value, "test") for key, value in case.small.items()]
    return case(build(case.Config, small))


def shown(case: Case) -> dict[str, Any]:
    if isinstance(case, GridCase):
        return dict(case.grid_fields())
    return {**case.cell_fields(), **case.node_fields(), "positions of the nodes": case.node_positions()}


@pytest.mark.parametrize("name", cases())
def test_what_is_written_is_made_from_the_state(name: str) -> None:
    ml.use("numpy")
    one, other = made(cases()[name]), made(cases()[name])
    one.program.run(3)
    for here, there in zip(one.state, other.state, strict=True):
        there.restore(here.saved())
    wanted, found = shown(one), shown(other)
    assert wanted.keys() == found.keys() and wanted
    for key, values in wanted.items():
        np.testing.assert_array_equal(found[key], values, err_msg=key)
