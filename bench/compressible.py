"""Compressible flow against published figures: an airfoil, a cylinder, a plate, a wing.

    python -m bench.compressible --device cpu|cuda [--only airfoil cylinder street plate wing wing_rans] [--json FILE]
    python -m bench.compressible --again FILE ... --draw wing.png

Airfoil: lift and drag of NACA 0012 at Mach 0.8 and 1.25 degrees on three meshes, the finest of which is judged.
Cylinder: drag and recirculation length at Re 40, and how much of the drag is another one at a tenth of the Mach number;
street: the frequency of eddies at Re 100. Plate: friction at x = 0.97 by Spalart and Allmaras' model. Wing:
ONERA M6, inviscid, seconds of so many steps that lift and drag stay within 0.5 %, those included in which the mesh is
made; wing_rans: the same turbulent. ``--draw``: the pressure on the seven sections next to ONERA's test.
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
from bench.record import load
from bench.report import Goal, goal_table, rows_table
from bench.wing_sections import draw, percent
from meshloom.case import Case
from meshloom.process.activity import busy
from meshloom.solvers.finite_volume.wing import measured_pressure

#: Of the airfoil: AGARD AR-211 (1985) and later codes, grid-converged (Vassberg and Jameson 2010 among them).
LIFT, DRAG = (0.348, 0.363), (0.0221, 0.0230)
#: Re 40: Dennis and Chang 1970, Fornberg 1980, Linnick and Fasel 2005; Re 100: Williamson 1989 and computations since.
CYLINDER_DRAG, WAKE, STROUHAL = (1.49, 1.54), (2.2, 2.35), (0.164, 0.167)
#: Figures of a row, as tables call them.
SHOWN = {"lift": "lift", "drag": "drag", "wake": "recirculation length", "strouhal": "Strouhal number",
         "friction": "skin friction"}  # fmt: skip
OF_RANGE = 0.03  # beyond either end of a range of the cylinder
SLOW, OF_SLOW = 10.0, 0.02  # a Mach number so many times smaller may change drag by so much
FRICTION, OF_FRICTION = 0.00271, 0.03  # NASA's turbulence modelling resource, flat plate, at x = 0.97
STEADY = 0.005  # of lift and drag: what engineers call converged
SWING = 50  # steps of a wing whose mean counts: where a limiter keeps switching, single ones swing for ever
WING_SECONDS = 180.0
PIECE = 50  # steps between two looks
IMPLICIT = ("time.method=implicit", "time.cfl=5.0")  # a few hundred steps to steady flow; explicit ones: thousands
TURBULENT = "mesh.equations=rans"
LATE = 0.4  # of a vortex street: the part of its time that is looked at, at its end


def history_of(case: Case, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Monitors (n, monitors) after every iteration until the case ends or so many are done, and seconds (n,) till
    then."""
    rows, seconds, begin = [], [], time.perf_counter()
    done, now = 0, case.recorded_now()
    with busy(lambda: f"{done} steps"):
        while done < iterations and case.steps_left(now) != 0:
            most = min(PIECE, iterations - done, case.steps_left(now) or PIECE)
            rows.append(case.monitor_rows(case.program.run(most, record=case.recorded)))
            done, now = done + len(rows[-1]), case.recorded_now()
            seconds += [time.perf_counter() - begin] * len(rows[-1])
            if not np.isfinite(rows[-1]).all():
                break
    return np.concatenate(rows), np.array(seconds)


def ran(name: str, iterations: int, *settings: str) -> tuple[Case, dict[str, np.ndarray], dict[str, Any]]:
    """A case, its history by the names of its monitors, with "seconds", and the start of its row."""
    begin = time.perf_counter()
    case = make(name, *settings)
    made_in = time.perf_counter() - begin
    found, seconds = history_of(case, iterations)
    history = dict(zip(case.monitors, found.T, strict=True)) | {"seconds": seconds}
    last = {key: float(values[-1]) for key, values in history.items()}
    residual = history["residual_density"]
    return case, history, {"settings": list(settings), "cells": case.elements, "steps": len(found), "end": last,
                           "made_in": made_in, "seconds": float(seconds[-1]),
                           "fall": float(residual[-1] / residual.max())}  # fmt: skip


