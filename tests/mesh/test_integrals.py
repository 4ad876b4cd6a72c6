"""Integrals as weighted sums: exact for linear functions on nodes whatever the shape of cells, for all on cells."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.integrals import of_points, over_cells, over_faces
from meshloom.mesh.mesh import Mesh
from tests.mesh.mixed_samples import moved, plane, space


def bent(kind: str) -> Mesh:
    """The unit square or cube with inner nodes that are not where they would be on a box."""
    box = ml.generate.box((4, 3, 3)[: KINDS[kind].dimension], cells=kind)
    return Mesh.from_cells(moved(box, np.random.default_rng(1), 0.05), box.lists.cells.nodes.rows, kind)


MESHES = {kind: bent(kind) for kind in KINDS}
MESHES |= {name: Mesh.from_cells(*make(1)) for name, make in (("plane", plane), ("space", space))}


@pytest.mark.parametrize("name", MESHES)
def test_linear_functions_are_exact(name: str) -> None:
    mesh = MESHES[name]
    x, every = mesh.coordinates.numpy(), np.arange(len(mesh.boundary_faces))
    slope = np.array([2.0, -1.0, 5.0][: mesh.dim])
    at_nodes, in_cells = 3.0 + x @ slope, 3.0 + mesh.cell_centroids @ slope
    exact = 3.0 + 0.5 * slope.sum()  # in the middle of a domain of size 1
    assert over_cells(mesh, x, None, on_nodes=True).of(at_nodes) == pytest.approx([exact], abs=1e-12)
    assert over_cells(mesh, x, None, on_nodes=False).of(in_cells) == pytest.approx([exact], abs=1e-12)
    vectors = np.stack((at_nodes, 2.0 * at_nodes), axis=1)
    assert over_cells(mesh, x, None, on_nodes=True).of(vectors) == pytest.approx([exact, 2.0 * exact], abs=1e-12)
    around = over_faces(mesh, x, every, on_nodes=True, normal=True).of(at_nodes)
    np.testing.assert_allclose(around, slope, atol=1e-12)  # Gauss: what goes round is the slope, of a domain of size 1
    sides = 2 * mesh.dim
    assert over_faces(mesh, x, every, on_nodes=True, normal=False).of(at_nodes) == pytest.approx([sides * exact])
    ones = np.ones(len(mesh.cells))
    assert over_faces(mesh, x, every, on_nodes=False, normal=False).of(ones) == pytest.approx([sides])


def test_parts_and_what_is_empty() -> None:
    mesh = MESHES["quad"]
    x = mesh.coordinates.numpy()
    some = np.flatnonzero(mesh.cell_centroids[:, 0] < 0.4)
    exact = mesh.cell_volumes[some] @ (1.0 + mesh.cell_centroids[some, 1])
    assert over_cells(mesh, x, some, on_nodes=True).of(1.0 + x[:, 1]) == pytest.approx([exact])
    assert over_cells(mesh, x, some, on_nodes=False).of(1.0 + mesh.cell_centroids[:, 1]) == pytest.approx([exact])
    none = np.zeros(0, np.int64)
    for on_nodes, values in ((True, x[:, 0]), (False, np.ones(len(mesh.cells)))):
        assert over_cells(mesh, x, none, on_nodes=on_nodes).of(values).tolist() == [0.0]
        assert over_faces(mesh, x, none, on_nodes=on_nodes, normal=False).of(values).tolist() == [0.0]
        assert over_faces(mesh, x, none, on_nodes=on_nodes, normal=True).of(values).tolist() == [0.0, 0.0]


def test_copies_of_another_rank_count_there() -> None:
    box = ml.generate.box((4, 3))
    parts = (box.cell_nodes, box.face_nodes, box.face_cells, box.boundary_nodes, box.boundary_cells)
    x, every = box.coordinates.numpy(), np.arange(len(box.boundary_faces))
    mesh = Mesh.from_parts(x, *(one.indices for one in parts), kind="quad", halo={"cells": 2, "boundary_faces": 3})
    for on_nodes, values in ((True, np.ones(len(x))), (False, np.ones(12))):
        assert over_cells(mesh, x, None, on_nodes=on_nodes).of(values) == pytest.approx([10 / 12])
        assert over_cells(mesh, x, np.array([0, 11]), on_nodes=on_nodes).of(values) == pytest.approx([1 / 12])
        lengths = np.linalg.norm(box.boundary_normals[:-3], axis=1).sum()
        assert over_faces(mesh, x, every, on_nodes=on_nodes, normal=False).of(values) == pytest.approx([lengths])


def test_the_nodes_are_where_they_are_now() -> None:
    mesh = MESHES["triangle"]
    x = 2.0 * mesh.coordinates.numpy()
    assert over_cells(mesh, x, None, on_nodes=True).of(x[:, 0]) == pytest.approx([4.0])


def test_points_of_a_grid() -> None:
    x = np.array([0.0, 0.1, 0.4, 1.0])
    grid = ml.Grid((4, 5), extent=(None, (0.0, 2.0)), coordinates=[x, None], periodic=(False, True))
    assert of_points(grid).of(np.ones(20)) == pytest.approx([2.0])
    assert of_points(grid).of(np.repeat(x, 5)) == pytest.approx([1.0])  # the trapezoidal rule is right for lines
