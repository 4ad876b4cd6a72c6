"""Parts of sets: a boundary group, the cells of a region, whatever a mask says. A part is a set like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, instance
from meshloom.mesh.core import Map, Set
from meshloom.mesh.values import as_array, named, whole_numbers

if TYPE_CHECKING:
    from meshloom.mesh.mesh import Mesh


class Subset(Set):
    """Some elements of another set, ``whole``, in the order of their numbers there.

    ``members`` leads from each of them to itself in the whole. Fields of the whole can be handed to loops over the part
    as they are; the part has fields and maps of its own, too.
    """

    def __init__(self, whole: Set, numbers: np.ndarray, name: str):
        points = None if whole.points is None else whole.points[numbers]
        super().__init__(len(numbers), name, points=points, numbering=_as_in_memory(whole, numbers))
        self.whole = whole
        self.members = Map(self, whole, numbers, f"members of {self.name}")
        self._members_of = {whole: self.members}
        self._restricted: dict[Map, Map] = {}

    def members_of(self, other: Set) -> Map | None:
        """From each element to itself in a set that this is a part of, or a part of a part; None for any other set."""
        instance(f"{self.name}: what it may be a part of", other, Set, error=MeshError)
        if other not in self._members_of and isinstance(self.whole, Subset):
            further = self.whole.members_of(other)
            if further is not None:
                numbers = further.indices[self.members.indices[:, 0]]
                self._members_of[other] = Map(self, other, numbers, f"members of {self.name} in {other.name}")
        return self._members_of.get(other)

    def restricted(self, map_: Map) -> Map:
        """A map of a set that this is a part of, for its elements alone; made once."""
        instance(f"{self.name}: what is restricted to it", map_, Map, error=MeshError)
        if map_ not in self._restricted:
            members = self.members_of(map_.source)
            if members is None:
                raise MeshError(f"map {map_.name} starts at {map_.source.name}, of which {self.name} is no part")
            rows = map_.indices[members.indices[:, 0]]
            self._restricted[map_] = Map(self, map_.target, rows, f"{map_.name} of {self.name}")
        return self._restricted[map_]


def chosen(whole: Set, which: ArrayLike, name: str) -> Subset:
    """The part of a set that a mask (size,), or numbers of elements, choose; of a grid a mask of its shape, or numbers
    of its points, ghosts not counted."""
    what, choices = f"{named('a part of a set', name)}: numbers of {whole.name}", whole.choices
    given = as_array(which, what)
    if given.dtype == bool:
        if given.shape != choices.shape:
            raise MeshError(f"{name}: a mask of {whole.name} has the shape {choices.shape}, got {given.shape}")
        return Subset(whole, choices[given], name)
    numbers = whole_numbers(given, what)
    if numbers.ndim != 1:
        raise MeshError(f"{name}: expected a mask or a list of numbers of {whole.name}, got shape {numbers.shape}")
    outside = numbers[(numbers < 0) | (numbers >= choices.size)]
    if outside.size:
        raise MeshError(f"{name}: {whole.name} has no element {outside[0]}; its {choices.size} are counted from 0")
    ascending, times = np.unique(numbers, return_counts=True)
    if (times > 1).any():
        raise MeshError(f"{name}: element {ascending[times > 1][0]} of {whole.name} is named twice")
    return Subset(whole, choices.reshape(-1)[ascending], name)


def _as_in_memory(whole: Set, numbers: np.ndarray) -> np.ndarray | None:
    """A numbering that lays the part's elements out in the order in which those of the whole lie."""
    if whole.position is None:
        return None
    return np.argsort(whole.position[numbers], kind="stable")


class Cells(Set):
    """The cells of a mesh: those of a kind, ``cells.of("triangle")``, have the map ``nodes``."""

    _corners: ref[Map] | None = None  # weakly: the map holds the cells

    def corners(self, kind: str, nodes: Map) -> None:
        """All of them are of this kind, and have these nodes."""
        self.kinds, self._corners = {kind: range(self.owned)}, ref(nodes)

    def _part_of(self, kind: str) -> Subset:
        nodes = self._corners() if self._corners is not None else None
        if nodes is None:
            raise MeshError(f"the mesh of these {self.name} is gone, and with it the nodes of its {kind} cells")
        return CellPart(self, np.asarray(self.kinds[kind], np.int64), kind, nodes)


class CellPart(Subset):
    """The cells of a kind; ``nodes``, a map, has the arity of the kind."""

    def __init__(self, cells: Cells, numbers: np.ndarray, kind: str, nodes: Map):
        super().__init__(cells, numbers, kind)
        self.nodes = self.restricted(nodes)


class BoundaryPart(Subset):
    """The faces of a group of the boundary. ``cells`` (1 each) and ``nodes`` are maps; ``normal``, a field, is normal
    times area, out of the domain; ``centre`` is the mean of the nodes."""

    def __init__(self, mesh: Mesh, group: str):
        super().__init__(mesh.boundary_faces, mesh.group(group), group)
        self.cells, self.nodes = self.restricted(mesh.boundary_cells), self.restricted(mesh.boundary_nodes)
        numbers = self.members.indices[:, 0]
        self.normal = self.field("normal", mesh.dim, data=mesh.boundary_normals()[numbers])
        corners = mesh.coordinates.numpy()[self.nodes.indices]
        self.centre = self.field("centre", mesh.dim, data=corners.mean(axis=1))
