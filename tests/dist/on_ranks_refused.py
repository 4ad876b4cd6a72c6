"""What does not run on several ranks, and every case, by name, for ``test_refused_on_ranks.py``: ``python -m
tests.dist.on_ranks_refused FOLDER`` tries each, and prints a line with what every rank was told: the exit code that it
would end with, and the message; "ran" where it was not refused."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import meshloom as ml
from meshloom.catalogue import case_names, find
from meshloom.errors import MeshloomError

#: That say so, and others.
CASES = tuple(name for name in case_names() if find(name).not_on_ranks)
RUN = tuple(name for name in case_names() if name not in CASES)


@ml.kernel
def double(u: ml.ReadWrite):
    u *= 2.0


def spread_out() -> ml.Field:
    """A field whose values are on several ranks."""
    u = ml.Set(8, "things").field("u", data=np.arange(8.0))
    double(u.set, u)
    return u


def plane() -> ml.Grid:
    return ml.Grid((8, 6), name="plane")


def solved_along(axis: int) -> None:
    on = plane()
    systems = ml.linalg.LineSystems(on, axis, -1.0, 4.0, -1.0)
    systems.solve(on.field("f", data=1.0), on.field("x"))


def in_a_part() -> None:
    on = plane()
    double(on.subset(np.eye(8, 6, dtype=bool)), on.field("u"))


def run_undeclared(name: str) -> None:
    """A case that says nothing: what its program or its solvers cannot do is found on the way."""
    kind: Any = find(name)
    said, kind.not_on_ranks = kind.not_on_ranks, ""
    try:
        run(name)
    finally:
        kind.not_on_ranks = said


def run(name: str) -> None:
    settings = {**find(name).small, "run.iterations": 1, "run.backend": "numpy", "output.plot": False}
    ml.run_case(name, settings, out=FOLDER / name, progress=False)


FOLDER = Path(sys.argv[1] if __name__ == "__main__" else "nowhere")
ROWS = sparse.csr_matrix(np.array([[2.0, 1.0], [1.0, 2.0]]))
TRIED: dict[str, Callable[[], object]] = {
    "memory": lambda: spread_out().memory(),
    "view": lambda: spread_out().view(),
    "dlpack": lambda: np.from_dlpack(spread_out()),
    "wrap": lambda: ml.Set(8, "things").field("u", wrap=np.zeros(8)),
    "pickle": lambda: pickle.dumps(spread_out()),
    "study": lambda: ml.study("airfoil", over={"flow.mach": [0.3, 0.4]}, out=FOLDER / "study"),
    "along the cut axis": partial(solved_along, 0),
    "in a part of a grid": in_a_part,
    "fast_poisson": lambda: ml.linalg.FastPoisson(ml.linalg.Poisson(plane(), low="dirichlet")),
    "solid cells": lambda: ml.linalg.FastPoisson(ml.linalg.Poisson(plane()), solid=np.eye(8, 6, dtype=bool)),
    "multigrid": lambda: ml.linalg.Multigrid(ml.linalg.Poisson(plane(), low="dirichlet")),
    "piccg by rows": lambda: ml.linalg.PICCG(ROWS),
    "piccg by rows of a grid": lambda: ml.linalg.PICCG(ml.linalg.Poisson(plane(), low="dirichlet"), fill=1),
    **{f"case {name}": partial(run, name) for name in (*CASES, *RUN)},
    **{f"case {name}, undeclared": partial(run_undeclared, name) for name in CASES},
}


def told(tried: Callable[[], object]) -> tuple[int, str]:
    try:
        tried()
    except MeshloomError as error:
        return error.exit_code, str(error)
    return 0, "ran"


def main() -> None:
    ml.use("numpy", reproducible=True)
    found = {name: told(tried) for name, tried in TRIED.items()}
    assert ml.world.broadcast(found) == found, "all ranks are told the same"
    if ml.world.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
