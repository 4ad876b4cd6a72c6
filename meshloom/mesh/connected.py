"""What is connected in a mesh next to cells and faces: edges, the cells around a node; and its named parts as sets."""

from __future__ import annotations

from functools import cached_property
from typing import cast

import numpy as np

from meshloom.errors import MeshError, known_name
from meshloom.mesh.cell_kinds import CellKind
from meshloom.mesh.connectivity import CellTable, MeshLists, NodeLists, starts_of
from meshloom.mesh.core import Field, Map, Set, VaryingMap
from meshloom.mesh.faces import cells_across
from meshloom.mesh.joints import Joints
from meshloom.mesh.parts import BoundaryPart, MeshPart, MeshSet, map_of
from meshloom.recording import MAKE_BEFORE, outside_program, refuse_in_program

EdgeSet = tuple[Set, Map, Map | VaryingMap, Map | VaryingMap]  # edges, their nodes, their cells, those of cells


class Connected:
    """A mesh as far as names and neighbours are concerned."""

    nodes: Set
    cells: MeshSet
    boundary_faces: MeshSet
    face_cells: Map
    boundary_cells: Map
    boundary_nodes: Map
    boundary_group: Field
    groups: dict[str, int]
    cell_groups: dict[str, np.ndarray]
    lists: MeshLists
    joints: Joints
    _parts: dict[tuple[str, str], MeshPart]
    _edges: EdgeSet | None = None  # no cached property: what is pickled with its fields goes with them

    def group(self, name: str) -> np.ndarray:
        """The numbers of the boundary faces of a group."""
        known_name("boundary group", name, self.groups, error=MeshError)
        return np.flatnonzero(self.boundary_group.numpy() == self.groups[name])

    def boundary(self, name: str) -> BoundaryPart:
        """The boundary faces of a group as a set to loop over, with their maps ``cells`` and ``nodes`` and the fields
        ``normal`` (times area, out of the domain) and ``centre``; the same object at every call."""
        known_name("boundary group", name, self.groups, error=MeshError)
        if ("boundary", name) not in self._parts:
            refuse_in_program(f"making boundary {name}", MAKE_BEFORE)
            self._parts["boundary", name] = BoundaryPart(self.boundary_faces, self.group(name), name,
                                                         self.boundary_cells, self.boundary_nodes)  # fmt: skip
        return cast(BoundaryPart, self._parts["boundary", name])

    def cell_group(self, name: str) -> np.ndarray:
        """The numbers of the cells of a group, ascending."""
        return self.cell_groups[known_name("cell group", name, self.cell_groups, error=MeshError)].copy()

    def region(self, name: str) -> MeshPart:
        """The cells of a group, such as those of a physical group of Gmsh, as a set to loop over, with their map
        ``nodes`` and the fields ``volume`` and ``centre``; the same object at every call."""
        numbers = self.cell_group(name)
        if ("region", name) not in self._parts:
            refuse_in_program(f"making region {name}", MAKE_BEFORE)
            self._parts["region", name] = self.cells.part(numbers[numbers < self.cells.owned], name)
        return self._parts["region", name]

    @cached_property
    def cell_cells(self) -> Map:
        """For every cell the cells across its faces, in the order of the faces of its kind; itself at the boundary. The
        arity varies where cells differ in their number of faces."""
        table = self.lists.cells
        faces = self.lists.faces, self.joints.second(self.lists.faces)
        across = NodeLists(table.sides, cells_across(table, faces, self.face_cells.indices))
        return cast(Map, map_of(self.cells, self.cells, across, "cell_cells"))

    @cached_property
    def node_cells(self) -> VaryingMap:
        """For every node the cells that have it, ascending: a map of varying arity."""
        table = self.lists.cells.nodes
        with outside_program():
            return Map.varying(self.nodes, self.cells, *_turned_round(table, self.nodes.total), "node_cells")

    @property
    def edges(self) -> Set:
        """The edges of all cells, each once, in the order of their two nodes: in 2-D interior and boundary faces."""
        return self._found_edges[0]

    @property
    def edge_nodes(self) -> Map:
        """The two nodes of each edge, that of the smaller number first."""
        return self._found_edges[1]

    @property
    def edge_cells(self) -> Map | VaryingMap:
        """For every edge the cells that have it, ascending: one or two in 2-D, so a map of varying arity."""
        return self._found_edges[2]

    @property
    def cell_edges(self) -> Map | VaryingMap:
        """For every cell its edges, in the order in which its faces go around; of varying arity where kinds differ."""
        return self._found_edges[3]

    @property
    def _found_edges(self) -> EdgeSet:
        if self._edges is None:
            with outside_program():
                self._edges = _edges_of(self.nodes, self.cells, self.lists.cells)
        return self._edges


def local_edges(kind: CellKind) -> tuple[tuple[int, int], ...]:
    """The edges of a kind of cell by local nodes, as its faces go around; each once."""
    found: dict[frozenset[int], tuple[int, int]] = {}
    for face in kind.faces:
        for k, one in enumerate(face):
            found.setdefault(frozenset((face[k - 1], one)), (face[k - 1], one))
    return tuple(found.values())


def _edges_of(nodes: Set, cells: Set, table: CellTable) -> EdgeSet:
    """All edges of cells, numbered by their nodes, and what they are connected with."""
    counts = np.zeros(len(table), np.int64)
    blocks = [(block, np.array(local_edges(block.kind))) for block in table.blocks]
    for block, local in blocks:
        counts[block.numbers] = len(local)
    starts = starts_of(counts)
    keys = np.zeros(starts[-1], np.int64)
    for block, local in blocks:
        ends = np.sort(block.nodes[:, local].astype(np.int64), axis=2)  # (m, edges, 2)
        places = starts[block.listed(len(table))][:, None] + np.arange(len(local))
        keys[places] = ends[:, :, 0] * nodes.total + ends[:, :, 1]
    found, which = np.unique(keys, return_inverse=True)
    rows = np.stack(np.divmod(found, max(nodes.total, 1)), axis=1)
    edges = Set(len(rows), "edges", points=None if nodes.points is None else nodes.points[rows].mean(axis=1),
                numbering=_by_place(nodes, rows))  # fmt: skip
    of_cell = (
        NodeLists(starts, which.reshape(-1))
        if len(set(counts)) > 1
        else NodeLists.of_rows(which.reshape(len(table), -1))
    )
    return (
        edges,
        cast(Map, map_of(edges, nodes, NodeLists.of_rows(rows), "edge_nodes")),
        Map.varying(edges, cells, *_turned_round(of_cell, len(rows)), "edge_cells"),
        map_of(cells, edges, of_cell, "cell_edges"),
    )


def _by_place(nodes: Set, rows: np.ndarray) -> np.ndarray | None:
    """Edges in the order in which their first nodes lie in memory; None where that is by number."""
    if nodes.position is None:
        return None
    places = np.sort(nodes.position[rows], axis=1)
    return np.lexsort((places[:, 1], places[:, 0]))


def _turned_round(lists: NodeLists, targets: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and entries of the map back: for each of so many things those whose lists have it, ascending."""
    owner = np.repeat(np.arange(len(lists)), lists.lengths)
    order = np.argsort(lists.entries, kind="stable")
    counts = np.bincount(lists.entries, minlength=targets)
    return starts_of(counts), owner[order]
