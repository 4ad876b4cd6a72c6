"""Reordering: the same mesh under other numbers, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.errors import MeshError, MeshloomError
from meshloom.mesh.generate import box, naca0012
from meshloom.mesh.mesh import Mesh
from meshloom.native.algorithms import color_elements
from meshloom.order import names
from tests.mesh.samples import closure, shuffled, triangulation

MESHES = {
    "triangles": lambda: Mesh.from_cells(*shuffled(*triangulation(120, 3), 4), "triangle"),
    "airfoil": lambda: naca0012(8, 6),
    "hexahedra": lambda: box((4, 3, 3)),
    "tetrahedra": lambda: box((2, 2, 2), cells="tetrahedron"),
    "one cell": lambda: box((1, 1)),
}


def reordered(mesh: Mesh, name: str, **options: int) -> Mesh:
    try:
        return mesh.reordered(name, **options)
    except MeshloomError as error:
        if "pip install" in str(error):
            pytest.skip(str(error))
        raise


def check_same(old: Mesh, new: Mesh) -> None:
    """``new`` is ``old`` through its permutation: every map, every coordinate, every direction."""
    back = new.permutation
    for name in ("nodes", "cells", "faces", "boundary_faces"):
        np.testing.assert_array_equal(np.sort(back.of(name)), np.arange(getattr(old, name).total))
    np.testing.assert_array_equal(back.undo("nodes", new.coordinates), old.coordinates.numpy())
    to_old = {"nodes": back.nodes, "cells": back.cells}
    for map_name, source, target in (("cell_nodes", "cells", "nodes"), ("boundary_nodes", "boundary_faces", "nodes"),
                                     ("boundary_cells", "boundary_faces", "cells")):  # fmt: skip
        renamed = to_old[target][getattr(new, map_name).indices]
        np.testing.assert_array_equal(back.undo(source, renamed), getattr(old, map_name).indices)
    direction = np.where(back.flipped, -1.0, 1.0)[:, None]
    np.testing.assert_array_equal(back.undo("faces", direction * new.face_normals), old.face_normals)
    cells = back.cells[new.face_cells.indices]
    cells[back.flipped] = cells[back.flipped, ::-1]
    np.testing.assert_array_equal(back.undo("faces", cells), old.face_cells.indices)
    np.testing.assert_array_equal(back.undo("boundary_faces", new.boundary_group), old.boundary_group.numpy())
    np.testing.assert_allclose(back.undo("cells", new.cell_centroids), old.cell_centroids, rtol=1e-14)
    assert new.groups == old.groups and new.kind == old.kind
    assert np.abs(closure(new)).max() < 1e-14


@pytest.mark.parametrize("which", MESHES)
@pytest.mark.parametrize("name", names())
def test_every_ordering_keeps_the_mesh(which: str, name: str) -> None:
    old = MESHES[which]()
    new = reordered(old, name, block=16)
    check_same(old, new)
    assert new.owner_first == old.owner_first
    if not old.owner_first:
        assert not new.permutation.flipped.any()


def test_given_changes_nothing() -> None:
    mesh = naca0012(8, 6)
    assert mesh.reordered("given").digest == mesh.digest


@pytest.mark.parametrize("name", ["random", "hilbert", "rcm"])
def test_faces_boundary_and_nodes_follow_the_cells(name: str) -> None:
    new = box((12, 9), cells="triangle").reordered(name, seed=5)
    assert new.digest != box((12, 9), cells="triangle").digest
    cells = new.face_cells.indices
    keys = list(zip(cells.max(axis=1).tolist(), cells.min(axis=1).tolist(), strict=True))
    assert keys == sorted(keys)
    assert (np.diff(new.boundary_cells.indices[:, 0]) >= 0).all()
    touched = new.cell_nodes.indices.ravel()
    first = [int(np.argmax(touched == node)) for node in range(len(new.nodes))]
    assert first == sorted(first)


def test_faces_by_color_leave_cells_and_nodes_where_they_are() -> None:
    old = box((12, 9), cells="triangle")
    new = old.reordered("color")
    np.testing.assert_array_equal(new.permutation.cells, np.arange(len(old.cells)))
    np.testing.assert_array_equal(new.permutation.nodes, np.arange(len(old.nodes)))
    colors = color_elements([old.face_cells.indices], [len(old.cells)])[new.permutation.faces]
    assert (np.diff(colors) >= 0).all() and colors.max() > 1
    largest = new.face_cells.indices[colors == 0]
    assert len(np.unique(largest)) == largest.size, "no cell twice in a color"


def test_seed_decides_the_random_ordering() -> None:
    mesh = box((12, 9))
    assert mesh.reordered("random", seed=1).digest == mesh.reordered("random", seed=1).digest
    assert mesh.reordered("random", seed=1).digest != mesh.reordered("random", seed=2).digest


def test_hilbert_brings_neighbors_together() -> None:
    scattered = box((40, 40)).reordered("random")

    def distance(mesh: Mesh) -> float:
        return float(np.abs(np.diff(mesh.face_cells.indices, axis=1)).mean())

    assert distance(scattered.reordered("hilbert")) < 0.2 * distance(scattered)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from(["given", "random", "rcm", "hilbert", "greedy"]), min_size=2, max_size=3),
    st.integers(0, 99),
)
def test_reorderings_compose(steps: list[str], seed: int) -> None:
    old = Mesh.from_cells(*triangulation(30, seed), "triangle")
    new = old
    for step in steps:
        new = new.reordered(step, seed=seed, block=8)
    check_same(old, new)


def test_values_go_there_and_back() -> None:
    new = box((6, 5)).reordered("random", seed=2)
    values = np.random.default_rng(0).random((30, 4))
    there = new.permutation.apply("cells", values)
    np.testing.assert_array_equal(there[7], values[new.permutation.cells[7]])
    np.testing.assert_array_equal(new.permutation.undo("cells", there), values)
    np.testing.assert_array_equal(new.permutation.inverse("cells")[new.permutation.cells], np.arange(30))
    field = new.cells.field("q", 4, data=there, layout="soa")
    np.testing.assert_array_equal(new.permutation.undo("cells", field), values)


def test_wrong_values_are_named() -> None:
    permutation = box((6, 5)).permutation
    with pytest.raises(MeshError, match=r"values of shape \(29,\) do not fit cells, which has 30 elements"):
        permutation.apply("cells", np.zeros(29))
    with pytest.raises(MeshError, match="unknown set 'cell' of a mesh; did you mean 'cells'"):
        permutation.undo("cell", np.zeros(30))


def test_unknown_ordering_is_named() -> None:
    with pytest.raises(MeshloomError, match="hilbrt"):
        box((3, 3)).reordered("hilbrt")


@pytest.mark.parametrize("name", ["random", "hilbert", "greedy", "color"])
def test_halo_stays_last(name: str) -> None:
    mesh = box((6, 5))
    halo = {"nodes": 6, "cells": 5, "faces": 4, "boundary_faces": 3}
    old = Mesh.from_parts(
        mesh.coordinates.numpy(), mesh.cell_nodes.indices, mesh.face_nodes.indices, mesh.face_cells.indices,
        mesh.boundary_nodes.indices, mesh.boundary_cells.indices, mesh.boundary_group.numpy(),
        kind="quad", groups=mesh.groups, halo=halo,
    )  # fmt: skip
    new = old.reordered(name, block=8)
    check_same(old, new)
    for on, copies in halo.items():
        assert getattr(new, on).halo == copies
        assert set(new.permutation.of(on)[-copies:]) == set(range(getattr(old, on).owned, getattr(old, on).total))
