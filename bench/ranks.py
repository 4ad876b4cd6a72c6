"""Ranks next to threads: the same step of a case, a solver or a stencil on ranks of MPI and on threads of one process,
and what the same bits on any number of ranks cost.

    python -m bench.ranks [--device cpu|cuda] [--cores 2|16] [--only airfoil lulesh] [--set KEY=VALUE] [--json FILE]

Every row is a process or several of them: so many ranks, each with so many threads, that take a step, in the median of
five timings, of which each is the slowest rank's. Set-up is all until two steps are done: making the mesh, cutting it,
compiled code from the cache. Ratios count, since machines are noisy, and what runs first is often slower, whatever it
is: what is compared is run twice, in turn, and the better of both is its row.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.grid import second_difference
from bench.measure import surroundings
from bench.node_memory import memory_mb, watch
from bench.record import Record
from bench.report import Goal, goal_table, rows_table
from meshloom.config import build, parse_set
from meshloom.solvers import find_case

TIMINGS, SECONDS = 5, 300
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # what Open MPI's launcher wants there
Timed = tuple[str, tuple[str, ...], int]  # a case or a script, its settings, steps of a timing
CASES: dict[int, dict[str, Timed]] = {  # by cores
    2: {"airfoil": ("airfoil", ("mesh.i=400", "mesh.j=600"), 20), "lulesh": ("lulesh", ("mesh.size=45",), 10),
        "onera_m6": ("onera_m6", ("mesh.level=1", "time.method=explicit"), 4), "cg": ("cg", ("1000",), 20),
        "stencil": ("stencil", ("192",), 5)},
    16: {"airfoil": ("airfoil", ("mesh.i=800", "mesh.j=1200"), 20)},
}  # fmt: skip
#: By cores, what is compared: ranks x threads, the first one with all others. On a GPU ranks share it.
WAYS = {2: ((1, 2), (2, 1), (1, 1)), 16: ((1, 16), (16, 1), (4, 4))}
SHARED = ((1, 1), (2, 1))
AIMS = {("airfoil", (2, 1), (1, 2)): 1.05, ("lulesh", (2, 1), (1, 2)): 1.08, ("onera_m6", (2, 1), (1, 2)): 1.08,
        ("cg", (2, 1), (1, 2)): 1.15, ("stencil", (2, 1), (1, 2)): 1.08, ("airfoil", (16, 1), (1, 16)): 1.05,
        ("airfoil", (4, 4), (1, 16)): 1.0}  # fmt: skip


#: What 4 ranks may take, over one: memory of each after set-up, and of their node until then, and the time until it is
#: done.
SET_UP = {"after_set_up_mb": ("memory of a rank after set-up", 0.35),
          "node_set_up_mb": ("memory of the node during set-up", 2.0), "set_up_seconds": ("set-up", 1.5)}  # fmt: skip
#: What is only made ready, by NumPy, which plans and compiles nothing: what is left is the mesh, and cutting it into
#: halos, exchange lists and maps of what is here. On 1 rank and on 4, which may take so many seconds for that.
READY, CUT = "airfoil made ready by NumPy", ("airfoil", ("mesh.i=800", "mesh.j=1200"), 0)
CUT_SECONDS = 3.0
#: On over off, of an iteration on one rank, by back end: of cases, and of the solver, which is sums for the most part.
SAME_BITS = {"cpu": 1.1, "numpy": 1.1, "cuda": 1.02}
SAME_BITS_CG = {"cpu": 1.25, "numpy": 1.25, "cuda": 1.1}
Steps = tuple[Callable[[int], object], str]  # what takes so many, and the size of it


# ----- what is timed ------------------------------------------------------------------------------------------------
@ml.kernel
def conduct(area: ml.Read, m: ml.Inc):
    m[0, 0] += 1.01 * area
    m[1, 1] += 1.01 * area
    m[0, 1] -= area
    m[1, 0] -= area


def conjugate_gradients(side: str) -> Steps:
    """Iterations with a matrix through the faces of a mesh, assembled there."""
    mesh = ml.generate.box((int(side), int(side)), cells="quad")
    cells, both = mesh.cells, mesh.face_cells
    matrix, area = ml.Matrix(cells, through=both), mesh.faces.field("area")
    area.fill(1.0)
    conduct(mesh.faces, area, matrix[both])
    x, b = cells.field("x"), cells.field("b", data=lambda points: np.sin(7.0 * points[:, 0]) * points[:, 1])
    solver = ml.linalg.ConjugateGradients(matrix)

    def iterate(count: int) -> None:
        x.fill(0.0)
        report = solver.solve(x, b, tol=1e-30, at_most=count)
        assert report.iterations == count, report

    return iterate, f"{len(cells):,} rows, {matrix.entries.size:,} entries"


def stencil(side: str) -> Steps:
    """Steps of a program: second differences of fourth order, there and back again; 13 points each."""
    grid = ml.Grid((int(side),) * 3, periodic=True)
    kernel, points = second_difference(3, 2), grid.star(2)
    u, v = grid.field("u", data=np.random.default_rng(1).random(grid.shape)), grid.field("v")

    @ml.program
    def step() -> None:
        kernel(grid, u[points], v)
        kernel(grid, v[points], u)

    return step.run, f"{grid.size:,} points"


def steps_of_case(name: str, *settings: str) -> Steps:
    kind = find_case(name)
    case = kind(build(kind.Config, [parse_set(one) for one in settings]))
    return case.program.run, case.size_text()


SCRIPTS: dict[str, Callable[[str], Steps]] = {"cg": conjugate_gradients, "stencil": stencil}


def worker(device: str, reproducible: str, name: str, steps: str, *settings: str) -> None:
    """On a rank: time steps of a case; the root prints what all of them took."""
    ml.use(device, reproducible=reproducible == "on")
    together = ml.world.on_node(os.getpid(), "its process")
    most_of_node = watch(together) if ml.world.node_rank == 0 else float
    begin = time.perf_counter()
    run, size = SCRIPTS[name](*settings) if name in SCRIPTS else steps_of_case(name, *settings)
    ml.world.gathered(np.zeros(1))  # all begin together
    began_cutting = time.perf_counter()
    run(2 if int(steps) else 0)
    set_up = np.array([[time.perf_counter() - begin, time.perf_counter() - began_cutting, memory_mb(), 0.0]])
    ml.world.gathered(np.zeros(1))  # all have come so far
    set_up[0, 3] = most_of_node()
    took = []
    for _ in range(TIMINGS if int(steps) else 0):
        ml.world.gathered(np.zeros(1))  # all begin together
        begin = time.perf_counter()
        run(int(steps))
        if device == "cuda":
            import cupy

            cupy.cuda.Device().synchronize()
        mine = np.array([(time.perf_counter() - begin) / int(steps)])
        took.append(max(float(one[0]) for one in ml.world.gathered(mine)))
    memory = np.array([float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)])
    most = max(float(one[0]) for one in ml.world.gathered(memory))
    slowest, cutting, largest, of_node = np.concatenate(ml.world.gathered(set_up)).max(axis=0).tolist()
    times = {"seconds": took, "set_up_seconds": slowest} if took else {"cut_seconds": cutting}
    if ml.world.rank == 0:
        print("answer " + json.dumps(times | {"peak_mb_of_a_rank": most / 1024, "size": size,
                                              "after_set_up_mb": largest, "node_set_up_mb": of_node}))  # fmt: skip


@cache
def launcher() -> tuple[str, ...] | None:
    """What starts ranks here: that of this Python, or of the machine; None where there is none."""
    own = Path(sys.executable).with_name("mpirun")
    found = str(own) if own.exists() else shutil.which("mpirun")
    if found is None:
        return None
    says = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    return found, *(("--oversubscribe", "--bind-to", "none") if "Open MPI" in says else ())


def timed(way: tuple[int, int], device: str, reproducible: bool, case: Timed) -> dict[str, Any]:
    """A row: so many ranks with so many threads each."""
    ranks, threads = way
    name, settings, steps = case
    start = launcher()
    assert start is not None or ranks == 1
    words = [sys.executable, "-m", "bench.ranks", "--worker", device, "on" if reproducible else "off", name, str(steps)]
    environment = os.environ | AS_ROOT | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([*([*(start or ()), "-n", str(ranks)] if ranks > 1 else ()), *words, *settings],
                          capture_output=True, text=True, timeout=SECONDS, env=environment)  # fmt: skip
    answers = [line for line in done.stdout.splitlines() if line.startswith("answer ")]
    row: dict[str, Any] = {"case": name, "ranks": ranks, "threads": threads, "reproducible": reproducible,
                           "settings": list(settings)}  # fmt: skip
    if done.returncode or not answers:
        return row | {"problem": " ".join(done.stderr.split())[-300:]}
    found = json.loads(answers[-1].removeprefix("answer "))
    return row | found | ({"ms": 1e3 * statistics.median(found["seconds"])} if "seconds" in found else {})


def compared(way: tuple[int, int], device: str, case: Timed) -> list[dict[str, Any]]:
    """The rows of a case with the same bits and without, neither of which is always first."""
    taken: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for same in (True, False, False, True):
        taken[same].append(timed(way, device, same, case))
    return [next((r for r in rows if "problem" in r), min(rows, key=lambda r: r.get("ms", 0.0)))
            for rows in taken.values()]  # fmt: skip


def goals(rows: list[dict[str, Any]], device: str) -> list[Goal]:
    """Ranks over threads, and the same bits on and off, as far as rows tell. Ranks that share a GPU have no goal."""
    ms = {(r["case"], (r["ranks"], r["threads"]), r["reproducible"]): r["ms"] for r in rows if "ms" in r}
    found = []
    for (name, way, over), aim in AIMS.items():
        if (name, way, True) in ms and (name, over, True) in ms:
            named = f"{name}, {way[0]} ranks x {way[1]} threads over {over[0]} x {over[1]}"
            found.append(Goal(named, ms[name, way, True] / ms[name, over, True], "at most", aim))
    if device != "cuda" and ("airfoil", (2, 1), True) in ms and ("airfoil", (1, 1), True) in ms:
        faster = ms["airfoil", (1, 1), True] / ms["airfoil", (2, 1), True]
        found.append(Goal("airfoil, speed-up of 2 ranks over 1, one thread each", faster, "at least", 1.85))
    found += _set_up_goals(rows)
    found += [Goal(f"{READY}, {r['size']}: cutting for {r['ranks']} ranks, halos and lists included",
                   r["cut_seconds"], "at most", CUT_SECONDS, " s")
              for r in rows if "cut_seconds" in r and r["ranks"] > 1]  # fmt: skip
    for name, way, same in ms:
        if same and (name, way, False) in ms:
            named = f"{name}, same bits on over off, {way[0]} ranks x {way[1]} threads"
            cost = ms[name, way, True] / ms[name, way, False]
            aims = SAME_BITS_CG if name == "cg" else SAME_BITS
            found += [Goal(named, cost, "at most", aims[device])] if way[0] == 1 else []
    return found


def _set_up_goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """Of the airfoil, as far as rows tell."""
    found = []
    for (key, (what, aim)), name in product(SET_UP.items(), ("airfoil", READY)):
        of = {r["ranks"]: r[key] for r in rows if r["case"] == name and r["reproducible"] and key in r}
        if {1, 4} <= of.keys():
            found.append(Goal(f"{name}, {what}, 4 ranks over 1", of[4] / of[1], "at most", aim))
    return found


def text_lines(result: dict[str, Any]) -> list[str]:
    """A table of the rows, and one of the aims."""
    rows = [(r["case"], r.get("size", ""), str(r["ranks"]), str(r["threads"]), "on" if r["reproducible"] else "off",
             f"{r['ms']:.3g}" if "ms" in r else r.get("problem", "-"), f"{r.get('peak_mb_of_a_rank', 0):.0f}")
            for r in result["rows"]]  # fmt: skip
    head = ("case", "size", "ranks", "threads of each", "same bits", "ms for a step", "MB of a rank, at most")
    return [*rows_table(head, rows), "", *goal_table(goals(result["rows"], result["backend"]))]


def matrix_lines(result: dict[str, Any]) -> list[str]:
    """What ``tests.dist.matrix`` found, by back end and number of ranks: cases that are the same as without ranks."""
    numbers = sorted({r["ranks"] for r in result["rows"]})
    rows = []
    for backend in dict.fromkeys(r["backend"] for r in result["rows"]):
        by_number = [[r for r in result["rows"] if (r["backend"], r["ranks"]) == (backend, n)] for n in numbers]
        counts = [(sum(r["cases"] for r in of), sum(len(r["other"]) for r in of)) for of in by_number]
        rows.append((f"`{backend}`", *(f"{cases - other:,} of {cases:,}" for cases, other in counts)))
    return rows_table(("back end", *(f"{n} rank{'s' * (n > 1)}" for n in numbers)), rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ranks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda", "numpy"), default="cpu")
    parser.add_argument("--cores", type=int, choices=tuple(WAYS), default=2)
    parser.add_argument("--only", nargs="+", choices=(*CASES[2], "ready"), default=(*CASES[2], "ready"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the cases")
    parser.add_argument("--json", type=Path, help="result file (default: a dated one in bench/results/)")
    options = parser.parse_args(arguments)
    if launcher() is None:
        print("bench.ranks needs mpirun: pip install '.[mpich]', or an MPI of the machine", file=sys.stderr)
        return 2
    if reason := ml.backends()[options.device]:
        print(f"bench.ranks cannot use {options.device}: {reason}", file=sys.stderr)
        return 2
    result = surroundings() | {"benchmark": "ranks", "backend": options.device, "cores": options.cores, "rows": []}
    record = Record(result, options.json, options.device)
    ways = SHARED if options.device == "cuda" else WAYS[options.cores]
    chosen = [one for name, one in CASES[options.cores].items() if name in options.only]
    ready = [(1, 1), (4, 1)] if "ready" in options.only else []

    def tell(rows: list[dict[str, Any]]) -> None:
        result["rows"] += rows
        result["goals"] = [one.as_json() for one in goals(result["rows"], options.device)]
        record.save()
        for row in rows:
            took = f"{row['ms']} ms" if "ms" in row else row.get("problem", f"{row.get('cut_seconds')} s")
            print("{case}, {ranks} x {threads}, same bits {reproducible}: ".format(**row) + took, flush=True)

    for (name, settings, steps), way in product(chosen, ways):
        chosen_too = () if name in SCRIPTS else options.set
        tell(compared(way, options.device, (name, (*settings, *chosen_too), steps)))
    for way in ready:
        tell([timed(way, "numpy", True, CUT) | {"case": READY}])
    print("\n".join(text_lines(result)))
    print(f"written to {record.file}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        sys.exit(main())
