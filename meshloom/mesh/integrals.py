"""Integrals as weighted sums over elements: of values on cells or nodes, over cells or boundary faces; at the points of
a grid, over all of it.

A value on a cell counts for the whole of it. Of values on nodes it is the linear function that fits those of a cell or
face best, as at a place (``locate``), that is integrated: exactly, whatever the shape of the cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from meshloom.mesh import geometry
from meshloom.mesh.connectivity import CellBlock
from meshloom.mesh.grid import Grid
from meshloom.mesh.mesh import Mesh
from meshloom.records import dataclass

_SIMPLICES = ("triangle", "tetrahedron")
_HALVES = ((0, 1, 2), (0, 2, 3), (1, 2, 3), (0, 1, 3))  # of a quadrilateral, cut both ways


@dataclass(frozen=True)
class Shares:
    """Elements, and what the value of each counts for in an integral: (m,), or (m, d) of one times a normal."""

    elements: np.ndarray | slice
    weights: np.ndarray

    def of(self, values: np.ndarray) -> np.ndarray:
        """The integral of values (n, ...): (k,), its components, or those of the normal."""
        # However they lie in memory: BLAS adds up a column of a larger array in another order.
        found = np.ascontiguousarray(values[self.elements], float)
        rows = found.reshape(len(self.weights), math.prod(values.shape[1:]))
        return (self.weights.T @ rows).reshape(-1)


def of_points(grid: Grid) -> Shares:
    """Of values at the points of a grid, in a row: by the trapezoidal rule along each axis."""
    found = np.ones(1)
    for axis, x in enumerate(grid.coordinates):
        if grid.periodic[axis]:
            around = np.concatenate(([x[-1] - grid.extent[axis]], x, [x[0] + grid.extent[axis]]))
            share = (around[2:] - around[:-2]) / 2.0
        else:
            around = np.concatenate((x[:1], x, x[-1:]))
            share = (around[2:] - around[:-2]) / 2.0 if len(x) > 1 else np.ones(1)
        found = np.multiply.outer(found, share)
    return Shares(slice(None), found.reshape(-1))


def over_cells(mesh: Mesh, x: np.ndarray, cells: np.ndarray | None, *, on_nodes: bool) -> Shares:
    """Over some cells, or all, of a mesh whose nodes are at ``x`` (nodes, d); copies of another rank's count there."""
    table, owned = mesh.lists.cells, mesh.cells.owned
    chosen = slice(owned) if cells is None else cells[cells < owned]
    if not on_nodes:
        volumes = table.measured(lambda block: geometry.cell_volumes(x, block.nodes, block.kind.name))
        return Shares(chosen, volumes[chosen])
    counts = np.zeros(len(table))
    counts[chosen] = 1.0
    parts = [(block.nodes, _corner_volumes(x, block) * counts[block.numbers][:, None]) for block in table.blocks]
    return _summed(mesh, parts)


def over_faces(mesh: Mesh, x: np.ndarray, faces: np.ndarray, *, on_nodes: bool, normal: bool) -> Shares:
    """Over boundary faces (m,); ``normal``: times the normal, out of the domain."""
    faces = faces[faces < mesh.boundary_faces.owned]
    lists = mesh.lists.boundary_faces.taken(faces)
    if not on_nodes:
        vectors = lists.measured(lambda rows: geometry.area_vectors(x, rows), mesh.dim)
        weights = vectors if normal else np.linalg.norm(vectors, axis=1)
        return Shares(mesh.boundary_cells.indices[faces, 0], weights)
    parts = [(size.nodes, _corner_areas(x, size.nodes, normal)) for size in lists.sizes]
    return _summed(mesh, parts, *((mesh.dim,) if normal else ()))


def _summed(mesh: Mesh, parts: Iterable[tuple[np.ndarray, np.ndarray]], *shape: int) -> Shares:
    """Nodes (m, k) of elements with the shares of each, (m, k, *shape): all that a node has."""
    total = np.zeros((mesh.nodes.total, math.prod(shape)))
    for nodes, shares in parts:
        for column, of_corner in zip(total.T, shares.reshape(nodes.size, total.shape[1]).T, strict=True):
            column += np.bincount(nodes.reshape(-1), of_corner, len(total))
    elements = np.flatnonzero(total.any(axis=1))
    return Shares(elements, total[elements].reshape(-1, *shape))


def _corner_volumes(x: np.ndarray, block: CellBlock) -> np.ndarray:
    """What each corner of each cell counts for, (m, k): the value of the fitted function at the centre of mass."""
    count = block.nodes.shape[1]
    volumes = geometry.cell_volumes(x, block.nodes, block.kind.name)
    equal = np.full(block.nodes.shape, 1.0 / count)
    if block.kind.name in _SIMPLICES:
        return volumes[:, None] * equal
    middle = geometry.mean_points(x, block.nodes)
    off = geometry.cell_centroids(x, block.nodes, block.kind.name) - middle
    size = np.abs(volumes) ** (1.0 / x.shape[1])
    flat = size == 0.0  # of no volume: nothing to count
    scale = np.where(flat, 1.0, size)[:, None]
    away = (x[block.nodes] - middle[:, None]) / scale[:, None]
    spread = np.einsum("mki,mkj->mij", away, away)
    spread[flat] = np.eye(x.shape[1])
    slope = np.linalg.solve(spread, np.where(flat[:, None], 0.0, off / scale)[..., None])
    return volumes[:, None] * (equal + (away @ slope)[..., 0])


def _corner_areas(x: np.ndarray, nodes: np.ndarray, normal: bool) -> np.ndarray:
    """The same of faces (m, k): (m, k, d) with the normal, else (m, k)."""
    count = nodes.shape[1]
    vectors = geometry.area_vectors(x, nodes)
    found = np.zeros((*nodes.shape, x.shape[1]))
    if count < 4:
        found += vectors[:, None] / count
    else:
        for half in _HALVES:
            found[:, half] += geometry.area_vectors(x, nodes[:, half])[:, None] / 6.0
    if normal:
        return found
    areas = np.linalg.norm(vectors, axis=1)
    along = vectors / np.where(areas > 0.0, areas, 1.0)[:, None]
    return np.einsum("mkd,md->mk", found, along)
