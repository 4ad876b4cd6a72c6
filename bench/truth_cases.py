"""The applications compared with what their original programs gave: one function per run, one row per comparison.

Bounds stand next to each comparison as a pair: on a CPU, and on a GPU, where sums of many threads come in another order
and the compiler fuses other products with other sums. The reference data are in ``tests/data``; what is too big for it
is looked up in a folder of the originals' outputs, where one is given.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.bookleaf import DECKS
from bench.bookleaf import TOLERANCE as DECK_TOLERANCE
from bench.bookleaf import TRUTH as DECK_ENDS
from bench.cases import make, recorded_to_the_end, run_to_the_end

DATA = Path(__file__).parents[1] / "tests" / "data"
NOT_HERE = "not here"
BoundLoop = tuple[float, float]  # on a CPU, on a GPU
EXACTLY: BoundLoop = (0.0, 0.0)


@dataclass(frozen=True)
class Row:
    """One comparison. ``error`` is measured as the bound is; without one, ``note`` says why there is none."""

    application: str
    case: str
    what: str
    found: float | None = None
    wanted: float | None = None
    error: float | None = None
    bound: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.error is None or self.bound is None:
            return NOT_HERE if self.note == NOT_HERE else "missed"
        return "met" if self.error <= self.bound else "missed"  # an error that is not a number is a miss


@dataclass(frozen=True)
class Rows:
    """Makes the rows of one case."""

    application: str
    case: str

    def differ(self, what: str, error: float, bound: BoundLoop) -> Row:
        """Fields, where only the difference is worth a number."""
        return Row(self.application, self.case, what, error=float(error), bound=bound[ml.backend() == "cuda"])

    def number(self, what: str, found: float, wanted: float, bound: BoundLoop, floor: float = 0.0) -> Row:
        """A number: differences relative to it, or to ``floor`` where it is smaller; exactly where the bound is 0."""
        found, wanted, limit = float(found), float(wanted), bound[ml.backend() == "cuda"]
        size = 1.0 if limit == 0.0 else max(abs(wanted), floor)
        error = abs(found - wanted) / size if found != wanted else 0.0
        return Row(self.application, self.case, what, found, wanted, error, limit)

    def absent(self, what: str) -> Row:
        return Row(self.application, self.case, what, note=NOT_HERE)


@dataclass(frozen=True)
class Check:
    """A run that yields rows. Runs of one ``unit`` share kernels; ``quick`` ones take seconds."""

    application: str
    case: str
    unit: str
    rows: Callable[[Path | None], Iterator[Row]]
    quick: bool = True


def unmet(rows: Iterator[Row]) -> list[Row]:
    """The rows that are not met, for tests."""
    return [row for row in rows if row.verdict != "met"]


def relative(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.max(np.abs(found - wanted) / np.abs(wanted)))


# --- LULESH ---------------------------------------------------------------------------------------------------

LULESH_ENERGY: BoundLoop = (1e-12, 1e-9)
LULESH_TIME: BoundLoop = (1e-11, 1e-9)
LULESH_DT: BoundLoop = (1e-9, 1e-9)
LULESH_FIELDS: BoundLoop = (1e-10, 1e-9)
LULESH_SUMS: BoundLoop = (1e-11, 1e-9)
LULESH_SYMMETRY: BoundLoop = (1e-7, 1e-7)  # the original's is as small; not a number to compare
LULESH_SIZES = (5, 10, 20, 30)
LULESH_ON_THE_WAY = ("10_i1", "10_i10", "10_i100", "30_i10")  # size, cycles
LULESH_FARTHER = "30_i100"


@cache
def lulesh_truth() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "lulesh" / "summary.json").read_text())
    return found


def lulesh_fields(case: Any) -> dict[str, np.ndarray]:
    """Values by the names of the original."""
    found = {name: getattr(case, name).numpy() for name in ("e", "p", "q", "v")}
    found["ss"] = case.sound.numpy()
    for name, values in (("", case.x.numpy()), ("d", case.velocity.numpy())):
        found |= {axis + name: values[:, k] for k, axis in enumerate("xyz")}
    return found


def lulesh_energies(case: Any) -> tuple[float, float]:
    """Internal and kinetic energy of the gas."""
    mass, velocity = case.mass.numpy(), case.velocity.numpy()
    internal = float(case.e.numpy() @ case.volume0.numpy())
    return internal, float(0.5 * mass @ (velocity**2).sum(axis=1))


def lulesh_run(size: int, _: Path | None = None) -> Iterator[Row]:
    """To the end: every step, the energies, all fields where the original's are kept."""
    case, row, truth = make("lulesh", f"mesh.size={size}"), Rows("lulesh", f"size {size}"), lulesh_truth()[str(size)]
    steps = np.loadtxt(DATA / "lulesh" / f"dt_history_{size}.csv", delimiter=",", skiprows=1)
    rows = run_to_the_end(case)
    yield row.number("cycles", rows[-1, 1], truth["cycle"], EXACTLY)
    yield row.number("origin energy", rows[-1, 0], truth["origin_energy"], LULESH_ENERGY)
    yield row.number("time at the end", rows[-1, 2], truth["time"], EXACTLY)
    if len(rows) == len(steps):
        yield row.differ("time of every cycle", relative(rows[:, 2], steps[:, 1]), LULESH_TIME)
        yield row.differ("dt of every cycle", relative(rows[:, 3], steps[:, 2]), LULESH_DT)
    for name, found, key in zip(("internal energy", "kinetic energy"), lulesh_energies(case),
                                ("internal_energy_e_times_elemMass", "kinetic_energy"), strict=True):  # fmt: skip
        yield row.number(name, found, truth[key], LULESH_ENERGY)
    yield row.differ("symmetry of mirrored elements", rows[:, 6].max(), LULESH_SYMMETRY)
    if (file := DATA / "lulesh" / f"final_fields_{size}.npz").is_file():
        now = lulesh_fields(case)
        with np.load(file) as wanted:
            # relative where a value is as large as others, else to a hundredth of the largest
            worst = max(np.max(np.abs(now[name] - values) / (np.abs(values) + 0.01 * np.abs(values).max()))
                        for name, values in wanted.items())  # fmt: skip
        yield row.differ("all fields", worst, LULESH_FIELDS)