def beyond(value: float, low_and_high: tuple[float, float]) -> float:
    """By which share a value is outside of a range; 0 inside."""
    low, high = low_and_high
    return max(low / value - 1.0, value / high - 1.0, 0.0) if value > 0.0 else float("inf")


def airfoil(around: int, iterations: int) -> Row:
    mesh = (f"mesh.around={around}", f"mesh.outward={3 * around // 8}")
    _, _, row = ran("naca0012_transonic", iterations, *mesh, *IMPLICIT)
    return row | {"lift": row["end"]["lift"], "drag": row["end"]["drag"]}


def cylinder(around: int, iterations: int, mach: float) -> Row:
    size = (f"mesh.around={around}", f"mesh.outward={3 * around // 4}")
    case, _, row = ran("cylinder", iterations, *size, f"stream.mach={mach}", *IMPLICIT, "time.cfl_max=200.0")
    return row | {"drag": row["end"]["drag"], "wake": case.wake_length()}  # type: ignore[attr-defined]


def street(around: int, end: float) -> Row:
    """Eddies that leave a cylinder in turn, begun by a stream that comes from aside for a while."""
    size = (f"mesh.around={around}", f"mesh.outward={3 * around // 4}", "stream.reynolds=100.0")
    time_ = ("time.mode=unsteady", "time.method=explicit", f"time.end={end}", "time.cfl=0.9", "time.smoothing=0.0")
    case = make("cylinder", *size, *time_)
    push_aside(case)
    found, seconds = history_of(case, 10_000_000)
    history = dict(zip(case.monitors, found.T, strict=True))
    return {"settings": [*size, *time_], "cells": case.elements, "steps": len(found), "seconds": float(seconds[-1]),
            "strouhal": frequency(history["time"], history["lift"]), "swing": float(np.ptp(history["lift"]) / 2),
            "mean_drag": late_mean(history["time"], history["drag"])}  # fmt: skip


def push_aside(case: Any) -> None:
    """A tenth of the stream's speed across it, behind the cylinder: symmetric flow would stay so for long."""
    x, y = case.mesh.cell_centroids.T
    u = case.flow.u.numpy().copy()
    across = 0.1 * np.linalg.norm(case.stream[1:-1]) * np.exp(-((x - 1.5) ** 2) - y**2)
    old = 0.5 * u[:, 2] ** 2 / u[:, 0]
    u[:, 2] += u[:, 0] * across
    u[:, -1] += 0.5 * u[:, 2] ** 2 / u[:, 0] - old
    case.flow.u.assign(u)


def frequency(t: np.ndarray, values: np.ndarray) -> float:
    """Periods per time of the last part of a curve, from where it goes up through its mean; 0 for fewer than two."""
    late = t > (1.0 - LATE) * t[-1]
    t, wave = t[late], values[late] - values[late].mean()
    up = np.flatnonzero((wave[:-1] < 0.0) & (wave[1:] >= 0.0))
    places = t[up] - wave[up] * (t[up + 1] - t[up]) / (wave[up + 1] - wave[up])
    return float((len(places) - 1) / (places[-1] - places[0])) if len(places) > 1 else 0.0


def late_mean(t: np.ndarray, values: np.ndarray) -> float:
    late = t > (1.0 - LATE) * t[-1]
    return float(np.trapezoid(values[late], t[late]) / np.ptp(t[late]))


def up_of(along: int) -> int:
    """Cells across the layer, as on NASA's grids of the plate: 34 x 24, 68 x 48, ..."""
    return 24 * along // 34


