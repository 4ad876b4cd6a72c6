"""Poisson's equation by transforms, against matrices made cell by cell."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.fft
from hypothesis import HealthCheck, given, settings

import meshloom as ml
from meshloom.errors import MeshloomError
from meshloom.linalg import transforms
from meshloom.linalg.axis_cells import AxisCells
from tests.linalg.poisson_reference import exact, matrix_and_sides, operator, problems
from tests.one_line import one_line_from

KINDS = {"d": "dirichlet", "n": "neumann"}
BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))


def even(n: int, low: str, high: str, h: float = 0.3) -> AxisCells:
    edges = h * np.arange(n + 1)
    return AxisCells(edges, edges[:-1] + 0.5 * h, low, high)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(problems())
def test_as_a_direct_solver(problem: dict[str, Any]) -> None:
    ml.use("numpy")
    poisson, (matrix, _) = operator(problem), matrix_and_sides(problem)
    grid = problem["grid"]
    b, x = grid.field("b", data=problem["dice"].standard_normal(grid.shape)), grid.field("x", data=np.nan)
    x.fill(7.0)
    report = ml.linalg.FastPoisson(poisson).solve(x, b, tol=1e-11)
    assert report.converged and ("added up to" in report.reason) == poisson.singular
    right = exact(matrix, b.numpy().ravel(), poisson.volumes.numpy().ravel())
    np.testing.assert_allclose(x.numpy().ravel(), right, rtol=1e-9, atol=1e-9 * max(np.abs(right).max(), 1e-9))
    ghosts = ~np.isin(np.arange(grid.total), [*grid.choices.ravel(), *grid.padding])
    assert (x.numbered()[ghosts] == 7.0).all()
    x.fill(7.0)
    ml.linalg.FastPoisson(poisson).solve_only(x, b)
    np.testing.assert_allclose(x.numpy().ravel(), right, rtol=1e-8, atol=1e-8 * max(np.abs(right).max(), 1e-9))
    assert (x.numbered()[ghosts] == 7.0).all()


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_vectors_are_only_multiplied(n: int) -> None:
    """Each transform turns the operator along the axis into its values, and backwards undoes forwards."""
    cells = [even(n, a, b) for a, b in (("neumann",) * 2, ("dirichlet",) * 2, ("periodic",) * 2,
                                        ("dirichlet", "neumann"), ("neumann", "dirichlet"))]  # fmt: skip
    widths = np.random.default_rng(n).uniform(0.5, 2.0, n)
    edges = np.concatenate([[0.0], np.cumsum(widths)])
    cells += [AxisCells(edges, 0.5 * (edges[1:] + edges[:-1]), a, b) for a, b in
              (("neumann",) * 2, ("periodic",) * 2, ("dirichlet",) * 2)]  # fmt: skip
    x = np.random.default_rng(0).standard_normal((3, n))
    seen = set()
    for one in cells:
        for real in (True, False):
            made = transforms.transform_of("axis x", one, np.dtype(np.float64), real=real)
            seen.add(type(made).__name__)
            shares = made.forwards(x * one.widths, 1)
            np.testing.assert_allclose(made.scale * made.backwards(shares, 1), x, atol=1e-12)
            np.testing.assert_allclose(made.forwards(x @ one.dense, 1), made.values * shares, atol=1e-10)
    assert seen == {"Cosines", "Waves", "Vectors"}


def test_which_axis_is_solved_along() -> None:
    ml.use("numpy")
    stretched = np.array([0.0, 1.0, 3.0, 4.0, 6.0])
    make = ml.linalg.FastPoisson
    even_grid = ml.Grid((4, 5, 6), periodic=(True, False, False))
    assert repr(make(ml.linalg.Poisson(even_grid))) == "FastPoisson(poisson: y cosines, z cosines, x solved)"
    ends = [None, "neumann", "dirichlet"], [None, "dirichlet", "dirichlet"]
    assert repr(make(ml.linalg.Poisson(even_grid, *ends))) == "FastPoisson(poisson: z sines, x waves, y solved)"
    for kind, word in (("dirichlet", "sines"), ("neumann", "cosines")):
        assert repr(make(ml.linalg.Poisson(ml.Grid(5), kind, kind))) == f"FastPoisson(poisson: x {word})"
    two = ml.Grid((5, 5), coordinates=(stretched, stretched))
    assert repr(make(ml.linalg.Poisson(two))) == "FastPoisson(poisson: y vectors, x solved)"


@pytest.mark.parametrize(("shape", "stretched"), [((40, 30), False), ((12, 16, 20), False), ((40, 30), True)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_it_says_is_what_is(backend: str, shape: tuple[int, ...], stretched: bool) -> None:
    ml.use(backend)
    # lengths are alike, so that rounding is no matter
    places = [np.cumsum(1.05 ** np.arange(n)) if stretched and a == 0 else None for a, n in enumerate(shape)]
    for low, high in (("neumann", "neumann"), ("dirichlet", "dirichlet"), ("dirichlet", "neumann")):
        grid = ml.Grid(shape, coordinates=places, periodic=[a == 1 for a in range(len(shape))], extent=100.0)
        poisson = ml.linalg.Poisson(grid, low, high)
        values = np.random.default_rng(0).standard_normal(shape)
        b, x = grid.field("b", data=values - values.mean()), grid.field("x")
        fast = ml.linalg.FastPoisson(poisson)
        fast.solve(x, b)  # which may bring b to a device: another place counts as another version
        version = b.version
        report = fast.solve(x, b, tol=1e-11)
        assert report.converged and report.reason == "converged" and b.version == version
        assert report.history[0] == 1.0 and report.history[-1] == report.residual and report.iterations == 1
        residual = b.numpy().ravel() - poisson.to_scipy() @ x.numpy().ravel()
        np.testing.assert_allclose(np.linalg.norm(residual) / np.linalg.norm(b.numpy()), report.residual, atol=1e-12)
    again, compared = x.like("again"), len(shape) == 2
    assert not compared or ml.linalg.Multigrid(poisson).solve(again, b, tol=1e-10).converged
    assert not compared or np.abs(again.numpy() - x.numpy()).max() < 1e-7 * np.abs(x.numpy()).max()


@pytest.mark.parametrize("ghosts", [0, 1])
@pytest.mark.parametrize("kinds", ["ppp", "nnn", "dpd", "spp", "pns", "pps", "nds", "sn", "p", "s"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_without_checks(backend: str, kinds: str, ghosts: int) -> None:
    """Axes that are periodic, closed or stretched: x is what ``solve`` says, ghosts and b stay as they are."""
    ml.use(backend)
    shape = (9, 8, 12)[: len(kinds)]
    sides = [None if k == "p" else "dirichlet" if k == "d" else "neumann" for k in kinds]
    places = [np.cumsum(1.1 ** np.arange(n)) if k == "s" else None for k, n in zip(kinds, shape, strict=True)]
    grid = ml.Grid(shape, coordinates=places, periodic=[k == "p" for k in kinds], ghosts=ghosts, extent=10.0)
    poisson = ml.linalg.Poisson(grid, sides, sides)
    fast = ml.linalg.FastPoisson(poisson)
    b = grid.field("b", data=np.random.default_rng(0).standard_normal(shape) + 0.1)
    given, x, alone = b.numpy(), grid.field("x"), grid.field("alone")
    alone.fill(7.0)
    for _ in range(2):
        fast.solve_only(alone, b)
    report = fast.solve(x, b, tol=1e-10)
    assert report.converged and ("added up to" in report.reason) == poisson.singular
    size = np.abs(x.numpy()).max()
    assert np.abs(alone.numpy() - x.numpy()).max() < 1e-12 * size and (b.numpy() == given).all()
    outside = ~np.isin(np.arange(grid.total), [*grid.choices.ravel(), *grid.padding])
    assert (alone.numbered()[outside] == 7.0).all()
    volumes = poisson.volumes.numpy()
    assert not poisson.singular or abs((volumes * alone.numpy()).sum()) < 1e-12 * size * volumes.sum()
    b.assign(np.where(np.arange(given.size).reshape(shape) == 3, np.nan, given))
    fast.solve_only(alone, b)
    assert np.isnan(alone.numpy()).all()


def test_b_that_is_impossible_zero_tiny_huge_or_no_number() -> None:
    ml.use("numpy")
    grid = ml.Grid((6, 7))
    fast = ml.linalg.FastPoisson(ml.linalg.Poisson(grid))
    x, b = grid.field("x", data=2.0), grid.field("b", data=1.0)
    report = fast.solve(x, b)
    assert report.converged and report.reason.startswith("b is zero, and so is x; b added up to 42,")
    assert not x.numpy().any() and (b.numpy() == 1.0).all()
    wave = np.cos(np.arange(42.0)).reshape(6, 7)
    for size in (1e-200, 1e200):
        b.assign(size * wave)
        report = fast.solve(x, b)
        assert report.converged and 0.0 < np.abs(x.numpy()).max() / size < 10.0
    kept = x.numpy()
    for odd in (np.where(wave > 0.9, np.nan, wave), np.where(wave > 0.9, np.inf, wave), 1e307 * (wave + 1.0)):
        b.assign(odd)  # the sum of the last one is more than a number holds
        assert fast.solve(x, b).reason == "values that are not finite" and (x.numpy() == kept).all()


def test_a_right_hand_side_whose_transform_is_too_large() -> None:
    ml.use("numpy")
    grid = ml.Grid((9, 8))
    fast = ml.linalg.FastPoisson(ml.linalg.Poisson(grid, "dirichlet", "dirichlet"))
    report = fast.solve(grid.field("x"), grid.field("b", data=np.where(grid.meshgrid()[0] > 0.5, 1e307, 0.0)))
    assert not report.converged and report.reason == "values that are not finite"


def test_single_precision_says_what_it_can() -> None:
    ml.use("numpy")
    grid = ml.Grid((20, 20))
    poisson = ml.linalg.Poisson(grid, "dirichlet", "dirichlet", dtype="float32")
    x = grid.field("x", dtype="float32")
    b = grid.field("b", dtype="float32", data=np.random.default_rng(0).standard_normal((20, 20)).astype("float32"))
    assert ml.linalg.FastPoisson(poisson).solve(x, b, tol=1e-5).converged
    report = ml.linalg.FastPoisson(poisson).solve(x, b, tol=1e-12)
    assert not report.converged and report.reason.startswith("stalled: rounding in float32")
    assert report.residual < 1e-5 and len(report.history) == report.iterations + 1
    real = np.linalg.norm(b.numpy().ravel() - poisson.to_scipy() @ x.numpy().ravel()) / np.linalg.norm(b.numpy())
    assert abs(real - report.residual) < 1e-6, "x is the best that was found"


class OnDevice(np.ndarray):
    """Stands for an array of CuPy's."""


