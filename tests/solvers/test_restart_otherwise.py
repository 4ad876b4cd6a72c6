"""A checkpoint of an incompressible flow goes on with another form, convection or scheme in time."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import meshloom as ml
from meshloom.solvers.fractional_step import Channel, SquareCavity
from meshloom.solvers.fractional_step.case import IncompressibleCase

FORMS, CONVECTIONS = ("collocated", "staggered"), ("central", "quick")
KINDS = [*product(FORMS, CONVECTIONS)]


@pytest.fixture(autouse=True)
def without_a_compiler() -> None:
    ml.use("numpy")


def case(kind: type[IncompressibleCase], form: str, convection: str) -> IncompressibleCase:
    config = kind.Config()
    scheme = replace(config.scheme, form=form, convection=convection)
    return kind(replace(config, mesh=replace(config.mesh, cells=(6, 5)), scheme=scheme))


def goes_on(to: IncompressibleCase, state: tuple[np.ndarray, ...]) -> np.ndarray:
    """The face velocities one step after a state was put in."""
    for one, values in zip(to.state, state, strict=True):
        one.restore(values)
    to.restored()
    to.program.run(1)
    return to.flow.faces.numpy().copy()


@pytest.mark.parametrize("kind", [SquareCavity, Channel])
@pytest.mark.parametrize(("before", "behind"), [pair for pair in product(KINDS, KINDS) if pair[0] != pair[1]])
def test_no_step_sees_ghosts_of_other_settings(
    kind: type[IncompressibleCase], before: tuple[str, str], behind: tuple[str, str]
) -> None:
    """What a run with other settings has left in ghosts, or never set, changes nothing."""
    first = case(kind, *before)
    first.program.run(5)
    state = tuple(one.saved().copy() for one in first.state)
    found = goes_on(case(kind, *behind), state)
    flow, ghosts = first.flow, np.ones(first.grid.stored, bool)
    ghosts[tuple(slice(g, g + n + 1) for g, n in zip(first.grid.ghosts, first.grid.shape, strict=True))] = False
    spoilt = [values.copy() for values in state]
    for values, field in zip(spoilt, first.state, strict=True):
        if field in (flow.velocity, flow.faces):
            values.reshape(*first.grid.stored, -1)[ghosts] = 1e3
    np.testing.assert_array_equal(goes_on(case(kind, *behind), tuple(spoilt)), found)
