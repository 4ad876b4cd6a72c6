"""Maps in the plane on the axes of a figure: flat cells, smooth nodes, grids, edges, dots; streamlines and arrows."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.io.draw.canvas import plain, unit_of
from meshloom.io.draw.colours import ColourScale, colour_scale
from meshloom.mesh.connectivity import NodeLists
from meshloom.native.algorithms import distinct

Window = tuple[float, float, float, float]  # xmin, xmax, ymin, ymax
HEIGHT = 4.9  # inches, of every figure
_ROUND_A_MAP = 1.6  # inches to the left and right of a map: labels and colour bar
_SHARE_OF_SQUARE = 0.464  # of the figure's width, for a square map and its colour bar
_THINNEST = 8.0  # a window longer than this many times its width is stretched: a line would show nothing
_MOST_EVEN = 200  # places along an axis that streamlines are drawn from
_ARROWS = 20  # along the longer side of a window
_EDGE = 2.5  # points: the width of an edge that has a value
_NOWHERE = "silver"  # is seen where a grid has no value


def is_thin(window: Window) -> bool:
    """Whether equal scales of both axes would leave hardly anything of one."""
    xmin, xmax, ymin, ymax = window
    return not 1.0 / _THINNEST < (xmax - xmin) / (ymax - ymin) < _THINNEST


def map_share(window: Window) -> float:
    """The part of the width that a map of this window, with its colour bar, fills at full height."""
    xmin, xmax, ymin, ymax = window
    return min(max(_SHARE_OF_SQUARE * (xmax - xmin) / (ymax - ymin), 0.3), 0.65)


def width_alone(window: Window) -> float:
    """Inches that a map of this window takes with its colour bar and labels at full height."""
    xmin, xmax, ymin, ymax = window
    return min(max(HEIGHT * (xmax - xmin) / (ymax - ymin) + _ROUND_A_MAP, 5.0), 12.0)


def frame(axes: Any, window: Window, names: tuple[str, str]) -> None:
    """What part of the plane is seen, and what its axes are called."""
    axes.set(xlim=window[:2], ylim=window[2:], xlabel=plain(names[0]), ylabel=plain(names[1]))
    axes.set_aspect("auto" if is_thin(window) else "equal")


def colour_bar(figure: Any, axes: Any, scale: ColourScale | None, label: str) -> None:
    """The scale next to the axes; None: nothing has a value, which is said in their middle."""
    if scale is None:
        axes.text(0.5, 0.5, f"{plain(label)}: no value anywhere", ha="center", va="center", transform=axes.transAxes)
        return
    figure.colorbar(
        scale.mappable(), ax=axes, label=plain(label), extend=scale.extend, fraction=0.05, pad=0.02
    ).ax.ticklabel_format(useOffset=False)


def cells_seen(
    points: np.ndarray, cells: np.ndarray | NodeLists, values: np.ndarray, window: Window
) -> tuple[list[np.ndarray], np.ndarray]:
    """Corners (n, k, 2) for each number of corners, and the values of all of them in that order; cells outside the
    window and those without a value are left out."""
    xmin, xmax, ymin, ymax = window
    drawn, kept = [], []
    for part in (cells if isinstance(cells, NodeLists) else NodeLists.of_rows(cells)).sizes:
        corners, here = points[part.nodes], values[part.numbers]
        low, high = corners.min(axis=1), corners.max(axis=1)
        seen = (high[:, 0] >= xmin) & (low[:, 0] <= xmax) & (high[:, 1] >= ymin) & (low[:, 1] <= ymax)
        seen &= np.isfinite(here)
        drawn.append(corners[seen])
        kept.append(here[seen])
    return drawn, np.concatenate(kept) if kept else np.zeros(0)


def draw_cells(
    axes: Any,
    points: np.ndarray,
    cells: np.ndarray | NodeLists,
    values: np.ndarray,
    window: Window,
    **how: Any,
) -> ColourScale | None:
    """``values`` (n,) on flat-coloured cells of ``points`` (m, 2); ``how`` is that of ``colour_scale``. The scale, or
    None where no cell in the window has a value."""
    from matplotlib.collections import PolyCollection

    drawn, shown = cells_seen(points, cells, values, window)
    if not len(shown):
        return None
    scale = colour_scale(shown, **how)
    polygons: Any = drawn[0] if len(drawn) == 1 else [corners for part in drawn for corners in part]
    # Anti-aliasing would blend the background into both sides of every edge: hairlines all over the mesh.
    axes.add_collection(PolyCollection(polygons, array=shown, cmap=scale.map, norm=scale.norm(), edgecolors="none",
                                       linewidths=0.0, antialiased=False))  # fmt: skip
    return scale


def draw_nodes(
    axes: Any, points: np.ndarray, cells: np.ndarray | NodeLists, values: np.ndarray, **how: Any
) -> ColourScale | None:
    """``values`` (m,) at ``points`` (m, 2), linear between them over the triangles of ``cells``; a triangle with a node
    that has no value is left out."""
    triangles = fans(cells if isinstance(cells, NodeLists) else NodeLists.of_rows(cells))
    triangles = triangles[np.isfinite(values[triangles]).all(axis=1)]
    if not len(triangles):
        return None
    scale = colour_scale(values[distinct(triangles)], **how)
    axes.tripcolor(points[:, 0], points[:, 1], triangles, np.nan_to_num(values), shading="gouraud", cmap=scale.map,
                   norm=scale.norm(), rasterized=True)  # fmt: skip
    return scale


def fans(cells: NodeLists) -> np.ndarray:
    """The triangles (n, 3) that cells of any number of corners fall into, all around the first corner of each."""
    found = [part.nodes[:, (0, k, k + 1)] for part in cells.sizes for k in range(1, part.nodes.shape[1] - 1)]
    return np.concatenate(found) if found else np.zeros((0, 3), np.int64)


def draw_grid(axes: Any, x: np.ndarray, y: np.ndarray, values: np.ndarray, **how: Any) -> ColourScale | None:
    """``values`` (nx, ny) at the points x (nx,), y (ny,) of a grid; grey where there are none."""
    axes.set_facecolor(_NOWHERE)
    if not np.isfinite(values).any():
        return None
    scale = colour_scale(values, **how)
    axes.pcolormesh(edges(x), edges(y), values.T, cmap=scale.map, norm=scale.norm(), shading="flat", rasterized=True)
    return scale


def grid_window(x: np.ndarray, y: np.ndarray) -> Window:
    """That of the cells around the points of a grid."""
    (left, *_, right), (low, *_, high) = edges(x), edges(y)
    return float(left), float(right), float(low), float(high)


def draw_edges(axes: Any, ends: Any, values: np.ndarray, **how: Any) -> ColourScale | None:
    """``values`` (n,) along edges (n, 2, 2) from point to point."""
    from matplotlib.collections import LineCollection

    known = np.isfinite(values)
    if not known.any():
        return None
    scale = colour_scale(values, **how)
    axes.add_collection(LineCollection(ends[known], array=values[known], cmap=scale.map, norm=scale.norm(),
                                       linewidths=_EDGE, capstyle="round", clip_on=False, zorder=3))  # fmt: skip
    return scale


def draw_outline(axes: Any, ends: Any, width: float = 0.8, color: Any = "0.4", label: str = "") -> None:
    """Edges (n, 2, 2) in one colour."""
    from matplotlib.collections import LineCollection

    axes.add_collection(LineCollection(ends, colors=[color], linewidths=width, label=plain(label) or None))


def with_margin(window: Window, share: float = 0.02) -> Window:
    """A little more than a window, so that edges at its rim are seen."""
    xmin, xmax, ymin, ymax = window
    more = share * max(xmax - xmin, ymax - ymin)
    return xmin - more, xmax + more, ymin - more, ymax + more


def draw_dots(axes: Any, points: np.ndarray, values: np.ndarray, **how: Any) -> ColourScale | None:
    """``values`` (n,) at ``points`` (n, 2) that no cells join."""
    known = np.isfinite(values)
    if not known.any():
        return None
    scale = colour_scale(values, **how)
    axes.scatter(*points[known].T, c=values[known], cmap=scale.map, norm=scale.norm(), s=12.0)
    return scale


def draw_arrows(axes: Any, points: np.ndarray, vectors: np.ndarray, window: Window) -> None:
    """Some of the ``vectors`` (n, 2) at their ``points`` (n, 2), evenly over the window; as long as they are great."""
    from scipy.spatial import cKDTree

    xmin, xmax, ymin, ymax = window
    inside = (points >= (xmin, ymin)).all(axis=1) & (points <= (xmax, ymax)).all(axis=1)
    inside &= np.isfinite(vectors).all(axis=1)
    here, there = points[inside], vectors[inside]
    longest = float(np.linalg.norm(there, axis=1).max(initial=0.0))
    if longest == 0.0:
        return
    spacing = np.sqrt((xmax - xmin) * (ymax - ymin) / len(here))  # of the points themselves, about
    apart = max(max(xmax - xmin, ymax - ymin) / _ARROWS, 1.2 * spacing)
    places = [np.arange(low + 0.5 * apart, high, apart) for low, high in ((xmin, xmax), (ymin, ymax))]
    lattice = np.stack([one.ravel() for one in np.meshgrid(*places)], axis=1)
    near, chosen = cKDTree(here).query(lattice)
    chosen = distinct(np.asarray(chosen)[near < 0.75 * apart])  # beyond that there is a hole
    axes.quiver(*here[chosen].T, *there[chosen].T, color="white", edgecolor="black", linewidth=0.4, angles="xy",
                scale_units="xy", scale=longest / (1.4 * apart), width=0.003)  # fmt: skip


def draw_streamlines(
    axes: Any, x: np.ndarray, y: np.ndarray, solid: np.ndarray, along_x: np.ndarray, along_y: np.ndarray
) -> None:
    """Of velocities (nx, ny); matplotlib wants them at even places. Where nothing flows, and in cells that are
    ``solid`` (nx, ny), there are none."""
    even = [np.linspace(one[0], one[-1], min(max(len(one), 2), _MOST_EVEN)) for one in (x, y)]
    unit = unit_of(along_x, along_y)
    parts = [_at_places(x, y, one / unit, *even) for one in (along_x, along_y)]
    if min(len(x), len(y)) > 1 and np.isfinite(parts).all() and np.any(parts):
        cells = (np.searchsorted(edges(one)[1:-1], new) for one, new in zip((x, y), even, strict=True))
        hidden = solid[np.ix_(*cells)]
        shown = (np.ma.masked_array(part, hidden).T for part in parts)
        axes.streamplot(*even, *shown, color="white", linewidth=0.6, arrowsize=0.6, density=1.2)


def edges(points: np.ndarray) -> np.ndarray:
    """Of the cells around points (n,): (n + 1,), halfway between neighbours, and at both ends as far outside."""
    if len(points) == 1:
        return np.array([points[0] - 0.5, points[0] + 0.5])
    between = 0.5 * (points[1:] + points[:-1])
    return np.concatenate([[2.0 * points[0] - between[0]], between, [2.0 * points[-1] - between[-1]]])


def _at_places(x: np.ndarray, y: np.ndarray, values: np.ndarray, new_x: np.ndarray, new_y: np.ndarray) -> np.ndarray:
    """Values (nx, ny), linear between points, at other places."""
    rows = np.stack([np.interp(new_y, y, row) for row in values])
    return np.stack([np.interp(new_x, x, column) for column in rows.T], axis=1)