def lulesh_on_the_way(key: str, folder: Path | None = None) -> Iterator[Row]:
    """Sums, squares and extremes of all fields after some cycles."""
    size, cycles = map(int, key.split("_i"))
    row, what = Rows("lulesh", f"size {size}, {cycles} cycles"), "sums and extremes of all fields"
    truth = lulesh_truth().get(key)
    if truth is None:
        if folder is None or not (file := folder / "lulesh_full_precision.json").is_file():
            yield row.absent(what)
            return
        truth = json.loads(file.read_text())[f"off_{key}"]
    case = make("lulesh", f"mesh.size={size}")
    case.program.run(cycles)
    worst = 0.0
    for name, values in lulesh_fields(case).items():
        found = {"sum": values.sum(), "sumsq": values @ values, "min": values.min(), "max": values.max()}
        for kind, value in truth[name].items():
            worst = max(worst, abs(found[kind] - value) / max(abs(value), 1e-4))
    yield row.differ(what, worst, LULESH_SUMS)


# --- BookLeaf -------------------------------------------------------------------------------------------------

BOOKLEAF_PROBLEMS = ("sod", "sedov", "noh")
BOOKLEAF_FIELDS: BoundLoop = (1e-13, 1e-13)  # after 1 and 10 steps; no sum has more than four terms, on any device
BOOKLEAF_END: BoundLoop = (1e-10, 1e-9)
BOOKLEAF_DECK: BoundLoop = (DECK_TOLERANCE, DECK_TOLERANCE)
BOOKLEAF_STEP: BoundLoop = (1e-9, 1e-9)  # the original prints ten digits
BOOKLEAF_NAMES = ("density", "energy", "pressure", "x", "y", "u", "v")
BOOKLEAF_SHORT = "sod_lag_t5"


