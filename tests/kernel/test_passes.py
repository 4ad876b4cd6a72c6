"""Passes keep values and reduce operations; counts are asserted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.kernel import expr, passes
from meshloom.kernel.contract import contract
from meshloom.kernel.count import flops_by_kind
from meshloom.kernel.evaluate import evaluate

F8 = np.dtype(np.float64)
A, B, C = (expr.load(k, 0, 0, F8) for k in range(3))


def c(value: float) -> expr.Node:
    return expr.const(value, F8)


def op(name: str, *args: expr.Node) -> expr.Node:
    return expr.operate(name, args)


def test_equal_expressions_are_one_object() -> None:
    assert op("add", A, op("mul", B, C)) is op("add", A, op("mul", B, C))
    assert c(0.0) is not c(-0.0)


def test_constants_fold_and_neutral_elements_go() -> None:
    tree = op("add", op("mul", op("add", c(1.5), c(-0.5)), A), op("sub", c(0.0), op("neg", B)))
    (folded,) = passes.fold_constants([tree])
    assert folded is op("add", A, B)


def test_loads_become_values_which_are_left_as_they_are() -> None:
    """What takes a load's place may have loads of its own: they are those of the whole, and stay."""
    values = {A: op("mul", B, c(2.0)), B: A}
    found = passes.substitute([op("add", A, op("sqrt", B)), B, c(3.0)], lambda node: values.get(node, node))
    assert found == (op("add", op("mul", B, c(2.0)), op("sqrt", A)), A, c(3.0))


def test_powers_become_products() -> None:
    (cube,) = passes.powers_to_products([op("pow", A, c(3.0))])
    assert cube is op("mul", op("mul", A, A), A)
    assert flops_by_kind(passes.powers_to_products([op("pow", A, c(8.0))])) == {"mul": 3}
    (root,) = passes.powers_to_products([op("pow", A, c(0.5))])
    assert root is op("sqrt", A)
    (kept,) = passes.powers_to_products([op("pow", A, c(1.7))])
    assert kept.op == "pow"


def test_divisions_by_one_value_share_its_reciprocal() -> None:
    roots = [op("div", A, C), op("div", B, C), op("div", A, B)]
    assert flops_by_kind(roots) == {"div": 3}
    assert flops_by_kind(passes.share_reciprocals(roots)) == {"mul": 2, "div": 2}


def test_keeping_fewer_roots_is_the_slice() -> None:
    shared = op("mul", A, B)
    roots = [op("add", shared, C), op("sqrt", op("add", shared, A))]
    assert flops_by_kind(passes.optimise(roots)) == {"add": 2, "mul": 1, "sqrt": 1}
    assert flops_by_kind(passes.optimise(roots[:1])) == {"add": 1, "mul": 1}


def test_terms_are_collected_when_that_saves_operations() -> None:
    """Two components of a central flux with dissipation: the coefficients of equal roles become one expression."""
    va, vb, mu = (expr.load(k, 0, 0, F8) for k in (3, 4, 5))
    loads_a, loads_b = ([expr.load(k, 0, c, F8) for c in range(4)] for k in (6, 7))
    roots = []
    for a, b in zip(loads_a, loads_b, strict=True):
        central = op("mul", c(0.5), op("add", op("mul", va, a), op("mul", vb, b)))
        roots.append(op("add", central, op("mul", mu, op("sub", a, b))))
    assert sum(flops_by_kind(roots).values()) == 4 * 7
    assert flops_by_kind(passes.optimise(roots)) == {"add": 2 + 4, "mul": 2 + 8}


def test_factors_cancel() -> None:
    (cancelled,) = passes.optimise([op("mul", op("div", A, B), B)])
    assert cancelled is A


# --- contraction --------------------------------------------------------------------------------------------------
def fused(name: str, *args: expr.Node) -> expr.Node:
    return expr.fused(name, args)  # type: ignore[arg-type]


def test_products_are_taken_into_the_sums_that_they_are_terms_of() -> None:
    product = op("mul", A, B)
    assert contract([op("add", product, C), op("add", C, product), op("sub", product, C), op("sub", C, product)]) == (
        fused("fma", A, B, C), fused("fma", A, B, C), fused("fms", A, B, C), fused("fnma", A, B, C))  # fmt: skip


