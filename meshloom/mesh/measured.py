"""What is measured of a mesh: volumes, centres and normals, by the coordinates as they are now."""

from __future__ import annotations

import numpy as np

from meshloom.errors import MeshError
from meshloom.mesh import geometry
from meshloom.mesh.connected import Connected
from meshloom.mesh.core import Field
from meshloom.mesh.distance import face_distances
from meshloom.mesh.parts import MeshSet


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
