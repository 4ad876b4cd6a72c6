"""Matrices and their solvers on several ranks: the bits, residuals and iterations of one; what is refused there."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import meshloom as ml
from meshloom.dist.distribute import distribute
from meshloom.dist.usage import usage
from meshloom.dist.world import World
from meshloom.errors import UserError
from meshloom.mesh.numbering import OneRank, Rows
from tests.dist import on_ranks_linalg
from tests.dist.launch import over_ranks
from tests.dist.on_ranks import digest
from tests.dist.test_ranks import ran
from tests.one_line import one_line_from

MODULE = "tests.dist.on_ranks_linalg"
QUICK = ("quick", "odd sets", "piccg, thin slabs")


@cache
def alone(backend: str) -> dict[str, Any]:
    return ran(backend, None, MODULE)


@over_ranks(["numpy", "cpu"], [3, 2, 4, 1])
def test_any_number_of_ranks_solves_with_the_same_bits(backend: str, ranks: int) -> None:
    """One that a launcher has started runs as a process by itself does: some of it shows that."""
    names = QUICK if ranks == 1 else on_ranks_linalg.RUNS
    assert ran(backend, ranks, MODULE, *names) == {name: alone(backend)[name] for name in names}


def test_some_of_it_on_two_ranks() -> None:
    """Of which one has no rows, or only one; in every run."""
    with ml.using("numpy", reproducible=True):
        found = {name: digest(on_ranks_linalg.RUNS[name]()) for name in QUICK}
    assert ran("numpy", 2, MODULE, *QUICK) == found


def test_entries_live_with_their_rows() -> None:
    """Whatever loop comes first: an assembly, which leads to entries from faces alone."""
    mesh = ml.generate.box((6, 4))
    cells, both = mesh.cells, mesh.face_cells
    matrix, area = ml.Matrix(cells, through=both), mesh.faces.field("area")

    @ml.kernel
    def assemble(area: ml.Read, m: ml.Inc):
        m[0, 1] += area
        m[1, 0] += area

    with ml.using("numpy"):
        used = usage(ml.program(lambda: assemble(mesh.faces, area, matrix[both])).loops)
    sets = distribute(used, "rcb", 3)
    row, column = matrix.row_of.positions[:, 0], matrix.column_of.positions[:, 0]
    rows = sets[cells].owner
    assert (sets[matrix.entries].owner == rows[row]).all() and (rows[row] != rows[column]).any()


def test_rows_of_sets_made_by_hand_are_cut_and_not_their_entries() -> None:
    """In equal runs of rows, though there are more entries, and maps lead to both."""
    rows, things = ml.Set(6, "rows"), ml.Set(5, "things")
    pairs = ml.Map(things, rows, np.stack([np.arange(5), np.arange(1, 6)], axis=1), "pairs")
    matrix, weight = ml.Matrix(rows, through=pairs), things.field("weight")

    @ml.kernel
    def assemble(w: ml.Read, m: ml.Inc):
        m[0, 1] += w

    with ml.using("numpy"):
        used = usage(ml.program(lambda: assemble(things, weight, matrix[pairs])).loops)
    sets = distribute(used, "rcb", 3)
    assert sets[rows].owner.tolist() == [0, 0, 1, 1, 2, 2]
    assert (sets[matrix.entries].owner == sets[rows].owner[matrix.row_of.positions[:, 0]]).all()


def test_entries_of_one_row_are_shared_out() -> None:
    """The row may live on every rank, and then has no owner to follow."""
    matrix = ml.Matrix.from_scipy(sparse.csr_matrix(np.ones((1, 6))))

    @ml.kernel
    def double(m: ml.ReadWrite):
        m *= 2.0

    with ml.using("numpy"):
        used = usage(ml.program(lambda: double(matrix.entries, matrix.values)).loops)
    assert distribute(used, "rcb", 3)[matrix.entries].owner.tolist() == [0, 0, 1, 1, 2, 2]


class OnTwoRanks(OneRank):
    """As the first of two sees it."""

    def check_alone(self, what: str, others: str = "") -> None:
        World(0, 2).check_alone(what, others)


def test_solvers_that_do_not_run_on_ranks_say_which_do(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = ml.Grid((8, 8))
    poisson = ml.linalg.Poisson(grid, low="dirichlet")
    monkeypatch.setattr(Rows, "placement", OnTwoRanks())
    rows = sparse.csr_matrix(np.array([[2.0, 1.0], [1.0, 2.0]]))
    for make, name in (
        (lambda: ml.linalg.PICCG(rows), "piccg by rows"),
        (lambda: ml.linalg.PICCG(poisson, storage="csr"), "piccg by rows"),
        (lambda: ml.linalg.PICCG(ml.linalg.Poisson(ml.Grid((9, 8), periodic=True))), "piccg by rows"),
        (lambda: ml.linalg.Multigrid(poisson), "multigrid"),
        (lambda: ml.linalg.FastPoisson(poisson), "fast_poisson"),
        (lambda: ml.linalg.FastPoisson(poisson, solid=np.eye(8, dtype=bool)), "fast_poisson"),
    ):
        with one_line_from(UserError, f"^{name} does not run on 2 ranks yet: cg, .* and PICCG in stencil form"):
            make()
