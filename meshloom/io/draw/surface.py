"""Surfaces in space: polygons with a value each, seen from somewhere, shaded by a light.

PyVista renders them where it is installed, in a process of its own: VTK ends the process where it finds no way to draw
without a screen. Elsewhere, or where that fails, ``raster`` finds which polygon is seen at which pixel.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.io.draw.colours import ColourScale
from meshloom.io.draw.maps import Window
from meshloom.io.draw.raster import seen
from meshloom.mesh.connectivity import NodeLists
from meshloom.process.children import run_apart
from meshloom.records import dataclass

View = tuple[float, float, float]  # from what is seen to who sees it
USUAL_VIEW: View = (1.0, -1.6, 0.9)
_AMBIENT = 0.5  # of the light, which reaches every side
_SECONDS = 120.0  # that PyVista may take
_PIXELS = 1400  # of the longer side: about two for each of a figure
_EDGE_LIGHT = 0.45  # of the colours, along the edges of polygons
_MARGIN = 0.04  # round a surface, of its size


@dataclass(frozen=True)
class Screen:
    """The plane on which somebody who looks along ``-toward`` sees points: axes ``right`` and ``top`` (3,)."""

    toward: np.ndarray
    right: np.ndarray
    top: np.ndarray

    @classmethod
    def seen_from(cls, view: View) -> Screen:
        """With z upwards, or y where the view is along z."""
        toward = np.array(view, np.float64) / np.linalg.norm(view)
        up = np.array([0.0, 0.0, 1.0]) if abs(toward[2]) < 0.999 else np.array([0.0, 1.0, 0.0])
        right = np.cross(up, toward)
        right /= np.linalg.norm(right)
        return cls(toward, right, np.cross(toward, right))

    def places(self, points: np.ndarray) -> np.ndarray:
        """Points (..., 3) on the screen, (..., 2)."""
        return np.stack((points @ self.right, points @ self.top), axis=-1)


@dataclass(frozen=True)
class ShownSurface:
    """A surface, and how it is seen: ``values`` (n,) on ``polygons`` over ``points`` (m, 3) in the ``window`` of the
    screen, with ``edges`` around each or without."""

    points: np.ndarray
    polygons: NodeLists
    values: np.ndarray
    scale: ColourScale
    view: View
    window: Window
    edges: bool = False


def surface_window(points: np.ndarray, view: View) -> Window:
    """What is seen of ``points`` (n, 3), with a margin."""
    seen = Screen.seen_from(view).places(points)
    (left, low), (right, high) = seen.min(axis=0), seen.max(axis=0)
    margin = _MARGIN * max(right - left, high - low, 1e-300)
    return float(left - margin), float(right + margin), float(low - margin), float(high + margin)


def draw_surface(
    axes: Any,
    points: np.ndarray,
    polygons: NodeLists,
    values: np.ndarray,
    scale: ColourScale,
    view: View,
    *,
    edges: bool = False,
) -> None:
    """``values`` (n,) on ``polygons`` over ``points`` (m, 3), with ``edges`` around each or without; those without a
    value are left out."""
    window = surface_window(points, view)
    what = ShownSurface(points, polygons, values, scale, view, window, edges)
    image = rendered(what)
    if image is None:
        image = painted(what)
    axes.imshow(image, extent=window, aspect="equal", interpolation="antialiased")
    axes.set(xlim=window[:2], ylim=window[2:])
    axes.set_aspect("equal")
    axes.set_axis_off()
    _draw_directions(axes, Screen.seen_from(view))


def painted(what: ShownSurface) -> np.ndarray:
    """The window as pixels (height, width, 3), white where nothing is: each polygon that is seen in the colour of its
    value under the light."""
    screen, values = Screen.seen_from(what.view), what.values
    left, right, low, high = what.window
    corners, sides, numbers, light = _triangles(what.points, what.polygons, screen)
    corners = (corners - (left, low, 0.0)) * (_PIXELS / max(right - left, high - low))
    known = np.isfinite(values[numbers])
    found = seen(corners[known], sides[known] & what.edges, *picture_shape(what.window))
    colours = what.scale.mappable().to_rgba(values)[:, :3] * light[:, None]
    image = np.ones((*found.triangle.shape, 3))
    there = found.triangle >= 0
    image[there] = colours[numbers[known][found.triangle[there]]]
    image[found.is_edge & there] *= _EDGE_LIGHT
    return image[::-1]


def picture_shape(window: Window) -> tuple[int, int]:
    """Width and height in pixels."""
    left, right, low, high = window
    dots = _PIXELS / max(right - left, high - low)
    return max(round(dots * (right - left)), 1), max(round(dots * (high - low)), 1)


def _triangles(
    points: np.ndarray, polygons: NodeLists, screen: Screen
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of all polygons: triangles (t, 3, 3) on the screen with their depth, which of their sides are sides of polygons
    (t, 3), the polygon of each (t,), and the light on each polygon (n,)."""
    places = np.column_stack((screen.places(points), points @ screen.toward))
    light, every = np.zeros(len(polygons)), np.arange(len(polygons))
    corners, sides, numbers = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for part in polygons.sizes:
        light[part.numbers] = brightness(points[part.nodes], screen)
        last = part.nodes.shape[1] - 1
        for k in range(1, last):
            corners.append(places[part.nodes[:, (0, k, k + 1)]])
            sides.append(np.tile([True, k + 1 == last, k == 1], (len(part.nodes), 1)))
            numbers.append(every[part.numbers])
    return np.concatenate(corners), np.concatenate(sides), np.concatenate(numbers), light


