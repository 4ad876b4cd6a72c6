"""Derivatives and filters of grid fields: orders by refinement, closures, stretched axes, variables, wrong input."""

from __future__ import annotations

import math

import numpy as np
import pytest

import meshloom as ml
from meshloom import compact
from meshloom.errors import SchemeError


@pytest.fixture(params=["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request):
    yield from using(request.param)


@pytest.fixture
def reference():
    """Orders belong to the schemes; that all back ends do the same is seen elsewhere."""
    yield from using("numpy")


def using(name: str):
    before = ml.backend()
    ml.use(name)
    yield name
    ml.use(before)


def wave(x: np.ndarray, degree: int = 0) -> np.ndarray:
    """exp(sin(2 pi x)), or a derivative of it."""
    c, s, k = np.cos(2 * np.pi * x), np.sin(2 * np.pi * x), 2 * np.pi
    return np.exp(s) * (1.0, k * c, k**2 * (c**2 - s))[degree]


def error(n: int, scheme: compact.Scheme, *, periodic: bool, stretch: float = 0.0, margin: float = 0.0) -> float:
    """Largest error on a line of n points, but for a ``margin`` at either end (shares of the length)."""
    even = np.arange(n) / (n if periodic else n - 1)
    x = even + stretch * np.sin(2 * np.pi * even) / (2 * np.pi)
    grid = ml.Grid(n, 1.0, periodic=periodic, coordinates=(x,) if stretch else None)
    f = grid.field("f", data=wave(x))
    apply = (compact.filter, compact.d, compact.d2)[scheme.degree]
    inside = (even >= margin) & (even <= 1.0 - margin)
    return float(np.abs(grid.shaped(apply(f, 0, scheme=scheme)) - wave(x, scheme.degree))[inside].max())


def rate(coarse: int, fine: int, *arguments, **options) -> float:
    """The observed order, by the logarithm of both errors over that of both spacings."""
    closed = not options["periodic"]
    return math.log(error(coarse, *arguments, **options) / error(fine, *arguments, **options)) / math.log(
        (fine - closed) / (coarse - closed)
    )


@pytest.mark.parametrize(
    "scheme",
    [compact.PADE4, compact.LELE6, compact.DENG5_PLUS, compact.DENG5_MINUS, compact.SECOND6, compact.filters(6, 0.4)],
    ids=str,
)
def test_the_observed_order_on_a_periodic_line_is_that_of_the_interior_row(reference, scheme):
    assert rate(64, 128, scheme, periodic=True) == pytest.approx(compact.order(scheme), abs=0.15)


@pytest.mark.parametrize("scheme", [compact.PADE4, compact.LELE6, compact.DENG5_PLUS, compact.SECOND6], ids=str)
def test_the_observed_order_on_a_closed_line_is_that_of_its_closures(reference, scheme):
    """Errors of the end rows decay into the line: near the ends they rule, far away the interior does."""
    orders = compact.orders(scheme)
    assert rate(128, 256, scheme, periodic=False) == pytest.approx(min(orders.values()), abs=0.35)
    middle = rate(96, 192, scheme, periodic=False, margin=0.3)
    assert middle == pytest.approx(orders["interior"], abs=0.3)


@pytest.mark.parametrize(("scheme", "order"), [(compact.LELE6, 6), (compact.SECOND6, 6)], ids=str)
def test_stretched_lines_keep_the_order(reference, scheme, order):
    assert rate(96, 192, scheme, periodic=True, stretch=0.5) == pytest.approx(order, abs=0.4)
    assert error(192, scheme, periodic=False, stretch=0.5) < 200 * error(192, scheme, periodic=False)


def test_several_variables_along_any_axis_in_one_launch(backend):
    grid = ml.Grid((12, 14, 17), (1.0, 2.0, 3.0), periodic=(True, False, False))
    x, y, z = grid.meshgrid()
    values = np.stack([np.sin(x + 2 * y) * z, x * y * z, np.cos(x * z) + y], axis=-1)
    vector, scalar = grid.field("q", 3, data=values), grid.field("p", data=values[..., 1] + 1.0)
    for axis, length in enumerate(grid.shape):
        left, right = compact.matrices(compact.LELE6, length, periodic=grid.periodic[axis])
        matrix = np.linalg.solve(left, right) / grid.spacing[axis]
        found = compact.d([vector, scalar], axis)
        for field, derived in zip((vector, scalar), found, strict=True):
            expected = np.moveaxis(np.tensordot(matrix, grid.shaped(field), (1, axis)), 0, axis)
            np.testing.assert_allclose(grid.shaped(derived), expected, atol=1e-12 * np.abs(expected).max())


def test_fluxes_and_sums_in_the_same_pass(backend):
    """d(u^2/2)/dx added to what is there, by kernels before and after, recorded in a program."""
    grid = ml.Grid((9, 16), (1.0, 1.0), periodic=(False, True))
    x, y = grid.meshgrid()
    u, total = grid.field("u", data=np.sin(2 * np.pi * y) + x), grid.field("total", data=np.ones(grid.shape))

    @ml.kernel
    def flux(u: ml.Read, f: ml.Write):
        f[...] = 0.5 * u**2

    @ml.kernel
    def add(df: ml.Read, total: ml.Inc):
        total += -2.0 * df

    @ml.program
    def twice():
        compact.d(u, 1, total, before=flux, after=add, values=1)
        compact.d(u, 1, total, before=flux, after=add, values=1)

    twice.run()
    half = compact.d(grid.field("f", data=0.5 * grid.shaped(u) ** 2), 1)
    np.testing.assert_allclose(grid.shaped(total), 1.0 - 4.0 * grid.shaped(half), atol=1e-12)


def test_a_filter_takes_the_shortest_wave_and_keeps_the_ends(backend):
    grid = ml.Grid(40, 1.0)
    sawtooth = np.where(np.arange(40) % 2, 1.0, -1.0)
    f = grid.field("f", data=2.0 + sawtooth)
    out = grid.shaped(compact.filter(f, 0, scheme=compact.filters(8, 0.3)))
    assert out[0] == 1.0 and out[-1] == 3.0 and np.abs(out[15:25] - 2.0).max() < 1e-4
    same = grid.field("same", data=np.full(40, 3.0))
    np.testing.assert_allclose(grid.shaped(compact.filter(same, 0)), 3.0, rtol=1e-14)


def test_single_precision(reference):
    grid = ml.Grid(64, 1.0, periodic=True)
    f = grid.field("f", dtype=np.float32, data=wave(grid.coordinates[0]))
    found = compact.d(f, 0)
    assert found.dtype == np.float32 and np.abs(grid.shaped(found) - wave(grid.coordinates[0], 1)).max() < 2e-4


def test_another_solver_gives_the_same_in_two_passes():
    for _ in using("cpu"):
        grid = ml.Grid((12, 21), (1.0, 1.0), periodic=(True, False))
        f = grid.field("f", 2, data=np.random.default_rng(3).random((12, 21, 2)))
        gap = grid.shaped(compact.d(f, 1, method="thomas")) - grid.shaped(compact.d(f, 1))
        assert np.abs(gap).max() < 1e-11


def test_wrong_input_is_one_clear_line():
    short, line = ml.Grid(4, 1.0), ml.Grid(20, 1.0)
    bent = ml.Grid(20, 1.0, coordinates=(np.linspace(0.0, 1.0, 20) ** 1.1,))
    open_ended = compact.Scheme("open", 1, compact.LELE6.interior)
    mesh_field = ml.Set(5, "cells").field("p")

    @ml.kernel
    def store(df: ml.Read, out: ml.Write):
        out[...] = df

    for message, call in {
        "has 4 points along x; scheme LELE6 needs at least 5": lambda: compact.d(short.field("f"), 0),
        "is a second derivative: use compact.d2": lambda: compact.d(line.field("f"), 0, scheme=compact.SECOND6),
        "LELE6 is a first derivative: use compact.d": lambda: compact.d2(line.field("f"), 0, scheme=compact.LELE6),
        "has no closures": lambda: compact.d(line.field("f"), 0, scheme=open_ended),
        "need fields on one Grid, got p": lambda: compact.d(mesh_field, 0),
        "has no axis 1": lambda: compact.d(line.field("f"), 1),
        "stretched along x": lambda: compact.d(bent.field("f"), 0, bent.field("g"), after=store),
    }.items():
        with pytest.raises(ml.errors.UserError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert issubclass(SchemeError, ml.errors.UserError)
