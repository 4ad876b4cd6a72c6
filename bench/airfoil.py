"""The whole airfoil iteration on a device: time, launches, share of the compulsory bytes, against the CPU beside it.

    python -m bench.airfoil --device cuda [--i 800 --j 1200] [--json FILE]

One iteration is nine loops (save_soln, then twice adt_calc, res_calc, bres_calc, update), replayed as a CUDA graph.
The limit is the sum of the loops' compulsory bytes at the copy bandwidth measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import meshloom as ml
from bench.measure import surroundings
from bench.race_loop import Cuda
from meshloom.solvers.airfoil import Airfoil, AirfoilConfig, MeshOptions

RESULTS = Path(__file__).parent / "results"


def make(backend: str, i: int, j: int, precision: str, order: str) -> Airfoil:
    ml.use(backend)
    plain = AirfoilConfig()
    mesh = MeshOptions(i=i, j=j, order=order)
    return Airfoil(replace(plain, mesh=mesh, run=replace(plain.run, precision=precision)))


def seconds_per_iteration(case: Airfoil, iterations: int) -> float:
    """The fastest of three batches, after a warm-up."""
    case.program.run(3)
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        case.program.run(iterations)
        best = min(best, (time.perf_counter() - begin) / iterations)
    return best


def loops_of(case: Airfoil) -> list[ml.Loop]:
    return [o for o in case.program.loops if isinstance(o, ml.Loop)]


def measure(backend: str, i: int, j: int, precision: str, order: str, iterations: int) -> dict[str, Any]:
    case = make(backend, i, j, precision, order)
    seconds = seconds_per_iteration(case, iterations)
    loops = loops_of(case)
    launches = [len(steps) for o in loops if (steps := getattr(o.prepare(), "steps", None)) is not None]
    return {"backend": backend, "precision": precision, "order": order, "cells": case.mesh.cells.size,
            "ms": seconds * 1e3, "launches": sum(launches), "threads": ml.threads(),
            "compulsory_bytes": sum(o.counts.bytes.compulsory for o in loops),
            "schedules": {o.name: str(o.schedule) for o in loops}}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda",), default="cuda")
    parser.add_argument("--i", type=int, default=800)
    parser.add_argument("--j", type=int, default=1200)
    parser.add_argument("--orders", nargs="+", default=["given", "hilbert"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if reason := ml.backends()["cuda"]:
        print(f"bench.airfoil needs a CUDA device: {reason}", file=sys.stderr)
        return 2
    copy = Cuda().copy_bandwidth()
    result: dict[str, Any] = surroundings() | {"benchmark": "airfoil", "copy_GBps": copy / 1e9, "runs": []}
    for order in options.orders:
        for precision in ("double", "single"):
            row = measure("cuda", options.i, options.j, precision, order, 50)
            row["share_of_limit"] = row["compulsory_bytes"] / copy / (row["ms"] / 1e3)
            result["runs"].append(row)
            print(f"cuda {precision} {order}: {row['ms']:.4f} ms per iteration, {row['launches']} launches,"
                  f" {row['share_of_limit']:.2f} of the compulsory bytes at copy speed", flush=True)  # fmt: skip
    row = measure("cpu", options.i, options.j, "double", options.orders[0], 3)
    result["runs"].append(row)
    print(f"cpu  double {options.orders[0]}, {row['threads']} threads: {row['ms']:.2f} ms per iteration", flush=True)
    small = measure("cuda", 40, 60, "double", "given", 500)
    small["loops_per_second"] = 9 / (small["ms"] / 1e3)
    result["small"] = small
    print(f"7,200 cells: {small['ms'] * 1e3:.1f} microseconds per iteration, {small['loops_per_second']:.0f} loops/s")
    file = options.json or RESULTS / f"{datetime.now(UTC):%Y-%m-%d}_airfoil_gpu.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