def plate(along: int, iterations: int) -> Row:
    size = (f"mesh.along={along}", f"mesh.up={up_of(along)}")
    case, _, row = ran("flat_plate", iterations, *size, *IMPLICIT)
    x, cf = case.friction()  # type: ignore[attr-defined]
    y, u = case.profile()  # type: ignore[attr-defined]
    return row | {"friction": float(np.interp(0.97, x, cf)), "y_plus": y.tolist(), "u_plus": u.tolist()}


def wing(level: int, iterations: int, extra: tuple[str, ...] = ()) -> Row:
    case, history, row = ran("onera_m6", iterations, f"mesh.level={level}", IMPLICIT[0], *extra)
    drawn = {name: history[name].tolist() for name in ("lift", "drag", "residual_density", "cfl")}
    means = {name: float(running_means(history[name])[-1]) for name in ("lift", "drag")}
    return row | means | {"history": drawn, "sections": sections_of(case)}


def running_means(values: np.ndarray) -> np.ndarray:
    """Over ``SWING`` values each, or all where there are fewer."""
    width = min(SWING, len(values))
    return np.convolve(values, np.full(width, 1.0 / width), "valid")


def steps_to_engineering(history: dict[str, list[float]]) -> int:
    """After how many steps the running means of lift and drag stay within ``STEADY`` of the last ones."""
    found = [np.array(history[name]) for name in ("lift", "drag")]
    return max(steady_from(running_means(one)) + min(SWING, len(one)) for one in found)


def swings(history: dict[str, list[float]]) -> dict[str, float]:
    """By what share single steps differ from the mean, to either side, over the last of them."""
    late = {name: np.array(history[name])[-SWING:] for name in ("lift", "drag")}
    return {name: float(0.5 * np.ptp(one) / abs(one.mean())) for name, one in late.items()}


def sections_of(case: Any) -> dict[str, dict[str, list[float]]]:
    """By percent of the span: x/c and pressure coefficient."""
    found = {}
    for eta in sorted(set(measured_pressure()[:, 0])):
        x, cp = case.section(float(eta))
        order = np.argsort(x, kind="stable")
        found[percent(eta)] = {"x": np.round(x[order], 5).tolist(), "cp": np.round(cp[order], 5).tolist()}
    return found


def steady_from(values: np.ndarray) -> int:
    """The first place from which on a curve stays within ``STEADY`` of its end."""
    outside = np.flatnonzero(~(np.abs(values - values[-1]) <= STEADY * abs(values[-1])))
    return int(outside[-1]) + 1 if len(outside) else 0


# --- what is run ------------------------------------------------------------------------------------------------------


def work(quick: bool) -> Work:
    """By its first word: what each row is called, with the method of its steps, and how it is made."""
    if quick:
        small = ("mesh.cells=3000",)
        return {
            "airfoil": [("airfoil, 16 x 6, implicit", lambda: airfoil(16, 3))],
            "cylinder": [("cylinder, Re 40, Mach 0.1, implicit", lambda: cylinder(16, 3, 0.1))],
            "street": [("street, Re 100, explicit", lambda: street(16, 0.05))],
            "plate": [("plate, 12 x 8, implicit", lambda: plate(12, 2))],
            "wing": [("wing, Euler, level 1, implicit", lambda: wing(1, 2, small))],
            "wing_rans": [("wing, RANS, level 1, implicit", lambda: wing(1, 2, (*small, TURBULENT)))],
        }
    return {
        "airfoil": [(f"airfoil, {n} x {3 * n // 8}, implicit", partial(airfoil, n, 400)) for n in (128, 256, 512)],
        "cylinder": [
            (f"cylinder, Re 40, Mach {mach}, implicit", partial(cylinder, 192, steps, mach))
            for mach, steps in ((0.1, 400), (0.1 / SLOW, 1600))
        ],
        "street": [("street, Re 100, explicit", partial(street, 128, 150.0))],
        "plate": [(f"plate, {n} x {up_of(n)}, implicit", partial(plate, n, 600)) for n in (34, 68, 136)],
        "wing": [("wing, Euler, level 3, implicit", partial(wing, 3, 400))],
        "wing_rans": [("wing, RANS, level 1, implicit", partial(wing, 1, 200, (TURBULENT,)))],
    }


