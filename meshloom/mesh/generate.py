"""Meshes made on the spot: the NACA 0012 C-mesh of the airfoil case, boxes, channels with a ramp, and those of
``generators``: O-grids, the flat plate, the channel with a bump, the ONERA M6 wing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod

import numpy as np

from meshloom.errors import MeshError, nearest, shown, whole_number
from meshloom.mesh.cell_kinds import KINDS, cell_kind
from meshloom.mesh.connectivity import CellTable
from meshloom.mesh.faces import derive_faces, oriented_cells
from meshloom.mesh.generators.onera_m6 import onera_m6
from meshloom.mesh.generators.planar import bump, cylinder, flat_plate, naca0012_ogrid
from meshloom.mesh.generators.quality import quality
from meshloom.mesh.mesh import Mesh
from meshloom.mesh.numbering import once_on_node
from meshloom.mesh.values import enough_memory, same_kind

__all__ = ["box", "bump", "cylinder", "flat_plate", "naca0012", "naca0012_ogrid", "onera_m6", "quality", "ramp"]

_SURFACE_POINTS = 100
_MAP_ORIGIN = 0.0077  # the square-root map unfolds the plane around this point just behind the nose
_SIDES = ("xmin", "xmax", "ymin", "ymax", "zmin", "zmax")
_MOST_CELLS = 2**31 - 1  # nodes, faces and cells are numbered in 32 bits while a mesh is made
_HALF_WIDTH = 3.0  # of the base line, and the height of the columns, in the mapped plane


@once_on_node
def naca0012(i: int, j: int, *, decimals: int | None = 6) -> Mesh:
    """The C-mesh around a NACA 0012 airfoil: 3*i by j quadrilaterals, i of them along the airfoil.

    The wake cut has nodes on both sides, at equal places but with different numbers; its faces join the two sides
    through their cells. Coordinates are rounded to ``decimals`` as the reference mesh file has them; None keeps
    all digits. Groups: "wall" (1) and "farfield" (2).
    """
    i = whole_number("naca0012: i", i, 2, _MOST_CELLS, error=MeshError)
    j = whole_number("naca0012: j", j, 1, _MOST_CELLS, error=MeshError)
    if decimals is not None:
        decimals = whole_number("naca0012: decimals", decimals, 0, 15, error=MeshError)
    _check_number("naca0012", (3 * i, j))
    with enough_memory("naca0012", 2 * 3 * i * j, 8):
        coordinates = _airfoil_coordinates(i, j)
    if decimals is not None:
        coordinates = _rounded(coordinates, decimals)
    node = np.arange((3 * i + 1) * (j + 1), dtype=np.int32).reshape(j + 1, 3 * i + 1)
    cell = np.arange(3 * i * j, dtype=np.int32).reshape(j, 3 * i)
    cell_nodes = np.stack((node[:-1, :-1], node[:-1, 1:], node[1:, 1:], node[1:, :-1]), axis=2).reshape(-1, 4)
    faces = _airfoil_faces(node, cell, i)
    boundary = _airfoil_boundary(node, cell, i)
    return Mesh.from_parts(
        coordinates + 0.0,  # no negative zeros
        cell_nodes,
        faces[:, :2],
        faces[:, 2:],
        boundary[:, :2],
        boundary[:, 2],
        boundary[:, 3],
        kind="quad",
        groups={"wall": 1, "farfield": 2},
    )


def _airfoil_coordinates(i: int, j: int) -> np.ndarray:
    """Nodes row by row from the airfoil outwards, (n, 2): squares of the points of a sheared rectangle."""
    base = (2.0 * np.arange(3 * i + 1) - 3 * i) * (_HALF_WIDTH / (3 * i))
    bottom = np.zeros(3 * i + 1)
    surface = _mapped_surface()
    on_airfoil = slice(i + 1, 2 * i)  # without the trailing edge, which stays on the axis
    bottom[on_airfoil] = _cubic_spline(surface.real, surface.imag, base[on_airfoil])
    rise = np.arange(j + 1)[:, None] / j
    x, y = np.broadcast_arrays(base, bottom + rise * (_HALF_WIDTH - bottom))
    return np.stack((x * x - y * y, 2.0 * x * y), axis=2).reshape(-1, 2)


def _cubic_spline(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The cubic spline through points (n,) whose third derivative has no jump at the second and the last but one ("not
    a knot"). SciPy has it: importing that takes longer than all else until the first iteration of an airfoil."""
    step, slope = np.diff(x), np.diff(y) / np.diff(x)
    last = len(x) - 1
    below, middle, above, right = (np.empty(last + 1) for _ in range(4))
    below[1:-1], middle[1:-1], above[1:-1] = step[1:], 2.0 * (step[:-1] + step[1:]), step[:-1]
    right[1:-1] = 3.0 * (step[1:] * slope[:-1] + step[:-1] * slope[1:])
    for end, near, far, inwards in ((0, 0, 1, above), (last, -1, -2, below)):
        both = step[near] + step[far]
        middle[end], inwards[end] = step[far], both
        right[end] = ((step[near] + 2.0 * both) * step[far] * slope[near] + step[near] ** 2 * slope[far]) / both
    rate = _tridiagonal(below, middle, above, right)  # dy/dx at the points
    k = np.clip(np.searchsorted(x, at, side="right") - 1, 0, last - 1)
    t = (at - x[k]) / step[k]
    bend = rate[k] - slope[k], rate[k + 1] - slope[k]
    return y[k] + step[k] * t * (slope[k] + (1.0 - t) * (bend[0] * (1.0 - t) - bend[1] * t))


