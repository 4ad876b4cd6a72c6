"""The start of each problem: a mesh of nx by ny quadrilaterals, its boundary, and the gas in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.solvers.bookleaf.physics import FREE, SLIP_X, SLIP_Y, WALL

SIDES = ("bottom", "right", "top", "left")  # where the second index is lowest, the first highest, and so on

# Sod's shock tube, in lengths of 100
SOD_LENGTH, SOD_HEIGHT, SOD_MIDDLE = 100.0, 25.0, 50.0
SOD_DENSITY, SOD_ENERGY = (1.0, 0.125), (2.5, 2.0)  # left and right

# Two blast waves that meet (Woodward & Colella 1984), in lengths of 100
BLAST_LENGTH, BLAST_HEIGHT, BLAST_WALLS = 100.0, 1.0, (10.0, 90.0)
BLAST_ENERGY = (2500.0, 0.025, 250.0)  # left, between the walls, right

SEDOV_WIDTH = 1.125
SEDOV_ENERGY = 0.2467966  # of the quarter of the plane that is computed

NOH_RADII = (0.005, 1.0)  # a small hole keeps the innermost cells quadrilaterals
NOH_SPEED = 1.0

SALTZMANN_LENGTH, SALTZMANN_HEIGHT = 1.0, 0.1
SALTZMANN_PISTON = 1.0  # its speed
SALTZMANN_NUDGE = 1e-6  # the original program adds it before it takes apart what was written with few digits


@dataclass(frozen=True)
class BookLeafStart:
    """Everything at time 0; arrays in the mesh's numbering."""

    mesh: ml.Mesh
    kind: np.ndarray  # (nodes,) FREE, SLIP_X, SLIP_Y or WALL
    velocity: np.ndarray  # (nodes, 2)
    density: np.ndarray  # (cells,)
    energy: np.ndarray  # (cells,) internal, per mass


def sod(cells: tuple[int, int]) -> BookLeafStart:
    """A tube along x with a dense, hot gas at the left and a thin one at the right."""
    mesh, kind = _block(_box(cells, SOD_LENGTH, SOD_HEIGHT), SLIP_Y, SLIP_X, SLIP_Y, SLIP_X)
    right = (mesh.cell_centroids[:, 0] > SOD_MIDDLE).astype(int)
    return BookLeafStart(mesh, kind, _at_rest(mesh), np.take(SOD_DENSITY, right), np.take(SOD_ENERGY, right))


def blast(cells: tuple[int, int]) -> BookLeafStart:
    """A tube along x with hot gas at both ends: two shocks run into each other."""
    mesh, kind = _block(_box(cells, BLAST_LENGTH, BLAST_HEIGHT), SLIP_Y, SLIP_X, SLIP_Y, SLIP_X)
    part = np.searchsorted(BLAST_WALLS, mesh.cell_centroids[:, 0])
    return BookLeafStart(mesh, kind, _at_rest(mesh), np.ones(len(mesh.cells)), np.take(BLAST_ENERGY, part))


def sedov(cells: tuple[int, int]) -> BookLeafStart:
    """A quarter of a blast: all energy is in the cell at the origin."""
    mesh, kind = _block(_box(cells, SEDOV_WIDTH, SEDOV_WIDTH), SLIP_Y, FREE, FREE, SLIP_X)
    density, energy = np.ones(len(mesh.cells)), np.zeros(len(mesh.cells))
    energy[0] = SEDOV_ENERGY / mesh.cell_volumes[0]
    return BookLeafStart(mesh, kind, _at_rest(mesh), density, energy)


