"""Meshes of the coloring benchmark, of which pairs of cells are all that counts; their coloring and their numberings.

Levels 1 to 5 are the ONERA M6 wings of the paper's sizes (``ml.generate.onera_m6``), or boxes of as many cells: layers
of prisms below, tetrahedra above, in the shares that the paper's numbers of cells and faces imply.
"""

from __future__ import annotations

import ctypes
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.native import compiler
from meshloom.native.algorithms import color_elements, incidence
from meshloom.native.ffi import address
from meshloom.order import order_elements, order_targets
from meshloom.order.graph import lexicographic

LEVELS = (1, 2, 3, 4, 5)
CELLS = {1: 460_000, 2: 890_000, 3: 1_960_000, 4: 3_920_000, 5: 9_760_000}
PRISMS = {1: 0.55, 2: 0.29, 3: 0.13, 4: 0.09, 5: 0.16}  # of the cells, from 2 x faces / cells = 4 + this share
LAYER_OF_TETS = 6  # tetrahedra of a cube
LARGE_BLOCK = 1024  # cells
SOURCE = Path(__file__).parent / "peers" / "coloring.cpp"


@dataclass(frozen=True)
class Faces:
    """Interior faces: ``pairs`` (faces, 2) int32 of cells, the smaller number first; ``centres`` (cells, 3) float32."""

    name: str
    pairs: np.ndarray
    centres: np.ndarray

    @property
    def cells(self) -> int:
        return len(self.centres)

    @property
    def n(self) -> int:
        return len(self.pairs)


# --- meshes -----------------------------------------------------------------------------------------------------------


def face_pairs(kind: str, level: int, folder: Path) -> Faces:
    """A mesh of the experiment, made once: its arrays stay in ``folder``, under a name that changes with the code."""
    file = folder / f"{kind}_{level}_{_generators()}.npz"
    if file.is_file():
        with np.load(file) as kept:
            return Faces(f"{kind} {level}", kept["pairs"], kept["centres"])
    made = wing(level) if kind == "m6" else box(CELLS[level], PRISMS[level], f"{kind} {level}")
    folder.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}")  # a run that is stopped leaves no half of a mesh
    np.savez(temporary, pairs=made.pairs, centres=made.centres)
    temporary.with_suffix(".npz").replace(file)
    return made


def _generators() -> str:
    """A word that stands for the text of what makes meshes."""
    package = Path(ml.__file__).parent
    places = [*sorted((package / "mesh").rglob("*.py")), *sorted((package / "native").glob("*.cpp")), Path(__file__)]
    texts = [place.read_bytes() for place in places]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def has_wings() -> bool:
    return hasattr(ml.generate, "onera_m6")


def wing(level: int) -> Faces:
    generate: Any = ml.generate  # which may have no wings yet
    mesh = generate.onera_m6(level)
    return Faces(f"m6 {level}", ordered(mesh.face_cells.indices), np.asarray(mesh.cell_centroids, np.float32))


def ordered(pairs: np.ndarray) -> np.ndarray:
    """Owner first: the smaller number."""
    return np.ascontiguousarray(np.sort(pairs, axis=1), np.int32)


def box(cells: int, prisms: float, name: str) -> Faces:
    """About so many cells: tetrahedra in a cube of n x n x n boxes, and this share of prisms in layers below it."""
    n = max(2, round((cells * (1.0 - prisms) / LAYER_OF_TETS) ** (1 / 3)))
    layers = max(1, round(LAYER_OF_TETS * n**3 * prisms / (1.0 - prisms) / (2 * n * n)))
    mesh = ml.generate.box((n, n, n), cells="tetrahedron", extent=(n, n, n))
    low = mesh.boundary("zmin")
    above = np.empty(2 * n * n, np.int64)
    above[_triangle(low.centre.numpy()[:, :2], n)] = low.cells.indices[:, 0]
    number = np.arange(2 * n * n * layers).reshape(layers, 2 * n * n)  # of prisms, the highest layer last
    upward = np.stack([number, np.concatenate([number[1:], above[None] + number.size])], axis=2).reshape(-1, 2)
    within = (_triangles_of_squares(n)[None] + 2 * n * n * np.arange(layers)[:, None, None]).reshape(-1, 2)
    pairs = ordered(np.concatenate([within, upward, mesh.face_cells.indices + number.size]))
    centres = _centres(mesh, n, layers)
    return Faces(name, np.ascontiguousarray(pairs[lexicographic(pairs, np.arange(len(centres)))]), centres)


def _triangle(at: np.ndarray, n: int) -> np.ndarray:
    """The number of the triangle at a point (m, 2): two in each unit square, row by row."""
    square = np.minimum(np.floor(at).astype(np.int64), n - 1)
    within = at - square
    return 2 * (square[:, 0] * n + square[:, 1]) + (within[:, 0] > within[:, 1])


def _triangles_of_squares(n: int) -> np.ndarray:
    """Which of the 2 n n triangles of a plane meet: (m, 2)."""
    square = np.arange(n * n).reshape(n, n)
    lower, upper = 2 * square + 1, 2 * square  # of the diagonal: x > y, and x < y
    meet = [(upper, lower), (lower[:-1], upper[1:]), (upper[:, :-1], lower[:, 1:])]
    return np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in meet])


