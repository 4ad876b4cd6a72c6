"""Where a place lies: in which cell of a mesh, between which points of a grid; and what to make of values around it.

A ``Spot`` is a weighted sum over elements. Of values on cells it takes the one of the cell that holds the place; of
values on nodes the linear function that fits those of the cell best, which on triangles and tetrahedra is the one
through them; of values at points of a grid the linear ones between them along each axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from meshloom.errors import MeshError
from meshloom.mesh import geometry
from meshloom.mesh.cell_kinds import KINDS, POLYGON, CellKind, polygon
from meshloom.mesh.grid import Grid
from meshloom.mesh.mesh import Mesh
from meshloom.native.algorithms import distinct
from meshloom.records import dataclass

_ON_A_SIDE = 1e-9  # of the size of a cell: a place that is no further out lies in it
_FLAT = 1e-14  # of the square of a cell's size: what is left of the area of a line when it is rounded


class Outside(MeshError):
    """A place that lies in no cell, or beyond the ends of a grid; the message says what is nearest."""


@dataclass(frozen=True)
class Spot:
    """Elements (k,) and their weights (k,), which sum up to 1. ``cell``: the one that holds it; -1 on a grid."""

    elements: np.ndarray
    weights: np.ndarray
    cell: int = -1

    def of_points(self, values: np.ndarray) -> np.ndarray:
        """Of values on nodes, or at points of a grid in a row, (n, ...): (...)."""
        return np.tensordot(self.weights, values[self.elements], axes=1)


class MeshPlaces:
    """A mesh as far as places are concerned; ``x`` (nodes, d): where its nodes are, if not at their coordinates."""

    def __init__(self, mesh: Mesh, x: np.ndarray | None = None):
        self.mesh, self.x = mesh, mesh.coordinates.numpy() if x is None else x
        nodes = mesh.lists.cells.nodes
        corners, starts = self.x[nodes.entries], nodes.starts[:-1]
        low, high = np.minimum.reduceat(corners, starts), np.maximum.reduceat(corners, starts)
        self._sizes = np.linalg.norm(high - low, axis=1)
        slack = _ON_A_SIDE * self._sizes[:, None]
        self._low, self._high = low - slack, high + slack
        widths = self._high - self._low
        self._axis = int(np.argmax(np.ptp(self.x, axis=0) / widths.mean(axis=0)))  # that with most cells side by side
        self._slabs = _by_width(self._low[:, self._axis], widths[:, self._axis])

    def spot(self, place: Sequence[float]) -> Spot:
        """The cell that holds a place, and the weights of its nodes there."""
        point = np.asarray(place, float)
        near = self.near(point)
        out = np.array([self._beyond(int(cell), point) for cell in near])
        best = int(np.argmin(out)) if len(out) else -1
        if best < 0 or out[best] > _ON_A_SIDE:
            raise Outside(self._nearest(point))
        cell = int(near[best])
        nodes = self.mesh.lists.cells.nodes[cell]
        return Spot(nodes, _linear_weights(self.x[nodes], point), cell)

    def near(self, point: np.ndarray) -> np.ndarray:
        """The cells whose boxes hold a point, ascending. Looked for among those that begin little before it along one
        axis: a line has hundreds of places, a mesh millions of cells."""
        some = np.sort(np.concatenate([slab.round(point[self._axis]) for slab in self._slabs]))
        return some[((point >= self._low[some]) & (point <= self._high[some])).all(axis=1)]

    def _beyond(self, cell: int, point: np.ndarray) -> float:
        """How far a place is outside a cell, as a share of its size; below 0 inside. In space cells are convex: it is
        the most beyond one of the sides, and a side that is bent counts from its outermost corner."""
        nodes = self.mesh.lists.cells.nodes[cell]
        if len(point) == 2:
            return _outside_polygon(self.x[nodes], point) / float(self._sizes[cell])
        out = []
        for face in self._kind(cell).faces:
            rows = nodes[list(face)][None, :]
            normal, centre = geometry.area_vectors(self.x, rows)[0], geometry.face_centroids(self.x, rows)[0]
            area = float(np.linalg.norm(normal))
            if area <= _FLAT * float(self._sizes[cell]) ** 2:
                continue  # its corners lie on one line: it bounds nothing
            normal = normal / area
            bend = float(np.max((self.x[rows[0]] - centre) @ normal))
            out.append(float((point - centre) @ normal) - bend)
        return max(out, default=np.inf) / float(self._sizes[cell])

    def _kind(self, cell: int) -> CellKind:
        table = self.mesh.lists.cells
        name = next(name for name, numbers in table.kinds.items() if _among(cell, numbers))
        return polygon(len(table.nodes[cell])) if name == POLYGON else KINDS[name]

    def _nearest(self, point: np.ndarray) -> str:
        centres = (self._low + self._high) / 2.0
        cell = int(np.argmin(np.linalg.norm(centres - point, axis=1)))
        middle = self.x[self.mesh.lists.cells.nodes[cell]].mean(axis=0)
        return f"lies in no cell; the nearest one, {cell}, has its middle at ({_text(middle)})"


@dataclass(frozen=True, eq=False)
class _Slab:
    """Cells that are no wider than ``width``, by where they begin along an axis, ascending."""

    cells: np.ndarray
    begins: np.ndarray
    width: float

    def round(self, value: float) -> np.ndarray:
        """Those that may hold a value."""
        first, last = np.searchsorted(self.begins, value - self.width), np.searchsorted(self.begins, value, "right")
        return self.cells[first:last]


def _by_width(begins: np.ndarray, widths: np.ndarray) -> list[_Slab]:
    """Each with those of widths that differ by a factor of two at most."""
    found = []
    exponents = np.frexp(widths)[1]
    for exponent in distinct(exponents):
        cells = np.flatnonzero(exponents == exponent)
        cells = cells[np.argsort(begins[cells], kind="stable")]
        found.append(_Slab(cells, begins[cells], float(widths[cells].max()) * (1.0 + _ON_A_SIDE)))
    return found


def _outside_polygon(corners: np.ndarray, point: np.ndarray) -> float:
    """How far a point is from the edge of a polygon (k, 2), which need not be convex; below 0 inside."""
    ends = np.roll(corners, -1, axis=0)
    along, away = ends - corners, point - corners
    share = np.clip((away * along).sum(axis=1) / np.maximum((along**2).sum(axis=1), np.finfo(float).tiny), 0.0, 1.0)
    distance = float(np.linalg.norm(away - share[:, None] * along, axis=1).min())
    crossed = (corners[:, 1] > point[1]) != (ends[:, 1] > point[1])  # by a line from the point along x
    x = corners[crossed, 0] + away[crossed, 1] / along[crossed, 1] * along[crossed, 0]
    return -distance if np.count_nonzero(x > point[0]) % 2 else distance


def _among(cell: int, numbers: range | np.ndarray) -> bool:
    if isinstance(numbers, range):
        return cell in numbers
    at = int(np.searchsorted(numbers, cell))
    return at < len(numbers) and int(numbers[at]) == cell


def _linear_weights(corners: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Weights (k,) by which values at corners (k, d) give the best linear function through them at a point."""
    size = np.ptp(corners, axis=0).max() or 1.0
    local = (corners - point) / size  # about the point, so that 1 is the value there
    basis = np.column_stack((np.ones(len(corners)), local))
    return np.linalg.pinv(basis)[0]


