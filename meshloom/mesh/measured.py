"""What is measured of a mesh: volumes, centres and normals, by the coordinates as they are now."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from meshloom.errors import MeshError
from meshloom.mesh import geometry
from meshloom.mesh.connected import Connected
from meshloom.mesh.core import Field
from meshloom.mesh.parts import MeshSet
from meshloom.native.distance import distances


class Measured(Connected):
    """A mesh as far as its places are concerned."""

    coordinates: Field
    faces: MeshSet

    @property
    def dim(self) -> int:
        """2 or 3."""
        return self.coordinates.dim

    def wall_distance(self, *groups: str) -> np.ndarray:
        """From the centroid of each cell to the nearest boundary face of these groups, (cells,): exact, to the whole
        of each face."""
        numbers = [self.group(name) for name in groups]
        if not any(map(len, numbers)):
            what = f"boundary group {' or '.join(map(repr, groups))} has no faces" if groups else "no group is named"
            raise MeshError(f"wall_distance: {what}; the mesh has {', '.join(self.groups) or 'none'}")
        walls = self.lists.boundary_faces.taken(np.concatenate(numbers))
        return face_distances(self.cell_centroids, self.coordinates.numpy(), [size.nodes for size in walls.sizes])

    @property
    def _cell_heights(self) -> np.ndarray:
        """Volume over surface of each cell, (cells,): about the least distance between two of its sides."""
        areas = np.linalg.norm(self.face_normals, axis=1), np.linalg.norm(self.boundary_normals, axis=1)
        surface = np.bincount(self.boundary_cells.indices[:, 0], areas[1], minlength=self.cells.total)
        for of in self.face_cells.indices.T:
            surface += np.bincount(of, areas[0], minlength=self.cells.total)
        return self.cell_volumes / np.where(surface > 0, surface, 1.0)

    @property
    def cell_volumes(self) -> np.ndarray:
        """Volume (area in 2-D) of each cell, (cells,); like all of these, by the coordinates as they are now."""
        x = self.coordinates.numpy()
        return self.lists.cells.measured(lambda block: geometry.cell_volumes(x, block.nodes, block.kind.name))

    @property
    def cell_centroids(self) -> np.ndarray:
        """Centre of mass of each cell, (cells, d)."""
        x = self.coordinates.numpy()
        return self.lists.cells.measured(
            lambda block: geometry.cell_centroids(x, block.nodes, block.kind.name), self.dim
        )

    @property
    def face_normals(self) -> np.ndarray:
        """Normal times area of each interior face, from its first cell to its second, (faces, d)."""
        x = self.coordinates.numpy()
        return self.lists.faces.measured(lambda nodes: geometry.area_vectors(x, nodes), self.dim)

    @property
    def boundary_normals(self) -> np.ndarray:
        """Normal times area of each boundary face, out of the domain, (boundary_faces, d)."""
        x = self.coordinates.numpy()
        return self.lists.boundary_faces.measured(lambda nodes: geometry.area_vectors(x, nodes), self.dim)

    @property
    def face_centres(self) -> np.ndarray:
        """Centre of mass of each interior face, (faces, d)."""
        x = self.coordinates.numpy()
        return self.lists.faces.measured(lambda nodes: geometry.face_centroids(x, nodes), self.dim)

    @property
    def boundary_centres(self) -> np.ndarray:
        """Centre of mass of each boundary face, (boundary_faces, d)."""
        x = self.coordinates.numpy()
        return self.lists.boundary_faces.measured(lambda nodes: geometry.face_centroids(x, nodes), self.dim)

    @property
    def face_shifts(self) -> np.ndarray:
        """What to add to the place of an interior face's second cell for it to lie next to the first, (faces, d):
        0 but at faces between periodic sides."""
        x, found = self.coordinates.numpy(), np.zeros((self.faces.total, self.dim))
        sides = self.lists.faces.taken(self.joints.faces), self.joints.nodes
        here, there = (side.measured(lambda rows: geometry.face_centroids(x, rows), self.dim) for side in sides)
        found[self.joints.faces] = here - there
        return found

    @property
    def cell_distances(self) -> np.ndarray:
        """From the centre of the first cell of each interior face to that of the second, (faces, d), across the joint
        where the sides are periodic."""
        centres, cells = self.cell_centroids, self.face_cells.indices
        return centres[cells[:, 1]] + self.face_shifts - centres[cells[:, 0]]

    @property
    def cell_to_face(self) -> np.ndarray:
        """From the centre of either cell of each interior face to that of the face, (faces, 2, d), to the side of the
        cell where the sides are periodic."""
        centres, cells, middle = self.cell_centroids, self.face_cells.indices, self.face_centres
        return np.stack((middle - centres[cells[:, 0]], middle - self.face_shifts - centres[cells[:, 1]]), axis=1)


def face_distances(points: np.ndarray, x: np.ndarray, faces: Iterable[np.ndarray]) -> np.ndarray:
    """From each point (n, d) to the nearest face, (n,): exactly, to the whole of it and not to its nodes or its middle
    alone. ``faces`` are arrays (m, k) of the nodes of edges (2-D), or of triangles, quadrilaterals and polygons (3-D),
    at least one face in all."""
    return distances(points, np.concatenate([_pieces(x, nodes) for nodes in faces]))


def _pieces(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Edges as they are, and faces in space as triangles, (pieces, d, d): a face with more corners has one for each
    edge, with the mean of its corners, as centres of faces are made."""
    if nodes.shape[1] == x.shape[1]:
        return x[nodes]
    middle = geometry.mean_points(x, nodes)
    after = np.roll(nodes, -1, axis=1)
    return np.concatenate([np.stack((x[nodes[:, k]], x[after[:, k]], middle), axis=1) for k in range(nodes.shape[1])])
