"""Ranks that share a GPU: the bits of one process on it."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.dist import on_ranks_overlap
from tests.dist.launch import launched
from tests.dist.matrix import AT_ONCE, NAMES, SAME, Alone, Launch, outcomes
from tests.dist.test_ranks import alone, ran

pytestmark = pytest.mark.gpu
RANKS = (1, 2, 4)
ALONE = Alone()
#: All, but the script that reads a file by meshio where there is none.
HERE = [name for name in NAMES if name != "files" or find_spec("meshio")]
#: Modules of runs, and which of them.
RUNS = {
    "tests.dist.on_ranks": (),
    "tests.dist.on_ranks_linalg": ("quick", "assembled", "odd sets"),
    "tests.dist.on_ranks_overlap": tuple(on_ranks_overlap.RUNS),
    "tests.dist.on_ranks_programs": tuple(map(str, range(12))),
    "tests.dist.on_ranks_meshes": tuple(map(str, range(14))),
    "tests.dist.on_ranks_grids": tuple(map(str, range(8))),
}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("module", RUNS)
def test_loops_programs_and_solvers(module: str, ranks: int) -> None:
    assert ran("cuda", ranks, module, *RUNS[module]) == alone("cuda", module, *RUNS[module])


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("some", [HERE[k : k + AT_ONCE] for k in range(0, len(HERE), AT_ONCE)], ids=lambda s: s[0])
def test_cases(some: list[str], ranks: int) -> None:
    found = outcomes(Launch("cuda", ranks), some, ALONE)
    assert {name: one for name, one in found.items() if one != SAME} == {}


def test_the_public_surface_on_three_ranks() -> None:
    done = launched(3, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "tests/test_surface.py"])
    assert done.returncode == 0 and done.stdout.count("2 passed") == 3, done.stdout[-3000:]
