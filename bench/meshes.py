"""The meshes that are made on the spot: how long they take, how large they are and what their cells are like.

    python -m bench.meshes [--levels 1 2 3 4 5] [--json FILE] [--draw FOLDER]

Each size of the ONERA M6 wing is made in a process of its own, which tells its peak memory. ``--draw`` makes the
picture of the docs: surface, tip and plane of symmetry of the smallest mesh.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.measure import surroundings
from bench.record import Record
from meshloom.mesh.generators import m6_wing
from meshloom.mesh.generators.field_lines import lines_from, wing_charges
from meshloom.mesh.generators.onera_m6 import LEVELS, planned

#: Interior and boundary faces of the graph-coloring paper's meshes.
PAPER_FACES = {1: 1_046_864, 2: 1_908_916, 3: 4_044_699, 4: 8_020_032, 5: 20_280_047}
PLANAR = {
    "naca0012_ogrid(128, 48)": lambda: ml.generate.naca0012_ogrid(128, 48),
    "naca0012_ogrid(256, 96)": lambda: ml.generate.naca0012_ogrid(256, 96),
    "naca0012_ogrid(512, 192)": lambda: ml.generate.naca0012_ogrid(512, 192),
    'naca0012_ogrid(256, 96, cells="mixed")': lambda: ml.generate.naca0012_ogrid(256, 96, cells="mixed"),
    "cylinder(128, 96)": lambda: ml.generate.cylinder(128, 96),
    "flat_plate(136, 96)": lambda: ml.generate.flat_plate(136, 96),
    "bump(96, 32)": lambda: ml.generate.bump(96, 32),
}


def measured(make: Any) -> dict[str, Any]:
    """Seconds to make a mesh, its sizes and its quality."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    mesh = make()
    return {
        "seconds": round(time.perf_counter() - begin, 2),
        "cpu_seconds": round(time.process_time() - cpu_begin, 2),
        "faces": len(mesh.faces) + len(mesh.boundary_faces),
        "nodes": len(mesh.nodes),
        "quality": asdict(ml.generate.quality(mesh)),
    }


def wing(cells: int | None, level: int) -> dict[str, Any]:
    """One size of the wing; compiling and the wing's charges, which are the same for all sizes, are done before."""
    wing_charges()
    ml.generate.onera_m6(cells=3000)
    memory: dict[str, float] = {}

    def make() -> ml.Mesh:
        mesh = ml.generate.onera_m6(level, cells=cells)
        memory["peak_GB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
        return mesh

    return {"level": level} | measured(make) | memory


def alone(level: int) -> dict[str, Any]:
    """``wing`` in a process of its own."""
    command = [sys.executable, "-m", "bench.meshes", "--alone", str(level)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def wing_table(result: dict[str, Any]) -> list[str]:
    """The sizes of the wing next to the paper's, in Markdown."""
    heads = ("level", "prisms", "tetrahedra", "cells, and the paper's in millions", "faces, and the paper's", "seconds",
             "of processors", "peak memory, GB")  # fmt: skip
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in result["wings"]:
        kinds, level = one["quality"]["cells"], one["level"]
        sizes = (
            f"{kinds['prism']:,} | {kinds['tetrahedron']:,} | {sum(kinds.values()):,} ({LEVELS[level][0] / 1e6:.2f})"
        )
        times = f"{one['seconds']:.1f} | {one['cpu_seconds']:.1f} | {one['peak_GB']:.1f}"
        rows.append(f"| {level} | {sizes} | {one['faces']:,} ({PAPER_FACES[level]:,}) | {times} |")
    return rows


def quality_table(result: dict[str, Any]) -> list[str]:
    """What the cells of all meshes are like, in Markdown."""
    rows = [
        "| mesh | cells | shape, least and mean | aspect, mean and most | non-orthogonality, mean and most"
        " | growth, mean and most |",
        "|---|---|---|---|---|---|",
    ]
    named = [(f"onera_m6({one['level']})", one) for one in result["wings"]] + list(result["planar"].items())
    for name, one in named:
        found = one["quality"]
        rows.append(
            f"| `{name}` | {sum(found['cells'].values()):,} | {found['shape'][0]:.3f}, {found['shape'][1]:.2f}"
            f" | {found['aspect'][0]:.1f}, {found['aspect'][1]:.0f} | {found['non_orthogonality'][0]:.1f}°,"
            f" {found['non_orthogonality'][1]:.1f}° | {found['growth'][0]:.2f}, {found['growth'][1]:.1f} |"
        )
    return rows


def draw(path: Path) -> None:
    """The surface from above, the tip and two parts of the plane of symmetry, of the smallest mesh."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sizes = planned(1, None, False, None, None, None)
    surface = m6_wing.wing_surface(sizes.side, sizes.span)
    x, y, z = surface.nodes.T
    seen = surface.nodes[surface.triangles].mean(axis=1)
    root = lines_from(surface, sizes.heights(15 * m6_wing.SEMI_SPAN))[:, surface.root]
    ring = np.concatenate((root, root[:, :1]), axis=1)
    figure = Figure(figsize=(12.0, 11.0), dpi=80, layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(2, 2)
    style = {"color": "black", "linewidth": 0.4}
    axes[0, 0].triplot(x, y, surface.triangles[seen[:, 2] >= 0], **style)
    axes[0, 0].set(title="upper side", xlabel="x, m", ylabel="y, m")
    axes[0, 1].triplot(x, z, surface.triangles[seen[:, 1] > m6_wing.SEMI_SPAN], **style)
    axes[0, 1].set(
        title="front of the rounded tip", xlabel="x, m", ylabel="z, m", xlim=(0.68, 0.80), ylim=(-0.06, 0.06)
    )
    parts = (("plane of symmetry", (-0.6, 1.6), (-1.1, 1.1)), ("its nose", (-0.03, 0.09), (-0.06, 0.06)))
    for panel, (title, along, above) in zip(axes[1], parts, strict=True):
        panel.plot(root[:, :, 0], root[:, :, 2], **style)
        panel.plot(ring[:, :, 0].T, ring[:, :, 2].T, **style)
        panel.set(title=title, xlabel="x, m", ylabel="z, m", xlim=along, ylim=above)
    for panel in axes.flat:
        panel.set_aspect("equal")
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levels", type=int, nargs="*", default=list(LEVELS), choices=list(LEVELS))
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draw", type=Path)
    options = parser.parse_args(arguments)
    if options.alone:
        print(json.dumps(wing(None, options.alone)))
        return 0
    result: dict[str, Any] = surroundings() | {"benchmark": "meshes", "wings": [], "planar": {}}
    for level in options.levels:
        result["wings"].append(alone(level))
        print(*wing_table({"wings": result["wings"][-1:]})[2:], flush=True)
    for name, make in PLANAR.items():
        result["planar"][name] = measured(make)
    print("\n".join(quality_table(result)))
    if options.json:
        Record(result, options.json).save()
    if options.draw:
        draw(options.draw / "onera_m6.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
