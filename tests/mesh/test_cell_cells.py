"""The cells across the faces of cells."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.cell_kinds import cell_kind


@pytest.mark.parametrize("order", ["given", "random"])
@pytest.mark.parametrize("kind, shape", [("quad", (5, 4)), ("triangle", (3, 4)), ("hexahedron", (3, 4, 5)),
                                         ("tetrahedron", (2, 3, 2))])  # fmt: skip
def test_the_cell_across_a_face_has_that_face(kind: str, shape: tuple[int, ...], order: str):
    mesh = ml.generate.box(shape, cells=kind)
    mesh = mesh if order == "given" else mesh.reordered(order)
    nodes, inside = mesh.cell_nodes.indices, 0
    for cell, row in enumerate(mesh.cell_cells.indices):
        for local, other in enumerate(row):
            face = set(nodes[cell, list(cell_kind(kind).faces[local])])
            if other == cell:
                x = mesh.coordinates.numpy()[list(face)]
                assert any((x[:, axis] == end).all() for axis in range(mesh.dim) for end in (0.0, 1.0))
            else:
                inside += 1
                assert face <= set(nodes[other])
    assert inside == 2 * len(mesh.faces)


def test_a_box_of_hexahedra_has_its_structured_neighbours():
    n = 4
    inner = np.arange(n**3).reshape(n, n, n)[1:-1, 1:-1, 1:-1].ravel()
    down, up, south, east, north, west = ml.generate.box((n, n, n)).cell_cells.indices[inner].T
    for found, step in ((west, -1), (east, 1), (south, -n), (north, n), (down, -n * n), (up, n * n)):
        np.testing.assert_array_equal(found, inner + step)


def test_a_cut_has_no_neighbours_by_nodes():
    with pytest.raises(MeshError, match="across a cut"):
        _ = ml.generate.naca0012(4, 3).cell_cells
