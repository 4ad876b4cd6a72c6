"""What is spelled so that compilers vectorise it must still mean what NumPy means."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import meshloom as ml


@pytest.fixture(params=["numpy", "cpu", "emulated"], autouse=True)
def back_end(request: pytest.FixtureRequest) -> Iterator[str]:
    before = ml.backend()
    ml.use(request.param)
    yield request.param
    ml.use(before)


@ml.kernel
def root(x: ml.Read, y: ml.Write):
    y[...] = np.cbrt(x)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_cube_roots(dtype: type, back_end: str):
    rng, most = np.random.default_rng(0), np.finfo(dtype).maxexp * 0.29
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -1e-310, 1e-45, 1.0, 27.0, -8.0]
    x = np.append(rng.standard_normal(20_000) * 10.0 ** rng.uniform(-most, most, 20_000), special).astype(dtype)
    cells = ml.Set(len(x), "cells")
    field, found = cells.field("x", data=x, dtype=dtype), cells.field("y", dtype=dtype)
    root(cells, field, found)
    y, wanted = found.numpy(), np.cbrt(x.astype(np.longdouble))
    proper = np.isfinite(wanted) & (wanted != 0)
    error = np.abs(y[proper] - wanted[proper]) / np.spacing(np.abs(wanted[proper]).astype(dtype))
    assert error.max() < (1.0 if back_end == "cpu" else 3.0), "units in the last place; other libraries are less exact"
    np.testing.assert_array_equal(y[~proper], wanted[~proper].astype(dtype))
    np.testing.assert_array_equal(np.signbit(y[~proper]), np.signbit(wanted[~proper]))


@ml.kernel
def extremes(x: ml.Read, least: ml.Min, most: ml.Max, total: ml.Sum, floor: ml.Min):
    least[...] = x
    most[...] = x
    total += x
    floor[...] = np.minimum(np.minimum(x, 0.5), 2.0 * x)


@pytest.mark.parametrize("n", [1, 7, 5000])
@pytest.mark.parametrize("where", [None, 0, -1, 3])
def test_minimum_maximum_and_sum_in_one_loop(n: int, where: int | None):
    """NaN wins wherever it stands: no lane may lose it."""
    x = np.random.default_rng(n).standard_normal(n)
    if where is not None:
        x[where % n] = np.nan
    cells = ml.Set(n, "cells")
    least, most, total, floor = (ml.Global(v) for v in (np.inf, -np.inf, 0.0, np.inf))
    extremes(cells, cells.field("x", data=x), least, most, total, floor)
    assert least.value == x.min() or (np.isnan(x).any() and np.isnan(least.value))
    assert most.value == x.max() or (np.isnan(x).any() and np.isnan(most.value))
    np.testing.assert_allclose(total.value, x.sum(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(floor.value, np.minimum(np.minimum(x, 0.5), 2.0 * x).min(), rtol=1e-15)


@ml.kernel
def count(x: ml.Read, hits: ml.Sum):
    hits += 5


def test_a_sum_of_integers_wraps_as_in_plain_python() -> None:
    """In 32 bits, beyond the largest: the reference used to raise NumPy's own error."""
    points = ml.Set(33, "points")
    hits = ml.Global(2**31 - 1, "hits", dtype=np.int32)
    count(points, points.field("x"), hits)
    assert hits.value == 2**31 - 1 + 5 * 33 - 2**32
