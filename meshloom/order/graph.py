"""Graphs made from maps, and their numberings by topology."""

from __future__ import annotations

import numpy as np

from meshloom.native.algorithms import incidence
from meshloom.native.ffi import as_permutation, call, same_type, suffix
from meshloom.records import dataclass

#: Elements that meet in a target of more slots than this are joined only to those at most so many slots before and
#: after them: a hub would otherwise make a complete graph.
HUB_WINDOW = 64
_EVERYTHING = 2**62


@dataclass(frozen=True)
class Graph:
    """Symmetric and without loops: ``neighbors[offsets[v]:offsets[v+1]]`` are the neighbors of vertex v.

    ``weights``, where present, say how many links (rows, or targets) join the two.
    """

    offsets: np.ndarray
    neighbors: np.ndarray
    weights: np.ndarray | None = None

    @property
    def n(self) -> int:
        return len(self.offsets) - 1


def target_graph(indices: np.ndarray, n_targets: int, *, weighted: bool = False) -> Graph:
    """Targets (cells) joined when a row (face) of the map holds both: for arity 2 the rows are the edges."""
    return _graph(indices, n_targets, of_rows=False, weighted=weighted)


def element_graph(indices: np.ndarray, n_targets: int, *, weighted: bool = False) -> Graph:
    """Elements (rows) joined when they share a target."""
    return _graph(indices, n_targets, of_rows=True, weighted=weighted)


def _graph(indices: np.ndarray, n_targets: int, *, of_rows: bool, weighted: bool) -> Graph:
    incident, entries = incidence(indices, n_targets)
    rows, entries = same_type([indices, entries])
    n, index = (len(rows) if of_rows else n_targets), rows.dtype
    offsets = np.empty(n + 1, np.int64)
    window = HUB_WINDOW if of_rows else _EVERYTHING
    head = (rows, len(rows), rows.shape[1], n_targets, incident, entries, int(of_rows), window, offsets)
    if rows.shape[1] == 2 and not of_rows:
        room = rows.size  # edges: as many neighbors as ends, but for repetitions
    else:
        call("graph", f"adjacency_{suffix(rows)}", *head, None, None)
        room = int(offsets[-1])
    neighbors = np.empty(room, index)
    weights = np.empty(room, index) if weighted else None
    call("graph", f"adjacency_{suffix(rows)}", *head, neighbors, weights)
    used = int(offsets[-1])
    return Graph(offsets, neighbors[:used], None if weights is None else weights[:used])


def cuthill_mckee(graph: Graph) -> np.ndarray:
    """Reverse Cuthill-McKee: a permutation (n,) int64 of the vertices with small bandwidth."""
    return _numbering("cuthill_mckee", graph)


def gibbs_poole_stockmeyer(graph: Graph) -> np.ndarray:
    """Gibbs-Poole-Stockmeyer: as Cuthill-McKee, from levels that are seen from both ends and so are narrower."""
    return _numbering("gibbs_poole_stockmeyer", graph)


def _numbering(name: str, graph: Graph) -> np.ndarray:
    order = np.empty(graph.n, np.int64)
    call("graph", f"{name}_{suffix(graph.neighbors)}", graph.n, graph.offsets, graph.neighbors, order)
    return order


def lexicographic(indices: np.ndarray, target_order: np.ndarray) -> np.ndarray:
    """Permutation (n,) of the rows by the places of their targets in ``target_order``, the first of them first."""
    n_targets = len(target_order)
    position = inverse(as_permutation(target_order, n_targets))
    order = np.empty(len(indices), np.int64)
    call("sorting", f"lexicographic_{suffix(indices)}", indices, *indices.shape, position, n_targets, order)
    return order


def inverse(permutation: np.ndarray) -> np.ndarray:
    """The place of each number in a permutation (n,) int64."""
    place = np.empty(len(permutation), np.int64)
    place[permutation] = np.arange(len(permutation))
    return place


def renumbered(indices: np.ndarray, element_order: np.ndarray, target_order: np.ndarray) -> np.ndarray:
    """The same map after both sides took new numbers: algorithms run faster where neighbors are close in memory."""
    rows = np.empty((len(element_order), indices.shape[1]), indices.dtype)
    position = inverse(target_order)
    call("sorting", f"renumber_{suffix(indices)}", indices, *rows.shape, element_order, position, rows)
    return rows
