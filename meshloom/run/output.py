"""Files of a case that people look at: fields for ParaView, and pictures. What it runs on, mesh or grid, decides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from meshloom.case import Case, Chart, GridCase, Image, Picture
from meshloom.io.grids import suffix_of, write_grid
from meshloom.io.vtk import write_vtu


def write_fields(case: Case, stem: Path) -> Path:
    """Write the fields for ParaView; returns the file, which is ``stem`` with an ending."""
    if isinstance(case, GridCase):
        path = stem.with_suffix(suffix_of(case.grid))
        write_grid(path, case.grid, case.grid_fields())
    else:
        path = stem.with_suffix(".vtu")
        write_vtu(path, case.mesh, case.cell_fields(), case.node_fields(), points=case.node_positions())
    return path


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
        case.mesh.cell_nodes.indices if picture.polygons is None else picture.polygons,
        picture.values,
        label=picture.label,
        window=picture.window,
        history=curves,
        title=title,
        axes=picture.axes,
    )
