"""What a person gives for a flow of their own is refused in one line where it is no grid and no side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshloom.errors import MeshError
from meshloom.solvers.fractional_step.boundary_conditions import HIGH, LOW, Boundaries, Inflow, Outflow, Wall
from meshloom.solvers.fractional_step.cells import CellGrid, even_edges

FOUR = even_edges(4, 0.0, 1.0)


@pytest.mark.parametrize(
    ("edges", "periodic", "message"),
    [
        ([FOUR, FOUR[::-1]], [False, False], "edges along y must be ascending numbers"),
        ([[0.0, 1.0, 0.5], FOUR], [False, False], "edges along x must be ascending numbers"),
        ([FOUR, [0.0, np.nan, 1.0]], [False, False], "edges along y must be ascending numbers"),
        ([even_edges(0, 0.0, 1.0), FOUR], [False, False], "edges along x must be ascending numbers"),
        ([FOUR, np.ones((2, 2))], [False, False], "edges along y must be ascending numbers"),
        ([FOUR, FOUR], [False], "periodic is one of True and False for each of 2 axes"),
    ],
)
def test_what_is_no_grid_of_cells(edges: list[Any], periodic: list[bool], message: str):
    with pytest.raises(MeshError, match=message) as caught:
        CellGrid(edges, periodic)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("wall", "Wall, Symmetry, Inflow or Outflow, got 'wall'"),
        (Wall, "Wall, Symmetry, Inflow or Outflow, got"),
        (Wall((0.0, 1.0, 2.0)), "up to 2 numbers here"),
        (Wall((0.0, np.nan)), "up to 2 numbers here"),
        (Inflow(lambda x, y: 1.0), "must give 2 components, got 1.0"),
        (Inflow(lambda x, y: (1.0, 0.0, 0.0)), "must give 2 components"),
        (Inflow(lambda x, y: y), "must give 2 components"),
    ],
)
def test_what_is_no_side(condition: Any, message: str):
    sides = {(0, LOW): condition, (0, HIGH): Outflow(), (1, LOW): Wall(), (1, HIGH): Wall()}
    with pytest.raises(MeshError, match=message) as caught:
        Boundaries(CellGrid([FOUR, FOUR], [False, False]), sides)
    assert "\n" not in str(caught.value)
