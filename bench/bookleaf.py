"""BookLeaf against the original program and against exact solutions.

    python -m bench.bookleaf [--backend cpu|cuda|numpy] [--skip-exact] [--json FILE] [--plot FILE]

Full runs of the reference decks: steps, energies and extremes at the end. Sod, Sedov and Noh on finer and finer meshes:
L1 errors and observed orders. Fails when a number of steps differs or an energy is further off than 1e-9.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.cases import make, run_to_the_end
from bench.measure import surroundings
from bench.record import Record
from meshloom.solvers import exact
from meshloom.solvers.bookleaf import Blast, NohCase, SedovCase, SodCase
from meshloom.solvers.bookleaf.case import BookLeaf
from meshloom.solvers.bookleaf.problems import SEDOV_ENERGY, SOD_MIDDLE

TRUTH = json.loads((Path(__file__).parents[1] / "tests" / "data" / "bookleaf_summary.json").read_text())["finals"]
DECKS: dict[str, type[BookLeaf]] = {
    "sod_sm_lag_small": SodCase, "sedov_lag_small": SedovCase, "noh_small": NohCase, "blast_sm_lag_small": Blast,
}  # fmt: skip
TOLERANCE = 1e-9  # of energies, relative


@dataclass(frozen=True)
class Comparison:
    """A problem with an exact solution in x or in the radius, and the meshes to solve it on."""

    problem: type[BookLeaf]
    solution: Any
    radial: bool
    cells: tuple[tuple[int, int], ...]
    settings: tuple[str, ...] = ()


COMPARISONS = {
    "sod": Comparison(SodCase, exact.sod(SOD_MIDDLE), False, ((50, 1), (100, 1), (200, 1), (400, 1))),
    # A quarter of the blast is computed. At time 1 its shock has left the box; at 0.9 it has not.
    "sedov": Comparison(SedovCase, exact.Sedov(4.0 * SEDOV_ENERGY, exact.CYLINDRICAL, 5.0 / 3.0), True,
                        ((15, 15), (30, 30), (60, 60)), ("time.end=0.9",)),
    "noh": Comparison(NohCase, exact.Noh(), True, ((15, 6), (30, 12), (60, 24))),
}  # fmt: skip


def reference_run(deck: str) -> dict[str, Any]:
    """A deck of the original program to its end: what came out, and how far from the original."""
    case = make(DECKS[deck])
    found = dict(zip(case.monitors, map(float, run_to_the_end(case)[-1]), strict=True))
    wanted = TRUTH[deck]
    off = {name: abs(found[name] / wanted[name] - 1.0) for name in found if wanted[name]}
    return {"found": found, "original": wanted, "relative": off}


def profile(of: Comparison, cells: tuple[int, int]) -> tuple[np.ndarray, dict[str, np.ndarray], exact.GasState]:
    """Where the centres of the cells are at the end, the fields there, and the exact state there."""
    case = make(of.problem, f"mesh.cells=[{cells[0]},{cells[1]}]", *of.settings)
    end = run_to_the_end(case)[-1][1]
    centre = case.node_positions()[case.mesh.cell_nodes.indices].mean(axis=1)
    where = np.hypot(*centre.T) if of.radial else centre[:, 0]
    return where, case.cell_fields(), of.solution.at(where, end)


def errors(of: Comparison, cells: tuple[int, int]) -> np.ndarray:
    """L1 errors of density and pressure, in parts of the exact solution's L1 norm."""
    _, found, there = profile(of, cells)
    size = found["volume"]
    return np.array([(np.abs(found[name] - wanted) * size).sum() / (wanted * size).sum()
                     for name, wanted in (("density", there.density), ("pressure", there.pressure))])  # fmt: skip


def convergence(of: Comparison) -> list[dict[str, Any]]:
    """Errors on every mesh, and the order observed from the one before."""
    rows: list[dict[str, Any]] = []
    for cells in of.cells:
        density, pressure = map(float, errors(of, cells))
        row: dict[str, Any] = {"cells": cells, "density": density, "pressure": pressure}
        if rows:
            finer = np.log(cells[0] / rows[-1]["cells"][0])
            for name in ("density", "pressure"):
                row[f"{name}_order"] = float(np.log(rows[-1][name] / row[name]) / finer)
        rows.append(row)
    return rows


def plot(path: Path) -> None:
    """Density over x or radius, on the second mesh of each problem, with the exact solution."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 3.6), layout="constrained")
    for axes, of in zip(figure.subplots(1, len(COMPARISONS)), COMPARISONS.values(), strict=True):
        cells = of.cells[1]
        where, found, there = profile(of, cells)
        order = np.argsort(where)
        axes.plot(where[order], there.density[order], color="black", linewidth=1.0, label="exact")
        axes.plot(where, found["density"], ".", color="tab:orange", markersize=2.5, label=f"{cells[0]} x {cells[1]}")
        axes.set(xlabel="radius" if of.radial else "x", ylabel="density", title=of.problem.name)
        axes.legend()
    figure.savefig(path, dpi=110)


def reference_rows(result: dict[str, Any]) -> list[str]:
    """The table of the full runs in Markdown."""
    return [f"| {deck} | {row['found']['steps']:.0f} | {row['relative']['internal_energy']:.1e} |"
            f" {row['relative']['kinetic_energy']:.1e} |" for deck, row in result["reference"].items()]  # fmt: skip


def exact_rows(result: dict[str, Any]) -> list[str]:
    """The table of errors and orders in Markdown."""

    def text(name: str, row: dict[str, Any]) -> str:
        orders = [f"{row[key]:.2f}" if key in row else "" for key in ("density_order", "pressure_order")]
        parts = (name, " x ".join(map(str, row["cells"])), f"{row['density']:.2e}", orders[0],
                 f"{row['pressure']:.2e}", orders[1])  # fmt: skip
        return f"| {' | '.join(parts)} |".replace("|  |", "| |")

    return [text(name, row) for name, rows in result["exact"].items() for row in rows]


def reference_table(result: dict[str, Any]) -> list[str]:
    return ["| deck | steps | internal energy off by | kinetic energy off by |", "|---|---|---|---|",
            *reference_rows(result)]  # fmt: skip


def exact_table(result: dict[str, Any]) -> list[str]:
    head = "| problem | cells | density | order | pressure | order |"
    return [head, "|---|---|---|---|---|---|", *exact_rows(result)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--skip-exact", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args(arguments)
    ml.use(options.backend)
    result = surroundings() | {"benchmark": "bookleaf", "backend": options.backend, "threads": ml.threads()}
    result["reference"] = {deck: reference_run(deck) for deck in DECKS}
    if not options.skip_exact:
        result["exact"] = {name: convergence(of) for name, of in COMPARISONS.items()}
    print("\n".join([*reference_rows(result), *(exact_rows(result) if "exact" in result else ())]))
    met = all(row["found"]["steps"] == row["original"]["steps"]
              and max(row["relative"][f"{kind}_energy"] for kind in ("internal", "kinetic")) < TOLERANCE
              for row in result["reference"].values())  # fmt: skip
    print("met" if met else "MISSED")
    if options.plot:
        plot(options.plot)
    if options.json:
        Record(result, options.json, options.backend).save()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