def test_only_what_cupy_has_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's transforms take types 2 and 3 only, and no ``workers``; constants are sent to where arrays lie."""
    used, sent = set(), []

    def real(name: str) -> Any:
        def transform(x: Any, type: int = 2, n: Any = None, axis: int = -1, norm: Any = None,
                      overwrite_x: bool = False) -> Any:  # fmt: skip
            assert type in (2, 3) and np.isrealobj(x)
            used.add(name)
            return getattr(scipy.fft, name)(np.asarray(x), type=type, axis=axis, norm=norm).view(OnDevice)

        return transform

    def complex_(name: str) -> Any:
        def transform(x: Any, n: Any = None, axis: int = -1, norm: Any = None, overwrite_x: bool = False) -> Any:
            used.add(name)
            return getattr(scipy.fft, name)(np.asarray(x), n=n, axis=axis, norm=norm).view(OnDevice)

        return transform

    def send(array: np.ndarray) -> OnDevice:
        sent.append(array.shape)
        return array.view(OnDevice)

    names = {**{n: real(n) for n in ("dct", "idct", "dst", "idst")},
             **{n: complex_(n) for n in ("fft", "ifft", "rfft", "irfft")}}  # fmt: skip
    device = SimpleNamespace(
        asarray=send, moveaxis=np.moveaxis, tensordot=lambda *a, axes: np.tensordot(*a, axes=axes).view(OnDevice)
    )
    known = (SimpleNamespaceKey(device), SimpleNamespace(**names))

    monkeypatch.setattr("meshloom.linalg.transforms.libraries", lambda array: known)
    ml.use("numpy")
    stretched = np.array([0.0, 1.0, 3.0, 4.0, 6.0])
    grids = [(ml.Grid((4, 6)), "neumann"), (ml.Grid((4, 6)), "dirichlet"), (ml.Grid(5), "dirichlet"),
             (ml.Grid((4, 4, 5), coordinates=(None, None, stretched), periodic=(True, True, False)), "neumann"),
             (ml.Grid((5, 5, 4), coordinates=(stretched, stretched, None)), "dirichlet")]  # fmt: skip
    for grid, end in grids:
        poisson = ml.linalg.Poisson(grid, end, end)
        b = np.random.default_rng(0).standard_normal(grid.shape)
        b -= b.mean() if poisson.singular else 0.0
        fast = ml.linalg.FastPoisson(poisson)
        for _ in range(2):
            x = fast.solved(b.view(OnDevice))
        np.testing.assert_allclose(poisson.to_scipy() @ np.asarray(x).ravel(), b.ravel(), atol=1e-10)
    assert used == set(names) and len(sent) == 6, "widths of four, the divisors of a line, and a matrix"


