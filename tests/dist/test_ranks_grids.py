"""Random programs on grids, and random numbers, on several ranks: the same bits as without a launcher."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import meshloom as ml
from tests.dist import on_ranks_grids
from tests.dist.launch import launched, over_ranks
from tests.dist.on_ranks import digest

QUICK = (8, 16)  # periodic first axes: three axes with ghosts, and two without along the first
SEEDS = {"numpy": tuple(range(24)), "cpu": tuple(range(12)), "emulated": (4,)}


@cache
def ran(backend: str, seeds: tuple[int, ...], ranks: int | None) -> dict[str, Any]:
    """What ``on_ranks_grids`` prints."""
    done = launched(ranks, ["-m", "tests.dist.on_ranks_grids", backend, *map(str, seeds)])
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("ranks") == (ranks or 1)
    return found


def test_programs_on_grids_have_the_same_bits_on_two_ranks() -> None:
    with ml.using("numpy", reproducible=True):
        alone = {str(seed): digest(on_ranks_grids.run(seed)) for seed in QUICK}
    assert len(set(alone.values())) == len(QUICK)
    assert ran("numpy", QUICK, 2) == alone


@over_ranks(SEEDS, [4, 3, 2, 1])
def test_random_programs_on_grids_have_the_same_bits_on_any_number_of_ranks(backend: str, ranks: int) -> None:
    assert ran(backend, SEEDS[backend], ranks) == ran(backend, SEEDS[backend], None)


TOO_FAR = """
import meshloom as ml

ml.use("numpy")
grid = ml.Grid((8, 6))
u, v = grid.field("u"), grid.field("v")


@ml.kernel
def far(u: ml.Read, v: ml.Write):
    v[...] = u[-4, 0] + u[3, 0]


far(grid.box((4, 0), (5, 6)), u[grid.offsets((-4, 0), (3, 0))], v)
"""


@pytest.mark.slow
def test_slabs_thinner_than_a_stencil_are_refused_on_all_ranks(tmp_path: Path) -> None:
    script = tmp_path / "far.py"
    script.write_text(TOO_FAR)
    done = launched(3, [str(script)])
    message = "3 ranks are too many for grid: it is cut into slabs along axis x, and has 8 planes there and stencils"
    assert done.returncode != 0 and f"{message} that look 3 planes far; at most 2" in done.stderr
    assert launched(2, [str(script)]).returncode == 0
