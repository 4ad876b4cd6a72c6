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
    nodes = mesh.cell_nodes.indices
    cell, side = _across(nodes)
    inner = cell != np.arange(len(nodes))[:, None]
    beyond = np.empty((len(nodes), 8), nodes.dtype)
    for k in range(4):
        last, next_ = (k - 1) % 4, (k + 1) % 4
        # A neighbour sees the common side from its other end: its corner ``side`` is the second node of mine.
        backwards = nodes[cell[:, last], (side[:, last] - 1) % 4]
        forwards = nodes[cell[:, next_], (side[:, next_] + 2) % 4]
        beyond[:, 2 * k] = np.where(inner[:, last], backwards, nodes[:, k])
        beyond[:, 2 * k + 1] = np.where(inner[:, next_], forwards, nodes[:, next_])
    return Surroundings(
        ml.Map(mesh.cells, mesh.cells, cell, "neighbours"),
        ml.Map(mesh.cells, mesh.nodes, beyond, "beyond"),
        mesh.cells.field("inner", 4, data=inner, dtype=np.int32),
    )


def _across(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For cells with corners (n, 4): the cell across each side and which of its sides that is; itself at the end."""
    ends = np.stack([nodes, np.roll(nodes, -1, axis=1)], axis=2).reshape(-1, 2).astype(np.int64)
    key = ends.min(axis=1) * (int(nodes.max()) + 1) + ends.max(axis=1)
    order = np.argsort(key, kind="stable")
    met = np.flatnonzero(key[order[1:]] == key[order[:-1]])
    partner = np.arange(len(key))
    partner[order[met]], partner[order[met + 1]] = order[met + 1], order[met]
    return (partner // 4).reshape(-1, 4), (partner % 4).reshape(-1, 4)
