"""What solvers and matrices say where squares vanish, b is zero, ghosts count, or entries are odd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import meshloom as ml
from meshloom.errors import MeshError
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip
SOLVERS = ("cg", "bicgstab", "gmres")


def second_difference(n: int, dtype: Any = np.float64) -> sparse.csr_matrix:
    return sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (n, n), dtype=dtype).tocsr()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 1e-24), (np.float64, 1e-170), (np.float64, 1e-155)])
def test_a_right_hand_side_whose_squares_vanish_is_not_zero(solver: str, dtype: Any, size: float) -> None:
    ml.use("numpy")
    matrix = ml.Matrix.from_scipy(second_difference(10, dtype))
    x = matrix.rows.field("x", data=np.ones(10, dtype))
    report = getattr(ml.linalg, solver)(matrix, x, matrix.rows.field("b", data=np.full(10, size, dtype)))
    assert not report.converged and "scale the equations" in report.reason
    assert (x.numpy() == 1.0).all()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_a_right_hand_side_that_is_not_finite_ends_at_once(solver: str, value: float) -> None:
    ml.use("numpy")
    matrix = ml.Matrix.from_scipy(second_difference(10))
    x = matrix.rows.field("x", data=1e-3)
    report = getattr(ml.linalg, solver)(matrix, x, matrix.rows.field("b", data=[value] + [0.0] * 9))
    assert not report.converged and report.iterations == 0 and "not finite" in report.reason


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_laplace_with_values_in_ghosts(backend: str, solver: str) -> None:
    """b is zero, but what stands in the ghosts of x is a boundary condition."""
    ml.use(backend)
    grid = ml.Grid((8, 6), ghosts=1)
    star, x, b = grid.star(1), grid.field("x"), grid.field("b")
    matrix = ml.Matrix(grid, through=star)
    matrix.assign(np.where(np.arange(5) == star.offsets.index((0, 0)), 4.0, -1.0) + np.zeros((8, 6, 5)))
    x.fill(3.0)
    report = getattr(ml.linalg, solver)(matrix, x, b, tol=1e-10)
    assert report.converged and np.allclose(x.numpy(), 3.0, rtol=1e-8)
    assert grid.shaped(x, ghosts=True)[0, 3] == 3.0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ghosts", [0, 1])
@pytest.mark.parametrize("periodic", [True, (True, False)])
def test_a_periodic_matrix_goes_round_with_and_without_ghosts(backend: str, ghosts: int, periodic: Any) -> None:
    ml.use(backend)
    dice, grid = np.random.default_rng(0), ml.Grid((6, 5), ghosts=ghosts, periodic=periodic)
    offsets = grid.star(1) if ghosts or periodic is True else grid.offsets((0, 0), (1, 0), (-1, 0))
    matrix = ml.Matrix(grid, through=offsets)
    matrix.assign(dice.random(matrix.values.shape))
    x, y = grid.field("x", data=dice.random((6, 5))), grid.field("y")
    for _ in range(2):
        matrix.multiply(x, y)
        np.testing.assert_allclose(y.numpy().ravel(), matrix.to_scipy() @ x.numpy().ravel(), rtol=1e-13)
        x.assign(dice.random((6, 5)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", [(1, 2), (2, 1), (2, 3), (1, 3)])
def test_blocks_of_one_row_or_column(backend: str, block: tuple[int, int]) -> None:
    ml.use(backend)
    given = sparse.random(4 * block[0], 4 * block[1], 0.4, random_state=2)
    matrix = ml.Matrix.from_scipy(given, block=block)
    right = np.random.default_rng(0).random((4, block[1]))
    x = matrix.columns.field("x", block[1], data=right if block[1] > 1 else right.ravel())
    y = matrix.rows.field("y", block[0])
    matrix.multiply(x, y)
    np.testing.assert_allclose(y.numpy().ravel(), given @ right.ravel(), rtol=1e-13)
    grid = ml.Grid(4, periodic=True)
    on_grid = ml.Matrix(grid, through=grid.star(1), block=block)
    on_grid.assign(np.random.default_rng(1).random((4, 3, *block)))
    x, y = grid.field("x", block[1], data=right if block[1] > 1 else right.ravel()), grid.field("y", block[0])
    on_grid.multiply(x, y)
    np.testing.assert_allclose(y.numpy().ravel(), on_grid.to_scipy() @ right.ravel(), rtol=1e-13)


def test_operands_have_the_shape_of_a_block() -> None:
    matrix = ml.Matrix.from_scipy(sparse.eye(8).tocsr(), block=4)
    x, y = matrix.rows.field("x", (2, 2)), matrix.rows.field("y", 4)
    with one_line_from(MeshError, "x must be a field of 4"):
        matrix.multiply(x, y)


def test_gmres_keeps_to_at_most() -> None:
    ml.use("numpy")
    given = np.random.default_rng(0).random((60, 60)) - 0.5
    matrix = ml.Matrix.from_scipy(sparse.csr_matrix(given))
    x, b = matrix.rows.field("x"), matrix.rows.field("b", data=1.0)
    solver = ml.linalg.GMRES(matrix)
    for most, done in ((25, 25), (3, 3), (40, 40), (0, 0)):
        report = solver.solve(x, b, at_most=most)
        assert report.iterations == done and report.reason == "not converged" and len(report.history) == done + 1


def test_what_from_scipy_refuses() -> None:
    with one_line_from(MeshError, "real numbers, got complex numbers, complex128"):
        ml.Matrix.from_scipy(sparse.csr_matrix(1j * np.eye(3)))
    flat = sparse.coo_array(np.ones(3))
    if flat.ndim == 1:  # older versions make a row of it
        with one_line_from(MeshError, "got 1 axes"):
            ml.Matrix.from_scipy(flat)


@pytest.mark.parametrize("backend", BACKENDS)
def test_matrices_of_parts_and_halos(backend: str) -> None:
    """A loop over a part of a part adds to a matrix of the whole; the map of elements with copies is its own."""
    ml.use(backend)
    nodes, cells = ml.Set(5, "nodes", halo=2), ml.Set(4, "cells", halo=2)
    ends = ml.Map(cells, nodes, [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6]], "ends")
    matrix = ml.Matrix(nodes, through=ends)

    @ml.kernel
    def add(m: ml.Inc):
        for i in range(2):
            for j in range(2):
                m[i, j] += 1.0 + 2 * i + j

    add(cells, matrix[ends])
    add(cells.subset([1, 2, 3]).subset([0, 2]), matrix[ends])
    expected = np.zeros((7, 7))
    for e in (0, 1, 2, 3, 1, 3):
        expected[e : e + 2, e : e + 2] += [[1.0, 2.0], [3.0, 4.0]]
    assert (matrix.to_scipy().toarray() == expected).all()
