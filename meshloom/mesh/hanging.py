"""Cells that should meet and do not: nodes given twice, and nodes that hang on the side of another cell.

Both leave a slit inside the mesh whose two sides are boundary faces at the same place. A wall without thickness looks
the same, so only faces that nobody has put into a group are looked at: who names both sides of a slit means it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.mesh.connectivity import NodeLists
from meshloom.mesh.faces import equal_rows
from meshloom.mesh.faults import Fault
from meshloom.native.algorithms import distinct

_NEAR = 1e-3  # of the height of a cell, which may be much less than its length: what is nearer lies at one place
_CHUNK = 4096  # faces whose nodes nearby are looked at together


def check_slits(x: np.ndarray, ends: NodeLists, cells: np.ndarray, heights: np.ndarray, unnamed: np.ndarray) -> None:
    """No boundary face that is ``unnamed`` (b,) lies where another one is that has other nodes, and no node of the
    boundary lies on it but at its corners. ``ends``: the nodes of all of them, ``cells`` (b,) the cell of each, and
    ``heights`` (b,) the height of that."""
    if not unnamed.any():
        return
    from scipy.spatial import cKDTree  # here, because importing it takes longer than checking a small mesh

    used = distinct(ends.entries)
    tree = cKDTree(x[used])
    near = np.full(len(x), np.inf)  # by the least height of the cells at each node
    np.minimum.at(near, ends.entries, _NEAR * np.repeat(heights, ends.lengths))
    _check_twins(ends, cells, unnamed, _at_one_place(x, near, used, tree))
    for part in ends.sizes:
        numbers = np.arange(len(ends))[part.numbers]
        chosen = np.flatnonzero(unnamed[numbers])
        for rows in np.array_split(chosen, -(-len(chosen) // _CHUNK)) if len(chosen) else ():
            _check_insides(x, near, part.nodes[rows], cells[numbers[rows]], used, tree)


def _at_one_place(x: np.ndarray, near: np.ndarray, used: np.ndarray, tree: Any) -> np.ndarray:
    """For every node (n,) the first one of those of the boundary that lie where it does; itself for most."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    pairs = used[tree.query_pairs(near[used].max(), output_type="ndarray")]
    apart = np.linalg.norm(x[pairs[:, 0]] - x[pairs[:, 1]], axis=1)
    pairs = pairs[apart <= near[pairs].min(axis=1)]
    links = csr_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(x), len(x)))
    _, label = connected_components(links, directed=False)
    first = np.full(len(x), len(x), np.int64)
    np.minimum.at(first, label, np.arange(len(x)))
    return first[label]


def _check_twins(ends: NodeLists, cells: np.ndarray, unnamed: np.ndarray, first: np.ndarray) -> None:
    """No two faces have their corners at the same places, and other nodes there."""
    for part in ends.sizes:
        numbers, rows = np.arange(len(ends))[part.numbers], np.sort(first[part.nodes], axis=1)
        flat = (rows[:, 1:] == rows[:, :-1]).any(axis=1)  # to an edge, or a point
        numbers, rows, nodes = numbers[~flat], rows[~flat], part.nodes[~flat]
        if len(rows) == 0:
            continue
        order, starts = equal_rows(rows, len(first))
        several = starts[np.diff(np.append(starts, len(order))) > 1]
        for one, other in zip(order[several].tolist(), order[several + 1].tolist(), strict=True):
            if not unnamed[numbers[[one, other]]].any():
                continue
            here = next(node for node in nodes[one].tolist() if node not in nodes[other])
            there = next(node for node in nodes[other].tolist() if first[node] == first[here])
            raise Fault(
                "nodes {nodes} lie at one place: cells {cells[0]} and {cells[1]} are side by side there and do not"
                " meet; give them the same node, or both sides a boundary group if they are a wall",
                cells=sorted(cells[numbers[[one, other]]].tolist()), nodes=sorted((here, there)),
            )  # fmt: skip


def _check_insides(
    x: np.ndarray, near: np.ndarray, nodes: np.ndarray, cells: np.ndarray, used: np.ndarray, tree: Any
) -> None:
    """No node of those used lies on a face (m, k) of cells (m,), or on an edge of it, corners apart."""
    corners, k = x[nodes], nodes.shape[1]
    middle = corners.mean(axis=1)
    around = tree.query_ball_point(middle, np.linalg.norm(corners - middle[:, None], axis=2).max(axis=1))
    row = np.repeat(np.arange(len(nodes)), [len(one) for one in around])
    node = used[np.fromiter((number for one in around for number in one), np.int64, len(row))]
    within = np.minimum(near[node], near[nodes].min(axis=1)[row])
    away = np.linalg.norm(corners[row] - x[node][:, None], axis=2).min(axis=1) > within
    row, node, within = row[away], node[away], within[away]
    on = np.zeros(len(row), dtype=bool)
    for slot in range(k if k > 2 else 1):
        on |= _on_segment(x[node], corners[row, slot], corners[row, (slot + 1) % k], within)
    if k > 2:
        on |= _on_triangle(x[node], corners[row, 0], corners[row, 1], corners[row, 2], within)
    if k == 4:
        on |= _on_triangle(x[node], corners[row, 0], corners[row, 2], corners[row, 3], within)
    if on.any():
        at = int(np.argmax(on))
        raise Fault(
            "node {node} hangs on a side of cell {cells[0]} that has other nodes ({nodes} are all of them): cells must"
            " meet in whole sides; split that cell, or give the sides boundary groups if they are a wall",
            cells=[cells[row[at]]], nodes=[node[at], *nodes[row[at]]],
        )  # fmt: skip


def _on_segment(p: np.ndarray, a: np.ndarray, b: np.ndarray, within: np.ndarray) -> np.ndarray:
    along = b - a
    length = np.maximum((along * along).sum(axis=1), 1e-300)
    part = ((p - a) * along).sum(axis=1) / length
    off = np.linalg.norm(p - a - part[:, None] * along, axis=1)
    return (part > 0.0) & (part < 1.0) & (off <= within)


def _on_triangle(p: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, within: np.ndarray) -> np.ndarray:
    normal = np.cross(b - a, c - a)
    area = np.maximum((normal * normal).sum(axis=1), 1e-300)
    off = np.abs(((p - a) * normal).sum(axis=1)) / np.sqrt(area)
    second = (np.cross(p - a, c - a) * normal).sum(axis=1) / area
    third = (np.cross(b - a, p - a) * normal).sum(axis=1) / area
    return (second > 0) & (third > 0) & (second + third < 1.0) & (off <= within)
