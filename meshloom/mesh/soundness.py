"""Whether a mesh is one that can be computed on: what ``Mesh.check`` and every reader of files ask.

1. ``check_shapes``: every cell has a positive volume and does not cross itself.
2. ``check_sides``: every side of every cell belongs to exactly one face or boundary face, every face lies between the
   two cells it names, and its normal points from the first to the second. So the outward area vectors of each cell sum
   to zero, whatever the cells look like. A face may name nodes that a cell does not have if they lie at the same
   places: so a wake cut is joined. Where faces were derived from cells, this holds by construction.
3. ``check_crossings``: no face of a hexahedron crosses itself.
4. ``check_corners``: the angles of the cells round each node, solid ones in 3-D, make a full turn at most: cells that
   share a node do not overlap. That is how a wrong node number or a node that lies elsewhere is seen. Parts of a mesh
   that overlap without sharing a node are not looked for.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from meshloom.mesh import geometry
from meshloom.mesh.faces import CellKind, check_folds
from meshloom.mesh.faults import Fault

_SAME_PLACE = 1e-6  # of the size of a face: nodes on the two sides of a cut lie no further apart
_CHUNK = 16384  # faces whose intermediate arrays stay in the cache
_FULL_TURN = {2: 2.0 * np.pi, 3: 4.0 * np.pi}
_SLACK = 1e-6  # of a full turn


def check_shapes(x: np.ndarray, cells: np.ndarray, kind: CellKind) -> None:
    """Positive volumes, nothing folded over."""
    volumes = geometry.cell_volumes(x, cells, kind.name)
    wrong = ~((volumes > 0) & (volumes < np.inf))
    if wrong.any():
        cell = int(np.argmax(wrong))
        measure = "area" if kind.dimension == 2 else "volume"
        raise Fault(f"cell {{cells[0]}} has {_amount(volumes[cell], measure)}: nodes {{nodes}}; cells go round"
                    f" {'counter-clockwise' if kind.dimension == 2 else 'in VTK order'}",
                    cells=[cell], nodes=cells[cell])  # fmt: skip
    check_folds(x, cells, kind)


def _amount(volume: float, measure: str) -> str:
    if not np.isfinite(volume):
        return f"coordinates too large for its {measure} to be computed"
    return f"a negative {measure}, {volume:.3g}" if volume < 0 else f"no {measure}"


# ---- sides and faces ------------------------------------------------------------------------------------------------


def check_sides(
    x: np.ndarray,
    cells: np.ndarray,
    kind: CellKind,
    interior: tuple[np.ndarray, np.ndarray],
    boundary: tuple[np.ndarray, np.ndarray],
    whole_cells: int,
) -> None:
    """Faces (nodes (m, k) and cells (m, 2)), boundary faces (nodes (b, k) and cell (b, 1)) and cells fit together.

    The first ``whole_cells`` cells must have all their faces; those behind them are copies, which need not.
    """
    (nodes, pairs), (ends, single) = interior, boundary
    both = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if len(both):
        cell = pairs[both[0], 0]
        raise Fault(f"face {both[0]} {{nodes}} has the cell {{cells[0]}} on both sides", cells=[cell],
                    nodes=nodes[both[0]])  # fmt: skip
    keys = np.stack([_key(cells[:, list(side)]) for side in kind.faces], axis=1)
    counts = np.zeros(keys.size, dtype=np.int64)
    for label, loops, of, expected in (
        ("face", nodes, pairs[:, 0], 1),
        ("face", nodes, pairs[:, 1], -1),
        ("boundary face", ends, single[:, 0], 1),
    ):
        slot, turn = _sides_of(x, cells, keys, kind, loops, of)
        _check_turns(label, loops, of, turn, expected, cells)
        counts += np.bincount(of.astype(np.int64) * len(kind.faces) + slot, minlength=len(counts))
    counts[whole_cells * len(kind.faces) :][counts[whole_cells * len(kind.faces) :] == 0] = 1
    if (counts != 1).any():
        at = int(np.argmax(counts != 1))
        cell, side = divmod(at, len(kind.faces))
        problem = "belongs to no face" if counts[at] == 0 else f"belongs to {counts[at]} faces"
        raise Fault(f"the side {{nodes}} of cell {{cells[0]}} {problem}; it must belong to exactly one",
                    cells=[cell], nodes=cells[cell][list(kind.faces[side])])  # fmt: skip


def _check_turns(
    label: str, loops: np.ndarray, of: np.ndarray, turn: np.ndarray, expected: int, cells: np.ndarray
) -> None:
    wrong = np.flatnonzero(turn != expected)
    if len(wrong) == 0:
        return
    face, cell = int(wrong[0]), int(of[wrong[0]])
    if turn[face] == 0:
        around = ", ".join(map(str, cells[cell].tolist()))
        raise Fault(f"{label} {face} {{nodes}} is no side of its cell {{cells[0]}}, which has the nodes {around}",
                    cells=[cell], nodes=loops[face])  # fmt: skip
    direction = "out of its cell" if label != "face" else "from its first cell to its second"
    raise Fault(f"{label} {face} {{nodes}} goes round the wrong way at cell {{cells[0]}}: its normal must point"
                f" {direction}", cells=[cell], nodes=loops[face])  # fmt: skip


def _sides_of(
    x: np.ndarray, cells: np.ndarray, keys: np.ndarray, kind: CellKind, loops: np.ndarray, of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which side (m,) of its cell ``of`` (m,) each face is, and whether its nodes go round it as the side does (1), the
    other way (-1) or are not those of any side (0).

    Keys of sides (cells, sides) that do not depend on the order of nodes find the side, whose nodes are then compared
    one by one. What is not found by the numbers of nodes is looked for by their places.
    """
    slot, turn = np.empty(len(loops), dtype=np.int64), np.empty(len(loops), dtype=np.int64)
    for start in range(0, len(loops), _CHUNK):
        part = slice(start, start + _CHUNK)
        slot[part] = np.argmax(keys[of[part]] == _key(loops[part])[:, None], axis=1)
        sides = np.take_along_axis(cells[of[part]], np.array(kind.faces)[slot[part]], axis=1)
        turn[part] = _same_or_backwards(sides, loops[part])
    lost = np.flatnonzero(turn == 0)
    if len(lost):
        slot[lost], turn[lost] = _sides_by_place(x, cells[of[lost]], kind, loops[lost])
    return slot, turn


