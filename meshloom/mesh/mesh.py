"""Mesh: nodes, cells, interior faces and boundary faces, the maps between them, and the names of the boundary."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from meshloom import markup
from meshloom.errors import MeshError
from meshloom.mesh import geometry, validation
from meshloom.mesh.arrange import AUTO, Arrangement, arrangement
from meshloom.mesh.cell_kinds import FACE_KINDS, dimension_of
from meshloom.mesh.connectivity import MIXED, CellTable, MeshLists, NodeLists
from meshloom.mesh.copies import ItsOwnCopy
from meshloom.mesh.core import Map, Set
from meshloom.mesh.faces import checked_cells, derive_faces, group_boundary, oriented_cells
from meshloom.mesh.html_repr import MOST_READ
from meshloom.mesh.input_checks import (
    UNNAMED,
    by_name,
    cells_of_faces,
    checked_cell_groups,
    checked_coordinates,
    checked_groups,
    checked_halo,
    checked_lists,
    given_cells,
    group_numbers,
    made_set,
    numbered,
)
from meshloom.mesh.joints import Joints
from meshloom.mesh.measured import Measured
from meshloom.mesh.numbering import Rows
from meshloom.mesh.owner_mesh import belong_to, owner_of
from meshloom.mesh.parts import MeshPart, MeshSet, map_of
from meshloom.mesh.periodic import joined, opened
from meshloom.mesh.permutation import SETS, Permutation
from meshloom.mesh.reorder import ordering, renumbered
from meshloom.mesh.validation_error import ValidationError
from meshloom.recording import MAKE_BEFORE, recorder, refuse_in_program


class Mesh(Measured, ItsOwnCopy):
    """Cells of one kind or several, with everything a face or cell loop needs.

    Sets: ``nodes``, ``cells``, ``faces`` (interior: two cells each), ``boundary_faces`` (one cell each). In 2-D faces
    are edges. Maps: ``cell_nodes``, ``face_nodes``, ``face_cells``, ``boundary_nodes``, ``boundary_cells``, and
    ``cell_cells`` when asked for. Fields: ``coordinates`` on nodes and ``boundary_group`` on boundary faces, whose
    numbers ``groups`` names. ``cell_groups``: the numbers of the cells of named groups; groups may overlap, and those
    of cells and faces may be empty.

    ``kind`` is that of all cells, "mixed" where there are several; ``cells.kinds`` has the numbers of each. A map to
    nodes, or to the cells across faces, has one arity where that is the same for all elements, else it is a varying
    one; ``cells.of("prism")``, ``faces.of("quad")`` and ``boundary_faces.of("triangle")`` are sets whose map ``nodes``
    has the arity of the kind.

    The normal of a face points from its first cell to its second, and out of the domain on the boundary: in 2-D,
    with (dx, dy) = first minus second node, it is (dy, -dx); in 3-D it follows the right-hand rule of the nodes.

    ``arrangement`` tells how the elements lie in memory, and why; nothing else that is public depends on it.
    """

    def __init__(
        self,
        coordinates: ArrayLike,
        *,
        kind: str | Mapping[str, ArrayLike],
        cell_nodes: ArrayLike | NodeLists,
        face_nodes: ArrayLike | NodeLists,
        face_cells: ArrayLike,
        boundary_nodes: ArrayLike | NodeLists,
        boundary_cells: ArrayLike,
        boundary_group: ArrayLike | None = None,
        groups: Mapping[str, int] | None = None,
        cell_groups: Mapping[str, ArrayLike] | None = None,
        halo: Mapping[str, int] | None = None,
        joints: Joints | None = None,
        permutation: Permutation | None = None,
        arrangement: Arrangement | None = None,
    ):
        refuse_in_program("making a mesh", MAKE_BEFORE)
        table = given_cells(kind, cell_nodes)
        dimension = dimension_of(tuple(table.kinds))
        x = checked_coordinates(coordinates, dimension, table.name)
        pairs, single = cells_of_faces("face_cells", face_cells, 2), cells_of_faces("boundary_cells", boundary_cells, 1)
        copies = checked_halo(halo)
        self.kind = table.name
        self.arrangement = arrangement or Arrangement("given", "nothing else was asked for")
        numbers = self.arrangement.numbers
        self.nodes = made_set(Set, "nodes", len(x), copies, numbers)
        self.cells = made_set(MeshSet, "cells", len(table), copies, numbers)
        self.faces = made_set(MeshSet, "faces", len(pairs), copies, numbers)
        self.boundary_faces = made_set(MeshSet, "boundary_faces", len(single), copies, numbers)
        faces = checked_lists("face_nodes", face_nodes, table.face_sizes)
        ends = checked_lists("boundary_nodes", boundary_nodes, table.face_sizes)
        self.cell_nodes = cast(Map, map_of(self.cells, self.nodes, table.nodes, "cell_nodes"))
        self.face_nodes = cast(Map, map_of(self.faces, self.nodes, faces, "face_nodes"))
        self.face_cells = Map(self.faces, self.cells, pairs, "face_cells")
        self.boundary_nodes = cast(Map, map_of(self.boundary_faces, self.nodes, ends, "boundary_nodes"))
        self.boundary_cells = Map(self.boundary_faces, self.cells, single, "boundary_cells")
        self.coordinates = self.nodes.field("coordinates", dimension, data=x, dtype=np.float64)
        self.groups, of_face = checked_groups(groups, boundary_group, len(single))
        self.boundary_group = self.boundary_faces.field("boundary_group", data=of_face, dtype=np.int32)
        self.cell_groups = checked_cell_groups(cell_groups, len(table))
        #: The nodes of cells and faces as rows of changing length.
        self.lists = MeshLists(table.kept(self.cell_nodes), faces.kept(self.face_nodes), ends.kept(self.boundary_nodes))
        #: The faces that join periodic sides; none in most meshes.
        self.joints = joints or Joints.none(dimension)
        self._name_corners(x)
        self._permutation = permutation
        #: Groups of the boundary that belong together according to the file that the mesh was read from.
        self.periodic_sides: dict[str, str] = {}
        self._parts: dict[tuple[str, str], MeshPart] = {}
        for one in (self.face_cells, self.boundary_cells):
            one.kept_for("it is one of a mesh")
        belong_to(self, self.nodes, self.cells, self.faces, self.boundary_faces)

    def _restored(self) -> None:
        belong_to(self, self.nodes, self.cells, self.faces, self.boundary_faces)

    def _name_corners(self, x: np.ndarray) -> None:
        """Sets learn their places, and the nodes of their elements."""
        lists = self.lists
        self.nodes.points = x
        self.cells.corners(lists.cells.kinds, lists.cells.nodes, self.nodes)
        for elements, nodes in ((self.faces, lists.faces), (self.boundary_faces, lists.boundary_faces)):
            elements.corners(nodes.kinds(FACE_KINDS), nodes, self.nodes)
        for elements, nodes in ((self.cells, lists.cells.nodes), (self.faces, lists.faces),
                                (self.boundary_faces, lists.boundary_faces)):  # fmt: skip
            elements.points = nodes.measured(lambda rows: geometry.mean_points(x, rows), self.dim)

    @classmethod
    def from_cells(
        cls,
        coordinates: ArrayLike,
        cell_nodes: ArrayLike | Mapping[str, ArrayLike],
        kind: str | None = None,
        boundary: Mapping[str, Any] | None = None,
        *,
        groups: Mapping[str, int] | None = None,
        cell_groups: Mapping[str, ArrayLike] | None = None,
        order: str = AUTO,
    ) -> Mesh:
        """A mesh from coordinates (n, d) and the nodes of each cell; faces are derived, owner < neighbor.

        ``cell_nodes``: (m, k) of cells of one ``kind``, or {kind: (m, k)} of several: "triangle", "quad" and "polygon"
        (a list of rows whose lengths may differ) in 2-D, "tetrahedron", "pyramid", "prism" and "hexahedron" in 3-D, in
        the order of VTK; a cell that is inside out is turned. Cells are numbered kind by kind, in the order given.

        ``boundary`` lists for each group the nodes (m, k) of its faces, in any order, or a list of such arrays where it
        has triangles and quadrilaterals; boundary faces in no list form the group "boundary". ``groups`` may give the
        numbers of the groups; others count up from 1. ``cell_groups`` lists for each group the numbers of its cells.
        ``order`` is that of ``arranged``.
        """
        table = CellTable.by_kind(cell_nodes, kind)
        return cls.from_table(coordinates, table, boundary, groups=groups, cell_groups=cell_groups, order=order)

    @classmethod
    def from_table(
        cls,
        coordinates: ArrayLike,
        table: CellTable,
        boundary: Mapping[str, Any] | None = None,
        *,
        groups: Mapping[str, int] | None = None,
        cell_groups: Mapping[str, ArrayLike] | None = None,
        order: str = AUTO,
    ) -> Mesh:
        """The same for cells of all kinds in any order, as files have them."""
        x = checked_coordinates(coordinates, dimension_of(tuple(table.kinds)), table.name)
        named = by_name("boundary", boundary)
        try:
            cells = oriented_cells(x, checked_cells(table, len(x)))
            faces = derive_faces(cells, len(x))
            member = group_boundary(faces.boundary_nodes, named, len(x), cells.face_sizes)
        except ValidationError as error:
            raise error.placed(x) from None
        names = [*named, UNNAMED] if (member == 0).any() and UNNAMED not in named else list(named)
        numbers = numbered(names, group_numbers(groups))
        values = np.array([numbers.get(UNNAMED, 0), *(numbers[name] for name in named)], dtype=np.int64)
        return cls(
            x,
            kind=cells.kind,
            cell_nodes=cells.nodes,
            face_nodes=faces.nodes,
            face_cells=faces.cells,
            boundary_nodes=faces.boundary_nodes,
            boundary_cells=faces.boundary_cells,
            boundary_group=values[member],
            groups=numbers,
            cell_groups=cell_groups,
        ).arranged(order)

    @classmethod
    def from_parts(
        cls,
        coordinates: ArrayLike,
        cell_nodes: ArrayLike | NodeLists,
        face_nodes: ArrayLike | NodeLists,
        face_cells: ArrayLike,
        boundary_nodes: ArrayLike | NodeLists,
        boundary_cells: ArrayLike,
        boundary_group: ArrayLike | None = None,
        *,
        kind: str | Mapping[str, ArrayLike],
        groups: Mapping[str, int] | None = None,
        cell_groups: Mapping[str, ArrayLike] | None = None,
        halo: Mapping[str, int] | None = None,
    ) -> Mesh:
        """A mesh with given connectivity, taken as it is: nothing is derived, reoriented or renumbered. If it comes in
        a bad order, say ``.arranged()``.

        ``kind`` is that of all cells, or names several with the numbers of their cells, {"quad": [0], "triangle": [1]};
        nodes are (n, k) arrays, or lists of rows where their numbers differ.

        ``boundary_group`` (b,) holds a number of ``groups`` for each boundary face (all "boundary" unless given);
        ``cell_groups`` lists for each group the numbers of its cells.
        ``halo`` says how many of the last rows of a set are copies owned elsewhere, such as ``{"cells": 12}``.
        """
        return cls(
            coordinates,
            kind=kind,
            cell_nodes=cell_nodes,
            face_nodes=face_nodes,
            face_cells=face_cells,
            boundary_nodes=boundary_nodes,
            boundary_cells=boundary_cells,
            boundary_group=boundary_group,
            groups=groups,
            cell_groups=cell_groups,
            halo=halo,
        )

    @cached_property
    def owner_first(self) -> bool:
        """Whether every face has owner < neighbor; such a mesh stays so when it is reordered."""
        cells = self.face_cells.indices
        return bool((cells[:, 0] <= cells[:, 1]).all())  # the same where a joint leads a cell to itself

    @property
    def permutation(self) -> Permutation:
        """The way back to the numbering before the first ``reordered`` (the identity if there was none)."""
        if self._permutation is None:
            self._permutation = Permutation.identity(*(getattr(self, name).total for name in SETS))
        return self._permutation

    @property
    def digest(self) -> str:
        """SHA-256 of connectivity, coordinates and groups by number, however they are arranged in memory."""
        state = hashlib.sha256(f"{self.kind} {sorted(self.groups.items())}".encode())
        for map_ in (self.cell_nodes, self.face_nodes, self.face_cells, self.boundary_nodes, self.boundary_cells):
            state.update(map_.indices_digest.encode())
        for name, numbers in sorted(self.lists.cells.kinds.items()) if self.kind == MIXED else ():
            state.update(name.encode() + np.asarray(numbers, "<i8").tobytes())
        for field in (self.coordinates, self.boundary_group):
            state.update(np.ascontiguousarray(field.numpy()).data)
        if len(self.joints):
            state.update(self.joints.digest.encode())
        for name, cells in sorted(self.cell_groups.items()):  # nothing where there are none: old checkpoints stay good
            state.update(f"{len(name)} {name} {len(cells)}".encode() + cells.astype("<i8").tobytes())
        return state.hexdigest()

    def arranged(self, order: str = AUTO, *, block: int = 256, seed: int = 0) -> Mesh:
        """The same mesh with the same numbers, but lying in memory by an ordering of ``meshloom.order``: only speed
        changes. "auto" takes "hilbert" if the given order is bad and leaves it alone otherwise; "given" leaves it
        alone. ``arrangement`` of the result says what was done and why.
        """
        refuse_in_program("arranging a mesh", MAKE_BEFORE)
        asked = self, "arranged", order, block, seed
        how, made = Rows.placement.made_once(lambda: self._made_to_lie(order, block, seed), *asked)
        if made is None:
            same = Mesh.__new__(Mesh)  # all the same sets and maps
            same.__dict__ |= self.__dict__ | {"arrangement": how}
            belong_to(same, same.nodes, same.cells, same.faces, same.boundary_faces)
            return same
        return made

    def _made_to_lie(self, order: str, block: int, seed: int) -> tuple[Arrangement, Mesh | None]:
        """By an ordering, and the mesh that lies so; None where this one does."""
        how = arrangement(self, order, block=block, seed=seed)
        lies_so = how.numbers is None and self.arrangement.numbers is None
        return how, None if lies_so else self._lying(how)

    def _lying(self, how: Arrangement) -> Mesh:
        """The same mesh, arranged so."""
        made = Mesh(
            self.coordinates.numpy(),
            kind=self.lists.cells.kind,
            cell_nodes=self.lists.cells.nodes,
            face_nodes=self.lists.faces,
            face_cells=self.face_cells.indices,
            boundary_nodes=self.lists.boundary_faces,
            boundary_cells=self.boundary_cells.indices,
            boundary_group=self.boundary_group.numpy(),
            groups=self.groups,
            cell_groups=self.cell_groups,
            halo=self._halo,
            joints=self.joints,
            permutation=self._permutation,
            arrangement=how,
        )
        return made._told_by(self)

    def _told_by(self, other: Mesh) -> Mesh:
        """It knows what the file of the other one said."""
        self.periodic_sides = {one: to for one, to in other.periodic_sides.items() if {one, to} <= set(self.groups)}
        return self

    @property
    def _halo(self) -> dict[str, int]:
        return {name: getattr(self, name).halo for name in SETS}

    def reordered(self, name: str, *, block: int = 256, seed: int = 0) -> Mesh:
        """The mesh with new numbers: cells, faces, boundary faces and nodes by an ordering of ``meshloom.order``.

        This changes what a person sees; ``arranged`` does not, and is as fast. ``permutation`` of the result carries
        values there and back; it leads to the numbering before the first reordering. "given" leaves every number.
        """
        refuse_in_program("reordering a mesh", MAKE_BEFORE)
        asked = self, "reordered", name, block, seed
        return Rows.placement.made_once(lambda: self._renumbered(name, block, seed), *asked)

    def _renumbered(self, name: str, block: int, seed: int) -> Mesh:
        if isinstance(name, str) and name == "given":
            step = Permutation.identity(*(getattr(self, set_name).total for set_name in SETS))
        else:
            step = ordering(self, name, block=block, seed=seed)
        total = step if self._permutation is None else self._permutation.then(step)
        moved = step.inverse("cells")
        members = {name: moved[cells] for name, cells in self.cell_groups.items()}
        made = Mesh(groups=self.groups, cell_groups=members, halo=self._halo, permutation=total,
                    **renumbered(self, step))  # fmt: skip
        return made._told_by(self)

    def check(self, *, faces: bool = True) -> None:
        """Raise a MeshError that names the cell or face unless this is a mesh that can be computed on.

        Cells have different nodes, positive volumes and do not cross themselves; every side of a cell belongs to
        exactly one face, which lies between the cells it names (nodes may differ where their places agree, as at a wake
        cut) and has its normal from the first to the second; cells around a node do not overlap. No node lies on the
        side of a cell that does not have it, unless the side is in a named group of the boundary: cells that should
        meet have the same nodes. ``ml.read`` does this. ``faces=False`` leaves out what holds in any case where faces
        were derived (``from_cells``).
        """
        x, cells = self.coordinates.numpy(), self.lists.cells
        interior = self.lists.faces, self.face_cells.indices
        boundary = self.lists.boundary_faces, self.boundary_cells.indices
        try:
            if faces:
                validation.check_shapes(x, checked_cells(cells, len(x)))
                validation.check_sides(x, cells, interior, boundary, len(self.cells), self.joints)
            if self.dim == 3:
                validation.check_crossings(x, cells, interior, boundary)
            validation.check_corners(x, cells, boundary)
            unnamed = self.boundary_group.numpy() == self.groups.get(UNNAMED, 0)
            if unnamed.any():
                of = boundary[1][:, 0]
                validation.check_slits(x, boundary[0], of, self._cell_heights[of], unnamed)
        except ValidationError as error:
            raise error.placed(x) from None

    def periodic(self, pairs: Mapping[str, str] | None = None, *, tolerance: float = 1e-4) -> Mesh:
        """The mesh with the faces of groups paired, {"xmin": "xmax"}: each pair is an interior face, behind the others.
        Without ``pairs`` those that its file names, ``periodic_sides``.

        Partners are matched by translation, that of the middles of the groups; ``tolerance`` says how far
        off their centres may be, as a part of the size of a face. The face is at the side of its first cell;
        ``cell_distances``, ``cell_to_face`` and ``face_shifts`` lead to the other. A MeshError names the face that has
        no partner. Cells and nodes keep their numbers; the two groups are gone, until ``opened`` brings them back.
        """
        refuse_in_program("joining the sides of a mesh", MAKE_BEFORE)
        if pairs is None and not self.periodic_sides:
            raise MeshError("periodic: no file has told this mesh which sides belong together; name the groups, as in"
                            ' {"xmin": "xmax"}')  # fmt: skip
        sides = self.periodic_sides if pairs is None else pairs
        asked = self, "periodic", sides, tolerance
        return Rows.placement.made_once(lambda: self._with(**joined(self, sides, tolerance)), *asked)

    def opened(self) -> Mesh:
        """The mesh with its periodic sides as groups of the boundary again; itself where it has none."""
        refuse_in_program("opening the sides of a mesh", MAKE_BEFORE)
        if not len(self.joints):
            return self
        return Rows.placement.made_once(lambda: self._with(**opened(self), joints=None), self, "opened")

    def _with(self, **faces: Any) -> Mesh:
        """The same nodes and cells with other faces, arranged in the same way."""
        table, how = self.lists.cells, self.arrangement
        made = Mesh(
            self.coordinates.numpy(), kind=table.kind, cell_nodes=table.nodes, cell_groups=self.cell_groups,
            arrangement=how if how.numbers is None else None, **faces,
        )  # fmt: skip
        made._told_by(self)
        return made if how.numbers is None else made.arranged(how.order)

    def __repr__(self) -> str:
        counted = " + ".join(f"{len(numbers)} {kind}" for kind, numbers in self.cells.kinds.items())
        of_cells = f"; cell groups: {', '.join(self.cell_groups)}" if self.cell_groups else ""
        groups = f"groups: {', '.join(self.groups) or 'none'}{of_cells}{self._joined_names}"
        return (
            f"Mesh({counted} cells, {len(self.faces)} faces, {len(self.boundary_faces)} boundary faces,"
            f" {len(self.nodes)} nodes; {groups})"
        )

    def _repr_html_(self) -> str:
        return _mesh_table(self)

    @property
    def _joined_names(self) -> str:
        said = ", ".join(f"{one} to {other}" for one, other in self.periodic_sides.items())
        told = f"; periodic by its file: {said}" if said else ""
        return f"; periodic: {', '.join(self.joints.groups)}{told}" if len(self.joints) else told


def mesh_of(on: Set) -> Mesh | None:
    """The mesh that a set is one of, or a part of one of; None where there is none, or none any more."""
    found = owner_of(on)
    return found if isinstance(found, Mesh) else None


def _mesh_table(mesh: Mesh) -> str:
    """What a notebook shows of a mesh."""
    kinds = " + ".join(f"{len(numbers):,} {kind}" for kind, numbers in mesh.cells.kinds.items())
    group_of_face = np.bincount(mesh.boundary_group.rows()[:, 0]) if recorder.get() is None else np.zeros(0, int)
    groups = ", ".join(f"{name} ({_count(group_of_face, number)})" for name, number in mesh.groups.items())
    rows: list[tuple[str, object]] = [
        ("cells", kinds),
        ("nodes", f"{len(mesh.nodes):,}"),
        ("faces", f"{len(mesh.faces):,} interior, {len(mesh.boundary_faces):,} on the boundary"),
        ("groups", groups or "none"),
    ]
    if mesh.cell_groups:
        rows.append(("cell groups", ", ".join(f"{n} ({len(c):,})" for n, c in mesh.cell_groups.items())))
    if len(mesh.joints):
        rows.append(("periodic", ", ".join(mesh.joints.groups)))
    rows += [*_extent(mesh), ("in memory", str(mesh.arrangement))]
    return markup.table(f"Mesh in {mesh.dim} dimensions", rows)


def _count(counts: np.ndarray, number: int) -> str:
    return f"{counts[number]:,}" if 0 <= number < len(counts) else "0" if len(counts) else "…"


def _extent(mesh: Mesh) -> list[tuple[str, object]]:
    if recorder.get() is not None or mesh.nodes.total * mesh.dim > MOST_READ or not mesh.nodes.total:
        return []
    x = mesh.coordinates.numpy()
    ends = zip("xyz", x.min(axis=0), x.max(axis=0), strict=False)
    return [("extent", ", ".join(f"{name} {low:.6g} to {high:.6g}" for name, low, high in ends))]
