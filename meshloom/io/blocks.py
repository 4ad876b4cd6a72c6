"""What every mesh file boils down to: points, blocks of elements with tags, and names of the tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import partial
from itertools import pairwise

import numpy as np

from meshloom.errors import MeshError
from meshloom.io.field_rows import as_rows
from meshloom.io.rank_rows import AnyRows, followed_by, row_by_row, taken
from meshloom.mesh.cell_kinds import DIMENSIONS, FACE_KINDS, NAMES, POLYGON
from meshloom.mesh.connectivity import CellTable, NodeLists
from meshloom.mesh.core import Field
from meshloom.mesh.mesh import Mesh
from meshloom.mesh.periodic import paired_groups
from meshloom.mesh.validation_error import ValidationError
from meshloom.native.algorithms import distinct
from meshloom.records import dataclass

#: Dimension and number of nodes of every element that may stand in a file.
ELEMENTS = {
    "vertex": (0, 1),
    "line": (1, 2),
    "triangle": (2, 3),
    "quad": (2, 4),
    "tetrahedron": (3, 4),
    "hexahedron": (3, 8),
    "prism": (3, 6),
    "pyramid": (3, 5),
}

#: In files where every cell must have a group: the one of a mesh without groups, and the one of cells that have none.
ALL_CELLS, NO_GROUP = "cells", "cells in no group"


@dataclass(frozen=True)
class MeshBlock:
    """Elements of one kind: nodes (n, k), and a tag for each (n,), 0 where it has none; ``also``: more tags of all;
    ``numbers``: those that the file gives them, None where it counts them from 0."""

    kind: str
    nodes: np.ndarray
    tags: np.ndarray
    also: tuple[int, ...] = ()
    numbers: np.ndarray | None = None

    @property
    def dimension(self) -> int:
        return DIMENSIONS[self.kind] if self.kind == POLYGON else ELEMENTS[self.kind][0]


@dataclass(frozen=True)
class Twins:
    """Nodes (n, 2) of periodic entities of a dimension: each, and the one that it is a copy of."""

    dimension: int
    nodes: np.ndarray


@dataclass(frozen=True)
class Listing:
    """The content of a mesh file; ``names`` gives the name of a tag of elements of a dimension, carried or not.

    ``sets``: named groups of cells by number, the cells of all blocks counted from 0, next to those that tags make.
    ``numbers``: those that the file gives its points, None where it counts them from 0. ``twins``: periodic nodes.
    """

    points: np.ndarray
    blocks: list[MeshBlock]
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    sets: dict[str, np.ndarray] = field(default_factory=dict)
    numbers: np.ndarray | None = None
    twins: list[Twins] = field(default_factory=list)


def assemble(listing: Listing) -> Mesh:
    """The mesh of the elements of highest dimension; their tags are its cell groups, those of elements one dimension
    lower its boundary groups. Names that no element carries are groups without elements. The mesh is checked."""
    blocks = [block for block in listing.blocks if len(block.nodes)]
    dimension = max((block.dimension for block in blocks), default=0)
    if dimension < 2:
        raise MeshError(f"no cells found; expected some of {', '.join(NAMES)}")
    cells = [block for block in blocks if block.dimension == dimension]
    faces = [block for block in blocks if block.dimension == dimension - 1]
    boundary, numbers = _named_boundary(faces, listing.names, dimension - 1)
    points = _plane(_finite(listing)) if dimension == 2 else _finite(listing)
    table = CellTable.in_turn([(block.kind, NodeLists.of_rows(block.nodes)) for block in cells])
    members = _cell_groups(cells, listing.names, dimension) | listing.sets
    try:
        mesh = Mesh.from_table(points, table, boundary, groups=numbers, cell_groups=members, order="given")
        mesh.check(faces=False)
    except ValidationError as error:
        raise error.renumbered(_numbers_of(cells), listing.numbers) from None
    mesh.periodic_sides = paired_groups(mesh, [one.nodes for one in listing.twins if one.dimension == dimension - 1])
    return mesh


def _numbers_of(cells: list[MeshBlock]) -> np.ndarray | None:
    """The numbers that a file gives its cells."""
    numbers = [block.numbers for block in cells if block.numbers is not None]
    return np.concatenate(numbers) if len(numbers) == len(cells) else None


def dissolve(mesh: Mesh, label: str) -> Listing:
    """The reverse: blocks of cells (tag 0) in the order of their numbers and of boundary faces tagged by group; groups
    of cells as sets. ``label``: the format, which holds no polygons."""
    table, ends = mesh.lists.cells, mesh.lists.boundary_faces
    if POLYGON in table.kinds:
        raise MeshError(
            f"{label} files hold no polygons, of which the mesh has {len(table.kinds[POLYGON])}; .vtu files do"
        )
    none = np.zeros(mesh.cells.total, dtype=np.int32)
    cells = [MeshBlock(kind, nodes, none[first : first + len(nodes)], numbers=np.arange(first, first + len(nodes)))
             for kind, first, nodes in _runs(table)]  # fmt: skip
    groups, faces = mesh.boundary_group.numpy(), []
    for part in ends.sizes:
        numbers = np.arange(len(ends))[part.numbers]
        faces.append(MeshBlock(FACE_KINDS[part.nodes.shape[1]], part.nodes, groups[numbers], numbers=numbers))
    names = {(mesh.dim - 1, number): name for name, number in mesh.groups.items()}
    return Listing(mesh.coordinates.numpy(), [*cells, *faces], names, dict(mesh.cell_groups))


def _runs(table: CellTable) -> Iterator[tuple[str, int, np.ndarray]]:
    """Runs of cells of one kind: which, the number of the first, and their nodes (n, k)."""
    kind_of = np.zeros(len(table), np.int8)
    for number, name in enumerate(table.kinds):
        kind_of[np.asarray(table.kinds[name])] = number
    cuts = np.flatnonzero(np.diff(kind_of)) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(table)]):
        rows = table.nodes.between(first, last).rows
        if rows is not None:
            yield list(table.kinds)[kind_of[first]], first, rows


def field_rows(
    fields: Mapping[str, Field | AnyRows] | None, count: int, where: str
) -> dict[str, AnyRows]:  # fmt: skip
    """Values by name as (count,) or (count, dim) rows of a number type, checked; those with more axes row by row."""
    found = {}
    for name, values in (fields or {}).items():
        rows = as_rows(values)
        if rows.ndim < 1 or rows.shape[0] != count:
            raise MeshError(f"field {name}: shape {rows.shape} does not fit the {count} {where}")
        found[name] = row_by_row(row_by_row(rows, partial(flat_rows, points=1)), partial(checked_numbers, name))
    return found


def flat_rows(array: np.ndarray, points: int) -> np.ndarray:
    """Values whose first ``points`` axes name a place, with at most one more: a (3, 3) tensor has 9, row by row."""
    return array if array.ndim <= points + 1 else array.reshape(*array.shape[:points], -1)


def checked_numbers(name: str, array: np.ndarray) -> np.ndarray:
    """The values of a field as numbers of a type that files hold."""
    if array.dtype == bool:
        array = array.astype(np.uint8)
    if not (np.issubdtype(array.dtype, np.number) and array.dtype.kind != "c"):
        raise MeshError(f"field {name}: values of type {array.dtype} cannot be written; numbers can")
    return array.astype(np.float64) if array.dtype.itemsize > 8 or array.dtype == np.float16 else array


def with_boundary(values: AnyRows, mesh: Mesh) -> AnyRows:
    """Cell values followed by those of boundary faces: each has the value of its cell."""
    return followed_by(values, taken(values, mesh.boundary_cells.indices[:, 0]))


def _cell_groups(cells: list[MeshBlock], names: Mapping[tuple[int, int], str], dimension: int) -> dict[str, np.ndarray]:
    """The numbers of the cells of each group, those that no cell is in included; untagged cells are in none."""
    groups: dict[str, list[np.ndarray]] = {name: [] for (of, _), name in names.items() if of == dimension}
    first = 0
    for block in cells:
        numbers = np.arange(first, first + len(block.nodes))
        for tag in distinct(block.tags[block.tags != 0]).tolist():
            members = numbers[block.tags == tag]
            groups.setdefault(names.get((dimension, tag), f"group{tag}"), []).append(members)
        for tag in block.also:
            groups.setdefault(names.get((dimension, tag), f"group{tag}"), []).append(numbers)
        first += len(block.nodes)
    found = {name: np.concatenate([np.zeros(0, np.int64), *parts]) for name, parts in groups.items()}
    if list(found) == [ALL_CELLS] and len(found[ALL_CELLS]) == first:
        return {}
    return {name: members for name, members in found.items() if name != NO_GROUP}


def _named_boundary(
    blocks: list[MeshBlock], names: Mapping[tuple[int, int], str], dimension: int
) -> tuple[dict[str, NodeLists], dict[str, int]]:
    """Node lists and number of each named group, with or without faces; untagged elements name nothing."""
    parts: dict[str, list[np.ndarray]] = {}
    numbers: dict[str, int] = {}
    for block in blocks:
        if block.also:
            both = [names.get((dimension, tag), f"group{tag}") for tag in (int(block.tags[0]), *block.also)]
            raise MeshError(
                f"boundary group {both[1]}: {len(block.nodes)} of its faces belong to group {both[0]} already"
            )
        for tag in distinct(block.tags[block.tags != 0]).tolist():
            name = names.get((block.dimension, tag), f"group{tag}")
            numbers.setdefault(name, tag)
            parts.setdefault(name, []).append(block.nodes[block.tags == tag])
    found = {name: NodeLists.joined([NodeLists.of_rows(nodes) for nodes in group]) for name, group in parts.items()}
    for (of, tag), name in names.items():
        if of == dimension and name not in found:
            found[name] = NodeLists.of_rows(np.zeros((0, dimension + 1), np.int64))
            if tag > 0 and tag not in numbers.values():
                numbers[name] = tag
    return found, numbers


def _finite(listing: Listing) -> np.ndarray:
    """The points, all of their coordinates finite."""
    good = np.isfinite(listing.points).all(axis=1)
    if not good.all():
        node = int(np.argmin(good))
        where = f"node {{node}} has the coordinates {listing.points[node].tolist()}: they must be finite numbers"
        raise ValidationError(where, nodes=[node]).renumbered(None, listing.numbers)
    return listing.points


def _plane(points: np.ndarray) -> np.ndarray:
    """Points of a plane mesh as (n, 2): a constant z is dropped."""
    if points.shape[1] == 2:
        return points
    z = points[:, 2]
    tolerance = 1e-12 * np.ptp(points[:, :2], axis=0).max(initial=0.0)
    if np.ptp(z) > tolerance:
        raise MeshError(f"a surface in space (z from {z.min():g} to {z.max():g}); 2-D cells need one constant z")
    return points[:, :2]
