"""Parts of a mesh that are sets like any other: its cells or faces of a kind, the faces of a group of its boundary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import ref

import numpy as np

from meshloom.errors import MeshError
from meshloom.mesh.core import Map, Set, Subset, VaryingMap
from meshloom.mesh.kinds import Kinds
from meshloom.mesh.lists import NodeLists

if TYPE_CHECKING:
    from meshloom.mesh.mesh import Mesh


class MeshSet(Set):
    """Cells or faces of a mesh: those of a kind, ``cells.of("triangle")``, have the map ``nodes``."""

    _lists: NodeLists | None = None
    _nodes: ref[Set] | None = None  # weakly: they go with the mesh, unless a kind was asked for

    def corners(self, kinds: Mapping[str, range | np.ndarray], lists: NodeLists, nodes: Set) -> None:
        """Those of each kind by number, copies of another rank's included, and the nodes of each."""
        own: Kinds = {}
        for kind, numbers in kinds.items():
            if isinstance(numbers, range):
                own[kind] = range(numbers.start, min(numbers.stop, self.owned))
            else:
                own[kind] = numbers if self.halo == 0 else numbers[numbers < self.owned]
        self.kinds, self._lists, self._nodes = own, lists, ref(nodes)

    def _part_of(self, kind: str) -> Subset:
        nodes = self._nodes() if self._nodes is not None else None
        if nodes is None or self._lists is None:
            raise MeshError(f"the mesh of these {self.name} is gone, and with it the nodes of its {kind} {self.name}")
        return KindPart(self, np.asarray(self.kinds[kind], np.int64), kind, self._lists, nodes)


class KindPart(Subset):
    """The cells or faces of a kind; ``nodes``, a map, has the arity of the kind. That of polygons varies if they do."""

    def __init__(self, elements: MeshSet, numbers: np.ndarray, kind: str, lists: NodeLists, nodes: Set):
        super().__init__(elements, numbers, kind)
        self.nodes = map_of(self, nodes, lists.taken(numbers), f"nodes of {kind} {elements.name}")


class BoundaryPart(Subset):
    """The faces of a group of the boundary. ``cells`` (1 each) and ``nodes`` are maps; ``normal``, a field, is normal
    times area, out of the domain; ``centre`` is the centre of mass."""

    def __init__(self, mesh: Mesh, group: str):
        super().__init__(mesh.boundary_faces, mesh.group(group), group)
        self.cells, self.nodes = self.restricted(mesh.boundary_cells), self.restricted(mesh.boundary_nodes)
        numbers = self.members.indices[:, 0]
        self.normal = self.field("normal", mesh.dim, data=mesh.boundary_normals[numbers])
        self.centre = self.field("centre", mesh.dim, data=mesh.boundary_centres[numbers])


def map_of(source: Set, nodes: Set, lists: NodeLists, name: str) -> Map | VaryingMap:
    """The map to the nodes of each: of one arity, or a varying one where their numbers of nodes differ."""
    if lists.rows is not None:
        return Map(source, nodes, lists.rows, name)
    return Map.varying(source, nodes, lists.starts, lists.entries, name)
