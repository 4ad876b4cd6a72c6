"""The mesh as the loops of a finite-volume scheme see it, and the weights of its gradients.

The gradient of a cell is a sum over its faces, weight (d,) times the change of V to the other side. Both ways to it
differ in the weights alone, which are made here once:

- least squares: weights so that the changes to all neighbours are met best, near ones first (inverse squares of
  distances);
- Green-Gauss: the area vector over the volume, times the share of the change that has happened at the face; then
  corrected by one matrix for each cell so that the gradient of a linear function is exact on any mesh, as least squares
  has it.

Triangles and tetrahedra have so few neighbours that a scheme of second order which asks these alone is not stable: a
wave that grows is found on almost any mesh of tetrahedra (Haider, Croisille and Courbet 2009). They take the sums of
their neighbours, too (``Patches``), and so look as far as the neighbours of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import meshloom as ml
from meshloom.errors import ConfigError, nearest
from meshloom.solvers.finite_volume.conditions import AT_FACE, AdiabaticWall, BoundaryCondition
from meshloom.toml import toml_key

GRADIENTS = ("least_squares", "green_gauss")
_ALONG = 1e-3  # of a wall's velocity that may be along its normal: walls in files are not flatter
#: Where a boundary says nothing certain about gradients (free faces), the other faces of the cell have to do. They do
#: where there are more than d of them, or d directions alone would be followed wherever they lead, and where these do
#: not nearly lie in a plane: least singular value of the matrix at least this share of the largest. A cube at a wall
#: has 1/2.
_FLAT = 0.1
_SINGULAR = 1e-10  # a determinant below that, in units of the largest entry: rounding


@dataclass(frozen=True)
class Inside:
    """Interior faces: area vectors (d), the ways from both cells to the face (2, d), weights of both gradients (2,
    d)."""

    faces: ml.Set
    cells: ml.Map
    area: ml.Field
    reach: ml.Field
    weights: ml.Field


@dataclass(frozen=True)
class GroupFaces:
    """The faces of a group of the boundary, with its condition and the rows ``given`` (d + 2)."""

    name: str
    condition: BoundaryCondition
    faces: ml.Set
    cells: ml.Map
    area: ml.Field
    reach: ml.Field
    middle: ml.Field
    weights: ml.Field
    given: ml.Field
    tells_gradients: bool  # some of its weights are not zero


@dataclass(frozen=True)
class Patches:
    """How sums over the faces of cells become gradients where some cells take those of their neighbours, too.

    ``takes``: 1 at these cells, 0 at the others; ``inverse`` (d, d): of the matrix that makes the sum of the gradient.
    """

    takes: ml.Field
    inverse: ml.Field


@dataclass(frozen=True)
class Volumes:
    """Cells with their volumes, faces inside and at the sides; ``degree`` counts the interior faces of each cell.
    ``patches``: None where the weights of faces alone make gradients."""

    cells: ml.Set
    volume: ml.Field
    degree: ml.Field
    inside: Inside
    sides: tuple[GroupFaces, ...]
    patches: Patches | None

    @classmethod
    def of(
        cls,
        mesh: ml.Mesh,
        conditions: Mapping[str, BoundaryCondition],
        stream: np.ndarray,
        gradient: str = "least_squares",
        dtype: np.dtype | type = np.float64,
    ) -> Volumes:
        """``conditions`` by the names of boundary groups; ``stream`` (d + 2,) is V of the free stream."""
        check_covered(mesh, conditions)
        for name, condition in conditions.items():
            if isinstance(condition, AdiabaticWall):
                check_along(toml_key(("boundary", name)), condition, mesh, mesh.group(name))
        shape = _Shape.of(mesh, conditions)
        weights, at_boundary, inverse = _weights(shape, gradient)
        inside = Inside(
            mesh.faces,
            mesh.face_cells,
            mesh.faces.field("area", mesh.dim, dtype=dtype, data=shape.area),
            mesh.faces.field("reach", (2, mesh.dim), dtype=dtype, data=shape.reach),
            mesh.faces.field("weights", (2, mesh.dim), dtype=dtype, data=weights),
        )
        names = [name for name in mesh.groups if len(mesh.group(name))]
        sides = tuple(_side(mesh, name, conditions[name], shape, at_boundary, stream, dtype) for name in names)
        degree = np.bincount(mesh.face_cells.indices.ravel(), minlength=len(mesh.cells)).astype(np.float64)
        return cls(
            mesh.cells,
            mesh.cells.field("volume", dtype=dtype, data=shape.volume),
            mesh.cells.field("degree", dtype=dtype, data=degree),
            inside,
            sides,
            None if inverse is None else _patches(mesh, shape, inverse, dtype),
        )


def _patches(mesh: ml.Mesh, shape: _Shape, inverse: np.ndarray, dtype: np.dtype | type) -> Patches:
    takes = shape.has_few_neighbours.astype(np.float64)
    return Patches(mesh.cells.field("takes", dtype=dtype, data=takes),
                   mesh.cells.field("inverse", (mesh.dim, mesh.dim), dtype=dtype, data=inverse))  # fmt: skip


def check_along(key: str, wall: AdiabaticWall, mesh: ml.Mesh, faces: np.ndarray) -> None:
    """A wall moves along its surface: one that pushes the gas would change the domain."""
    if len(wall.velocity) != mesh.dim or len(faces) == 0:
        return  # which is refused elsewhere, or nowhere
    velocity, normal = np.array(wall.velocity), mesh.boundary_normals[faces]
    through = np.abs(normal @ velocity) > _ALONG * np.linalg.norm(normal, axis=1) * np.linalg.norm(velocity)
    if through.any():
        at = ", ".join(f"{part:.4g}" for part in mesh.boundary_centres[faces][np.argmax(through)])
        raise ConfigError(f"{key} has a velocity of {list(wall.velocity)}, which goes through the wall at ({at}): it"
                          " must be along it")  # fmt: skip


def check_covered(mesh: ml.Mesh, conditions: Mapping[str, BoundaryCondition]) -> None:
    """ConfigError unless every boundary group of the mesh that has faces has a condition, and there are no others."""
    for name in conditions:
        if name not in mesh.groups:
            raise ConfigError(
                f"{toml_key(('boundary', name))} is no boundary group of the mesh{nearest(name, mesh.groups)}"
            )
    for name in mesh.groups:
        faces = len(mesh.group(name))
        if faces and name not in conditions:
            key = toml_key(("boundary", name))
            raise ConfigError(
                f"boundary group {name!r} of the mesh ({faces} faces) has no condition: say for example"
                f' [{key}] kind = "slip"'
            )


def _side(
    mesh: ml.Mesh,
    name: str,
    condition: BoundaryCondition,
    shape: _Shape,
    weights: np.ndarray,
    stream: np.ndarray,
    dtype: np.dtype | type,
) -> GroupFaces:
    part = mesh.boundary(name)
    numbers = part.members.indices[:, 0]
    try:
        given = condition.given(shape.middle[numbers], stream)
    except ValueError as problem:
        raise ConfigError(f"{toml_key(('boundary', name))} {problem}") from None

    def field(what: str, values: np.ndarray) -> ml.Field:
        return part.field(what, values.shape[1], dtype=dtype, data=values)

    return GroupFaces(
        name,
        condition,
        part,
        part.cells,
        field("area", shape.boundary_area[numbers]),
        field("reach", shape.boundary_reach[numbers]),
        field("middle", shape.middle[numbers]),
        field("weights", weights[numbers]),
        field("given", given),
        bool(weights[numbers].any()),
    )


# --- weights ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    """Measures as arrays. Of each boundary face: whether its ghost is at the face, and whether it is free."""

    volume: np.ndarray
    cells: np.ndarray
    area: np.ndarray
    reach: np.ndarray
    boundary_cells: np.ndarray
    boundary_area: np.ndarray
    boundary_reach: np.ndarray
    middle: np.ndarray
    at_face: np.ndarray
    is_free: np.ndarray

    @classmethod
    def of(cls, mesh: ml.Mesh, conditions: Mapping[str, BoundaryCondition]) -> _Shape:
        centre, cells = mesh.cell_centroids, mesh.face_cells.indices
        own = mesh.boundary_cells.indices[:, 0]
        at_face, is_free = np.zeros(len(own), bool), np.zeros(len(own), bool)
        for name, condition in conditions.items():
            at_face[mesh.group(name)] = condition.ghost_at == AT_FACE
            is_free[mesh.group(name)] = condition.is_free
        return cls(
            mesh.cell_volumes,
            cells,
            mesh.face_normals,
            mesh.cell_to_face,
            own,
            mesh.boundary_normals,
            mesh.boundary_centres - centre[own],
            mesh.boundary_centres,
            at_face,
            is_free,
        )

    @property
    def across(self) -> np.ndarray:
        """From the first cell of each face to the second, (faces, d)."""
        return self.reach[:, 0] - self.reach[:, 1]

    @cached_property
    def has_few_neighbours(self) -> np.ndarray:
        """Which cells are triangles or tetrahedra, (cells,)."""
        faces = np.bincount(np.concatenate([self.cells.ravel(), self.boundary_cells]), minlength=len(self.volume))
        return faces <= self.area.shape[1] + 1

    @property
    def to_ghost(self) -> np.ndarray:
        """From the cell of each boundary face to where its ghost is; free faces have theirs mirrored, (b, d)."""
        normal = self.boundary_area / np.linalg.norm(self.boundary_area, axis=1)[:, None]
        mirrored = 2.0 * np.einsum("nd,nd->n", self.boundary_reach, normal)[:, None] * normal
        return np.where(self.at_face[:, None], self.boundary_reach, mirrored)


def _weights(shape: _Shape, gradient: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Of the gradients of both cells of each face, (faces, 2, d), and of the cell of each boundary face, (b, d); where
    some cells take the sums of their neighbours, too, the inverse (cells, d, d) that makes gradients of these sums."""
    across, to_ghost = shape.across, shape.to_ghost
    if gradient == "least_squares":
        plain = across / np.einsum("nd,nd->n", across, across)[:, None]
        both = np.stack([plain, plain], axis=1)
        outer = to_ghost / np.einsum("nd,nd->n", to_ghost, to_ghost)[:, None]
    else:
        near = np.einsum("nkd,nd->nk", shape.reach, shape.area) / np.einsum("nd,nd->n", across, shape.area)[:, None]
        share = np.abs(near)  # of the change that has happened at the face, seen from each cell
        both = share[:, :, None] * shape.area[:, None, :] / shape.volume[shape.cells][:, :, None]
        at_face = np.where(shape.at_face, 1.0, 0.5)
        outer = at_face[:, None] * shape.boundary_area / shape.volume[shape.boundary_cells][:, None]
    outer = outer * (~shape.is_free | _lacking(shape, both, outer)[shape.boundary_cells])[:, None]
    inverse = _inverse(_of_patches(shape, _moments(shape, both, outer)))
    if shape.has_few_neighbours.any():
        return both, outer, inverse
    return (np.einsum("nkab,nkb->nka", inverse[shape.cells], both),
            np.einsum("nab,nb->na", inverse[shape.boundary_cells], outer), None)  # fmt: skip