def goals(rows: list[Row]) -> list[Goal]:
    found = []
    named = {row["name"]: row for row in rows}
    airfoils = [row for row in rows if row["name"].startswith("airfoil")]
    if airfoils:
        finest = max(airfoils, key=lambda row: row["cells"])
        for key, allowed in (("lift", LIFT), ("drag", DRAG)):
            text = f"{finest['name']}: {key} {finest[key]:.4f}, outside of {allowed[0]} to {allowed[1]} by the share"
            found.append(Goal(text, beyond(finest[key], allowed), "at most", 0.0))
    fast, slow = (named.get(f"cylinder, Re 40, Mach {mach}, implicit") for mach in (0.1, 0.1 / SLOW))
    if fast:
        for key, allowed in (("drag", CYLINDER_DRAG), ("wake", WAKE)):
            range_ = f"{allowed[0]} to {allowed[1]}"
            text = f"cylinder, Re 40: {SHOWN[key]} {fast[key]:.3f}, outside of {range_} by the share"
            found.append(Goal(text, beyond(fast[key], allowed), "at most", OF_RANGE))
    if fast and slow:
        found.append(Goal("cylinder, Re 40: drag at Mach 0.01 against 0.1", abs(slow["drag"] / fast["drag"] - 1.0),
                          "at most", OF_SLOW))  # fmt: skip
    for row in (row for row in rows if "strouhal" in row):
        low, high = STROUHAL
        text = f"street, Re 100: Strouhal number {row['strouhal']:.4f}, outside of {low} to {high} by the share"
        found.append(Goal(text, beyond(row["strouhal"], STROUHAL), "at most", OF_RANGE))
    plates = [row for row in rows if row["name"].startswith("plate")]
    if plates:
        finest = max(plates, key=lambda row: row["cells"])
        text = f"{finest['name']}: skin friction at x = 0.97 {finest['friction']:.5f}, against {FRICTION}"
        found.append(Goal(text, abs(finest["friction"] / FRICTION - 1.0), "at most", OF_FRICTION))
    for row in (row for row in rows if "history" in row and "Euler" in row["name"]):
        at, by = steps_to_engineering(row["history"]), swings(row["history"])
        found += [Goal(f"{row['name']}: seconds of all {row['steps']} steps, mesh and compiling included; means over"
                       f" {SWING} steps of lift and drag stay within 0.5 % from step {at} on", row["made_in"]
                       + row["seconds"], "at most", WING_SECONDS),
                  *(Goal(f"{row['name']}: share by which the {name} of single steps still swings, the last {SWING}",
                         share, "at most", STEADY) for name, share in by.items())]  # fmt: skip
    return found


def text_lines(found: list[dict[str, Any]]) -> list[str]:
    """All runs on paper."""
    rows = latest(found)
    table = [[row["name"], f"{row['cells']:,}", f"{row['steps']:,}", f"{row['seconds']:.1f}",
              ", ".join(f"{word} {row[key]:.4g}" for key, word in SHOWN.items() if key in row),
              f"{row['fall']:.1e}" if "fall" in row else ""] for row in rows]  # fmt: skip
    head = ("flow", "cells", "steps", "s", "found", "residual fell to")
    return [*rows_table(head, table), "", *goal_table(goals(rows))]


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    parser = parser_of("compressible", __doc__, work)
    parser.add_argument("--again", type=Path, nargs="+", metavar="FILE", help="show results, and measure nothing")
    parser.add_argument("--draw", type=Path, metavar="PNG", help="the sections of the wings of --again")
    options = parser.parse_args(arguments)
    if options.again:
        found = [load(file) for file in options.again]
        print("\n".join(text_lines(found)))
        if options.draw:
            draw(latest(found), options.draw)
        return 0
    if options.draw:
        parser.error("--draw needs results: --again FILE ...")
    run = measured("compressible", options, work, device)
    if run is None:
        return 2
    return run.finished(goals(run.result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
