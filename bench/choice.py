"""The automatic choice on a GPU, held against what was measured: how much slower is it than the best, loop by loop?

    python -m bench.choice [--json FILE]

Nothing is run. The loops of ``bench.race``, ``bench.locality`` and ``bench.zoo`` are made on smaller meshes in the
orders and layouts that the result files of an H200 have, the cost model is asked as if they were as large as there, and
the times of its choices are looked up. Blocks, and in the zoo layouts, are those of the files: of each strategy the
fastest counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import meshloom as ml
from bench.locality_loops import CONTESTS
from bench.measure import surroundings
from bench.race_loop import Data, res_calc
from bench.record import RESULTS, Record, load
from bench.zoo.loops import LOOPS as ZOO_LOOPS
from meshloom.mesh.core import Field
from meshloom.schedule.choice.auto import estimates
from meshloom.schedule.choice.cost import Work
from meshloom.schedule.choice.counts import Counts
from meshloom.schedule.strategies import strategy
from meshloom.target import H200

RACES = tuple(f"2026-11-15_{name}_h200.json" for name in ("race", "race-rings", "race-orders", "race-more-orders"))
LOCALITY = "2026-11-15_locality_h200.json"
ZOO = "2026-11-19_zoo_h200.json"
SMALL_ZOO = 40_000  # cells, or links
APART = "aosoa32"  # a layout in which components lie apart, for loops whose best layout counts
AIRFOIL = (200, 300)  # cells of a sixteenth of the race
SMALLER = {"volna": ("mesh.nx=400", "mesh.ny=120"), "bookleaf": ("mesh.cells=[400,250]",), "lulesh": ("mesh.size=48",),
           "miniaero": ("mesh.cells=[32,32,32]", "time.dt=2e-6")}  # fmt: skip
EXTENSIVE = ("elements", "targets", "touched", "incidences", "flops", "compulsory", "staged", "requested", "gathered",
             "reload_reads", "reload_updates", "reload_gathers", "reload_maps", "reload_stage", "blocks")  # fmt: skip
Times = dict[str, float]  # strategy -> milliseconds


@dataclass(frozen=True)
class Measured:
    """One loop in one order and layout: what every strategy took, and how many elements there were."""

    file: str
    loop: str
    order: str
    layout: str
    elements: int
    ms: Times


def measured() -> Iterator[Measured]:
    """Everything in the files that the model may be asked about, double and single precision as the loops have it."""
    for file in RACES:
        found = load(RESULTS / file)
        yield from _grouped(file, "airfoil", found["variants"], found["mesh"]["edges"], "float64")
    for name, entry in load(RESULTS / LOCALITY)["loops"].items():
        yield from _grouped(LOCALITY, name, entry["variants"], entry["mesh"]["elements"], entry["mesh"]["precision"])
    yield from _best_layouts(ZOO)


def _best_layouts(file: str) -> Iterator[Measured]:
    """Loops on meshes of which every schedule was run, each strategy by the layout that it likes best."""
    groups: dict[tuple[str, str, int], Times] = {}
    for row in load(RESULTS / file)["rows"]:
        if "ms" in row and row["layout"] != "auto":
            times = groups.setdefault((row["loop"], row["family"], row["size"]), {})
            times[row["strategy"]] = min(row["ms"], times.get(row["strategy"], float("inf")))
    for (loop, family, size), times in groups.items():
        yield Measured(file, f"{loop} on {family}", "good", "best", size, times)


def _grouped(file: str, loop: str, rows: list[dict[str, Any]], elements: int, precision: str) -> Iterator[Measured]:
    groups: dict[tuple[str, str], Times] = {}
    for row in rows:
        if "ms" not in row or row["precision"] != precision or row["cap"] or row["strategy"] in ("auto", "fastest"):
            continue
        times = groups.setdefault((row["order"], row["layout"]), {})
        times[row["strategy"]] = min(row["ms"], times.get(row["strategy"], float("inf")))
    for (order, layout), times in groups.items():
        if layout in ("aos", "soa") and len(times) > 2:
            yield Measured(file, loop, order, layout, elements, times)


class Loops:
    """The loops on smaller meshes, each made once."""

    def __init__(self) -> None:
        self._meshes: dict[str, ml.Mesh] = {"given": ml.generate.naca0012(*AIRFOIL)}
        self._cases: dict[str, Any] = {}

    def estimates(self, one: Measured) -> dict[str, float]:
        """Estimated seconds of every strategy, as if the loop had as many elements as measured."""
        in_zoo = one.file == ZOO
        loop = self._of_zoo(one) if in_zoo else self._loop(one)
        for storage in loop.storages:
            if isinstance(storage, Field) and storage.dim > 1:
                storage.relayout(APART if in_zoo else one.layout)
        work = Counts(loop.spec, loop.elements, loop.storages, loop.maps, 1024).work(H200)
        return estimates(loop.spec, scaled(work, one.elements / (SMALL_ZOO if in_zoo else loop.elements)), H200)

    def _of_zoo(self, one: Measured) -> ml.Loop:
        name, family = one.loop.split(" on ")
        scene = ZOO_LOOPS[name].scene(family, SMALL_ZOO, one.order).with_fields("float64", None)
        kernel, visited, arguments = ZOO_LOOPS[name].make(scene)
        loop: ml.Loop = kernel.loop(visited, *arguments)
        return loop

    def _loop(self, one: Measured) -> ml.Loop:
        if one.loop == "airfoil":
            mesh = self._meshes.get(one.order) or self._meshes["given"].reordered(one.order)
            self._meshes[one.order] = mesh
            return res_calc.loop(mesh.faces, *Data(mesh).fields("float64", "aos"))
        key = f"{one.loop} {one.order}"
        if key not in self._cases:
            contest = CONTESTS[one.loop]
            settings = (*SMALLER[one.loop], f"mesh.order={one.order}")
            contest = replace(contest, sizes={"smaller": settings if one.order != "given" else SMALLER[one.loop]})
            case = contest.make("smaller")
            self._cases[key] = case, contest.loop(case)
        loop: ml.Loop = self._cases[key][1]
        return loop


def scaled(work: Work, factor: float) -> Work:
    """The same order on a mesh that is ``factor`` times as large."""
    return replace(work, **{name: getattr(work, name) * factor for name in EXTENSIVE})


def judged(one: Measured, seconds: dict[str, float], *, deterministic: bool) -> dict[str, Any]:
    """The choice among the strategies that were measured, and its time as a multiple of the best one's."""
    names = [n for n in one.ms if n in seconds and (strategy(n).deterministic or not deterministic)]
    chosen, best = min(names, key=seconds.__getitem__), min(names, key=one.ms.__getitem__)
    return {
        "file": one.file, "loop": one.loop, "order": one.order, "layout": one.layout, "deterministic": deterministic,
        "chosen": chosen, "best": best, "ratio": one.ms[chosen] / one.ms[best],
        "estimates_ms": {n: seconds[n] * 1e3 for n in names}, "ms": {n: one.ms[n] for n in names},
    }  # fmt: skip


def rows() -> list[dict[str, Any]]:
    """Every loop, order and layout of the files, with the deterministic choice and that of all strategies."""
    loops, found = Loops(), []
    for one in measured():
        seconds = loops.estimates(one)
        found += [judged(one, seconds, deterministic=deterministic) for deterministic in (True, False)]
    return found


def show(found: list[dict[str, Any]], console: Console) -> None:
    """A table of the choices."""
    table = Table("file", "loop", "order", "layout", "of", "chosen", "best", "times the best", title="the choice")
    for r in found:
        of = "deterministic" if r["deterministic"] else "all"
        name = r["file"].removeprefix("2026-11-15_").removesuffix("_h200.json")
        table.add_row(name, r["loop"], r["order"], r["layout"], of, r["chosen"], r["best"], f"{r['ratio']:.2f}")
    console.print(table)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.choice", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="result file; none is written without")
    options = parser.parse_args(arguments)
    found = rows()
    show(found, Console(width=120))
    if options.json:
        Record(surroundings() | {"benchmark": "choice", "rows": found}, options.json).save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
