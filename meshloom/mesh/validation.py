"""Whether a mesh is one that can be computed on: what ``Mesh.check`` and every reader of files ask.

1. ``check_shapes``: every cell has a positive volume and does not cross itself.
2. ``check_sides``: every side of every cell belongs to exactly one face or boundary face, every face lies between the
   two cells it names, and its normal points from the first to the second. So the outward area vectors of each cell sum
   to zero, whatever the cells look like. A face may name nodes that a cell does not have if they lie at the same
   places: so a wake cut is joined. Where faces were derived from cells, this holds by construction.
3. ``check_crossings``: no face of four nodes in space crosses itself.
4. ``check_corners``: the angles of the cells around each node, solid ones in 3-D, make a full turn at most: cells that
   share a node do not overlap. That is how a wrong node number or a node that lies elsewhere is seen. Parts of a mesh
   that overlap without sharing a node are not looked for.
5. ``check_slits``: cells that should meet do, with no node given twice, and none that hangs on the side of another
   cell. Both leave a slit inside the mesh whose two sides are boundary faces at the same place. A wall without
   thickness looks the same, so only faces that nobody has put into a group are looked at: who names both sides of a
   slit means it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from meshloom.mesh import corners
from meshloom.mesh.connectivity import CellTable, NodeLists
from meshloom.mesh.faces import check_folds, equal_rows
from meshloom.mesh.geometry import cell_volumes
from meshloom.mesh.joints import Joints
from meshloom.mesh.validation_error import ValidationError
from meshloom.native.algorithms import distinct
from meshloom.target import CPU

_SAME_PLACE = 1e-6  # of the size of a face: nodes on the two sides of a cut lie no further apart
_FULL_TURN = {2: 2.0 * np.pi, 3: 4.0 * np.pi}
_SLACK = 1e-6  # of a full turn
_NEAR = 1e-3  # of the height of a cell, which may be much less than its length: what is nearer lies at one place
_TOGETHER = 4096  # faces whose nodes nearby are looked at together


def check_shapes(x: np.ndarray, cells: CellTable) -> None:
    """Positive volumes, nothing folded over."""
    for block in cells.blocks:
        kind = block.kind
        volumes = cell_volumes(x, block.nodes, kind.name)
        wrong = ~((volumes > 0) & (volumes < np.inf))
        if wrong.any():
            at = int(np.argmax(wrong))
            measure = "area" if kind.dimension == 2 else "volume"
            raise ValidationError(f"cell {{cells[0]}} has {_amount(volumes[at], measure)}: nodes {{nodes}}; cells go"
                                  f" round {'counter-clockwise' if kind.dimension == 2 else 'in VTK order'}",
                                  cells=[block.listed(len(cells))[at]], nodes=block.nodes[at])  # fmt: skip
    check_folds(x, cells)


def _amount(volume: float, measure: str) -> str:
    if not np.isfinite(volume):
        return f"coordinates too large for its {measure} to be computed"
    return f"a negative {measure}, {volume:.3g}" if volume < 0 else f"no {measure}"


# ---- sides and faces ------------------------------------------------------------------------------------------------


def check_sides(
    x: np.ndarray,
    cells: CellTable,
    interior: tuple[NodeLists, np.ndarray],
    boundary: tuple[NodeLists, np.ndarray],
    whole_cells: int,
    joints: Joints,
) -> None:
    """Faces (nodes and cells (m, 2)), boundary faces (nodes and cell (b, 1)) and cells fit together.

    The first ``whole_cells`` cells must have all their faces; those behind them are copies, which need not. ``joints``:
    the faces between periodic sides.
    """
    (nodes, pairs), (ends, single) = interior, boundary
    both = np.setdiff1d(np.flatnonzero(pairs[:, 0] == pairs[:, 1]), joints.faces)
    if len(both):
        cell = pairs[both[0], 0]
        raise ValidationError(f"face {both[0]} {{nodes}} has the cell {{cells[0]}} on both sides", cells=[cell],
                              nodes=nodes[both[0]])  # fmt: skip
    counts = np.zeros(cells.sides[-1], dtype=np.int64)
    for label, lists, of, expected in (
        ("face", nodes, pairs[:, 0], 1),
        ("face", joints.second(nodes), pairs[:, 1], -1),
        ("boundary face", ends, single[:, 0], 1),
    ):
        slot, turn = _sides_of(x, cells, lists, of)
        _check_turns(label, lists, of, turn, expected, cells)
        counts += np.bincount(cells.sides[of] + slot, minlength=len(counts))
    copies = counts[cells.sides[whole_cells] :]
    copies[copies == 0] = 1
    if (counts != 1).any():
        at = int(np.argmax(counts != 1))
        cell = int(np.searchsorted(cells.sides, at, side="right")) - 1
        problem = "belongs to no face" if counts[at] == 0 else f"belongs to {counts[at]} faces"
        raise ValidationError(f"the side {{nodes}} of cell {{cells[0]}} {problem}; it must belong to exactly one",
                              cells=[cell], nodes=_side(cells, cell, at - int(cells.sides[cell])))  # fmt: skip


def _side(cells: CellTable, cell: int, slot: int) -> np.ndarray:
    """The nodes of one side of one cell."""
    kind = next(block.kind for block in cells.blocks if cell in block.listed(len(cells)))
    return cells.nodes[cell][list(kind.faces[slot])]


def _check_turns(
    label: str, loops: NodeLists, of: np.ndarray, turn: np.ndarray, expected: int, cells: CellTable
) -> None:
    wrong = np.flatnonzero(turn != expected)
    if len(wrong) == 0:
        return
    face, cell = int(wrong[0]), int(of[wrong[0]])
    if turn[face] == 0:
        around = ", ".join(map(str, cells.nodes[cell].tolist()))
        raise ValidationError(f"{label} {face} {{nodes}} is no side of its cell {{cells[0]}}, which has the nodes"
                              f" {around}", cells=[cell], nodes=loops[face])  # fmt: skip
    direction = "out of its cell" if label != "face" else "from its first cell to its second"
    raise ValidationError(f"{label} {face} {{nodes}} goes around the wrong way at cell {{cells[0]}}: its normal must"
                          f" point {direction}", cells=[cell], nodes=loops[face])  # fmt: skip


def _sides_of(x: np.ndarray, cells: CellTable, faces: NodeLists, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which side (m,) of its cell ``of`` (m,) each face is, and whether its nodes go around as the side's do (1), the
    other way (-1) or are not those of any side (0)."""
    slot, turn = np.zeros(len(faces), dtype=np.int64), np.zeros(len(faces), dtype=np.int64)
    row_of = np.empty(len(cells), np.int64)  # in the block that is looked at
    for block in cells.blocks:
        row_of[:] = -1
        row_of[block.numbers] = np.arange(len(block.nodes))
        for part in faces.sizes:
            slots = block.kind.slots(part.nodes.shape[1])
            row = row_of[of[part.numbers]]
            here = np.flatnonzero(row >= 0)
            if slots and len(here):
                numbers = np.arange(len(faces))[part.numbers][here]
                sides = np.array([block.kind.faces[one] for one in slots])
                found, turn[numbers] = _sides_among(x, block.nodes, sides, part.nodes[here], row[here])
                slot[numbers] = np.array(slots)[found]
    return slot, turn


