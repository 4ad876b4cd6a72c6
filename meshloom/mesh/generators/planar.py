"""Meshes of the plane: O-grids around an airfoil and a cylinder, the flat plate, the channel with a bump."""

from __future__ import annotations

from functools import cache

import numpy as np

from meshloom.errors import MeshError, whole_number
from meshloom.mesh.generators.arrays import MOST, CellArrays, edges, planar_cells, real_number, rows_of_cells
from meshloom.mesh.generators.conformal import AirfoilMap, airfoil_map
from meshloom.mesh.generators.spacing import geometric
from meshloom.mesh.mesh import Mesh
from meshloom.mesh.numbering import once_on_node

#: Half the thickness of NACA 0012 by powers 1/2, 1, 2, 3, 4 of x, as in ``naca0012``: the formula's own zero, behind
#: its chord, is where the trailing edge closes, and the chord is scaled to 1 again. The last makes the sum exactly 0.
_NACA = 0.594689181 * np.array([0.298222773, -0.127125232, -0.357907906, 0.291984971, -0.105174606])
#: Cells of the plate's resource grids (34 x 24, doubled up to 544 x 384): so many of 34 lie ahead of the plate.
_UPSTREAM = 6 / 34


@once_on_node
def naca0012_ogrid(
    around: int = 256,
    outward: int = 96,
    *,
    far: float = 100.0,
    wall_aspect: float = 0.5,
    cells: str = "quad",
    quad_rows: int | None = None,
) -> Mesh:
    """An O-grid of ``around`` by ``outward`` cells around NACA 0012, chord from (0, 0) to (1, 0), trailing edge closed.

    Made by a conformal map, so lines meet at right angles; cells are finest at nose and tail. The far field is (nearly)
    a circle of ``far`` chords about the airfoil. Wall cells are ``wall_aspect`` times as high as wide, all of them, and
    cells grow outwards by one ratio against what they would be at that aspect. ``cells``: "quad", "triangle" or
    "mixed", whose first ``quad_rows`` rows at the wall (half of all) are quadrilaterals. Groups: "wall", "far".
    """
    what = "naca0012_ogrid"
    around, outward = _checked_counts(what, ("around", around, 8), ("outward", outward, 1))
    if around % 2:
        raise MeshError(f"{what}: around must be even, for a node at the nose, got {around}")
    far = real_number(f"{what}: far", far, 1.0, 1e6)
    aspect = real_number(f"{what}: wall_aspect", wall_aspect, 0.0)
    outside = _section_map()
    reach = float(np.log(far / outside.radius))
    heights = geometric(reach, aspect * 2 * np.pi / around, outward, what)
    angle = np.linspace(0, 2 * np.pi, around, endpoint=False)
    z = outside.at(np.exp(heights[:, None] + 1j * angle))
    z[0] = _on_the_section(z[0], around)
    return _ring(z, cells, quad_rows, what)


@once_on_node
def cylinder(
    around: int = 128,
    outward: int = 96,
    *,
    diameter: float = 1.0,
    far: float = 50.0,
    first_height: float | None = None,
    cells: str = "quad",
    quad_rows: int | None = None,
) -> Mesh:
    """An O-grid of ``around`` by ``outward`` cells around a circle about (0, 0); the far field is ``far`` diameters
    away from its centre.

    Cells grow outwards by one ratio from ``first_height`` (half the width of a wall cell); numbers run around the
    circle first, from (diameter / 2, 0) on. ``cells`` and ``quad_rows`` as in ``naca0012_ogrid``.
    Groups: "wall", "far".
    """
    what = "cylinder"
    around, outward = _checked_counts(what, ("around", around, 3), ("outward", outward, 1))
    diameter = real_number(f"{what}: diameter", diameter, 0.0, 1e100)
    far = real_number(f"{what}: far", far, 0.5, 1e6) * diameter
    height = np.pi * diameter / around / 2 if first_height is None else first_height
    height = real_number(f"{what}: first_height", height, 0.0)
    radii = diameter / 2 + geometric(far - diameter / 2, height, outward, what)
    angle = 2 * np.pi * np.arange(around) / around
    return _ring(radii[:, None] * np.exp(1j * angle), cells, quad_rows, what)


@once_on_node
def flat_plate(
    along: int = 136,
    up: int = 96,
    *,
    first_height: float = 2e-6,
    cells: str = "quad",
    quad_rows: int | None = None,
) -> Mesh:
    """The turbulent flat plate of NASA's turbulence modelling resource: x from -1/3 to 2, y up to 1, wall from x = 0.

    ``along`` by ``up`` cells, 6 of 34 of those along ahead of the plate, as on the resource's grids. They grow from the
    leading edge both ways, and upwards from ``first_height`` by one ratio (2e-6 is a third of a wall unit at
    Re = 5e6 per length). Numbers run along x first. ``cells`` and ``quad_rows`` as in ``naca0012_ogrid``.
    Groups: "inlet", "outlet", "top", "symmetry" (ahead of the plate), "wall".
    """
    what = "flat_plate"
    along, up = _checked_counts(what, ("along", along, 2), ("up", up, 1))
    upstream = min(max(round(along * _UPSTREAM), 1), along - 1)
    height = real_number(f"{what}: first_height", first_height, 0.0)
    # The first cell on the plate is an eighth of the mean one: 136 cells along then grow by 3 % each on the plate.
    first = 2.0 / (along - upstream) / 8
    before = -geometric(1 / 3, min(first, 1 / 3 / upstream), upstream, what)[::-1]
    x = np.concatenate((before[:-1], geometric(2.0, first, along - upstream, what)))
    y = geometric(1.0, height, up, what)
    across, above = np.meshgrid(x, y)
    return _channel(across, above, cells, quad_rows, what, ("symmetry", slice(0, upstream + 1)),
                    ("wall", slice(upstream, None)))  # fmt: skip