def _tridiagonal(below: np.ndarray, middle: np.ndarray, above: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solution (n,) of a system of few rows: NumPy's solver of full ones wakes up a thread for every core."""
    for k in range(1, len(right)):
        factor = below[k] / middle[k - 1]
        middle[k] -= factor * above[k - 1]
        right[k] -= factor * right[k - 1]
    right[-1] /= middle[-1]
    for k in reversed(range(len(right) - 1)):
        right[k] = (right[k] - above[k] * right[k + 1]) / middle[k]
    return right


def _mapped_surface() -> np.ndarray:
    """The airfoil in the mapped plane, complex (199,), from the lower trailing edge to the upper one."""
    s = np.sin(np.linspace(0.0, np.pi / 2, _SURFACE_POINTS)) ** 2
    y = 0.594689181 * (
        0.298222773 * np.sqrt(s) - 0.127125232 * s - 0.357907906 * s**2 + 0.291984971 * s**3 - 0.105174696 * s**4
    )
    y[-1] = 0.0
    upper = np.sqrt(s + 1j * y - _MAP_ORIGIN)
    return np.concatenate((-np.conj(upper[::-1]), upper[1:]))


def _rounded(values: np.ndarray, decimals: int) -> np.ndarray:
    """The values as they come back from text with that many decimals: the nearest double to the printed number."""
    scaled = values * 10.0**decimals
    rounded = np.rint(scaled) / 10.0**decimals
    # The product above is itself rounded, which matters only beside a tie: there, print and read.
    ties = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5) < 1e-3
    rounded[ties] = [float(f"{value:.{decimals}f}") for value in values[ties]]
    return rounded


def _airfoil_faces(node: np.ndarray, cell: np.ndarray, i: int) -> np.ndarray:
    """Interior faces (n, 4): two nodes, two cells; in the order of the reference file.

    One sweep over the cells, row by row; each cell adds up to three faces: its part of the wake cut, the face
    above it, the face to its right.
    """
    rows, columns = cell.shape
    slots = np.zeros((rows, columns, 3, 4), dtype=np.int32)
    exists = np.zeros((rows, columns, 3), dtype=bool)
    slots[0, :i, 0] = np.stack((node[0, :i], node[0, 1 : i + 1], cell[0, ::-1][:i], cell[0, :i]), axis=1)
    exists[0, :i, 0] = True
    slots[:-1, :, 1] = np.stack((node[1:-1, :-1], node[1:-1, 1:], cell[:-1], cell[1:]), axis=2)
    exists[:-1, :, 1] = True
    slots[:, :-1, 2] = np.stack((node[:-1, 1:-1], node[1:, 1:-1], cell[:, 1:], cell[:, :-1]), axis=2)
    exists[:, :-1, 2] = True
    return slots[exists]


def _airfoil_boundary(node: np.ndarray, cell: np.ndarray, i: int) -> np.ndarray:
    """Boundary faces (n, 4): two nodes, cell, group; airfoil, then once around the far field."""
    wall = slice(i, 2 * i)
    sides = (
        (node[0, 1:][wall], node[0, :-1][wall], cell[0, wall], 1),
        (node[1:, -1], node[:-1, -1], cell[:, -1], 2),
        (node[-1, :-1][::-1], node[-1, 1:][::-1], cell[-1, ::-1], 2),
        (node[:-1, 0][::-1], node[1:, 0][::-1], cell[::-1, 0], 2),
    )
    return np.concatenate([np.stack((a, b, of, np.full_like(of, group)), axis=1) for a, b, of, group in sides])


