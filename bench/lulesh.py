"""The blast wave of LULESH: its figure of merit, zones (element updates) per second, on the CPU or a device.

    python -m bench.lulesh [--device cpu|cuda] [--sizes 30 60 90] [--cycles 100] [--strategies] [--json FILE]

Before anything is timed, size 10 runs to the end and must take the cycles of the original program and reach its energy.
Then each size is stepped from the start for ``--cycles`` cycles, three times, and the fastest counts; compiling and
setting up are not in it. The original's figure of merit is the same quotient; it repeats the equation of state 1, 2 or
20 times by region, which changes no number: compare with its options ``-r 1 -c 0``, or say so.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import meshloom as ml
from bench.cases import recorded_to_the_end
from bench.measure import surroundings
from bench.record import Record
from bench.truth_cases import LULESH_ENERGY, lulesh_truth
from meshloom.solvers.lulesh import Lulesh
from meshloom.solvers.lulesh.options import LuleshConfig, LuleshMeshOptions

CHECK = {"size": 10, **{name: lulesh_truth()["10"][key] for name, key in
                        (("cycles", "cycle"), ("origin_energy", "origin_energy"))}}  # fmt: skip
BATCHES = 3


def make(size: int, precision: str = "double", forces: str = "auto", order: str = "given") -> Lulesh:
    plain = LuleshConfig()
    mesh = LuleshMeshOptions(size=size, order=order)
    return Lulesh(replace(plain, mesh=mesh, run=replace(plain.run, precision=precision),
                          schedule={} if forces == "auto" else {"forces": forces}))  # fmt: skip


def check() -> dict[str, float]:
    """Run the small case to its end; raises where cycles or energy are not those of the original."""
    last = recorded_to_the_end(make(int(CHECK["size"])))[-1]
    energy, cycles = float(last[0]), int(last[1])
    error = abs(energy / CHECK["origin_energy"] - 1.0)
    if cycles != CHECK["cycles"] or error > LULESH_ENERGY[ml.backend() == "cuda"]:
        raise SystemExit(f"bench.lulesh: {cycles} cycles and origin energy {energy!r}, expected {CHECK}")
    return {"cycles": cycles, "origin_energy": energy, "relative_error": error}


def measure(size: int, cycles: int, precision: str, forces: str) -> dict[str, Any]:
    """Zones per second and what they are made of."""
    case = make(size, precision, forces)
    begin = time.perf_counter()
    case.program.run(2)
    first = time.perf_counter() - begin
    loops = [o for o in dict.fromkeys(case.program.loops) if o.domain.visits_elements]
    fastest = float("inf")
    for _ in range(BATCHES):
        begin = time.perf_counter()
        case.program.run(cycles)
        fastest = min(fastest, (time.perf_counter() - begin) / cycles)
    for operation in case.program.loops:  # each by itself; fills, too, as loops add to what they set
        operation()
    launches = [len(steps) for o in loops if (steps := getattr(o.prepare(), "steps", None)) is not None]
    return {"size": size, "precision": precision, "forces": forces, "zones": size**3, "ms_per_cycle": fastest * 1e3,
            "zones_per_second": size**3 / fastest, "seconds_until_second_cycle": first, "launches": sum(launches),
            "compulsory_bytes": sum(o.counts.bytes.compulsory for o in loops),
            "flops": sum(o.counts.flops * o.set.size for o in loops),
            "loops": {o.name: {"schedule": str(o.schedule), "ms": (o.seconds or 0.0) * 1e3, "flops": o.counts.flops,
                               "resources": getattr(o.prepare(), "resources", None)} for o in loops}}  # fmt: skip


def show(row: dict[str, Any]) -> None:
    share = "".join(f" {name} {one['ms']:.3g}" for name, one in row["loops"].items() if one["ms"] > 0.002)
    print(f"size {row['size']}, {row['precision']}, forces {row['loops']['forces']['schedule']}:"
          f" {row['zones_per_second']:.4g} zones/s, {row['ms_per_cycle']:.4g} ms per cycle; ms by loop:{share}",
          flush=True)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 60, 90])
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--precisions", nargs="+", choices=("double", "single"), default=["double"])
    parser.add_argument("--strategies", action="store_true", help="time the force loop by every strategy, too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if reason := ml.backends()[options.device]:
        print(f"bench.lulesh: back end {options.device} cannot be used: {reason}", file=sys.stderr)
        return 2
    ml.use(options.device)
    result: dict[str, Any] = surroundings() | {"benchmark": "lulesh", "device": options.device, "threads": ml.threads()}
    result |= {"check": check(), "runs": []}
    print(f"size {CHECK['size']} takes the original's {CHECK['cycles']} cycles; relative difference of the energy at"
          f" the origin {result['check']['relative_error']:.1e}", flush=True)  # fmt: skip
    for size in options.sizes:
        for precision in options.precisions:
            for forces in ("auto", *(ml.strategies() if options.strategies else ())):
                row = measure(size, options.cycles, precision, forces)
                result["runs"].append(row)
                show(row)
    print(f"written to {Record(result, options.json, options.device).save()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