class SimpleNamespaceKey:
    """A module as far as dictionaries are concerned."""

    def __init__(self, names: SimpleNamespace):
        self.__dict__.update(vars(names))


def wrong_uses() -> dict[str, Any]:
    grid = ml.Grid((4, 3))
    fast = ml.linalg.FastPoisson(ml.linalg.Poisson(grid, "dirichlet"))
    x, b = grid.field("x"), grid.field("b")
    return {
        "fast_poisson: the operator must be a Poisson, got Grid": lambda: ml.linalg.FastPoisson(grid),
        "poisson: x must be a Field, got int": lambda: fast.solve(3, b),
        "poisson: b must be a field of single numbers": lambda: fast.solve(x, grid.field("c", 2)),
        "fast_poisson: x and b are the same field, b": lambda: fast.solve(b, b),
        "fast_poisson: x and b are the same field, x": lambda: fast.solve_only(x, x),
        "poisson: b must be a Field, got str": lambda: fast.solve_only(x, "b"),
        "fast_poisson: tol must be a number between 0 and 1, got 'small'": lambda: fast.solve(x, b, tol="small"),
        "fast_poisson: b must be a Field, got str": lambda: ml.program(lambda: fast.solve_only(x, "b")).run(),
        "reports is known at every replay": lambda: ml.program(lambda: fast.solve(x, b).residual).run(),
        "making a fast Poisson solver inside a program": lambda: ml.program(
            lambda: ml.linalg.FastPoisson(fast.poisson)).run(),
        "cg: preconditioner must be .* or callable": lambda: ml.linalg.cg(fast.poisson, x, b, preconditioner=fast),
        "neither copied nor pickled": lambda: copy.copy(fast),
    }  # fmt: skip


@pytest.mark.parametrize("message", wrong_uses())
def test_wrong_uses_in_one_line(message: str) -> None:
    ml.use("numpy")
    with one_line_from(MeshloomError, message):
        wrong_uses()[message]()


def test_a_second_long_axis_that_needs_a_matrix_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("numpy")
    monkeypatch.setattr("meshloom.linalg.transforms.MOST_DENSE", 4)
    place = np.arange(5.0) ** 2
    with one_line_from(MeshloomError, "fast_poisson: axis y has 5 cells that are stretched, .* ml.linalg.Multigrid"):
        ml.linalg.FastPoisson(ml.linalg.Poisson(ml.Grid((5, 5), coordinates=(place, place))))