@once_on_node
def box(
    shape: Sequence[int],
    *,
    cells: str | None = None,
    extent: Sequence[float] | None = None,
    origin: Sequence[float] | None = None,
    alternate: bool = False,
) -> Mesh:
    """A box of ``shape`` = (nx, ny) or (nx, ny, nz) cuboids, each one cell or split into several.

    ``cells``: "quad" (the default in 2-D), "triangle" (two for each quadrilateral; ``alternate`` turns every other
    diagonal, as on a chessboard), "hexahedron" (the default in 3-D), "tetrahedron" (six for each), "prism" (two for
    each, along z) or "pyramid" (six for each, to its middle). ``extent`` is the size along each axis (1), ``origin``
    the lowest corner (0). Numbers run along x first. Groups: "xmin", "xmax", ...
    """
    counts = _checked_shape(shape)
    dim = len(counts)
    kind = cell_kind(cells if cells is not None else {2: "quad", 3: "hexahedron"}[dim])
    if kind.dimension != dim:
        fitting = [name for name, other in KINDS.items() if other.dimension == dim]
        raise MeshError(f"box{tuple(counts)}: {kind.name} cells do not fit {dim}-D{nearest('', fitting)}")
    if alternate and kind.name != "triangle":
        raise MeshError(f"box: alternate diagonals are for triangles, not {kind.name} cells")
    size = _checked_extent(extent, dim)
    low = _per_axis("origin", origin, 0.0, dim)
    ticks = [low[axis] + size[axis] * (np.arange(n + 1) / n) for axis, n in enumerate(counts)]
    x = np.stack([axis.ravel() for axis in np.meshgrid(*reversed(ticks), indexing="ij")][::-1], axis=1)
    node = np.arange(len(x)).reshape([n + 1 for n in reversed(counts)])
    nodes = _cells(kind.name, node, alternate)
    if kind.name == "pyramid":
        x = np.concatenate((x, x[_cuboids(node)].mean(axis=1)))
    table = CellTable.of_kind(kind.name, nodes.astype(np.int32 if len(x) < 2**31 else np.int64))
    return _with_sides(x, oriented_cells(x, table), counts, _SIDES[: 2 * dim])


def _checked_shape(shape: Sequence[int], what: str = "box", dims: tuple[int, ...] = (2, 3)) -> list[int]:
    try:
        counts = [whole_number(what, n, 1, _MOST_CELLS, error=MeshError) for n in shape]
    except (MeshError, TypeError):
        counts = []
    if len(counts) not in dims:
        wanted = " or ".join({2: "two", 3: "three"}[dim] for dim in dims)
        raise MeshError(f"{what}: shape must be {wanted} whole numbers from 1, got {shown(shape)}")
    _check_number(what, counts)
    return counts


def _check_number(what: str, counts: Sequence[int]) -> None:
    """Twelve triangles for each cuboid, between tetrahedra, are the most there can be."""
    if 12 * prod(n + 1 for n in counts) > _MOST_CELLS:
        raise MeshError(f"{what}: {' x '.join(map(str, counts))} cells are too many to make on the spot; make fewer")


def _checked_extent(extent: Sequence[float] | None, dim: int, what: str = "box") -> np.ndarray:
    size = _per_axis("extent", extent, 1.0, dim, what)
    if (size <= 0).any():
        raise MeshError(f"{what}: extent must be positive, got {size.tolist()}")
    return size


def _per_axis(name: str, values: Sequence[float] | None, default: float, dim: int, what: str = "box") -> np.ndarray:
    array = np.full(dim, default) if values is None else same_kind(values, np.dtype(np.float64), f"{what}, {name}")
    if array.shape != (dim,) or not np.isfinite(array).all():
        raise MeshError(f"{what}: {name} must be {dim} finite numbers, got {shown(values)}")
    return array


def _corners(node: np.ndarray) -> dict[tuple[int, ...], np.ndarray]:
    """For each corner (0 or 1 along x, y, ...) its node of every cuboid, flat, x running first."""
    ends = (slice(None, -1), slice(1, None))
    return {corner: node[tuple(ends[c] for c in reversed(corner))].ravel() for corner in np.ndindex(*(2,) * node.ndim)}


def _cuboids(node: np.ndarray) -> np.ndarray:
    """Cells (n, 4) or (n, 8) in VTK order."""
    at = _corners(node)
    square = ((0, 0), (1, 0), (1, 1), (0, 1))
    order = square if node.ndim == 2 else tuple((*c, z) for z in (0, 1) for c in square)
    return np.stack([at[corner] for corner in order], axis=1)


