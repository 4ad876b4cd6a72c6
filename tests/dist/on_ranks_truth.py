"""The applications compared with their originals on any number of ranks, for ``test_truth_on_ranks.py``: ``python -m
tests.dist.on_ranks_truth BACKEND UNIT...`` prints a line with the rows of ``bench.truth`` for each unit, as they are
everywhere, and of the residuals of ``airfoil``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np

import meshloom as ml
from bench.cases import make
from bench.truth import run_unit
from bench.truth_cases import DATA, Row, Rows

AIRFOIL, ITERATIONS = "airfoil", 100


def airfoil_rows(i: int = 20, j: int = 30) -> Iterator[Row]:
    """Residuals on a mesh of the original's kind, with the bound of ``tests/solvers/test_airfoil.py``."""
    truth = json.loads((DATA / "airfoil_rms.json").read_text())[f"{i}x{j}"]
    case = make(AIRFOIL, f"mesh.i={i}", f"mesh.j={j}")
    found = case.monitor_rows(case.program.run(ITERATIONS, record=case.recorded))[:, 0]
    for at, wanted in truth.items():
        if int(at) <= ITERATIONS:
            yield Rows(AIRFOIL, f"{i} x {j}").number(f"residual {at}", found[int(at) - 1], wanted, (1e-9, 1e-9))


def rows_of(unit: str) -> list[dict[str, object]]:
    """Of the runs that take seconds; of a unit without those all."""
    if unit == AIRFOIL:
        return [*map(asdict, airfoil_rows())]
    found: list[dict[str, object]] = run_unit(unit, None, quick=True)["rows"]
    return found or run_unit(unit, None, quick=False)["rows"]


def main(backend: str, *units: str) -> None:
    ml.use(backend, reproducible=True)
    found = {unit: rows_of(unit) for unit in units}
    numbers = np.array([row["error"] for rows in found.values() for row in rows], float)
    everybody = ml.world.gathered(numbers.reshape(1, -1))
    assert all(np.array_equal(one, everybody[0], equal_nan=True) for one in everybody), "every rank has the same"
    if ml.world.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
