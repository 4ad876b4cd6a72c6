"""Toro's five shock tubes and Lax's on strips of quadrilaterals, triangles and both: how far the density of the worst
cell is beyond its exact bounds, and how far it is off in the mean.

    python -m bench.shock_tubes [--only SETTING ...] [--cells N] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.measure import surroundings
from bench.record import Record
from meshloom.solvers.clock import Timing
from meshloom.solvers.exact import GasState, Riemann
from meshloom.solvers.finite_volume.conditions import SlipWall, SupersonicOutlet
from meshloom.solvers.finite_volume.flow import CompressibleFlow
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.kernels import FlowScheme
from meshloom.solvers.finite_volume.options import VolumesSchemeOptions, VolumesTimeOptions
from meshloom.solvers.finite_volume.steps import UnsteadySteps

GAS = IdealGas()
KINDS = {"quad": "quadrilaterals", "triangle": "triangles", "mixed": "mixed"}
#: Left, right, where they meet, and when to end: Toro, "Riemann solvers", table 4.1; Lax 1954.
TUBES = {
    "toro 1": (GasState(1.0, 0.75, 1.0), GasState(0.125, 0.0, 0.1), 0.3, 0.2),
    "toro 2": (GasState(1.0, -2.0, 0.4), GasState(1.0, 2.0, 0.4), 0.5, 0.15),
    "toro 3": (GasState(1.0, 0.0, 1000.0), GasState(1.0, 0.0, 0.01), 0.5, 0.012),
    "toro 4": (GasState(5.99924, 19.5975, 460.894), GasState(5.99242, -6.19633, 46.095), 0.4, 0.035),
    "toro 5": (GasState(1.0, -19.59745, 1000.0), GasState(1.0, -19.59745, 0.01), 0.8, 0.012),
    "lax": (GasState(0.445, 0.698, 3.528), GasState(0.5, 0.0, 0.571), 0.5, 0.14),
}
#: What the docs say for strong shocks, the same without falling back, and what a person gets who sets nothing.
SETTINGS = {
    "strong": FlowScheme(flux="hllc", limiter="barth_jespersen", fallback="bounded"),
    "no fallback": FlowScheme(flux="hllc", limiter="barth_jespersen"),
    "defaults": VolumesSchemeOptions().scheme(),
}


class BrokenDown(Exception):
    """A density, pressure or temperature is not positive, or no number."""


def strip(kind: str, n: int, rows: int = 2) -> ml.Mesh:
    """n x rows squares, each itself or two triangles; mixed: five columns of the one, five of the other."""
    quads, triangles = (ml.generate.box((n, rows), cells=k, extent=(1.0, rows / n)) for k in ("quad", "triangle"))
    if kind != "mixed":
        return quads if kind == "quad" else triangles
    even = [np.floor(mesh.cell_centroids[:, 0] * n / 5) % 2 == 0 for mesh in (quads, triangles)]
    cells = {"quad": quads.cell_nodes.indices[even[0]], "triangle": triangles.cell_nodes.indices[~even[1]]}
    sides = {name: quads.boundary_nodes.indices[quads.group(name)] for name in quads.groups}
    return ml.Mesh.from_cells(quads.coordinates.numpy(), cells, boundary=sides)


def run_until(
    flow: CompressibleFlow, end: float, cfl: float = 0.8, after: Callable[[UnsteadySteps], None] | None = None
) -> UnsteadySteps:
    """Steps until the end."""
    steps = UnsteadySteps(flow, Timing(end, True, 1.1, cfl))
    program = ml.program(steps.step)
    while left := steps.timing.steps_left(steps.time.value, float(steps.pace.value)):
        program.run(left)
        if after is not None:
            after(steps)
    return steps


def burst(tube: str, kind: str, scheme: FlowScheme, n: int = 100) -> tuple[ml.Mesh, np.ndarray]:
    """The strip, and the density of its cells at the end, at the default CFL number; BrokenDown where there is none."""
    left, right, middle, end = TUBES[tube]
    mesh = strip(kind, n)
    a, b = (GAS.state(one.density, (one.velocity, 0.0), one.pressure) for one in (left, right))
    start = GAS.conserved(np.where(mesh.cell_centroids[:, 0] < middle, a[:, None], b[:, None])).T
    sides = {name: SupersonicOutlet() if name[0] == "x" else SlipWall() for name in mesh.groups}
    flow = CompressibleFlow(mesh, GAS, scheme, sides, start, a)
    run_until(flow, end, cfl=VolumesTimeOptions().cfl, after=_check_positive)
    u = flow.u.numpy()
    if not (np.isfinite(u).all() and (GAS.primitives(u.T)[0] > 0.0).all() and (u[:, 0] > 0.0).all()):
        raise BrokenDown(f"{tube} on {kind} cells, at the end")
    return mesh, u[:, 0]


def _check_positive(steps: UnsteadySteps) -> None:
    """Steps of a gas that is gone come to no end."""
    least = steps.totals.lowest_pressure.value, steps.totals.lowest_temperature.value
    if not all(float(one) > 0.0 for one in least):
        raise BrokenDown(f"at time {steps.time.value:.3g}")


def exact_density(tube: str, x: np.ndarray) -> np.ndarray:
    """At these places, when the tube ends."""
    left, right, middle, end = TUBES[tube]
    found: np.ndarray = Riemann(left, right, GAS.gamma, middle).at(x, end).density
    return found


def beyond(tube: str, density: np.ndarray) -> float:
    """How far the density is beyond the exact extremes, as a share of the largest; below 0 where it is inside."""
    bounds = exact_density(tube, np.linspace(0.0, 1.0, 10_001))
    return float(max(density.max() - bounds.max(), bounds.min() - density.min()) / bounds.max())


def mean_error(tube: str, mesh: ml.Mesh, density: np.ndarray) -> float:
    """Of the density, over its largest exact value."""
    exact, volume = exact_density(tube, mesh.cell_centroids[:, 0]), mesh.cell_volumes
    return float(volume @ np.abs(density - exact) / volume.sum() / exact.max())


def measured(setting: str, tube: str, kind: str, n: int) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": setting, "tube": tube, "kind": kind}
    try:
        mesh, density = burst(tube, kind, SETTINGS[setting], n)
    except BrokenDown as error:
        return row | {"broken_down": str(error)}
    return row | {"beyond": beyond(tube, density), "mean_error": mean_error(tube, mesh, density)}


def text_lines(result: dict[str, Any]) -> list[str]:
    """Worst cells, and in brackets mean errors, as Markdown."""
    columns = [(s, k) for s in SETTINGS for k in KINDS]
    found = {(row["setting"], row["kind"], row["tube"]): row for row in result["rows"]}
    heads = [f"{s}, {KINDS[k]}" for s, k in columns]
    body = [[tube.title(), *(_cell(found.get((s, k, tube))) for s, k in columns)] for tube in TUBES]
    return [f"| {' | '.join(row)} |" for row in (["tube", *heads], ["---"] * (1 + len(columns)), *body)]


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if "broken_down" in row:
        return "breaks down"
    worst = f"{100 * row['beyond']:.1f} %" if row["beyond"] > 0.0005 else "inside"
    return f"{worst} ({100 * row['mean_error']:.1f} %)"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.shock_tubes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--cells", type=int, default=100, help="squares along a tube (default 100)")
    parser.add_argument("--json", type=Path, help="result file (default: a dated one in bench/results/)")
    options = parser.parse_args(arguments)
    ml.use("cpu", threads=1)
    complete = options.only == list(SETTINGS) and options.cells == 100
    result = surroundings() | {"benchmark": "shock_tubes", "cells": options.cells, "quick": not complete, "rows": []}
    record = Record(result, options.json, "cpu")
    for setting in options.only:
        for tube in TUBES:
            for kind in KINDS:
                result["rows"].append(measured(setting, tube, kind, options.cells))
                print(f"{setting}, {tube}, {KINDS[kind]}: {_cell(result['rows'][-1])}", flush=True)
                record.save()
    print("\n" + "\n".join(text_lines(result)) + f"\nwritten to {record.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
