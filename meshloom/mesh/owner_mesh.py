"""Which mesh a set is one of, as far as the mesh's own parts need it; ``mesh_of`` is for all others."""

from __future__ import annotations

from weakref import ref

from meshloom.mesh.core import Set
from meshloom.mesh.protocols import MeshData

_MESH = "mesh"


def belong_to(mesh: MeshData, *sets: Set) -> None:
    """These are the sets of a mesh."""
    for one in sets:
        one.kept[_MESH] = ref(mesh)  # weakly: the mesh holds its sets


def lost_mesh(on: Set) -> bool:
    """Is a set one of a mesh that is gone?"""
    found: ref[MeshData] | None = on.outermost.kept.get(_MESH)
    return found is not None and found() is None


def owner_of(on: Set) -> MeshData | None:
    """The mesh that a set is one of, or a part of one of; None where there is none, or none any more."""
    found: ref[MeshData] | None = on.outermost.kept.get(_MESH)
    return None if found is None else found()
