"""Cases made by name and run to their end, as the command line does it, for benchmarks and tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.case import Case
from meshloom.config import build, parse_set
from meshloom.solvers import find_case


def make(case: str | type[Case], *settings: str) -> Any:
    """``make("bookleaf_sod", "mesh.cells=[30,2]")``: a case with ``--set`` changes."""
    kind = find_case(case) if isinstance(case, str) else case
    return kind(build(kind.Config, [parse_set(one) for one in settings]))


def recorded_to_the_end(case: Case) -> np.ndarray:
    """What is recorded after every step until the case says that none is left: (steps, globals)."""
    last = case.recorded_now()
    rows = [np.empty((0, len(last)))]
    while left := case.steps_left(last):
        rows.append(case.program.run(left, record=case.recorded))
        last = rows[-1][-1]
    return np.concatenate(rows)


def run_to_the_end(case: Case) -> np.ndarray:
    """The monitors of every step: (steps, monitors)."""
    return case.monitor_rows(recorded_to_the_end(case))