def _cells(kind: str, node: np.ndarray, alternate: bool) -> np.ndarray:
    """The nodes of all cells. Pyramids meet in the middles of the cuboids, nodes that come after all others."""
    if kind in ("triangle", "tetrahedron"):
        return _simplices(node, alternate)
    cuboids = _cuboids(node)
    if kind == "prism":
        return cuboids[:, ((0, 2, 1, 4, 6, 5), (0, 3, 2, 4, 7, 6))].reshape(-1, 6)
    if kind == "pyramid":
        bases = cuboids[:, cell_kind("hexahedron").faces][..., ::-1].reshape(-1, 4)
        return np.column_stack((bases, node.size + np.repeat(np.arange(len(cuboids)), 6)))
    return cuboids


def _simplices(node: np.ndarray, alternate: bool) -> np.ndarray:
    """Each cuboid cut into 2 triangles or 6 tetrahedra along its main diagonal (Kuhn's way, which conforms).

    One simplex for each order of the axes: it walks from the lowest corner to the highest along them.
    """
    at = _corners(node)
    dim = node.ndim
    paths = []
    for axes in permutations(range(dim)):
        corners = [tuple(int(axis in axes[:step]) for axis in range(dim)) for step in range(dim + 1)]
        paths.append(np.stack([at[corner] for corner in corners], axis=1))
    simplices = np.stack(paths, axis=1)
    if alternate:
        other = np.stack([np.stack([at[c] for c in corners], axis=1)
                          for corners in (((1, 0), (1, 1), (0, 1)), ((1, 0), (0, 1), (0, 0)))], axis=1)  # fmt: skip
        odd = np.add.outer(*(np.arange(n - 1) for n in node.shape)).ravel() % 2 == 1
        simplices[odd] = other[odd]
    return simplices.reshape(-1, dim + 1)


def _with_sides(x: np.ndarray, table: CellTable, counts: list[int], names: Sequence[str]) -> Mesh:
    """The mesh of cells in a box of so many along each axis; ``names``: of the lower and the upper side of each."""
    faces = derive_faces(table, len(x))
    return Mesh.from_parts(
        x,
        table.nodes,
        faces.nodes,
        faces.cells,
        faces.boundary_nodes,
        faces.boundary_cells,
        _sides(faces.boundary_nodes.padded(), counts),
        kind=table.name,
        groups={name: number for number, name in enumerate(names, start=1)},
    )


def _sides(boundary_nodes: np.ndarray, counts: list[int]) -> np.ndarray:
    """The group of each boundary face: 1 + 2*axis on the lower side of an axis, 2 + 2*axis on the upper one."""
    group = np.zeros(len(boundary_nodes), dtype=np.int32)
    rest = boundary_nodes.astype(np.int64)
    for axis, n in enumerate(counts):
        position, rest = rest % (n + 1), rest // (n + 1)
        group[(position == 0).all(axis=1)] = 1 + 2 * axis
        group[(position == n).all(axis=1)] = 2 + 2 * axis
    return group


@once_on_node
def ramp(shape: Sequence[int], *, extent: Sequence[float] | None = None, slope: float = 0.0) -> Mesh:
    """A channel of ``shape`` = (nx, ny, nz) hexahedra whose floor rises with ``slope`` from half its length on.

    ``extent`` is its length, height and depth (1); the roof is level. Numbers run along z first, then y, then x, as in
    the miniAero benchmark. Groups: "xmin", "xmax", ...; "ymin" is the floor.
    """
    counts = _checked_shape(shape, "ramp", (3,))
    size = _checked_extent(extent, 3, "ramp")
    rise = slope * size[0] / 2.0
    if not rise < size[1]:
        raise MeshError(f"ramp: a rise of {rise:g} does not fit into the channel {size.tolist()}; lower the slope")
    i, j, k = np.meshgrid(*(np.arange(n + 1) for n in counts), indexing="ij")
    x, z = i / counts[0] * size[0], k / counts[2] * size[2]
    floor = np.where(x < size[0] / 2.0, 0.0, (x - size[0] / 2.0) * slope)
    y = np.where(x < size[0] / 2.0, j / counts[1] * size[1], floor + j * (size[1] - floor) / counts[1])
    node = np.arange(x.size, dtype=np.int32 if x.size < 2**31 else np.int64).reshape(x.shape)
    ends = (slice(None, -1), slice(1, None))
    square = ((0, 0), (1, 0), (1, 1), (0, 1))
    cells = np.stack([node[ends[a], ends[b], ends[c]].ravel() for c in (0, 1) for a, b in square], axis=1)
    places, table = np.stack((x, y, z), axis=-1).reshape(-1, 3), CellTable.of_kind("hexahedron", cells)
    return _with_sides(places, table, counts[::-1], _SIDES[4:6] + _SIDES[2:4] + _SIDES[:2])
