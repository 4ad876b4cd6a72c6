"""Parts of a mesh that are sets like any other: its cells of a kind, the faces of a group of its boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

import numpy as np

from meshloom.errors import MeshError
from meshloom.mesh.core import Map, Set, Subset

if TYPE_CHECKING:
    from meshloom.mesh.mesh import Mesh


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
        self.normal = self.field("normal", mesh.dim, data=mesh.boundary_normals[numbers])
        corners = mesh.coordinates.numpy()[self.nodes.indices]
        self.centre = self.field("centre", mesh.dim, data=corners.mean(axis=1))