@once_on_node
def bump(
    along: int = 96,
    up: int = 32,
    *,
    height: float = 0.1,
    first_height: float | None = None,
    cells: str = "quad",
    quad_rows: int | None = None,
) -> Mesh:
    """The channel with a circular arc on its floor (Ni's bump): x from -1 to 2, y up to 1, an arc ``height`` high, 0.1
    or 10 % of its chord from (0, 0) to (1, 0).

    ``along`` (a multiple of 3, a third on the arc) by ``up`` cells, which grow upwards by one ratio from
    ``first_height`` (all the same). Numbers run along x first. ``cells`` and ``quad_rows`` as in ``naca0012_ogrid``.
    Groups: "inlet", "outlet", "top", "wall" (the floor).
    """
    what = "bump"
    along, up = _checked_counts(what, ("along", along, 3), ("up", up, 1))
    if along % 3:
        raise MeshError(f"{what}: along must be a multiple of 3, for nodes at both ends of the arc, got {along}")
    height = real_number(f"{what}: height", height, 1e-12, 0.5)
    first = real_number(f"{what}: first_height", 1.0 / up if first_height is None else first_height, 0.0)
    x = (3 * np.arange(along + 1) - along) / along
    radius = (0.25 + height**2) / (2 * height)
    on_arc = (x >= 0) & (x <= 1)
    floor = np.zeros_like(x)
    # The difference of nearly equal numbers where the arc is flat, written as a quotient.
    away = (x[on_arc] - 0.5) ** 2
    floor[on_arc] = height - away / (radius + np.sqrt(radius**2 - away))
    floor[[along // 3, 2 * along // 3]] = 0.0
    rise = geometric(1.0, first, up, what)[:, None]
    y = floor + rise * (1.0 - floor)
    return _channel(np.broadcast_to(x, y.shape), y, cells, quad_rows, what, ("wall", slice(None)))


def _checked_counts(what: str, *counts: tuple[str, object, int]) -> list[int]:
    """The numbers of cells along the two directions: name, value, least."""
    first, second = (whole_number(f"{what}: {name}", n, low, MOST, error=MeshError) for name, n, low in counts)
    if 4 * (first + 1) * (second + 1) > MOST:
        raise MeshError(f"{what}: {first} x {second} cells are too many to make on the spot; make fewer")
    return [first, second]


def _ring(z: np.ndarray, cells: str, quad_rows: int | None, what: str) -> Mesh:
    """The O-grid of complex places (rows, around), the wall first."""
    kind = planar_cells(what, cells)
    x = np.stack((z.real, z.imag), axis=2).reshape(-1, 2) + 0.0  # no negative zeros
    node = np.arange(z.size).reshape(z.shape)
    node = np.concatenate((node, node[:, :1]), axis=1)
    # Wound outwards first, so that areas are positive where angles grow along the rows.
    made = rows_of_cells(x, node[:, ::-1], kind, _quad_rows(quad_rows, len(node) - 1, what))
    return CellArrays(x, made, {"wall": edges(node[0]), "far": edges(node[-1])}).mesh()


def _channel(
    x: np.ndarray, y: np.ndarray, cells: str, quad_rows: int | None, what: str, *floor: tuple[str, slice]
) -> Mesh:
    """The mesh of a table of places (rows, columns), the floor first, whose parts have names and columns."""
    kind = planar_cells(what, cells)
    places = np.stack((x, y), axis=2).reshape(-1, 2)
    node = np.arange(x.size).reshape(x.shape)
    made = rows_of_cells(places, node, kind, _quad_rows(quad_rows, len(node) - 1, what))
    boundary = {"inlet": edges(node[:, 0]), "outlet": edges(node[:, -1]), "top": edges(node[-1])}
    return CellArrays(places, made, boundary | {name: edges(node[0, columns]) for name, columns in floor}).mesh()


def _quad_rows(given: int | None, rows: int, what: str) -> int:
    if given is None:
        return (rows + 1) // 2
    return whole_number(f"{what}: quad_rows", given, 0, MOST, error=MeshError)


def half_thickness(x: np.ndarray) -> np.ndarray:
    """Half the thickness of the closed NACA 0012 at x from 0 to 1."""
    a, b, c, d, e = _NACA
    return a * np.sqrt(x) + x * (b + x * (c + x * (d + x * e)))


@cache
def _section_map() -> AirfoilMap:
    slope = float(np.sum(_NACA * (0.5, 1.0, 2.0, 3.0, 4.0)))
    return airfoil_map(half_thickness, _NACA[0] ** 2 / 2, slope)


def _on_the_section(z: np.ndarray, around: int) -> np.ndarray:
    """Wall nodes moved onto the section, from which the map leaves them 1e-9 away; nose and tail are exact."""
    x = np.clip(z.real, 0.0, 1.0)
    x[0], x[around // 2] = 1.0, 0.0
    y = np.abs(half_thickness(x))
    y[0] = 0.0
    return x + 1j * np.where(np.arange(around) <= around // 2, y, -y)
