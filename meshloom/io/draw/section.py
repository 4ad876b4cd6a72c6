"""A plane cut through the cells of a mesh in space.

The plane is one of constant x, y or z. Every cell has nodes on both sides of it or is not cut; a node on the plane
counts as above it, so that a face that lies in the plane is met once, from below. The polygon of a cut cell has a
corner on each of its edges that crosses the plane, in the order of their angles about its middle: cells are convex.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from meshloom.mesh.cell_kinds import CellKind
from meshloom.mesh.connected import local_edges
from meshloom.mesh.connectivity import CellTable, NodeLists, SizeBlock, starts_of
from meshloom.native.algorithms import distinct
from meshloom.records import dataclass


@dataclass(frozen=True)
class Section:
    """Polygons over ``points`` (m, 2), and of each the number of its cell (n,).

    Point k lies on the edge from node ``ends[k, 0]`` to ``ends[k, 1]``, at the part ``share[k]`` of its length.
    """

    points: np.ndarray
    polygons: NodeLists
    cells: np.ndarray
    ends: np.ndarray
    share: np.ndarray

    def at_points(self, values: np.ndarray) -> np.ndarray:
        """Values of nodes (nodes, ...) at the points, linear along the edges."""
        first, second = values[self.ends[:, 0]], values[self.ends[:, 1]]
        share = self.share.reshape(-1, *[1] * (values.ndim - 1))
        return first + share * (second - first)


def section(x: np.ndarray, cells: CellTable, axis: int, place: float) -> Section:
    """The cut of ``cells`` with nodes at ``x`` (nodes, 3) where coordinate ``axis`` is ``place``; the two others are
    those of the points, in their order."""
    height = x[:, axis] - place
    above = height >= 0.0
    if above.all():  # the plane of the lowest nodes is that of the cells above it
        above = height > 0.0
    plane = np.delete(x, axis, axis=1)
    blocks, starts, numbers, ends, shares = [], 0, list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for block in cells.blocks:
        sides = above[block.nodes]
        cut = np.flatnonzero(sides.any(axis=1) & ~sides.all(axis=1))
        of, pairs, share = _crossings(block.nodes[cut], sides[cut], height, edges_of(block.kind))
        turned = _round_the_middle(_between(plane, pairs, share), of, len(cut))
        counts = np.bincount(of, minlength=len(cut))
        first = starts_of(counts)
        for size in distinct(counts):
            those = np.flatnonzero(counts == size)
            rows = starts + first[those][:, None] + np.arange(size)
            blocks.append(rows)
            numbers.append(block.listed(len(cells))[cut[those]])
        ends.append(pairs[turned])
        shares.append(share[turned])
        starts += len(of)
    found, share = np.concatenate(ends), np.concatenate(shares)
    listed, of_cell = _joined(blocks), np.concatenate([*numbers, np.zeros(0, np.int64)])
    return Section(_between(plane, found, share), listed, of_cell, found, share)


@cache
def edges_of(kind: CellKind) -> tuple[tuple[int, int], ...]:
    """The edges of a kind of cell, each once, by local nodes."""
    return tuple(sorted((min(pair), max(pair)) for pair in local_edges(kind)))


def _crossings(
    nodes: np.ndarray, above: np.ndarray, height: np.ndarray, edges: tuple[tuple[int, int], ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of cells (n, k): the cell (p,), the two nodes (p, 2) and the part of the edge (p,) of every crossing, by cell."""
    first, second = (np.array(one) for one in zip(*edges, strict=True))
    of, edge = np.nonzero(above[:, first] != above[:, second])
    pairs = np.stack((nodes[of, first[edge]], nodes[of, second[edge]]), axis=1)
    low, high = height[pairs[:, 0]], height[pairs[:, 1]]
    return of, pairs, low / (low - high)


def _between(places: np.ndarray, pairs: np.ndarray, share: np.ndarray) -> np.ndarray:
    return places[pairs[:, 0]] + share[:, None] * (places[pairs[:, 1]] - places[pairs[:, 0]])


def _round_the_middle(points: np.ndarray, of: np.ndarray, count: int) -> np.ndarray:
    """The order in which points (p, 2) of cells ``of`` (p,) go around their cells, cell by cell."""
    counts = np.maximum(np.bincount(of, minlength=count), 1)
    middle = np.stack([np.bincount(of, points[:, a], minlength=count) / counts for a in (0, 1)], axis=1)
    away = points - middle[of]
    return np.lexsort((np.arctan2(away[:, 1], away[:, 0]), of))


def _joined(blocks: list[np.ndarray]) -> NodeLists:
    """All polygons, block after block."""
    if not blocks:
        return NodeLists.of_rows(np.zeros((0, 3), np.int64))
    if len({rows.shape[1] for rows in blocks}) == 1:
        return NodeLists.of_rows(np.concatenate(blocks))
    begins = np.concatenate((np.zeros(1, np.int64), np.cumsum([len(rows) for rows in blocks])))
    return NodeLists.of_sizes(int(begins[-1]), _runs(blocks, begins))


def _runs(blocks: list[np.ndarray], begins: np.ndarray) -> list[SizeBlock]:
    """One for each number of corners: blocks may share one."""
    found = []
    for size in sorted({rows.shape[1] for rows in blocks}):
        own = [k for k, rows in enumerate(blocks) if rows.shape[1] == size]
        numbers = np.concatenate([np.arange(begins[k], begins[k + 1]) for k in own])
        found.append(SizeBlock(numbers, np.concatenate([blocks[k] for k in own])))
    return found
