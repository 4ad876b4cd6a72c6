"""Sets are cut once on ranks, whatever runs there, and whole arrays that lie in files of the node change nothing."""

from __future__ import annotations

import meshloom as ml
from tests.dist import on_ranks_cut
from tests.dist.launch import over_ranks
from tests.dist.on_ranks import digest
from tests.dist.test_ranks import ran

MODULE = "tests.dist.on_ranks_cut"
QUICK = ("airfoil",)


def test_a_case_is_cut_once() -> None:
    """In every run: on two ranks."""
    with ml.using("numpy", reproducible=True):
        found = {name: digest(on_ranks_cut.RUNS[name]()) for name in QUICK}
    assert ran("numpy", 2, MODULE, *QUICK) == found


@over_ranks(["numpy", "cpu"], [3, 2, 4])
def test_cases_matrices_and_solvers_are_cut_once(backend: str, ranks: int) -> None:
    assert ran(backend, ranks, MODULE) == ran(backend, None, MODULE)
