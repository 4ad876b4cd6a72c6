"""The reference run: the 400x600 airfoil to iteration 1000, against the residuals of the original program.

    python -m bench.airfoil_reference [--backend cpu|cuda|numpy] [--precision double|single] [--json FILE]

Compares at the iterations the original printed, writes the result with date and device, and fails above 1e-7 relative
(double) or 1e-3 (single, whose published figure is a sum in single precision).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import meshloom as ml
from bench.measure import surroundings
from bench.record import Record
from meshloom.solvers.airfoil import Airfoil, AirfoilConfig, AirfoilMeshOptions

TRUTH = Path(__file__).parent.parent / "tests" / "data" / "airfoil_rms.json"
PUBLISHED = {"double": 0.0001060114637578, "single": 0.000105987}
TOLERANCE = {"double": 1e-7, "single": 1e-3}


def reference_run(backend: str, precision: str, iterations: int = 1000) -> dict:
    """Run, and compare with the truth at every iteration it knows."""
    ml.use(backend)
    plain = AirfoilConfig()
    case = Airfoil(replace(plain, mesh=AirfoilMeshOptions(i=400, j=600), run=replace(plain.run, precision=precision)))
    begin = time.perf_counter()
    rms = case.monitor_rows(case.program.run(iterations, record=case.recorded))[:, 0]
    seconds = time.perf_counter() - begin
    truth = json.loads(TRUTH.read_text())["400x600"]
    rows = {k: {"rms": float(rms[int(k) - 1]), "original": v, "relative": abs(float(rms[int(k) - 1]) / v - 1)}
            for k, v in truth.items() if int(k) <= iterations}  # fmt: skip
    return {"benchmark": "airfoil_reference", "backend": backend, "precision": precision, "threads": ml.threads(),
            "seconds_per_iteration": seconds / iterations, "iterations": rows,
            "schedules": {o.name: str(o.schedule) for o in case.program.loops if o.domain.visits_elements}}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--precision", choices=("double", "single"), default="double")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    result = surroundings() | reference_run(options.backend, options.precision)
    last = result["iterations"]["1000"]["rms"]
    published = PUBLISHED[options.precision]
    result |= {"published": published, "error": abs(last / published - 1)}
    for k, row in result["iterations"].items():
        print(f"{k:>5}  {row['rms']:.16f}  {row['relative']:.1e}")
    met = result["error"] < TOLERANCE[options.precision]
    print(f"iteration 1000: {result['error']:.1e} relative from {published}: {'met' if met else 'MISSED'}")
    if options.json:
        Record(result, options.json, options.backend).save()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