def brightness(corners: np.ndarray, screen: Screen) -> np.ndarray:
    """How bright polygons (n, k, 3) are, from 0 to 1: a lamp to the upper left behind who looks."""
    lamp = screen.toward + 0.5 * screen.top - 0.4 * screen.right
    lamp /= np.linalg.norm(lamp)
    half = corners.shape[1] // 2
    normals = np.cross(corners[:, half] - corners[:, 0], corners[:, -1] - corners[:, 1])
    if corners.shape[1] == 3:
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=1)
    along = np.abs(normals @ lamp) / np.where(length > 0.0, length, 1.0)
    return _AMBIENT + (1.0 - _AMBIENT) * along


def _draw_directions(axes: Any, screen: Screen) -> None:
    """Where x, y and z go, in the lower left corner."""
    for axis, name in enumerate("xyz"):
        across, up = 0.07 * screen.right[axis], 0.07 * screen.top[axis]
        if np.hypot(across, up) < 0.01:
            continue  # towards who looks
        start, end = (0.09, 0.1), (0.09 + across, 0.1 + up)
        axes.annotate("", end, start, xycoords="figure fraction", annotation_clip=False,
                      arrowprops={"arrowstyle": "-|>", "color": "0.2", "shrinkA": 0.0, "shrinkB": 0.0})  # fmt: skip
        axes.annotate(name, (0.09 + 1.25 * across, 0.1 + 1.25 * up), xycoords="figure fraction", ha="center",
                      va="center", fontsize="small", annotation_clip=False)  # fmt: skip


def can_render() -> bool:
    """Whether PyVista is there to be asked."""
    return importlib.util.find_spec("pyvista") is not None


def rendered(what: ShownSurface) -> np.ndarray | None:
    """PyVista's picture (height, width, 3) of the window; None where there is none to be had here."""
    if not can_render():
        return None
    with tempfile.TemporaryDirectory(prefix="meshloom-") as folder:
        scene, picture = Path(folder) / "scene.npz", Path(folder) / "picture.npy"
        np.savez(scene, points=what.points, starts=what.polygons.starts, entries=what.polygons.entries,
                 values=what.values, limits=(what.scale.low, what.scale.high), map=what.scale.map, view=what.view,
                 window=what.window, pixels=_PIXELS, edges=what.edges)  # fmt: skip
        try:
            done = run_apart([sys.executable, str(Path(__file__).with_name("render.py")), str(scene), str(picture)],
                             _SECONDS)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        return np.load(picture) if done.returncode == 0 and picture.is_file() else None
