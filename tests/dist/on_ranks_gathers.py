"""Every case that runs on ranks with all of its files, for ``test_partition_on_ranks.py``: ``python -m
tests.dist.on_ranks_gathers BACKEND [CASE...]`` prints for each of them the fields that were gathered, by name."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import pytest

import meshloom as ml
from meshloom.case import Case
from meshloom.catalogue import find
from meshloom.dist.array import DistributedArray
from meshloom.io import plots
from meshloom.io.rank_rows import RankRows
from meshloom.launch import Request, check, folder_for, iterate, prepare
from meshloom.process.ranks import by_root
from meshloom.run.report import RunReport
from meshloom.solvers.airfoil import Airfoil
from meshloom.studies.single_run import settings_of
from tests.dist.on_ranks_cases import CASES, SETTINGS, VARIANTS

#: On the faces of a wall, all of which is in a chart; and the norms of residuals, one for each iteration of a solver.
SMALL = {"surface_pressure", "surface_shear", "middle", "area", "normal", "history"}
PLANTED = "planted"


class Planted(Airfoil):
    """One that gathers."""

    small: ClassVar[Mapping[str, Any]] = {"mesh.i": 4, "mesh.j": 6}

    def cell_fields(self) -> dict[str, np.ndarray]:
        return super().cell_fields() | {"density": self.q.numpy()[:, 0]}


@contextmanager
def watched() -> Iterator[tuple[list[str], list[int], list[tuple[int, ...]]]]:
    """Meanwhile: names of fields that are gathered, numbers of other rows that every rank gets, and, on the root,
    shapes of what is to be drawn. Nothing is drawn."""
    fields: list[str] = []
    rows: list[int] = []
    drawn: list[tuple[int, ...]] = []
    get, everywhere = DistributedArray.get, RankRows.gathered

    def getting(array: DistributedArray) -> np.ndarray:
        if array.local.name not in SMALL and not array.on.everywhere:
            fields.append(array.local.name)
        return get(array)

    def gathering(some: RankRows) -> np.ndarray:
        rows.append(some.count)
        return everywhere(some)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DistributedArray, "get", getting)
        patched.setattr(RankRows, "gathered", gathering)
        for name, at in (("save_picture", 3), ("save_surface", 3), ("save_curves", 1)):
            patched.setattr(plots, name, by_root(lambda *given, at=at, **_: drawn.append(np.shape(given[at]))))
        yield fields, rows, drawn


def gathered_by(case: type[Case] | str, folder: Path, settings: dict[str, Any]) -> str:
    """What of, in a run from set-up to the last picture."""
    request = Request(case, tuple(settings_of("gathers", settings)), folder)
    job = check(request)
    with watched() as (fields, rows, drawn), ml.using(ml.backend()):
        made, runner = prepare(job, folder_for(request, job), RunReport(), time.perf_counter())
        iterate(job, runner.folder, runner)
    assert not runner.guard.failures, runner.guard.failures
    assert (len(drawn) > 0) == (ml.world.rank == 0) and all(one[0] > 0 for one in drawn), "the root has what it draws"
    many = [f"{one} rows" for one in rows if 2 * one > len(made.mesh.cells)]
    return ", ".join(fields + many)


def main(backend: str, *names: str) -> None:
    ml.use(backend, reproducible=True)
    found: dict[str, Any] = {}
    with TemporaryDirectory() as own:
        folder = Path(ml.world.broadcast(own))
        for name in names or (*CASES, *VARIANTS, PLANTED):
            target, changed = VARIANTS.get(name, (name, SETTINGS.get(name, {})))
            case = Planted if name == PLANTED else find(target)
            usual = {"run.backend": backend, "run.reproducible": True, "run.iterations": 2, "output.every": 1}
            found[name] = gathered_by(case, folder / name, {**case.small, **changed, **usual})
        assert ml.world.broadcast(found) == found, "every rank has the same"
    if ml.world.rank == 0:
        print(json.dumps(found | {"ranks": ml.world.size}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
