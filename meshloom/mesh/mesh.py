"""Mesh: nodes, cells, interior faces and boundary faces, the maps between them, and the names of the boundary."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, known_name, shown, whole_number
from meshloom.mesh import geometry, soundness
from meshloom.mesh.arrange import AUTO, Arrangement, arrangement
from meshloom.mesh.copies import ItsOwnCopy
from meshloom.mesh.core import Map, Set
from meshloom.mesh.distance import face_distances
from meshloom.mesh.faces import (
    CellKind,
    cell_kind,
    cells_across,
    checked_cells,
    derive_faces,
    group_boundary,
    oriented_cells,
)
from meshloom.mesh.faults import Fault
from meshloom.mesh.parts import BoundaryPart, Cells
from meshloom.mesh.reorder import SETS, Permutation, ordering, renumbered
from meshloom.mesh.values import as_array, same_kind
from meshloom.recording import MAKE_BEFORE, refuse_in_program

S = TypeVar("S", bound=Set)
T = TypeVar("T")
#: The group of boundary faces that nobody named.
UNNAMED = "boundary"


class Mesh(ItsOwnCopy):
    """One kind of cell, with everything a face or cell loop needs.

    Sets: ``nodes``, ``cells``, ``faces`` (interior: two cells each), ``boundary_faces`` (one cell each). In 2-D faces
    are edges. Maps: ``cell_nodes``, ``face_nodes``, ``face_cells``, ``boundary_nodes``, ``boundary_cells``, and
    ``cell_cells`` when asked for. Fields: ``coordinates`` on nodes and ``boundary_group`` on boundary faces, whose
    numbers ``groups`` names. ``cell_groups``: the numbers of the cells of named groups; groups may overlap, and those
    of cells and faces may be empty.

    The normal of a face points from its first cell to its second, and out of the domain on the boundary: in 2-D,
    with (dx, dy) = first minus second node, it is (dy, -dx); in 3-D it follows the right-hand rule of the nodes.

    ``arrangement`` tells how the elements lie in memory, and why; nothing else that is public depends on it.
    """

    def __init__(
        self,
        coordinates: ArrayLike,
        *,
        kind: str,
        cell_nodes: ArrayLike,
        face_nodes: ArrayLike,
        face_cells: ArrayLike,
        boundary_nodes: ArrayLike,
        boundary_cells: ArrayLike,
        boundary_group: ArrayLike | None = None,
        groups: Mapping[str, int] | None = None,
        cell_groups: Mapping[str, ArrayLike] | None = None,
        halo: Mapping[str, int] | None = None,
        permutation: Permutation | None = None,
        arrangement: Arrangement | None = None,
    ):
        refuse_in_program("making a mesh", MAKE_BEFORE)
        shape = cell_kind(kind)
        x = _checked_coordinates(coordinates, shape)
        arrays = {
            "cell_nodes": _rows("cell_nodes", cell_nodes, shape.nodes),
            "face_nodes": _rows("face_nodes", face_nodes, shape.face_nodes),
            "face_cells": _rows("face_cells", face_cells, 2),
            "boundary_nodes": _rows("boundary_nodes", boundary_nodes, shape.face_nodes),
            "boundary_cells": _rows("boundary_cells", boundary_cells, 1),
        }
        copies = _checked_halo(halo)
        sizes = {"nodes": len(x), "cells": len(arrays["cell_nodes"]), "faces": len(arrays["face_cells"]),
                 "boundary_faces": len(arrays["boundary_cells"])}  # fmt: skip
        self.kind = shape.name
        self.arrangement = arrangement or Arrangement("given", "nothing else was asked for")
        self.nodes, self.faces, self.boundary_faces = (
            _set(Set, name, sizes[name], copies, self.arrangement.numbers) for name in SETS if name != "cells"
        )
        self.cells = _set(Cells, "cells", sizes["cells"], copies, self.arrangement.numbers)
        self.cell_nodes = Map(self.cells, self.nodes, arrays["cell_nodes"], "cell_nodes")
        self.cells.corners(shape.name, self.cell_nodes)
        self.face_nodes = Map(self.faces, self.nodes, arrays["face_nodes"], "face_nodes")
        self.face_cells = Map(self.faces, self.cells, arrays["face_cells"], "face_cells")
        self.boundary_nodes = Map(self.boundary_faces, self.nodes, arrays["boundary_nodes"], "boundary_nodes")
        self.boundary_cells = Map(self.boundary_faces, self.cells, arrays["boundary_cells"], "boundary_cells")
        self.coordinates = self.nodes.field("coordinates", shape.dimension, data=x, dtype=np.float64)
        self.groups, numbers = _checked_groups(groups, boundary_group, sizes["boundary_faces"])
        self.boundary_group = self.boundary_faces.field("boundary_group", data=numbers, dtype=np.int32)
        self.cell_groups = _checked_cell_groups(cell_groups, sizes["cells"])
        for elements, nodes in ((self.cells, "cell_nodes"), (self.faces, "face_nodes"),
                                (self.boundary_faces, "boundary_nodes")):  # fmt: skip
            elements.points = geometry.mean_points(x, arrays[nodes])
        self.nodes.points = x
        self._permutation = permutation
        self._parts: dict[str, BoundaryPart] = {}

    @classmethod
    def from_cells(
        cls,
        coordinates: ArrayLike,
        cell_nodes: ArrayLike,
        kind: str,
        boundary: Mapping[str, ArrayLike] | None = None,
        *,
        groups: Mapping[str, int] | None = None,
        cell_groups: Mapping[str, ArrayLike] | None = None,
        order: str = AUTO,
    ) -> Mesh:
        """A mesh from coordinates (n, d) and the nodes of each cell; faces are derived, owner < neighbor.

        ``boundary`` lists for each group the nodes (m, k) of its faces, in any order; boundary faces in no list
        form the group "boundary". ``groups`` may give the numbers of the groups; others count up from 1.
        ``cell_groups`` lists for each group the numbers of its cells. ``order`` is that of ``arranged``.
        """
        shape = cell_kind(kind)
        x = _checked_coordinates(coordinates, shape)
        named = _by_name("boundary", boundary)
        try:
            cells = oriented_cells(x, checked_cells(cell_nodes, shape, len(x)), shape)
            faces = derive_faces(cells, shape, len(x))
            member = group_boundary(faces.boundary_nodes, named, len(x))
        except Fault as fault:
            raise fault.placed(x) from None
        names = [*named, UNNAMED] if (member == 0).any() and UNNAMED not in named else list(named)
        numbers = _numbered(names, _group_numbers(groups))
        values = np.array([numbers.get(UNNAMED, 0), *(numbers[name] for name in named)], dtype=np.int64)
        return cls(
            x,
            kind=kind,
            cell_nodes=cells,
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
        cell_nodes: ArrayLike,
        face_nodes: ArrayLike,
        face_cells: ArrayLike,
        boundary_nodes: ArrayLike,
        boundary_cells: ArrayLike,
        boundary_group: ArrayLike | None = None,
        *,
        kind: str,
        groups: Mapping[str, int] | None = None,
        cell_groups: Mapping[str, ArrayLike] | None = None,
        halo: Mapping[str, int] | None = None,
    ) -> Mesh:
        """A mesh with given connectivity, taken as it is: nothing is derived, reoriented or renumbered. If it comes in
        a bad order, say ``.arranged()``.

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

    @property
    def dim(self) -> int:
        """2 or 3."""
        return self.coordinates.dim

    @cached_property
    def owner_first(self) -> bool:
        """Whether every face has owner < neighbor; such a mesh stays so when it is reordered."""
        cells = self.face_cells.indices
        return bool((cells[:, 0] < cells[:, 1]).all())

    @cached_property
    def cell_cells(self) -> Map:
        """For every cell the cells across its faces, in the order of the faces of its kind; itself at the boundary."""
        across = cells_across(
            self.cell_nodes.indices, self.face_nodes.indices, self.face_cells.indices, cell_kind(self.kind)
        )
        return Map(self.cells, self.cells, across, "cell_cells")

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
        for field in (self.coordinates, self.boundary_group):
            state.update(np.ascontiguousarray(field.numpy()).data)
        for name, cells in sorted(self.cell_groups.items()):  # nothing where there are none: old checkpoints stay good
            state.update(f"{len(name)} {name} {len(cells)}".encode() + cells.astype("<i8").tobytes())
        return state.hexdigest()

    def arranged(self, order: str = AUTO, *, block: int = 256, seed: int = 0) -> Mesh:
        """The same mesh with the same numbers, but lying in memory by an ordering of ``meshloom.order``: only speed
        changes. "auto" takes "hilbert" if the given order is bad and leaves it alone otherwise; "given" leaves it
        alone. ``arrangement`` of the result says what was done and why.
        """
        refuse_in_program("arranging a mesh", MAKE_BEFORE)
        how = arrangement(self, order, block=block, seed=seed)
        if how.numbers is None and self.arrangement.numbers is None:
            same = Mesh.__new__(Mesh)  # all the same sets and maps
            same.__dict__ |= self.__dict__ | {"arrangement": how}
            return same
        return Mesh(
            self.coordinates.numpy(),
            kind=self.kind,
            cell_nodes=self.cell_nodes.indices,
            face_nodes=self.face_nodes.indices,
            face_cells=self.face_cells.indices,
            boundary_nodes=self.boundary_nodes.indices,
            boundary_cells=self.boundary_cells.indices,
            boundary_group=self.boundary_group.numpy(),
            groups=self.groups,
            cell_groups=self.cell_groups,
            halo=self._halo,
            permutation=self._permutation,
            arrangement=how,
        )

    @property
    def _halo(self) -> dict[str, int]:
        return {name: getattr(self, name).halo for name in SETS}

    def reordered(self, name: str, *, block: int = 256, seed: int = 0) -> Mesh:
        """The mesh with new numbers: cells, faces, boundary faces and nodes by an ordering of ``meshloom.order``.

        This changes what a person sees; ``arranged`` does not, and is as fast. ``permutation`` of the result carries
        values there and back; it leads to the numbering before the first reordering. "given" leaves every number.
        """
        refuse_in_program("reordering a mesh", MAKE_BEFORE)
        if isinstance(name, str) and name == "given":
            step = Permutation.identity(*(getattr(self, set_name).total for set_name in SETS))
        else:
            step = ordering(self, name, block=block, seed=seed)
        total = step if self._permutation is None else self._permutation.then(step)
        arrays: dict[str, Any] = renumbered(self, step)
        moved = step.inverse("cells")
        members = {name: moved[cells] for name, cells in self.cell_groups.items()}
        return Mesh(kind=self.kind, groups=self.groups, cell_groups=members, halo=self._halo, permutation=total,
                    **arrays)  # fmt: skip

    def check(self, *, faces: bool = True) -> None:
        """Raise a MeshError that names the cell or face unless this is a mesh that can be computed on.

        Cells have different nodes, positive volumes and do not cross themselves; every side of a cell belongs to
        exactly one face, which lies between the cells it names (nodes may differ where their places agree, as at a wake
        cut) and has its normal from the first to the second; cells round a node do not overlap. ``ml.read`` does this.
        ``faces=False`` leaves out what holds in any case where faces were derived (``from_cells``).
        """
        x, cells, kind = self.coordinates.numpy(), self.cell_nodes.indices, cell_kind(self.kind)
        interior = self.face_nodes.indices, self.face_cells.indices
        boundary = self.boundary_nodes.indices, self.boundary_cells.indices
        try:
            if faces:
                soundness.check_shapes(x, checked_cells(cells, kind, len(x)), kind)
                soundness.check_sides(x, cells, kind, interior, boundary, len(self.cells))
            soundness.check_crossings(x, cells, interior, boundary)
            soundness.check_corners(x, cells, kind, boundary)
        except Fault as fault:
            raise fault.placed(x) from None

    def group(self, name: str) -> np.ndarray:
        """The numbers of the boundary faces of a group."""
        known_name("boundary group", name, self.groups, error=MeshError)
        return np.flatnonzero(self.boundary_group.numpy() == self.groups[name])

    def boundary(self, name: str) -> BoundaryPart:
        """The boundary faces of a group as a set to loop over, with their maps ``cells`` and ``nodes`` and the fields
        ``normal`` (times area, out of the domain) and ``centre``; the same object at every call."""
        known_name("boundary group", name, self.groups, error=MeshError)
        if name not in self._parts:
            refuse_in_program(f"making boundary {name}", MAKE_BEFORE)
            self._parts[name] = BoundaryPart(self, name)
        return self._parts[name]

    def wall_distance(self, *groups: str) -> np.ndarray:
        """From the centroid of each cell to the nearest boundary face of these groups, (cells,): exact, to the whole
        of each face."""
        numbers = [self.group(name) for name in groups]
        if not any(map(len, numbers)):
            what = f"boundary group {' or '.join(map(repr, groups))} has no faces" if groups else "no group is named"
            raise MeshError(f"wall_distance: {what}; the mesh has {', '.join(self.groups) or 'none'}")
        nodes = self.boundary_nodes.indices[np.concatenate(numbers)]
        return face_distances(self.cell_centroids, self.coordinates.numpy(), [nodes])

    def cell_group(self, name: str) -> np.ndarray:
        """The numbers of the cells of a group, ascending."""
        return self.cell_groups[known_name("cell group", name, self.cell_groups, error=MeshError)].copy()

    @property
    def cell_volumes(self) -> np.ndarray:
        """Volume (area in 2-D) of each cell, (cells,); like all of these, by the coordinates as they are now."""
        return geometry.cell_volumes(self.coordinates.numpy(), self.cell_nodes.indices, self.kind)

    @property
    def cell_centroids(self) -> np.ndarray:
        """Centre of mass of each cell, (cells, d)."""
        return geometry.cell_centroids(self.coordinates.numpy(), self.cell_nodes.indices, self.kind)

    @property
    def face_normals(self) -> np.ndarray:
        """Normal times area of each interior face, from its first cell to its second, (faces, d)."""
        return geometry.area_vectors(self.coordinates.numpy(), self.face_nodes.indices)

    @property
    def boundary_normals(self) -> np.ndarray:
        """Normal times area of each boundary face, out of the domain, (boundary_faces, d)."""
        return geometry.area_vectors(self.coordinates.numpy(), self.boundary_nodes.indices)

    @property
    def face_centres(self) -> np.ndarray:
        """Centre of mass of each interior face, (faces, d)."""
        return geometry.face_centroids(self.coordinates.numpy(), self.face_nodes.indices)

    @property
    def boundary_centres(self) -> np.ndarray:
        """Centre of mass of each boundary face, (boundary_faces, d)."""
        return geometry.face_centroids(self.coordinates.numpy(), self.boundary_nodes.indices)

    def __repr__(self) -> str:
        return (
            f"Mesh({len(self.cells)} {self.kind} cells, {len(self.faces)} faces, {len(self.boundary_faces)} boundary"
            f" faces, {len(self.nodes)} nodes; groups: {', '.join(self.groups) or 'none'}{self._cell_group_names})"
        )

    @property
    def _cell_group_names(self) -> str:
        return f"; cell groups: {', '.join(self.cell_groups)}" if self.cell_groups else ""


