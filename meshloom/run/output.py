"""Files of a case that people look at: fields for ParaView, and pictures. What it runs on, mesh or grid, decides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from meshloom.case import Case, Chart, GridCase, Image, Picture
from meshloom.io.grids import suffix_of, write_grid
from meshloom.io.vtk import write_vtu
from meshloom.mesh.core import Field


def write_fields(case: Case, stem: Path) -> Path:
    """Write the fields for ParaView; returns the file, which is ``stem`` with an ending."""
    if isinstance(case, GridCase):
        path = stem.with_suffix(suffix_of(case.grid))
        fields = {
            name: case.grid.shaped(one) if isinstance(one, Field) else one for name, one in case.grid_fields().items()
        }
        write_grid(path, case.grid, in_space(fields, 2) if case.grid.rank == 2 else fields)
    else:
        path = stem.with_suffix(".vtu")
        points = case.node_positions()
        cells, nodes = (
            in_space(one, 1) if points.shape[1] == 2 else one for one in (case.cell_fields(), case.node_fields())
        )
        write_vtu(path, case.mesh, cells, nodes, points=points)
    return path


def in_space(fields: Mapping[str, Field | np.ndarray], axes: int) -> dict[str, np.ndarray]:
    """Vectors of the plane, (..., 2) behind so many axes, with a third component of 0, and all else as it is: ParaView
    draws arrows and streamlines of arrays with three components alone."""
    flat = {name: one.numpy() if isinstance(one, Field) else np.asarray(one) for name, one in fields.items()}
    return {name: np.pad(one, [(0, 0)] * axes + [(0, 1)]) if one.shape[axes:] == (2,) else one
            for name, one in flat.items()}  # fmt: skip


def draw(
    case: Case, path: Path, picture: Picture | Image | Chart, title: str, history: Mapping[str, np.ndarray]
) -> None:
    """A PNG, with monitors beside it where a ``history`` of them is given."""
    from meshloom.io.plots import save_curves, save_image, save_picture

    if isinstance(picture, Chart):
        labels = (picture.x_label, picture.y_label)
        return save_curves(
            path, picture.x, picture.curves, labels=labels, title=title, dots=picture.dots, decades=picture.decades
        )
    names = (case.monitors if picture.curves is None else picture.curves) if history else ()
    curves = {name: history[name] for name in names}
    if isinstance(picture, Image):
        flow = None if picture.flow is None else (picture.flow.along_x, picture.flow.along_y)
        return save_image(
            path, picture.x, picture.y, picture.values, label=picture.label, history=curves, title=title,
            axes=picture.axes, flow=flow,
        )  # fmt: skip
    return save_picture(
        path,
        case.node_positions() if picture.points is None else picture.points,
        case.mesh.lists.cells.nodes if picture.polygons is None else picture.polygons,
        picture.values,
        label=picture.label,
        window=picture.window,
        history=curves,
        title=title,
        axes=picture.axes,
    )
