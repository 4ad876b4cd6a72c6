"""Lengths, areas and directions of a triangle mesh that the water needs, measured once.

Node coordinates are rounded to the precision of the run, everything is measured in double precision from there, and
rounded once more: as the original program's input files have it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import meshloom as ml

EDGES = 3  # of a cell


@dataclass(frozen=True)
class WaterGeometry:
    """Fields on edges (interior faces), on walls (boundary faces) and on cells."""

    normal: ml.Field  # unit vector from the first cell of an edge to its second
    length: ml.Field
    way: ml.Field  # from the centre of either cell to the middle of the edge: x, y, x, y
    wall_normal: ml.Field  # unit vector out of the water
    wall_length: ml.Field
    area: ml.Field
    reach: ml.Field  # from the centre of a cell to the middle of each of its edges: x, y, x, y, x, y
    fit: ml.Field  # a slope is the sum over the neighbours of (x, y) times the difference to them
    neighbours: ml.Map  # the cells across the three edges


def measure(mesh: ml.Mesh, dtype: np.dtype) -> WaterGeometry:
    """The geometry of a mesh in a precision."""

    def rounded(values: np.ndarray) -> np.ndarray:
        return values.astype(dtype).astype(np.float64)

    x = rounded(mesh.coordinates.numpy())
    corners, ends = x[mesh.cell_nodes.indices], x[mesh.face_nodes.indices]
    centres, middles = rounded(corners.mean(axis=1)), rounded(ends.mean(axis=1))
    edge_middles = rounded(0.5 * (corners + np.roll(corners, -1, axis=1)))
    normal, length = _normals(ends)
    wall_normal, wall_length = _normals(x[mesh.boundary_nodes.indices])
    neighbours = inner_first(mesh.cell_cells.indices)

    def field(on: ml.Set, name: str, values: np.ndarray) -> ml.Field:
        flat = values.reshape(len(values), -1)
        return on.field(name, flat.shape[1], dtype=dtype, data=flat)

    return WaterGeometry(
        field(mesh.faces, "normal", normal),
        field(mesh.faces, "length", length),
        field(mesh.faces, "way", middles[:, None] - centres[mesh.face_cells.indices]),
        field(mesh.boundary_faces, "wall_normal", wall_normal),
        field(mesh.boundary_faces, "wall_length", wall_length),
        field(mesh.cells, "area", _areas(corners)),
        field(mesh.cells, "reach", edge_middles - centres[:, None]),
        field(mesh.cells, "fit", least_squares(centres, neighbours)),
        ml.Map(mesh.cells, mesh.cells, neighbours, "neighbours"),
    )


def cell_centres(mesh: ml.Mesh, dtype: np.dtype) -> np.ndarray:
    """Means of the nodes of each cell (cells, 2), as precise as the run's numbers."""
    x = mesh.coordinates.numpy().astype(dtype).astype(np.float64)
    return x[mesh.cell_nodes.indices].mean(axis=1).astype(dtype).astype(np.float64)


def _normals(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit normal (n, 2) and length (n,) of edges between two ends (n, 2, 2)."""
    d = ends[:, 0] - ends[:, 1]
    length = np.hypot(d[:, 0], d[:, 1])
    return np.stack([d[:, 1], -d[:, 0]], axis=1) / length[:, None], length


def _areas(corners: np.ndarray) -> np.ndarray:
    a, b = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    return np.asarray(0.5 * np.abs(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]))


def inner_first(neighbours: np.ndarray) -> np.ndarray:
    """The neighbours (cells, 3) with a wall, where a cell is its own neighbour, in the last place.

    Where there are two walls, one stays in the first or second place: only the last is ever asked.
    """
    result = np.array(neighbours)
    own = np.arange(len(result))
    for slot in range(EDGES - 1):
        wall = result[:, slot] == own
        result[wall, slot], result[wall, -1] = result[wall, -1], own[wall]
    return result


def least_squares(centres: np.ndarray, neighbours: np.ndarray) -> np.ndarray:
    """Coefficients (cells, neighbours, 2) of the slopes that fit the neighbours best, the near ones more.

    A wall has none, and the original gives no slope either where the last neighbour stands exactly next to or above.
    """
    to = centres[neighbours] - centres[:, None]
    inside = (to[:, -1] != 0.0).all(axis=1)
    to[~inside] = np.eye(EDGES, 2) + 1.0  # any triangle will do: the result is not used
    distance = np.hypot(to[..., 0], to[..., 1])
    weight = (distance.sum(axis=1, keepdims=True) / distance) ** 2
    normal_equations = np.einsum("ck,cki,ckj->cij", weight, to, to)
    coefficients = np.linalg.solve(normal_equations, (weight[..., None] * to).transpose(0, 2, 1)).transpose(0, 2, 1)
    return np.where(inside[:, None, None], coefficients, 0.0)
