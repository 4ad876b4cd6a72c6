"""The layout paper's experiment: five steps of incompressible flow with vectors as AoS, SoA and AoSoA.

    python -m bench.layouts --device cuda|cpu|emulated [--points 256] [--quick] [--auto] [--json FILE] [--plot FILE]
    python -m bench.layouts --again FILE --plot FILE

Each step by itself in every layout of all vector fields: milliseconds, share of the five, speed-up over AoS, and its
compulsory bytes per second as a share of what a copy moves in the same run. Of each layout the fastest tile and block
count. V/S and B/F are counted as the paper does (accesses that one point issues, a value that is read and written
twice) and, apart from these, as the engine does (each value once; compulsory bytes). Results of every layout are
compared with NumPy's on a small grid and with those of SoA on the large one before they are timed. Then steps without
Poisson, as programs, of these flows and of ``cavity3d``, against the bytes that they cannot do without.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.grid import Cpu
from bench.layout_report import GOAL_FLOW, draw, goals, show_counts, show_rows, with_shares
from bench.layout_steps import CHECKED, FORMS, LAYOUTS, STEPS, Flow, Laid, accesses, difference
from bench.measure import fastest
from bench.race_loop import TOLERANCE, Device
from bench.record import load
from bench.started import Started, options_of, started
from meshloom.config import build, parse_set
from meshloom.schedule.strategies.common.points import tile_of
from meshloom.solvers import find_case

POINTS, FEW = 256, 32
TILES = ("plain", "single", "row", "slab2", "slab4")
VARIANTS = ("plain", "single", "row")  # tiles that are tried on a GPU, the engine's own first,
BLOCKS = (256, 128)  # each in blocks of so many threads
REFERENCE = "soa"
SCHEMES = ("euler", "rk3")  # of cavity3d
REPLAYS = 10  # of a program in one timing
BEGUN = 5  # steps that a flow has made before: at rest all is 0, which a GPU divides in another, slower way


class Hasty(Cpu):
    """The cores, timed in a hurry: to see that it works."""

    def seconds(self, run: Callable[[], Any]) -> float:
        return fastest({"": lambda times: [run() for _ in range(times)]}, rounds=1, target=0.01)[""]


class EmulatedGpu(Cpu):
    """Generated CUDA on the CPU: nothing to measure, but everything to check."""

    backend = "emulated"

    def seconds(self, run: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin


# --- checks -----------------------------------------------------------------------------------------------------------


def check_small(form: str, layouts: Sequence[str], backend: str) -> float:
    """The largest difference between any layout and NumPy on a small grid; SystemExit where it is too large."""
    ml.use("numpy")
    expected = {step: Flow(form, CHECKED).laid(REFERENCE).result(step) for step in STEPS}
    ml.use(backend)
    flow, worst = Flow(form, CHECKED), 0.0
    for layout in layouts:
        laid = flow.laid(layout)
        for step in STEPS:
            off = float(np.abs(laid.result(step) - expected[step]).max() / np.abs(expected[step]).max())
            if not off <= TOLERANCE["float64"]:
                raise SystemExit(
                    f"bench.layouts: {step}, {form}, {layout} on {backend} differs from NumPy by {off:.1e}"
                )
            worst = max(worst, off)
    return worst


class Expected:
    """What every step makes on the large grid, in fields of one layout."""

    def __init__(self, laid: Laid):
        self.fields = {}
        for step in STEPS:
            found = laid.prepared(step)
            laid.step(step)
            kept = found.like(step)
            keep(laid.grid, found, kept)
            self.fields[step] = kept

    def error(self, step: str, found: ml.Field) -> float:
        return difference(found, self.fields[step])


@ml.kernel
def keep(source: ml.Read, target: ml.Write):
    target[...] = source


# --- steps ------------------------------------------------------------------------------------------------------------


def rows_of(form: str, flow: Flow, layouts: Sequence[str], run: Started) -> Iterator[dict[str, Any]]:
    """Every layout and step of one form, checked, then timed."""
    expected = Expected(flow.laid(REFERENCE))
    for layout in layouts:
        laid = flow.laid(layout)
        for step in STEPS:
            wishes = wishes_for(laid, step)[: 1 if run.result["quick"] else None]
            tried = [measured(laid, step, wish, expected, run.device) for wish in wishes]
            row: dict[str, Any] = {"form": form, "step": step, "layout": layout}
            if wrong := [one["wrong"] for one in tried if "wrong" in one]:
                yield row | {"wrong": max(wrong)}
                continue
            best, moved = min(tried, key=lambda one: one["ms"]), laid.loop(step).counts.compulsory
            yield row | best | {"automatic_ms": tried[0]["ms"], "tried": tried, "bytes": moved,
                                "bytes_per_point": moved / flow.grid.size,
                                "share_of_copy": moved / best["ms"] * 1e3 / run.copy}  # fmt: skip
        del laid
        run.device.clear()


def wishes_for(laid: Laid, step: str) -> list[ml.Schedule]:
    """Tiles that differ in blocks that differ, the engine's own choice first; on a CPU that alone."""
    if not laid.loop(step).backend.target.is_simt:
        return [ml.Schedule("box")]
    tiles = {tile_of(laid.loop(step, ml.Schedule("box", variant=one)).spec): one for one in reversed(VARIANTS)}
    names = sorted(tiles.values(), key=VARIANTS.index)
    return [ml.Schedule("box", variant=one, block=block) for block in BLOCKS for one in names]


