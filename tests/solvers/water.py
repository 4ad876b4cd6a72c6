"""Water cases for tests: made by name, run by steps or to their end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.config import build, parse_set
from meshloom.solvers.case import find_case
from meshloom.solvers.volna.basins import WaterCase

DATA = Path(__file__).parents[1] / "data" / "volna"
TOTALS: dict[str, Any] = json.loads((DATA / "volna_summary.json").read_text())


def water(name: str, *changes: str) -> Any:
    """A case with ``--set`` changes."""
    found = find_case(name)
    return found(build(found.Config, map(parse_set, changes)))


def run(case: WaterCase, steps: int) -> np.ndarray:
    """So many steps; what was recorded (steps, globals)."""
    return case.program.run(steps, record=case.recorded)


def to_the_end(case: WaterCase) -> tuple[int, np.ndarray]:
    """As the runner does it: the number of steps, and what was recorded last."""
    steps, last = 0, case.recorded_now()
    while (left := case.steps_left(last)) > 0:
        last = run(case, left)[-1]
        steps += left
    return steps, last


def reference(name: str) -> tuple[int, float, np.ndarray]:
    """Steps, time and state (cells, 4) that the original program came to."""
    with np.load(DATA / f"volna_{name}.npz") as truth:
        return int(truth["iterations"]), float(truth["time"]), truth["values_H_u_v_zb"].astype(np.float64)


def state_of(case: WaterCase) -> np.ndarray:
    return case.flow.w.numpy().astype(np.float64)
