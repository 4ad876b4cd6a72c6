"""The flow cases at full size against what is known: twice the domain for the vortex, published curves for the box.

    python -m bench.flow_truth [--device cpu|cuda] [--vortex 512] [--boxes 64 128 256] [--end 10] [--json FILE]
                               [--plots DIR]

Vortex outflow: the domain and one of twice the size at the same spacing run side by side, and at several times the
vorticity of the first is compared with that of the second at the same points; all in units of the largest vorticity at
the start.
Taylor-Green: kinetic energy, its rate of change and enstrophy against the spectral simulation on 512^3 points that the
workshops on high-order CFD methods publish (tests/data/taylor_green_re1600.csv).
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.measure import surroundings
from bench.record import Record
from bench.vortex import taylor_green
from meshloom.solvers.navier_stokes import VortexOutflow
from meshloom.solvers.navier_stokes.case import FlowCase

PUBLISHED = Path(__file__).parents[1] / "tests" / "data" / "taylor_green_re1600.csv"
REFLECTED_GOAL = 0.01  # of the largest vorticity at the start
_LOOKS = 40  # comparisons of the two domains
_SAMPLES = 0.25  # time between the rows of the published curves


def plane(points: int, side: float, end: float, shift: float = 0.0) -> VortexOutflow:
    plain = VortexOutflow.Config()
    mesh = replace(plain.mesh, points=(points, points), domain=(side, side))
    return VortexOutflow(replace(plain, mesh=mesh, time=replace(plain.time, end=end),
                                 vortex=replace(plain.vortex, at=(shift, shift))))  # fmt: skip


def vortex_against_twice_the_domain(n: int, end: float) -> dict[str, Any]:
    """Curves over time: the largest vorticity in both domains, and the largest difference where they overlap."""
    begin = time.perf_counter()
    even = n % 2 == 0  # then the middle of the small domain lies half a spacing off a point of the large one
    small, large = plane(n, 2.0, end), plane(2 * n - 1, 4.0, end, -1.0 / (n - 1) if even else 0.0)
    inner = slice((n - 1) // 2, (n - 1) // 2 + n)
    start, rows = small.config.vortex.largest_vorticity, []
    every = max(1, small.flow.clock.steps_left(0.0) // _LOOKS)
    while left := small.steps_left(small.recorded_now()):
        for case in (small, large):
            case.program.run(min(every, left))
        mine, true = (case.grid_fields()["vorticity"] for case in (small, large))
        gap = np.abs(mine - true[inner, inner]).max()
        rows.append((small.recorded_now()[0], np.abs(mine).max(), np.abs(true[inner, inner]).max(), gap))
    now, mine, true, gap = np.array(rows).T
    return {"points": n, "time": now.tolist(), "largest": (mine / start).tolist(),
            "largest_in_twice": (true / start).tolist(), "difference": (gap / start).tolist(),
            "worst_difference": float(gap.max() / start),
            "left_in_the_end": float(mine[-1] / start), "met": bool(gap.max() < REFLECTED_GOAL * start),
            "seconds": time.perf_counter() - begin}  # fmt: skip


def taylor_green_curves(points: int, end: float) -> dict[str, Any]:
    """Monitors at the times of the published rows; -dE/dt is the slope over a sample, which sound does not disturb."""
    begin = time.perf_counter()
    case = taylor_green(points)
    rows = to_time(case, end)
    now, energy, enstrophy = rows[:, 0], rows[:, 2], rows[:, 3]
    published = np.genfromtxt(PUBLISHED, delimiter=",", names=True, skip_header=3)
    published = published[(published["time"] > 0.0) & (published["time"] < now[-1] - _SAMPLES)]
    at = published["time"]
    before, after = (np.interp(at + shift, now, energy) for shift in (-0.5 * _SAMPLES, 0.5 * _SAMPLES))
    found = {"kinetic_energy": np.interp(at, now, energy), "dissipation": (before - after) / _SAMPLES,
             "enstrophy": np.interp(at, now, enstrophy)}  # fmt: skip
    by_friction = 2.0 * case.gas.viscosity * found["enstrophy"]
    gaps = {name: np.abs(curve / published[name] - 1.0) for name, curve in found.items()}
    return {"points": points, "steps": len(rows), "time": at.tolist(), **{n: c.tolist() for n, c in found.items()},
            "published": {name: published[name].tolist() for name in found},
            "off_by_until_4": {name: float(gap[at <= 4.0].max()) for name, gap in gaps.items()},
            "off_by": {name: float(gap.max()) for name, gap in gaps.items()},
            "peak": {"time": float(now[np.argmax(enstrophy)]),
                     "2_mu_enstrophy": float(2 * case.gas.viscosity * enstrophy.max())},
            "balance": float(np.abs(found["dissipation"] - by_friction).max() / by_friction.max()),
            "seconds": time.perf_counter() - begin}  # fmt: skip


def to_time(case: FlowCase, end: float) -> np.ndarray:
    """Monitors (n, ...) of all steps until ``end``."""
    steps, rows = int(np.ceil(end / case.flow.clock.step)), []
    while steps > 0:
        rows.append(case.monitor_rows(case.program.run(min(steps, 500), record=case.recorded)))
        steps -= 500
    return np.concatenate(rows)


def draw(result: dict[str, Any], folder: Path) -> None:
    """The pictures of the documentation."""
    from meshloom.io.plots import save_curves

    vortex, boxes = result["vortex_outflow"], result["taylor_green"]
    labels = ("time c / l", "log10 of the share of the vortex")
    curves = {name: np.log10(vortex[key]) for name, key in
              (("2l x 2l", "largest"), ("4l x 4l", "largest_in_twice"), ("difference", "difference"))}  # fmt: skip
    title = f"largest vorticity in 2l x 2l, {vortex['points']} x {vortex['points']} points"
    save_curves(folder / "vortex_outflow.png", np.array(vortex["time"]), curves, labels=labels, title=title)
    if boxes:
        curves = {f"{one['points']}^3": np.array(one["dissipation"]) for one in boxes}
        curves["published, 512^3 spectral"] = np.array(boxes[-1]["published"]["dissipation"])
        save_curves(folder / "taylor_green.png", np.array(boxes[-1]["time"]), curves,
                    labels=("time V0 / L", "-dE/dt L / V0^3"), title="Taylor-Green vortex, Re 1600")  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--vortex", type=int, default=512, help="points along each side of the smaller domain")
    parser.add_argument("--boxes", type=int, nargs="*", default=[64, 128, 256], help="points along each side of a box")
    parser.add_argument("--end", type=float, default=10.0, help="last time of Taylor-Green")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plots", type=Path, help="draw the curves into this folder")
    options = parser.parse_args(arguments)
    if reason := ml.backends()[options.device]:
        print(f"bench.flow_truth: back end {options.device} cannot be used: {reason}", file=sys.stderr)
        return 2
    ml.use(options.device)
    result: dict[str, Any] = surroundings() | {"benchmark": "flow_truth", "device": options.device}
    record = Record(result, options.json, options.device)
    row = result["vortex_outflow"] = vortex_against_twice_the_domain(options.vortex, 2.0)
    print(f"vortex outflow, {row['points']} x {row['points']}: differs from twice the domain by"
          f" {row['worst_difference']:.2e} of the vortex at most, {row['left_in_the_end']:.2e} left at the end"
          f" ({row['seconds']:.1f} s)", flush=True)  # fmt: skip
    result["taylor_green"] = []
    for points in options.boxes:
        row = taylor_green_curves(points, options.end)
        result["taylor_green"].append(row)
        print(f"Taylor-Green {points}^3: off the published curves by {row['off_by']}"
              f" (until t = 4 {row['off_by_until_4']});"
              f" peak {row['peak']}; -dE/dt and 2 mu enstrophy differ by {row['balance']:.1e} of the peak"
              f" ({row['steps']} steps, {row['seconds']:.1f} s)", flush=True)  # fmt: skip
        record.save()
    record.save()
    if options.plots:
        draw(result, options.plots)
    print(f"written to {record.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
