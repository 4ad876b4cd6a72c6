"""Loops and programs on several ranks: the same bits as on one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.dist import world
from meshloom.dist.placement import Placement
from meshloom.dist.world import World
from meshloom.errors import UserError
from meshloom.mesh.numbering import Rows
from meshloom.process import ranks as of_process
from meshloom.process.ranks import LAUNCHERS, told_by_launchers
from tests.dist import on_ranks
from tests.dist.launch import launched, over_ranks
from tests.one_line import one_line_from


def ran(backend: str, ranks: int | None, module: str = "tests.dist.on_ranks", *names: str) -> dict[str, Any]:
    """What ``on_ranks``, or another module of runs, prints; None: without a launcher. ``names``: of some runs alone."""
    done = launched(ranks, ["-m", module, backend, *names], MESHLOOM_POISON_HALOS=str(int(backend == "numpy")))
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("ranks") == (ranks or 1)
    return found


@cache
def alone(backend: str, *more: str) -> dict[str, Any]:
    return ran(backend, None, *more)


def test_three_ranks_give_the_same_bits() -> None:
    """In every run."""
    assert ran("cpu", 3) == alone("cpu")


@over_ranks(["numpy", "cpu", "emulated"], [4, 2, 3, 1])
def test_any_number_of_ranks_gives_the_same_bits(backend: str, ranks: int) -> None:
    assert ran(backend, ranks) == alone(backend)


@pytest.mark.parametrize(
    ("backend", "ranks", "seeds"),
    [("cpu", 3, range(4)), *(pytest.param(*row, marks=pytest.mark.slow) for row in (
        ("numpy", 2, range(60)), ("numpy", 4, range(60)), ("cpu", 2, range(25)), ("cpu", 4, range(25)),
        ("emulated", 3, range(12))))],
)  # fmt: skip
def test_random_programs_give_the_same_bits(backend: str, ranks: int, seeds: range) -> None:
    """Loops are fused between exchanges, on every rank as is best there."""
    given = "tests.dist.on_ranks_programs", *map(str, seeds)
    assert ran(backend, ranks, *given) == alone(backend, *given)


@pytest.mark.slow
def test_the_public_surface_is_the_same_on_three_ranks() -> None:
    """A file of tests that knows nothing of ranks, on every back end: each of them runs it, and judges."""
    all_rows = "-m", "slow or not slow"
    done = launched(3, ["-m", "pytest", "-q", "-p", "no:cacheprovider", *all_rows, "tests/test_surface.py"])
    assert done.returncode == 0 and done.stdout.count("6 passed") == 3, done.stdout[-3000:]


def test_what_is_run_depends_on_its_values() -> None:
    """The digests tell results apart."""
    with ml.using("numpy", reproducible=True):
        found = [on_ranks.digest(run()) for run in on_ranks.RUNS.values()]
    assert len(set(found)) == len(found)
    assert on_ranks.digest([np.zeros(2)]) != on_ranks.digest([np.array([0.0, -0.0])])


def test_a_process_by_itself_is_a_world_of_one() -> None:
    assert (ml.world.rank, ml.world.size, ml.world.node_rank, ml.world.node_size) == (0, 1, 0, 1)
    mesh = ml.generate.box((3, 2), cells="quad")
    u = mesh.cells.field("u", 2, data=lambda points: points[:, :2])
    assert np.array_equal(mesh.cells.mine, np.arange(6)) and np.array_equal(u.local(), u.numpy())
    assert np.array_equal(World().gathered(np.arange(3))[0], np.arange(3))


def test_launchers_are_known_by_what_they_say() -> None:
    """Its rank, and how many there are. Who says one of these without the other has started no ranks."""
    for rank, size in LAUNCHERS:
        assert told_by_launchers({rank: "3", size: "4"}) == (3, 4)
        for other in ({rank: "3"}, {size: "4"}, {rank: "3", size: "many"}, {rank: "none", size: "4"},
                      {rank: "4", size: "4"}, {rank: "0", size: "0"}):  # fmt: skip
            assert told_by_launchers(other) == (0, 1), "no rank of one is silent"
    assert told_by_launchers({}) == (0, 1)
    nested = {"PMI_RANK": "0", "PMI_SIZE": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    assert told_by_launchers(nested) == (1, 2), "a launcher inside of one that has started it alone"


def test_steps_of_slurm_are_ranks_where_pmix_joins_them() -> None:
    """Others may be as many processes as one likes, each by itself."""
    step = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "8", "SLURM_PROCID": "2"}
    assert told_by_launchers(step) == (0, 1) and told_by_launchers(step | {"PMIX_RANK": "2"}) == (2, 4)
    assert told_by_launchers({"SLURM_NTASKS": "8", "PMIX_RANK": "1"}) == (0, 1), "a script that srun has not started"


@pytest.mark.parametrize("tasks", ["1", "4", "256"])
@pytest.mark.parametrize("size", ["1", "2"])
@pytest.mark.parametrize("names", LAUNCHERS)
def test_another_launcher_inside_of_slurm_is_believed(names: tuple[str, str], size: str, tasks: str) -> None:
    """The step may be that of the daemons by which it starts its ranks, or of all nodes."""
    step = {"SLURM_STEP_NUM_TASKS": tasks, "PMIX_RANK": "0"}
    assert told_by_launchers(step | dict(zip(names, ("0", size), strict=True))) == (0, int(size))


ANOTHER = "a launcher has started 3 processes, and mpi4py sees 1 of them: it was made for another MPI"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"MV2_COMM_WORLD_SIZE": "1", "SLURM_STEP_NUM_TASKS": "3"}, ""),
        ({"MV2_COMM_WORLD_SIZE": "3", "MV2_COMM_WORLD_RANK": "0"}, ANOTHER),
    ],
)
def test_processes_that_each_believe_to_be_alone_are_told(said: dict[str, str], message: str) -> None:
    """As a launcher of another MPI than mpi4py's leaves them."""
    done = launched(None, ["-c", "import meshloom as ml\nprint(ml.world.size)"], **said)
    if message:
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and message in done.stderr
    else:
        assert done.stdout == "1\n"


