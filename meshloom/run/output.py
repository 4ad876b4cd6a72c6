"""Files of a run that people look at: fields for ParaView, and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from meshloom.errors import MeshError, shown
from meshloom.io.field_rows import as_rows
from meshloom.io.grids import suffix_of, write_grid
from meshloom.io.pieces import write_grid_pieces, write_mesh_pieces
from meshloom.io.rank_rows import AnyRows, RankRows, row_by_row
from meshloom.io.vtk import write_surface, write_vtu
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid
from meshloom.mesh.mesh import Mesh
from meshloom.process.ranks import on_root
from meshloom.run.own_rows import root_rows
from meshloom.run.task import RunTask
from meshloom.run.views import Chart, Image, Picture, SpacePicture


def write_on_grid(stem: Path, grid: Grid, fields: Mapping[str, Field | np.ndarray], *, pieces: bool = False) -> Path:
    """Values at the points of a grid; returns the file, which is ``stem`` with an ending. ``pieces``: each rank writes
    its own, and the file lists them."""
    found = in_space(fields, 2) if grid.rank == 2 else fields
    if pieces:
        return write_grid_pieces(stem, grid, found)
    path = stem.with_suffix(suffix_of(grid))
    write_grid(path, grid, found)
    return path


def write_on_mesh(
    stem: Path,
    mesh: Mesh,
    cell_fields: Mapping[str, Field | AnyRows],
    node_fields: Mapping[str, Field | AnyRows],
    points: AnyRows | None = None,
    *,
    groups: tuple[str, ...] | None = None,
    pieces: bool = False,
) -> Path:
    """The same for values on cells and nodes; ``points`` (nodes, dim): where these are now, if not where they were.
    ``groups``: the faces of these groups of the boundary alone, with the values of their cells and nodes."""
    path = stem.with_suffix(".vtu")
    cells, nodes = (in_space(one, 1) if mesh.dim == 2 else one for one in (cell_fields, node_fields))
    if pieces:
        return write_mesh_pieces(stem, mesh, cells, nodes, points)
    if groups is None:
        write_vtu(path, mesh, cells, nodes, points=points)
    else:
        write_surface(path, mesh, groups, cells, nodes, points=points)
    return path


def check_sizes(fields: Mapping[str, Field | AnyRows], shape: tuple[int, ...], why: str) -> None:
    """ValueError or TypeError unless every field has a name, and a number, or several, for each place of ``shape``."""
    for name, values in fields.items():
        if not isinstance(name, str):
            raise TypeError(f"a field is called {shown(name)} where a text is right")
        found = values if isinstance(values, Field | RankRows) else np.asarray(values)
        if found.shape[: len(shape)] != shape or found.dtype.kind not in "biuf":
            raise ValueError(f"{shown(name)} is an array of shape {found.shape} and type {found.dtype} where {shape} is"
                             f" right, {why}, with a further axis for components")  # fmt: skip


def in_space(fields: Mapping[str, Field | AnyRows], axes: int) -> dict[str, AnyRows]:
    """Vectors of the plane, (..., 2) behind so many axes, with a third component of 0, and all else as it is: ParaView
    draws arrows and streamlines of arrays with three components alone."""

    def padded(rows: AnyRows, axes: int) -> AnyRows:
        if rows.shape[axes:] != (2,):
            return rows
        return row_by_row(rows, lambda values: np.pad(values, [(0, 0)] * axes + [(0, 1)]))

    found = {name: as_rows(one) for name, one in fields.items()}
    return {name: padded(one, 1 if isinstance(one, RankRows) else axes) for name, one in found.items()}


def draw(
    task: RunTask,
    path: Path,
    picture: Picture | Image | SpacePicture | Chart,
    title: str,
    history: Mapping[str, np.ndarray],
) -> None:
    """A PNG, with monitors next to it where a ``history`` of them is given."""
    from meshloom.io.plots import save_curves, save_image, save_picture, save_surface

    if isinstance(picture, Chart):
        labels = (picture.x_label, picture.y_label)
        return save_curves(
            path, picture.x, picture.curves, labels=labels, title=title, dots=picture.dots, decades=picture.decades,
            downwards=picture.downwards,
        )  # fmt: skip
    names = (task.monitors if picture.curves is None else picture.curves) if history else ()
    curves = {name: history[name] for name in names}
    if isinstance(picture, Image):
        flow = None if picture.flow is None else (picture.flow.along_x, picture.flow.along_y)
        return save_image(
            path, picture.x, picture.y, np.asarray(picture.values), label=picture.label, history=curves, title=title,
            axes=picture.axes, flow=flow,
        )  # fmt: skip
    if isinstance(picture, SpacePicture):
        return save_surface(
            path, root_rows(picture.points), picture.polygons, root_rows(as_rows(picture.values)),
            label=picture.label, view=picture.view,
            history=curves, title=title,
        )  # fmt: skip
    points, polygons = picture.points, picture.polygons
    if points is None or polygons is None:
        usual = task.drawn_over()
        if usual is None:
            raise MeshError("there is no mesh to draw a Picture over: give its points and polygons, or an Image")
        points, polygons = (usual[0] if points is None else points), (usual[1] if polygons is None else polygons)
    places = root_rows(points)
    return save_picture(
        path,
        places,
        polygons,
        root_rows(drawn_values(task, picture)),
        label=picture.label,
        window=on_root(lambda: _extent(places)) if picture.window is None else picture.window,
        history=curves,
        title=title,
        axes=picture.axes,
    )


def drawn_values(task: RunTask, picture: Picture | SpacePicture) -> AnyRows:
    """Those of all polygons; of several ranks each may have its own. All must ask."""
    of_mesh = isinstance(picture, Picture) and picture.polygons is None
    return task.drawn_rows(picture.values) if of_mesh else as_rows(picture.values)


def _extent(points: np.ndarray) -> tuple[float, float, float, float]:
    """xmin, xmax, ymin and ymax of points."""
    (xmin, ymin), (xmax, ymax) = points[:, :2].min(axis=0), points[:, :2].max(axis=0)
    return float(xmin), float(xmax), float(ymin), float(ymax)