def _checked_coordinates(coordinates: ArrayLike, kind: CellKind) -> np.ndarray:
    x = np.array(same_kind(coordinates, np.dtype(np.float64), "coordinates"))
    if x.ndim != 2 or x.shape[1] != kind.dimension:
        raise MeshError(f"{kind.name} cells need coordinates of shape (n, {kind.dimension}), got {x.shape}")
    if not np.isfinite(x).all():
        node = int(np.argmin(np.isfinite(x).all(axis=1)))
        raise Fault(f"node {{node}} has the coordinates {x[node].tolist()}: they must be finite numbers", nodes=[node])
    return x


def _rows(name: str, indices: ArrayLike, width: int) -> np.ndarray:
    array = as_array(indices, name)
    if array.size == 0:
        return np.zeros((0, width), dtype=np.int32)
    if array.ndim == 1 and width == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or array.shape[1] != width:
        raise MeshError(f"{name}: expected shape (n, {width}), got {array.shape}")
    return array


def _by_name(what: str, given: Mapping[str, T] | None) -> dict[str, T]:
    """What is given by name; MeshError where it is no such thing."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise MeshError(f"{what} takes names and what they stand for, {{name: value}}, got {shown(given)}")
    return dict(given)


def _group_numbers(groups: Mapping[str, int] | None) -> dict[str, int]:
    """The numbers of named boundary groups."""
    most = 2**31 - 1
    return {name: whole_number(f"boundary groups: the number of {name}", number, 1, most, error=MeshError)
            for name, number in _by_name("groups", groups).items()}  # fmt: skip


def _checked_halo(halo: Mapping[str, int] | None) -> dict[str, int]:
    copies = _by_name("halo", halo)
    for name in copies:
        known_name("set with a halo", name, SETS, error=MeshError)
    return copies


def _set(make: type[S], name: str, total: int, halo: Mapping[str, int], numbers: Permutation | None) -> S:
    copies = whole_number(f"{name}: halo", halo.get(name, 0), 0, total, error=MeshError)
    return make(total - copies, name, halo=copies, numbering=None if numbers is None else numbers.of(name))


def _numbered(names: list[str], given: Mapping[str, int]) -> dict[str, int]:
    """A number for each group name: the given one, else the next free from 1."""
    free = (number for number in range(1, len(names) + len(given) + 1) if number not in given.values())
    return {name: int(given[name]) if name in given else next(free) for name in names}


def _checked_cell_groups(groups: Mapping[str, ArrayLike] | None, count: int) -> dict[str, np.ndarray]:
    """The cells of each group, ascending, each once; arrays that nobody changes by mistake."""
    checked = {}
    for name, cells in _by_name("cell_groups", groups).items():
        numbers = as_array(cells, f"cell group {name!r}")
        if numbers.ndim != 1 or not (numbers.size == 0 or np.issubdtype(numbers.dtype, np.integer)):
            raise MeshError(f"cell group {name!r}: expected a list of cell numbers, got {numbers.dtype} of shape"
                            f" {numbers.shape}")  # fmt: skip
        wrong = numbers[(numbers < 0) | (numbers >= count)]
        if wrong.size:
            raise MeshError(f"cell group {name!r}: cell {wrong[0]} does not exist; there are {count}, counted from 0")
        checked[str(name)] = np.unique(numbers).astype(np.int64)
        checked[str(name)].flags.writeable = False
    return checked


def _checked_groups(
    groups: Mapping[str, int] | None, numbers: ArrayLike | None, count: int
) -> tuple[dict[str, int], np.ndarray]:
    """Names and the number of each boundary face, checked against each other."""
    known = _group_numbers(groups)
    if numbers is None:
        names = known or ({UNNAMED: 1} if count else {})
        if len(names) > 1:
            raise MeshError(f"boundary_group is missing: which boundary faces belong to {', '.join(names)}?")
        return names, np.full(count, next(iter(names.values()), 1), dtype=np.int32)
    values = as_array(numbers, "boundary_group")
    if values.shape not in ((count,), (count, 1)) or not (values.size == 0 or np.issubdtype(values.dtype, np.integer)):
        raise MeshError(f"boundary_group: expected {count} integers, got shape {values.shape} of {values.dtype}")
    values = values.reshape(-1)
    present = np.unique(values).tolist()
    names = known if groups is not None else _group_numbers({f"group{number}": number for number in present})
    if len(set(names.values())) < len(names):
        raise MeshError(f"two boundary groups have the same number: {names}")
    unknown = [number for number in present if number not in names.values()]
    if unknown:
        raise MeshError(f"boundary_group holds {unknown[0]}, but the groups are {names}")
    return names, values.astype(np.int32)