@cache
def bookleaf_fields_file() -> dict[str, np.ndarray]:
    """<problem>_<steps>_<field>"""
    with np.load(DATA / "bookleaf_fields.npz") as file:
        return dict(file)


def bookleaf_fields(case: Any) -> dict[str, np.ndarray]:
    """Values by the names of the original."""
    x, u = case.x.numpy(), case.u.numpy()
    found: dict[str, np.ndarray] = case.fields_by_name() | {"x": x[:, 0], "y": x[:, 1], "u": u[:, 0], "v": u[:, 1]}
    return {name: found[name] for name in BOOKLEAF_NAMES}


def bookleaf_worst(case: Any, truth: Mapping[str, np.ndarray]) -> float:
    """The largest difference of a field to the original program, in parts of what is largest there; both components
    of a vector are measured by the larger one."""
    largest = {name: np.abs(truth[name]).max() for name in BOOKLEAF_NAMES}
    for one, other in (("x", "y"), ("u", "v")):
        largest[one] = largest[other] = max(largest[one], largest[other])
    return max(float(np.abs(values - truth[name]).max() / largest[name])
               for name, values in bookleaf_fields(case).items())  # fmt: skip


def bookleaf_truth(problem: str, when: str) -> dict[str, np.ndarray]:
    return {name: bookleaf_fields_file()[f"{problem}_{when}_{name}"] for name in BOOKLEAF_NAMES}


def bookleaf_first_steps(problem: str, _: Path | None = None) -> Iterator[Row]:
    case, row, done = make(f"bookleaf_{problem}"), Rows("bookleaf", problem), 0
    for steps in (1, 10):
        case.program.run(steps - done)
        done = steps
        worst = bookleaf_worst(case, bookleaf_truth(problem, str(steps)))
        yield row.differ(f"all fields after {steps} step{'s' * (steps > 1)}", worst, BOOKLEAF_FIELDS)


def bookleaf_steps(row: Rows, recorded: np.ndarray, deck: str, folder: Path | None) -> Iterator[Row]:
    """Time and dt of every step, by the original's printout."""
    names = ("time", "dt")
    if folder is None or not (file := folder / f"bookleaf_{deck}_steps.csv").is_file():
        yield from (row.absent(f"{name} of every step") for name in names)
        return
    with file.open() as text_lines:
        printed = [(float(line["time"]), float(line["dt"])) for line in csv.DictReader(text_lines)]
    for name, found, wanted in zip(names, recorded.T[1:3], np.array(printed).T, strict=True):
        error = relative(found, wanted) if len(found) == len(wanted) else np.inf
        yield row.differ(f"{name} of every step", error, BOOKLEAF_STEP)


def bookleaf_run(deck: str, folder: Path | None = None) -> Iterator[Row]:
    """To the end: what the original reports there, and the fields where they are kept."""
    case, row = make(DECKS[deck]), Rows("bookleaf", deck)
    recorded = recorded_to_the_end(case)
    wanted = DECK_ENDS[deck]
    for name, value in zip(case.monitors, case.monitor_rows(recorded)[-1], strict=True):
        # cold gas has a pressure of 1e-22 where nothing has arrived yet
        bound, floor = (EXACTLY if name == "steps" else BOOKLEAF_DECK), (1e-3 if name == "pressure_min" else 0.0)
        yield row.number(name.replace("_", " "), value, wanted[name], bound, floor)
    problem = deck.split("_")[0]
    if problem in BOOKLEAF_PROBLEMS:
        worst = bookleaf_worst(case, bookleaf_truth(problem, "end"))
        yield row.differ("all fields at the end", worst, BOOKLEAF_END)
    if deck in ("sod_sm_lag_small", "sedov_lag_small"):
        yield from bookleaf_steps(row, recorded, deck, folder)


