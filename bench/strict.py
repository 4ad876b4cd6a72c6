"""What formulas as written cost: a step of every application with fast and with strict kernels, on one back end.

    python -m bench.strict [--backend cpu|cuda|emulated] [--quick] [--only NAME ...] [--json FILE]

Both variants of an application start from the same state and take turns, round after round; the fastest round of each
counts. Steps run as programs do, fused on a GPU. A row tells the operations of a step, the times, their ratio, and how
far the two states are apart at the end, relative to the largest value of each field: rounding, grown by the equations.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import meshloom as ml
from bench.cases import make
from bench.measure import surroundings
from bench.record import Record
from meshloom.case import Case
from meshloom.kernel.count import arithmetic, flops_by_kind
from meshloom.run.diagnose import Snapshot, restore, take_snapshot

#: Name -> settings of a mesh that keeps a GPU busy, and of a small one.
APPLICATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "airfoil": (("mesh.i=400", "mesh.j=600"), ("mesh.i=20", "mesh.j=30")),
    "lulesh": (("mesh.size=60",), ("mesh.size=6",)),
    "bookleaf_noh": (("mesh.cells=[900,400]",), ("mesh.cells=[20,10]",)),
    "miniaero_ramp": (("mesh.cells=[128,64,32]",), ("mesh.cells=[12,8,2]",)),
    "miniaero_plate": (("mesh.cells=[128,64,32]",), ("mesh.cells=[12,8,2]",)),
    "volna_hump": (("mesh.nx=720", "mesh.ny=400"), ("mesh.nx=24", "mesh.ny=12")),
    "vortex_outflow": (("mesh.points=[1024,1024]",), ("mesh.points=[32,32]",)),
    "taylor_green": (("mesh.points=128",), ("mesh.points=16",)),
}
COLUMNS = ("application", "operations fast", "strict", "ms fast", "strict", "strict / fast", "states apart")


@dataclass(frozen=True)
class Row:
    """A step of an application: operations per step, seconds per step."""

    application: str
    settings: tuple[str, ...]
    steps: int
    operations_fast: int
    operations_strict: int
    seconds_fast: float
    seconds_strict: float
    apart: float

    @property
    def ratio(self) -> float:
        return self.seconds_strict / self.seconds_fast

    def cells(self) -> list[str]:
        times = [f"{1e3 * s:.4g}" for s in (self.seconds_fast, self.seconds_strict)]
        counts = [f"{n:,}" for n in (self.operations_fast, self.operations_strict)]
        return [self.application, *counts, *times, f"{self.ratio:.3f}", f"{self.apart:.1e}"]


def operations_of(case: Case) -> int:
    """Floating-point operations that the kernels of one step say, loop by loop."""
    return sum(_operations(one) for one in case.program.loops)


def _operations(one: ml.Loop) -> int:
    if one.domain.visits_elements:
        return int(one.counts.flops) * one.elements
    if one.domain.along_lines:  # without those of the operator, which are the same either way
        roots = [*one.graph.operands, *(o.value for o in one.graph.outputs)]
        return arithmetic(flops_by_kind(roots)) * one.elements
    return 0


def variant(name: str, settings: tuple[str, ...], back_end: str, *, strict: bool) -> Case:
    """The case, fast or strict. Its program follows the back end in use: it is asked and run with the same."""
    with ml.using(back_end, strict=strict):
        case: Case = make(name, *settings)
        assert {one.spec.strict for one in case.program.loops if not one.domain.all_memory} == {strict}
        return case


def timed(case: Case, start: Snapshot, steps: int) -> float:
    """Seconds per step from a state on; what is recorded is asked for, so that a device has to be done."""
    restore(start)
    case.program.run(1, record=case.recorded)
    begin = time.perf_counter()
    case.program.run(steps, record=case.recorded)
    return (time.perf_counter() - begin) / steps


def apart(cases: Mapping[str, Case]) -> float:
    """How far the states of the two variants are from each other."""
    worst = 0.0
    for one, other in zip(cases["fast"].state, cases["strict"].state, strict=True):
        a, b = (np.asarray(x.saved(), np.float64) for x in (one, other))
        largest = np.abs(a).max(initial=0.0)
        if np.issubdtype(one.dtype, np.floating) and largest > 0.0:
            worst = max(worst, float(np.abs(a - b).max() / largest))
    return worst


def measured(name: str, settings: tuple[str, ...], back_end: str, steps: int, rounds: int) -> Row:
    cases = {how: variant(name, settings, back_end, strict=how == "strict") for how in ("fast", "strict")}
    starts = {how: take_snapshot(case) for how, case in cases.items()}
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(rounds):
        for how, case in cases.items():
            with ml.using(back_end, strict=how == "strict"):
                best[how] = min(best[how], timed(case, starts[how], steps))
    counts = {}
    for how, case in cases.items():
        with ml.using(back_end, strict=how == "strict"):
            counts[how] = operations_of(case)
    return Row(name, settings, steps, counts["fast"], counts["strict"], best["fast"], best["strict"], apart(cases))


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    text_lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in text_lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.strict", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--quick", action="store_true", help="small meshes and few steps: to see that it works")
    parser.add_argument("--only", nargs="+", choices=list(APPLICATIONS), default=list(APPLICATIONS))
    parser.add_argument("--json", type=Path, help="result file (default: a dated one in bench/results/; none if quick)")
    options = parser.parse_args(arguments)
    if reason := ml.backends().get(options.backend, "there is no such back end"):
        print(f"bench.strict cannot use {options.backend}: {reason}", file=sys.stderr)
        return 1
    steps, rounds = (3, 1) if options.quick else (20, 5)
    rows = []
    result = surroundings() | {"benchmark": "strict", "backend": options.backend, "quick": options.quick, "rows": []}
    record = Record(result, options.json, options.backend) if options.json or not options.quick else None
    for name in options.only:
        rows.append(measured(name, APPLICATIONS[name][options.quick], options.backend, steps, rounds))
        print("  ".join(rows[-1].cells()), flush=True)
        result["rows"].append(asdict(rows[-1]) | {"ratio": rows[-1].ratio})
        if record:
            record.save()
    print("\n" + table(rows) + (f"\nwritten to {record.file}" if record else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