def _key(loops: np.ndarray) -> np.ndarray:
    """A number (m,) for the nodes of each loop (m, k), in whatever order: the sum of them spread over 64 bits."""
    total = np.zeros(len(loops), dtype=np.uint64)
    for nodes in loops.T:
        mixed = (nodes.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        total += (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xC2B2AE3D27D4EB4F)
    return total


def _same_or_backwards(sides: np.ndarray, loops: np.ndarray) -> np.ndarray:
    """1 where two loops of nodes (m, k) are the same, -1 where one is the other backwards, else 0."""
    k = sides.shape[1]
    rows, at = np.arange(len(sides)), np.argmax(loops == sides[:, :1], axis=1)
    along, against = np.ones(len(sides), dtype=bool), np.ones(len(sides), dtype=bool)
    if k == 2:  # two ends make no loop: which comes first is the sense
        along, against = at == 0, at == 1
    for step in range(k):
        along &= loops[rows, (at + step) % k] == sides[:, step]
        against &= loops[rows, (at - step) % k] == sides[:, step]
    return np.where(along, 1, np.where(against, -1, 0))


def _sides_by_place(
    x: np.ndarray, cells: np.ndarray, kind: CellKind, loops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same for faces (m, k) and the nodes (m, n) of their cells, by coordinates."""
    wanted, k = x[loops], loops.shape[1]
    slot, turn = np.zeros(len(loops), dtype=np.int64), np.zeros(len(loops), dtype=np.int64)
    size = np.linalg.norm(np.ptp(wanted, axis=1), axis=1, keepdims=True)
    along = [np.roll(np.arange(k), shift) for shift in range(k if k > 2 else 1)]
    orders = [*((1, order) for order in along), *((-1, order[::-1]) for order in along)]
    for side, (sense, order) in product(range(len(kind.faces)), orders):
        apart = np.linalg.norm(x[cells[:, list(kind.faces[side])]] - wanted[:, order], axis=2)
        here = (turn == 0) & (apart <= _SAME_PLACE * size).all(axis=1)
        slot[here], turn[here] = side, sense
    return slot, turn


def check_crossings(
    x: np.ndarray,
    cells: np.ndarray,
    interior: tuple[np.ndarray, np.ndarray],
    boundary: tuple[np.ndarray, np.ndarray],
) -> None:
    """No face (nodes (m, k), cells (m, 1 or 2)) of four nodes in space crosses itself; being warped is no fault.

    A warped face of a flat cell may look crossed, seen along its own normal: it is not, where all corners of its cells
    and their middles have positive volumes.
    """
    for loops, of in (interior, boundary):
        if loops.shape[1] != 4:
            return
        suspects = np.flatnonzero(geometry.inward_corners(x, loops).sum(axis=1) > 1)
        beside = cells[of[suspects].reshape(-1)]
        positive = (geometry.corner_volumes(x, beside, "hexahedron") > 0).all(axis=1)
        positive &= geometry.middle_volumes(x, beside) > 0
        crossed = suspects[~positive.reshape(-1, of.shape[1]).all(axis=1)]
        if len(crossed):
            face = int(crossed[0])
            whose = "cell {cells}" if of.shape[1] == 1 else "cells {cells[0]} and {cells[1]}"
            raise Fault(f"the face {{nodes}} of {whose} crosses itself", cells=of[face], nodes=loops[face])


# ---- angles ---------------------------------------------------------------------------------------------------------


def check_corners(x: np.ndarray, cells: np.ndarray, kind: CellKind, boundary: tuple[np.ndarray, np.ndarray]) -> None:
    """The cells round each node fill a full turn at most.

    They hang together in fans that end at boundary faces. In one fan of at most a full turn nothing overlaps; where
    several meet at a node, they are laid out side by side (in 2-D).
    """
    angles = geometry.corner_angles(x, cells, kind.name)
    full_turns = np.bincount(cells.reshape(-1), angles.reshape(-1), minlength=len(x)) / _FULL_TURN[kind.dimension]
    if kind.dimension == 3 and not (full_turns <= 1.0 + _SLACK).all():  # those of needles are known to some digits only
        doubts = geometry.solid_angle_errors(x, cells, kind.name)
        full_turns -= np.bincount(cells.reshape(-1), doubts.reshape(-1), minlength=len(x)) / _FULL_TURN[3]
    node = int(np.argmax(full_turns))  # NaN counts as the largest
    if not full_turns[node] <= 1.0 + _SLACK:
        ends, single = boundary  # cells without a neighbour first: who does not belong here has none
        alone = np.unique(single[(ends == node).any(axis=1)])
        around = np.append(alone, np.setdiff1d(np.flatnonzero((cells == node).any(axis=1)), alone))
        raise Fault(f"cells {{cells}} overlap: round their node {{node}} they fill {full_turns[node]:.6g} full turns",
                    cells=around, nodes=[node])  # fmt: skip
    if kind.dimension == 2:
        _check_fans(x, cells, angles, np.bincount(boundary[0].reshape(-1), minlength=len(x)) > 2)


def _check_fans(x: np.ndarray, cells: np.ndarray, angles: np.ndarray, meeting: np.ndarray) -> None:
    """Corners (m, k) with these angles do not overlap round the nodes of which ``meeting`` (n,) is true."""
    cell, slot = np.nonzero(meeting[cells] & (angles > _SLACK))
    node = cells[cell, slot]
    next_edge = x[cells[cell, (slot + 1) % cells.shape[1]]] - x[node]
    begin = np.arctan2(next_edge[:, 1], next_edge[:, 0])  # corners go counter-clockwise from here
    order = np.lexsort((begin, node))
    cell, node, begin, end = cell[order], node[order], begin[order], (begin + angles[cell, slot])[order]
    last = np.append(node[1:] != node[:-1], True)[: len(node)]
    first = np.flatnonzero(np.append(True, last[:-1])) if len(node) else np.zeros(0, dtype=np.int64)
    after = np.append(np.arange(1, len(node)), 0)[: len(node)]
    after[last] = first
    wrong = np.flatnonzero(end > begin[after] + np.where(last, _FULL_TURN[2], 0.0) + _SLACK)
    if len(wrong):
        at = wrong[0]
        raise Fault("cells {cells[0]} and {cells[1]} overlap at their node {node}",
                    cells=[cell[at], cell[after[at]]], nodes=[node[at]])  # fmt: skip
