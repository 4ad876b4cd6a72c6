"""Mesh: groups, digest, halo, and one clear line for parts that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from meshloom.errors import MeshError
from meshloom.mesh.cell_kinds import cell_kind
from meshloom.mesh.generate import box, naca0012
from meshloom.mesh.mesh import Mesh
from tests.mesh.samples import group_faces

X = np.array([(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)], float)
CELLS = [(0, 1, 4, 3), (1, 2, 5, 4)]


def two_quads(**boundary: list[tuple[int, int]]) -> Mesh:
    return Mesh.from_cells(X, CELLS, "quad", boundary)


def parts(**changes: object) -> Mesh:
    arguments: dict = {
        "coordinates": X, "cell_nodes": CELLS, "face_nodes": [(4, 1)], "face_cells": [(0, 1)],
        "boundary_nodes": [(1, 0), (2, 1), (5, 2), (4, 5), (3, 4), (0, 3)], "boundary_cells": [0, 1, 1, 1, 0, 0],
        "kind": "quad",
    }  # fmt: skip
    return Mesh.from_parts(**{**arguments, **changes})


def test_named_and_unnamed_boundary() -> None:
    mesh = two_quads(floor=[(0, 1), (2, 1)], lid=[(4, 3)])
    assert mesh.groups == {"floor": 1, "lid": 2, "boundary": 3}
    assert group_faces(mesh, "floor") == [[0, 1], [1, 2]]
    assert group_faces(mesh, "lid") == [[3, 4]]
    assert len(mesh.group("boundary")) == 3
    assert mesh.boundary_group.numpy().dtype == np.int32


def test_without_names_all_is_boundary() -> None:
    assert two_quads().groups == {"boundary": 1}
    assert (two_quads().boundary_group.numpy() == 1).all()


def test_group_numbers_may_be_given() -> None:
    mesh = Mesh.from_cells(X, CELLS, "quad", {"a": [(0, 1)], "b": [(1, 2)]}, groups={"b": 1})
    assert mesh.groups == {"a": 2, "b": 1, "boundary": 3}


def test_a_complete_boundary_needs_no_unnamed_group() -> None:
    mesh = two_quads(all=[(0, 1), (1, 2), (2, 5), (5, 4), (4, 3), (3, 0)])
    assert mesh.groups == {"all": 1}


@pytest.mark.parametrize(
    "boundary, message",
    [
        ({"floor": [(0, 4)]}, r"boundary group floor: face \(0, 4\) is not on the boundary"),
        ({"cut": [(1, 4)]}, r"boundary group cut: face \(1, 4\) is not on the boundary"),
        ({"a": [(0, 1)], "b": [(1, 0)]}, r"boundary group b: face \(0, 1\) belongs to group a already"),
        ({"a": [(0, 9)]}, r"boundary group a: face \(0, 9\), but nodes go from 0 to 5"),
        ({"a": [(0, 1, 2)]}, r"boundary group a: expected node numbers of shape \(n, 2\)"),
    ],
)
def test_wrong_boundary_lists_are_named(boundary: dict, message: str) -> None:
    with pytest.raises(MeshError, match=message):
        two_quads(**boundary)


def test_unknown_group_names_the_nearest() -> None:
    with pytest.raises(MeshError, match="unknown boundary group 'flor'; did you mean 'floor'"):
        two_quads(floor=[(0, 1)]).group("flor")


def test_given_parts_are_taken_as_they_are() -> None:
    mesh = parts(face_cells=[(1, 0)], face_nodes=[(1, 4)])
    assert mesh.face_cells.indices.tolist() == [[1, 0]] and not mesh.owner_first
    assert mesh.groups == {"boundary": 1}
    assert parts(boundary_group=[1, 1, 7, 7, 7, 1]).groups == {"group1": 1, "group7": 7}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"face_cells": [(0, 2)]}, "map face_cells: index 2 at row 0, slot 1 is out of range; cells has 2"),
        ({"face_nodes": [(4, 1, 2)]}, r"face_nodes: expected shape \(n, 2\), got \(1, 3\)"),
        ({"face_nodes": [(4, 1), (1, 4)]}, "map face_nodes"),
        ({"boundary_group": [1, 2]}, r"boundary_group: expected 6 integers, got shape \(2,\)"),
        ({"boundary_group": [3] * 6, "groups": {"wall": 1}}, "boundary_group holds 3, but the groups are"),
        ({"boundary_group": [0] * 6, "groups": {"wall": 0}}, "number of wall must be a whole number from 1 to"),
        ({"boundary_group": [2**31] * 6, "groups": {"wall": 2**31}}, "number of wall must be a whole number from 1 to"),
        ({"boundary_group": [1] * 6, "groups": {"a": 1, "b": 1}}, "two boundary groups have the same number"),
        ({"groups": {"a": 1, "b": 2}}, "boundary_group is missing"),
        ({"kind": "triangle"}, r"cell_nodes: expected shape \(n, 3\)"),
        ({"halo": {"cell": 1}}, "unknown set with a halo 'cell'; did you mean 'cells'"),
        ({"halo": {"cells": 3}}, "cells: halo must be a whole number from 0 to 2, got 3"),
    ],
)
def test_parts_that_do_not_fit_are_named(changes: dict, message: str) -> None:
    with pytest.raises(MeshError, match=message):
        parts(**changes)


def test_halo_counts_the_last_rows() -> None:
    mesh = parts(halo={"cells": 1, "nodes": 2})
    assert (mesh.cells.owned, mesh.cells.halo, mesh.nodes.owned, mesh.nodes.halo) == (1, 1, 4, 2)
    assert mesh.coordinates.numpy().shape == (6, 2)


def test_digest_sees_every_part() -> None:
    base = parts()
    moved = X.copy()
    moved[4, 0] += 1e-9
    others = [parts(coordinates=moved), parts(face_nodes=[(1, 4)]), parts(boundary_group=[1] * 6, groups={"wall": 1})]
    digests = {base.digest, *(mesh.digest for mesh in others)}
    assert len(digests) == 4 and parts().digest == base.digest
    base.coordinates.assign(moved)
    assert base.digest == others[0].digest


def test_points_are_where_the_elements_are() -> None:
    mesh = box((2, 1, 1))
    assert mesh.nodes.points is not None and mesh.cells.points is not None and mesh.faces.points is not None
    np.testing.assert_array_equal(mesh.nodes.points, mesh.coordinates.numpy())
    np.testing.assert_allclose(mesh.cells.points, [(0.25, 0.5, 0.5), (0.75, 0.5, 0.5)])
    np.testing.assert_allclose(mesh.faces.points, [(0.5, 0.5, 0.5)])
    np.testing.assert_allclose(mesh.cell_centroids, mesh.cells.points)


@pytest.mark.parametrize("kind", ["triangle", "quad", "tetrahedron", "hexahedron"])
@pytest.mark.parametrize("order", ["given", "random"])
def test_cells_know_the_cells_across_their_faces(kind: str, order: str) -> None:
    shape = (3, 4) if kind in ("triangle", "quad") else (3, 2, 2)
    mesh = box(shape, cells=kind).reordered(order)
    across, cells = mesh.cell_cells.indices, mesh.cell_nodes.indices
    pairs = {frozenset(map(int, pair)) for pair in mesh.face_cells.indices}
    for cell, neighbours in enumerate(across):
        for local, other in zip(cell_kind(kind).faces, neighbours, strict=True):
            face = set(cells[cell][list(local)])
            if other == cell:
                assert face in [set(nodes) for nodes in mesh.boundary_nodes.indices]
            else:
                assert face <= set(cells[other]) and frozenset((cell, int(other))) in pairs
    assert (across != np.arange(len(cells))[:, None]).sum() == 2 * len(mesh.faces)


def test_cells_across_a_cut_are_refused() -> None:
    with pytest.raises(MeshError, match=r"face 0 .* is no face of its cell .*: across a cut in the mesh"):
        _ = naca0012(4, 2).cell_cells
