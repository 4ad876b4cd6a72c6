"""Faces from cells: every face of every cell is listed, equal ones meet, and what meets nothing is boundary.

1. ``oriented_cells`` turns each cell the right way around (positive volume) or names the cell that cannot be.
2. Each cell then lists its faces with their nodes in outward order: the "half faces", cell by cell.
3. Half faces with the same nodes are brought together by one sort of a 64-bit key of their sorted nodes.
   Two make an interior face, one alone a boundary face; three or more are an error.
4. A face keeps the node order of its owner, the smaller of its two cells, so its normal points from owner to
   neighbor, and out of the domain on the boundary. Faces are numbered in the order the cells meet them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meshloom.errors import CompilerError, MeshError
from meshloom.mesh.cell_kinds import POLYGON, CellKind
from meshloom.mesh.connectivity import CellBlock, CellTable, NodeLists, SizeBlock, node_lists
from meshloom.mesh.corners import corner_volumes, crossing_sides, inward_corners
from meshloom.mesh.geometry import cell_volumes
from meshloom.mesh.validation_error import ValidationError
from meshloom.native.algorithms import distinct
from meshloom.native.face_matching import faces_of_sides
from meshloom.records import dataclass
from meshloom.target import CPU


@dataclass(frozen=True)
class Faces:
    """Interior faces: nodes and cells (m, 2), owner < neighbor. Boundary faces: nodes and cell (b,)."""

    nodes: NodeLists
    cells: np.ndarray
    boundary_nodes: NodeLists
    boundary_cells: np.ndarray


def checked_cells(cells: CellTable, n_nodes: int) -> CellTable:
    """The cells with node numbers of int32 (int64 where needed), after checking shape, range and repeated nodes."""
    dtype = np.int32 if n_nodes < 2**31 else np.int64
    for block in cells.blocks:
        nodes, kind = block.nodes, block.kind
        if nodes.shape[1] != kind.nodes or kind.nodes < 3:
            wanted = "at least 3 nodes each" if kind.name == POLYGON else f"shape (n, {kind.nodes})"
            raise MeshError(f"cell nodes of {kind.name} cells: expected {wanted}, got {nodes.shape}")
        outside = ((nodes < 0) | (nodes >= n_nodes)).any(axis=1)
        if outside.any():
            at = int(np.argmax(outside))
            raise _about(
                f"cell {{cells[0]}} has nodes {{nodes}}, but nodes go from 0 to {n_nodes - 1}", block, at, cells
            )
        ordered = np.sort(nodes, axis=1)
        repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if repeated.any():
            at = int(np.argmax(repeated))
            raise _about("cell {cells[0]} names a node twice: {nodes}; its nodes must differ", block, at, cells)
    return (
        cells if cells.nodes.entries.dtype == dtype else cells.with_nodes([b.nodes.astype(dtype) for b in cells.blocks])
    )


def oriented_cells(x: np.ndarray, cells: CellTable) -> CellTable:
    """The cells with positive volume: inside-out ones are mirrored, flat or folded ones are refused.

    One corner may point inwards (a quadrilateral like an arrow head); two mean that the nodes are out of order. In 3-D
    a side may be such a quadrilateral, and sides may be warped. Of a polygon any number may.
    """
    turned, changed = [], False
    for block in cells.blocks:
        nodes, kind = block.nodes, block.kind
        volumes = cell_volumes(x, nodes, kind.name)
        inverted = volumes < 0
        if inverted.any():
            nodes, changed = nodes.copy(), True
            nodes[inverted] = nodes[inverted][:, kind.mirrored]
        measure = "area" if kind.dimension == 2 else "volume"
        wrong = ~(np.abs(volumes) > 0) | np.isinf(volumes)
        if wrong.any():
            at = int(np.argmax(wrong))
            problem = f"no {measure}" if volumes[at] == 0 else f"coordinates too large for its {measure} to be computed"
            raise _about(f"cell {{cells[0]}} has {problem}: nodes {{nodes}}", block, at, cells)
        turned.append(nodes)
    made = cells.with_nodes(turned) if changed else cells
    check_folds(x, made)
    return made


def check_folds(x: np.ndarray, cells: CellTable) -> None:
    """No oriented cell is folded over; triangles and tetrahedra cannot be."""
    for block in cells.blocks:
        if block.kind.name not in ("triangle", "tetrahedron"):
            folded = _folded(x, block.nodes, block.kind)
            if folded.any():
                shape = f"{{nodes}} do not go around a {block.kind.name} in VTK order"
                raise _about(f"cell {{cells[0]}} is folded over: nodes {shape}", block, int(np.argmax(folded)), cells)


def _about(text: str, block: CellBlock, at: int, cells: CellTable) -> ValidationError:
    """What is wrong with a cell of a block."""
    return ValidationError(text, cells=[block.listed(len(cells))[at]], nodes=block.nodes[at])


def _folded(x: np.ndarray, nodes: np.ndarray, kind: CellKind) -> np.ndarray:
    if kind.name == POLYGON:
        return crossing_sides(x, nodes)
    inverted = corner_volumes(x, nodes, kind.name) < 0
    folded = inverted.sum(axis=1) > 1
    if kind.dimension == 3 and folded.any():
        corners = inverted[folded] if kind.name != "pyramid" else np.pad(inverted[folded], ((0, 0), (0, 1)))
        folded[folded] = _crossing(x, nodes[folded], corners, kind)
    return folded


def _crossing(x: np.ndarray, cells: np.ndarray, inverted: np.ndarray, kind: CellKind) -> np.ndarray:
    """Of cells with inverted corners (m, nodes), those that cross themselves, (m,).

    A side like an arrow head inverts the corner that points inwards, and is no harm: that corner is excused. A cell
    crosses itself if one of its sides does, or if two corners are left without an excuse.
    """
    excused, crossed = np.zeros_like(inverted), np.zeros(len(cells), dtype=bool)
    for local in (list(face) for face in kind.faces if len(face) == 4):
        inwards = inward_corners(x, cells[:, local])
        excused[:, local] |= inwards
        crossed |= inwards.sum(axis=1) > 1
    return crossed | ((inverted & ~excused).sum(axis=1) > 1)


def many_cells() -> int:
    """Cells whose faces are found by compiled code; for fewer, NumPy takes less time than a compiler at first use."""
    return CPU.cpu.arrays.many_cells


def derive_faces(cells: CellTable, n_nodes: int) -> Faces:
    """Interior and boundary faces of checked and oriented cells."""
    found = _compiled_faces(cells, n_nodes) if len(cells) >= many_cells() else None
    if found is not None:
        _check_not_repeated(found.cells, cells)
        return found
    pairs, alone = [], []
    for size in sorted({size for block in cells.blocks for size in block.kind.face_sizes}):
        halves = _half_faces(cells, size)
        first, second, single = _matched(halves, n_nodes, cells)
        pairs.append((halves, first, second))
        alone.append((halves, single))
    between, nodes = _in_turn([
        (halves.sides[first], np.stack((halves.cells[first], halves.cells[second]), axis=1), halves.nodes[first])
        for halves, first, second in pairs
    ])  # fmt: skip
    _check_not_repeated(between, cells)
    for halves, first, second in pairs:
        _check_opposite(halves, first, second)
    of, ends = _in_turn([(halves.sides[single], halves.cells[single], halves.nodes[single])
                            for halves, single in alone])  # fmt: skip
    return Faces(nodes, between, ends, of)


def _compiled_faces(cells: CellTable, n_nodes: int) -> Faces | None:
    """The same by compiled code; None where there is no compiler, or the cells have a fault that is to be named."""
    kind_of = np.zeros(len(cells), np.int8)
    for number, block in enumerate(cells.blocks):
        kind_of[block.numbers] = number
    kinds = [block.kind.faces for block in cells.blocks]
    try:
        found = faces_of_sides(cells.nodes.entries, cells.nodes.starts, kind_of, kinds, n_nodes)
    except CompilerError:
        return None
    if found is None:
        return None
    (starts, nodes, between), (end_starts, ends, of) = found
    return Faces(NodeLists(starts, nodes), between, NodeLists(end_starts, ends), of)


@dataclass(frozen=True, eq=False)
class _HalfFaces:
    """Sides of cells with the same number of nodes, in the order of their numbers: these (h,), cell (h,), nodes (h, k)
    in outward order."""

    sides: np.ndarray
    cells: np.ndarray
    nodes: np.ndarray


def _half_faces(cells: CellTable, size: int) -> _HalfFaces:
    found = []
    for block in cells.blocks:
        slots = block.kind.slots(size)
        if slots:
            numbers = block.listed(len(cells))
            sides = (cells.sides[:-1][numbers][:, None] + np.array(slots)).reshape(-1)
            of = np.repeat(numbers.astype(block.nodes.dtype), len(slots))
            found.append((sides, of, block.nodes[:, np.array([block.kind.faces[s] for s in slots])].reshape(-1, size)))
    sides, of, nodes = (np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*found, strict=True))
    if len(found) > 1 and (sides[1:] < sides[:-1]).any():
        order = np.argsort(sides, kind="stable")
        sides, of, nodes = sides[order], of[order], nodes[order]
    return _HalfFaces(sides, of, nodes)


def _matched(halves: _HalfFaces, n_nodes: int, cells: CellTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which halves meet: those that come first, their partners, and those that meet nothing."""
    order, starts = equal_rows(np.sort(halves.nodes, axis=1), n_nodes)
    sizes = np.diff(np.append(starts, len(order)))
    if (sizes > 2).any():
        start, size = starts[np.argmax(sizes > 2)], sizes[np.argmax(sizes > 2)]
        raise _shared_by_many(np.sort(order[start : start + size]), halves, cells)
    alone = np.sort(order[starts[sizes == 1]])
    one, other = order[starts[sizes == 2]], order[starts[sizes == 2] + 1]
    partner = np.full(len(halves.sides), -1, dtype=order.dtype)
    partner[np.minimum(one, other)] = np.maximum(one, other)
    first = np.flatnonzero(partner >= 0)
    return first, partner[first], alone


