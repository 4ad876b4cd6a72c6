"""Places: the cell that holds one, linear values between nodes and points, and what lies outside."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.locate import GridPlaces, MeshPlaces, Outside
from meshloom.mesh.mesh import Mesh
from tests.mesh.mixed_samples import plane, space
from tests.one_line import one_line_from

MESHES = {kind: ml.generate.box((3, 2, 2)[: KINDS[kind].dimension], cells=kind) for kind in KINDS}
MESHES |= {name: Mesh.from_cells(*make(1)) for name, make in (("plane", plane), ("space", space))}
PLACES = {name: MeshPlaces(mesh) for name, mesh in MESHES.items()}


@pytest.mark.parametrize("name", MESHES)
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6))
def test_centres_lie_in_their_cells_and_linear_functions_are_exact(name: str, seed: int) -> None:
    mesh, places, dice = MESHES[name], PLACES[name], np.random.default_rng(seed)
    cell = int(dice.integers(len(mesh.cells)))
    corners = mesh.coordinates.numpy()[mesh.lists.cells.nodes[cell]]
    weights = dice.dirichlet(np.full(len(corners), 5.0))
    centre = mesh.cell_centroids[cell]
    assert places.spot(centre).cell == cell
    place = 0.7 * centre + 0.3 * weights @ corners
    slope, start = dice.uniform(-1, 1, mesh.dim), dice.uniform(-1, 1)
    values = mesh.coordinates.numpy() @ slope + start
    spot = places.spot(place)
    assert abs(spot.of_points(values) - (place @ slope + start)) < 1e-12
    assert abs(spot.weights.sum() - 1.0) < 1e-12


@pytest.mark.parametrize("name", MESHES)
def test_places_outside_are_told_with_what_is_nearest(name: str) -> None:
    mesh = MESHES[name]
    for place in (np.full(mesh.dim, 1.001), np.full(mesh.dim, -3.0)):
        with one_line_from(Outside, r"lies in no cell; the nearest one, \d+, has its middle at \("):
            PLACES[name].spot(place)
    corner = PLACES[name].spot(np.zeros(mesh.dim))
    assert np.linalg.norm(mesh.cell_centroids[corner.cell]) < 1.0


def test_a_hole_and_nodes_that_moved() -> None:
    ring = Mesh.from_cells([[0, 0], [3, 0], [3, 3], [0, 3], [1, 1], [2, 1], [2, 2], [1, 2]],
                           [[0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]], "quad")  # fmt: skip
    assert MeshPlaces(ring).spot((1.5, 0.5)).cell == 0
    with one_line_from(Outside, "lies in no cell"):
        MeshPlaces(ring).spot((1.5, 1.5))
    assert MeshPlaces(ring, ring.coordinates.numpy() + 10.0).spot((11.5, 10.5)).cell == 0


def test_a_side_that_is_a_line() -> None:
    """Of a brick whose bottom is an edge, with its corners there twice: beside the edge is outside."""
    edge = [[0.5, 0, 0], [0.5, 0, 0], [0.5, 1, 0], [0.5, 1, 0]]
    wedge = Mesh.from_cells([*edge, [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]], [range(8)], "hexahedron")
    places = MeshPlaces(wedge)
    assert places.spot((0.5, 0.5, 0.5)).cell == 0
    with one_line_from(Outside, "lies in no cell"):
        places.spot((0.05, 0.5, 0.1))


def test_points_of_a_grid() -> None:
    x = np.array([0.0, 0.1, 0.4, 1.0])
    grid = ml.Grid((4, 5), extent=(None, (0.0, 2.0)), coordinates=[x, None], periodic=(False, True))
    values = np.add.outer(2.0 * x, np.zeros(5)).reshape(-1)
    for place in ((0.25, 0.3), (0.0, 1.9), (1.0, -0.1), (0.4, 7.7)):
        assert abs(GridPlaces(grid).spot(place).of_points(values) - 2.0 * place[0]) < 1e-14
    rows = np.tile(np.arange(5.0), 4)  # between the last point and the first one of the next period
    assert abs(GridPlaces(grid).spot((0.0, 1.8)).of_points(rows) - 2.0) < 1e-12
    with one_line_from(Outside, "lies beyond the grid, whose x goes from 0 to 1; the nearest is x = 1"):
        GridPlaces(grid).spot((1.2, 0.0))


def test_cells_that_are_not_convex() -> None:
    """An L with a square in its corner, and a quadrilateral with a dent."""
    x = [[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2], [2, 2]]
    mesh = Mesh.from_cells(x, {"quad": [[3, 2, 6, 4]], "polygon": [[0, 1, 2, 3, 4, 5]]})
    for place, cell in (((1.5, 0.5), 1), ((0.5, 1.9), 1), ((0.5, 0.5), 1), ((1.5, 1.5), 0), ((1.01, 1.2), 0)):
        assert MeshPlaces(mesh).spot(place).cell == cell
    dent = Mesh.from_cells([[0, 0], [2, 2], [0, 1], [-2, 2]], [[0, 1, 2, 3]], "quad")
    for place in ((0.0, 0.5), (1.2, 1.5), (-1.2, 1.5), (0.0, 1.0), (2.0, 2.0)):
        assert MeshPlaces(dent).spot(place).cell == 0
    with one_line_from(Outside, "lies in no cell"):
        MeshPlaces(dent).spot((0.0, 1.01))


@pytest.mark.parametrize("stretch", [(1.0, 1.0), (1e6, 1.0), (1.0, 1e-6)])
def test_cells_of_very_different_widths_are_found_among_few(stretch: tuple[float, float]) -> None:
    box = ml.generate.box((40, 40), cells="triangle")
    x = np.exp(6.0 * box.coordinates.numpy()) * stretch + 1e4  # each cell wider than the one before
    places = MeshPlaces(Mesh.from_cells(x, box.cell_nodes.indices, "triangle"))
    corners = x[box.cell_nodes.indices]
    looked_at = []
    for cell in range(0, len(box.cells), 37):
        point = corners[cell].mean(axis=0)
        holding = np.flatnonzero(((point >= corners.min(axis=1)) & (point <= corners.max(axis=1))).all(axis=1))
        assert places.near(point).tolist() == holding.tolist() and places.spot(point).cell == cell
        looked_at.append(sum(len(slab.round(point[places._axis])) for slab in places._slabs))
    assert np.mean(looked_at) < 0.1 * len(box.cells)
