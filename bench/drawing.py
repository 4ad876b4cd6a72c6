"""What own drawing costs against that of libraries: surfaces in space, and the curves of a run's page.

    python -m bench.drawing [--polygons 400 50000 1000000] [--curves 24] [--json FILE]

Surfaces, from arrays to pixels: a wing of so many triangles, and the three planes of a grid that cross in its middle.
Own: the depth buffer of ``meshloom.io.draw.raster``. matplotlib: polygons from back to front, the same colours;
``other`` is the share of the surface's pixels that show another colour than that of the nearest polygon. pyvista:
where it is installed. Curves, from monitors to a file: own, a page with nothing else; matplotlib: its SVG of the same
curves, once on a light and once on a dark ground. Each is measured in a process of its own: seconds of the processor
for the first time, imports included, and for the fastest one; peak memory beyond what was there before.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import surroundings
from bench.record import Record
from bench.report import rows_table

ROUNDS = 3
ITERATIONS = 2000  # of a run whose page is made
_OTHER = 0.1  # of full brightness, from which on a colour is another one


# ----- surfaces -------------------------------------------------------------------------------------------------------
def wing(polygons: int) -> Any:
    """The surface of the ONERA M6, which is thin and closed; coloured by where it faces, up or down."""
    from meshloom.mesh.generators.m6_wing import wing_surface

    side = round((polygons / 4) ** 0.5)
    found = wing_surface(side, side)
    a, b, c = (found.nodes[found.triangles[:, k]] for k in range(3))
    normal = np.cross(b - a, c - a)
    return _shown(found.nodes, found.triangles, normal[:, 2] / np.maximum(np.linalg.norm(normal, axis=1), 1e-300))


def planes(polygons: int) -> Any:
    """Three planes through the middle of a grid."""
    from meshloom.case import cut_planes

    x = np.linspace(0.0, 2.0 * np.pi, max(round((polygons / 3) ** 0.5) + 1, 2))
    waves = np.sin(x)[:, None, None] * np.cos(x)[:, None] * np.sin(2.0 * x)
    found = cut_planes((x, x, x), waves, "u")
    return _shown(*map(np.asarray, (found.points, found.polygons, found.values)))


def _shown(points: np.ndarray, rows: np.ndarray, values: np.ndarray) -> Any:
    from meshloom.io.draw.colours import colour_scale
    from meshloom.io.draw.surface import USUAL_VIEW, ShownSurface, surface_window
    from meshloom.mesh.connectivity import NodeLists

    window = surface_window(points, USUAL_VIEW)
    return ShownSurface(points, NodeLists.of_rows(rows), values, colour_scale(values), USUAL_VIEW, window)


SCENES: dict[str, Callable[[int], Any]] = {"wing": wing, "planes": planes}


def by_matplotlib(what: Any) -> np.ndarray:
    """Pixels (height, width, 3): polygons from back to front, by the depth of their middles."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    from meshloom.io.draw.surface import Screen, brightness, picture_shape

    screen, (width, height) = Screen.seen_from(what.view), picture_shape(what.window)
    corners = what.points[what.polygons.rows]
    order = np.argsort((corners @ screen.toward).mean(axis=1))
    colours = what.scale.mappable().to_rgba(what.values)[:, :3] * brightness(corners, screen)[:, None]
    figure = Figure(figsize=(width / 100.0, height / 100.0), dpi=100)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set(xlim=what.window[:2], ylim=what.window[2:])
    polygons: Any = screen.places(corners)[order]
    axes.add_collection(PolyCollection(polygons, facecolors=colours[order], edgecolors="none",
                                       linewidths=0.0, antialiased=False))  # fmt: skip
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3] / 255.0


def other_colours(pixels: np.ndarray, right: np.ndarray) -> float:
    """Of the pixels that show a surface in both pictures, the share with another colour than is ``right``."""
    both = (right < 1.0).any(axis=2) & (pixels < 1.0).any(axis=2)
    return float((np.abs(pixels - right).max(axis=2)[both] > _OTHER).mean())


def surface(by: str, scene: str, polygons: int) -> dict[str, Any]:
    """One picture by one of them."""
    from meshloom.io.draw.surface import painted, rendered

    what = SCENES[scene](polygons)
    draw: Callable[[Any], Any] = {"own": painted, "matplotlib": by_matplotlib, "pyvista": rendered}[by]
    found, pixels = _measured(lambda: draw(what))
    if by == "matplotlib":
        found["other"] = other_colours(pixels, painted(what))
    return {"what": "surface", "scene": scene, "polygons": len(what.polygons), "by": by} | found


