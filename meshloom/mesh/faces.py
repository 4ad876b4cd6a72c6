"""Faces from cells: every face of every cell is listed, equal ones meet, and what meets nothing is boundary.

1. ``oriented_cells`` turns each cell the right way round (positive volume) or names the cell that cannot be.
2. Each cell then lists its faces with their nodes in outward order: the "half faces", cell by cell.
3. Half faces with the same nodes are brought together by one sort of a 64-bit key of their sorted nodes.
   Two make an interior face, one alone a boundary face; three or more are an error.
4. A face keeps the node order of its owner, the smaller of its two cells, so its normal points from owner to
   neighbor, and out of the domain on the boundary. Faces are numbered in the order the cells meet them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, known_name
from meshloom.mesh.faults import Fault
from meshloom.mesh.geometry import cell_volumes, corner_volumes, inward_corners
from meshloom.mesh.values import as_array


@dataclass(frozen=True)
class CellKind:
    """One kind of cell: its dimension, its number of nodes and the local nodes of each face in outward order."""

    name: str
    dimension: int
    nodes: int
    faces: tuple[tuple[int, ...], ...]
    mirrored: tuple[int, ...]  # the node order that turns an inside-out cell the right way round

    @property
    def face_nodes(self) -> int:
        return len(self.faces[0])


#: Outward in 2-D means (dy, -dx) of first minus second node, in 3-D the right-hand rule; node order of VTK.
KINDS = {
    kind.name: kind
    for kind in (
        CellKind("triangle", 2, 3, ((1, 0), (2, 1), (0, 2)), (0, 2, 1)),
        CellKind("quad", 2, 4, ((1, 0), (2, 1), (3, 2), (0, 3)), (0, 3, 2, 1)),
        CellKind("tetrahedron", 3, 4, ((0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)), (0, 2, 1, 3)),
        CellKind(
            "hexahedron",
            3,
            8,
            ((0, 3, 2, 1), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)),
            (4, 5, 6, 7, 0, 1, 2, 3),
        ),
    )
}


def cell_kind(name: str) -> CellKind:
    """The kind of that name."""
    return KINDS[known_name("cell kind", name, KINDS, error=MeshError)]


@dataclass(frozen=True)
class Faces:
    """Interior faces: nodes (m, k) and cells (m, 2), owner < neighbor. Boundary: nodes (b, k) and cell (b,)."""

    nodes: np.ndarray
    cells: np.ndarray
    boundary_nodes: np.ndarray
    boundary_cells: np.ndarray


def checked_cells(cell_nodes: ArrayLike, kind: CellKind, n_nodes: int) -> np.ndarray:
    """``cell_nodes`` as int32 (int64 where needed), after checking shape, range and repeated nodes."""
    cells = as_array(cell_nodes, "cell nodes")
    if cells.ndim != 2 or cells.shape[1] != kind.nodes:
        raise MeshError(f"cell nodes of {kind.name} cells: expected shape (n, {kind.nodes}), got {cells.shape}")
    if not np.issubdtype(cells.dtype, np.integer):
        raise MeshError(f"cell nodes must be integers, got {cells.dtype}")
    if len(cells) == 0:
        raise MeshError("a mesh needs at least one cell")
    outside = ((cells < 0) | (cells >= n_nodes)).any(axis=1)
    if outside.any():
        cell = int(np.argmax(outside))
        raise Fault(f"cell {{cells[0]}} has nodes {{nodes}}, but nodes go from 0 to {n_nodes - 1}",
                    cells=[cell], nodes=cells[cell])  # fmt: skip
    cells = cells.astype(np.int32 if n_nodes < 2**31 else np.int64)
    ordered = np.sort(cells, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if repeated.any():
        cell = int(np.argmax(repeated))
        raise Fault("cell {cells[0]} names a node twice: {nodes}; its nodes must differ",
                    cells=[cell], nodes=cells[cell])  # fmt: skip
    return cells


def oriented_cells(x: np.ndarray, cells: np.ndarray, kind: CellKind) -> np.ndarray:
    """The cells with positive volume: inside-out ones are mirrored, flat or folded ones are refused.

    One corner may point inwards (a quadrilateral like an arrow head); two mean that the nodes do not go round. In 3-D a
    side may be such a quadrilateral, and sides may be warped.
    """
    volumes = cell_volumes(x, cells, kind.name)
    inverted = volumes < 0
    if inverted.any():
        cells = cells.copy()
        cells[inverted] = cells[inverted][:, kind.mirrored]
    measure = "area" if kind.dimension == 2 else "volume"
    wrong = ~(np.abs(volumes) > 0) | np.isinf(volumes)
    if wrong.any():
        cell = int(np.argmax(wrong))
        problem = f"no {measure}" if volumes[cell] == 0 else f"coordinates too large for its {measure} to be computed"
        raise Fault(f"cell {{cells[0]}} has {problem}: nodes {{nodes}}", cells=[cell], nodes=cells[cell])
    check_folds(x, cells, kind)
    return cells


def check_folds(x: np.ndarray, cells: np.ndarray, kind: CellKind) -> None:
    """No oriented cell is folded over; triangles and tetrahedra cannot be."""
    if kind.name not in ("quad", "hexahedron"):
        return
    inverted = corner_volumes(x, cells, kind.name) < 0
    folded = inverted.sum(axis=1) > 1
    if kind.dimension == 3 and folded.any():
        folded[folded] = _crossing(x, cells[folded], inverted[folded], kind)
    if folded.any():
        cell = int(np.argmax(folded))
        raise Fault(f"cell {{cells[0]}} is folded over: nodes {{nodes}} do not go round a {kind.name} in VTK order",
                    cells=[cell], nodes=cells[cell])  # fmt: skip


def _crossing(x: np.ndarray, cells: np.ndarray, inverted: np.ndarray, kind: CellKind) -> np.ndarray:
    """Of hexahedra with inverted corners (m, 8), those that cross themselves, (m,).

    A side like an arrow head inverts the corner that points inwards, and is no harm: that corner is excused. A cell
    crosses itself if one of its sides does, or if two corners are left without an excuse.
    """
    excused, crossed = np.zeros_like(inverted), np.zeros(len(cells), dtype=bool)
    for local in map(list, kind.faces):
        inwards = inward_corners(x, cells[:, local])
        excused[:, local] |= inwards
        crossed |= inwards.sum(axis=1) > 1
    return crossed | ((inverted & ~excused).sum(axis=1) > 1)


def derive_faces(cells: np.ndarray, kind: CellKind, n_nodes: int) -> Faces:
    """Interior and boundary faces of checked and oriented cells."""
    halves = cells[:, np.array(kind.faces)].reshape(-1, kind.face_nodes)
    order, starts = _equal_rows(np.sort(halves, axis=1), n_nodes)
    sizes = np.diff(np.append(starts, len(order)))
    if (sizes > 2).any():
        start, size = starts[np.argmax(sizes > 2)], sizes[np.argmax(sizes > 2)]
        raise _shared_by_many(np.sort(order[start : start + size]), halves, cells, kind)
    alone = np.sort(order[starts[sizes == 1]])
    one, other = order[starts[sizes == 2]], order[starts[sizes == 2] + 1]
    partner = np.full(len(halves), -1, dtype=order.dtype)
    partner[np.minimum(one, other)] = np.maximum(one, other)
    first = np.flatnonzero(partner >= 0)
    second = partner[first]
    pairs = np.stack((first, second), axis=1) // len(kind.faces)
    _check_not_repeated(pairs, cells, kind)
    _check_opposite(halves[first], halves[second], pairs)
    boundary_cells = (alone // len(kind.faces)).astype(cells.dtype)
    return Faces(halves[first], pairs.astype(cells.dtype), halves[alone], boundary_cells)


def cells_across(cells: np.ndarray, face_nodes: np.ndarray, face_cells: np.ndarray, kind: CellKind) -> np.ndarray:
    """The cell across each face of each cell (n, faces of a cell); the cell itself where that face is boundary."""
    across = np.repeat(np.arange(len(cells), dtype=face_cells.dtype)[:, None], len(kind.faces), axis=1)
    wanted = np.sort(face_nodes, axis=1)
    for here, there in (face_cells.T, face_cells.T[::-1]):
        found = np.zeros(len(here), dtype=bool)
        for slot, local in enumerate(kind.faces):
            match = (np.sort(cells[here][:, local], axis=1) == wanted).all(axis=1)
            across[here[match], slot] = there[match]
            found |= match
        if not found.all():
            face = int(np.argmin(found))
            raise MeshError(
                f"face {face} {_listed(face_nodes[face])} is no face of its cell {here[face]}"
                f" {_listed(cells[here[face]])}: across a cut in the mesh cells have no neighbours by nodes"
            )
    return across


def group_boundary(boundary_nodes: np.ndarray, named: Mapping[str, ArrayLike], n_nodes: int) -> np.ndarray:
    """For each boundary face 1 + the position in ``named`` of the group that lists its nodes, or 0 for none."""
    groups = np.zeros(len(boundary_nodes), dtype=np.int32)
    arrays = [_checked_group(name, faces, boundary_nodes.shape[1], n_nodes) for name, faces in named.items()]
    if not arrays:
        return groups
    names = list(named)
    rows = np.sort(np.concatenate([boundary_nodes, *arrays]), axis=1)
    claims = np.repeat(np.arange(len(names) + 1), [len(boundary_nodes), *map(len, arrays)])
    order, starts = _equal_rows(rows, n_nodes)
    labels = np.empty(len(rows), dtype=np.int64)
    labels[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    face_of = np.full(len(starts), -1, dtype=np.int64)
    face_of[labels[: len(boundary_nodes)]] = np.arange(len(boundary_nodes))
    for group, name in enumerate(names, start=1):
        mine = np.flatnonzero(claims == group)
        faces = face_of[labels[mine]]
        if (faces < 0).any():
            face = rows[mine[np.argmax(faces < 0)]]
            raise _group_fault(name, "face {nodes} is not on the boundary of the mesh", face)
        taken = groups[faces] > 0
        if taken.any():
            face, holder = rows[mine[np.argmax(taken)]], names[groups[faces[taken][0]] - 1]
            raise _group_fault(name, f"face {{nodes}} belongs to group {_unbraced(holder)} already", face)
        if len(np.unique(faces)) < len(faces):
            found, counts = np.unique(faces, return_counts=True)
            again = rows[mine[faces == found[np.argmax(counts)]][0]]
            raise _group_fault(name, "face {nodes} is listed twice", again)
        groups[faces] = group
    return groups


def _group_fault(name: str, problem: str, nodes: np.ndarray) -> Fault:
    return Fault(f"boundary group {_unbraced(name)}: {problem}", nodes=nodes)


def _unbraced(name: str) -> str:
    """A name that stands in a text with places for numbers."""
    return name.replace("{", "{{").replace("}", "}}")


def _checked_group(name: str, faces: ArrayLike, face_nodes: int, n_nodes: int) -> np.ndarray:
    array = as_array(faces, f"boundary group {name}")
    if array.size == 0:
        return np.zeros((0, face_nodes), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != face_nodes or not np.issubdtype(array.dtype, np.integer):
        shape = f"{array.shape} of {array.dtype}"
        raise MeshError(f"boundary group {name}: expected node numbers of shape (n, {face_nodes}), got {shape}")
    if array.min() < 0 or array.max() >= n_nodes:
        bad = array[((array < 0) | (array >= n_nodes)).any(axis=1)][0]
        raise _group_fault(name, f"face {{nodes}}, but nodes go from 0 to {n_nodes - 1}", bad)
    return array


# Any odd numbers with well mixed bits will do: they spread node numbers over 64 bits.
_MIXERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


def _equal_rows(rows: np.ndarray, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """An order (n,) that puts equal rows side by side, and where each run of equal rows starts in it.

    The rows are packed into one 64-bit key where they fit. Where they do not, the key is the first node above a
    hash of the others: one sort of it is many times faster than a lexicographic one, which is needed only if two
    different rows collide.
    """
    packed = n_nodes ** rows.shape[1] < 2**63
    key = _packed_key(rows, n_nodes) if packed else _hashed_key(rows, n_nodes)
    order = np.argsort(key)
    differs = np.ones(len(rows), dtype=bool)
    differs[1:] = np.diff(key[order]) != 0
    if not packed:
        repeats = np.flatnonzero(~differs)
        if (rows[order[repeats]] != rows[order[repeats - 1]]).any():
            order = np.lexsort(rows.T[::-1])
            differs[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    return order, np.flatnonzero(differs)


def _packed_key(rows: np.ndarray, n_nodes: int) -> np.ndarray:
    key = rows[:, 0].astype(np.uint64)
    for column in rows.T[1:]:
        key *= np.uint64(n_nodes)
        key += column.astype(np.uint64)
    return key


def _hashed_key(rows: np.ndarray, n_nodes: int) -> np.ndarray:
    bits = n_nodes.bit_length()
    mixed = np.zeros(len(rows), dtype=np.uint64)
    for column, mixer in zip(rows.T[1:], _MIXERS, strict=False):
        spread = (column.astype(np.uint64) + np.uint64(1)) * np.uint64(mixer)
        mixed += (spread ^ (spread >> np.uint64(29))) * np.uint64(mixer)
    return (rows[:, 0].astype(np.uint64) << np.uint64(64 - bits)) | (mixed >> np.uint64(bits))


def _check_not_repeated(pairs: np.ndarray, cells: np.ndarray, kind: CellKind) -> None:
    """Two cells that meet in all their faces are one cell given twice."""
    together = np.flatnonzero((pairs[1:] == pairs[:-1]).all(axis=1))  # faces of one owner stand side by side
    if len(together) < len(kind.faces) - 1:
        return
    pair, counts = np.unique(pairs[together], axis=0, return_counts=True)
    if counts.max() == len(kind.faces) - 1:
        owner, neighbor = pair[np.argmax(counts)]
        raise _same_cells(neighbor, owner, cells)


def _check_opposite(first: np.ndarray, second: np.ndarray, pairs: np.ndarray) -> None:
    """The two cells of a face must go round it in opposite senses, else they lie on the same side of it."""
    k = first.shape[1]
    if k == 2:  # an edge has two ends but no loop: its sense is which end comes first
        agree = second[:, 0] == first[:, 1]
    else:
        rows, at = np.arange(len(first)), np.argmax(second == first[:, :1], axis=1)
        agree = np.ones(len(first), dtype=bool)
        for step in range(1, k):
            agree &= second[rows, (at + step) % k] == first[:, k - step]
    if not agree.all():
        face = int(np.argmin(agree))
        raise Fault("cells {cells[0]} and {cells[1]} overlap or are twisted at their common face {nodes}",
                    cells=pairs[face], nodes=first[face])  # fmt: skip


def _shared_by_many(halves_here: np.ndarray, halves: np.ndarray, cells: np.ndarray, kind: CellKind) -> Fault:
    here = halves_here // len(kind.faces)
    sets = np.sort(cells[here], axis=1)
    for position in range(1, len(here)):
        same = (sets[:position] == sets[position]).all(axis=1)
        if same.any():
            return _same_cells(here[position], here[np.argmax(same)], cells)
    return Fault("cells {cells} share the face {nodes}: at most two cells may share a face",
                 cells=here, nodes=halves[halves_here[0]])  # fmt: skip


def _same_cells(cell: int, other: int, cells: np.ndarray) -> Fault:
    return Fault("cell {cells[0]} is the same as cell {cells[1]}: every cell may be given once",
                 cells=[cell, other], nodes=cells[cell])  # fmt: skip


def _listed(numbers: np.ndarray) -> str:
    return "(" + ", ".join(str(int(number)) for number in numbers) + ")"
