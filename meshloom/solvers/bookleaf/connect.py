"""What a cell of a quadrilateral mesh sees beyond its own corners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import meshloom as ml


@dataclass(frozen=True)
class Surroundings:
    """Maps from cells, and which sides have a neighbour.

    ``neighbours``: the four cells across the sides (side k joins the corners k and k + 1), the cell itself where there
    is none. ``beyond``: eight nodes, the ones on which the line of edge k goes on backwards (at 2 k) and forwards
    (2 k + 1); a corner of the cell where the mesh ends. ``inner`` (4): 1 where a side has a neighbour, else 0.
    """

    neighbours: ml.Map
    beyond: ml.Map
    inner: ml.Field


def surroundings(mesh: ml.Mesh) -> Surroundings:
    """Of every cell of a quadrilateral mesh."""
    nodes, cell = mesh.cell_nodes.indices, mesh.cell_cells.indices
    inner = cell != np.arange(len(nodes))[:, None]
    beyond = np.empty((len(nodes), 8), nodes.dtype)
    for k in range(4):
        last, next_ = (k - 1) % 4, (k + 1) % 4
        beyond[:, 2 * k] = np.where(inner[:, last], _node_after(nodes, cell[:, last], nodes[:, k], -1), nodes[:, k])
        beyond[:, 2 * k + 1] = np.where(
            inner[:, next_], _node_after(nodes, cell[:, next_], nodes[:, next_], 1), nodes[:, next_]
        )
    return Surroundings(
        mesh.cell_cells,
        ml.Map(mesh.cells, mesh.nodes, beyond, "beyond"),
        mesh.cells.field("inner", 4, data=inner, dtype=np.int32),
    )


def _node_after(nodes: np.ndarray, cell: np.ndarray, start: np.ndarray, steps: int) -> np.ndarray:
    """In each of some cells (n,) the corner that follows the node ``start`` (n,) after so many steps around it."""
    corner = np.argmax(nodes[cell] == start[:, None], axis=1)
    return nodes[cell, (corner + steps) % 4]
