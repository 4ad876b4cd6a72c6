"""Faces derived from cells: on random meshes by their invariants, on bad ones by the cell the error names."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.errors import MeshError
from meshloom.mesh import faces as faces_module
from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.mesh import Mesh
from tests.mesh.samples import as_lists, closure, faces_as_sets, jittered, shuffled, triangulation

seeds = st.integers(0, 10**6)
quick = settings(max_examples=20, deadline=None)


def check_invariants(mesh: Mesh) -> None:
    """What every mesh of the unit square or cube with derived faces must satisfy."""
    cells = mesh.face_cells.indices
    assert (cells[:, 0] < cells[:, 1]).all()
    assert np.abs(closure(mesh)).max() < 1e-14
    assert (mesh.cell_volumes > 0).all() and mesh.cell_volumes.sum() == pytest.approx(1.0, rel=1e-12)
    to_neighbor = mesh.cell_centroids[cells[:, 1]] - mesh.cell_centroids[cells[:, 0]]
    assert ((mesh.face_normals * to_neighbor).sum(axis=1) > 0).all()
    outward = mesh.boundary_faces.points - mesh.cell_centroids[mesh.boundary_cells.indices[:, 0]]
    assert ((mesh.boundary_normals * outward).sum(axis=1) > 0).all()
    slots = len(KINDS[mesh.kind].faces)
    assert 2 * len(mesh.faces) + len(mesh.boundary_faces) == slots * len(mesh.cells)
    assert euler_characteristic(mesh) == 1


def euler_characteristic(mesh: Mesh) -> int:
    """Nodes - edges + faces (- cells): 1 for a disc and for a ball."""
    all_faces = [*as_lists(mesh.lists.faces), *as_lists(mesh.lists.boundary_faces)]
    edges = {frozenset(pair) for face in all_faces for pair in zip(face, face[1:] + face[:1], strict=True)}
    if mesh.dim == 2:
        assert len(edges) == len(all_faces)
        return len(mesh.nodes) - len(edges) + len(mesh.cells)
    return len(mesh.nodes) - len(edges) + len(all_faces) - len(mesh.cells)


def brute_force(cells: np.ndarray, kind: str) -> set[tuple[frozenset[int], frozenset[int]]]:
    """Interior faces by looking at every pair of cells."""
    local = KINDS[kind].faces
    own = [{frozenset(cell[list(face)].tolist()) for face in local} for cell in cells]
    return {(face, frozenset((a, b))) for a, b in combinations(range(len(cells)), 2) for face in own[a] & own[b]}


@quick
@given(st.integers(0, 60), seeds)
def test_random_triangles(points: int, seed: int) -> None:
    x, cells = shuffled(*triangulation(points, seed), seed)
    mesh = Mesh.from_cells(x, cells, "triangle")
    check_invariants(mesh)
    assert faces_as_sets(mesh) == brute_force(cells, "triangle")


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(seed=seeds)
def test_shuffled_cells_of_every_kind(kind: str, seed: int) -> None:
    x, cells = shuffled(*jittered(kind, seed), seed)
    mesh = Mesh.from_cells(x, cells, kind)
    check_invariants(mesh)
    assert faces_as_sets(mesh) == brute_force(cells, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_inside_out_cells_are_turned(kind: str) -> None:
    x, cells = jittered(kind, 1)
    turned = cells.copy()
    turned[::2] = turned[::2][:, KINDS[kind].mirrored]
    mesh = Mesh.from_cells(x, turned, kind)
    check_invariants(mesh)
    np.testing.assert_array_equal(np.sort(mesh.cell_nodes.indices, axis=1), np.sort(cells, axis=1))


@pytest.mark.parametrize("kind", ["tetrahedron", "hexahedron"])
def test_keys_that_do_not_fit_are_hashed_and_collisions_survive(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, cells = jittered(kind, 2)
    expected = Mesh.from_cells(x, cells, kind).digest
    far = np.zeros((2**21 + 5, 3))  # so many nodes that three of them do not fit into 63 bits
    far[-len(x) :] = x
    first = len(far) - len(x)
    mesh = Mesh.from_cells(far, cells + first, kind)
    np.testing.assert_array_equal(mesh.face_cells.indices, Mesh.from_cells(x, cells, kind).face_cells.indices)
    monkeypatch.setattr(faces_module, "_MIXERS", (0, 0, 0))  # now every two faces with the same first node collide
    collided = Mesh.from_cells(far, cells + first, kind)
    assert collided.digest == mesh.digest
    assert Mesh.from_cells(x, cells, kind).digest == expected


def test_numbering_follows_the_cells() -> None:
    x = np.array([(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)], float)
    mesh = Mesh.from_cells(x, [(0, 1, 4, 3), (1, 2, 5, 4)], "quad")
    assert mesh.face_cells.indices.tolist() == [[0, 1]]
    assert mesh.face_nodes.indices.tolist() == [[4, 1]]  # normal (dy, -dx) = (1, 0): from cell 0 to cell 1
    assert mesh.boundary_cells.indices[:, 0].tolist() == [0, 0, 0, 1, 1, 1]


UNIT = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (2, 0), (2, 1)], float)


@pytest.mark.parametrize(
    "x, cells, kind, message",
    [
        (UNIT, [(0, 1, 2), (0, 1, 2)], "triangle", "cell 1 is the same as cell 0"),
        (UNIT, [(0, 1, 2), (0, 2, 3), (1, 2, 0)], "triangle", "cell 2 is the same as cell 0"),
        (UNIT, [(0, 1, 2), (0, 2, 3), (0, 2, 5)], "triangle", r"cells 0, 1, 2 share the face \(0, 2\): at most two"),
        (UNIT, [(0, 1, 2), (0, 1, 3)], "triangle", "cells 0 and 1 overlap"),
        (UNIT, [(0, 1, 2), (0, 2, 6)], "triangle", r"cell 1 has nodes \(0, 2, 6\), but nodes go from 0 to 5"),
        (UNIT, [(0, 1, 2), (0, -1, 3)], "triangle", r"cell 1 has nodes \(0, -1, 3\)"),
        (UNIT, [(0, 1, 2), (2, 3, 2)], "triangle", "cell 1 names a node twice"),
        (UNIT, [(0, 1, 2), (0, 1, 4)], "triangle", r"cell 1 has no area: nodes \(0, 1, 4\)"),
        (UNIT, [(0, 2, 1, 3)], "quad", "cell 0 (is folded over|has no area)"),
        (UNIT, [(1, 4, 5, 2), (0, 4, 3, 2)], "quad", "cell 1 (is folded over|has no area)"),
        (UNIT, [(0, 1, 2)], "quad", r"expected shape \(n, 4\), got \(1, 3\)"),
        (UNIT, np.zeros((0, 3), int), "triangle", "at least one cell"),
        (UNIT, [(0.0, 1.0, 2.0)], "triangle", "must be integers, got float64"),
        (UNIT, [(0, 1, 2)], "triangel", "unknown cell kind 'triangel'; did you mean 'triangle'"),
        (UNIT * np.nan, [(0, 1, 2)], "triangle", "node 0 has the coordinates"),
        (np.zeros((4, 3)), [(0, 1, 2)], "triangle", r"need coordinates of shape \(n, 2\), got \(4, 3\)"),
    ],
)
def test_bad_cells_are_named(x: np.ndarray, cells: object, kind: str, message: str) -> None:
    with pytest.raises(MeshError, match=message) as caught:
        Mesh.from_cells(x, cells, kind)
    assert "\n" not in str(caught.value)


def test_twisted_hexahedron_is_refused() -> None:
    x, cells = jittered("hexahedron", 0)
    twisted = cells.copy()
    twisted[3] = twisted[3][[0, 1, 3, 2, 4, 5, 7, 6]]  # lexicographic instead of VTK order
    with pytest.raises(MeshError, match=r"cell 3 (is folded over|has no volume)"):
        Mesh.from_cells(x, twisted, "hexahedron")


def test_three_tetrahedra_on_a_face() -> None:
    x = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, -1), (1, 1, 1)], float)
    with pytest.raises(MeshError, match=r"cells 0, 1, 2 share the face \(0, 2, 1\): at most two"):
        Mesh.from_cells(x, [(0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 2, 5)], "tetrahedron")
