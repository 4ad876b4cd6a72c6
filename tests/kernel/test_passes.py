"""Passes keep values and reduce operations; counts are asserted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.kernel import expr, passes
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
