"""The graph-coloring paper's experiment: its algorithms 3 to 11 on five meshes with its tables, and what beats them.

    python -m bench.coloring --device cuda|cpu [--levels 1 2 3 4 5] [--variants alg5 alg11 ...] [--parts ...]
    python -m bench.coloring --again FILE --plot FILE

Flux summation adds what every face has to its owner and takes it from its neighbor; the local maximum offers the
pressure of each cell to the cell across the face. Faces that share a cell get different colors (3, 4); then one launch
for each color: plainly (5, 6), through shared memory (7, 8), with cells and faces renumbered for the largest color (9,
10), with face data in the order of colors (11). ``given`` is the order in which a mesh comes, ``hilbert`` cells along
the Hilbert curve, ``greedy`` in blocks that grow, and faces after them. Meshloom's strategies do the same loops; one of
them, ``color``, also on faces numbered by color and on the mesh of 9 and 10. A part of a program is a step of a case,
loop by loop, and on all cores. Every row is checked against NumPy before it is timed. Meshes are kept in a folder, for
the next run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import meshloom as ml
from bench import coloring_forms, coloring_strategies
from bench.coloring_forms import ALGORITHMS, Forms, Values
from bench.coloring_mesh import (
    LEVELS,
    Faces,
    Groups,
    Numbering,
    along_curve,
    as_given,
    box,
    by_color,
    colored,
    colored_by_lists,
    face_pairs,
    for_largest_color,
    has_wings,
    in_blocks,
)
from bench.coloring_paper import BY_GROUP, BY_GROUP_LEVEL
from bench.coloring_program import whole_row
from bench.coloring_report import (
    PRECISIONS,
    by_group_lines,
    conclusion_lines,
    draw,
    goals,
    group_lines,
    program_lines,
    strategy_lines,
    time_lines,
)
from bench.grid import Cpu
from bench.peers.colored import Kernels, OnCores, OnGpu
from bench.race_loop import Device
from bench.record import load
from bench.started import Started, options_of, started
from meshloom.native.cache import cache_dir

PARTS = ("algorithms", "strategies", "program")
NUMBERINGS: dict[str, Callable[[Faces], Numbering]] = {"given": as_given, "hilbert": along_curve, "greedy": in_blocks}
ORDERS = ("given", "hilbert")
COMPONENTS = (1, 5)
SMALL_PRISMS = 0.3  # of the cells of a box whose size was asked for
#: On the largest mesh, and on all others. Not here: those whose plans for 20 million faces take ten seconds and more.
STRATEGIES, FEW = ("auto", "owner", "tile", "atomic", "warp_atomic", "staged", "color"), ("auto", "atomic")
CASE, ON_GPU, ON_CPU = "miniaero_ramp", ("mesh.cells=[96,96,96]", "time.dt=2e-6"), ("mesh.cells=[24,24,24]",)


class Run:
    """One run: what was asked for, and where rows go."""

    def __init__(self, options: Any, run: Started):
        self.options, self.run = options, run
        self.kernels: dict[tuple[str, int], Kernels] = {}

    def kernels_of(self, precision: str, components: int) -> Kernels:
        """Of the paper, compiled once."""
        if (precision, components) not in self.kernels:
            kind: Callable[..., Kernels] = OnGpu if self.run.device.backend == "cuda" else OnCores
            self.kernels[precision, components] = kind(precision, components, self.options.block)
        return self.kernels[precision, components]

    def add(self, row: dict[str, Any]) -> None:
        self.run.result["rows"].append(row)
        print(line_of(row), flush=True)
        self.run.save()

    @property
    def device(self) -> Device:
        return self.run.device


def group_row(faces: Faces) -> tuple[Groups, dict[str, Any]]:
    """The coloring of a mesh both ways, which must agree."""
    groups, seconds = colored(faces)
    by_lists, longer = colored_by_lists(faces)
    row = {"sizes": groups.sizes.tolist(), "cells": faces.cells, "faces": faces.n, "seconds": seconds,
           "seconds_by_lists": longer}  # fmt: skip
    differ = int((by_lists != groups.colors).sum())
    return groups, row | ({"wrong": differ} if differ else {})


@dataclass
class Level:
    """A mesh of the experiment in its orders. Values of several components, single precision and most strategies only
    where ``is_last``: on the largest mesh."""

    number: int
    given: Faces
    groups: Groups
    orders: dict[str, Numbering]
    is_last: bool
    values: dict[int, Values] = field(default_factory=dict)

    def values_of(self, components: int) -> Values:
        """Under the given numbers, made once."""
        if components not in self.values:
            self.values[components] = Values(self.given, components)
        return self.values[components]


def algorithms_measured(run: Run, level: Level) -> None:
    """The paper's algorithms: on the given order all, on others in the first precision, on the largest mesh."""
    options = run.options
    apart = tuple(BY_GROUP) if level.number == min(BY_GROUP_LEVEL, max(options.levels)) else ()
    for order, numbering in level.orders.items():
        is_given = order == "given"
        if not (is_given or level.is_last):
            continue
        faces, groups = numbering.faces, level.groups if is_given else colored(numbering.faces)[0]
        forms = Forms(faces, groups)
        for precision, components in kinds(options, level.is_last)[: None if is_given else 1]:
            values = level.values_of(components) if is_given else Values(faces, components)
            rows = coloring_forms.rows_of(forms, options.variants, values, run.kernels_of(precision, components),
                                          run.device.replayed, apart if components == 1 else ())  # fmt: skip
            for row in rows:
                run.add({"part": "algorithms", "level": level.number, "order": order} | row)
            run.device.clear()


