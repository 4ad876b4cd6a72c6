"""Tridiagonal systems along lines with coefficients of their own, against LAPACK's banded LU, on every back end."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_banded

import meshloom as ml
from meshloom.errors import MeshloomError
from meshloom.linalg.factors import inverse_pivots, link_factors
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
TOLERANCE = {"float64": 2e-14, "float32": 1e-5}
few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def lines_of(values: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """A coefficient, along the axis or at points, as (n, lines)."""
    if values.shape != shape:
        values = values.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return np.moveaxis(np.broadcast_to(values, shape), axis, 0).reshape(shape[axis], -1)


def expected(lower: np.ndarray, diag: np.ndarray, upper: np.ndarray, f: np.ndarray, periodic: bool) -> np.ndarray:
    """Line by line: closed ones by LAPACK's banded LU, periodic ones by a full matrix made entry by entry."""
    n, found = len(f), np.empty(f.shape)
    for k in range(f.shape[1]):
        if periodic:
            matrix = np.zeros((n, n))
            for i in range(n):
                for j, entry in ((i - 1, lower), (i, diag), (i + 1, upper)):
                    matrix[i, j % n] += entry[i, k]
            found[:, k] = np.linalg.solve(matrix, f[:, k])
        else:
            bands = np.zeros((3, n))
            bands[0, 1:], bands[1], bands[2, :-1] = upper[:-1, k], diag[:, k], lower[1:, k]
            found[:, k] = solve_banded((1, 1) if n > 1 else (0, 0), bands if n > 1 else bands[1:2], f[:, k])
    return found


def check(backend: str, shape: tuple[int, ...], axis: int, *, periodic: bool, at_points: bool, dtype: str = "float64",
          in_place: bool = False, dim: int = 1, tuning: dict[str, int] | None = None,
          **options: Any) -> None:  # fmt: skip
    ml.use(backend)
    dice, grid = np.random.default_rng([*shape, axis]), ml.Grid(shape, periodic=periodic, **options)
    beside = shape if at_points else (shape[axis],)
    lower, upper = dice.uniform(-1.0, 1.0, beside), dice.uniform(-1.0, 1.0, beside)
    diag = dice.choice([-1.0, 1.0], beside[:1] + (1,) * (len(shape) - 1)) if axis == 0 else 1.0
    diag = diag * dice.uniform(2.1, 4.0, shape)
    systems = ml.linalg.LineSystems(grid, axis, lower, diag, upper, dtype=dtype)
    values = dice.standard_normal((*shape, dim)).astype(dtype)
    f = grid.field("f", dim, dtype=dtype, data=values)
    x = f if in_place else grid.field("x", dim, dtype=dtype)
    if "ghosts" in options:
        x.fill(7.0)
    ml.linalg.LineLoop(grid, axis, systems, f, x, tuning=tuning)() if tuning else systems.solve(f, x)
    rows = [lines_of(one, shape, axis) for one in (lower, diag, upper)]
    got = grid.shaped(x).reshape(*shape, dim)
    for c in range(dim):
        right = expected(*rows, lines_of(values[..., c].astype(np.float64), shape, axis), periodic)
        error = np.abs(lines_of(got[..., c], shape, axis) - right).max() / np.abs(right).max()
        assert error < TOLERANCE[dtype], (shape, axis, error)
    if "ghosts" in options:
        ghosts = ~np.isin(np.arange(grid.total), [*grid.choices.ravel(), *grid.padding])
        assert (x.numbered()[ghosts] == 7.0).all()


#: Lines of 1, 2, 3, a prime and a power of two, of one block and of several segments, along every axis.
SHAPES = [((1, 4), 0), ((4, 1), 1), ((2, 3), 0), ((3, 2), 1), ((3,), 0), ((7, 5, 6), 0), ((7, 5, 6), 1), ((7, 5, 6), 2),
          ((67, 3), 0), ((3, 67), 1), ((5, 128), 1)]  # fmt: skip


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_as_banded_matrices(backend: str, shape: tuple[int, ...], axis: int, periodic: bool) -> None:
    for at_points in (False, True):
        check(backend, shape, axis, periodic=periodic, at_points=at_points)


@few
@given(st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(0, 2), st.booleans(), st.booleans(),
       st.sampled_from(["float64", "float32"]), st.integers(1, 3), st.booleans())  # fmt: skip