def noh(cells: tuple[int, int]) -> BookLeafStart:
    """A quarter of a disk, nx cells along the radius and ny along the angle, in which all gas flows to the centre."""
    radius = np.linspace(*NOH_RADII, cells[0] + 1)[:, None]
    angle = 0.5 * np.pi * np.arange(cells[1] + 1) / cells[1]
    towards = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    towards[-1, 0] = 0.0  # the axis exactly: the cosine leaves a speck
    mesh, kind = _block(radius[:, :, None] * towards, SLIP_Y, FREE, SLIP_X, WALL)
    velocity = np.broadcast_to(-NOH_SPEED * towards, (cells[0] + 1, *towards.shape)).reshape(-1, 2).copy()
    velocity[kind == WALL] = 0.0
    return BookLeafStart(mesh, kind, velocity, np.ones(len(mesh.cells)), np.zeros(len(mesh.cells)))


def saltzmann(cells: tuple[int, int]) -> BookLeafStart:
    """A piston at the left drives a plane shock through a mesh that is skewed on purpose (Dukowicz & Meltz 1992)."""
    points = _box(cells, SALTZMANN_LENGTH, SALTZMANN_HEIGHT)
    column, row = np.moveaxis(100.0 * points + SALTZMANN_NUDGE, -1, 0)  # in hundredths of the length
    points[..., 0] = 0.01 * column + 0.01 * (10.0 - row) * np.sin(0.01 * np.pi * column)
    mesh, kind = _block(points, SLIP_Y, SLIP_X, SLIP_Y, SLIP_X)
    velocity = _at_rest(mesh)
    velocity[: cells[1] + 1, 0] = SALTZMANN_PISTON  # the left side comes first in the numbering
    return BookLeafStart(mesh, kind, velocity, np.ones(len(mesh.cells)), np.zeros(len(mesh.cells)))


def _at_rest(mesh: ml.Mesh) -> np.ndarray:
    return np.zeros((len(mesh.nodes), 2))


def _box(cells: tuple[int, int], width: float, height: float) -> np.ndarray:
    """Node coordinates (nx + 1, ny + 1, 2) of a rectangle with a corner at the origin."""
    ticks = (size * (np.arange(n + 1) / n) for n, size in zip(cells, (width, height), strict=True))
    return np.stack(np.meshgrid(*ticks, indexing="ij"), axis=2)


def _block(points: np.ndarray, *conditions: int) -> tuple[ml.Mesh, np.ndarray]:
    """The mesh of nodes (nx + 1, ny + 1, 2), numbered along the second index first, and the kind of every node.

    ``conditions`` hold along the SIDES; where two meet, both do.
    """
    node = np.arange(points.shape[0] * points.shape[1]).reshape(points.shape[:2])
    corners = (node[:-1, :-1], node[1:, :-1], node[1:, 1:], node[:-1, 1:])
    along = dict(zip(SIDES, (node[:, 0], node[-1], node[:, -1], node[0]), strict=True))
    boundary = {name: np.stack([nodes[:-1], nodes[1:]], axis=1) for name, nodes in along.items()}
    cells = np.stack(corners, axis=2).reshape(-1, 4)
    check_convex(points.reshape(-1, 2), cells)
    mesh = ml.Mesh.from_cells(points.reshape(-1, 2), cells, "quad", boundary)
    kind = np.full(node.size, FREE, np.int32)
    for nodes, condition in zip(along.values(), conditions, strict=True):
        kind[nodes] |= condition
    return mesh, kind


def check_convex(points: np.ndarray, cells: np.ndarray) -> None:
    """MeshError that names the first cell (n, 4) which is turned inside out or folded at a corner."""
    x = points[cells]
    to_next, behind = np.roll(x, -1, axis=1) - x, np.roll(x, 1, axis=1) - x
    corner = to_next[..., 0] * behind[..., 1] - to_next[..., 1] * behind[..., 0]
    bad = np.flatnonzero((corner <= 0.0).any(axis=1))
    if len(bad):
        where = ", ".join(f"{part:.4g}" for part in x[bad[0]].mean(axis=0))
        raise MeshError(
            f"the mesh is tangled at the start: cell {bad[0]} at ({where}) has a corner of negative or no area"
            f" ({len(bad)} such cell{'s' if len(bad) > 1 else ''}); corners must go around counter-clockwise"
        )
