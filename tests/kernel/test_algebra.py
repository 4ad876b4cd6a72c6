"""Random formulas: fast algebra keeps values, strict algebra keeps bits, on NumPy, in C++ and in emulated CUDA."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.kernel import passes
from meshloom.kernel.evaluate import evaluate
from meshloom.kernel.expr import Node, load
from meshloom.kernel.symbols import Symbol
from tests.kernel.formulas import BINARY, VARIABLES, Tree, grown, magnitudes, trees, value

TYPES = [np.float32, np.float64]
ORDINARY = [0.5, 2.0, -3.0, 0.1, 1.4, -0.25, 1.0, -1.0, 1e3, 1e-3]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 5e-324, 1e38, -1e300, 0.1, 3.0]


def graph(tree: Tree, dtype: type) -> Node:
    """The formula as the tracer records it."""
    with np.errstate(all="ignore"):  # numbers that the type does not have
        found = value(tree, [Symbol(load(k, 0, 0, np.dtype(dtype))) for k in range(VARIABLES)])
    assert isinstance(found, Symbol)
    return found.node


def at(roots: tuple[Node, ...] | list[Node], x: np.ndarray) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [np.asarray(v) for v in evaluate(roots, lambda node: x[node.value[0]])]


@pytest.mark.parametrize("dtype", TYPES)
def test_fast_formulas_stay_finite_and_right_to_rounding(dtype: type) -> None:
    """Wherever the formula as written, and with all its terms taken by magnitude, keeps off the ends of the range."""
    limits, judged = np.finfo(dtype), []
    widest = 50 if dtype == np.float32 else 450
    constants = ORDINARY + [s * 2.0 ** (f * widest) for f in (-1.4, -0.6, 0.6, 1.4) for s in (1.1, -1.0)]

    @settings(max_examples=100, deadline=None)
    @given(st.integers(0, 2**32), st.integers(0, widest))
    def check(seed: int, wide: int) -> None:
        rng = np.random.default_rng(seed)
        for depth, kinds in [(3, BINARY), (4, BINARY), (5, BINARY), *((d, ("mul",)) for d in (2, 3, 3, 4, 4, 4))]:
            tree = grown(rng, depth, constants if kinds is BINARY else constants[-8:], ("neg",), tuple(kinds))
            x = (rng.choice([-1, 1], VARIABLES) * 2.0 ** rng.uniform(-wide, wide, VARIABLES)).astype(dtype)
            seen: list[np.floating] = []
            with np.errstate(all="ignore"):
                written, size = magnitudes(tree, x, seen)
            if not all(limits.tiny * 2.0**24 < abs(v) < limits.max / 2.0**24 for v in seen):
                continue
            (found,) = at(passes.optimise([graph(tree, dtype)]), x)
            judged.append(tree)
            assert np.isfinite(found) and abs(found - written) <= 16 * limits.eps * size, (tree, x, found, written)

    check()
    assert len(judged) > 200, "most examples leave the range"


@pytest.mark.parametrize("dtype", TYPES)
@settings(max_examples=150, deadline=None)
@given(tree=trees(st.sampled_from(ORDINARY), binary=("add", "sub", "mul"), unary=("neg",)), seed=st.integers(0, 1000))
def test_what_is_under_a_root_is_computed_as_written(dtype: type, tree: Tree, seed: int) -> None:
    x = np.random.default_rng(seed).choice([0.1, 0.3, 0.7, 1.3], (VARIABLES, 50)).astype(dtype)
    with np.errstate(all="ignore"):
        wanted = np.broadcast_to(np.sqrt(value(tree, x)), 50)
    (found,) = at(passes.optimise([graph(("sqrt", tree), dtype)]), x)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", TYPES)
@settings(max_examples=200, deadline=None)
@given(tree=trees(st.sampled_from(ORDINARY + SPECIAL), unary=("neg", "sqrt", "square")))
def test_strict_passes_change_no_bit(dtype: type, tree: Tree) -> None:
    x = every_special_value(dtype)
    with np.errstate(all="ignore"):
        wanted = np.asarray(value(tree, x))
    (found,) = at(passes.optimise([graph(tree, dtype)], strict=True), x)
    same_bits(found, wanted)


def every_special_value(dtype: type) -> np.ndarray:
    """Each with each other, for three variables: (3, n)."""
    with np.errstate(all="ignore"):
        values = np.array(SPECIAL, dtype)
        rng = np.random.default_rng(3)
        mixed = rng.choice(np.append(values, rng.uniform(0.5, 2.0, 8).astype(dtype)), (VARIABLES, 300))
        return np.concatenate([mixed, rng.uniform(-2.0, 2.0, (VARIABLES, 300)).astype(dtype)], axis=1)


def same_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    """Also the signs of zeros; a NaN is a NaN."""
    np.testing.assert_array_equal(found, wanted)
    signs = [np.signbit(one[~np.isnan(one)]) for one in (found, wanted)]
    np.testing.assert_array_equal(*signs)


@pytest.mark.parametrize("back_end", ["numpy", "cpu", "emulated"])
@pytest.mark.parametrize("dtype", TYPES)
def test_strict_kernels_have_the_bits_of_numpy(dtype: type, back_end: str) -> None:
    """Many random formulas in one kernel, so that they are compiled at once."""
    ml.use(back_end)
    x = every_special_value(dtype)

    rng, count = np.random.default_rng(5), 60
    formulas = [grown(rng, 1 + k % 5, ORDINARY + SPECIAL, ("neg", "sqrt", "square")) for k in range(count)]

    @ml.kernel(strict=True)
    def formula(x: ml.Read, r: ml.Write):
        for k, tree in enumerate(formulas):
            r[k] = value(tree, x)

    s = ml.Set(x.shape[1], "s")
    result = s.field("r", count, dtype=dtype)
    with np.errstate(all="ignore"):
        formula(s, s.field("x", VARIABLES, data=x.T, dtype=dtype), result)
        wanted = [np.broadcast_to(value(tree, x), x.shape[1]) for tree in formulas]
    for k, one in enumerate(wanted):
        same_bits(result.numpy()[:, k], one)
    sane = np.isfinite(wanted) & (np.array(wanted) != 0)
    assert np.count_nonzero(sane) > 0.3 * sane.size