def test_random_systems(shape: list[int], axis: int, periodic: bool, at_points: bool, dtype: str, dim: int,
                        in_place: bool) -> None:  # fmt: skip
    check("cpu", tuple(shape), axis % len(shape), periodic=periodic, at_points=at_points, dtype=dtype, dim=dim,
          in_place=in_place)  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_form(backend: str) -> None:
    """Components, ghosts, aligned rows, in place, single precision, other segments and tiles."""
    check(backend, (33, 6), 0, periodic=True, at_points=False, dim=3, in_place=True)
    check(backend, (6, 33), 1, periodic=False, at_points=True, dim=2, dtype="float32")
    check(backend, (20, 9), 0, periodic=False, at_points=False, ghosts=(1, 2))
    check(backend, (9, 20), 1, periodic=True, at_points=True, ghosts=(1, 2), dtype="float32")
    check(backend, (20, 5), 0, periodic=True, at_points=False, aligned=True)
    for tuning in ({"points": 16, "tile": 4}, {"points": 5, "tile": 2}):
        for shape, axis in (((41, 6), 0), ((6, 41), 1)):
            check(backend, shape, axis, periodic=True, at_points=False, tuning=tuning)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_lines_that_no_block_holds(backend: str, periodic: bool) -> None:
    """They are swept through memory by one thread; results of two operands are needed together."""
    ml.use(backend)
    n, dice = 20011, np.random.default_rng(0)
    grid = ml.Grid((n, 2), periodic=periodic)
    lower, diag, upper = dice.uniform(-1, 1, n), dice.uniform(2.1, 4.0, (n, 2)), dice.uniform(-1, 1, (n, 2))
    systems = ml.linalg.LineSystems(grid, 0, lower, diag, upper)
    values = dice.standard_normal((n, 2, 2))
    f, x = grid.field("f", 2, data=values), grid.field("x", data=1.0)
    loop = ml.linalg.LineLoop(grid, 0, systems, f, x, after=both, values=2)
    loop()
    if loop.backend.target.is_simt:
        assert "swept" in loop.explain()
    rows = [lines_of(one, (n, 2), 0) for one in (lower, diag, upper)]
    parts = [dense_free(*rows, values[..., c], periodic) for c in (0, 1)]
    assert np.abs(grid.shaped(x) - (1.0 + parts[0] * parts[1])).max() < 1e-12


def dense_free(lower: np.ndarray, diag: np.ndarray, upper: np.ndarray, f: np.ndarray, periodic: bool) -> np.ndarray:
    """``expected`` for long lines: a periodic one is cut in the middle of three copies, far from both ends."""
    if not periodic:
        return expected(lower, diag, upper, f, False)
    n, three = len(f), [np.concatenate([one] * 3) for one in (lower, diag, upper, f)]
    return expected(*three, False)[n : 2 * n]


@ml.kernel
def both(y: ml.Read, x: ml.Inc):
    x += y[0] * y[1]


@ml.kernel
def doubled(f: ml.Read, out: ml.Write):
    out[...] = 2.0 * f


@ml.kernel
def added(y: ml.Read, x: ml.ReadWrite):
    x[...] = 0.5 * x + y


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_and_programs(backend: str) -> None:
    """Kernels before and after; recorded, with a loop beside it that is taken along on a CPU; what is moved."""
    ml.use(backend)
    grid, dice = ml.Grid((19, 6)), np.random.default_rng(1)
    diag = dice.uniform(3.0, 4.0, grid.shape)
    systems = ml.linalg.LineSystems(grid, 0, -1.0, diag, -0.5)
    f, x = (grid.field(name, data=dice.standard_normal(grid.shape)) for name in ("f", "x"))
    rows = [lines_of(one, grid.shape, 0) for one in (np.full(19, -1.0), diag, np.full(19, -0.5))]
    once = expected(*rows, 2.0 * f.numpy(), False)
    start = x.numpy()
    loop = ml.linalg.LineLoop(grid, 0, systems, f, x, before=doubled, after=added, values=1)
    loop()
    np.testing.assert_allclose(x.numpy(), 0.5 * start + once, atol=1e-14)
    assert loop.compulsory == 4 * 8 * 19 * 6, "f, pivots and x read, x written"
    work = grid.field("work", temporary=True)

    @ml.program
    def step() -> None:
        doubled(grid, f, work)
        systems.solve(work, work)
        added(grid, work, x)

    x.assign(start)
    step.run(2)
    np.testing.assert_allclose(x.numpy(), 0.25 * start + 1.5 * once, atol=1e-13)