# ----- curves ---------------------------------------------------------------------------------------------------------
def monitors(count: int) -> Any:
    """Residuals that fall, each at a pace of its own, and shake."""
    from meshloom.run.facts import Monitors

    n, shake = np.arange(ITERATIONS), np.random.default_rng(1).normal(size=(ITERATIONS, count))
    values = 10.0 ** (-n[:, None] / (200.0 + 50.0 * np.arange(count)) + 0.1 * shake)
    return Monitors(tuple(f"residual {k}" for k in range(count)), values)


def own_page(count: int) -> str:
    from meshloom.run.facts import FINISHED, RunFacts
    from meshloom.run.page.render import page

    return page(RunFacts("curves", "", FINISHED, "", ITERATIONS, (), (), ""), monitors(count), [], Path("curves"))


def matplotlib_drawings(count: int) -> list[str]:
    """SVG of every curve: on a light ground, and on a dark one."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    from meshloom.run.page.curves import DRAWN_POINTS, HEIGHT, WIDTH, curves_of, thinned

    found = []
    for curve in curves_of(monitors(count)):
        at = thinned(curve.y, DRAWN_POINTS)
        for ink, ground in (("#1c2024", "#fff"), ("#e6e9ec", "#14181c")):
            drawn: Any = {"svg.fonttype": "none", "text.color": ink, "axes.edgecolor": ink, "xtick.color": ink,
                          "ytick.color": ink, "axes.facecolor": ground, "figure.facecolor": ground}  # fmt: skip
            with matplotlib.rc_context(drawn):
                figure = Figure(figsize=(WIDTH / 100.0, HEIGHT / 100.0))
                FigureCanvasSVG(figure)
                axes = figure.subplots()
                axes.plot(curve.x[at], curve.y[at])
                axes.set_yscale("log" if curve.logarithmic else "linear")
                axes.grid()
                written = io.StringIO()
                figure.savefig(written, format="svg")
            found.append(written.getvalue())
    return found


def curves(by: str, count: int) -> dict[str, Any]:
    """All curves by one of them. ``bytes``: of the drawings alone."""
    found, made = _measured(lambda: own_page(count) if by == "own" else matplotlib_drawings(count))
    drawings = re.findall(r'<svg class="curve".*?</svg>', made, re.DOTALL) if by == "own" else made
    size = sum(len(one.encode()) for one in drawings)
    return {"what": "curves", "curves": count, "by": by, "bytes": size} | found


# ----- all of them ----------------------------------------------------------------------------------------------------
def _measured(work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """What it takes, and what it gives."""
    before, taken, made = _peak(), list[float](), None
    for _ in range(ROUNDS):
        start = os.times()
        made = work()
        taken.append(sum(os.times()[:4]) - sum(start[:4]))  # user and system, here and of children
    times = {"first_s": round(taken[0], 2), "again_s": round(min(taken[1:]), 2)}
    return times | {"peak_MB": round(_peak() - before, 1)}, made


def _peak() -> float:
    """Megabytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def alone(*words: str) -> dict[str, Any]:
    """One of them in a process of its own."""
    command = [sys.executable, "-m", "bench.drawing", "--alone", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def text_lines(result: dict[str, Any]) -> list[str]:
    """A table of the rows, in Markdown."""
    head = ("what", "by", "first time", "again", "memory", "")
    rows = []
    for row in result["rows"]:
        is_surface = row["what"] == "surface"
        what = f"{row['scene']}, {row['polygons']:,} polygons" if is_surface else f"{row['curves']} curves"
        more = f"{row['bytes'] / 1e3:.0f} kB" if not is_surface else ""
        more = f"{100.0 * row['other']:.2f} % of the pixels other" if "other" in row else more
        times = f"{row['first_s']:.2f} s", f"{row['again_s']:.2f} s"
        rows.append((what, row["by"], *times, f"{row['peak_MB']:.0f} MB", more))
    return rows_table(head, rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.drawing", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--polygons", type=int, nargs="*", default=[400, 50_000, 1_000_000])
    parser.add_argument("--curves", type=int, default=24)
    parser.add_argument("--alone", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="result file (default: a dated one in bench/results/)")
    options = parser.parse_args(arguments)
    if options.alone:
        by, count, *scene = options.alone
        print(json.dumps(surface(by, scene[0], int(count)) if scene else curves(by, int(count))))
        return 0
    from meshloom.io.draw.surface import can_render

    result: dict[str, Any] = surroundings() | {"benchmark": "drawing", "rows": []}
    record = Record(result, options.json)
    jobs: list[tuple[str, ...]] = [(by, str(options.curves)) for by in ("own", "matplotlib")]
    drawn_by = ("own", "matplotlib", *(("pyvista",) if can_render() else ()))
    sizes = [("wing", count) for count in options.polygons] + [("planes", min(options.polygons, default=0))]
    jobs += [(by, str(count), scene) for scene, count in sizes if count for by in drawn_by]
    for words in jobs:
        result["rows"].append(alone(*words))
        record.save()
    print("\n".join(text_lines(result)))
    print(f"written to {record.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
