"""Poisson's equation around solid cells, directly: against sparse and dense matrices of the fluid cells alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.linalg import solid_cells
from tests.linalg.poisson_reference import exact, matrix_and_sides, operator, problems
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))


def blocks(dice: np.random.Generator, shape: tuple[int, ...], count: int) -> np.ndarray:
    """A mask of some boxes, which may touch each other and the sides."""
    mask = np.zeros(shape, bool)
    for _ in range(count):
        low = [int(dice.integers(0, n)) for n in shape]
        size = [int(dice.integers(1, max(2, n // 2 + 1))) for n in shape]
        mask[tuple(slice(a, a + n) for a, n in zip(low, size, strict=True))] = True
    return mask


def fluid_alone(matrix: np.ndarray, solid: np.ndarray) -> np.ndarray:
    """The matrix of the fluid cells, without the links to solid ones."""
    inside = solid.ravel()
    found = matrix[~inside][:, ~inside]
    links = matrix[~inside][:, inside].sum(axis=1)
    found = found + np.diag(links)
    return np.where(np.abs(found) > 1e-12 * np.abs(matrix).max(), found, 0.0)  # of a cell alone nothing is left


def connected(matrix: np.ndarray) -> bool:
    return connected_components(csr_matrix(matrix), directed=False)[0] == 1


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(problems(), st.integers(1, 4))
def test_as_a_direct_solver_of_the_fluid_alone(problem: dict[str, Any], count: int) -> None:
    ml.use("numpy")
    grid, dice = problem["grid"], problem["dice"]
    solid = blocks(dice, grid.shape, count)
    assume(not solid.all())
    poisson, (whole, _) = operator(problem), matrix_and_sides(problem)
    matrix = fluid_alone(whole, solid)
    assume(connected(matrix))
    fast = ml.linalg.FastPoisson(poisson, solid=solid)
    assert fast.singular == bool(np.abs(matrix.sum(axis=1)).max() <= 1e-9 * np.abs(whole).max())
    b = grid.field("b", data=dice.standard_normal(grid.shape))
    x = grid.field("x", data=7.0)
    report = fast.solve(x, b, tol=1e-10)
    right = exact(matrix, b.numpy()[~solid], poisson.volumes.numpy()[~solid])
    assert report.converged and ("added up to" in report.reason) == fast.singular, report
    assert not x.numpy()[solid].any()
    np.testing.assert_allclose(x.numpy()[~solid], right, rtol=1e-8, atol=1e-8 * max(np.abs(right).max(), 1e-9))
    again = grid.field("again")
    fast.solve_only(again, b)
    np.testing.assert_allclose(again.numpy(), x.numpy(), rtol=1e-7, atol=1e-8 * max(np.abs(right).max(), 1e-9))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(40, 24), (10, 12, 8)])
def test_against_a_sparse_solver_with_several_blocks(backend: str, shape: tuple[int, ...]) -> None:
    ml.use(backend)
    solid = np.zeros(shape, bool)
    solid[: shape[0] // 2, : shape[1] // 3] = True  # a step in a corner
    solid[7:9, -5:-3] = True  # and one inside
    for low, periodic in (("neumann", False), ("neumann", True), ("dirichlet", False)):
        axes = len(shape)
        grid = ml.Grid(shape, extent=[(0.0, 1.0)] * axes, periodic=[a == 1 and periodic for a in range(axes)])
        poisson = ml.linalg.Poisson(grid, low)
        fast = ml.linalg.FastPoisson(poisson, solid=solid)
        values = np.where(solid, np.nan, np.random.default_rng(0).standard_normal(shape))
        b, x = grid.field("b", data=values - np.nanmean(values)), grid.field("x")
        report = fast.solve(x, b, tol=1e-11)
        assert report.converged and report.iterations == 1
        matrix = csr_matrix(fluid_alone(poisson.to_scipy().toarray(), solid))
        right = b.numpy()[~solid]
        if fast.singular:  # held in one cell, and compared without the mean
            matrix = matrix.tolil()
            matrix[0, 0] += 1.0
            matrix = matrix.tocsr()
        expected = spsolve(matrix, right)
        expected -= expected.mean() if fast.singular else 0.0
        found = x.numpy()[~solid]
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-9 * np.abs(expected).max())
        real = np.linalg.norm(right - fluid_alone(poisson.to_scipy().toarray(), solid) @ found) / np.linalg.norm(right)
        np.testing.assert_allclose(real, report.residual, atol=1e-12)


def test_a_side_that_is_behind_solids_holds_nothing() -> None:
    """The only side with a value lies behind solid cells: the fluid has no value held, as the box would have."""
    ml.use("numpy")
    grid = ml.Grid((6, 5))
    poisson = ml.linalg.Poisson(grid, ["dirichlet", "neumann"], "neumann")
    solid = np.zeros((6, 5), bool)
    solid[0] = True
    fast = ml.linalg.FastPoisson(poisson, solid=solid)
    assert fast.singular and not poisson.singular
    assert repr(fast) == "FastPoisson(poisson: y cosines, x solved, around solids with 5 faces)"
    x, b = grid.field("x"), grid.field("b", data=1.0)
    assert fast.solve(x, b).reason.startswith("b is zero, and so is x; b added up to 25")
    b.assign(np.cos(np.arange(30.0)).reshape(6, 5))
    assert fast.solve(x, b, tol=1e-12).converged and abs(x.numpy()[1:].sum()) < 1e-12


def test_no_solids_are_no_solids() -> None:
    ml.use("numpy")
    grid = ml.Grid((6, 5))
    poisson = ml.linalg.Poisson(grid)
    b = grid.field("b", data=np.cos(np.arange(30.0)).reshape(6, 5))
    found = []
    for solid in (None, np.zeros((6, 5), bool)):
        x = grid.field("x")
        fast = ml.linalg.FastPoisson(poisson, solid)
        assert "solids" not in repr(fast) and fast.solve(x, b).converged
        found.append(x.numpy())
    np.testing.assert_array_equal(*found)


def test_single_precision() -> None:
    ml.use("numpy")
    grid = ml.Grid((20, 12))
    poisson = ml.linalg.Poisson(grid, dtype="float32")
    solid = blocks(np.random.default_rng(1), (20, 12), 1)
    x, b = grid.field("x", dtype="float32"), grid.field("b", dtype="float32")
    b.assign(np.random.default_rng(0).standard_normal((20, 12)))
    report = ml.linalg.FastPoisson(poisson, solid).solve(x, b, tol=1e-5)
    assert report.converged and x.numpy().dtype == np.float32


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("numpy")
    poisson = ml.linalg.Poisson(ml.Grid((6, 5)))
    wall = np.zeros((6, 5), bool)
    wall[2] = True
    for solid, words in (
        (np.ones((6, 5), bool), "all cells are solid"),
        (np.zeros((5, 6), bool), r"array of shape \(6, 5\), got bool of shape \(5, 6\)"),
        (np.zeros((6, 5)), r"got float64 of shape \(6, 5\)"),
        ("step", "True or False for each cell"),
        ([[True], [True, False]], "True or False for each cell"),
        (wall, "10 fluid cells are cut off"),
    ):  # fmt: skip
        with one_line_from(MeshError, words):
            ml.linalg.FastPoisson(poisson, solid)
    monkeypatch.setattr(solid_cells, "MOST_FACES", 3)
    alone = np.zeros((6, 5), bool)
    alone[2, 2] = True
    with one_line_from(MeshError, "4 faces between fluid and solid cells, at most 3"):
        ml.linalg.FastPoisson(poisson, alone)