def bookleaf_short_run(folder: Path | None = None) -> Iterator[Row]:
    case, row, wanted = make("bookleaf_sod", "time.end=5"), Rows("bookleaf", BOOKLEAF_SHORT), DECK_ENDS[BOOKLEAF_SHORT]
    recorded = recorded_to_the_end(case)
    last = dict(zip(case.monitors, case.monitor_rows(recorded)[-1], strict=True))
    yield row.number("steps", last["steps"], wanted["steps"], EXACTLY)
    yield row.number("time", last["time"], wanted["time"], (1e-13, 1e-13))
    for name in ("internal_energy", "kinetic_energy"):
        yield row.number(name.replace("_", " "), last[name], wanted[name], BOOKLEAF_DECK)
    if folder is None or not (file := folder / f"bookleaf_{BOOKLEAF_SHORT}_fields.npz").is_file():
        yield row.absent("all fields at the end")
    else:
        with np.load(file) as truth:
            yield row.differ("all fields at the end", bookleaf_worst(case, truth), BOOKLEAF_END)
    yield from bookleaf_steps(row, recorded, BOOKLEAF_SHORT, folder)


# --- miniAero -------------------------------------------------------------------------------------------------

MINIAERO_CONSERVED = ("rho", "rho_u", "rho_v", "rho_w", "rho_E")
MINIAERO_COMPONENT: BoundLoop = (1e-12, 1e-12)
MINIAERO_PLATE_COMPONENTS: dict[int, BoundLoop] = {1: (1e-12, 1e-11), 400: (1e-5, 1e-5)}
# The layer at the plate's wall makes round-off grow from 1e-14 at step 100 to 1e-9 at step 200: another numbering of
# the same mesh ends as far away as the original does, so that no program but the original itself comes nearer. Its
# momentum across the plate is a 300th of the one along it, and as far off.
MINIAERO_RUNS: dict[tuple[str, int], BoundLoop] = {
    ("sod", 1): (1e-14, 1e-12), ("sod", 100): (1e-13, 1e-12),
    ("ramp", 1): (1e-14, 1e-12), ("ramp", 10): (1e-13, 1e-12), ("ramp", 400): (1e-13, 1e-12),
    ("plate", 1): (1e-14, 1e-12), ("plate", 400): (1e-7, 1e-7),
}  # fmt: skip


def miniaero_conserved(case: Any) -> np.ndarray:
    """(cells, 5) in the user's numbering."""
    fields = case.fields_by_name()
    return np.stack([fields[name] for name in MINIAERO_CONSERVED], axis=1)


