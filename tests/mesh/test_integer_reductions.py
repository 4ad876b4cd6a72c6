"""Sums, products, norms and means of integers against Python's, which have no bounds: right, or refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import meshloom as ml

TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint32", "bool", "float32", "float64")
CASES = [(dtype, dim) for dtype in TYPES for dim in (1, 3)]


def _values(dtype: str, dim: int) -> np.ndarray:
    """Numbers of a type, the largest and the smallest among them."""
    numbers, kind = np.random.default_rng(5), np.dtype(dtype)
    if kind.kind in "fb":
        return (numbers.normal(size=(7, dim)) > 0.5 if kind.kind == "b" else numbers.normal(size=(7, dim))).astype(kind)
    ends = np.iinfo(kind)
    low, high = max(int(ends.min), -(2**40)), min(int(ends.max), 2**40)
    found = numbers.integers(low, high, size=(7, dim), endpoint=True)
    found[0], found[-1] = high, low
    return found.astype(kind)


def _exact(what: str, values: list[int]) -> Any:
    squares = sum(one * one for one in values)
    return {"sum": sum(values), "min": min(values), "max": max(values), "mean": sum(values) / len(values),
            "dot": squares, "norm": math.sqrt(squares)}[what]  # fmt: skip


@pytest.mark.parametrize("backend", ["numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
                                     pytest.param("cuda", marks=pytest.mark.gpu)])  # fmt: skip
def test_reductions_are_those_of_exact_integers_or_refused(backend: str) -> None:
    ml.use(backend)
    for dtype, dim in CASES if backend == "numpy" else CASES[4:8]:
        values = _values(dtype, dim)
        u = ml.Set(len(values), "s").field("u", dim, data=values)
        exact = [one.item() if values.dtype.kind == "f" else int(one) for one in values.ravel()]
        for what in ("sum", "min", "max", "mean", "dot", "norm"):
            wanted = _exact(what, exact)
            try:
                found = getattr(u, what)(*((u,) if what == "dot" else ())).value
            except ml.errors.MeshError as error:
                assert "64 bits" in str(error) and abs(wanted) >= 2**62, (dtype, dim, what)
                continue
            whole = values.dtype.kind != "f" and what not in ("mean", "norm")
            scale = sum(map(abs, exact)) if what in ("sum", "mean") else 0.0
            near = math.isclose(found, wanted, rel_tol=1e-6 if dtype == "float32" else 1e-14,
                                abs_tol=1e-14 * scale)  # fmt: skip
            assert (isinstance(found, int) and found == wanted) if whole else near, (dtype, dim, what, found, wanted)


@pytest.mark.parametrize("largest", [46341, 65536, 2**31 - 1])
def test_products_of_int32_do_not_wrap(largest: int) -> None:
    ml.use("numpy")
    u = ml.Set(2, "s").field("u", data=np.array([largest, -largest], np.int32))
    assert u.dot(u).value == 2 * largest**2 and math.isclose(u.norm().value, math.sqrt(2) * largest, rel_tol=1e-15)
    both: list[Any] = []

    def reduce() -> None:
        nonlocal both
        both = [u.norm(), u.dot(u), u.sum(), u.mean()]

    ml.program(reduce).run()
    assert math.isclose(both[0].value, math.sqrt(2) * largest, rel_tol=1e-15)
    assert [one.value for one in both[1:]] == [2 * largest**2, 0, 0.0]


def test_what_64_bits_do_not_hold_is_refused_in_one_line() -> None:
    ml.use("numpy")
    u = ml.Set(3, "s").field("u", data=np.full(3, 2**62))
    for ask in (u.sum, lambda: u.dot(u)):
        with pytest.raises(ml.errors.MeshError, match=r"^the (sum|dot) of u may not fit into 64 bits"):
            ask()
    for values in ([2**63 - 1025, 500, 500, 500], [2**63 - 1] + 7 * [1]):  # beyond, by less than a double tells
        with pytest.raises(ml.errors.MeshError, match=r"^the sum of u may not fit into 64 bits"):
            ml.Set(len(values), "s").field("u", data=np.array(values, np.int64)).sum()
    assert u.mean().value == 2.0**62 and math.isclose(u.norm().value, math.sqrt(3) * 2.0**62)


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    "values", [[[1e25, 2e25]], [[1e-30, 2e-30]], [[1e8, 1.0, -1e8]] * 2, [[3e38, 3e38]], [[4097.0]]],
    ids=["large", "small", "cancelling", "largest", "squared"],
)  # fmt: skip
def test_reductions_of_single_precision_are_in_double(backend: str, values: list[list[float]]) -> None:
    """Also of the components of an element, and of their squares, which single precision does not hold."""
    ml.use(backend)
    given = np.array(values, np.float32)
    u = ml.Set(len(given), "s").field("u", given.shape[1], data=given, dtype=np.float32)
    exact = [float(one) for one in given.ravel()]
    ways = {"sum": u.sum, "mean": u.mean, "dot": lambda: u.dot(u), "norm": u.norm}
    made: dict[str, ml.Global] = {}

    @ml.program
    def all_of_them() -> None:
        made.update({what: way() for what, way in ways.items()})

    all_of_them()
    for what, way in ways.items():
        wanted = pytest.approx(_exact(what, exact), rel=1e-14)  # type: ignore[arg-type]
        assert float(way().value) == wanted, what
        assert float(made[what].value) == wanted, what
