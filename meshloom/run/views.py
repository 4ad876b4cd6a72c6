"""What a case gives to be drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from meshloom.errors import MeshError, known_name
from meshloom.io.rank_rows import AnyRows, taken
from meshloom.mesh.connectivity import NodeLists
from meshloom.mesh.core import Field
from meshloom.records import dataclass
from meshloom.run.own_rows import rows_of

if TYPE_CHECKING:
    from meshloom.mesh.mesh import Mesh

_MOST_ALONG = 129  # points of an axis that cut planes are drawn with: more are smaller than a pixel or two
Corners = np.ndarray | NodeLists  # of the cells of a picture: points of each, (cells, corners) where all have as many


@dataclass(frozen=True)
class Picture:
    """A field to draw over the mesh: ``values`` (cells,), or those of this rank's own cells (``mesh.cells.mine``).

    ``points`` (m, 2) and the corners ``polygons`` of its cells where not the mesh itself is drawn, but a cut; values
    are then those of all of them, which ``rows_at`` gives. The root alone has what it draws.
    """

    values: Field | AnyRows
    label: str
    window: tuple[float, float, float, float] | None = None  # xmin, xmax, ymin, ymax; None: all of it
    axes: tuple[str, str] = ("x", "y")
    points: AnyRows | None = None
    polygons: Corners | None = None
    curves: tuple[str, ...] | None = None  # the monitors to draw beside it; None: all


@dataclass(frozen=True)
class Streamlines:
    """The curves along which a flow goes: velocities (nx, ny) along x and y at the points of an ``Image``."""

    along_x: np.ndarray
    along_y: np.ndarray


@dataclass(frozen=True)
class Image:
    """Values (nx, ny) at the points x (nx,), y (ny,) of a plane grid, or of a plane of a grid in space."""

    x: np.ndarray
    y: np.ndarray
    values: np.ndarray
    label: str
    axes: tuple[str, str] = ("x", "y")
    curves: tuple[str, ...] | None = None  # the monitors to draw beside it; None: all
    flow: Streamlines | None = None  # drawn over it


@dataclass(frozen=True)
class SpacePicture:
    """A surface in space, shaded: ``values`` (n,) on ``polygons`` over ``points`` (m, 3), seen from ``view``, a
    direction towards who looks."""

    values: AnyRows
    label: str
    points: AnyRows
    polygons: Corners
    view: tuple[float, float, float] = (1.0, -1.6, 0.9)
    curves: tuple[str, ...] | None = None  # the monitors to draw beside it; None: all


def on_surface(
    mesh: Mesh,
    values: Field | AnyRows,
    label: str,
    groups: Sequence[str] = (),
    *,
    view: tuple[float, float, float] = (1.0, -1.6, 0.9),
    curves: tuple[str, ...] | None = None,
) -> SpacePicture:
    """The boundary of a mesh in space with the ``values`` of the cells behind it, (cells,), or of this rank's own: some
    groups, or all. All ranks must ask."""
    if mesh.dim != 3:
        raise MeshError(f"on_surface: the mesh has {mesh.dim} dimensions; a Picture draws a plane one")
    for name in groups:
        known_name("boundary group", name, mesh.groups, error=MeshError)
    found = rows_of(mesh.cells, values)
    if found.shape != (len(mesh.cells),):
        raise MeshError(f"on_surface: values of shape {found.shape}, expected ({len(mesh.cells)},), one for each cell")
    chosen = np.isin(mesh.boundary_group.numpy(), [mesh.groups[name] for name in groups or mesh.groups])
    if not chosen.any():
        raise MeshError(f"on_surface: there are no boundary faces{' in ' + ', '.join(groups) if groups else ''}")
    polygons, cells = mesh.lists.boundary_faces.taken(np.flatnonzero(chosen)), mesh.boundary_cells.indices[chosen, 0]
    return SpacePicture(taken(found, cells), label, mesh.coordinates.numpy(), polygons, view, curves)


def cut_planes(
    coordinates: Sequence[np.ndarray], values: np.ndarray, label: str, curves: tuple[str, ...] | None = ()
) -> SpacePicture:
    """The three planes through the middle of a grid in space that has ``values`` (nx, ny, nz)."""
    kept = [np.linspace(0, len(x) - 1, min(len(x), _MOST_ALONG)).round().astype(int) for x in coordinates]
    places, faces, found = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for axis in range(3):
        through = [rows if a != axis else rows[len(rows) // 2, None] for a, rows in enumerate(kept)]
        x = np.meshgrid(*(coordinates[a][rows] for a, rows in enumerate(through)), indexing="ij")
        numbers = np.arange(x[0].size).reshape([len(rows) for a, rows in enumerate(through) if a != axis])
        rows = np.stack((numbers[:-1, :-1], numbers[1:, :-1], numbers[1:, 1:], numbers[:-1, 1:]), axis=-1).reshape(
            -1, 4
        )
        found.append(values[np.ix_(*through)].ravel()[rows].mean(axis=1))
        faces.append(rows + sum(len(one) for one in places))
        places.append(np.stack([one.ravel() for one in x], axis=1))
    return SpacePicture(np.concatenate(found), label, np.concatenate(places), np.concatenate(faces), curves=curves)


@dataclass(frozen=True)
class Chart:
    """Curves over one axis, such as what gauges saw: a CSV file and a drawing, both ``chart_<name>``."""

    name: str
    x: np.ndarray  # (n,)
    curves: Mapping[str, np.ndarray]  # (n,) each; NaN where there is no value
    x_label: str
    y_label: str
    dots: tuple[str, ...] = ()  # the curves to draw as dots: values known at some places
    decades: bool = False  # x, all above 0, is drawn on a logarithmic scale
    downwards: bool = False  # the axis of the curves grows downwards, as is the custom for coefficients of pressure
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)  # (n,) each: in the CSV file beside x, not drawn
