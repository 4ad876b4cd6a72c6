"""Which mesh a set is one of: files of its fields need it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from meshloom.mesh.core import Set

if TYPE_CHECKING:
    from meshloom.mesh.mesh import Mesh

_MESH = "mesh"


def belong_to(mesh: Mesh, *sets: Set) -> None:
    """These are the sets of a mesh."""
    for one in sets:
        one.kept[_MESH] = ref(mesh)  # weakly: the mesh holds its sets


def mesh_of(on: Set) -> Mesh | None:
    """The mesh that a set is one of, or a part of one of; None where there is none, or none any more."""
    found = on.outermost.kept.get(_MESH)
    return None if found is None else found()
