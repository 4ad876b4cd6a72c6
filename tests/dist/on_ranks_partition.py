"""Partitions by name and by array on any number of ranks, for ``test_partition_on_ranks.py``, as ``on_ranks.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.dist import partition
from meshloom.errors import ConfigError, PartitionError, UserError
from meshloom.mesh.numbering import Rows
from meshloom.process.ranks import by_root
from tests.dist import on_ranks
from tests.dist.on_ranks_cases import digests

SMALL = {"mesh.i": 4, "mesh.j": 6, "run.reproducible": True, "output.plot": False}
CELLS = 72  # of an airfoil as small as that


def dealt(cells: int) -> np.ndarray:
    """One cell to each rank in turn."""
    return np.arange(cells) % ml.world.size


def to_last(cells: int) -> np.ndarray:
    """All cells to the last rank: the others have none."""
    return np.full(cells, ml.world.size - 1)


def given(how: Callable[[int], np.ndarray]) -> np.ndarray:
    """What a step leaves on a mesh that is cut so, and the cells of this rank are those that it was given."""
    mesh = ml.generate.naca0012(4, 6)
    wanted = how(len(mesh.cells))
    with ml.using(ml.backend(), partition=wanted):
        wanted_here = wanted == ml.world.rank
        wanted[:] = 0  # what was given counts
        u = mesh.cells.field("u", data=lambda points: points[:, 0] * points[:, 1])
        assert ml.world.size == 1 or np.array_equal(mesh.cells.mine, np.flatnonzero(wanted_here))
        on_ranks.diffusing(mesh, u)[0].run(4)
        return u.numpy()


def by_array() -> list[np.ndarray]:
    """The same bits however cells are given to ranks, and the usual partition again behind it."""
    found = [given(dealt), given(to_last), given(lambda cells: np.zeros(cells, np.uint8))]
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    assert Rows.placement.cutting == "rcb"
    return found[:1]


def by_name() -> list[np.ndarray]:
    """The same bits by every partitioner that is installed; what cuts is what was named."""
    asked: list[str] = []
    found = []
    for name in (one for one in ml.partitioners() if not partition.missing(one)):
        cut = partition.PARTITIONERS[name]
        partition.PARTITIONERS[name] = lambda task, ranks, name=name, cut=cut: (asked.append(name), cut(task, ranks))[1]
        with ml.using(ml.backend(), partition=name):
            found.append(np.concatenate([one.reshape(-1) for one in on_ranks.diffusion()]))
        partition.PARTITIONERS[name] = cut
        assert ml.world.size == 1 or set(asked[-1:]) == {name}
    assert len(found) > 1 and all(np.array_equal(one, found[0]) for one in found)
    return found[:1]


def in_folder(run: Callable[[Path], list[np.ndarray]]) -> list[np.ndarray]:
    """What it leaves, in a folder that all ranks see."""
    with TemporaryDirectory() as own:
        folder = Path(ml.world.broadcast(own))
        found = run(folder)
        ml.world.allgathered(0)  # the root's is still there
    return found


def gone_on(folder: Path) -> list[np.ndarray]:
    """A case by one partition and then by another: the same monitors and fields as by the usual one in one go."""
    by_root(np.save)(folder / "dealt.npy", dealt(CELLS))
    settings: dict[str, Any] = SMALL | {"run.backend": ml.backend()}
    ml.run_case("airfoil", settings | {"run.iterations": 4, "output.every": 2}, out=folder / "whole", progress=False)
    ml.run_case("airfoil", settings | {"run.iterations": 2, "output.every": 2, "run.partition": f"{folder}/dealt.npy"},
                out=folder / "parts", progress=False)  # fmt: skip
    done = ml.run_case("airfoil", {"run.iterations": 4, "run.partition": "rcb"}, restart=folder / "parts",
                       progress=False)  # fmt: skip
    expected, found = digests(folder / "whole"), digests(folder / "parts")
    for name in ("monitors.csv", "fields_0000002.vtu", "fields_0000004.vtu"):
        assert found[name] == expected[name], name
    return [*done.fields.values()]


def refused(folder: Path) -> list[np.ndarray]:
    """What is no partition is told in a line on all ranks, and nothing is left of it."""

    def using(how: object) -> None:
        ml.use(ml.backend(), partition=how)  # type: ignore[arg-type]

    few = "|".join(ml.partitioners())
    with pytest.raises(PartitionError, match=r"unknown partitioner 'hilbrt'; did you mean 'hilbert'\?"):
        using("hilbrt")
    with pytest.raises(PartitionError, match=rf"^partition must be one of ({few}|, )+, or a rank for each cell, got"):
        using([0.5])
    if ml.world.size == 1:  # where nothing is cut what is given does nothing
        with ml.using(ml.backend(), partition=[5, 7]):
            return [given(dealt)]
    with pytest.raises(PartitionError, match=rf"has numbers from 0 to {ml.world.size - 1}, got 9 for cell 1$"):
        using([0, 9])
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "pymetis", None)
        with pytest.raises(PartitionError, match="partitioner 'metis' needs the package pymetis: pip install"):
            using("metis")
    assert Rows.placement.cutting == "rcb"
    mesh = ml.generate.naca0012(4, 6)
    with ml.using(ml.backend(), partition=[0, 0]), pytest.raises(PartitionError, match=f"a partition of {CELLS} cells"):
        _ = mesh.cells.mine
    by_root(np.save)(folder / "few.npy", dealt(5))
    before = set(folder.iterdir())
    for said, error, line in (("few.npy", ConfigError, f"few.npy: a partition of {CELLS} cells is {CELLS} whole"),
                              ("none.npy", UserError, "none.npy: cannot be read: No such file")):  # fmt: skip
        with pytest.raises(error, match=line):
            ml.run_case("airfoil", SMALL | {"run.partition": f"{folder}/{said}"}, out=folder / "out", progress=False)
        ml.world.allgathered(0)
        assert set(folder.iterdir()) == before
    return [given(dealt)]


RUNS: dict[str, Callable[[], list[np.ndarray]]] = {
    "by_array": by_array, "by_name": by_name, "gone_on": lambda: in_folder(gone_on),
    "refused": lambda: in_folder(refused),
}  # fmt: skip


def main(backend: str, *names: str) -> None:
    ml.use(backend, reproducible=True)
    on_ranks.report({name: RUNS[name]() for name in names or RUNS})


if __name__ == "__main__":
    main(*sys.argv[1:])
