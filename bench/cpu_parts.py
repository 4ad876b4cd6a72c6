"""The parts of the CPU benchmark besides the step itself: strategies, overheads, starts, plans, orderings, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import meshloom as ml
from bench.measure import fastest, seconds

if TYPE_CHECKING:
    from meshloom.solvers.airfoil import Airfoil

PARTITIONERS = ("kaminpar", "metis")  # optional, and excepted from the limit on orderings

# A process counts the memory of the one that started it until it becomes its own program: the launcher must be small.
LAUNCHER = """
import resource, subprocess, sys, time
start = time.perf_counter()
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""


def strategies(case: Airfoil, *, rounds: int, target: float) -> dict[str, dict[str, Any]]:
    """res_calc alone under every strategy: seconds per call, the schedule in force, or why it declined.

    Every strategy's residual is compared with the automatic one's before any is timed.
    """
    from meshloom.solvers.airfoil import kernels

    mesh, rng = case.mesh, np.random.default_rng(1)
    faces, cells = mesh.face_cells, len(mesh.cells)
    adt = mesh.cells.field("adt", data=1.0 + rng.random(cells))
    res = mesh.cells.field("res", 4)
    arguments = (mesh.coordinates[mesh.face_nodes], case.q[faces], adt[faces], res[faces])
    res_calc = kernels(case.gas).res_calc
    loops = {name: res_calc.loop(mesh.faces, *arguments, schedule=ml.Schedule(strategy=name))
             for name in ("auto", *ml.strategies())}  # fmt: skip
    usable = {name: loop for name, loop in loops.items() if loop.applies}
    reference = None
    for name, loop in usable.items():
        res.fill(0.0)
        loop()
        reference = res.numpy() if reference is None else reference
        np.testing.assert_allclose(res.numpy(), reference, rtol=1e-10, atol=1e-13, err_msg=name)
    times = fastest({name: _repeated(loop) for name, loop in usable.items()}, rounds=rounds, target=target)
    return {
        name: {"seconds": times[name], "schedule": str(loop.schedule)} if name in times else {"declined": loop.reason}
        for name, loop in loops.items()
    }


def _repeated(call: Callable[[], object]) -> Callable[[int], None]:
    def work(n: int) -> None:
        for _ in range(n):
            call()

    return work


def overheads(*, rounds: int = 7) -> dict[str, float]:
    """Seconds per loop over eight elements: called by name, as a prepared loop, and inside a program."""
    few = ml.Set(8, "few")
    other = ml.Set(8, "other")
    link = ml.Map(few, other, np.arange(16).reshape(8, 2) % 8, "link")
    a, b = few.field("a", data=np.ones(8)), other.field("b")

    @ml.kernel
    def tiny(a: ml.Read, b: ml.Inc):
        b[0] += a
        b[1] -= a

    loop = tiny.loop(few, a, b[link])
    per_program = 64

    @ml.program
    def many() -> None:
        for _ in range(per_program):
            tiny(few, a, b[link])

    variants = {
        "eager": _repeated(lambda: tiny(few, a, b[link])),
        "loop": _repeated(loop),
        "program": lambda n: many.run(n),
    }
    times = fastest(variants, rounds=rounds, target=0.1)
    return {**times, "program": times["program"] / per_program}


def starts(*, quick: bool = False) -> dict[str, float]:
    """Seconds of the airfoil case from the command line: the first run with an empty cache, to its end with all its
    output, and a second start with one iteration and no output (an upper bound of the time to the first iteration)."""
    small = ("--set", "mesh.i=8", "--set", "mesh.j=12", "--iterations", "20") if quick else ()
    bare = ("--set", "output.vtu=false", "--set", "output.plot=false", "--iterations", "1")
    with tempfile.TemporaryDirectory() as folder:
        place = {"MESHLOOM_CACHE": os.path.join(folder, "cache")}
        first = command_line("run", "airfoil", "--quiet", *small, "--out", f"{folder}/first", **place)
        again = [
            command_line("run", "airfoil", "--quiet", *small, *bare, "--out", f"{folder}/{n}", **place)
            for n in range(3)
        ]
        return {"first_run": first["seconds"], "second_start": min(run["seconds"] for run in again)}


def memory(i: int, j: int, *, iterations: int = 10) -> dict[str, float]:
    """Peak resident bytes of the airfoil case from the command line, all output included."""
    with tempfile.TemporaryDirectory() as folder:
        size = ("--set", f"mesh.i={i}", "--set", f"mesh.j={j}", "--iterations", str(iterations))
        run = command_line("run", "airfoil", "--quiet", *size, "--out", f"{folder}/run")
        return {"cells": 3 * i * j, "peak_bytes": run["peak_bytes"], "seconds": run["seconds"]}


def command_line(*words: str, **environment: str) -> dict[str, float]:
    """Runs ``meshloom words`` in a process of its own: wall seconds and peak resident bytes."""
    launcher = [sys.executable, "-c", LAUNCHER, sys.executable, "-m", "meshloom", *words]
    done = subprocess.run(launcher, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"meshloom {' '.join(words)} failed with status {done.returncode}: {done.stderr.strip()}")
    taken, peak = done.stdout.split()
    return {"seconds": float(taken), "peak_bytes": float(peak) * (1 if sys.platform == "darwin" else 1024)}


def orderings(mesh: ml.Mesh, *, partitioners: bool = False) -> dict[str, float]:
    """Seconds of every ordering of the interior faces."""
    from meshloom import order

    indices, cells = mesh.face_cells.indices, len(mesh.cells)
    middles = mesh.coordinates.numpy()[mesh.face_nodes.indices].mean(axis=1)
    order.order_elements("rcm", indices[:100], cells)  # compiles
    wanted = [name for name in order.names() if partitioners or name not in PARTITIONERS]
    return {name: seconds(partial(order.order_elements, points=middles), name, indices, cells) for name in wanted}


def plans(mesh: ml.Mesh) -> dict[str, float]:
    """Seconds to build the plan of res_calc for every strategy, in the mesh's order, with its own block size."""
    from meshloom.schedule.plan.plan import Topology
    from meshloom.schedule.strategies import names, strategy
    from meshloom.target import CPU

    indices, cells = mesh.face_cells.indices, len(mesh.cells)

    def build(name: str, rows: int) -> None:
        chosen = strategy(name)
        chosen.plan(Topology(rows, {0: (indices[:rows], cells)}, {0: 0}), CPU.numbers.block(name))

    times = {}
    for name in names():
        build(name, 100)  # compiles
        times[name] = seconds(build, name, len(indices))
    return times
