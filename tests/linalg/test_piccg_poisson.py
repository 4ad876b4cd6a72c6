"""PICCG of Poisson operators, in stencil form and by their matrices, and of matrices on grids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from scipy.sparse.linalg import spsolve

import meshloom as ml
from meshloom.errors import MeshloomError
from meshloom.linalg.ordered import OnGrid
from meshloom.linalg.red_black import RedBlack
from meshloom.linalg.red_black_kernels import BLACK, RED, neighbours, points
from tests.linalg.poisson_reference import exact, matrix_and_sides, operator, problems
from tests.linalg.test_piccg import on_back_ends
from tests.linalg.test_poisson import right_side, unit_grid
from tests.one_line import one_line_from

few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def by_stencil(piccg: ml.linalg.PICCG) -> bool:
    return isinstance(piccg._method, OnGrid) and isinstance(piccg._method.inner, RedBlack)


def test_every_point_has_a_color_and_its_neighbours_the_other() -> None:
    for rank in (1, 2, 3):
        colors = points(rank, BLACK), points(rank, RED)
        assert len(colors[BLACK]) == len(colors[RED]) == 2 ** (rank - 1)
        for color in (BLACK, RED):
            for one in colors[color]:
                found = set()
                for axis, link, slot, which in neighbours(one):
                    cell = np.zeros(rank, int)
                    if slot:
                        cell[(slot - 1) // 2] = 2 * ((slot - 1) % 2) - 1
                    there = 2 * cell + colors[1 - color][which]
                    step = there - one
                    assert np.abs(step).sum() == 1 and step[axis] == 2 * (link - one[axis]) - 1
                    found.add(tuple(there))
                assert len(found) == 2 * rank


@few
@given(problems())
def test_as_a_direct_solver(problem: dict[str, Any]) -> None:
    ml.use("numpy")
    poisson, (matrix, _), grid = operator(problem), matrix_and_sides(problem), problem["grid"]
    b, x = grid.field("b", data=problem["dice"].standard_normal(grid.shape)), grid.field("x")
    x.fill(7.0)
    x.assign(1.0)
    odd = any(p and n % 2 and n > 1 for p, n in zip(grid.periodic, grid.shape, strict=True))
    piccg = ml.linalg.PICCG(poisson)
    assert by_stencil(piccg) != odd
    report = piccg.solve(x, b, tol=1e-11)
    assert report.converged and ("added up to" in report.reason) == poisson.singular
    right = exact(matrix, b.numpy().ravel(), poisson.volumes.numpy().ravel())
    np.testing.assert_allclose(x.numpy().ravel(), right, rtol=1e-8, atol=1e-8 * max(np.abs(right).max(), 1e-9))
    ghosts = ~np.isin(np.arange(grid.total), [*grid.choices.ravel(), *grid.padding])
    assert (x.numbered()[ghosts] == 7.0).all(), "ghosts are left alone"


CASES = [((9, 12), "mixed"), ((12, 10), "dirichlet"), ((12, 8), "neumann"), ((8, 6), "periodic"),
         ((6, 5, 4), "dirichlet"), ((17,), "mixed")]  # fmt: skip


@pytest.mark.parametrize(("backend", "shape", "sides"), on_back_ends(CASES))
def test_half_the_iterations_on_every_back_end(backend: str, shape: tuple[int, ...], sides: str) -> None:
    ml.use(backend)
    grid, options = unit_grid(shape, sides, ghosts=1)
    poisson = ml.linalg.Poisson(grid, **options)
    b, x, image = right_side(poisson), grid.field("x"), grid.field("image")
    plain = ml.linalg.cg(poisson, x, b, tol=1e-9)
    x.fill(0.0)
    piccg = ml.linalg.PICCG(poisson)
    report = piccg.solve(x, b, tol=1e-9)
    assert by_stencil(piccg) and report.converged and report.iterations <= 0.5 * plain.iterations + 3
    poisson(x, image)
    left = np.linalg.norm(b.numpy() - image.numpy()) / np.linalg.norm(b.numpy())
    np.testing.assert_allclose(report.residual, left, rtol=1e-3, atol=1e-14)
    assert len(report.history) == report.iterations + 1
    x.fill(0.0)
    jacobi = ml.linalg.cg(poisson, x, b, tol=1e-9, preconditioner="jacobi")
    assert jacobi.converged and jacobi.iterations <= 1.2 * plain.iterations
    x.fill(0.0)
    within = ml.linalg.cg(poisson, x, b, tol=1e-9, preconditioner=piccg)
    assert within.converged and within.iterations <= report.iterations + 2


@pytest.mark.parametrize("options", [{"storage": "sell"}, {"eisenstat": False, "precision": "float32"}, {"block": 4},
                                     {"fill": 1}, {"colors": 6}, {"shift": 0.1}], ids=str)  # fmt: skip
def test_by_the_matrix_where_more_is_asked_for(options: dict[str, Any]) -> None:
    ml.use("numpy")
    for sides, shape in (("mixed", (10, 8)), ("neumann", (10, 8)), ("neumann", (2,))):
        if shape == (2,) and "colors" in options:
            continue  # as many points as that
        grid, how = unit_grid(shape, sides, ghosts=1)
        poisson = ml.linalg.Poisson(grid, **how)
        b, x, right = right_side(poisson), grid.field("x"), grid.field("right")
        piccg = ml.linalg.PICCG(poisson, **options)
        assert not by_stencil(piccg) and piccg.solve(x, b, tol=1e-10).converged
        assert ml.linalg.FastPoisson(poisson).solve(right, b).converged
        np.testing.assert_allclose(x.numpy(), right.numpy(), atol=1e-8 * np.abs(right.numpy()).max())


def test_stretched_single_and_stops() -> None:
    ml.use("numpy")
    edges = np.tanh(np.linspace(-2.0, 2.0, 25)) / np.tanh(2.0)
    grid = ml.Grid((24, 13), coordinates=(0.5 * (edges[1:] + edges[:-1]), None), periodic=(False, False))
    for dtype, tol, precision in ((np.float64, 1e-10, "float32"), (np.float32, 1e-4, None)):
        poisson = ml.linalg.Poisson(grid, "dirichlet", "neumann", edges=[edges, None], dtype=dtype)
        b, x = right_side(poisson), grid.field("x", dtype=dtype)
        piccg = ml.linalg.PICCG(poisson, precision=precision)
        assert by_stencil(piccg) and piccg.solve(x, b, tol=tol).converged
        right = spsolve(poisson.to_scipy().tocsc(), b.numpy().ravel().astype(float))
        np.testing.assert_allclose(x.numpy().ravel(), right, atol=30 * tol * np.abs(right).max())
    x.fill(0.0)
    for most in (0, 1, 4, 5):
        short = piccg.solve(x, b, tol=1e-6, at_most=most)
        assert short.iterations == most and not short.converged and short.reason == "not converged"
    x.fill(3.0)
    assert piccg.solve(x, b.like("nothing")).reason == "b is zero, and so is x" and not x.numpy().any()
    b.fill(np.inf)
    x.fill(3.0)
    assert "not finite" in piccg.solve(x, b).reason and (x.numpy() == 3.0).all()
    b.fill(1.0)
    x.fill(np.nan)
    assert not piccg.solve(x, b, at_most=50).converged and not piccg.solve(x, b, at_most=51).converged
    with one_line_from(MeshloomError, "x must be a field of single numbers of type float32 on grid"):
        piccg.solve(grid.field("x"), b)
    with one_line_from(MeshloomError, "jacobi needs the diagonal"):
        ml.linalg.cg(poisson, x, b, preconditioner="block_jacobi")


def test_an_interrupted_solution_leaves_nothing_behind() -> None:
    """x lags one step behind within an iteration; what is left of that must not go into the next solution."""
    ml.use("numpy")
    grid, how = unit_grid((8, 8), "dirichlet")
    poisson = ml.linalg.Poisson(grid, **how)
    piccg, b, x = ml.linalg.PICCG(poisson), right_side(poisson), grid.field("x")
    assert piccg.solve(x, b, tol=1e-10).converged
    right = x.numpy()
    inner = piccg._method.inner  # type: ignore[attr-defined]
    inner._iteration(2).iterate.run(1, inner._x[-1], inner._b[-1])
    x.fill(0.0)
    report = piccg.solve(x, b, tol=1e-10, at_most=0)
    np.testing.assert_allclose(report.residual, 1.0, atol=0.7)
    assert piccg.solve(x, b, tol=1e-10).converged
    np.testing.assert_allclose(x.numpy(), right, atol=1e-9 * np.abs(right).max())


def test_bytes_of_an_iteration() -> None:
    """What the module says: 48 bytes of a point in double, 44 with pivots in single, and little else."""
    ml.use("numpy")
    grid, how = unit_grid((256, 256), "dirichlet")
    poisson = ml.linalg.Poisson(grid, **how)
    for precision, expected in (("float64", 48), ("float32", 44)):
        each = ml.linalg.PICCG(poisson, precision=precision).bytes_per_iteration / grid.size
        assert expected <= each < 1.03 * expected


GRIDS = [((7, 6), (False, True)), ((6, 4, 5), (False, True, False)), ((9,), False), ((7, 5), (False, True))]


@pytest.mark.parametrize(("backend", "shape", "periodic"), on_back_ends(GRIDS))
def test_matrices_of_grids(backend: str, shape: tuple[int, ...], periodic: Any) -> None:
    """With entries of their own at every point, of both signs."""
    ml.use(backend)
    grid = ml.Grid(shape, ghosts=1, periodic=periodic, name="plate")
    matrix = ml.Matrix(grid, through=grid.star(1))
    dice, values = np.random.default_rng(0), np.zeros((*shape, 2 * len(shape) + 1))
    offsets = list(matrix.offsets.offsets)
    for axis in range(len(shape)):
        step = tuple(int(a == axis) for a in range(len(shape)))
        ahead = dice.uniform(-1.0, 0.3, shape)
        values[..., offsets.index(step)] = ahead
        values[..., offsets.index(tuple(-i for i in step))] = np.roll(ahead, 1, axis)
    values[..., offsets.index((0,) * len(shape))] = 0.1 + np.abs(values).sum(axis=-1)
    matrix.assign(values)
    b, x, right = (grid.field(name) for name in ("b", "x", "right"))
    b.assign(dice.standard_normal(shape))
    for one in (x, right):
        one.fill(0.5)  # at ghosts, too: behind the ends their values count
        one.assign(np.zeros(shape))
    piccg = ml.linalg.PICCG(matrix)
    assert by_stencil(piccg) == (shape != (7, 5))
    assert piccg.solve(x, b, tol=1e-11).converged and ml.linalg.cg(matrix, right, b, tol=1e-11).converged
    np.testing.assert_allclose(x.numpy(), right.numpy(), atol=1e-9)
    ghosts = grid.shaped(x, ghosts=True)[0]
    assert (ghosts[(slice(1, -1),) * (len(shape) - 1)] == 0.5).all()
    matrix.assign(3.0 * values)
    x.assign(np.zeros(shape))
    assert piccg.solve(x, b, tol=1e-11).converged and ml.linalg.cg(matrix, right, b, tol=1e-11).converged
    np.testing.assert_allclose(x.numpy(), right.numpy(), atol=1e-9)


def test_matrices_of_grids_with_other_neighbours() -> None:
    ml.use("numpy")
    grid = ml.Grid((6, 6), periodic=True, name="torus")
    diagonal = ml.Matrix(grid, through=grid.offsets((0, 0), (1, 1), (-1, -1)))
    diagonal.assign(np.broadcast_to([3.0, -1.0, -1.0], (6, 6, 3)))
    x, b = grid.field("x"), grid.field("b", data=np.arange(36.0).reshape(6, 6))
    piccg = ml.linalg.PICCG(diagonal)
    assert not by_stencil(piccg) and piccg.solve(x, b, tol=1e-10).converged
    np.testing.assert_allclose(x.numpy().ravel(), spsolve(diagonal.to_scipy().tocsc(), np.arange(36.0)), rtol=1e-8)
