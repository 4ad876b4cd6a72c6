"""Where the loops of the zoo run: meshes and graphs by family, size and order, and fields of random values on them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

import meshloom as ml

#: How the numbering asked for is made.
ORDERS = {"given": "given", "shuffled": "random", "good": "hilbert"}
#: Cells of each kind that a cuboid of a box is split into, and what a mixed mesh has of them.
SPLIT = {"triangle": 2, "quad": 1, "tetrahedron": 6, "hexahedron": 1}
PLANAR = ("triangle", "quad")
MIXED = ("triangle", "quad", "tetrahedron")
SIMPLICES = ("triangle", "tetrahedron")
POINTS_OF = {"triangle": 0.5, "tetrahedron": 0.15}  # points for each cell of a Delaunay mesh, nearly


def families(kind: str) -> tuple[str, ...]:
    """On which meshes a loop over cells of a kind runs; a graph is its own."""
    if kind == "graph":
        return ("random", "power_law")
    return ("box", *(("delaunay",) if kind in SIMPLICES else ()), *(("mixed",) if kind in MIXED else ()))


def mesh_of(family: str, kind: str, cells: int, order: str) -> ml.Mesh:
    """About so many cells of a kind."""
    made = {"box": _box, "delaunay": _delaunay, "mixed": _mixed}[family](kind, cells)
    return made if order == "given" else made.reordered(ORDERS[order])


def _box(kind: str, cells: int) -> ml.Mesh:
    dim = 2 if kind in PLANAR else 3
    along = max(1, round((cells / SPLIT[kind]) ** (1 / dim)))
    return ml.generate.box((along,) * dim, cells=kind)


def _delaunay(kind: str, cells: int) -> ml.Mesh:
    """Of random points, in the order in which they were drawn; slivers of the hull, without a volume, are left out."""
    from scipy.spatial import Delaunay

    dim = 2 if kind in PLANAR else 3
    points = np.random.default_rng(5).random((max(dim + 2, round(cells * POINTS_OF[kind])), dim))
    rows = Delaunay(points).simplices
    corners = points[rows]
    volumes = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1]))
    rows = rows[volumes > 1e-9 * volumes.mean()]
    used, numbers = np.unique(rows, return_inverse=True)
    return ml.Mesh.from_cells(points[used], numbers.reshape(rows.shape), kind, order="given")


def _mixed(kind: str, cells: int) -> ml.Mesh:
    """Layers along a wall below simplices: a plate with quadrilaterals, a wing with prisms."""
    if kind not in PLANAR:
        return ml.generate.onera_m6(cells=max(3000, cells))
    along = max(16, round((cells / 1.5) ** 0.5))
    return ml.generate.flat_plate(along, along, cells="mixed")


@dataclass(frozen=True)
class Links:
    """A graph: vertices, and links between two of them each."""

    vertices: ml.Set
    links: ml.Set
    ends: ml.Map


def graph(family: str, links: int, order: str) -> Links:
    """Eight links for each vertex. ``random``: both ends are drawn alike. ``power_law``: vertex v is drawn like
    1 / sqrt(v), so that a few have very many. In good order links are sorted by their lower end."""
    rng, vertices = np.random.default_rng(7), max(2, links // 8)
    drawn = rng.random((links, 2))
    ends = (vertices * (drawn**2 if family == "power_law" else drawn)).astype(np.int64)
    if order == "good":
        ends = ends[np.lexsort((ends.max(axis=1), ends.min(axis=1)))]
    elif order == "shuffled":
        ends = rng.permutation(vertices)[ends]
    at, by = ml.Set(vertices, "vertices"), ml.Set(links, "links")
    return Links(at, by, ml.Map(by, at, ends, "ends"))


@dataclass(frozen=True)
class Scene:
    """What a loop of the zoo is made on. Fields have the same values in any precision and layout.

    ``kind``: of the cells that it visits; of a mixed mesh those of this kind.
    """

    mesh: Any
    kind: str
    precision: str = "float64"
    layout: str | None = None
    values: dict[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def cells(self) -> Any:
        return self.mesh.cells if self.mesh.kind == self.kind else self.mesh.cells.of(self.kind)

    @property
    def nodes(self) -> ml.Map:
        """From those cells to their nodes."""
        found: ml.Map = self.mesh.cell_nodes if self.mesh.kind == self.kind else self.cells.nodes
        return found

    def with_fields(self, precision: str, layout: str | None) -> Scene:
        return replace(self, precision=precision, layout=layout)

    def given(self, on: ml.Set, name: str, shape: Any = 1, low: float = -1.0, high: float = 1.0) -> ml.Field:
        """Random values between two limits."""
        if name not in self.values:
            rows = (on.total,) if shape == 1 else (on.total, *np.atleast_1d(shape))
            self.values[name] = np.random.default_rng(zlib.crc32(name.encode())).uniform(low, high, rows)
        return self.of(on, name, shape, lambda: self.values[name])

    def points(self) -> ml.Field:
        """Where the nodes are."""
        return self.of(self.mesh.nodes, "x", self.mesh.dim, self.mesh.coordinates.numpy)

    def result(self, on: ml.Set, name: str, shape: Any = 1) -> ml.Field:
        """What a loop writes, zero before."""
        return self.of(on, name, shape, None)

    def of(self, on: ml.Set, name: str, shape: Any, data: Callable[[], np.ndarray] | None) -> ml.Field:
        values, layout = None if data is None else data(), None if shape == 1 else self.layout
        return on.field(name, shape, dtype=self.precision, data=values, layout=layout)
