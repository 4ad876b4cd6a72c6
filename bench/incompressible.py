"""Incompressible flow against published figures: the cavity, the backward-facing step, the turbulent channel.

    python -m bench.incompressible --device cpu|cuda [--only cavity step channel] [--plots FOLDER] [--json FILE]

Cavity, 129 x 129 even cells, run until it is steady: the largest difference to Ghia, Ghia and Shin's tables (1982) on
both lines through the middle at Re 100, 400 and 1000, and at Re 1000 to the extrema of Botella and Peyret (1998), in
speeds of the lid. Step: where the flow comes back to the wall, in heights of the step, against Erturk (2008). Channel:
the mean profile of turbulent flow at Re_tau 180 against the law of the wall, and friction and eddies together against
the force that they balance. Each row: figures, what is allowed, steps, seconds.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases import make
from bench.published import Row, Work, latest, measured, parser_of
from bench.race_loop import Device
from bench.report import Goal, goal_table
from meshloom.case import Case
from meshloom.solvers.fractional_step.centreline import Centreline

OF_LID, OF_LENGTH, OF_BALANCE = 0.01, 0.03, 0.02  # what is allowed
BOTELLA_PEYRET = {"u_min": -0.3886, "v_max": 0.3769, "v_min": -0.5271}  # Re 1000
ERTURK = {100: 2.922, 400: 8.237}  # Re by the mean speed at the inlet and twice its height -> x / h
LAW = (2.44, 5.2)  # u+ = 2.44 ln y+ + 5.2
WITHIN = (30.0, 120.0)  # y+ where it holds
OF_LAW = 0.05  # of u+
PIECE = 2000  # steps between two looks


def ran(name: str, *settings: str) -> tuple[Case, dict[str, Any]]:
    """A case, run to its end; steps, seconds, the largest divergence of all steps and the monitors at the end."""
    begin, case = time.perf_counter(), make(name, *settings)
    steps, worst, now = 0, 0.0, case.recorded_now()
    while left := case.steps_left(now):
        rows = case.monitor_rows(case.program.run(min(left, PIECE), record=case.recorded))
        steps, now = steps + len(rows), case.recorded_now()
        worst = max(worst, float(rows[:, case.monitors.index("divergence")].max()))
    last = dict(zip(case.monitors, rows[-1].tolist(), strict=True))
    return case, {"steps": steps, "seconds": time.perf_counter() - begin, "divergence": worst, "monitors": last}


def cavity(reynolds: int, cells: int) -> Row:
    case, row = ran("cavity2d", f"mesh.cells=[{cells},{cells}]", f"flow.reynolds={reynolds}.0")
    gaps = []
    for chart in case.charts({}):
        here, known = chart.curves.values()
        gaps.append(float(np.nanmax(np.abs(here - known))))
    row |= {"off_ghia": max(gaps), "found": extrema(case)}
    if reynolds == 1000:
        row["off_botella_peyret"] = max(abs(row["found"][name] - value) for name, value in BOTELLA_PEYRET.items())
    return row


def extrema(case: Any) -> dict[str, float]:
    """Of the velocities on the lines through the middle, by parabolas through the three values about each."""
    u, v = (Centreline(case.cells, 1 - c).profile(case.flow.velocity, c) for c in (0, 1))
    y, x = (case.cells.axes[a].centres for a in (1, 0))
    return {"u_min": -peak(y, -u), "v_max": peak(x, v), "v_min": -peak(x, -v)}


def peak(x: np.ndarray, values: np.ndarray) -> float:
    """The largest value of a curve, by the parabola through the largest and its neighbours, if it has two."""
    k = int(np.argmax(values))
    if k in (0, len(values) - 1):
        return float(values[k])
    a, b, c = np.polyfit(x[k - 1 : k + 2] - x[k], values[k - 1 : k + 2], 2)
    return float(c - b * b / (4.0 * a))


def step(reynolds: int, settings: tuple[str, ...]) -> Row:
    _, row = ran("backward_step", f"flow.reynolds={reynolds}.0", *settings)
    found = row["monitors"]["reattachment"]
    return row | {"found": found, "off_erturk": abs(found / ERTURK[reynolds] - 1.0)}


def channel(settings: tuple[str, ...]) -> Row:
    case, row = ran("channel", "flow.reynolds_tau=180.0", *settings)
    charts = {chart.name: chart for chart in case.charts({})}
    wall, shear = charts["mean_velocity"], charts["shear_stress"]
    y, u = wall.x, wall.curves["this run"]
    inside = (y > WITHIN[0]) & (y < WITHIN[1])
    law = LAW[0] * np.log(y) + LAW[1]
    together, force = shear.curves["together"], shear.curves["1 - y"]
    return row | {
        "y_plus": y.tolist(), "u_plus": u.tolist(), "distance": shear.x.tolist(), "shear": together.tolist(),
        "off_law": float(np.abs(u / law - 1.0)[inside].max()), "off_balance": float(np.abs(together - force).max()),
    }  # fmt: skip


# --- what is run ------------------------------------------------------------------------------------------------------

_LONG = ("mesh.cells=[128,96,96]", "scheme.form=staggered", "time.cfl=1.2", "time.end=40", "statistics.after=8")
_SHORT = ("mesh.cells=[8,12,6]", "scheme.form=staggered", "time.end=0.02", "statistics.after=0.0")


def work(quick: bool) -> Work:
    """By its first word: what each row is called, and how it is made."""
    cells, reynolds = (8, (100,)) if quick else (129, (100, 400, 1000))
    coarse = ("mesh.cells=4", "time.end=0.1") if quick else ()
    return {
        "cavity": [(f"cavity, Re {re}", partial(cavity, re, cells)) for re in reynolds],
        "step": [(f"step, Re {re}", partial(step, re, coarse)) for re in ERTURK],
        "channel": [("channel, Re_tau 180", lambda: channel(_SHORT if quick else _LONG))],
    }


def goals(rows: list[Row]) -> list[Goal]:
    words = {
        "off_ghia": ("largest difference to Ghia's tables, speeds of the lid", OF_LID),
        "off_botella_peyret": ("largest difference to Botella and Peyret's extrema, speeds of the lid", OF_LID),
        "off_erturk": ("where it comes back to the wall, against Erturk", OF_LENGTH),
        "off_law": ("mean profile against the logarithmic law", OF_LAW),
        "off_balance": ("friction and eddies against the force, of the force", OF_BALANCE),
        "divergence": ("largest divergence of all steps, speeds over width", 1e-10),
    }
    judged = [(row, key) for key in words for row in rows if key in row]
    not_judged = {("cavity, Re 1000", "off_ghia")}  # is shown all the same: their grid was too coarse there
    return [Goal(f"{row['name']}: {words[key][0]}", row[key], "at most", words[key][1]) for row, key in judged
            if (row["name"], key) not in not_judged]  # fmt: skip


def text_lines(found: list[dict[str, Any]]) -> list[str]:
    """All runs on paper."""
    rows = latest(found)
    words = "At Re 1000 Ghia's tables, of a grid that was coarse for that, are {:.3f} speeds of the lid away."
    remarks = [words.format(row["off_ghia"]) for row in rows if row["name"] == "cavity, Re 1000"]
    return [*goal_table(goals(rows)), *(["", *remarks] if remarks else [])]


def draw(rows: list[Row], folder: Path) -> None:
    """The picture of the documentation: the channel's mean profile."""
    from meshloom.io.plots import save_curves

    for row in rows:
        if "y_plus" in row:
            y = np.array(row["y_plus"])
            curves = {"this run": np.array(row["u_plus"]), "u+ = y+": np.where(y < 12.0, y, np.nan),
                      "2.44 ln y+ + 5.2": np.where(y > 8.0, LAW[0] * np.log(y) + LAW[1], np.nan)}  # fmt: skip
            save_curves(folder / "channel.png", y, curves, labels=("y+", "u+"), title="Turbulent channel, Re_tau 180",
                        dots=("this run",), decades=True)  # fmt: skip


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    parser = parser_of("incompressible", __doc__, work)
    parser.add_argument("--plots", type=Path, help="draw the curves into this folder")
    options = parser.parse_args(arguments)
    run = measured("incompressible", options, work, device)
    if run is None:
        return 2
    if options.plots:
        draw(run.result["rows"], options.plots)
    return run.finished(goals(run.result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
