"""Meshes for the tests: random triangulations, jittered boxes, and shuffled numberings."""

from __future__ import annotations

import numpy as np
from scipy.spatial import Delaunay

from meshloom.mesh.connectivity import NodeLists
from meshloom.mesh.generate import box
from meshloom.mesh.mesh import Mesh

SQUARE = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
CUBE_SHAPE = (3, 2, 4)


def triangulation(points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates and cells of the Delaunay triangles of the unit square with random points in it."""
    rng = np.random.default_rng(seed)
    x = np.concatenate((SQUARE, 0.05 + 0.9 * rng.random((points, 2))))
    return x, Delaunay(x).simplices


def jittered(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates and cells of a box whose inner nodes are moved: same boundary, warped cells."""
    mesh = box((5, 4) if kind in ("quad", "triangle") else CUBE_SHAPE, cells=kind)
    x = mesh.coordinates.numpy()
    inner = np.setdiff1d(np.arange(len(x)), mesh.lists.boundary_faces.entries)
    x[inner] += np.random.default_rng(seed).uniform(-0.03, 0.03, (len(inner), x.shape[1]))
    return x, mesh.cell_nodes.indices


def shuffled(x: np.ndarray, cells: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The same mesh with cells and nodes numbered at random."""
    rng = np.random.default_rng(seed)
    old_node = rng.permutation(len(x))
    new_node = np.argsort(old_node)
    return x[old_node], new_node[cells[rng.permutation(len(cells))]]


def closure(mesh: Mesh) -> np.ndarray:
    """The sum of the outward area vectors of each cell, (cells, d); zero for closed cells."""
    total = np.zeros((mesh.cells.total, mesh.dim))
    normals, cells = mesh.face_normals, mesh.face_cells.indices
    np.add.at(total, cells[:, 0], normals)
    np.add.at(total, cells[:, 1], -normals)
    np.add.at(total, mesh.boundary_cells.indices[:, 0], mesh.boundary_normals)
    return total


def faces_as_sets(mesh: Mesh) -> set[tuple[frozenset[int], frozenset[int]]]:
    """Each interior face as its nodes and its cells."""
    return {
        (frozenset(nodes), frozenset(cells))
        for nodes, cells in zip(as_lists(mesh.lists.faces), mesh.face_cells.indices.tolist(), strict=True)
    }


def as_lists(nodes: NodeLists) -> list[list[int]]:
    """The nodes of each element as Python numbers."""
    return [one.tolist() for one in nodes]


def group_faces(mesh: Mesh, name: str) -> list[list[int]]:
    """The boundary faces of a group as sorted node numbers, sorted."""
    return sorted(sorted(nodes) for nodes in as_lists(mesh.lists.boundary_faces.taken(mesh.group(name))))
