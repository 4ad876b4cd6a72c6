"""Pictures with matplotlib: a field over the cells of a plane mesh, next to the history of the monitors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import one_line
from meshloom.io.draw.canvas import in_units, new_figure, plain, save_figure, unit_of, unread
from meshloom.io.draw.colours import ColourScale
from meshloom.io.draw.curves import draw_curves
from meshloom.io.draw.maps import (
    HEIGHT,
    Window,
    colour_bar,
    draw_cells,
    draw_grid,
    draw_streamlines,
    frame,
    grid_window,
    map_share,
    width_alone,
)
from meshloom.io.draw.scenes import surface_scene
from meshloom.io.draw.surface import View
from meshloom.mesh.connectivity import NodeLists
from meshloom.process.ranks import by_root

_A_GOOD_PART, _FLAT = 0.25, 0.1  # of the iterations, below such a part of the highest value: see _needs_decades
_MOST_NAMES, _LONGEST_NAMES = 40, 40  # on an axis of tiles, and letters of all before they are turned
_MOST_NUMBERS = 60  # tiles that say what they are worth
_TAIL = 1.0  # percent of the cells at either end whose values are beyond the colour scale


@by_root
def save_picture(
    path: Path,
    points: np.ndarray,
    cells: np.ndarray | NodeLists,
    values: np.ndarray,
    *,
    label: str,
    window: Window,
    history: dict[str, np.ndarray],
    title: str,
    axes: tuple[str, str] = ("x", "y"),
) -> None:
    """A PNG: ``values`` (n,) on ``cells`` (n, corners) of ``points`` (m, 2) within ``window``, and the monitors. Cells
    of several kinds come as the lists of their corners.

    ``history`` maps a monitor's name to its value after each iteration; without any the map stands alone. UserError
    where matplotlib is missing.
    """
    unit = unit_of(values)
    paint = partial(draw_cells, points=points, cells=cells, values=values / unit, window=window, tail=_TAIL)
    _save_map(path, window, paint, in_units(label, unit), history, title, axes)


@by_root
def save_image(
    path: Path,
    x: np.ndarray,
    y: np.ndarray,
    values: np.ndarray,
    *,
    label: str,
    history: dict[str, np.ndarray],
    title: str,
    axes: tuple[str, str] = ("x", "y"),
    flow: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """A PNG: ``values`` (nx, ny) at the points x (nx,), y (ny,) of a grid, NaN where there are none, and the monitors
    as in ``save_picture``.

    ``flow``: velocities along x and y, (nx, ny) each; streamlines are drawn over the map.
    """
    unit = unit_of(values)

    def paint(on: Any) -> ColourScale | None:
        scale = draw_grid(on, x, y, values / unit)
        if flow is not None:
            draw_streamlines(on, x, y, np.isnan(values), *flow)
        return scale

    _save_map(path, grid_window(x, y), paint, in_units(label, unit), history, title, axes)


@by_root
def save_surface(
    path: Path,
    points: np.ndarray,
    polygons: np.ndarray | NodeLists,
    values: np.ndarray,
    *,
    label: str,
    view: View,
    history: dict[str, np.ndarray],
    title: str,
) -> None:
    """A PNG: ``values`` (n,) on ``polygons`` over ``points`` (m, 3), shaded and seen from ``view``, and the monitors as
    in ``save_picture``."""
    lists = polygons if isinstance(polygons, NodeLists) else NodeLists.of_rows(polygons)
    unit = unit_of(values)
    scene = surface_scene(points, lists, np.asarray(values) / unit, view, {"tail": _TAIL})
    _save_map(path, scene.window or (0.0, 1.0, 0.0, 1.0), scene.paint, in_units(label, unit), history, title)


@by_root
def save_curves(
    path: Path,
    x: np.ndarray,
    curves: Mapping[str, np.ndarray],
    *,
    labels: tuple[str, str],
    title: str,
    dots: Collection[str] = (),
    decades: bool = False,
    downwards: bool = False,
) -> None:
    """A PNG: each of ``curves`` (n,) over ``x`` (n,), those named in ``dots`` as dots; ``labels`` of the axes.

    ``decades``: x is on a logarithmic scale; ``downwards``: the other axis has its least values on top.

    UserError where matplotlib is missing.
    """
    figure = new_figure((9.0, HEIGHT))
    axes = figure.subplots()
    unit = unit_of(x)
    draw_curves(axes, np.asarray(x) / unit, curves, dots)
    axes.set(xlabel=in_units(plain(labels[0]), unit), ylabel=plain(labels[1]), xscale="log" if decades else "linear")
    if downwards:
        axes.invert_yaxis()
    _finish(figure, path, title)


def save_tiles(
    path: Path, values: np.ndarray, names: tuple[Sequence[str], Sequence[str]], *, labels: tuple[str, str], label: str,
    title: str,
) -> None:  # fmt: skip
    """A PNG: a tile for each of ``values`` (nx, ny), empty where it is NaN, with the ``names`` of rows and columns.

    UserError where matplotlib is missing.
    """
    unit = unit_of(values)
    values, label = values / unit, in_units(label, unit)
    figure = new_figure((9.0, HEIGHT))
    axes = figure.subplots()
    axes.set_facecolor("silver")  # is seen where values are NaN
    shown = axes.pcolormesh(values.T, cmap="viridis", edgecolors="white", linewidth=0.5)
    for number, (setter, several) in enumerate(((axes.set_xticks, names[0]), (axes.set_yticks, names[1]))):
        each = -(-len(several) // _MOST_NAMES)  # as many as there is room for
        setter(np.arange(0, len(several), each) + 0.5, [plain(one) for one in several[::each]])
        if number == 0 and sum(map(len, several[::each])) > _LONGEST_NAMES:
            axes.tick_params(axis="x", rotation=60)
    if values.size <= _MOST_NUMBERS:
        middle = np.mean(values, where=known) if (known := np.isfinite(values)).any() else 0.0
        for (i, j), value in np.ndenumerate(values):
            ink = "black" if value > middle else "white"
            axes.text(
                i + 0.5,
                j + 0.5,
                "" if np.isnan(value) else f"{value:.3g}",
                ha="center",
                va="center",
                color=ink,
                fontsize="small",
            )
    axes.set(xlabel=plain(labels[0]), ylabel=plain(labels[1]))
    figure.colorbar(shown, ax=axes, label=plain(label), fraction=0.05, pad=0.02)
    _finish(figure, path, title)


def _save_map(
    path: Path, window: Window, paint: Callable[[Any], ColourScale | None], label: str, history: dict[str, np.ndarray],
    title: str, names: tuple[str, str] | None = None,
) -> None:  # fmt: skip
    """What ``paint`` puts on the axes of a map of the window, with its colour bar, next to the monitors; ``names``: of
    both axes, where these are shown."""
    figure, left = _beside_history(window, history)
    scale = paint(left)
    if names is not None:
        frame(left, window, names)
    colour_bar(figure, left, scale, label)
    _finish(figure, path, title)


def _beside_history(window: Window, history: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """A figure with axes for a map of the window, and with the monitors where there are any; these and the axes."""
    if not history:
        figure = new_figure((width_alone(window), HEIGHT))
        return figure, figure.subplots()
    figure, share = new_figure((12.0, HEIGHT)), map_share(window)
    left, right = figure.subplots(1, 2, width_ratios=(share, 1.0 - share))
    _draw_history(right, history)
    return figure, left


def _finish(figure: Any, path: Path, title: str) -> None:
    figure.suptitle(unread(one_line(title)), wrap=True)
    save_figure(figure, path)


def _draw_history(axes: Any, history: dict[str, np.ndarray]) -> None:
    draw_curves(axes, np.arange(1, len(next(iter(history.values()))) + 1), history)
    if _needs_decades(list(history.values())):
        axes.set_yscale("log")
    axes.set(xlabel="iteration")


def _needs_decades(curves: Sequence[np.ndarray]) -> bool:
    """Whether a good part of a curve would lie flat at the bottom of an even scale, and a logarithm shows it."""
    if not all(len(one) and (one > 0.0).all() for one in curves):
        return False
    highest = max(float(one.max()) for one in curves)
    return any(float(np.quantile(one, _A_GOOD_PART)) < _FLAT * highest for one in curves)
