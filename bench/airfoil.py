"""The whole airfoil iteration on a device: time, launches, share of the compulsory bytes, against the CPU next to it.

    python -m bench.airfoil --device cuda [--i 800 --j 1200] [--orders given hilbert shuffled] [--json FILE]

One iteration is nine loops (save_soln, then twice adt_calc, res_calc, bres_calc, update), replayed as a CUDA graph,
loop by loop and fused. The limit is the sum of the loops' compulsory bytes at the copy bandwidth measured in the same
run; a fused iteration moves less, so it may pass it. ``shuffled``: all numbers of the mesh are random before it is
handed over, and it is arranged by itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.measure import surroundings
from bench.race_loop import Cuda
from bench.record import Record
from meshloom.case import PRECISIONS as CASE_PRECISIONS
from meshloom.case import Case
from meshloom.mesh.permutation import SETS, Permutation
from meshloom.mesh.reorder import renumbered
from meshloom.solvers.airfoil import Airfoil, AirfoilConfig

SHUFFLED = "shuffled"
PRECISIONS = ("double", "single")


def shuffled(mesh: ml.Mesh, seed: int = 0) -> ml.Mesh:
    """The same mesh after nodes, cells, faces and boundary faces got random numbers, each set on its own."""
    rng = np.random.default_rng(seed)
    drawn: dict[str, np.ndarray] = {name: rng.permutation(getattr(mesh, name).total) for name in SETS}
    arrays: dict[str, Any] = renumbered(mesh, Permutation(**drawn, flipped=np.zeros(len(mesh.faces), bool)))
    return ml.Mesh.from_parts(groups=mesh.groups, **arrays)


def mesh_of(i: int, j: int, order: str) -> ml.Mesh:
    """The mesh in an order."""
    mesh = ml.generate.naca0012(i, j)
    return shuffled(mesh).arranged() if order == SHUFFLED else mesh.arranged(order)


def make(backend: str, mesh: ml.Mesh, precision: str) -> Airfoil:
    ml.use(backend)
    plain = AirfoilConfig()
    return Airfoil(replace(plain, run=replace(plain.run, precision=precision)), mesh)


def seconds_per_iteration(case: Case, iterations: int) -> float:
    """The fastest of three batches, after a warm-up."""
    case.program.run(3)
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        case.program.run(iterations)
        best = min(best, (time.perf_counter() - begin) / iterations)
    return best


def loops_of(case: Case) -> list[ml.Loop]:
    return [o for o in case.program.loops if o.domain.visits_elements]


def measure(case: Case, iterations: int, *, fuse: bool) -> dict[str, Any]:
    """One row: the case stepped loop by loop, or fused."""
    case.program.fuse = fuse
    seconds = seconds_per_iteration(case, iterations)
    loops, precision = loops_of(case), str(CASE_PRECISIONS[case.config.run.precision])
    return {"backend": loops[0].backend.name, "precision": precision, "cells": case.mesh.cells.size,
            "numbering": str(case.mesh.arrangement), "fused": fuse, "ms": seconds * 1e3,
            "launches": case.program.launches, "threads": ml.threads(),
            "compulsory_bytes": sum(o.counts.bytes.compulsory for o in loops), "fused_bytes": fused_bytes(case.program),
            "schedules": {o.name: str(o.schedule) for o in loops}}  # fmt: skip


def fused_bytes(program: ml.Program) -> int | None:
    """Compulsory bytes of the fused loops of one iteration."""
    steps = program.fused_steps
    return sum(step.compulsory for step in steps) if steps else None


def on_device(mesh: ml.Mesh, order: str, copy: float) -> Iterator[dict[str, Any]]:
    """Both precisions, loop by loop and fused."""
    for precision in PRECISIONS:
        case = make("cuda", mesh, precision)
        for fuse in (False, True):
            row = {"order": order} | measure(case, 50, fuse=fuse)
            row["share_of_limit"] = row["compulsory_bytes"] / copy / (row["ms"] / 1e3)
            if fuse:
                row["share_of_fused_limit"] = row["fused_bytes"] / copy / (row["ms"] / 1e3)
            how = "fused" if fuse else "loop by loop"
            print(f"cuda {precision} {order}, {how}: {row['ms']:.4f} ms per iteration, {row['launches']} launches,"
                  f" {row['share_of_limit']:.2f} of the compulsory bytes at copy speed", flush=True)  # fmt: skip
            yield row
        del case
        Cuda().clear()


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The ratios that goals are about, by order and precision."""
    ms = {(r["order"], r["precision"], r["fused"]): r["ms"] for r in rows}
    orders = list(dict.fromkeys(r["order"] for r in rows))
    found: dict[str, Any] = {
        "loops_by_fused": {f"{o} {p}": ms[o, p, False] / ms[o, p, True] for o, p, f in ms if f},
        "double_by_single": {f"{o} {'fused' if f else 'loops'}": ms[o, "float64", f] / ms[o, "float32", f]
                             for o in orders for f in (False, True)},
    }  # fmt: skip
    if {SHUFFLED, "given"} <= set(orders):
        found["shuffled_by_given"] = {f"{p} {'fused' if f else 'loops'}": ms[SHUFFLED, p, f] / ms["given", p, f]
                                      for o, p, f in ms if o == SHUFFLED}  # fmt: skip
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda",), default="cuda")
    parser.add_argument("--i", type=int, default=800)
    parser.add_argument("--j", type=int, default=1200)
    parser.add_argument("--orders", nargs="+", default=["given", "hilbert", SHUFFLED])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if reason := ml.backends()["cuda"]:
        print(f"bench.airfoil needs a CUDA device: {reason}", file=sys.stderr)
        return 2
    copy = Cuda().copy_bandwidth()
    result: dict[str, Any] = surroundings() | {"benchmark": "airfoil", "copy_GBps": copy / 1e9, "runs": []}
    record = Record(result, options.json, "cuda")
    for order in options.orders:
        mesh = mesh_of(options.i, options.j, order)
        for one in on_device(mesh, order, copy):
            result["runs"].append(one)
            record.save()  # what there is, should it be stopped
        if order == options.orders[0]:
            row = {"order": order} | measure(make("cpu", mesh, "double"), 3, fuse=False)
            result["cpu"] = row
            print(f"cpu double {order}, {row['threads']} threads: {row['ms']:.2f} ms per iteration", flush=True)
    result["ratios"] = summary(result["runs"])
    for name, values in result["ratios"].items():
        print(f"{name}: " + ", ".join(f"{k} {v:.3f}" for k, v in values.items()), flush=True)
    case = make("cuda", mesh_of(40, 60, "given"), "double")
    result["small"] = [row | {"loops_per_second": 9e3 / row["ms"]}
                       for row in (measure(case, 2000, fuse=fuse) for fuse in (False, True))]  # fmt: skip
    for row in result["small"]:
        print(f"7,200 cells, fused {row['fused']}: {row['ms'] * 1e3:.1f} microseconds per iteration,"
              f" {row['loops_per_second']:.0f} loops/s", flush=True)  # fmt: skip
    print(f"written to {record.save()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
