"""A program by itself, ``render.py scene.npz picture.npy``: PyVista draws a surface off screen, ``surface`` asks for
it. It imports nothing of Meshloom."""

from __future__ import annotations

import sys

import numpy as np


def main(scene: str, picture: str) -> None:
    """Read polygons with values, a view and a window, write pixels (height, width, 3)."""
    import pyvista as pv

    known = np.load(scene)
    left, right, low, high = (float(end) for end in known["window"])
    width, height = right - left, high - low
    scale = float(known["pixels"]) / max(width, height)
    shape = (max(round(scale * width), 2), max(round(scale * height), 2))
    plotter = pv.Plotter(off_screen=True, window_size=shape)
    plotter.set_background("white")
    plotter.enable_anti_aliasing("msaa")
    plotter.add_mesh(
        surface(known), scalars="values", cmap=str(known["map"]), clim=[float(end) for end in known["limits"]],
        show_scalar_bar=False, smooth_shading=True, split_sharp_edges=True, specular=0.1, specular_power=12.0,
        ambient=0.2, diffuse=0.75, show_edges=bool(known["edges"]),
    )  # fmt: skip
    look(plotter, known["view"], (0.5 * (left + right), 0.5 * (low + high)), known["points"], 0.5 * height)
    np.save(picture, plotter.screenshot(return_img=True))
    plotter.close()


def surface(known: np.lib.npyio.NpzFile) -> object:
    """The polygons that have a value, as PyVista has them: each with its number of corners before them."""
    import pyvista as pv

    starts, entries, values = known["starts"], known["entries"], known["values"]
    faces = np.insert(entries, starts[:-1], np.diff(starts))
    made = pv.PolyData(known["points"], faces)
    made.cell_data["values"] = values
    return made if np.isfinite(values).all() else made.extract_cells(np.flatnonzero(np.isfinite(values)))


def look(plotter: object, view: np.ndarray, middle: tuple[float, float], points: np.ndarray, half: float) -> None:
    """Along ``-view``, without perspective, at the middle of the window; z, or y, upwards as in ``Screen``."""
    toward = view / np.linalg.norm(view)
    up = np.array([0.0, 0.0, 1.0]) if abs(toward[2]) < 0.999 else np.array([0.0, 1.0, 0.0])
    right = np.cross(up, toward)
    right /= np.linalg.norm(right)
    top = np.cross(toward, right)
    deep = float((points @ toward).mean())
    focus = middle[0] * right + middle[1] * top + deep * toward
    distance = 4.0 * float(np.ptp(points, axis=0).max())
    camera = plotter.camera  # type: ignore[attr-defined]
    camera.parallel_projection = True
    camera.focal_point, camera.position, camera.up = focus, focus + distance * toward, top
    camera.parallel_scale = half
    plotter.renderer.reset_camera_clipping_range()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(*sys.argv[1:])
