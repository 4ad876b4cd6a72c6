"""Derivatives inside kernels against differences of what they are the derivatives of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import KernelError
from meshloom.kernel import derivative, expr
from meshloom.kernel.table import LOOKUPS
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))

#: A function of two numbers for each operation that has a derivative.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + 2.0 * b, "sub": lambda a, b: a - b * 3.0, "mul": lambda a, b: a * b * a,
    "div": lambda a, b: a / b, "mod": lambda a, b: (7.0 * a) % b, "neg": lambda a, b: -(a * b),
    "abs": lambda a, b: np.abs(a - b), "copysign": lambda a, b: np.copysign(a * a, b - a),
    "minimum": lambda a, b: np.minimum(a * a, b), "maximum": lambda a, b: np.maximum(a * a, b),
    "fmin": lambda a, b: np.fmin(a, b * b), "fmax": lambda a, b: np.fmax(a, b * b),
    "sqrt": lambda a, b: np.sqrt(a * a + b), "cbrt": lambda a, b: np.cbrt(a + b),
    "pow": lambda a, b: a**b + b**3, "hypot": lambda a, b: np.hypot(a, 2.0 * b),
    "arctan2": lambda a, b: np.arctan2(a, b), "exp": lambda a, b: np.exp(a * b), "exp2": lambda a, b: np.exp2(a * b),
    "expm1": lambda a, b: np.expm1(a * b), "log": lambda a, b: np.log(a * b), "log2": lambda a, b: np.log2(a + b),
    "log10": lambda a, b: np.log10(a + b), "log1p": lambda a, b: np.log1p(a * b), "sin": lambda a, b: np.sin(a * b),
    "cos": lambda a, b: np.cos(a * b), "tan": lambda a, b: np.tan(a * b), "arcsin": lambda a, b: np.arcsin(0.5 * a * b),
    "arccos": lambda a, b: np.arccos(0.5 * a * b), "arctan": lambda a, b: np.arctan(a * b),
    "sinh": lambda a, b: np.sinh(a * b), "cosh": lambda a, b: np.cosh(a * b), "tanh": lambda a, b: np.tanh(a * b),
    "where": lambda a, b: np.where(a > b, a * b, b - a), "floor": lambda a, b: np.floor(3.0 * a) * b,
    "sign": lambda a, b: np.sign(a - b) * b, "ceil": lambda a, b: np.ceil(a) + b, "trunc": lambda a, b: np.trunc(b) * a,
    "rint": lambda a, b: np.rint(a) * b, "floordiv": lambda a, b: (a // b) * a,
}  # fmt: skip
POINTS = np.array([[0.83, 1.27], [1.31, 0.62], [0.45, 0.44]])


def differences(function: Callable[[Any, Any], Any], at: np.ndarray) -> np.ndarray:
    """By central differences."""
    step = 1e-6
    return np.array([(function(*(at + step * e)) - function(*(at - step * e))) / (2.0 * step) for e in np.eye(2)])


def test_every_operation_of_numbers_has_a_rule() -> None:
    of_truths_or_integers = {"isnan", "isinf", "isfinite", "signbit", "lt", "le", "gt", "ge", "eq", "ne", "and", "or",
                             "xor", "invert", "lshift", "rshift", "not", *LOOKUPS}  # fmt: skip
    assert set(FUNCTIONS) == set(expr.OPS) - of_truths_or_integers
    ruled = set(derivative._RULES) | set(derivative._CHOICES) | derivative._STEPS
    assert ruled - set(LOOKUPS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_rule_against_differences(name: str) -> None:
    for at in POINTS:
        found = ml.jacobian(lambda x: FUNCTIONS[name](x[0], x[1]), at)
        np.testing.assert_allclose(found, differences(FUNCTIONS[name], at), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_a_kernel(backend: str) -> None:
    """The shape is that of the image, then that of the point; what else the function reads stays fixed."""
    ml.use(backend)
    s = ml.Set(3, "s")
    dice = np.random.default_rng(0)
    x, weight = s.field("x", (2, 3), data=dice.random((3, 2, 3))), s.field("weight", data=[1.0, 2.0, 3.0])
    found = s.field("found", (3, 2, 3))

    @ml.kernel
    def differentiate(x: ml.Read, weight: ml.Read, found: ml.Write):
        found[...] = ml.jacobian(lambda y: weight * y[0] * np.sum(y[1] * y[1]), x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        differentiate(s, x, weight, found)
        differentiate(s, x, weight, found)
    exact = np.zeros((3, 3, 2, 3))
    for n, (values, w) in enumerate(zip(x.numpy(), weight.numpy(), strict=True)):
        exact[n, :, 0, :] = w * np.eye(3) * (values[1] @ values[1])
        exact[n, :, 1, :] = w * np.outer(values[0], 2.0 * values[1])
    np.testing.assert_allclose(found.numpy(), exact, rtol=1e-13)
    found.fill(0.0)
    differentiate.python(s, x, weight, found)
    np.testing.assert_allclose(found.numpy(), exact, rtol=1e-13)


def test_what_depends_on_the_same_value_otherwise_stays_fixed() -> None:
    """By the argument of the function alone, even where its values are those of something else."""
    ml.use("numpy")
    s = ml.Set(2, "s")
    x, found, twice = s.field("x", data=[2.0, 5.0]), s.field("found", 2), s.field("twice")

    @ml.kernel
    def differentiate(x: ml.Read, found: ml.Write, twice: ml.Write):
        found[...] = ml.jacobian(lambda y: x * y[0] + 3.0 * y[1], np.stack([x, x]))
        twice[...] = ml.jacobian(lambda y: ml.jacobian(lambda z: z**3 * y, y), x)

    differentiate(s, x, found, twice)
    assert found.numpy().tolist() == [[2.0, 3.0], [5.0, 3.0]]
    assert np.allclose(twice.numpy(), 9.0 * x.numpy() ** 2)  # of 3 y^2 y


def test_single_precision_stays_single_and_small_matrices_have_derivatives() -> None:
    ml.use("cpu")
    s = ml.Set(1, "s")
    a, found = s.field("a", (2, 2), dtype=np.float32, data=[[[2.0, 1.0], [1.0, 3.0]]]), s.field("found", (2, 2, 2, 2))
    kinds = []

    @ml.kernel
    def invert(a: ml.Read, found: ml.Write):
        slope = ml.jacobian(np.linalg.inv, a)
        kinds.append(slope.dtype)
        found[...] = slope

    invert(s, a, found)
    inverse = np.linalg.inv(a.numpy()[0].astype(float))
    np.testing.assert_allclose(found.numpy()[0], -np.einsum("ik,lj->ijkl", inverse, inverse), rtol=2e-6)
    assert kinds[0] == np.float32


def test_a_root_of_nothing_has_no_direction() -> None:
    assert ml.jacobian(lambda x: np.sqrt(x @ x), np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    assert ml.jacobian(lambda x: np.hypot(x[0], x[1]), np.zeros(2)).tolist() == [0.0, 0.0]
    assert np.isnan(ml.jacobian(np.sqrt, -1.0)), "and one of a negative number is none"
    assert ml.jacobian(np.abs, 0.0) == 0.0 and ml.jacobian(lambda x: 3.0, 1.0) == 0.0
    assert ml.jacobian(np.cbrt, 0.0) == ml.jacobian(lambda x: x**0.5, 0.0) == 0.0


@pytest.mark.parametrize(("power", "slope"), [(0, 0.0), (0.0, 0.0), (1, 1.0), (1.5, 0.0), (2, 0.0), (3.0, 0.0)])
def test_powers_of_zero(power: float, slope: float) -> None:
    """By the base, and by an exponent that is another variable: no 0 times infinity."""
    assert ml.jacobian(lambda x: x**power, 0.0) == slope
    assert ml.jacobian(lambda x: x[0] ** x[1], np.array([0.0, power])).tolist() == [slope, 0.0]
    assert ml.jacobian(lambda x: 0.0**x, power + 1.0) == 0.0


@given(st.lists(st.sampled_from([*FUNCTIONS]), min_size=2, max_size=6), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_chains_of_operations_against_differences(names: list[str], seed: int) -> None:
    """Each takes what the one before has made, kept between 0.3 and 1.2, where all of them are defined."""

    def chain(a: Any, b: Any) -> Any:
        for name in names:
            a, b = 0.75 + 0.45 * np.sin(FUNCTIONS[name](a, b)), a
        return a

    at = np.random.default_rng(seed).uniform(0.3, 1.2, 2)
    found, wanted = ml.jacobian(lambda x: chain(x[0], x[1]), at), differences(chain, at)
    near = np.abs(differences(chain, at + 3e-6) - wanted).max() < 1e-3  # no step or kink within the differences
    if near and np.abs(wanted).max() < 1e3:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_wrong_use_is_one_line() -> None:
    for wrong, words in (
        ((3, 1.0), "give a function"),
        ((lambda x: x > 1.0, 1.0), "what the function returns has no derivatives, it is bool"),
    ):
        with one_line_from(KernelError, words):
            ml.jacobian(*wrong)  # type: ignore[arg-type]
