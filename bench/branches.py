"""From which size on operations of a program keep their order on a GPU: steps of the flow cases by that threshold.

    python -m bench.branches [--points 256 512 1024] [--box 64] [--shares 0.02 0.1 ...] [--json FILE]

``graph.large`` of ``target/devices/nvidia.toml`` is the share of the threads of a device from which on an operation is
no longer run next to others. Every step is replayed with other shares, the shipped one always among them, and in one
branch; each must leave the same bits as the step in one branch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import meshloom as ml
from bench.measure import fastest
from bench.race_loop import Device
from bench.started import options_of, started
from bench.vortex import taylor_green, vortex
from meshloom.solvers.navier_stokes.case import FlowCase
from meshloom.target import H200
from meshloom.target import target as target_module

_TARGET: Any = target_module  # whose numbers are other ones while a threshold is tried

SHARES = (0.02, 0.1, 0.25, 0.5, 1.0, 2.0)
STEPS = 3  # that must give the same bits


def steps_of(make: Any, points: int, share: float | None) -> tuple[FlowCase, ml.Program]:
    """A case and its step as a program; ``share`` None: in one branch."""
    case: FlowCase = make(points)
    return case, ml.Program(case.program.function, branches=share is not None)


def rows_of(name: str, make: Any, points: int, shares: tuple[float, ...], *, rounds: int,
            target: float) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Every threshold, checked, then timed."""
    numbers_of, shipped, wanted = _TARGET.numbers_of, H200.gpu.graph.large, None
    rank = len(make(points).grid.shape)
    for share in (None, *sorted({*shares, shipped})):
        large = shipped if share is None else share
        _TARGET.numbers_of = lambda device, large=large: _with_large(numbers_of(device), large)
        try:
            case, step = steps_of(make, points, share)
            step.run(STEPS)
            state = case.flow.q.numpy().tobytes()
            wanted = wanted or state
            row = {"case": f"{name} {points}^{rank}", "large": share, "shipped": share == shipped,
                   "branches": share is not None, "graph": step.graph}  # fmt: skip
            if state != wanted:
                yield row | {"wrong": "differs from one branch"}
                continue
            yield row | {"ms_per_step": fastest({"": step.run}, rounds=rounds, target=target)[""] * 1e3}
        finally:
            _TARGET.numbers_of = numbers_of


def _with_large(numbers: Any, large: float) -> Any:
    return replace(numbers, graph=replace(numbers.graph, large=large)) if hasattr(numbers, "graph") else numbers


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = options_of("branches", __doc__)
    parser.add_argument("--points", type=int, nargs="*", default=[256, 512, 1024], help="of the vortex, along a side")
    parser.add_argument("--box", type=int, nargs="*", default=[64], help="of Taylor-Green, along each side")
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--quick", action="store_true", help="short rounds: to see that it works")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    options = parse(arguments)
    run = started("branches", options, device, _no_cpu)
    if run is None:
        return 2
    timing: dict[str, Any] = {"rounds": 2, "target": 0.001} if options.quick else {"rounds": 7, "target": 0.2}
    run.result["quick"] = options.quick
    cases: list[tuple[str, Any, int]] = [("vortex_outflow", vortex, n) for n in options.points]
    cases += [("taylor_green", taylor_green, n) for n in options.box]
    for name, make, points in cases:
        for row in rows_of(name, make, points, tuple(options.shares), **timing):
            run.result["rows"].append(row)
            share = "one branch" if row["large"] is None else f"{row['large']:g}{' *' if row['shipped'] else ''}"
            figure = f"{row['ms_per_step']:.4f} ms" if "ms_per_step" in row else row["wrong"]
            print(f"{row['case']:<24} {share:<12} {figure}  {row['graph']}", flush=True)
            run.save()
    print(f"written to {run.record.file}; * is shipped")
    return int(any("wrong" in row for row in run.result["rows"]))


def _no_cpu() -> Device:
    raise SystemExit("bench.branches: only GPUs have branches; --device cuda")


if __name__ == "__main__":
    sys.exit(main())
