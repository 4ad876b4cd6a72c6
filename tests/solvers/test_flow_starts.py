"""What incompressible flows begin with: formulas at the places where velocities live, freed of their divergence."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.case.even_steps import EvenSteps
from meshloom.config import Setting, build
from meshloom.errors import MeshError
from meshloom.solvers import cases
from meshloom.solvers.fractional_step import BackwardStep, Channel, DecayingVortices
from meshloom.solvers.fractional_step.boundary_conditions import HIGH, LOW, Inflow, Outflow, Wall
from meshloom.solvers.fractional_step.case import IncompressibleCase
from meshloom.solvers.fractional_step.cells import CellGrid, even_edges, stretched_edges
from meshloom.solvers.fractional_step.staggered import StaggeredFlow
from meshloom.solvers.fractional_step.taylor_green import vortices

#: Every case that begins with a formula, with velocities at faces.
FORMULAS: dict[str, tuple[type[IncompressibleCase], dict[str, Any]]] = {
    "vortices": (DecayingVortices, {"mesh__cells": (6, 9)}),
    "vortices in space": (DecayingVortices, {"mesh__cells": (4, 5, 6)}),
    "channel": (Channel, {"mesh__cells": (6, 10, 4), "mesh__width": 1.0, "flow__reynolds_tau": 180.0}),
}


@pytest.fixture(autouse=True)
def without_a_compiler() -> None:
    ml.use("numpy")


def case(kind: type[IncompressibleCase] = DecayingVortices, **settings: Any) -> IncompressibleCase:
    return kind(build(kind.Config, [Setting(tuple(k.split("__")), v, "test") for k, v in settings.items()]))


def circulation(cells: CellGrid, faces: np.ndarray) -> np.ndarray:
    """Of velocities (*shape, rank) at first faces: round every edge where four cells meet. No gradient has any."""
    found = []
    for pair in combinations(range(cells.rank), 2):
        legs = []
        for along, across in (pair, pair[::-1]):
            behind = tuple(slice(1, None) if axis == along else slice(None) for axis in range(cells.rank))
            lengths = np.diff(cells.axes[along].centres)
            shape = [-1 if axis == along else 1 for axis in range(cells.rank)]
            legs.append(np.diff(faces[..., along][behind] * lengths.reshape(shape), axis=across))
        found.append((legs[0] - legs[1]).reshape(-1))
    return np.concatenate(found)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_flow_begins_with_its_formula_at_faces(name: str) -> None:
    """Freed of its divergence, which is a gradient less: what is left round every edge is that of the formula."""
    kind, settings = FORMULAS[name]
    made = case(kind, **settings)
    formula = made.start_velocity()
    assert made.flow.staggered and callable(formula) and float(made.flow.divergence.value) < 1e-12
    exact = np.stack([made.cells.values_of(formula, axis)[..., axis] for axis in range(made.cells.rank)], axis=-1)
    found, expected = (circulation(made.cells, one) for one in (made.grid.shaped(made.flow.faces), exact))
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12 * np.abs(expected).max())
    assert np.abs(expected).max() > 0.1


def test_every_case_that_begins_with_a_formula_is_looked_at() -> None:
    """But for the step, around whose solid cells no velocity lives at faces alone."""
    flows = [one for one in cases().values() if issubclass(one, IncompressibleCase)]
    own = {one for one in flows if one.start_velocity is not IncompressibleCase.start_velocity}
    assert own - {BackwardStep} == {kind for kind, _ in FORMULAS.values()} and len(flows) == 5


@pytest.mark.parametrize("shape", [(5, 5), (4, 4, 4)])
def test_vortices_begin_with_all_of_their_energy(shape: tuple[int, ...]) -> None:
    """A mean of sines squared is exact from three cells along an axis on; on squares nothing has a divergence."""
    exact = 0.25 if len(shape) == 2 else 0.125
    for form in ("staggered", "collocated"):
        made = case(mesh__cells=shape, scheme__form=form)
        assert abs(float(made.flow.energy.value) / made.cells.volume - exact) < 1e-12, form


def test_a_formula_of_too_few_components_is_one_line() -> None:
    flow = case(mesh__cells=(4, 4)).flow
    with pytest.raises(MeshError, match=r"^start: a function of place must give 2 components, got .*$"):
        flow.start(lambda x, y: (x,))


def test_sides_hold_what_is_given_there_whatever_the_formula_says() -> None:
    """Through walls nothing flows, and as much out of an outflow as comes in."""
    cells = CellGrid([even_edges(4, 0.0, 2.0), stretched_edges(6, 0.0, 1.0, 1.0)], [False, False])
    sides = {(0, LOW): Inflow(lambda x, y: (6.0 * y * (1.0 - y), 0.0)), (0, HIGH): Outflow(),
             (1, LOW): Wall(), (1, HIGH): Wall()}  # fmt: skip
    flow = StaggeredFlow(cells, sides, 0.1, EvenSteps(0.01, 1.0))
    flow.start(lambda x, y: (3.0, 1.0))
    assert float(flow.divergence.value) < 1e-12
    faces, inner = cells.grid.shaped(flow.faces, ghosts=True), slice(2, -2)
    assert not faces[inner, 2, 1].any() and not faces[inner, -2, 1].any()
    y = cells.axes[1].centres
    np.testing.assert_allclose(faces[2, inner, 0], 6.0 * y * (1.0 - y), rtol=1e-12)
    through = faces[2:-1, inner, 0] @ np.diff(cells.edges[1])
    np.testing.assert_allclose(through, through[0], rtol=1e-12)


def test_a_run_that_began_with_means_of_centres_goes_on_as_it_began() -> None:
    """As those of earlier versions did: nothing of the start is in what is restored."""
    whole, first, later = (case(mesh__cells=(6, 6)) for _ in range(3))
    for one in (whole, first):
        one.flow.start(one.cells.values_of(vortices))
    expected = whole.program.run(4, record=whole.recorded)[-1]
    first.program.run(2)
    for one, other in zip(first.state, later.state, strict=True):
        other.restore(one.saved())
    later.restored()
    np.testing.assert_array_equal(later.program.run(2, record=later.recorded)[-1], expected)
    assert expected[1] / whole.cells.volume < 0.22
