"""Faces of large meshes from the sides of their cells, compiled from ``face_matching.cpp`` at first use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshloom.errors import MeshError
from meshloom.native import threads
from meshloom.native.ffi import as_indices, as_offsets, call, suffix

_MOST = 4  # nodes of a side
Sides = Sequence[Sequence[int]]  # of a kind of cell: the local nodes of each, outward


def faces_of_sides(
    entries: np.ndarray, starts: np.ndarray, kind_of: np.ndarray, kinds: Sequence[Sides], n_nodes: int
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]] | None:
    """Interior and boundary faces: where the nodes of each start, these, and its cells, (m, 2) or (b,).

    Cell c has the nodes ``entries[starts[c]:starts[c + 1]]`` and the sides of ``kinds[kind_of[c]]``. Faces are numbered
    as the cells meet them, and have the nodes of their earlier cell. None where sides do not fit: three are the same,
    or two that meet go around in the same sense.
    """
    nodes = as_indices(entries, n_nodes)[:, 0]
    first = as_offsets(starts, len(nodes))
    of = np.ascontiguousarray(kind_of, np.int8)
    lengths = np.array([1 + max(node for side in sides for node in side) for sides in kinds])
    if len(of) != len(first) - 1 or (len(of) and not (of.min() >= 0 and of.max() < len(kinds))):
        raise MeshError(f"{len(first) - 1} cells need as many kinds, numbers from 0 to {len(kinds) - 1}")
    if (np.diff(first) < lengths[of]).any() or any(len(side) > _MOST for sides in kinds for side in sides):
        raise MeshError(f"cells must have the nodes that their sides name, and sides {_MOST} nodes at most")
    counts = np.array([len(sides) for sides in kinds], np.int64)
    sizes, local = np.zeros((len(kinds), counts.max()), np.int64), np.zeros((len(kinds), counts.max(), _MOST), np.int64)
    for kind, sides in enumerate(kinds):
        for slot, side in enumerate(sides):
            sizes[kind, slot], local[kind, slot, : len(side)] = len(side), side
    first_side = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts[of])))
    cells = (nodes, first, first_side, of, len(of), counts, sizes, local, int(counts.max()))
    runs = int(threads.in_use[0])
    beyond, totals = np.empty(int(first_side[-1]), nodes.dtype), np.zeros(4 * runs + 1, np.int64)
    call("face_matching", f"match_sides_{suffix(nodes)}", *cells, n_nodes, beyond, totals, runs)
    if totals[-1]:
        return None
    ends = np.cumsum(totals[:-1].reshape(runs, 4), axis=0)
    before = np.concatenate((np.zeros((1, 4), np.int64), ends[:-1]))
    count, length, alone, alone_length = ends[-1].tolist()
    inside = np.zeros(count + 1, np.int64), np.empty(length, nodes.dtype), np.empty((count, 2), nodes.dtype)
    outside = np.zeros(alone + 1, np.int64), np.empty(alone_length, nodes.dtype), np.empty(alone, nodes.dtype)
    call("face_matching", f"fill_faces_{suffix(nodes)}", *cells, beyond, before, runs, *inside, *outside)
    return inside, outside