def _lacking(shape: _Shape, both: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """Which cells know too little without their free faces, (cells,)."""
    cells, d = len(shape.volume), shape.area.shape[1]
    found = np.zeros(cells, bool)
    asked = np.flatnonzero(np.bincount(shape.boundary_cells, shape.is_free, minlength=cells))  # nobody else has any
    matrix = _of_patches(shape, _moments(shape, both, outer * ~shape.is_free[:, None]))
    singular = np.linalg.svd(matrix[asked], compute_uv=False)
    sure = np.bincount(shape.cells.ravel(), minlength=cells)
    sure += np.bincount(shape.boundary_cells, ~shape.is_free, minlength=cells).astype(int)
    few = (sure <= d) & ~shape.has_few_neighbours
    found[asked] = (singular[:, -1] < _FLAT * singular[:, 0]) | few[asked]
    return found


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Of each matrix (n, d, d); where it has none, or hardly one, what serves the directions that are known."""
    size, d = np.abs(matrix).max(axis=(1, 2)), matrix.shape[1]
    flat = ~(np.abs(np.linalg.det(matrix)) > _SINGULAR * size**d)
    inverse = np.empty_like(matrix)
    inverse[~flat], inverse[flat] = np.linalg.inv(matrix[~flat]), np.linalg.pinv(matrix[flat])
    return inverse


def _of_patches(shape: _Shape, matrix: np.ndarray) -> np.ndarray:
    """``matrix`` (cells, d, d), of cells that take the sums of their neighbours with those of these."""
    few, (first, second) = shape.has_few_neighbours, shape.cells.T
    total = matrix.copy()
    for own, other in ((first, second), (second, first)):
        of, neighbour = own[few[own]], other[few[own]]
        for place in np.ndindex(matrix.shape[1:]):
            total[:, *place] += np.bincount(of, matrix[neighbour, *place], minlength=len(matrix))
    return total


def _moments(shape: _Shape, both: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """The sum of weight times way over the faces of each cell, (cells, d, d): the identity where linear functions get
    their gradients."""
    across, to_ghost = shape.across, shape.to_ghost
    cells, d = len(shape.volume), across.shape[1]
    total = np.zeros((cells, d, d))
    for a in range(d):
        for b in range(d):
            for of, weight, way in (
                (shape.cells[:, 0], both[:, 0], across),
                (shape.cells[:, 1], both[:, 1], across),
                (shape.boundary_cells, outer, to_ghost),
            ):
                total[:, a, b] += np.bincount(of, weight[:, a] * way[:, b], minlength=cells)
    return total