def kinds(options: Any, is_last: bool) -> list[tuple[str, int]]:
    """Precisions with components: one in all, several in the first precision on the largest mesh."""
    several = [(options.precisions[0], one) for one in options.components if one > 1 and is_last]
    return [*((precision, 1) for precision in options.precisions if 1 in options.components), *several]


def strategies_measured(run: Run, level: Level) -> None:
    """Meshloom's strategies: all of them in the first precision, one component, not the given order, on the largest
    mesh; else a few. There also ``color`` on numberings made for it."""
    options, few = run.options, [one for one in FEW if one in run.options.strategies]
    for precision, components in kinds(options, level.is_last):
        full = level.is_last and (precision, components) == (options.precisions[0], 1)
        tried = [(order, numbering, options.strategies if full and order != "given" else few)
                 for order, numbering in level.orders.items()]  # fmt: skip
        if full and "color" in options.strategies:
            tried += [("faces by color", by_color(level.given), ["color"]),
                      ("for the largest color", for_largest_color(level.given, level.groups), ["color"])]  # fmt: skip
        for order, numbering, names in tried:
            loops = coloring_strategies.Loops(numbering, level.values_of(components), precision)
            blocks = full and run.device.backend == "cuda"
            for row in coloring_strategies.rows_of(loops, names, run.device, run.run.copy, every_block=blocks):
                run.add({"part": "strategies", "level": level.number, "order": order} | row)
            del loops
            run.device.clear()


def level_measured(run: Run, number: int, given: Faces) -> None:
    """Everything about one mesh."""
    groups, row = group_row(given)
    run.add({"part": "groups", "level": number, "order": "given"} | row)
    orders = {order: NUMBERINGS[order](given) for order in run.options.orders}
    level = Level(number, given, groups, orders, number == max(run.options.levels))
    if "algorithms" in run.options.parts:
        algorithms_measured(run, level)
    if "strategies" in run.options.parts:
        strategies_measured(run, level)


def line_of(row: dict[str, Any]) -> str:
    """A row in one line."""
    if row["part"] == "program":
        return f"{row['case']}: {row['cells']:,} cells, {row['ms']:.3f} ms a step"
    where = f"mesh {row['level']} {row['order']:<21} "
    if row["part"] == "groups":
        return f"{where}{row['cells']:,} cells, {row['faces']:,} faces in {row['seconds']:.3f} s: {row['sizes']}"
    name = row.get("algorithm") or row["wish"]
    what = f"{where}{row['loop']:<14}{row['precision']:<8} x{row['components']} {name:<28}"
    if "s_per_1000" not in row:
        return what + (f"declined: {row['declined']}" if "declined" in row else f"WRONG by {row['wrong']:.1e}")
    share = f", {row['share_of_copy']:.3f} of copy" if "share_of_copy" in row else ""
    return f"{what}{row['s_per_1000']:9.4f} s per 1000{share}"


