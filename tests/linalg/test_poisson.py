"""Poisson's equation by finite volumes: the operator and multigrid, against matrices made cell by cell."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import meshloom as ml
from meshloom.errors import MeshloomError
from meshloom.linalg.axis_cells import AxisCells
from meshloom.linalg.multigrid import narrow_axes
from tests.fitted import changed
from tests.linalg.poisson_reference import exact, matrix_and_sides, operator, problems, reference
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip
few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
ENDS = {"neumann": "neumann", "dirichlet": "dirichlet", "periodic": None, "mixed": "mixed"}


def unit_grid(shape: tuple[int, ...], sides: str, **options: Any) -> tuple[ml.Grid, dict[str, Any]]:
    """Cells of the unit cube, and what holds at its sides, both in short words."""
    periodic = [sides == "periodic" or (sides == "mixed" and a == 1) for a in range(len(shape))]
    extent = [(0.0, 1.0) if p else (0.5 / n, 1.0 - 0.5 / n) for n, p in zip(shape, periodic, strict=True)]
    grid = ml.Grid(shape, extent=extent, periodic=periodic, **options)
    mixed = [None if p else "dirichlet" for p in periodic], [None if p else "neumann" for p in periodic]
    low, high = mixed if sides == "mixed" else (ENDS[sides], ENDS[sides])
    return grid, {"low": low, "high": high}


def right_side(poisson: ml.linalg.Poisson, seed: int = 0) -> ml.Field:
    values = np.random.default_rng(seed).standard_normal(poisson.grid.shape)
    values -= values.mean() if poisson.singular else 0.0
    return poisson.grid.field("b", data=values.astype(poisson.dtype), dtype=poisson.dtype)


@few
@given(problems())
def test_the_operator_cell_by_cell(problem: dict[str, Any]) -> None:
    ml.use("numpy")
    poisson, (matrix, sides) = operator(problem), matrix_and_sides(problem)
    grid, dice = problem["grid"], problem["dice"]
    np.testing.assert_allclose(poisson.to_scipy().toarray(), matrix, rtol=1e-12, atol=1e-12 * np.abs(matrix).max())
    x, y = grid.field("x"), grid.field("y")
    x.fill(np.nan)
    y.fill(7.0)
    x.assign(dice.standard_normal(grid.shape))
    poisson(x, y)
    scale = np.abs(matrix).max()
    np.testing.assert_allclose(y.numpy().ravel(), matrix @ x.numpy().ravel(), rtol=1e-11, atol=1e-11 * scale)
    np.testing.assert_allclose(poisson.diagonal.numpy().ravel(), np.diag(matrix), rtol=1e-12)
    ghosts = ~np.isin(np.arange(grid.total), [*grid.choices.ravel(), *grid.padding])
    assert (y.numbered()[ghosts] == 7.0).all() and np.isnan(x.numbered()[ghosts]).all(), "ghosts are left alone"
    poisson.right_hand_side(x, y)
    volumes = np.prod(np.meshgrid(*map(np.diff, problem["edges"]), indexing="ij"), axis=0)
    np.testing.assert_allclose(y.numpy().ravel(), (volumes * x.numpy()).ravel() + sides, rtol=1e-12, atol=1e-12)
    assert poisson.singular == (np.abs(matrix.sum(axis=1)).max() < 1e-9 * max(scale, 1.0))


@settings(few, max_examples=6)
@given(problems())
def test_multigrid_as_a_direct_solver(problem: dict[str, Any]) -> None:
    ml.use("numpy")
    poisson, (matrix, _) = operator(problem), matrix_and_sides(problem)
    grid = problem["grid"]
    b, x = grid.field("b", data=problem["dice"].standard_normal(grid.shape)), grid.field("x", data=1.0)
    report = ml.linalg.Multigrid(poisson, lines=bool(problem["dice"].integers(2))).solve(x, b, tol=1e-11)
    assert report.converged and ("added up to" in report.reason) == poisson.singular
    right = exact(matrix, b.numpy().ravel(), poisson.volumes.numpy().ravel())
    np.testing.assert_allclose(x.numpy().ravel(), right, rtol=1e-8, atol=1e-8 * max(np.abs(right).max(), 1e-9))


def test_cells_around_the_points_of_a_grid() -> None:
    """Edges lie halfway between the points, and at the ends as far outside."""
    ml.use("numpy")
    x = np.array([0.0, 1.0, 1.5, 3.0])
    for periodic, ends in ((False, (-0.5, 3.75)), (True, (-0.25, 3.25))):
        grid = ml.Grid(4, coordinates=(x,), periodic=periodic, extent=[3.5 if periodic else 3.0])
        poisson = ml.linalg.Poisson(grid, *([] if periodic else ["dirichlet", "dirichlet"]))
        edges = np.array([ends[0], 0.5, 1.25, 2.25, 3.75 if not periodic else 3.25])
        np.testing.assert_allclose(poisson.axes[0].edges, edges)
        end = None if periodic else ("dirichlet", 0.0)
        np.testing.assert_allclose(poisson.to_scipy().toarray(), reference([edges], [x], [end], [end])[0], atol=1e-14)
    single = ml.linalg.Poisson(ml.Grid((1, 3)), "dirichlet", "dirichlet")
    np.testing.assert_allclose(single.axes[0].edges, [-0.5, 0.5])
    assert single.axes[1].uniform and not poisson.axes[0].uniform
    assert single.level.even and not poisson.level.even, "numbers do where cells are alike"
    far = ml.linalg.Poisson(ml.Grid((9, 9), extent=((1e6, 1e6 + 1e-3), (0.0, 1.0))))
    assert far.level.even, "coordinates are rounded"


@pytest.mark.parametrize("stretched", [False, True])
def test_second_order_on_all_kinds_of_sides(stretched: bool) -> None:
    ml.use("numpy")
    errors = []
    for n in (12, 24):
        s = np.linspace(0.0, 1.0, n + 1)
        y = s + (0.2 * np.sin(np.pi * s) if stretched else 0.0)
        edges = [y, 2 * np.pi * np.arange(n + 1) / n]
        centres = [0.5 * (e[1:] + e[:-1]) for e in edges]
        grid = ml.Grid((n, n), coordinates=centres, extent=[None, 2 * np.pi], periodic=(False, True), ghosts=1)
        a, b = grid.meshgrid()
        true = np.exp(a) * np.sin(b) + a**2
        low, high = np.sin(centres[1]), np.e * np.sin(centres[1]) + 2.0
        poisson = ml.linalg.Poisson(grid, [ml.linalg.Dirichlet(low), None], [ml.linalg.Neumann(high), None],
                                    edges=[edges[0], None])  # fmt: skip
        f, right, p = grid.field("f", data=np.full((n, n), -2.0)), grid.field("right"), grid.field("p")
        poisson.right_hand_side(f, right)
        assert ml.linalg.Multigrid(poisson).solve(p, right, tol=1e-11).converged
        errors.append(np.abs(p.numpy() - true).max())
    assert errors[0] / errors[1] > 3.4 and errors[1] < 1e-2


SHAPES = [(33, 33), (64, 64), (100, 37), (256, 256), (1000, 5), (3, 50), (3, 3), (17, 40, 9), (24, 24, 24), (7, 3, 4),
          (31, 63, 127), (65, 66, 67)]  # fmt: skip
IN_SHORT = [((33, 33), ("neumann",)), ((100, 37), ("mixed",)), ((64, 64), ("periodic",)), ((20, 50), ("dirichlet",))]


@pytest.mark.parametrize(("shape", "kinds"), [
    *IN_SHORT, *(pytest.param(s, tuple(ENDS), marks=pytest.mark.slow) for s in SHAPES)])  # fmt: skip
def test_few_iterations_on_uniform_grids_of_any_size(shape: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    ml.use("cpu")
    for sides in kinds:
        grid, given = unit_grid(shape, sides)
        poisson = ml.linalg.Poisson(grid, **given)
        b, x, y = right_side(poisson), grid.field("x"), grid.field("y")
        multigrid = ml.linalg.Multigrid(poisson)
        report = multigrid.solve(x, b, tol=1e-8)
        assert report.converged and report.iterations <= 9, (sides, report)
        alone = ml.linalg.Multigrid(poisson, accelerated=False).solve(y, b, tol=1e-8)
        assert alone.converged and alone.iterations <= 15, (sides, alone)
        residual = b.numpy().ravel() - poisson.to_scipy() @ y.numpy().ravel()
        assert np.linalg.norm(residual) <= 1.01e-8 * np.linalg.norm(b.numpy()), "what it says is what is"


@pytest.mark.parametrize("backend", BACKENDS)
def test_as_a_preconditioner_on_every_back_end(backend: str) -> None:
    ml.use(backend)
    for sides, ghosts in (("mixed", 1), ("periodic", 0), ("neumann", 0)):
        grid, given = unit_grid((14, 9), sides, ghosts=ghosts)
        poisson = ml.linalg.Poisson(grid, **given)
        b, x = right_side(poisson), grid.field("x")
        report = ml.linalg.cg(poisson, x, b, tol=1e-9, preconditioner=ml.linalg.Multigrid(poisson))
        assert report.converged and report.iterations <= 9
        np.testing.assert_allclose(poisson.to_scipy() @ x.numpy().ravel(), b.numpy().ravel(), atol=1e-7)
        plain = ml.linalg.cg(poisson, x.like("again"), b, tol=1e-9)
        assert plain.converged and plain.iterations > 2 * report.iterations


@pytest.mark.parametrize(("smoothing", "lines"), [(1, False), (2, False), (3, False), (1, True), (2, True)])
def test_a_cycle_is_symmetric_and_positive(smoothing: int, lines: bool) -> None:
    ml.use("numpy")
    grid, given = unit_grid((7, 6), "mixed")
    multigrid = ml.linalg.Multigrid(ml.linalg.Poisson(grid, **given), smoothing=smoothing, lines=lines)
    assert multigrid.levels == ((7, 6), (4, 3))
    r, z, columns = grid.field("r"), grid.field("z"), []
    for one in np.eye(42):
        r.assign(one.reshape(7, 6))
        multigrid(r, z)
        columns.append(z.numpy().ravel())
    made = np.array(columns)
    np.testing.assert_allclose(made, made.T, atol=1e-13)
    assert np.linalg.eigvalsh(made).min() > 0.0


@pytest.mark.slow
def test_cells_that_are_long_everywhere_are_no_matter() -> None:
    """Narrow axes are halved first, down to one cell where need be."""
    ml.use("numpy")
    for shape, extent in (((64, 64), (1.0, 100.0)), ((2, 64), (1e-4, 1.0)), ((6, 8, 20), (1.0, 70.0, 3e3)),
                          ((2, 16), (1e-7, 1.0)), ((50, 40), (1e-6, 1e6))):  # fmt: skip
        poisson = ml.linalg.Poisson(ml.Grid(shape, extent=extent), "neumann", "dirichlet")
        multigrid = ml.linalg.Multigrid(poisson)
        report = multigrid.solve(poisson.grid.field("x"), right_side(poisson), tol=1e-8)
        assert report.converged and report.iterations <= 8, (shape, report)
    edges = [np.linspace(0.0, length, n + 1) for length, n in ((1.0, 10), (1.0, 5), (1e-3, 1))]
    axes = [AxisCells(e, 0.5 * (e[1:] + e[:-1]), "neumann", "neumann") for e in edges]
    assert narrow_axes(axes) == [0] and narrow_axes([axes[1], axes[1], axes[2]]) == [0, 1]


def stretched_edges(n: int, ratio: float) -> np.ndarray:
    """Of cells each of which is wider than that before it by the same factor."""
    widths = ratio ** np.linspace(0.0, 1.0, n)
    return np.concatenate([[0.0], np.cumsum(widths) / widths.sum()])


def stretched_poisson(edges: list[np.ndarray], ends: str = "neumann") -> ml.linalg.Poisson:
    grid = ml.Grid([len(e) - 1 for e in edges], coordinates=[0.5 * (e[1:] + e[:-1]) for e in edges])
    return ml.linalg.Poisson(grid, ends, ends, edges=edges)


@pytest.mark.parametrize("backend", BACKENDS)
def test_stretched_grids_are_smoothed_along_lines(backend: str) -> None:
    ml.use(backend)
    n = {"emulated": 12, "cpu": 18}.get(backend, 40)
    poisson = stretched_poisson([stretched_edges(n, 100.0), stretched_edges(n - 3, 100.0)])
    multigrid, b = ml.linalg.Multigrid(poisson), right_side(poisson)
    assert multigrid.lines and multigrid.smoothing == 1
    report = multigrid.solve(poisson.grid.field("x"), b)
    assert report.converged and report.iterations <= 9
    if backend == "cpu":
        points = ml.linalg.Multigrid(poisson, lines=False).solve(poisson.grid.field("x"), b)
        assert points.iterations > 2 * report.iterations
    mild = ml.linalg.Multigrid(stretched_poisson([stretched_edges(8, 9.0)] * 2))
    assert not mild.lines and mild.smoothing == 2


@pytest.mark.slow
def test_stretched_grids_of_three_axes() -> None:
    ml.use("cpu")
    one, even_edges = stretched_edges(24, 100.0), np.linspace(0.0, 1.0, 21)
    for ends in ("neumann", "dirichlet"):
        for edges, most in (([even_edges, one, even_edges], 18), ([one, even_edges, one], 32)):
            poisson = stretched_poisson(edges, ends)
            report = ml.linalg.Multigrid(poisson).solve(poisson.grid.field("x"), right_side(poisson))
            assert report.converged and report.iterations <= most, report


@pytest.mark.parametrize("accelerated", [True, False])
def test_what_no_solution_has_is_taken_out_and_said(accelerated: bool) -> None:
    ml.use("cpu")
    grid, given = unit_grid((12, 10), "neumann")
    poisson = ml.linalg.Poisson(grid, **given)
    b, x = right_side(poisson), grid.field("x", data=3.0)
    multigrid = ml.linalg.Multigrid(poisson, accelerated=accelerated)
    report = multigrid.solve(x, b)
    assert report.reason == "converged" and abs(np.sum(x)) < 1e-12, "x has no mean"
    first = x.numpy()
    given_b = b.numpy() + 0.25
    b.assign(given_b)
    again = multigrid.solve(x, b)
    assert again.converged and "converged; b added up to 30, which no solution has" in again.reason
    np.testing.assert_allclose(x.numpy(), first, atol=1e-7)
    assert (b.numpy() == given_b).all(), "b is the caller's"
    assert not ml.linalg.cg(poisson, x, b, preconditioner=multigrid, at_most=40).converged, "cg takes b as it is"
    for value in (0.0, 0.3):
        b.fill(value)
        assert multigrid.solve(x, b).converged and not x.numpy().any(), "nothing but rounding is left of it"


def test_values_that_are_not_finite_spoil_nothing_for_later() -> None:
    ml.use("cpu")
    grid, given = unit_grid((12, 10), "mixed")
    poisson = ml.linalg.Poisson(grid, **given)
    multigrid, b, x = ml.linalg.Multigrid(poisson), right_side(poisson), grid.field("x", data=1.0)
    bad = grid.field("bad", data=np.nan)
    for one, other in ((x, bad), (bad, b)):
        report = multigrid.solve(one, other)
        assert not report.converged and report.reason == "values that are not finite"
    assert (x.numpy() == 1.0).all()
    z = grid.field("z")
    multigrid(bad, z)
    assert np.isnan(z.numpy()).any() and multigrid.solve(x, b).converged
    report = multigrid.solve(grid.field("y"), b, at_most=2)
    assert not report.converged and report.iterations == 2 and report.reason == "not converged"


@pytest.mark.slow
def test_single_precision() -> None:
    ml.use("cpu")
    grid, given = unit_grid((40, 30), "dirichlet", ghosts=1)
    poisson = ml.linalg.Poisson(grid, **given, dtype="float32")
    x = grid.field("x", dtype="float32")
    report = ml.linalg.Multigrid(poisson).solve(x, right_side(poisson), tol=1e-5)
    assert report.converged and report.iterations <= 6 and x.dtype == np.float32


@pytest.mark.parametrize("shape", [(5,), (3, 17), (24, 16)])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(("dtype", "tol", "least"), [("float32", 1e-8, 1e-5), ("float64", 1e-17, 1e-13)])
def test_no_solution_goes_astray_where_less_is_asked_for_than_rounding_leaves(
    shape: tuple[int, ...], periodic: bool, dtype: str, tol: float, least: float
) -> None:
    """What is left of a singular system's right-hand side then is what it adds up to, by rounding."""
    ml.use("numpy")
    grid = ml.Grid(shape, periodic=periodic)
    poisson, x = ml.linalg.Poisson(grid, dtype=dtype), grid.field("x", dtype=dtype)
    b = grid.field("b", dtype=dtype, data=(np.random.default_rng(0).random(shape) - 0.5).astype(dtype))
    report = ml.linalg.Multigrid(poisson).solve(x, b, tol=tol)
    assert report.residual < least and report.iterations < 60, report
    rest = b.numpy() - b.numpy().mean() - (poisson.to_scipy() @ x.numpy().ravel()).reshape(shape)
    assert np.linalg.norm(rest) < 2.0 * least * np.linalg.norm(b.numpy())


