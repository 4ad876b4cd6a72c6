"""What is chosen automatically for a set of loops, as data: strategies, blocks, tiles, elements per thread, tilings.

``tests/data/choices.json`` holds what was chosen when the fitted numbers still stood in the code.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import meshloom as ml
from bench import choice
from bench.race_loop import Data, res_calc
from meshloom import order
from meshloom.schedule.choice.auto import choose, estimates, ruled
from meshloom.schedule.choice.counts import Counts
from meshloom.schedule.choice.layouts import Vote, ranked_layouts
from meshloom.schedule.choice.per_thread import chosen_per_thread
from meshloom.schedule.lines import on_cpu, on_gpu, systems
from meshloom.schedule.strategies import strategy
from meshloom.schedule.strategies.common.points import tile_of
from meshloom.target import CPU, GFX90A, GFX942, H200, Target

FILE = Path(__file__).parents[1] / "data" / "choices.json"
TARGETS: dict[str, Target] = {"cpu": CPU, "h200": H200, "gfx90a": GFX90A, "gfx942": GFX942}
SIZES = (3_000, 60_000, 5_757_200)  # elements, as if the order of a small mesh went on
BLOCKS = ("direct", "box", *ml.strategies())


@ml.kernel
def spread(x: ml.Read, u: ml.Read, force: ml.Inc):
    for k in range(4):
        force[k] += (x[k] - x[0]) * u


@ml.kernel
def star(u: ml.Read, out: ml.Write):
    across = u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0]
    out[...] = across + u[0, 0, 1] + u[0, 0, -1] - 6.0 * u[0, 0, 0]


@ml.kernel
def light(u: ml.Read, out: ml.Write):
    out[...] = 2.0 * u


def racy_loops() -> dict[str, ml.Loop]:
    """Loops whose elements meet, in several orders and layouts."""
    wing, box = ml.generate.naca0012(60, 50), ml.generate.box((50, 40), cells="quad")
    found = {f"{name} {layout}": res_calc.loop(one.faces, *Data(one).fields("float64", layout))
             for name, one in (("wing", wing), ("random", wing.reordered("random"))) for layout in ("aos", "soa")}
    fields = [box.nodes.field("x", 3), box.cells.field("u"), box.nodes.field("force", 3)]
    found["nodes"] = spread.loop(box.cells, fields[0][box.cell_nodes], fields[1], fields[2][box.cell_nodes])
    return found


def chosen_strategies() -> dict[str, Any]:
    """Of every loop, target and size: the choice, the fastest one, its block and the estimates in seconds."""
    found: dict[str, Any] = {}
    for name, loop in racy_loops().items():
        for word, target in TARGETS.items():
            counted = Counts(loop.spec, loop.elements, loop.storages, loop.maps, order.TYPICAL_BLOCK).work(target)
            for size in SIZES:
                work = choice.scaled(counted, size / loop.elements)
                picked = [(ruled(loop.spec, size, work.flops, wish, target=target)
                           or choose(loop.spec, size, work, wish, target=target))[0]
                          for wish in map(ml.Schedule, ("auto", "fastest"))]
                found[f"{name} {word} {size}"] = {
                    "auto": [picked[0].strategy, picked[0].block], "fastest": [picked[1].strategy, picked[1].block],
                    "seconds": estimates(loop.spec, work, target),
                }
    return found


def blocks() -> dict[str, list[int]]:
    """Of every strategy and target: blocks by the number of elements."""
    return {f"{name} {word}": [strategy(name).block(target, n) for n in (1, 10_000, 200_000, 9_000_000)]
            for name in BLOCKS for word, target in TARGETS.items()}


def at_points() -> dict[str, Any]:
    """Tiles, blocks and shares of loops over grids and over own elements on a GPU."""
    found: dict[str, Any] = {}
    for dtype in ("float64", "float32"):
        for shape in ((40, 40, 40), (4, 4, 256), (8, 8, 70)):
            grid = ml.Grid(shape, periodic=True)
            u, out = (grid.field(name, dtype=dtype) for name in "uv")
            loop = star.loop(grid, u[grid.star(1)], out)
            found[f"{dtype} {shape}"] = [list(tile_of(loop.spec)), strategy("box").block(H200, grid.size, loop.spec)]
        row = ml.Set(10, "own")
        loop = light.loop(row, row.field("a", dtype=dtype), row.field("b", dtype=dtype))
        for elements in (1 << 18, 1 << 19, 1 << 22):
            found[f"{dtype} {elements}"] = asdict(chosen_per_thread(loop.spec, loop.schedule, elements, H200))
    return found


def line_forms() -> dict[str, Any]:
    """How lines are cut up, along every axis of grids, with and without coefficients of their own."""
    found: dict[str, Any] = {}
    for dtype in ("float64", "float32"):
        for shape in ((512, 64), (64, 512), (2000, 6), (6, 2000), (96, 80, 64), (64, 64, 1024)):
            for periodic in (True, False):
                grid = ml.Grid(shape, periodic=periodic)
                f, out = (grid.field(name, dtype=dtype) for name in "fg")
                matrix = ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=periodic)
                stencil = ml.linalg.LineStencil({-1: -0.5, 1: 0.5} if periodic else {0: 1.0})
                one = ml.linalg.LineOperator(matrix, stencil, 1.0)
                for axis in range(len(shape)):
                    loop = ml.linalg.LineLoop(grid, axis, one, f, out)
                    lines = loop.domain.geometry
                    tilings = {word: on_gpu.tiling(loop.spec, lines, {}, target)
                               for word, target in TARGETS.items() if target.is_simt}
                    tilings["cpu"] = on_cpu.tilings(loop.spec, lines, CPU)[0].what
                    tilings["systems"] = systems.gpu_tilings(loop.spec, lines, H200)[0].what
                    found[f"{dtype} {shape} {periodic} {axis}"] = {word: str(one) for word, one in tilings.items()}
    return found


def votes() -> list[str]:
    """Layouts by votes of two strategies each, for short rows and for long ones."""
    names = ("direct", *ml.strategies())
    return [ranked_layouts([Vote(a, 1.0, row), Vote(b, share, row)], H200)[0].what
            for row in (32, 40) for a in names for b in names for share in (0.2, 1.0, 3.0)]


def found() -> dict[str, Any]:
    """All of it, as JSON has it."""
    return {"strategies": chosen_strategies(), "blocks": blocks(), "points": at_points(), "lines": line_forms(),
            "votes": votes()}


if __name__ == "__main__":  # python -m tests.schedule.kept_choices: after a change that means to choose otherwise
    ml.use("emulated")
    FILE.write_text(json.dumps(found(), sort_keys=True, separators=(",", ":")), encoding="utf-8")