def shown(result: dict[str, Any], picture: Path | None) -> int:
    """Print what was found next to the paper, and draw it; the exit code."""
    if any(row["part"] == "groups" for row in result["rows"]):
        for text_lines in (group_lines, time_lines, by_group_lines, strategy_lines, conclusion_lines):
            print("\n".join(["", *text_lines(result)]))
        if picture:
            draw(result, picture)
            print(f"drawn in {picture}")
    print("\n".join(["", *program_lines(result)]))
    return int(any("wrong" in row for row in result["rows"]))


def options_given(arguments: list[str] | None) -> Any:
    parser = options_of("coloring", __doc__)
    meshes, own = "m6" if has_wings() else "box", ("auto", *ml.strategies())
    several = "unknowns of a cell; more than one on the largest mesh only"
    threads = "threads of a block of the paper's kernels (default %(default)s)"
    parser.add_argument("--levels", nargs="*", type=int, choices=LEVELS, default=list(LEVELS), help="which meshes")
    parser.add_argument("--mesh", choices=("m6", "box"), default=meshes, help="wings, or boxes of as many cells")
    parser.add_argument("--cells", type=int, help="a small box of about so many cells in place of the meshes")
    parser.add_argument("--meshes", type=Path, help="where meshes are kept (default: in the cache)")
    parser.add_argument(
        "--variants", nargs="*", choices=tuple(ALGORITHMS), default=list(ALGORITHMS), help="the paper's"
    )
    parser.add_argument("--strategies", nargs="*", choices=own, default=list(STRATEGIES), help="Meshloom's")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--components", nargs="+", type=int, default=list(COMPONENTS), help=several)
    parser.add_argument("--orders", nargs="+", choices=tuple(NUMBERINGS), default=list(ORDERS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--block", type=int, default=256, help=threads)
    parser.add_argument("--case", default=CASE, help="whose steps are looked at (default %(default)s)")
    parser.add_argument("--settings", nargs="+", metavar="KEY=VALUE", help="of that case")
    parser.add_argument("--plot", type=Path, help="a picture of the ratios to algorithms 5 and 6")
    parser.add_argument("--again", type=Path, metavar="FILE", help="show and draw a result, and measure nothing")
    options = parser.parse_args(arguments)
    if options.cells is not None:
        if options.cells < 20:
            parser.error(f"--cells must be at least 20, got {options.cells}")
        options.levels = [0]
    if any(one < 1 for one in options.components):
        parser.error(f"--components must be at least 1, got {min(options.components)}")
    if options.block < 32 or options.block > 1024:
        parser.error(f"--block must be from 32 to 1024, got {options.block}")
    return options


def main(arguments: list[str] | None = None, device: Device | None = None, cores: Callable[[], Device] = Cpu) -> int:
    options = options_given(arguments)
    if options.again:
        return shown(load(options.again), options.plot)
    begun = started("coloring", options, device, cores)
    if begun is None:
        return 2
    run = Run(options, begun)
    begun.result |= {"mesh": "box" if options.cells else options.mesh, "block": options.block}
    if set(options.parts) & {"algorithms", "strategies"}:
        for level in options.levels:
            folder = options.meshes or cache_dir("bench")
            small = box(options.cells, SMALL_PRISMS, "small") if options.cells else None
            level_measured(run, level, small or face_pairs(options.mesh, level, folder))
    if "program" in options.parts:
        settings = options.settings or (ON_GPU if begun.device.backend == "cuda" else ON_CPU)
        others = cores() if begun.device.backend == "cuda" else None
        run.add({"part": "program"} | whole_row(options.case, settings, begun.device, others))
    code = begun.finished(goals(begun.result) if options.levels else [])
    return max(code, shown(begun.result, options.plot))


if __name__ == "__main__":
    sys.exit(main())