def measured(laid: Laid, step: str, wish: ml.Schedule, expected: Expected, device: Device) -> dict[str, Any]:
    """One step by one schedule: ``wrong``, or milliseconds."""
    loop = laid.loop(step, wish)
    executable: Any = loop.prepare()
    found = laid.prepared(step)
    executable()
    if not (error := expected.error(step, found)) <= TOLERANCE["float64"]:
        return {"schedule": str(loop.schedule), "wrong": error}
    row = {
        "schedule": str(loop.schedule),
        "ms": device.replayed(getattr(executable, "launch", executable)) * 1e3,
        "error": error,
    }
    if loop.backend.target.is_simt:
        row |= {"tile": list(tile_of(loop.spec)), "resources": executable.resources.get("pass0", {})}
    return row


def counts_of(form: str) -> Iterator[dict[str, Any]]:
    """The counts of every step, which no size and no layout changes."""
    laid = Flow(form, CHECKED).laid(REFERENCE)
    for step in STEPS:
        loop = laid.loop(step)
        found, engine = accesses(loop), loop.counts
        yield {"form": form, "step": step, **asdict(found), "vs": found.vector_scalar, "bf": found.bytes_flops,
               "engine_vs": engine.vector_scalar_ratio, "engine_bf": engine.bytes_per_flop}  # fmt: skip


# --- whole steps ------------------------------------------------------------------------------------------------------


class Uses:
    """What the loops of a program do with whole fields; those over sides are left out. ``wanted``: read as they were
    before it; ``written``; ``used``: read after they were written."""

    def __init__(self, program: ml.Program):
        self.wanted, self.written, self.used = set[ml.Field](), set[ml.Field](), set[ml.Field]()
        for loop in program.operations:
            every = [one for one in loop.storages if isinstance(one, ml.Field) and loop.counts.elements >= one.set.size]
            for one in filter(loop.needs, every):
                (self.used if one in self.written else self.wanted).add(one)
            self.written |= {one for one in every if one in loop.writes}


def needed_bytes(programs: Sequence[ml.Program]) -> list[int]:
    """Those that programs, one after the other, must move if each field that one reads, and each that it leaves behind,
    is moved once. Of fields that only the program that writes them reads nothing needs to be left behind."""
    uses = [Uses(program) for program in programs]
    wanted = {one for each in uses for one in each.wanted}
    passing = {one for each in uses for one in each.used if one not in wanted}

    def size(fields: set[ml.Field]) -> int:
        return sum(one.set.size * one.dim * one.dtype.itemsize for one in fields)

    return [size(each.wanted) + size({one for one in each.written - passing if not one.temporary}) for each in uses]


def loop_bytes(program: ml.Program) -> int:
    """The compulsory bytes of its loops as they run, fused where they are: each value once in each of them."""
    found = program._fused_recording()
    return sum(one.compulsory for one in (found.program.operations if found else program.loops))


