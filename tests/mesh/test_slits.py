"""Cells that should meet and do not: nodes given twice and nodes that hang are named, walls without thickness pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.generate import box
from meshloom.mesh.mesh import Mesh
from tests.mesh.mixed_samples import layered, plane, space
from tests.one_line import one_line_from


def torn(kind: str, scale: float = 1.0) -> tuple[Mesh, Any]:
    """A box cut in two at the middle of x, the nodes there given twice; and the faces of the cut, by side."""
    dim = KINDS[kind].dimension
    mesh = box((4, 2, 2)[:dim], cells=kind, extent=[scale] * dim, origin=[scale] * dim)
    x, cells = mesh.coordinates.numpy(), mesh.cell_nodes.indices.copy()
    middle = np.flatnonzero(np.abs(x[:, 0] - 1.5 * scale) < 1e-9 * scale)
    copy = np.arange(len(x))
    copy[middle] = len(x) + np.arange(len(middle))
    right = mesh.cell_centroids[:, 0] > 1.5 * scale
    cells[right] = copy[cells[right]]
    made = Mesh.from_cells(np.concatenate((x, x[middle])), cells, kind)
    cut = np.abs(made.boundary_centres[:, 0] - 1.5 * scale) < 1e-9 * scale
    return made, made.lists.boundary_faces.taken(np.flatnonzero(cut))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kind", [*KINDS])
def test_nodes_given_twice_are_named(kind: str, scale: float) -> None:
    mesh, cut = torn(kind, scale)
    with one_line_from(
        MeshError, r"nodes \(\d+, \d+\) lie at one place: cells \d+ and \d+ .* do not meet; .* \(near 1.5"
    ):
        mesh.check()
    named = Mesh.from_cells(mesh.coordinates.numpy(), mesh.cell_nodes.indices, kind, {"plate": list(cut)})
    named.check()  # a wall without thickness
    half = Mesh.from_cells(mesh.coordinates.numpy(), mesh.cell_nodes.indices, kind, {"plate": [cut[0].tolist()]})
    with one_line_from(MeshError, "lie at one place"):
        half.check()


def test_a_node_that_hangs_is_named() -> None:
    x = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [2, 1], [1, 0.5], [2, 0.5]], float)
    cells = [[0, 1, 2, 3], [1, 4, 7, 6], [6, 7, 5, 2]]
    with one_line_from(MeshError, r"node 6 hangs on a side of cell 0 .*\(6, 2, 1\).* \(near 1, 0.5\)"):
        Mesh.from_cells(x, cells, "quad").check()
    Mesh.from_cells(x, {"polygon": [[0, 1, 6, 2, 3]], "quad": cells[1:]}).check()  # a side more
    walls = {"slit": [[1, 2], [1, 6], [6, 2]]}
    Mesh.from_cells(x, cells, "quad", walls).check()


@pytest.mark.parametrize("inside", [False, True])
def test_a_node_that_hangs_on_a_face_in_space_is_named(inside: bool) -> None:
    """On an edge, or inside a side."""
    coarse = box((1, 1, 1))
    fine = box((1, 2, 2), origin=[1.0, 0.0, 0.0]) if inside else box((1, 2, 1), origin=[1.0, 0.0, 0.0])
    x, far = coarse.coordinates.numpy(), fine.coordinates.numpy()
    both = np.concatenate((x, far))
    same = {len(x) + k: int(np.argmin(np.abs(x - far[k]).sum(axis=1))) for k in range(len(far))
            if np.abs(x - far[k]).sum(axis=1).min() < 1e-12}  # fmt: skip
    cells = [[*range(8)], *((fine.cell_nodes.indices + len(x)).tolist())]
    cells[0] = coarse.cell_nodes.indices[0].tolist()
    joined = [[same.get(node, node) for node in nodes] for nodes in cells]
    with one_line_from(MeshError, r"node \d+ hangs on a side of cell 0"):
        Mesh.from_cells(both, joined, "hexahedron").check()


def test_meshes_that_meet_are_let_be() -> None:
    for kind in KINDS:
        dim = KINDS[kind].dimension
        mesh = box((3, 2, 2)[:dim], cells=kind, extent=(1.0, 1e-5, 1.0)[:dim])
        Mesh.from_cells(mesh.coordinates.numpy(), mesh.cell_nodes.indices, kind).check()
    for make in (plane, space, layered):
        Mesh.from_cells(*make(9)).check()


def test_files_with_a_slit_are_refused_by_their_own_numbers(tmp_path: Path) -> None:
    mesh, _ = torn("quad")
    ml.write(tmp_path / "mesh.msh", mesh)
    with one_line_from(MeshError, r"mesh.msh: nodes \(\d+, \d+\) lie at one place: cells \d+ and \d+ are side by side"):
        ml.read(tmp_path / "mesh.msh")