def test_nearly_singular_lines_keep_their_digits() -> None:
    """Poisson's equation along a line, held at one point only, closed and periodic."""
    ml.use("cpu")
    n = 200
    for periodic in (False, True):
        grid = ml.Grid((n, 2), periodic=periodic)
        diag = np.full((n, 2), 2.0)
        diag[0] += 1e-3 if periodic else -1.0 + 1e-3
        diag[-1] -= 0.0 if periodic else 1.0
        f, x = grid.field("f", data=np.cos(np.arange(2.0 * n))), grid.field("x")
        ml.linalg.LineSystems(grid, 0, -1.0, diag, -1.0).solve(f, x)
        rows = [lines_of(one, grid.shape, 0) for one in (np.full(n, -1.0), diag, np.full(n, -1.0))]
        right = expected(*rows, grid.shaped(f), periodic)
        assert np.abs(grid.shaped(x) - right).max() < 1e-9 * np.abs(right).max()


def test_factors_are_made_of_what_was_given_then() -> None:
    ml.use("cpu")
    grid = ml.Grid((9, 4))
    diag = grid.field("diag", data=4.0)
    systems = ml.linalg.LineSystems(grid, 0, 1.0, diag, 1.0, name="heat")
    diag.assign(8.0)
    f, x = grid.field("f", data=1.0), grid.field("x")
    systems.solve(f, x)
    rows = [np.full((9, 4), one) for one in (1.0, 4.0, 1.0)]
    np.testing.assert_allclose(grid.shaped(x), expected(*rows, np.ones((9, 4)), False), rtol=1e-14)
    assert repr(systems) == "LineSystems(closed lines of grid along axis 0: inverse vary)"
    assert systems.fields == (systems.inverse,)
    other = ml.linalg.LineSystems(grid, 0, 0.0, 2.0, 0.0, name="heat")
    other.solve(f, x)
    assert (grid.shaped(x) == 0.5).all(), "kept loops are told apart by their systems"


def test_periodic_lines_of_a_closed_grid_and_the_other_way_round() -> None:
    ml.use("cpu")
    for around in (False, True):
        grid = ml.Grid((11, 3), periodic=not around)
        systems = ml.linalg.LineSystems(grid, 0, 1.0, 3.0, 1.0, periodic=around)
        f, x = grid.field("f", data=np.arange(33.0)), grid.field("x")
        systems.solve(f, x)
        rows = [np.full((11, 3), one) for one in (1.0, 3.0, 1.0)]
        np.testing.assert_allclose(grid.shaped(x), expected(*rows, grid.shaped(f), around), rtol=1e-13)


