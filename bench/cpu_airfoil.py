"""The airfoil step on the CPU: Meshloom next to hand-written C++, numba and NumPy, in one run on one machine.

    python -m bench.cpu_airfoil                      all of it, written to bench/results/ (some minutes)
    python -m bench.cpu_airfoil --order hilbert      the step on a renumbered mesh
    python -m bench.cpu_airfoil --quick              a tiny mesh, to see that everything works

All variants take the same mesh in the same order, are checked against each other (rms to 1e-10) and then timed in
turns; the fastest round of each counts. One step is save_soln and twice adt_calc, res_calc, bres_calc, update.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench import cpu_parts, report
from bench.measure import fastest, surroundings
from bench.peers import case as peer_case
from bench.peers import cpp, numpy_airfoil
from bench.record import Record
from bench.report import Goal
from meshloom.solvers.airfoil import Airfoil, AirfoilConfig, AirfoilMeshOptions


class Meshloom:
    """The subject: the airfoil case as it is shipped, on the cpu back end with the automatic schedule."""

    name = "meshloom"

    def __init__(self, case: Airfoil):
        self.case = case

    def reset(self) -> None:
        self.case.q.assign(np.tile(self.case.gas.free_stream, (len(self.case.mesh.cells), 1)))

    def advance(self, iterations: int) -> np.ndarray:
        recorded = self.case.program.run(iterations, record=(self.case.rms,))
        return self.case.monitor_rows(recorded)[:, 0]


def numba_peers(arrays: peer_case.Airfoil, threads: int) -> list[peer_case.Peer]:
    """Those with numba, or none where it is not installed."""
    try:
        from bench.peers import numba_airfoil
    except ImportError:
        return []
    blocks = [numba_airfoil.NumbaBlockColor(arrays, threads, block) for block in cpp.BLOCK_SIZES]
    return [*blocks, numba_airfoil.NumbaGather(arrays, threads)]


def contestants(case: Airfoil) -> dict[str, list[peer_case.Peer]]:
    """All variants by kind; the first is Meshloom."""
    arrays, threads = peer_case.Airfoil.from_mesh(case.mesh), ml.threads()
    return {
        "Meshloom": [Meshloom(case)],
        "C++ block coloring": [cpp.CppBlockColor(arrays, threads, block) for block in cpp.BLOCK_SIZES],
        "C++ gather": [cpp.CppGather(arrays, threads)],
        "C++ fused": [cpp.CppFused(arrays, threads, chunk) for chunk in cpp.CHUNKS],
        "numba": numba_peers(arrays, threads),
        "NumPy": [numpy_airfoil.NumPy(arrays, scatter) for scatter in numpy_airfoil.SCATTERS],
    }


def measure_step(case: Airfoil, *, rounds: int, target: float, iterations: int) -> dict[str, Any]:
    """Seconds per step of every variant, the best of each kind, and how well they agree."""
    kinds = contestants(case)
    everyone = [peer for peers in kinds.values() for peer in peers]
    agreement = peer_case.check_agreement(everyone, iterations)
    times = fastest({peer.name: peer.advance for peer in everyone}, rounds=rounds, target=target)
    best = {kind: min((p.name for p in peers), key=times.__getitem__) for kind, peers in kinds.items() if peers}
    return {"agreement": agreement, "iterations_compared": iterations, "seconds": times, "best": best}


def step_goals(step: dict[str, Any]) -> list[Goal]:
    times, best = step["seconds"], step["best"]
    own = times[best["Meshloom"]]
    by_hand = min(times[best["C++ block coloring"]], times[best["C++ gather"]])
    fused = times[best["C++ fused"]]
    goals = [
        Goal("step: Meshloom / best hand-written C++", own / by_hand, "at most", 1.05),
        Goal("step: Meshloom / hand-fused C++", own / fused, "at most", 1.10),
        Goal("step: hand-fused C++ / C++ loop by loop, the limit of fusion", fused / by_hand, "at most", 1.0),
    ]
    if "numba" in best:
        goals.append(Goal("step: best numba / Meshloom", times[best["numba"]] / own, "at least", 1.5))
    return [*goals, Goal("step: best NumPy / Meshloom", times[best["NumPy"]] / own, "at least", 20.0)]


def part_goals(result: dict[str, Any]) -> list[Goal]:
    overhead, start, memory = result["overheads"], result["starts"], result["memory"]
    orderings = {k: v for k, v in result["orderings"].items() if k not in cpu_parts.PARTITIONERS}
    plan, ordering = (max(times, key=times.__getitem__) for times in (result["plans"], orderings))
    millions = result["large_edges"] / 1e6
    return [
        Goal("overhead of an eager loop", 1e6 * overhead["eager"], "at most", 15.0, " µs"),
        Goal("overhead of a loop in a program", 1e6 * overhead["program"], "at most", 1.0, " µs"),
        Goal("first run of the airfoil case, compiling included", start["first_run"], "at most", 15.0, " s"),
        Goal("second start, until the first iteration", start["second_start"], "at most", 2.0, " s"),
        Goal(f"slowest plan ({plan}), {millions:.1f} M edges", result["plans"][plan], "at most", 5.0, " s"),
        Goal(f"slowest ordering ({ordering}), {millions:.1f} M edges", orderings[ordering], "at most", 5.0, " s"),
        Goal(f"peak memory, {memory['cells']:,} cells", memory["peak_bytes"] / 1e9, "at most", 1.5, " GB"),
    ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The whole benchmark as one JSON-able result."""
    rounds, target = (2, 0.01) if options.quick else (options.rounds, 0.15)
    ml.use("cpu", threads=options.threads)
    mesh = ml.generate.naca0012(options.i, options.j).reordered(options.order)  # for the peers too
    case = Airfoil(AirfoilConfig(mesh=AirfoilMeshOptions(i=options.i, j=options.j)), mesh)
    result = surroundings() | {
        "benchmark": "cpu_airfoil",
        "mesh": {"i": options.i, "j": options.j, "order": options.order,
                 "cells": len(case.mesh.cells), "edges": len(case.mesh.faces)},
        "threads": ml.threads(),
        "schedules": {loop.name: str(loop.schedule) for loop in case.program.loops if hasattr(loop, "schedule")},
        "step": measure_step(case, rounds=rounds, target=target, iterations=options.iterations),
    }  # fmt: skip
    goals = step_goals(result["step"])
    if not options.step_only:
        result["strategies"] = cpu_parts.strategies(case, rounds=rounds, target=target)
        result["overheads"] = cpu_parts.overheads(rounds=rounds)
        result["starts"] = cpu_parts.starts(quick=options.quick)
        result["memory"] = cpu_parts.memory(options.i, options.j)
        large = ml.generate.naca0012(2 * options.i, 2 * options.j)
        result["large_edges"] = len(large.faces)
        result["plans"] = cpu_parts.plans(large)
        result["orderings"] = cpu_parts.orderings(large)
        goals += part_goals(result)
    return result | {"goals": [goal.as_json() for goal in goals]}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cpu_airfoil", description=__doc__.split("\n")[0])
    parser.add_argument("--i", type=int, default=400, help="cells along the surface (default %(default)s)")
    parser.add_argument("--j", type=int, default=600, help="cells outwards (default %(default)s)")
    parser.add_argument("--order", default="given", help="ordering of the mesh (default %(default)s)")
    parser.add_argument("--threads", type=int, default=None, help="threads of all variants (default: all cores)")
    parser.add_argument("--iterations", type=int, default=10, help="compared before timing (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of timing (default %(default)s)")
    parser.add_argument("--step-only", action="store_true", help="without strategies, overheads, starts")
    parser.add_argument("--quick", action="store_true", help="tiny mesh and short rounds: a check, not a measurement")
    parser.add_argument("--json", type=Path, default=None, help="result file (default: a dated one in bench/results/)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.i, options.j = min(options.i, 8), min(options.j, 12)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    result = measure(options)
    report.print_tables(result)
    if options.json or not options.quick:
        print(f"written to {Record(result, options.json).save()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
