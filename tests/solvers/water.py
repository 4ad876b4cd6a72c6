"""Water cases for tests: made by name, run by steps or to their end."""

from __future__ import annotations

import numpy as np

from bench.cases import make as water
from bench.cases import recorded_to_the_end
from bench.truth_cases import DATA as ALL_DATA
from bench.truth_cases import water_reference as reference
from bench.truth_cases import water_state as state_of
from meshloom.solvers.volna.basins import WaterCase

DATA = ALL_DATA / "volna"
__all__ = ["DATA", "reference", "run", "state_of", "to_the_end", "water"]


def run(case: WaterCase, steps: int) -> np.ndarray:
    """So many steps; what was recorded (steps, globals)."""
    return case.program.run(steps, record=case.recorded)


def to_the_end(case: WaterCase) -> tuple[int, np.ndarray]:
    """As the runner does it: the number of steps, and what was recorded last."""
    recorded = recorded_to_the_end(case)
    return len(recorded), recorded[-1]