def test_what_is_wrong_in_one_line() -> None:
    ml.use("numpy")
    make, grid, other = ml.linalg.LineSystems, ml.Grid((5, 4)), ml.Grid((5, 4), name="other")
    around = ml.Grid((6, 2), periodic=True)
    good = make(grid, 0, 1.0, np.full((5, 4), 3.0), np.ones((5, 4)))
    f, x = grid.field("f"), grid.field("x")
    singular = np.full((5, 4), 2.0)
    singular[2, 1] = 0.0
    wrong: list[tuple[Any, str]] = [
        (lambda: make(None, 0, 1.0, 3.0, 1.0), "systems: grid must be a Grid, got None"),
        (lambda: make(grid, 2, 1.0, 3.0, 1.0), "axis"),
        (lambda: make(grid, 0, np.ones(4), 3.0, 1.0), "lower must be a number, an array (5,) or one of the grid's"),
        (lambda: make(grid, 0, 1.0, "x", 1.0), "diag must be a number"),
        (lambda: make(grid, 0, 1.0, np.inf, 1.0), "diag has values that are not finite"),
        (lambda: make(grid, 0, 1.0, other.field("d", data=3.0), 1.0), "field d must live on grid"),
        (lambda: make(grid, 0, 0.0, singular, 0.0), "row 2 of 5 makes it singular in 1 of 4 lines"),
        (lambda: make(around, 0, -1.0, 2.0, -1.0), "makes it singular"),
        (lambda: make(around, 0, -1.0, 0.9, -1.0), "too small for what stands next to it"),
        (lambda: make(around, 0, 0.0, 0.1, 5.0), "what goes around it grows too much to be solved for in 2 of 2 lines"),
        (lambda: make(grid, 0, 1e-40, 3e-40, 1e-40, dtype="float32"), "too small or too large for float32; scale"),
        (lambda: make(grid, 0, 1e39, 3e39, 1e39, dtype="float32"), "too small or too large for float32; scale"),
        (lambda: make(grid, 0, 1e-310, 3e-310, 1e-310), "makes it singular"),
        (lambda: make(grid, 0, 1.0, 3.0, 1.0, periodic=2), "periodic"),
        (lambda: make(grid, 0, 1.0, 3.0, 1.0, dtype="int32"), "float32 or float64"),
        (lambda: make(grid, 0, 1.0, 3.0, 1.0, dtype="number"), "float32 or float64"),
        (lambda: make(grid, 0, 1.0, 3.0, 1.0, name=3), "has a name, a string; got 3"),
        (lambda: good.solve(f, other.field("x")), "lives on other"),
        (lambda: good.solve(f, good.inverse), "inverse is a coefficient of its systems"),
        (lambda: good.solve(grid.field("g", dtype="float32"), x), "one floating type"),
        (lambda: ml.linalg.line_loop(grid, 1, good, f, x), "along axis 0 of grid, not axis 1 of grid"),
        (lambda: ml.linalg.line_loop(grid, 0, good, f, x, method="thomas"), "only 'segmented' takes some that vary"),
    ]  # fmt: skip
    for action, words in wrong:
        with one_line_from(MeshloomError, re.escape(words)):
            action()


def test_pivots_come_round() -> None:
    """The pivots of a periodic line are the same one turn later, where lines are not dominated by little."""
    dice = np.random.default_rng(2)
    lower, upper, diag = -dice.random((13, 5)), -dice.random((13, 5)), np.full((13, 5), 2.0)
    pivots = 1.0 / inverse_pivots("test", lower, diag, upper, periodic=True)
    np.testing.assert_allclose(diag - lower * np.roll(upper, 1, 0) / np.roll(pivots, 1, 0), pivots, rtol=1e-14)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 64])
def test_the_size_of_coefficients_is_free(n: int, periodic: bool) -> None:
    """Equations times 1e-250, 1e250, or each row by another power: x stays what it is."""
    ml.use("numpy")
    grid, dice = ml.Grid((n, 2), periodic=(periodic, False)), np.random.default_rng(n)
    f, x = grid.field("f", data=dice.standard_normal((n, 2))), grid.field("x")
    ml.linalg.LineSystems(grid, 0, -1.0, 2.5, 0.8).solve(f, x)
    rows = 10.0 ** dice.uniform(-120.0, 120.0, n)
    for size in (np.full(n, 1e-250), np.full(n, 1e250), rows):
        scaled, y = grid.field("scaled", data=size[:, None] * f.numpy()), grid.field("y")
        ml.linalg.LineSystems(grid, 0, -size, 2.5 * size, 0.8 * size).solve(scaled, y)
        np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 64])
def test_cells_that_are_hardly_held(n: int) -> None:
    """Links alone, closed and periodic: what the diagonals have above them is 1, or 1e-6, or 1e-12 of it."""
    ml.use("numpy")
    dice, grid, margins = np.random.default_rng(n), ml.Grid((n, 3)), np.array([1.0, 1e-6, 1e-12])
    for closed in (False, True):
        links = dice.uniform(0.5, 2.0, n)
        links[0] *= 0.0 if closed or n == 1 else 1.0
        factors = link_factors("cells", grid, 0, links, lambda i: margins, periodic=not closed, dtype=np.dtype(float))
        b = dice.uniform(0.5, 1.5, (n, 3))
        x = factors.along.solved(b, {"inverse": grid.shaped(factors.inverse).reshape(n, 3)})
        for row, margin in enumerate(margins):
            matrix = np.diag(links + np.roll(links, -1) + margin)
            for i in range(n):
                matrix[i, i - 1] -= links[i]
                matrix[i - 1, i] -= links[i]
            np.testing.assert_allclose(matrix @ x[:, row], b[:, row], atol=3e-15 * n / margin)
            off = abs(margin * x[:, row].sum() / b[:, row].sum() - 1.0)  # links take nothing away
            assert off < 1e-13 * n * (1.0 if closed else margin**-0.5), (
                "round a line a root of the margin is what counts"
            )