def test_of_two_products_the_second_is_taken_unless_it_is_needed_elsewhere() -> None:
    first, second = op("mul", A, B), op("mul", B, C)
    both = op("sub", first, second)
    assert contract([both]) == (fused("fnma", B, C, first),)
    assert contract([both, op("sqrt", second)])[0] is fused("fms", A, B, second)
    assert contract([both, second])[0] is fused("fms", A, B, second)
    assert contract([both, op("abs", first), op("abs", second)])[0] is fused("fnma", B, C, first)


def test_a_product_is_taken_into_every_sum_and_counted_once() -> None:
    """It is counted as it was before: contraction changes no count."""
    product = op("mul", A, B)
    roots = [op("add", product, C), op("sub", product, A), op("div", product, C), op("add", op("mul", B, C), A)]
    found = contract(roots)
    assert found[:3] == (fused("fma", A, B, C), fused("fms", A, B, A), op("div", product, C))
    for some in (roots, roots[:2], roots[2:]):
        assert flops_by_kind(contract(some)) == flops_by_kind(some)
    assert flops_by_kind(roots[:2]) == {"add": 2, "mul": 1}


def test_what_is_not_contracted() -> None:
    """Integers, what is rounded to another type before it is added, and sums under a root, wherever their products are
    used."""
    i, k = (expr.load(n, 0, 0, np.dtype(np.int64)) for n in (3, 4))
    x, y = (expr.load(n, 0, 0, np.dtype(np.float32)) for n in (5, 6))
    under = op("sub", op("mul", A, A), op("mul", B, B))
    kept = [op("add", op("mul", i, k), i), op("add", op("mul", x, y), A), op("sqrt", under)]
    kept.append(op("add", under.args[0], C))
    assert contract(kept) == tuple(kept)
    assert contract([op("add", op("mul", x, y), x)]) == (fused("fma", x, y, x),)
    assert passes.optimise(kept, strict=True) == tuple(kept)
    fast = [op("add", op("mul", A, B), C)]
    assert passes.optimise(fast, strict=True) == tuple(fast) and passes.optimise(fast) == (fused("fma", A, B, C),)


def test_formulas_that_are_put_together_stay_what_they_are() -> None:
    """What has become constant is computed only where NumPy rounds as back ends do."""
    one, third = c(1.0), c(0.1)
    assert passes.composed([op("add", op("mul", A, one), c(-0.0)), op("mul", third, third)]) == (A, c(0.1 * 0.1))
    kept = [fused("fma", third, third, third), op("add", op("mul", A, B), C), op("add", A, c(0.0)),
            op("add", op("div", A, C), op("div", B, C))]  # fmt: skip
    assert passes.composed(kept) == tuple(kept)


leaves = st.sampled_from([A, B, C]) | st.floats(-3, 3, width=32).map(c)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["add", "sub", "mul", "div", "minimum", "maximum"]), inner, inner).map(
            lambda t: op(*t)
        ),
        st.tuples(st.sampled_from(["neg", "abs"]), inner).map(lambda t: op(*t)),
        st.tuples(inner, st.sampled_from([0.0, 1.0, 2.0, 3.0, -1.0])).map(lambda t: op("pow", t[0], c(t[1]))),
        st.tuples(inner, inner, inner).map(lambda t: op("where", op("lt", t[0], t[1]), t[1], t[2])),
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(trees, min_size=1, max_size=3), st.tuples(*[st.floats(0.5, 2.0)] * 3))
def test_optimised_programs_have_the_same_values(roots: list[expr.Node], values: tuple[float, float, float]) -> None:
    """Where every intermediate value is tame; elsewhere (1/0, overflow) a shared reciprocal may differ."""
    with np.errstate(all="ignore"):
        before = evaluate(roots, lambda node: np.float64(values[node.value[0]]))
        everything = evaluate(list(expr.topological(roots)), lambda node: np.float64(values[node.value[0]]))
        if any(v.dtype.kind == "f" and not (v == 0 or 1e-3 < abs(v) < 1e3) for v in map(np.asarray, everything)):
            return
        if any(n.op == "lt" for n in expr.topological(roots)) and len(set(map(float, map(np.asarray, everything)))) < 3:
            return
        after = evaluate(passes.optimise(roots), lambda node: np.float64(values[node.value[0]]))
    largest = max(abs(float(v)) for v in everything)
    np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-12 * largest)


def test_rebuilding_keeps_types() -> None:
    f4 = np.dtype(np.float32)
    x = expr.load(0, 0, 0, f4)
    (half,) = passes.optimise([op("div", x, expr.const(4.0, f4))])
    assert half.op == "mul" and half.dtype == f4
    with pytest.raises(KeyError):
        expr.operate("no such operation", (x,))