def miniaero_away(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The largest difference of each component, (5,), in units of the largest density, momentum and energy.

    A momentum that is zero but for round-off has no size of its own.
    """
    largest = np.abs(expected).max(axis=0)
    largest[1:4] = largest[1:4].max()
    away: np.ndarray = np.abs(found - expected).max(axis=0) / largest
    return away


def miniaero_run(name: str, steps: int, _: Path | None = None) -> Iterator[Row]:
    row, case = Rows("miniaero", f"{name}, {steps} step{'s' * (steps > 1)}"), make(f"miniaero_{name}")
    with np.load(DATA / f"miniaero_{name}_{steps}.npz") as file:
        centres, truth = file["xyz"], file["U"]
    yield row.differ("centres of the cells", np.abs(case.mesh.cells.points - centres).max(), EXACTLY)
    case.program.run(steps)
    found, bound = miniaero_conserved(case), MINIAERO_RUNS[name, steps]
    yield row.differ("all fields", miniaero_away(truth, found).max(), bound)
    own = np.abs(truth).max(axis=0)
    loud = np.flatnonzero(own > 1e-3)  # each on its own scale, unless it is noise
    by_itself = (np.abs(found - truth).max(axis=0)[loud] / own[loud]).max()
    yield row.differ("each field on its own scale", by_itself,
                     MINIAERO_PLATE_COMPONENTS[steps] if name == "plate" else MINIAERO_COMPONENT)  # fmt: skip


# --- Volna ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WaterBounds:
    """How near a scheme can come. Its facts advise 1e-4 on fields after 100 steps, 1e-5 on mass and energy: all is
    in single precision, and sums depend on their order."""

    time: BoundLoop
    dt: BoundLoop
    energy: BoundLoop
    energy_floor: float  # a lake at rest has the energy of its rounding
    depth: BoundLoop  # its extremes
    volume: BoundLoop = (1e-6, 1e-5)
    first_dt: BoundLoop = (2e-6, 1e-5)  # of the first three steps


# v18 enlarges rounding: its limiter takes the smallest share over all variables, and where one of them is at rest but
# for its last digit, that digit decides. Another numbering moves the energy by 6e-4; at the end of thacker_40_40_T the
# same formulas end between 1.1e-3 below and 2.0e-3 above the original's, by NumPy and in C++, fast and as written.
WATER_BOUNDS = {
    "v17": WaterBounds(time=(1e-6, 1e-5), dt=(1e-6, 1e-5), energy=(1e-5, 1e-5), energy_floor=1e-6, depth=(1e-5, 1e-4)),
    "v18": WaterBounds(time=(2e-4, 2e-4), dt=(3e-3, 3e-3), energy=(3e-3, 3e-3), energy_floor=1e-8,
                       depth=(3e-3, 3e-3)),
}  # fmt: skip
# In the first steps after a dam is gone, rounding of 1e-9 in a velocity that is zero decides about slopes at its foot:
# the original has such rounding in some rows of cells; here the stages keep gains, and the velocity stays zero. The
# bounds are how far such a disturbance of the start moves this program.
V18_DAM = replace(WATER_BOUNDS["v18"], time=(4e-3, 4e-3), energy=(1.2e-2, 1.2e-2), first_dt=(8e-3, 8e-3))
V17_STATE: BoundLoop = (1e-6, 1e-4)
V17_TIME: BoundLoop = (2e-7, 1e-5)
V18_TIME: BoundLoop = (3e-4, 3e-4)
V18_DEPTH: BoundLoop = (2e-4, 2e-4)  # in the mean over the cells
V18_VELOCITY: BoundLoop = (1e-3, 1e-3)
WATER_STATES = {
    "v17": ("dambreak_100_20_it1", "dambreak_100_20_it10", "dambreak_100_20_it174", "thacker_40_40_it10",
            "thacker_40_40_it41", "thacker_40_40_it170", "lake_20_20_it48"),
    "v18": ("dambreak_100_20_it1", "dambreak_100_20_it10", "dambreak_100_20_it174", "thacker_40_40_it10",
            "thacker_40_40_it42", "thacker_40_40_it171", "lake_20_20_it48"),
}  # fmt: skip
WATER_TOTALS = {"dambreak_100_20_t0.5": (), "dambreak_400_20_t0.5": ("mesh.nx=400",), "thacker_40_40_T": (),
                "hump_180_60_t5": (), "lake_20_20": ()}  # fmt: skip


@cache
def water_totals() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "volna" / "volna_summary.json").read_text())
    return found


def water_reference(name: str) -> tuple[int, float, np.ndarray]:
    """Steps, time and state (cells, 4) that the original program came to."""
    with np.load(DATA / "volna" / f"volna_{name}.npz") as truth:
        return int(truth["iterations"]), float(truth["time"]), truth["values_H_u_v_zb"].astype(np.float64)


def water_state(case: Any) -> np.ndarray:
    state: np.ndarray = case.flow.w.numpy().astype(np.float64)
    return state


def water_at_a_step(scheme: str, name: str, _: Path | None = None) -> Iterator[Row]:
    """The state after as many steps."""
    steps, time, truth = water_reference(f"{scheme}_{name}")
    row, case = Rows("volna", f"{scheme} {name}"), make(f"volna_{name.split('_')[0]}", f"flow.scheme={scheme}")
    last = case.program.run(steps, record=case.recorded)[-1]
    wrong = np.abs(water_state(case) - truth)
    if scheme == "v17":
        yield row.number("time", last[0], time, V17_TIME)
        yield row.differ("state, largest difference", wrong.max() / np.abs(truth).max(), V17_STATE)
        return
    yield row.number("time", last[0], time, V18_TIME)
    depth, speed = truth[:, 0].max(), np.hypot(truth[:, 1], truth[:, 2]).max()
    waves = np.sqrt(case.config.flow.gravity * depth)
    moving = speed if speed > 1e-3 * waves else waves  # still water has no speed but that of its rounding
    mean = wrong.mean(axis=0)
    yield row.differ("depth, mean difference", mean[0] / depth, V18_DEPTH)
    yield row.differ("velocity, mean difference", max(mean[1], mean[2]) / moving, V18_VELOCITY)
    yield row.differ("bed", mean[3], EXACTLY)


def water_to_the_end(scheme: str, name: str, _: Path | None = None) -> Iterator[Row]:
    """Steps and totals, at the steps that the original printed and at the end."""
    row, truth, bounds = Rows("volna", f"{scheme} {name}"), water_totals()[f"{scheme}_{name}"], WATER_BOUNDS[scheme]
    case = make(f"volna_{name.split('_')[0]}", f"flow.scheme={scheme}", *WATER_TOTALS[name])
    recorded = recorded_to_the_end(case)
    yield row.number("steps", len(recorded), truth["end"]["it"], EXACTLY)
    on_the_way = V18_DAM if scheme == "v18" and "dam" in name else bounds
    for at, bound in (*((step, on_the_way) for step in truth["steps"]), (truth["end"], bounds)):
        step = int(at["it"])
        when = "the end" if at is truth["end"] else f"step {step}"
        time, dt, volume, energy = recorded[min(step, len(recorded)) - 1, :4]
        yield row.number(f"time at {when}", time, at["t"], bound.time)
        yield row.number(f"dt at {when}", dt, at["dt"], bound.first_dt if step <= 3 else bound.dt)
        yield row.number(f"volume at {when}", volume, at["mass"], bound.volume)
        yield row.number(f"energy at {when}", energy, at["ke"], bound.energy, bound.energy_floor)
    depth = water_state(case)[:, 0]
    yield row.number("least depth at the end", depth.min(), truth["end"]["hmin"], bounds.depth)
    yield row.number("largest depth at the end", depth.max(), truth["end"]["hmax"], bounds.depth)


# --- all of them ----------------------------------------------------------------------------------------------


def checks() -> list[Check]:
    """Every run, the longest first within its unit."""
    found = [Check("lulesh", f"size {size}", "lulesh", partial(lulesh_run, size), size <= 10)
             for size in reversed(LULESH_SIZES)]  # fmt: skip
    found += [Check("lulesh", key, "lulesh", partial(lulesh_on_the_way, key), key != LULESH_FARTHER)
              for key in (*LULESH_ON_THE_WAY, LULESH_FARTHER)]  # fmt: skip
    for deck in DECKS:
        problem = deck.split("_")[0]
        quick = problem in ("sod", "sedov")
        found.append(Check("bookleaf", deck, f"bookleaf_{problem}", partial(bookleaf_run, deck), quick))
        if problem in BOOKLEAF_PROBLEMS:
            found.append(Check("bookleaf", problem, f"bookleaf_{problem}", partial(bookleaf_first_steps, problem)))
    found.append(Check("bookleaf", BOOKLEAF_SHORT, "bookleaf_sod", bookleaf_short_run))
    found += [Check("miniaero", f"{name} {steps}", f"miniaero_{name}", partial(miniaero_run, name, steps), steps < 400)
              for name, steps in MINIAERO_RUNS]  # fmt: skip
    for scheme, names in WATER_STATES.items():
        unit = f"volna_{scheme}"
        found += [Check("volna", name, unit, partial(water_at_a_step, scheme, name)) for name in names]
        found += [Check("volna", name, unit, partial(water_to_the_end, scheme, name), "400" not in name)
                  for name in WATER_TOTALS]  # fmt: skip
    return found