@pytest.mark.parametrize(
    ("dtype", "unit"), [("float32", 1e30), ("float32", 1e-30), ("float64", 1e150), ("float64", 1e-150)]
)
@pytest.mark.parametrize("solver", [ml.linalg.Multigrid, ml.linalg.FastPoisson])
def test_lengths_in_any_unit_are_solved_or_refused(dtype: str, unit: float, solver: Any) -> None:
    """Volumes times values may be more than the type holds, though each is not."""
    ml.use("numpy")
    grid = ml.Grid(3, periodic=True, extent=(0.0, 3.0 * unit))
    poisson, x = ml.linalg.Poisson(grid, dtype=dtype), grid.field("x", dtype=dtype)
    b = grid.field("b", dtype=dtype, data=np.array([1.0, -3.0, 2.0], dtype))
    if solver is ml.linalg.FastPoisson and dtype == "float32":
        with pytest.raises(MeshloomError, match="float32 does not hold their squared widths"):
            solver(poisson)
        return
    assert solver(poisson).solve(x, b, tol=1e-5).converged
    np.testing.assert_allclose(x.numpy() / unit, [1.0 / 3.0, -1.0, 2.0 / 3.0], rtol=1e-5)


@pytest.mark.slow
def test_large_sets_are_linked_by_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("cpu")
    grid, given = unit_grid((13, 9), "mixed", ghosts=1)
    solutions = []
    for large in (2**20, 20):
        changed(monkeypatch, solvers={"stored_maps": large})
        poisson = ml.linalg.Poisson(grid, **given)
        x = grid.field("x")
        ml.linalg.Multigrid(poisson).solve(x, right_side(poisson))
        solutions.append(x.numpy())
    np.testing.assert_allclose(*solutions, rtol=1e-12)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_inside_a_program(backend: str) -> None:
    """The operator, its right-hand side and a cycle are loops like any others; solving is refused."""
    ml.use(backend)
    grid, given = unit_grid((12, 9), "mixed", ghosts=1)
    poisson = ml.linalg.Poisson(grid, **given)
    multigrid, f = ml.linalg.Multigrid(poisson), right_side(poisson)
    b, y, z = (grid.field(name) for name in "byz")

    def steps() -> None:
        poisson.right_hand_side(f, b)
        multigrid(b, z)
        poisson(z, y)

    steps()
    called = [one.numpy() for one in (b, z, y)]
    for one in (b, z, y):
        one.fill(0.0)
    ml.program(steps).run(2)
    for one, before in zip((b, z, y), called, strict=True):
        np.testing.assert_allclose(one.numpy(), before, rtol=1e-12, atol=1e-14)
    for one in (z, y):
        one.fill(0.0)
    multigrid.solve(z, b)
    ml.program(lambda: multigrid.solve(y, b)).run()
    np.testing.assert_array_equal(y.numpy(), z.numpy())
    for make in (lambda: ml.linalg.Poisson(grid, "dirichlet"), lambda: ml.linalg.Multigrid(poisson)):
        with one_line_from(MeshloomError, "inside a program would happen once"):
            ml.program(make).run()


