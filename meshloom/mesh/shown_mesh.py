"""Meshes as notebooks show them: names, sizes, and how they lie in memory."""

from __future__ import annotations

import numpy as np

from meshloom import markup
from meshloom.mesh.arrange import Arrangement
from meshloom.mesh.protocols import MeshData
from meshloom.mesh.shown import MOST_READ
from meshloom.recording import recorder


def mesh_table(mesh: MeshData, arrangement: Arrangement) -> str:
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
    rows += [*_extent(mesh), ("in memory", str(arrangement))]
    return markup.table(f"Mesh in {mesh.dim} dimensions", rows)


def _count(counts: np.ndarray, number: int) -> str:
    return f"{counts[number]:,}" if 0 <= number < len(counts) else "0" if len(counts) else "…"


def _extent(mesh: MeshData) -> list[tuple[str, object]]:
    if recorder.get() is not None or mesh.nodes.total * mesh.dim > MOST_READ or not mesh.nodes.total:
        return []
    x = mesh.coordinates.numpy()
    ends = zip("xyz", x.min(axis=0), x.max(axis=0), strict=False)
    return [("extent", ", ".join(f"{name} {low:.6g} to {high:.6g}" for name, low, high in ends))]
