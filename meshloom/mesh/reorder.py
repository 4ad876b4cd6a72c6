"""Renumbering a mesh: which number every node, cell and face gets.

Cell orderings (random, RCM, GPS, Hilbert, recursive bisection) number the cells; a face then follows the later of
its two cells, so that a loop over faces meets new cells one after the other and finds the others in the cache; after
the earlier one it would jump ahead, where no prefetcher sees it coming. Block orderings (greedy, KaMinPar, METIS)
number the faces in blocks; cells and nodes then follow the blocks that touch them. "color" numbers the faces so that
those of one color, which share no cell, lie together; cells and nodes stay. "given" changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.mesh.core import Set
from meshloom.mesh.permutation import Permutation, inverse
from meshloom.mesh.protocols import MeshData

BLOCK_ORDERINGS = ("greedy", "kaminpar", "metis")
FACE_ORDERINGS = ("color",)


def ordering(mesh: MeshData, name: str, *, block: int, seed: int) -> Permutation:
    """The renumbering of ``mesh`` by the ordering ``name``; halo elements stay last."""
    from meshloom.order import follow, order_elements, order_targets
    from meshloom.order.registry import find

    face_cells, n_cells = mesh.face_cells.indices, mesh.cells.total
    find(name)
    if name in BLOCK_ORDERINGS:
        faces = order_elements(name, face_cells, n_cells, points=mesh.faces.points, block=block, seed=seed)
        faces = _halo_last(faces, mesh.faces)
        cells = _halo_last(follow(faces, face_cells, n_cells, block=block), mesh.cells)
        nodes = follow(faces, mesh.lists.faces.padded(), mesh.nodes.total, block=block)
        new_cell = inverse(cells)
    elif name in FACE_ORDERINGS:
        faces = _halo_last(order_elements(name, face_cells, n_cells, block=block, seed=seed), mesh.faces)
        cells, nodes = np.arange(n_cells), np.arange(mesh.nodes.total)
        new_cell = cells
    else:
        cells = order_targets(name, face_cells, n_cells, points=mesh.cells.points, block=block, seed=seed)
        cells = _halo_last(cells, mesh.cells)
        nodes = follow(cells, mesh.lists.cells.nodes.padded(), mesh.nodes.total)
        new_cell = inverse(cells)
        low, high = np.sort(new_cell[face_cells], axis=1).T
        faces = _halo_last(np.lexsort((low, high)), mesh.faces)
    boundary = np.argsort(new_cell[mesh.boundary_cells.indices[:, 0]], kind="stable")
    first, second = new_cell[face_cells[faces]].T
    flipped = first > second if mesh.owner_first else np.zeros(len(faces), dtype=bool)
    return Permutation(_halo_last(nodes, mesh.nodes), cells, faces, _halo_last(boundary, mesh.boundary_faces), flipped)


def renumbered(mesh: MeshData, permutation: Permutation) -> dict[str, Any]:
    """What a mesh is made of in the new numbering, by the names of the arguments of ``Mesh.from_parts``."""
    new_cell, new_node = permutation.inverse("cells"), permutation.inverse("nodes")
    lists, flipped = mesh.lists, permutation.flipped
    face_cells = new_cell[mesh.face_cells.indices[permutation.faces]]
    face_cells[flipped] = face_cells[flipped, ::-1]
    cells = lists.cells.taken(permutation.cells, new_node)
    joints, faces = mesh.joints.renumbered(permutation, new_node, lists.faces)
    return {
        "coordinates": permutation.apply("nodes", mesh.coordinates),
        "kind": cells.kind,
        "cell_nodes": cells.nodes,
        "face_nodes": faces.taken(permutation.faces).mapped(new_node).turned(flipped),
        "face_cells": face_cells,
        "boundary_nodes": lists.boundary_faces.taken(permutation.boundary_faces).mapped(new_node),
        "boundary_cells": new_cell[mesh.boundary_cells.indices[permutation.boundary_faces]],
        "boundary_group": permutation.apply("boundary_faces", mesh.boundary_group),
    } | ({"joints": joints} if len(joints) else {})


def _halo_last(order: np.ndarray, of: Set) -> np.ndarray:
    """Owned elements first, halo elements after them, each in the given order."""
    if of.halo == 0:
        return order
    return np.concatenate((order[order < of.owned], order[order >= of.owned]))