def wrong_uses() -> dict[str, Any]:
    grid = ml.Grid((4, 3), periodic=(False, True))
    poisson = ml.linalg.Poisson(grid, "dirichlet")
    multigrid = ml.linalg.Multigrid(poisson)
    x, b = grid.field("x"), grid.field("b")
    make, other = ml.linalg.Poisson, ml.Grid((4, 3)).field("other")
    pair, single = grid.field("pair", 2), grid.field("single", dtype="float32")
    return {
        "poisson: grid must be a Grid, got Set": lambda: make(ml.Set(3)),
        "a Poisson operator has a name, a string; got 3": lambda: make(grid, name=3),
        "poisson: dtype must be float32 or float64, got 'int32'": lambda: make(grid, dtype="int32"),
        "dtype must be float32 or float64, got 'much'": lambda: make(grid, dtype="much"),
        "low side of axis x: 'dirichlet', 'neumann', .* got 'dirichlett'; did you mean": lambda: make(
            grid, "dirichlett"),
        "high side of axis x: .* got 3": lambda: make(grid, high=3),
        "low has 3 entries, but grid grid has 2 axes": lambda: make(grid, ["neumann"] * 3),
        "low side of axis y: grid grid is periodic there": lambda: make(grid, ["neumann", "neumann"]),
        "high side of axis x: grid grid is closed there": lambda: make(grid, high=None),
        "low holds a value, but grid round is periodic along every axis and has no sides": lambda: make(
            ml.Grid((4, 3), periodic=True, name="round"), "dirichlet"),
        "low side of axis x: grid grid is closed there": lambda: make(grid, "periodic"),
        r"values must be one number or have shape \(3,\), got \(2,\)": lambda: make(
            grid, [ml.linalg.Dirichlet([1.0, 2.0]), None]),
        "low side of axis x: its values must be finite": lambda: make(grid, ml.linalg.Neumann(np.nan)),
        "low side of axis x: expected real numbers": lambda: make(grid, ml.linalg.Neumann("much")),
        "edges are one array or None for each of the 2 axes": lambda: make(grid, edges=[None]),
        "edges of axis x must be 5 ascending numbers": lambda: make(grid, edges=[[0, 1, 2, 3], None]),
        "edges of axis x must be 5 ascending": lambda: make(grid, edges=[[0, 0.4, 0.3, 0.7, 1], None]),
        "edges of axis x: point 0 of grid grid lies at 0, outside of its cell from 0.1 to 0.2": lambda: make(
            grid, edges=[[0.1, 0.2, 0.4, 0.7, 1], None]),
        "edges of axis y go from 0 to 1.5, but the periodic axis is 1 long": lambda: make(
            grid, edges=[None, [0.0, 0.3, 0.6, 1.5]]),
        "cells are so small .* float64 does not hold .* another unit": lambda: make(ml.Grid((3, 3), extent=1e-200)),
        "cells are so .* that float32 does not hold": lambda: make(ml.Grid((3, 3), extent=1e25), dtype="float32"),
        "poisson: x must be a Field, got int": lambda: poisson(3, b),
        "poisson: y must be a field of single numbers of type float64 on grid grid": lambda: poisson(x, pair),
        "poisson: x must be a field of single numbers": lambda: poisson(single, b),
        "poisson: x must be a field of .* on grid grid": lambda: poisson(other, b),
        "poisson: x and y are the same field, x": lambda: poisson(x, x),
        "poisson: f and b are the same field, b": lambda: poisson.right_hand_side(b, b),
        "poisson: f must be a Field, got float": lambda: poisson.right_hand_side(1.0, b),
        "multigrid: the operator must be a Poisson, got Grid": lambda: ml.linalg.Multigrid(grid),
        "multigrid: smoothing must be a whole number from 1 to 8, got 0": lambda: ml.linalg.Multigrid(
            poisson, smoothing=0),
        "multigrid: lines must be True or False, got 'yes'": lambda: ml.linalg.Multigrid(poisson, lines="yes"),
        "multigrid: accelerated must be True or False": lambda: ml.linalg.Multigrid(poisson, accelerated="no"),
        "multigrid: x and b are the same field": lambda: multigrid.solve(b, b),
        "multigrid: r and z are the same field": lambda: multigrid(b, b),
        "poisson: z must be a field of": lambda: multigrid(b, pair),
        "poisson: b must be a Field, got list": lambda: multigrid.solve(x, [1.0]),
        "multigrid: tol must be a number between 0 and 1, got 2": lambda: multigrid.solve(x, b, tol=2),
        "multigrid: at_most must be a whole number from 0": lambda: multigrid.solve(x, b, at_most=-1),
        "poisson poisson can be neither copied nor pickled": lambda: pickle.dumps(poisson),
    }  # fmt: skip


@pytest.mark.parametrize("message", wrong_uses())
def test_wrong_uses_in_one_line(message: str) -> None:
    ml.use("numpy")
    with one_line_from(MeshloomError, message):
        wrong_uses()[message]()


def test_they_say_what_they_are() -> None:
    ml.use("numpy")
    poisson = ml.linalg.Poisson(ml.Grid((10, 8)), name="pressure")
    assert repr(poisson) == "Poisson(pressure: 10 x 8, singular)"
    assert re.fullmatch(r"Multigrid\(pressure: 10 x 8, 5 x 4\)", repr(ml.linalg.Multigrid(poisson)))
