"""What a case gives to be drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from meshloom.mesh.lists import NodeLists

Corners = np.ndarray | NodeLists  # of the cells of a picture: points of each, (cells, corners) where all have as many


@dataclass(frozen=True)
class Picture:
    """A field to draw over the mesh: ``values`` (cells,).

    ``points`` (m, 2) and the corners ``polygons`` of its cells where not the mesh itself is drawn, but a cut.
    """

    values: np.ndarray
    label: str
    window: tuple[float, float, float, float]  # xmin, xmax, ymin, ymax
    axes: tuple[str, str] = ("x", "y")
    points: np.ndarray | None = None
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