def _in_turn(parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> tuple[np.ndarray, NodeLists]:
    """Faces of several sizes, given by the number of their side, their cells and nodes, in the order of these numbers:
    faces are numbered as the cells meet them."""
    if len(parts) == 1:
        return parts[0][1], NodeLists.of_rows(parts[0][2])
    numbers = np.concatenate([part[0] for part in parts])
    order = np.argsort(numbers, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    ends = np.cumsum([0, *(len(part[0]) for part in parts)])
    blocks = [SizeBlock(place[begin:end], part[2])
              for begin, end, part in zip(ends[:-1], ends[1:], parts, strict=True) if end > begin]  # fmt: skip
    lists = NodeLists.of_sizes(len(order), blocks) if blocks else NodeLists.of_rows(parts[-1][2])
    return np.concatenate([part[1] for part in parts])[order], lists


def cells_across(cells: CellTable, ends: tuple[NodeLists, NodeLists], face_cells: np.ndarray) -> np.ndarray:
    """For every side of every cell, in turn, the cell across it (sides,); the cell itself where it is boundary.

    ``ends``: the nodes of the faces as their first and as their second cells have them.
    """
    across = np.repeat(np.arange(len(cells), dtype=face_cells.dtype), np.diff(cells.sides))
    found = np.zeros(face_cells.shape, dtype=bool)
    row_of = np.full(len(cells), -1, np.int64)  # in the block that is looked at
    for block in cells.blocks:
        numbers = block.listed(len(cells))
        row_of[:] = -1
        row_of[numbers] = np.arange(len(numbers))
        for end, part in [*((0, part) for part in ends[0].sizes), *((1, part) for part in ends[1].sizes)]:
            wanted, pairs = np.sort(part.nodes, axis=1), face_cells[part.numbers]
            of_part = np.arange(len(face_cells))[part.numbers]
            here = np.flatnonzero(row_of[pairs[:, end]] >= 0)
            for slot in block.kind.slots(part.nodes.shape[1]):
                corners = block.nodes[row_of[pairs[here, end]]][:, list(block.kind.faces[slot])]
                match = here[(np.sort(corners, axis=1) == wanted[here]).all(axis=1)]
                across[cells.sides[pairs[match, end]] + slot] = pairs[match, 1 - end]
                found[of_part[match], end] = True
    if not found.all():
        face, end = (int(k) for k in np.argwhere(~found)[0])
        cell = int(face_cells[face, end])
        raise MeshError(
            f"face {face} {_listed(ends[end][face])} is no face of its cell {cell}"
            f" {_listed(cells.nodes[cell])}: across a cut in the mesh cells have no neighbours by nodes"
        )
    return across


# Any odd numbers with well mixed bits will do: they spread node numbers over 64 bits.
_MIXERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


def equal_rows(rows: np.ndarray, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
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


def _check_not_repeated(pairs: np.ndarray, cells: CellTable) -> None:
    """Two cells that meet in all their faces are one cell given twice."""
    together = np.flatnonzero((pairs[1:] == pairs[:-1]).all(axis=1))  # faces of one owner stand side by side
    fewest = min(len(block.kind.faces) for block in cells.blocks)
    if len(together) < fewest - 1:
        return
    pair, counts = np.unique(pairs[together], axis=0, return_counts=True)
    same = counts == np.diff(cells.sides)[pair[:, 0]] - 1
    if same.any():
        owner, neighbor = pair[np.argmax(same)]
        raise _same_cells(neighbor, owner, cells)


def _check_opposite(halves: _HalfFaces, one: np.ndarray, other: np.ndarray) -> None:
    """The two cells of a face must go around it in opposite senses, else they lie on the same side of it."""
    first, second = halves.nodes[one], halves.nodes[other]
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
        raise ValidationError("cells {cells[0]} and {cells[1]} overlap or are twisted at their common face {nodes}",
                              cells=halves.cells[[one[face], other[face]]], nodes=first[face])  # fmt: skip


def _shared_by_many(here: np.ndarray, halves: _HalfFaces, cells: CellTable) -> ValidationError:
    of = halves.cells[here].tolist()
    sets = [set(cells.nodes[cell].tolist()) for cell in of]
    for position in range(1, len(of)):
        same = [nodes == sets[position] for nodes in sets[:position]]
        if any(same):
            return _same_cells(of[position], of[same.index(True)], cells)
    return ValidationError("cells {cells} share the face {nodes}: at most two cells may share a face",
                           cells=of, nodes=halves.nodes[here[0]])  # fmt: skip


def _same_cells(cell: int, other: int, cells: CellTable) -> ValidationError:
    return ValidationError("cell {cells[0]} is the same as cell {cells[1]}: every cell may be given once",
                           cells=[cell, other], nodes=cells.nodes[cell])  # fmt: skip


def _listed(numbers: np.ndarray) -> str:
    return "(" + ", ".join(str(int(number)) for number in numbers) + ")"


# ---- named groups of the boundary: lists of nodes, matched with the faces that were found ----------------------------


def group_boundary(
    boundary: NodeLists, named: Mapping[str, object], n_nodes: int, sizes: tuple[int, ...]
) -> np.ndarray:
    """For each boundary face 1 + the position in ``named`` of the group that lists its nodes, or 0 for none.

    ``sizes``: the numbers of nodes that faces may have.
    """
    groups = np.zeros(len(boundary), dtype=np.int32)
    listed = {name: _checked_group(name, faces, sizes, n_nodes) for name, faces in named.items()}
    for size in sizes if listed else ():
        arrays = [lists.of_size(size).nodes for lists in listed.values()]
        here = boundary.of_size(size)
        groups[here.numbers] = _group_rows(here.nodes, arrays, list(listed), n_nodes)
    return groups


def _group_rows(boundary_nodes: np.ndarray, arrays: list[np.ndarray], names: list[str], n_nodes: int) -> np.ndarray:
    """The same for boundary faces (b, k) and groups (m, k) with one number of nodes."""
    groups = np.zeros(len(boundary_nodes), dtype=np.int32)
    rows = np.sort(np.concatenate([boundary_nodes, *arrays]), axis=1)
    claims = np.repeat(np.arange(len(names) + 1), [len(boundary_nodes), *map(len, arrays)])
    order, starts = equal_rows(rows, n_nodes)
    labels = np.empty(len(rows), dtype=np.int64)
    labels[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    face_of = np.full(len(starts), -1, dtype=np.int64)
    face_of[labels[: len(boundary_nodes)]] = np.arange(len(boundary_nodes))
    for group, name in enumerate(names, start=1):
        mine = np.flatnonzero(claims == group)
        faces = face_of[labels[mine]]
        if (faces < 0).any():
            face = rows[mine[np.argmax(faces < 0)]]
            raise _group_error(name, "face {nodes} is not on the boundary of the mesh", face)
        taken = groups[faces] > 0
        if taken.any():
            face, holder = rows[mine[np.argmax(taken)]], names[groups[faces[taken][0]] - 1]
            raise _group_error(name, f"face {{nodes}} belongs to group {_unbraced(holder)} already", face)
        if len(distinct(faces)) < len(faces):
            found, counts = np.unique(faces, return_counts=True)
            again = rows[mine[faces == found[np.argmax(counts)]][0]]
            raise _group_error(name, "face {nodes} is listed twice", again)
        groups[faces] = group
    return groups


def _group_error(name: str, problem: str, nodes: np.ndarray) -> ValidationError:
    return ValidationError(f"boundary group {_unbraced(name)}: {problem}", nodes=nodes)


def _unbraced(name: str) -> str:
    """A name that stands in a text with places for numbers."""
    return name.replace("{", "{{").replace("}", "}}")


def _checked_group(name: str, faces: object, sizes: tuple[int, ...], n_nodes: int) -> NodeLists:
    lists = node_lists(faces, f"boundary group {name}", sizes[0])
    odd = [part for part in lists.sizes if len(part.nodes) and part.nodes.shape[1] not in sizes]
    if odd:
        wanted = " or ".join(f"(n, {size})" for size in sizes)
        raise MeshError(f"boundary group {name}: expected node numbers of shape {wanted}, got {odd[0].nodes.shape}")
    entries = lists.entries
    if len(entries) and (entries.min() < 0 or entries.max() >= n_nodes):
        at = int(np.argmax((entries < 0) | (entries >= n_nodes)))
        bad = lists[int(np.searchsorted(lists.starts, at, side="right")) - 1]
        raise _group_error(name, f"face {{nodes}}, but nodes go from 0 to {n_nodes - 1}", bad)
    return lists
