"""How good the cells of a mesh are for a finite-volume method, in a few numbers."""

from __future__ import annotations

from math import pi, tan

import numpy as np

from meshloom.errors import MeshError, instance
from meshloom.mesh.cell_kinds import CellKind
from meshloom.mesh.connected import local_edges
from meshloom.mesh.mesh import Mesh
from meshloom.records import dataclass

#: Volume squared over surface cubed of the best cell of its kind, as a share of a sphere's (by 36 pi): regular ones, a
#: prism of height 1/sqrt(3) and a pyramid of height sqrt(2) for edges of length 1.
_BEST = {"tetrahedron": pi / (6 * 3**0.5), "pyramid": pi / 8, "prism": pi * 2 / (9 * 3**0.5), "hexahedron": pi / 6}


@dataclass(frozen=True)
class Quality:
    """``cells``: how many of each kind. ``volume``: smallest, mean, largest (areas in 2-D). ``shape``: smallest and
    mean of volume against surface, 1 for the best cell of its kind, 0 for a flat one. ``aspect``: mean and largest
    ratio of a cell's longest to its shortest edge. ``non_orthogonality``: mean and largest angle, in degrees, between
    the normal of an interior face and the line of the centres next to it. ``growth``: mean and largest ratio of their
    volumes.
    """

    cells: dict[str, int]
    volume: tuple[float, float, float]
    shape: tuple[float, float]
    aspect: tuple[float, float]
    non_orthogonality: tuple[float, float]
    growth: tuple[float, float]

    def __str__(self) -> str:
        counts = " + ".join(f"{count:,} {kind}" for kind, count in self.cells.items())
        low, mean, high = self.volume
        return (
            f"{counts} cells; volume {low:.3g} to {high:.3g}, mean {mean:.3g}\n"
            f"shape at least {self.shape[0]:.3f}, mean {self.shape[1]:.3f};"
            f" aspect mean {self.aspect[0]:.1f}, at most {self.aspect[1]:.0f}\n"
            f"non-orthogonality mean {self.non_orthogonality[0]:.1f}, at most {self.non_orthogonality[1]:.1f} degrees;"
            f" growth mean {self.growth[0]:.2f}, at most {self.growth[1]:.2f}"
        )


def quality(mesh: Mesh) -> Quality:
    """What the cells of a mesh are like: print it. MeshError where a cell has no positive volume."""
    instance("quality: the mesh", mesh, Mesh, error=MeshError)
    volumes = mesh.cell_volumes
    if not (volumes > 0).all():
        cell = int(np.argmin(volumes > 0))
        raise MeshError(f"quality: cell {cell} has volume {volumes[cell]:g}; every cell needs a positive one")
    shape, aspect = _shapes(mesh, volumes), _aspects(mesh)
    angles, ratios = _across_faces(mesh, volumes)
    return Quality(
        {kind: len(numbers) for kind, numbers in mesh.cells.kinds.items()},
        (float(volumes.min()), float(volumes.mean()), float(volumes.max())),
        (float(shape.min()), float(shape.mean())),
        (float(aspect.mean()), float(aspect.max())),
        (float(angles.mean()), float(angles.max())) if len(angles) else (0.0, 0.0),
        (float(ratios.mean()), float(ratios.max())) if len(ratios) else (1.0, 1.0),
    )


def _shapes(mesh: Mesh, volumes: np.ndarray) -> np.ndarray:
    """Volume against surface of each cell, 1 for the best of its kind."""
    areas = np.linalg.norm(mesh.face_normals, axis=1)
    outside = np.linalg.norm(mesh.boundary_normals, axis=1)
    owner, neighbor = mesh.face_cells.indices.T
    surface = np.bincount(mesh.boundary_cells.indices[:, 0], outside, len(volumes))
    surface += np.bincount(owner, areas, len(volumes)) + np.bincount(neighbor, areas, len(volumes))
    round_one = 4 * pi * volumes / surface**2 if mesh.dim == 2 else 36 * pi * volumes**2 / surface**3
    best = mesh.lists.cells.measured(lambda block: np.full(len(block.nodes), _best(block.kind)))
    return round_one / best


def _best(kind: CellKind) -> float:
    return _BEST[kind.name] if kind.dimension == 3 else pi / (kind.nodes * tan(pi / kind.nodes))


def _aspects(mesh: Mesh) -> np.ndarray:
    """The longest edge of each cell over its shortest."""
    x = mesh.coordinates.numpy()

    def ratios(kind: CellKind, nodes: np.ndarray) -> np.ndarray:
        longest, shortest = np.zeros(len(nodes)), np.full(len(nodes), np.inf)
        for one, other in local_edges(kind):
            lengths = np.linalg.norm(x[nodes[:, one]] - x[nodes[:, other]], axis=1)
            np.maximum(longest, lengths, out=longest)
            np.minimum(shortest, lengths, out=shortest)
        return longest / shortest

    return mesh.lists.cells.measured(lambda block: ratios(block.kind, block.nodes))


def _across_faces(mesh: Mesh, volumes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each interior face the angle in degrees between normal and line of centres, and the ratio of volumes."""
    owner, neighbor = mesh.face_cells.indices.T
    centres, normals = mesh.cell_centroids, mesh.face_normals
    line = centres[neighbor] - centres[owner]
    cosine = np.einsum("ij,ij->i", line, normals) / np.linalg.norm(line, axis=1) / np.linalg.norm(normals, axis=1)
    ratio = volumes[owner] / volumes[neighbor]
    return np.degrees(np.arccos(np.clip(cosine, -1, 1))), np.maximum(ratio, 1 / ratio)