def _sides_among(
    x: np.ndarray, cells: np.ndarray, sides: np.ndarray, loops: np.ndarray, of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same for faces (m, k) of cells (c, n) of one kind, of which ``sides`` (s, k) have that number of nodes.

    Keys of sides (c, s) that do not depend on the order of nodes find the side, whose nodes are then compared
    one by one. What is not found by the numbers of nodes is looked for by their places.
    """
    keys = np.stack([_key(cells[:, side]) for side in sides], axis=1)
    slot, turn = np.empty(len(loops), dtype=np.int64), np.empty(len(loops), dtype=np.int64)
    chunk = CPU.cpu.arrays.chunk
    for start in range(0, len(loops), chunk):
        part = slice(start, start + chunk)
        slot[part] = np.argmax(keys[of[part]] == _key(loops[part])[:, None], axis=1)
        found = np.take_along_axis(cells[of[part]], sides[slot[part]], axis=1)
        turn[part] = _same_or_backwards(found, loops[part])
    lost = np.flatnonzero(turn == 0)
    if len(lost):
        slot[lost], turn[lost] = _sides_by_place(x, cells[of[lost]], sides, loops[lost])
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
    x: np.ndarray, cells: np.ndarray, sides: np.ndarray, loops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same for faces (m, k) and the nodes (m, n) of their cells, by coordinates."""
    wanted, k = x[loops], loops.shape[1]
    slot, turn = np.zeros(len(loops), dtype=np.int64), np.zeros(len(loops), dtype=np.int64)
    size = np.linalg.norm(np.ptp(wanted, axis=1), axis=1, keepdims=True)
    along = [np.roll(np.arange(k), shift) for shift in range(k if k > 2 else 1)]
    orders = [*((1, order) for order in along), *((-1, order[::-1]) for order in along)]
    for side, (sense, order) in product(range(len(sides)), orders):
        apart = np.linalg.norm(x[cells[:, sides[side]]] - wanted[:, order], axis=2)
        here = (turn == 0) & (apart <= _SAME_PLACE * size).all(axis=1)
        slot[here], turn[here] = side, sense
    return slot, turn


def check_crossings(
    x: np.ndarray,
    cells: CellTable,
    interior: tuple[NodeLists, np.ndarray],
    boundary: tuple[NodeLists, np.ndarray],
) -> None:
    """No face (nodes, cells (m, 1 or 2)) of four nodes in space crosses itself; being warped is no fault.

    A warped face of a flat cell may look crossed, seen along its own normal: it is not, where all corners of its cells
    and their middles have positive volumes.
    """
    for lists, of in (interior, boundary):
        for part in (part for part in lists.sizes if part.nodes.shape[1] == 4):
            suspects = np.flatnonzero(corners.inward_corners(x, part.nodes).sum(axis=1) > 1)
            cells_of_face = of[part.numbers][suspects]
            crossed = np.flatnonzero(~_surely_sound(x, cells, cells_of_face).all(axis=1))
            if len(crossed):
                whose = "cell {cells}" if of.shape[1] == 1 else "cells {cells[0]} and {cells[1]}"
                raise ValidationError(f"the face {{nodes}} of {whose} crosses itself", cells=cells_of_face[crossed[0]],
                                      nodes=part.nodes[suspects[crossed[0]]])  # fmt: skip


def _surely_sound(x: np.ndarray, cells: CellTable, numbers: np.ndarray) -> np.ndarray:
    """Whether all corners of these cells, and their middles, have positive volumes; of the shape of the numbers."""
    sound = np.zeros(numbers.shape, dtype=bool)
    row_of = np.empty(len(cells), np.int64)
    for block in cells.blocks if numbers.size else ():
        row_of[:] = -1
        row_of[block.numbers] = np.arange(len(block.nodes))
        here = row_of[numbers] >= 0
        nodes, kind = block.nodes[row_of[numbers[here]]], block.kind.name
        positive = (corners.corner_volumes(x, nodes, kind) > 0).all(axis=1)
        sound[here] = positive & (corners.middle_volumes(x, nodes, kind) > 0)
    return sound


# ---- angles ---------------------------------------------------------------------------------------------------------


def check_corners(x: np.ndarray, cells: CellTable, boundary: tuple[NodeLists, np.ndarray]) -> None:
    """The cells around each node fill a full turn at most.

    They hang together in fans that end at boundary faces. In one fan of at most a full turn nothing overlaps; where
    several meet at a node, they are laid out side by side (in 2-D).
    """
    dimension = x.shape[1]
    angles = [corners.corner_angles(x, block.nodes, block.kind.name) for block in cells.blocks]
    full_turns = _at_nodes(cells, angles, len(x)) / _FULL_TURN[dimension]
    if dimension == 3 and not (full_turns <= 1.0 + _SLACK).all():  # those of needles are known to some digits only
        doubts = [corners.solid_angle_errors(x, block.nodes, block.kind.name) for block in cells.blocks]
        full_turns -= _at_nodes(cells, doubts, len(x)) / _FULL_TURN[3]
    node = int(np.argmax(full_turns))  # NaN counts as the largest
    if not full_turns[node] <= 1.0 + _SLACK:
        ends, single = boundary  # cells without a neighbour first: who does not belong here has none
        alone = distinct(single[_those_with(ends, node)])
        around = np.append(alone, np.setdiff1d(_those_with(cells.nodes, node), alone))
        raise ValidationError(f"cells {{cells}} overlap: around their node {{node}} they fill"
                              f" {full_turns[node]:.6g} full turns", cells=around, nodes=[node])  # fmt: skip
    if dimension == 2:
        _check_fans(x, cells, angles, np.bincount(boundary[0].entries, minlength=len(x)) > 2)


def _at_nodes(cells: CellTable, values: list[np.ndarray], n_nodes: int) -> np.ndarray:
    """Sums at nodes of values at the corners of cells, (m, k) for each block."""
    total = np.zeros(n_nodes)
    for block, here in zip(cells.blocks, values, strict=True):
        total += np.bincount(block.nodes.reshape(-1), here.reshape(-1), minlength=n_nodes)
    return total


def _those_with(lists: NodeLists, node: int) -> np.ndarray:
    """The elements that have a node."""
    return distinct(np.searchsorted(lists.starts, np.flatnonzero(lists.entries == node), side="right") - 1)


def _check_fans(x: np.ndarray, cells: CellTable, angles: list[np.ndarray], meeting: np.ndarray) -> None:
    """Corners (m, k) with these angles do not overlap around the nodes of which ``meeting`` (n,) is true."""
    found = [_open_corners(block.listed(len(cells)), block.nodes, here, meeting)
             for block, here in zip(cells.blocks, angles, strict=True)]  # fmt: skip
    cell, node, beyond, angle = (np.concatenate(parts) for parts in zip(*found, strict=True))
    next_edge = x[beyond] - x[node]
    begin = np.arctan2(next_edge[:, 1], next_edge[:, 0])  # corners go counter-clockwise from here
    order = np.lexsort((begin, node))
    cell, node, begin, end = cell[order], node[order], begin[order], (begin + angle)[order]
    last = np.append(node[1:] != node[:-1], True)[: len(node)]
    first = np.flatnonzero(np.append(True, last[:-1])) if len(node) else np.zeros(0, dtype=np.int64)
    after = np.append(np.arange(1, len(node)), 0)[: len(node)]
    after[last] = first
    wrong = np.flatnonzero(end > begin[after] + np.where(last, _FULL_TURN[2], 0.0) + _SLACK)
    if len(wrong):
        at = wrong[0]
        raise ValidationError("cells {cells[0]} and {cells[1]} overlap at their node {node}",
                              cells=[cell[at], cell[after[at]]], nodes=[node[at]])  # fmt: skip


def _open_corners(
    numbers: np.ndarray, nodes: np.ndarray, angles: np.ndarray, meeting: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of cells (m,) with nodes (m, k) the corners to look at: cell, node, the next node, angle."""
    row, slot = np.nonzero(meeting[nodes] & (angles > _SLACK))
    return numbers[row], nodes[row, slot], nodes[row, (slot + 1) % nodes.shape[1]], angles[row, slot]


# ---- slits ----------------------------------------------------------------------------------------------------------


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
        for rows in np.array_split(chosen, -(-len(chosen) // _TOGETHER)) if len(chosen) else ():
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
            raise ValidationError(
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
        raise ValidationError(
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