def without_poisson(name: str, programs: Sequence[ml.Program], run: Started) -> dict[str, Any]:
    """A step without Poisson, as the programs before and behind it: time, bytes, share of copy."""
    parts: list[dict[str, Any]] = []
    for program, needed in zip(programs, needed_bytes(programs), strict=True):
        program.run(1)
        seconds = run.device.seconds(lambda program=program: program.run(REPLAYS)) / REPLAYS  # type: ignore[misc]
        parts.append({"program": program.name, "ms": seconds * 1e3, "bytes": needed,
                      "bytes_of_loops": loop_bytes(program), "launches": program.launches,
                      "operations": [one.name for one in program.operations],
                      "explained": program.explain().split("\n\n")[0].splitlines()})  # fmt: skip
    taken, moved, by_loops = (sum(one[key] for one in parts) for key in ("ms", "bytes", "bytes_of_loops"))
    return {"whole": name, "ms": taken, "bytes": moved, "share_of_copy": moved / taken * 1e3 / run.copy,
            "bytes_of_loops": by_loops, "loops_share_of_copy": by_loops / taken * 1e3 / run.copy,
            "parts": parts}  # fmt: skip


def programs_of(laid: Laid) -> list[ml.Program]:
    """u*, interpolation and divergence; then, with the pressure known, both projections."""
    divergence = laid.p.like("divergence")

    def before_poisson() -> None:
        laid.steps.predict(laid.u, laid.faces, laid.dt, laid.nu, laid.u_star)
        laid.steps.interpolate(laid.u_star, laid.vector)
        laid.steps.divergence(laid.vector, laid.dt, divergence)

    def behind_poisson() -> None:
        laid.steps.project_points(laid.u_star, laid.p, laid.dt, laid.u)
        laid.steps.project_faces(laid.p, laid.dt, laid.vector)

    return [ml.Program(before_poisson), ml.Program(behind_poisson)]


def cavity(points: int, scheme: str) -> Any:
    """The lid-driven cavity of the Cartesian solver, in a cube."""
    kind = find_case(GOAL_FLOW)
    settings = (f"mesh.cells=[{points},{points},{points}]", f"scheme.time={scheme}", "scheme.form=collocated")
    return kind(build(kind.Config, [parse_set(one) for one in settings]))


def between_calls(program: ml.Program) -> list[ml.Program]:
    """Its operations without what it calls, as programs that it would have at either side."""

    def again(operations: Sequence[ml.Operation]) -> None:
        for one in operations:
            one()

    return [ml.Program(partial(again, one.loops)) for one in program.segments]


def cavities(points: int, run: Started, tiles: bool) -> Iterator[dict[str, Any]]:
    """Its steps without Poisson, by both schemes; ``tiles``: also its large loops by all of them."""
    for scheme in SCHEMES:
        case = cavity(points, scheme)
        case.program.run(BEGUN)
        programs = between_calls(case.program)
        found = {"form": "cavity"} | without_poisson(f"{GOAL_FLOW}, {scheme}", programs, run)
        yield found | ({"tiles": list(tried_tiles(programs, run))} if tiles else {})
        del case, programs
        run.device.clear()


def tried_tiles(programs: Sequence[ml.Program], run: Started) -> Iterator[dict[str, Any]]:
    """Every loop over all points, once, by each tile in blocks of each size: milliseconds and share of copy."""
    seen = set[tuple[str, int]]()
    for loop in (one for program in programs for one in program.operations):
        if loop.box is None or loop.counts.elements < loop.box.grid.size or (loop.name, loop.compulsory) in seen:
            continue
        seen.add((loop.name, loop.compulsory))
        for wish in (ml.Schedule("box", variant=one, block=size) for one in TILES for size in BLOCKS):
            by = loop.by(wish)
            executable: Any = by.prepare()
            seconds = run.device.replayed(getattr(executable, "launch", executable))
            yield {"loop": loop.name, "bytes": loop.compulsory, "schedule": str(by.schedule), "ms": seconds * 1e3,
                   "tile": list(tile_of(by.spec)), "share_of_copy": loop.compulsory / seconds / run.copy,
                   "resources": executable.resources.get("pass0", {})}  # fmt: skip