def _centres(mesh: ml.Mesh, n: int, layers: int) -> np.ndarray:
    """Of the prisms, then of the tetrahedra."""
    square = np.stack(np.meshgrid(np.arange(n), np.arange(n), indexing="ij"), axis=-1).reshape(-1, 1, 2)
    plane = (square + np.array([[1 / 3, 2 / 3], [2 / 3, 1 / 3]])).reshape(-1, 2)
    height = np.repeat((np.arange(layers) - layers + 0.5) / layers, len(plane))
    prisms = np.column_stack([np.tile(plane, (layers, 1)), height])
    return np.concatenate([prisms, mesh.cell_centroids]).astype(np.float32)


# --- algorithms 3 and 4 -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Groups:
    """Faces by color: ``faces`` (faceGroup), ``sizes`` (groupNum) and ``starts`` (colorPosi)."""

    colors: np.ndarray
    faces: np.ndarray
    sizes: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, colors: np.ndarray) -> Groups:
        sizes = np.bincount(colors) if len(colors) else np.zeros(0, np.int64)
        narrow = colors.astype(np.uint8) if len(sizes) < 256 else colors  # which NumPy sorts by counting
        return cls(colors, np.argsort(narrow, kind="stable").astype(np.int32), sizes, np.cumsum(sizes) - sizes)

    def renumbered(self, order: np.ndarray) -> Groups:
        """The same colors when ``order`` says which face comes when."""
        return Groups.of(self.colors[order])


def colored(faces: Faces) -> tuple[Groups, float]:
    """Groups by the engine's greedy coloring, which keeps a mask of colors at each cell, and the seconds of coloring
    and grouping."""
    color_elements([faces.pairs[:1]], [faces.cells])  # compiles, and loads what is compiled
    begin = time.perf_counter()
    groups = Groups.of(color_elements([faces.pairs], [faces.cells]))
    return groups, time.perf_counter() - begin


def colored_by_lists(faces: Faces) -> tuple[np.ndarray, float]:
    """Colors the paper's way, along lists of conflicting faces, and the seconds of lists, coloring and grouping."""
    library, begin = compiler.load(SOURCE.read_text(encoding="utf-8"), "peer_coloring"), time.perf_counter()
    offsets, entries = incidence(faces.pairs, faces.cells)
    starts, colors = np.empty(faces.n + 1, np.int64), np.empty(faces.n, np.int32)
    count = library.conflict_starts
    count.restype = ctypes.c_int64
    size = ctypes.c_int64(faces.n)
    length = count(size, *_pointers(faces.pairs, offsets, starts))
    conflicts = np.empty(length, np.int32)
    library.conflict_lists(size, *_pointers(faces.pairs, offsets, entries, starts, conflicts))
    library.color_by_lists(size, *_pointers(starts, conflicts, colors))
    Groups.of(colors)
    return colors, time.perf_counter() - begin


def _pointers(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(address(one)) for one in arrays]


# --- numberings -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbering:
    """A mesh under new numbers: ``old_faces`` and ``old_cells`` say which old one each new one was."""

    faces: Faces
    old_faces: np.ndarray
    old_cells: np.ndarray


def as_given(faces: Faces) -> Numbering:
    return Numbering(faces, np.arange(faces.n), np.arange(faces.cells))


def along_curve(faces: Faces) -> Numbering:
    """Cells along the Hilbert curve, faces in the order of their cells; owners stay owners."""
    return _after_cells(faces, order_targets("hilbert", faces.pairs, faces.cells, points=faces.centres))


def in_blocks(faces: Faces) -> Numbering:
    """Cells in blocks that grow greedily, as many as a large thread block has; faces in the order of their cells."""
    return _after_cells(faces, order_targets("greedy", faces.pairs, faces.cells, block=LARGE_BLOCK))


def _after_cells(faces: Faces, old_cells: np.ndarray) -> Numbering:
    old_faces = lexicographic(faces.pairs, old_cells)
    pairs = _new_numbers(old_cells)[faces.pairs[old_faces]]
    numbered = Faces(faces.name, np.ascontiguousarray(pairs), faces.centres[old_cells])
    return Numbering(numbered, old_faces, old_cells)


def for_largest_color(faces: Faces, groups: Groups) -> Numbering:
    """Algorithms 9 and 10: the m faces of the largest color become the first, their owners cells 0 .. m - 1, their
    neighbors m .. 2 m - 1; all others follow in their old order, and owners stay owners."""
    largest = int(np.argmax(groups.sizes))
    first = groups.faces[groups.starts[largest] :][: groups.sizes[largest]]
    old_faces = np.concatenate([first, np.flatnonzero(groups.colors != largest)])
    met = faces.pairs[first].T.ravel()
    others = np.ones(faces.cells, bool)
    others[met] = False
    old_cells = np.concatenate([met, np.flatnonzero(others)])
    pairs = _new_numbers(old_cells)[faces.pairs[old_faces]]
    return Numbering(Faces(faces.name, np.ascontiguousarray(pairs), faces.centres[old_cells]), old_faces, old_cells)


def by_color(faces: Faces) -> Numbering:
    """Faces numbered by color, cells as they are."""
    old_faces = order_elements("color", faces.pairs, faces.cells)
    pairs = np.ascontiguousarray(faces.pairs[old_faces])
    return Numbering(Faces(faces.name, pairs, faces.centres), old_faces, np.arange(faces.cells))


def _new_numbers(old: np.ndarray) -> np.ndarray:
    new = np.empty(len(old), np.int32)
    new[old] = np.arange(len(old), dtype=np.int32)
    return new
