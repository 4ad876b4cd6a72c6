"""The water cases against exact solutions and against the original program's states.

    python -m bench.volna_exact [--json FILE] [--draw FOLDER]

Mean errors of the depth over the mean depth on finer and finer meshes, in double precision, with the observed orders;
and how far the original's states are, in single precision, next to how far rounding alone leads.
``--draw`` makes the picture of the docs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.measure import surroundings
from bench.record import Record
from meshloom.config import build, parse_set
from meshloom.solvers import find_case
from meshloom.solvers.exact_water import Thacker

TRUTH = Path(__file__).parent.parent / "tests" / "data" / "volna"
SCHEMES = ("v17", "v18")
DAM_CELLS, BOWL_CELLS = (50, 100, 200, 400), (20, 40, 80, 160)
HALF_SWING = Thacker().period / 2


def made(name: str, *changes: str) -> Any:
    """A case with ``--set`` changes."""
    found = find_case(name)
    return found(build(found.Config, map(parse_set, changes)))


def finished(case: Any) -> Any:
    """The case, run to its end."""
    last = case.recorded_now()
    while (left := case.steps_left(last)) > 0:
        last = case.program.run(left, record=case.recorded)[-1]
    return case


def dam(scheme: str, n: int) -> Any:
    """The dam break after half a second, three squares wide."""
    return finished(made("volna_dambreak", f"flow.scheme={scheme}", "run.precision=double", "time.trim=true",
                         f"mesh.nx={n}", "mesh.ny=3", f"dam.width={30.0 / n}"))  # fmt: skip


def bowl(scheme: str, n: int) -> Any:
    """Water in the bowl after half a swing."""
    return finished(made("volna_thacker", f"flow.scheme={scheme}", "run.precision=double", "time.trim=true",
                         f"mesh.nx={n}", f"mesh.ny={n}", f"time.end={HALF_SWING}"))  # fmt: skip


def exact_depth(case: Any) -> np.ndarray:
    """At the centres of the cells, when the case stands now."""
    x, y = case.mesh.cell_centroids.T
    time = case.flow.time.value
    depth: np.ndarray = case.exact.at(x - 5.0, time)[0] if "dam" in case.name else case.exact.at(x, y, time)[0]
    return depth


def error(case: Any) -> float:
    area, exact = case.mesh.cell_volumes, exact_depth(case)
    return float(area @ np.abs(case.cell_fields()["depth"] - exact) / (area @ exact))


def convergence(make: Any, sizes: tuple[int, ...], scheme: str) -> dict[str, list[float]]:
    errors = [error(make(scheme, n)) for n in sizes]
    return {"errors": errors, "orders": np.log2(np.array(errors[:-1]) / errors[1:]).tolist()}


def state_after(case: Any, steps: int) -> np.ndarray:
    case.program.run(steps)
    state: np.ndarray = case.flow.w.numpy().astype(np.float64)
    return state


def differences(state: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Of depth and velocity, in the mean and at most, over their largest values."""
    off = np.abs(state - truth)
    depth, speed = truth[:, 0].max(), np.hypot(truth[:, 1], truth[:, 2]).max()
    parts = {"depth": off[:, 0] / depth, "velocity": off[:, 1:3] / speed}
    return {f"{name}_{how}": float(getattr(part, how)()) for name, part in parts.items() for how in ("mean", "max")}


def against_original(path: Path) -> dict[str, Any]:
    """How far a state of the original is, and how far our own when only the numbering of the mesh is another."""
    _, scheme, name, *_ = path.stem.split("_")
    with np.load(path) as truth:
        steps, reference = int(truth["iterations"]), truth["values_H_u_v_zb"].astype(np.float64)
    settings = (f"volna_{name}", f"flow.scheme={scheme}")
    state, renumbered = (state_after(made(*settings, f"mesh.order={o}"), steps) for o in ("given", "random"))
    return {"original": differences(state, reference), "renumbered": differences(renumbered, state)}


def draw(path: Path) -> None:
    """Depth along the channel, and surface across the bowl, of both schemes and exactly."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.0), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    colours = dict(zip(SCHEMES, ("tab:orange", "tab:blue"), strict=True))
    for scheme in SCHEMES:
        case = dam(scheme, 100)
        x = case.mesh.cell_centroids[:, 0]
        left.plot(x, case.cell_fields()["depth"], ".", markersize=3, color=colours[scheme], label=scheme)
    fine = np.linspace(0.0, 10.0, 2001)
    left.plot(fine, case.exact.at(fine - 5.0, 0.5)[0], "k-", linewidth=1.0, label="Stoker")
    left.set(xlabel="x, m", ylabel="depth, m", title="dam break after 0.5 s, 100 squares")
    for scheme in SCHEMES:
        case = bowl(scheme, 80)
        x, y = case.mesh.cell_centroids.T
        near = (np.abs(y) < 0.05) & (case.cell_fields()["depth"] > 1e-4)
        right.plot(x[near], case.cell_fields()["surface"][near], ".", markersize=3, color=colours[scheme], label=scheme)
    fine = np.linspace(-1.6, 1.6, 801)
    bed, surface = case.exact.bed(fine, 0.0 * fine), case.exact.surface(fine, 0.0 * fine, HALF_SWING)
    right.plot(fine, bed, "-", color="0.6", label="bed")
    right.plot(fine, np.where(surface > bed, surface, np.nan), "k-", linewidth=1.0, label="Thacker")
    right.set(xlabel="x, m", ylabel="surface, m", title="bowl after half a swing, 80 x 80 squares", ylim=(-0.11, 0.15))
    for axes in (left, right):
        axes.grid(True, alpha=0.4)
        axes.legend()
    figure.savefig(path)


def dam_table(result: dict[str, Any]) -> list[str]:
    return _errors(result, "dam", "squares along the channel")


def bowl_table(result: dict[str, Any]) -> list[str]:
    return _errors(result, "bowl", "squares along the bowl, half a swing")


def _errors(result: dict[str, Any], kind: str, what: str) -> list[str]:
    """Errors on all meshes and the orders between them, in Markdown."""
    found = [result[f"{kind}_{scheme}"] for scheme in SCHEMES]
    columns = [(one["errors"], ["", *(f" {order:.2f}" for order in one["orders"])]) for one in found]
    rows = [f"| {n} |" + "".join(f" {errors[k]:.4f} |{orders[k]} |" for errors, orders in columns)
            for k, n in enumerate(result[f"{kind}_cells"])]  # fmt: skip
    heads = " | ".join(f"{scheme} | order" for scheme in SCHEMES)
    return [f"| {what} | {heads} |", "|---" * (1 + 2 * len(SCHEMES)) + "|", *rows]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draw", type=Path)
    options = parser.parse_args(arguments)
    ml.use("cpu", threads=1)
    result: dict[str, Any] = surroundings() | {"benchmark": "volna_exact", "dam_cells": DAM_CELLS,
                                               "bowl_cells": BOWL_CELLS}  # fmt: skip
    for scheme in SCHEMES:
        result[f"dam_{scheme}"] = convergence(dam, DAM_CELLS, scheme)
        result[f"bowl_{scheme}"] = convergence(bowl, BOWL_CELLS, scheme)
        print(scheme, "dam", result[f"dam_{scheme}"], "bowl", result[f"bowl_{scheme}"])
    for path in sorted(path for path in TRUTH.glob("volna_v1*.npz") if "lake" not in path.name):
        result[path.stem] = against_original(path)
        print(path.stem, result[path.stem])
    if options.json:
        Record(result, options.json).save()
    if options.draw:
        draw(options.draw / "volna_exact.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