# --- the engine's own choice ------------------------------------------------------------------------------------------


def chosen(flow: Flow) -> str:
    """The layout that vectors have when nobody names one and a program of the step has run."""
    laid = flow.laid(None)
    for program in programs_of(laid):
        program.run(1)
    return str(laid.u.layout)


def verdict(form: str, layout: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How the layout that the engine takes by itself compares with the fastest, by the sum of the five steps."""
    sums: dict[str, float] = {}
    for row in rows:
        if row["form"] == form and "ms" in row:
            sums[row["layout"]] = sums.get(row["layout"], 0.0) + row["ms"]
    best = min(sums, key=sums.__getitem__)
    return {"form": form, "chosen": layout, "fastest": best, "slower_by": sums[layout] / sums[best] - 1.0}


# --- the run ----------------------------------------------------------------------------------------------------------


def form_measured(form: str, options: Any, run: Started) -> None:
    """Everything about one form, added to the result, and printed."""
    result, layouts = run.result, tuple(options.layouts)
    result["differs_from_numpy"][form] = check_small(form, layouts, run.device.backend)
    result["counts"] += counts_of(form)
    flow = Flow(form, (options.points,) * 3)
    for row in rows_of(form, flow, layouts, run):
        result["rows"].append(row)
    result["rows"] = with_shares(result["rows"])
    run.save()
    show_rows([row for row in result["rows"] if row["form"] == form])
    result["wholes"].append({"form": form} | without_poisson(form, programs_of(flow.laid(None)), run))
    if options.auto and "soa" in layouts:
        result["automatic"].append(verdict(form, chosen(flow), result["rows"]))
    run.device.clear()
    run.save()


def options_given(arguments: list[str] | None) -> Any:
    parser = options_of("layouts", __doc__, ("cuda", "cpu", "emulated"))
    parser.add_argument("--points", type=int, help=f"along each axis (default {POINTS}; {FEW} with --quick)")
    parser.add_argument("--layouts", nargs="+", default=LAYOUTS, metavar="LAYOUT", help="aos, soa, aosoa<width>")
    parser.add_argument(
        "--forms", nargs="+", default=FORMS, choices=FORMS, help="general coordinates, or lines along x, y, z"
    )
    parser.add_argument("--quick", action="store_true", help="few points, hardly timed: to see that it works")
    parser.add_argument("--auto", action="store_true", help="also the layout that the engine takes by itself")
    parser.add_argument("--tiles", action="store_true", help="also all tiles of cavity3d's large loops, on a GPU")
    parser.add_argument("--plot", type=Path, help="a picture of the speed-ups over V/S and B/F")
    parser.add_argument("--again", type=Path, metavar="FILE", help="show and draw a result, and measure nothing")
    options = parser.parse_args(arguments)
    options.points = options.points or (FEW if options.quick else POINTS)
    if options.points < 5:
        parser.error(f"--points must be at least 5, got {options.points}")
    return options


def shown(result: dict[str, Any], picture: Path | None) -> int:
    """Print what is behind the times, and draw it; the exit code."""
    show_counts(result)
    if picture:
        draw(result, picture)
        print(f"drawn in {picture}")
    return int(any("wrong" in row for row in result["rows"]))


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    options = options_given(arguments)
    if options.again:
        result = load(options.again)
        show_rows(result["rows"])
        return shown(result, options.plot)
    if device is None and options.device == "emulated":
        device = EmulatedGpu()
    run = started("layouts", options, device, Hasty if options.quick else Cpu)
    if run is None:
        return 2
    run.result |= {"points": options.points, "quick": options.quick, "counts": [], "differs_from_numpy": {},
                   "wholes": [], "automatic": []}  # fmt: skip
    for form in options.forms:
        form_measured(form, options, run)
    run.result["wholes"] += cavities(options.points, run, options.tiles)
    run.finished(goals(run.result))
    return shown(run.result, options.plot)


if __name__ == "__main__":
    sys.exit(main())