def test_functions_of_points_are_checked() -> None:
    mesh = ml.generate.box((3, 2), cells="quad")
    with pytest.raises(ml.errors.MeshError, match="does not know where its elements are"):
        ml.Set(4, "plain").field("u", data=lambda points: points[:, 0])
    with pytest.raises(ml.errors.MeshError, match=r"its function of 6 points gave values of shape \(2,\)"):
        mesh.cells.field("u", data=lambda points: points[:2, 0])
    assert mesh.cells.field("u", data=lambda points: 2.0).numpy().tolist() == [2.0] * 6


def test_arrays_of_a_wrong_shape_are_told_that_they_are_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = ml.generate.box((4, 3), cells="quad")
    u, some = mesh.cells.field("u"), np.zeros(6)
    ends = ml.Map(mesh.faces, mesh.cells, np.zeros((len(mesh.faces), 2), int), "ends")
    wrong: dict[str, Callable[[], object]] = {
        r"data has shape \(6,\), expected \(12,\)": lambda: u.assign(some),
        r"expected \(12,\)": lambda: mesh.cells.field("v", data=some),
        r"a mask of cells has the shape \(12,\), got \(6,\)": lambda: mesh.cells.subset(some > 0.0),
        r"expected \(17, 2\)": lambda: ends.assign(np.zeros((17, 3), int)),
        r"expected \(17, arity\)": lambda: ml.Map(mesh.faces, mesh.cells, np.zeros((6, 2), int), "e"),
    }
    for said, attempt in wrong.items():
        with one_line_from(ml.errors.MeshError, f"{said}$"):
            attempt()
    monkeypatch.setattr(Rows, "placement", Placement())
    for said, attempt in wrong.items():
        with one_line_from(ml.errors.MeshError, f"{said}; on several ranks values are those of the whole set, on ev"):
            attempt()


def test_mpi4py_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_process, "launched", lambda: of_process.Launched(1, 2))
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(UserError, match=r"a launcher has started 2 processes, and mpi4py is not there to join them"):
        world._of_launcher()
