"""The kinds of cells: their nodes, their faces and how a cell that is inside out is turned.

Nodes are in the order of VTK. Outward means in 2-D (dy, -dx) of first minus second node, in 3-D the right-hand rule.
"""

from __future__ import annotations

from functools import cache

from meshloom.errors import MeshError, known_name
from meshloom.records import dataclass

POLYGON = "polygon"
#: Faces are named by their number of nodes.
FACE_KINDS = {2: "line", 3: "triangle", 4: "quad"}


@dataclass(frozen=True)
class CellKind:
    """One kind of cell: its dimension, its number of nodes and the local nodes of each face in outward order."""

    name: str
    dimension: int
    nodes: int
    faces: tuple[tuple[int, ...], ...]
    mirrored: tuple[int, ...]  # the node order that turns an inside-out cell the right way round

    @property
    def face_sizes(self) -> tuple[int, ...]:
        """The numbers of nodes of its faces, ascending, each once."""
        return tuple(sorted({len(face) for face in self.faces}))

    def slots(self, size: int) -> list[int]:
        """Which of its faces have so many nodes."""
        return [slot for slot, face in enumerate(self.faces) if len(face) == size]


def _plane(name: str, corners: int) -> CellKind:
    sides = tuple(((corner + 1) % corners, corner) for corner in range(corners))
    return CellKind(name, 2, corners, sides, (0, *range(corners - 1, 0, -1)))


#: Those with a fixed number of nodes.
KINDS = {
    kind.name: kind
    for kind in (
        _plane("triangle", 3),
        _plane("quad", 4),
        CellKind("tetrahedron", 3, 4, ((0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)), (0, 2, 1, 3)),
        CellKind("pyramid", 3, 5, ((0, 3, 2, 1), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)), (0, 3, 2, 1, 4)),
        CellKind("prism", 3, 6, ((0, 1, 2), (3, 5, 4), (0, 3, 4, 1), (1, 4, 5, 2), (2, 5, 3, 0)), (0, 2, 1, 3, 5, 4)),
        CellKind(
            "hexahedron",
            3,
            8,
            ((0, 3, 2, 1), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)),
            (4, 5, 6, 7, 0, 1, 2, 3),
        ),
    )
}
NAMES = (*list(KINDS)[:2], POLYGON, *list(KINDS)[2:])
DIMENSIONS = {POLYGON: 2} | {name: kind.dimension for name, kind in KINDS.items()}


@cache
def polygon(corners: int) -> CellKind:
    """Polygons with so many corners."""
    return _plane(POLYGON, corners)


def cell_kind(name: str) -> CellKind:
    """The kind of that name, one with a fixed number of nodes."""
    return KINDS[known_name("cell kind", name, KINDS, error=MeshError)]


def kind_name(name: object) -> str:
    """The name of a kind of cell, that of polygons included."""
    return known_name("cell kind", name, NAMES, error=MeshError)


def dimension_of(kinds: tuple[str, ...]) -> int:
    """2 or 3: that of kinds that make one mesh."""
    found = {DIMENSIONS[kind_name(name)]: name for name in kinds}
    if len(found) == 2:
        raise MeshError(f"{found[2]} cells are plane and {found[3]} cells are not: a mesh has cells of one dimension")
    if not found:
        raise MeshError("a mesh needs at least one cell")
    return next(iter(found))