class GridPlaces:
    """A grid as far as places are concerned: points are counted in a row, the last axis fastest."""

    def __init__(self, grid: Grid):
        self.grid = grid

    def spot(self, place: Sequence[float]) -> Spot:
        """The points around a place, and their weights there."""
        ends = [self._along(axis, float(value)) for axis, value in enumerate(place)]
        elements, weights = [], []
        for corner in product(*ends):
            elements.append(np.ravel_multi_index([index for index, _ in corner], self.grid.shape))
            weights.append(np.prod([weight for _, weight in corner]))
        return Spot(np.array(elements), np.array(weights))

    def _along(self, axis: int, value: float) -> list[tuple[int, float]]:
        """The points before and behind a value of an axis, with their weights."""
        x, length = self.grid.coordinates[axis], self.grid.extent[axis]
        if self.grid.periodic[axis]:
            value = x[0] + (value - x[0]) % length
            x = np.append(x, x[0] + length)
        elif not x[0] - _ON_A_SIDE * length <= value <= x[-1] + _ON_A_SIDE * length:
            end = x[0] if value < x[0] else x[-1]
            raise Outside(f"lies beyond the grid, whose {Grid.axis_names[axis]} goes from {x[0]:g} to {x[-1]:g}; the"
                          f" nearest is {Grid.axis_names[axis]} = {end:g}")  # fmt: skip
        if len(x) == 1:
            return [(0, 1.0)]
        first = int(np.clip(np.searchsorted(x, value, side="right") - 1, 0, len(x) - 2))
        share = float(np.clip((value - x[first]) / (x[first + 1] - x[first]), 0.0, 1.0))
        pair = [(first, 1.0 - share), ((first + 1) % self.grid.shape[axis], share)]
        return [one for one in pair if one[1] > 0.0]


def _text(place: np.ndarray) -> str:
    return ", ".join(f"{part:.6g}" for part in place)