# --- periodic lines whose diagonal does not dominate ------------------------------------------------------------------


def not_dominant(shape: tuple[int, int], least: float, seed: int) -> tuple[np.ndarray, ...]:
    """Coefficients (n, lines) beside which the diagonal is as small; none of them is refused."""
    dice = np.random.default_rng(seed)
    found = [[], [], []]  # type: list[list[np.ndarray]]
    while len(found[0]) < shape[1]:
        lower, upper = dice.uniform(-1.0, 1.0, (2, shape[0]))
        diag = dice.choice([-1.0, 1.0], shape[0]) * dice.uniform(least, least + 1.0, shape[0])
        try:
            inverse_pivots("one", *(one[:, None] for one in (lower, diag, upper)), periodic=True)
        except MeshloomError:
            continue
        for lines, one in zip(found, (lower, diag, upper), strict=True):
            lines.append(one)
    return tuple(np.array(one).T for one in found)


def off_by(rows: tuple[np.ndarray, ...], f: np.ndarray, x: np.ndarray) -> float:
    """The backward error of the worst line, in roundings."""
    lower, diag, upper = rows
    left = np.abs(f - (lower * np.roll(x, 1, axis=0) + diag * x + upper * np.roll(x, -1, axis=0))).max(axis=0)
    size = sum(np.abs(one) for one in rows).max(axis=0) * np.abs(x).max(axis=0) + np.abs(f).max(axis=0)
    return float((left / size).max() / np.finfo(x.dtype).eps)


@pytest.mark.parametrize("backend", BACKENDS)
def test_periodic_lines_that_are_not_dominant_lose_nothing(backend: str) -> None:
    """Going round them does, up to three digits: solutions are refined then, in place and beside ghosts, too."""
    ml.use(backend)
    n, lines = 8, 60
    rows = not_dominant((n, lines), 0.0, seed=1)
    values = np.random.default_rng(2).standard_normal((n, lines, 2))
    for options in ({}, {"ghosts": 1}):
        grid = ml.Grid((n, lines), periodic=True, **options)
        systems = ml.linalg.LineSystems(grid, 0, *rows)
        x = grid.field("x", 2, data=values)
        assert systems.refines
        systems.solve(x, x)
        for c in range(2):
            f, found = values[..., c], grid.shaped(x)[..., c]
            assert off_by(rows, f, found) < 4.0
            right = expected(*rows, f, True)
            for k in range(lines):
                matrix = np.diag(rows[1][:, k]) + np.roll(np.diag(rows[0][:, k]), -1, 1) + np.roll(
                    np.diag(rows[2][:, k]), 1, 1)  # fmt: skip
                allowed = 8.0 * np.finfo(float).eps * np.linalg.cond(matrix)
                assert np.abs(found[:, k] - right[:, k]).max() < allowed * np.abs(right[:, k]).max()


def test_dominant_lines_are_solved_once_and_lines_that_cannot_be_refined_tell() -> None:
    ml.use("numpy")
    grid = ml.Grid((8, 3), periodic=True)
    assert not ml.linalg.LineSystems(grid, 0, -1.0, 4.0, -1.0).refines
    rows = not_dominant((8, 60), 0.0, seed=1)
    with pytest.warns(UserWarning, match=r"^systems: solutions lose \d\.\d digits"):
        ml.linalg.LineSystems(ml.Grid((8, 60)), 0, *rows, periodic=True)


def test_refined_solves_are_recorded() -> None:
    ml.use("numpy")
    grid, rows = ml.Grid((8, 60), periodic=True), not_dominant((8, 60), 0.0, seed=1)
    systems, f, x = ml.linalg.LineSystems(grid, 0, *rows), grid.field("f", data=1.0), grid.field("x")

    @ml.program
    def step() -> None:
        systems.solve(f, x)

    step.run(2)
    assert off_by(rows, np.ones((8, 60)), x.numpy()) < 4.0
