"""Pictures with matplotlib: a field over the cells of a plane mesh, next to the history of the monitors."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import UserError, install, one_line
from meshloom.io.files import write_atomically
from meshloom.mesh.lists import NodeLists

_SHARE_OF_SQUARE = 0.464  # of the figure's width, for a square map and its colour bar
_THINNEST = 8.0  # a window longer than this many times its width is stretched: a line would show nothing
_HEIGHT = 4.9  # inches, of every figure
_ROUND_A_MAP = 1.6  # inches to the left and right of a map: labels and colour bar
_LONGEST_NAME, _MOST_NAMES = 40, 40  # letters of a name, and names in a legend: more would leave no room to draw
_COLOURS, _DASHES = 10, ("-", "--", ":", "-.")  # of matplotlib: after ten curves the colours come again
_MOST_EVEN = 200  # places along an axis that streamlines are drawn from
_A_GOOD_PART, _FLAT = 0.25, 0.1  # of the iterations, below such a part of the highest value: see _needs_decades
_TAIL = 1.0  # percent of the cells at either end whose values are beyond the colour scale


def save_picture(
    path: Path,
    points: np.ndarray,
    cells: np.ndarray | NodeLists,
    values: np.ndarray,
    *,
    label: str,
    window: tuple[float, float, float, float],
    history: dict[str, np.ndarray],
    title: str,
    axes: tuple[str, str] = ("x", "y"),
) -> None:
    """A PNG: ``values`` (n,) on ``cells`` (n, corners) of ``points`` (m, 2) within ``window``, and the monitors. Cells
    of several kinds come as the lists of their corners.

    ``history`` maps a monitor's name to its value after each iteration; without any the map stands alone. UserError
    where matplotlib is missing.
    """
    figure = _figure((12.0, _HEIGHT) if history else (_width_alone(window), _HEIGHT))
    share = _map_share(window)
    left, *right = figure.subplots(1, 2, width_ratios=(share, 1.0 - share)) if history else (figure.subplots(),)
    _draw_map(figure, left, points, cells, values, label, window, axes)
    if history:
        _draw_history(right[0], history)
    figure.suptitle(_unread(one_line(title)), wrap=True)
    _save(figure, path)


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
    edges_x, edges_y = _edges(x), _edges(y)
    window = (float(edges_x[0]), float(edges_x[-1]), float(edges_y[0]), float(edges_y[-1]))
    figure = _figure((12.0, _HEIGHT) if history else (_width_alone(window), _HEIGHT))
    share = _map_share(window)
    left, *right = figure.subplots(1, 2, width_ratios=(share, 1.0 - share)) if history else (figure.subplots(),)
    left.set_facecolor("silver")  # is seen where values are NaN
    shown = left.pcolormesh(edges_x, edges_y, values.T, cmap="turbo", shading="flat", rasterized=True)
    if flow is not None:
        _draw_streamlines(left, x, y, np.isnan(values), *flow)
    left.set(xlim=window[:2], ylim=window[2:], xlabel=_plain(axes[0]), ylabel=_plain(axes[1]))
    left.set_aspect("auto" if _thin(window) else "equal")
    figure.colorbar(shown, ax=left, label=_plain(label), fraction=0.05, pad=0.02)
    if history:
        _draw_history(right[0], history)
    figure.suptitle(_unread(one_line(title)), wrap=True)
    _save(figure, path)


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
    figure = _figure((9.0, _HEIGHT))
    axes = figure.subplots()
    _draw_curves(axes, x, curves, dots)
    axes.set(xlabel=_plain(labels[0]), ylabel=_plain(labels[1]), xscale="log" if decades else "linear")
    if downwards:
        axes.invert_yaxis()
    figure.suptitle(_unread(one_line(title)), wrap=True)
    _save(figure, path)


def _figure(size: tuple[float, float]) -> Any:
    """An empty figure of so many inches; UserError where matplotlib is missing."""
    try:
        _import_matplotlib()
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(f"matplotlib is not installed; {install('plot')}") from None
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _import_matplotlib() -> None:
    """Also where MPLBACKEND is one that is not installed here, as in a process that a notebook has started."""
    try:
        import matplotlib
    except ValueError:
        wanted = os.environ.pop("MPLBACKEND", None)
        try:
            import matplotlib  # noqa: F401
        finally:
            if wanted is not None:
                os.environ["MPLBACKEND"] = wanted


def _save(figure: Any, path: Path) -> None:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # letters that the font lacks become boxes
        figure.savefig(buffer, format="png")
    write_atomically(path, buffer.getbuffer())


def _thin(window: tuple[float, float, float, float]) -> bool:
    xmin, xmax, ymin, ymax = window
    return not 1.0 / _THINNEST < (xmax - xmin) / (ymax - ymin) < _THINNEST


def _map_share(window: tuple[float, float, float, float]) -> float:
    """The part of the width that a map of this window, with its colour bar, fills at full height."""
    xmin, xmax, ymin, ymax = window
    return min(max(_SHARE_OF_SQUARE * (xmax - xmin) / (ymax - ymin), 0.3), 0.65)


def _width_alone(window: tuple[float, float, float, float]) -> float:
    """Inches that a map of this window takes with its colour bar and labels at full height."""
    xmin, xmax, ymin, ymax = window
    return min(max(_HEIGHT * (xmax - xmin) / (ymax - ymin) + _ROUND_A_MAP, 5.0), 12.0)


def _draw_map(
    figure: Any,
    axes: Any,
    points: np.ndarray,
    cells: np.ndarray | NodeLists,
    values: np.ndarray,
    label: str,
    window: tuple[float, float, float, float],
    names: tuple[str, str],
) -> None:
    """Flat-coloured cells; those outside the window and those without a value (NaN) are left out."""
    from matplotlib.collections import PolyCollection

    xmin, xmax, ymin, ymax = window
    drawn, colours = [], []
    for part in (cells if isinstance(cells, NodeLists) else NodeLists.of_rows(cells)).sizes:
        corners, here = points[part.nodes], values[part.numbers]
        low, high = corners.min(axis=1), corners.max(axis=1)
        seen = (high[:, 0] >= xmin) & (low[:, 0] <= xmax) & (high[:, 1] >= ymin) & (low[:, 1] <= ymax)
        seen &= np.isfinite(here)
        drawn.append(corners[seen])
        colours.append(here[seen])
    shown = np.concatenate(colours)
    polygons = drawn[0] if len(drawn) == 1 else [corners for part in drawn for corners in part]
    # Anti-aliasing would blend the background into both sides of every edge: hairlines all over the mesh.
    patches = PolyCollection(polygons, array=shown, cmap="turbo", edgecolors="none", linewidths=0.0, antialiased=False)
    if len(shown):  # a few extreme cells, as at the nose, must not use up the colours
        patches.set_clim(*np.percentile(shown, (_TAIL, 100.0 - _TAIL)))
    axes.add_collection(patches)
    axes.set(xlim=(xmin, xmax), ylim=(ymin, ymax), xlabel=_plain(names[0]), ylabel=_plain(names[1]))
    axes.set_aspect("auto" if _thin(window) else "equal")
    if len(shown):
        figure.colorbar(patches, ax=axes, label=_plain(label), extend="both", fraction=0.05, pad=0.02)
    else:
        axes.text(0.5, 0.5, f"{_plain(label)}: no value anywhere", ha="center", va="center", transform=axes.transAxes)


def _draw_history(axes: Any, history: dict[str, np.ndarray]) -> None:
    _draw_curves(axes, np.arange(1, len(next(iter(history.values()))) + 1), history)
    if _needs_decades(list(history.values())):
        axes.set_yscale("log")
    axes.set(xlabel="iteration")


def _needs_decades(curves: Sequence[np.ndarray]) -> bool:
    """Whether a good part of a curve would lie flat at the bottom of an even scale, and a logarithm shows it."""
    if not all(len(one) and (one > 0.0).all() for one in curves):
        return False
    highest = max(float(one.max()) for one in curves)
    return any(float(np.quantile(one, _A_GOOD_PART)) < _FLAT * highest for one in curves)


def _draw_streamlines(
    axes: Any, x: np.ndarray, y: np.ndarray, solid: np.ndarray, along_x: np.ndarray, along_y: np.ndarray
) -> None:
    """Of velocities (nx, ny); matplotlib wants them at even places. Where nothing flows, and in cells that are
    ``solid`` (nx, ny), there are none."""
    even = [np.linspace(one[0], one[-1], min(max(len(one), 2), _MOST_EVEN)) for one in (x, y)]
    parts = [_at_places(x, y, one, *even) for one in (along_x, along_y)]
    if min(len(x), len(y)) > 1 and np.isfinite(parts).all() and np.any(parts):
        cells = (np.searchsorted(_edges(one)[1:-1], new) for one, new in zip((x, y), even, strict=True))
        hidden = solid[np.ix_(*cells)]
        shown = (np.ma.masked_array(part, hidden).T for part in parts)
        axes.streamplot(*even, *shown, color="white", linewidth=0.6, arrowsize=0.6, density=1.2)


def _edges(points: np.ndarray) -> np.ndarray:
    """Of the cells round points (n,): (n + 1,), halfway between neighbours, and at both ends as far outside."""
    if len(points) == 1:
        return np.array([points[0] - 0.5, points[0] + 0.5])
    between = 0.5 * (points[1:] + points[:-1])
    return np.concatenate([[2.0 * points[0] - between[0]], between, [2.0 * points[-1] - between[-1]]])


def _at_places(x: np.ndarray, y: np.ndarray, values: np.ndarray, new_x: np.ndarray, new_y: np.ndarray) -> np.ndarray:
    """Values (nx, ny), linear between points, at other places."""
    rows = np.stack([np.interp(new_y, y, row) for row in values])
    return np.stack([np.interp(new_x, x, column) for column in rows.T], axis=1)


def _draw_curves(axes: Any, x: np.ndarray, curves: Mapping[str, np.ndarray], dots: Collection[str] = ()) -> None:
    """Each of ``curves`` (n,) over ``x`` (n,), with a legend of the first ones."""
    axes.grid(True, which="major", alpha=0.4)
    styles = ["o" if name in dots else _DASHES[number // _COLOURS % len(_DASHES)] for number, name in enumerate(curves)]
    drawn = zip(curves.values(), styles, strict=True)
    plotted = [axes.plot(x, series, style, linewidth=1.4)[0] for series, style in drawn][:_MOST_NAMES]
    if plotted:
        # matplotlib leaves names out that begin with "_" and reads "$" as mathematics: they are put in afterwards.
        size = "medium" if len(plotted) <= _COLOURS else "x-small"
        legend = axes.legend(plotted, ["x"] * len(plotted), fontsize=size)
        for text, name in zip(legend.get_texts(), curves, strict=False):
            text.set_parse_math(False)
            text.set_text(_short(name))


def _plain(label: str) -> str:
    """A label that is shown as it is written, in one line and not too long."""
    return _unread(_short(label))


def _unread(text: str) -> str:
    """A text that matplotlib takes for no mathematics."""
    return text.replace("$", r"\$")


def _short(name: str) -> str:
    name = one_line(name)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
