"""A mesh as arrays, before faces are derived, and the checks and small steps that all generators share."""

from __future__ import annotations

from math import isfinite

import numpy as np

from meshloom.errors import MeshError, known_name, shown
from meshloom.mesh.mesh import Mesh
from meshloom.mesh.values import one_number
from meshloom.records import dataclass

#: Nodes, faces and cells are numbered in 32 bits while a mesh is made.
MOST = 2**31 - 1
PLANAR = ("quad", "triangle", "mixed")


@dataclass(frozen=True)
class CellArrays:
    """Coordinates (n, d), the nodes of the cells of each kind in VTK order, and those of the faces of each group.

    A group has one array of faces for each number of nodes that its faces have.
    """

    coordinates: np.ndarray
    cells: dict[str, np.ndarray]
    boundary: dict[str, list[np.ndarray]]

    @property
    def size(self) -> int:
        """The number of cells of all kinds."""
        return sum(len(nodes) for nodes in self.cells.values())

    def mesh(self) -> Mesh:
        """The mesh whose cells are numbered kind after kind."""
        if len(self.cells) == 1:
            ((kind, nodes),) = self.cells.items()
            return Mesh.from_cells(self.coordinates, nodes, kind, {name: one for name, (one,) in self.boundary.items()})
        return Mesh.from_cells(self.coordinates, self.cells, boundary=self.boundary)


def real_number(what: str, value: object, above: float, most: float = float("inf")) -> float:
    """``value`` as a finite number above ``above``, at most ``most``. ``what`` begins the message: "bump: height"."""
    number = one_number(value, np.dtype(np.float64), what)
    if not (isfinite(number) and above < number <= most):
        bounds = f"above {above:g}" + (f" and at most {most:g}" if most < float("inf") else "")
        raise MeshError(f"{what} must be a number {bounds}, got {shown(value)}")
    return float(number)


def rows_of_cells(x: np.ndarray, node: np.ndarray, cells: str, quad_rows: int) -> dict[str, np.ndarray]:
    """Cells between the rows of a table of node numbers (rows, columns), wound as row 0 to the right, row 1 back.

    ``cells``: "quad", "triangle" (each quadrilateral cut along its shorter diagonal) or "mixed": quadrilaterals in the
    first ``quad_rows`` rows, triangles in the others.
    """
    quads = np.stack((node[:-1, :-1], node[:-1, 1:], node[1:, 1:], node[1:, :-1]), axis=2)
    rows = {"quad": len(quads), "triangle": 0, "mixed": min(quad_rows, len(quads))}[cells]
    kinds = {"quad": quads[:rows].reshape(-1, 4), "triangle": cut_in_two(x, quads[rows:].reshape(-1, 4))}
    return {kind: nodes for kind, nodes in kinds.items() if len(nodes)}


def cut_in_two(x: np.ndarray, quads: np.ndarray) -> np.ndarray:
    """Two triangles (2 n, 3) for each quadrilateral (n, 4), along its shorter diagonal, wound the same way."""
    a, b, c, d = quads.T
    lengths = [np.sum((x[one] - x[other]) ** 2, axis=1) for one, other in ((a, c), (b, d))]
    # Where both are as long, rounding must not decide: neighbours would be cut in different ways.
    first = lengths[0] <= lengths[1] * (1 + 1e-9)
    one = np.where(first[:, None], np.stack((a, b, c), axis=1), np.stack((a, b, d), axis=1))
    other = np.where(first[:, None], np.stack((a, c, d), axis=1), np.stack((b, c, d), axis=1))
    return np.stack((one, other), axis=1).reshape(-1, 3)


def planar_cells(what: str, cells: object) -> str:
    """The name of what a plane is filled with: "quad", "triangle" or "mixed"."""
    return known_name(f"cells of {what}", cells, PLANAR, error=MeshError)


def edges(*nodes: np.ndarray) -> list[np.ndarray]:
    """The edges (m, 2) along rows of nodes, as the faces of a boundary group."""
    return [np.concatenate([np.stack((row[:-1], row[1:]), axis=1) for row in nodes])]
