"""What there is to see of values on a set: which window of the plane, and how to paint it.

A field lives on cells, nodes or faces of a mesh, on the points of a grid, or on a set that knows no mesh. A part of a
set is drawn as the whole with nothing (NaN) elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from meshloom.errors import UserError, known_name
from meshloom.io.draw import maps
from meshloom.io.draw.colours import ColourScale, colour_scale
from meshloom.io.draw.curves import draw_curves
from meshloom.io.draw.maps import Window
from meshloom.io.draw.section import section
from meshloom.io.draw.surface import USUAL_VIEW, View, draw_surface, surface_window
from meshloom.mesh.connectivity import NodeLists
from meshloom.mesh.core import Set, Subset
from meshloom.mesh.grid import Grid
from meshloom.mesh.mesh import Mesh, mesh_of
from meshloom.records import dataclass

AXES = "xyz"
ColourOptions = Mapping[str, Any]  # what colour_scale takes
_GROUP_COLOURS = 10  # of matplotlib
_LEGEND_OUTSIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False}  # a legend


@dataclass(frozen=True)
class Look:
    """What a person asked for besides the field: ``cut`` (axis, place), ``surface`` (names of groups), ``view``,
    ``window``, whether vectors get ``arrows``, and ``how`` to colour."""

    cut: tuple[int, float | None] | None
    surface: tuple[str, ...] | None
    view: View | None
    window: Window | None
    arrows: bool
    how: ColourOptions


@dataclass(frozen=True)
class Scene:
    """A window of the plane and what paints it on axes; ``where`` it is, in words for a title."""

    window: Window | None  # None: axes find it
    names: tuple[str, str]
    paint: Callable[[Any], ColourScale | None]
    where: str = ""
    has_bar: bool = True
    is_framed: bool = True  # paint leaves frame and labels to whoever calls it


def whole_values(on: Set, values: np.ndarray) -> tuple[Set, np.ndarray]:
    """Values (n, ...) on a part of a set as values on the outermost set, NaN elsewhere; of a grid in its shape."""
    if not isinstance(on, Subset):
        return on, values
    outer = on.outermost
    members = on.members_of(outer)
    spread = np.full((outer.total, *values.shape[1:]), np.nan)
    spread[cast(Any, members).indices[:, 0]] = values
    if isinstance(outer, Grid):
        spread = outer.shown(spread.reshape(outer.total, -1)).reshape(*outer.shape, *values.shape[1:])
    return outer, spread


def scene_of(on: Set, values: np.ndarray, vectors: np.ndarray | None, label: str, look: Look) -> Scene:
    """How to draw ``values`` (n,), or (*shape,) on a grid, and with them the ``vectors`` (n, dim) that they are the
    lengths of; UserError where that cannot be."""
    outer, everywhere = whole_values(on, values)
    directions = None if vectors is None else whole_values(on, vectors)[1]
    if isinstance(outer, Grid):
        _refuse(look, f"{outer.name} is a grid", "surface", "view")
        return _of_grid(outer, everywhere, directions, label, look)
    mesh = mesh_of(outer)
    if mesh is None:
        _refuse(look, f"{outer.name} is no set of a mesh that is still there", "cut", "surface", "view")
        return _of_set(on, values, label, look)
    if mesh.dim == 2:
        _refuse(look, "the mesh is plane", "cut", "surface", "view")
        return _in_plane(mesh, outer, on, everywhere, directions, look)
    if outer is mesh.faces:
        raise UserError("plot: fields on the interior faces of a mesh in space cannot be drawn: they hide each other;"
                        " bring the values to cells, nodes or boundary faces")  # fmt: skip
    if look.surface is not None:
        _refuse(look, "a surface is asked for, too", "cut")
    if outer is mesh.boundary_faces or look.surface is not None:
        if outer is mesh.boundary_faces:
            _refuse(look, "boundary faces are a surface, which is not cut", "cut")
        return _of_surface(mesh, outer, everywhere, look)
    return _of_cut(mesh, outer, everywhere, directions, look)


# ----- grids and sets ---------------------------------------------------------------------------------------------
def _of_grid(grid: Grid, values: np.ndarray, vectors: np.ndarray | None, label: str, look: Look) -> Scene:
    if grid.rank == 1:
        _refuse(look, f"{grid.name} has one axis", "cut")
        return curve_scene(grid.coordinates[0], {label: values}, (AXES[0], label), look)
    axis, where, rest = None, "", list(range(grid.rank))
    if grid.rank == 3:
        axis, place = look.cut or (2, None)
        values, where = _grid_cut(grid, values, axis, place)
        vectors = None if vectors is None else _grid_cut(grid, vectors, axis, place)[0]
        rest.remove(axis)
    else:
        _refuse(look, f"{grid.name} is plane", "cut")
    x, y = (grid.coordinates[a] for a in rest)
    flow = None if vectors is None or not look.arrows else tuple(vectors[..., a] for a in rest)

    def paint(axes: Any) -> ColourScale | None:
        scale = maps.draw_grid(axes, x, y, values, **look.how)
        if flow is not None:
            still = np.isfinite(flow[0]) & np.isfinite(flow[1])
            maps.draw_streamlines(axes, x, y, ~still, *(np.where(still, one, 0.0) for one in flow))
        return scale

    return Scene(look.window or maps.grid_window(x, y), (AXES[rest[0]], AXES[rest[1]]), paint, where)


def _grid_cut(grid: Grid, values: np.ndarray, axis: int, place: float | None) -> tuple[np.ndarray, str]:
    """Values (*shape, ...) in a plane, linear between the points on both sides of it; and where it is."""
    x = grid.coordinates[axis]
    if place is None:
        middle = len(x) // 2
        return values.take(middle, axis=axis), f"at {AXES[axis]} = {x[middle]:.4g}, in the middle"
    end = x[0] + grid.extent[axis] if grid.periodic[axis] else x[-1]
    _check_place(axis, place, float(x[0]), float(end), f"grid {grid.name}")
    places = np.append(x, end) if grid.periodic[axis] else x
    second = min(max(int(np.searchsorted(places, place)), 1), len(places) - 1)
    first = max(second - 1, 0)
    share = 0.0 if second == first else (place - places[first]) / (places[second] - places[first])
    low, high = (values.take(k % len(x), axis=axis) for k in (first, second))
    return low + share * (high - low) if share else low, f"at {AXES[axis]} = {place:.4g}"


def curve_scene(x: np.ndarray, curves: Mapping[str, np.ndarray], names: tuple[str, str], look: Look) -> Scene:
    """Curves (n,) over x (n,)."""

    def paint(axes: Any) -> None:
        draw_curves(axes, x, curves)
        axes.set(xlabel=maps.plain(names[0]), ylabel=maps.plain(names[1]))
        if limits := look.how.get("limits"):
            axes.set_ylim(limits)
        if look.window:
            axes.set(xlim=look.window[:2], ylim=look.window[2:])

    return Scene(None, names, paint, has_bar=False, is_framed=False)


def _of_set(on: Set, values: np.ndarray, label: str, look: Look) -> Scene:
    """Of a set that knows no mesh: at its points in the plane, else over its numbers."""
    points = on.points
    if points is None:
        return curve_scene(np.arange(len(values)), {label: values}, (f"number of {on.name}", label), look)
    if points.ndim != 2 or points.shape[1] != 2:
        raise UserError(f"plot: {on.name} belongs to no mesh that is still there, and its points are not in the plane;"
                        " keep the mesh, or give the set points (n, 2)")  # fmt: skip
    window = look.window or _window(points)
    return Scene(window, ("x", "y"), lambda axes: maps.draw_dots(axes, points, values, **look.how))


# ----- meshes in the plane ----------------------------------------------------------------------------------------
def _in_plane(mesh: Mesh, outer: Set, on: Set, values: np.ndarray, vectors: np.ndarray | None, look: Look) -> Scene:
    x = mesh.coordinates.numpy()
    on_faces = outer is not mesh.cells and outer is not mesh.nodes
    window = look.window or (maps.with_margin(_window(x)) if on_faces else _window(x))
    paint: Callable[[Any], ColourScale | None]
    places = x if outer is mesh.nodes else outer.points
    if outer is mesh.cells:
        places = mesh.cell_centroids
        paint = partial(maps.draw_cells, points=x, cells=mesh.lists.cells.nodes, values=values, window=window)
    elif outer is mesh.nodes and on is outer:
        paint = partial(maps.draw_nodes, points=x, cells=mesh.lists.cells.nodes, values=values)
    elif outer is mesh.nodes:
        paint = partial(maps.draw_dots, points=x, values=values)
    else:
        rows = mesh.lists.faces if outer is mesh.faces else mesh.lists.boundary_faces
        ends = x[np.asarray(rows.rows)] if len(rows) else np.zeros((0, 2, 2))
        paint = partial(maps.draw_edges, ends=ends, values=values)
    rim = x[np.asarray(mesh.lists.boundary_faces.rows)] if len(mesh.lists.boundary_faces) else np.zeros((0, 2, 2))

    def painted(axes: Any) -> ColourScale | None:
        if outer is not mesh.boundary_faces or on is not outer:
            maps.draw_outline(axes, rim)
        scale = paint(axes, **look.how)
        if vectors is not None and look.arrows and places is not None:
            maps.draw_arrows(axes, places, vectors, window)
        return scale

    return Scene(window, ("x", "y"), painted)


def mesh_scene(mesh: Mesh, look: Look) -> Scene:
    """The mesh itself: its edges, and the groups of its boundary in colours; in space the boundary alone."""
    _refuse(look, "it is fields that are cut", "cut")
    if mesh.dim == 3:
        return _groups_in_space(mesh, look)
    _refuse(look, "the mesh is plane", "surface", "view")
    x = mesh.coordinates.numpy()

    def paint(axes: Any) -> None:
        if len(mesh.lists.faces):
            maps.draw_outline(axes, x[np.asarray(mesh.lists.faces.rows)], width=0.4)
        for number, name in enumerate(mesh.groups):
            faces = mesh.group(name)
            if len(faces):
                maps.draw_outline(axes, x[np.asarray(mesh.lists.boundary_faces.rows)[faces]], 2.0, f"C{number % 10}",
                                  name)  # fmt: skip
        if any(len(mesh.group(name)) for name in mesh.groups):  # a periodic mesh has none
            axes.legend(**_LEGEND_OUTSIDE)

    return Scene(look.window or maps.with_margin(_window(x)), ("x", "y"), paint, has_bar=False)


def _groups_in_space(mesh: Mesh, look: Look) -> Scene:
    """Boundary faces with their edges, each in the colour of its group."""
    place = {number: k for k, number in enumerate(mesh.groups.values())}
    colour = np.array([place[int(number)] % _GROUP_COLOURS for number in mesh.boundary_group.numpy()], np.float64)
    scene = _of_surface(mesh, mesh.boundary_faces, colour, replace(look, how={"limits": (-0.5, 9.5), "map": "tab10"}),
                        edges=True)  # fmt: skip
    names = [name for name in mesh.groups if len(mesh.group(name)) and (not look.surface or name in look.surface)]

    def paint(axes: Any) -> None:
        from matplotlib.patches import Patch

        scene.paint(axes)
        patches = [
            Patch(color=f"C{place[mesh.groups[name]] % _GROUP_COLOURS}", label=maps.plain(name)) for name in names
        ]
        axes.legend(handles=patches, **_LEGEND_OUTSIDE)

    return replace(scene, paint=paint, has_bar=False)


# ----- meshes in space --------------------------------------------------------------------------------------------
def _of_cut(mesh: Mesh, outer: Set, values: np.ndarray, vectors: np.ndarray | None, look: Look) -> Scene:
    _refuse(look, "a cut is seen along its axis, a surface (surface=True) from anywhere", "view")
    x = mesh.coordinates.numpy()
    axis, place = look.cut or (2, None)
    low, high = float(x[:, axis].min()), float(x[:, axis].max())
    where = "" if place is not None else ", in the middle"
    at = 0.5 * (low + high) if place is None else place
    _check_place(axis, at, low, high, "the mesh")
    found = section(x, mesh.lists.cells, axis, at)
    rest = [a for a in range(3) if a != axis]
    window = look.window or _window(found.points if len(found.points) else np.delete(x, axis, axis=1))
    on_nodes = outer is mesh.nodes

    def paint(axes: Any) -> ColourScale | None:
        if on_nodes:
            scale = maps.draw_nodes(axes, found.points, found.polygons, found.at_points(values), **look.how)
        else:
            scale = maps.draw_cells(axes, found.points, found.polygons, values[found.cells], window, **look.how)
        if vectors is not None and look.arrows:
            in_plane = vectors[..., rest]
            places = found.points if on_nodes else np.delete(mesh.cell_centroids[found.cells], axis, axis=1)
            arrows = found.at_points(in_plane) if on_nodes else in_plane[found.cells]
            maps.draw_arrows(axes, places, arrows, window)
        return scale

    return Scene(window, (AXES[rest[0]], AXES[rest[1]]), paint, f"at {AXES[axis]} = {at:.4g}{where}")


def _of_surface(mesh: Mesh, outer: Set, values: np.ndarray, look: Look, *, edges: bool = False) -> Scene:
    """Boundary faces, or what cells or nodes have next to them."""
    for name in look.surface or ():
        known_name("plot: surface: boundary group", name, mesh.groups)
    lists = mesh.lists.boundary_faces
    chosen = np.arange(len(lists))
    if look.surface:
        chosen = np.sort(np.concatenate([mesh.group(name) for name in look.surface]))
    if outer is mesh.cells:
        here = values[mesh.boundary_cells.indices[chosen, 0]]
    elif outer is mesh.nodes:
        here = lists.taken(chosen).measured(lambda rows: values[rows].mean(axis=1))
    else:
        here = values[chosen]
    chosen = chosen[np.isfinite(here)]
    x, polygons, view = mesh.coordinates.numpy(), lists.taken(chosen), look.view or USUAL_VIEW
    return surface_scene(x, polygons, here[np.isfinite(here)], view, look.how, edges=edges)


def surface_scene(
    points: np.ndarray, polygons: NodeLists, values: np.ndarray, view: View, how: ColourOptions, *, edges: bool = False
) -> Scene:
    """``values`` (n,) on ``polygons`` over ``points`` (m, 3), with ``edges`` around each or without."""
    used, numbers = np.unique(polygons.entries, return_inverse=True)
    own, seen = NodeLists(polygons.starts, numbers.reshape(-1)), points[used]

    def paint(axes: Any) -> ColourScale | None:
        if not len(values):
            axes.set_axis_off()
            return None
        scale = colour_scale(values, **how)
        draw_surface(axes, seen, own, values, scale, view, edges=edges)
        return scale

    window = surface_window(seen, view) if len(seen) else (0.0, 1.0, 0.0, 1.0)
    return Scene(window, ("", ""), paint, is_framed=False)


# ----- what a person gives ----------------------------------------------------------------------------------------
def _window(points: np.ndarray) -> Window:
    """What holds all points (n, 2); also where they lie on a line along an axis."""
    low, high = points.min(axis=0), points.max(axis=0)
    flat = high == low
    (left, bottom), (right, top) = np.where(flat, low - 0.5, low), np.where(flat, high + 0.5, high)
    return float(left), float(right), float(bottom), float(top)


def _check_place(axis: int, place: float, low: float, high: float, what: str) -> None:
    if not low <= place <= high:
        raise UserError(f"plot: cut at {AXES[axis]} = {place:g}: {what} reaches from {low:g} to {high:g} along"
                        f" {AXES[axis]}")  # fmt: skip


def _refuse(look: Look, why: str, *names: str) -> None:
    """UserError where something was asked for that has no meaning here."""
    for name in names:
        if getattr(look, name) is not None:
            raise UserError(f"plot: {name}= has no meaning here: {why}; leave it out")
