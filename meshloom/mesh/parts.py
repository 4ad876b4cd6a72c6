"""Parts of a mesh that are sets like any other: its cells or faces of a kind or by choice, the cells of a region, the
faces of a group of its boundary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError
from meshloom.exclusion import PREPARING, unowned
from meshloom.mesh.connectivity import NodeLists
from meshloom.mesh.core import Field, Map, Set, Subset, VaryingMap
from meshloom.mesh.kinds import Kinds
from meshloom.mesh.owner_mesh import owner_of
from meshloom.mesh.protocols import MeshData
from meshloom.recording import outside_program

#: What a part of each set of a mesh has: maps and measures of the mesh, by the names that the part has for them.
_MAPS = {
    "cells": {"nodes": "cell_nodes"},
    "faces": {"nodes": "face_nodes", "cells": "face_cells"},
    "boundary_faces": {"nodes": "boundary_nodes", "cells": "boundary_cells"},
}
_MEASURES = {
    "cells": {"volume": "cell_volumes", "centre": "cell_centroids"},
    "faces": {"normal": "face_normals", "centre": "face_centres"},
    "boundary_faces": {"normal": "boundary_normals", "centre": "boundary_centres"},
}


class MeshPart(Subset):
    """Some cells or faces of a mesh. ``nodes`` is a map, of faces ``cells``, too (2 each, 1 at the boundary); fields
    are ``centre``, of cells ``volume``, of faces ``normal`` times area. Each is made when it is first asked for; asked
    for after nodes have moved, or used by a program that begins to run then, it is the same field with the values by
    the coordinates as they are then."""

    nodes: Map
    cells: Map

    @property
    def normal(self) -> Field:
        """Normal times area of each, as the mesh has it."""
        return self.measure("normal")

    @property
    def centre(self) -> Field:
        """The centre of mass of each."""
        return self.measure("centre")

    @property
    def volume(self) -> Field:
        """Volume (area in 2-D) of each."""
        return self.measure("volume")

    def measure(self, name: str) -> Field:
        """A measure of the mesh for these elements: by its coordinates as they are now."""
        of_mesh = _MEASURES.get(self.outermost.name, {}).get(name)
        if of_mesh is None:
            raise AttributeError(name)  # which ``__getattr__`` explains
        mesh, known = owner_of(self), self.__dict__.setdefault("_measures", {})
        if mesh is None:
            if name in known:
                return cast(Field, known[name][1])
            raise MeshError(self._alone())
        if name not in known or known[name][0] != mesh.coordinates.version:
            with PREPARING:  # one thread makes it
                self._measure_now(mesh, name, of_mesh, known)
        return cast(Field, known[name][1])

    @unowned
    @outside_program()
    def _measure_now(self, mesh: MeshData, name: str, of_mesh: str, known: dict[str, tuple[int, Field]]) -> None:
        """Make the field of a measure, or give it the values of now."""
        now = mesh.coordinates.version
        if name not in known or known[name][0] != now:
            numbers = cast(Map, self.members_of(self.outermost)).indices[:, 0]
            values = getattr(mesh, of_mesh)[numbers]
            if name not in known:
                known[name] = now, self.field(name, values.shape[1] if values.ndim == 2 else 1, data=values)
            else:
                known[name][1].assign(values)
            known[name] = mesh.coordinates.version, known[name][1]

    def _alone(self) -> str:
        return f"the mesh of {self.name} is gone, and with it what is known of its {self.outermost.name}"

    def part(self, numbers: np.ndarray, name: str) -> MeshPart:
        return MeshPart(self, numbers, name)

    def __getattr__(self, name: str) -> Any:
        """Called where there is no such attribute yet."""
        if name.startswith("_") or "whole" not in self.__dict__:
            raise AttributeError(name)
        of = self.outermost.name
        maps, measures = _MAPS.get(of, {}), _MEASURES.get(of, {})
        if name not in maps:
            raise AttributeError(f"{self.name}, a part of {of}, has no {name}; it has {', '.join((*maps, *measures))}")
        mesh = owner_of(self)
        if mesh is None:
            raise MeshError(self._alone())
        with outside_program():
            made: Any = self.restricted(getattr(mesh, maps[name]))
        self.__dict__[name] = made
        return made


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

    def part(self, numbers: np.ndarray, name: str) -> MeshPart:
        return MeshPart(self, numbers, name)

    def subset(self, which: ArrayLike | Map | VaryingMap, name: str | None = None) -> MeshPart:
        """Some of them as a set to loop over, by a mask (size,) or their numbers: with the maps and measures that a
        ``MeshPart`` has."""
        return cast(MeshPart, super().subset(which, name))

    def of(self, kind: str) -> KindPart:
        """Those of a kind as a set to loop over, with their map ``nodes``; the same at every call."""
        return cast(KindPart, super().of(kind))

    def _part_of(self, kind: str) -> Subset:
        nodes = self._nodes() if self._nodes is not None else None
        if nodes is None or self._lists is None:
            raise MeshError(f"the mesh of these {self.name} is gone, and with it the nodes of its {kind} {self.name}")
        return KindPart(self, np.asarray(self.kinds[kind], np.int64), kind, self._lists, nodes)


class KindPart(MeshPart):
    """The cells or faces of a kind; ``nodes``, a map, has the arity of the kind. That of polygons varies if they do."""

    def __init__(self, elements: MeshSet, numbers: np.ndarray, kind: str, lists: NodeLists, nodes: Set):
        super().__init__(elements, numbers, kind)
        self.nodes = cast(Map, map_of(self, nodes, lists.taken(numbers), f"nodes of {kind} {elements.name}"))


class BoundaryPart(MeshPart):
    """The faces of a group of the boundary. ``cells`` (1 each) and ``nodes`` are maps; ``normal``, a field, is normal
    times area, out of the domain; ``centre`` is the centre of mass."""

    def __init__(self, faces: MeshSet, numbers: np.ndarray, group: str, cells: Map, nodes: Map):
        super().__init__(faces, numbers, group)
        self.cells, self.nodes = self.restricted(cells), self.restricted(nodes)
        self.measure("normal")  # a part of the boundary has them even where its mesh is gone
        self.measure("centre")


def measured_by(field: Field) -> tuple[MeshPart, str] | None:
    """The part of a mesh that a field measures, and what it is called there; None for any other field."""
    part = field.set
    known = part.__dict__.get("_measures", {}) if isinstance(part, MeshPart) else {}
    name = next((name for name, (_, one) in known.items() if one is field), None)
    return None if name is None else (cast(MeshPart, part), name)


def map_of(source: Set, nodes: Set, lists: NodeLists, name: str) -> Map | VaryingMap:
    """The map to the nodes of each: of one arity, or a varying one where their numbers of nodes differ."""
    if lists.rows is not None:
        return Map(source, nodes, lists.rows, name).kept_for("it is one of a mesh")
    return Map.varying(source, nodes, lists.starts, lists.entries, name)
