"""Fast algebra keeps finite results finite and right to rounding; strict kernels have the bits of NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshloom as ml

BACK_ENDS = ("numpy", "cpu", "emulated")
rng = np.random.default_rng(7)


def through(kernel: ml.Kernel, dtype: str, *values: np.ndarray | float) -> np.ndarray:
    """What a kernel of so many Read parameters and one Write gives for arrays of one length."""
    arrays = np.broadcast_arrays(*np.atleast_1d(*values, np.zeros(1)))[:-1]
    s = ml.Set(len(arrays[0]), "s")
    inputs = [s.field(f"a{k}", data=one, dtype=dtype) for k, one in enumerate(arrays)]
    result = s.field("r", dtype=dtype)
    kernel(s, *inputs, result)
    return result.numpy()


# --- fast ---------------------------------------------------------------------------------------------------------
@ml.kernel
def up_and_down(a: ml.Read, r: ml.Write):
    r[...] = a * 1e20 * 1e20 * 1e-20


@ml.kernel
def down_and_up(a: ml.Read, r: ml.Write):
    r[...] = a * 1e-30 * 1e-30 * 1e30 * 1e30


@ml.kernel
def outside_a_sum(a: ml.Read, b: ml.Read, r: ml.Write):
    r[...] = 1e30 * (1e30 * a + 1e30 * b) + 1e30 * (1e30 * a - 1e30 * b)


@ml.kernel
def by_a_tiny_power(a: ml.Read, r: ml.Write):
    r[...] = a / 2.0**-130


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize(
    ("kernel", "values", "expected"),
    [
        (up_and_down, (1e-15,), 1e5),
        (down_and_up, (1e35,), 1e35),
        (down_and_up, (1e33,), 1e33),
        (outside_a_sum, (1e-37, 1e-37), 2e23),
        (by_a_tiny_power, (1e-35,), 1e-35 * 2.0**130),
    ],
)
def test_constants_are_never_multiplied_out_of_the_range(
    back_end: str, kernel: ml.Kernel, values: tuple[float, ...], expected: float
) -> None:
    ml.use(back_end)
    assert through(kernel, "float32", *values)[0] == pytest.approx(expected, rel=1e-5)


def roots() -> list[tuple[Callable[..., None], float]]:
    def root(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = np.sqrt(a * a - b * b)

    def scaled(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = np.sqrt(0.7 * (a * b - b * a + a * b * b - b * b * a))

    def held(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = np.sqrt(np.maximum(a * a - b * b, -1.0))

    def logarithm(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = np.log1p(a * b - b * b)

    def fractional(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = (a * a - a * b) ** 0.3

    return [(one, 0.0) for one in (root, scaled, held, logarithm, fractional)]


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("function", "expected"), roots())
def test_differences_of_products_under_a_root_are_not_contracted(
    back_end: str, dtype: str, function: Callable[..., None], expected: float
) -> None:
    ml.use(back_end)
    same = rng.uniform(0.5, 2.0, 1000)
    found = through(ml.kernel(function), dtype, same, same)
    assert (found == expected).all(), np.count_nonzero(found != expected)
