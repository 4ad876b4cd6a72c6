"""What an element gives has the same bits however it is executed: by any strategy, in a vector or its remainder, fused
or by itself, on a CPU and on a GPU. Kernels are fast, not strict, of operations that every processor rounds alike."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.kernel.evaluate import evaluate
from meshloom.kernel.expr import FUSED, Node, topological
from meshloom.target import CPU

BACK_ENDS = ["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]
EVERY = [one for one in ml.strategies() if one not in ("direct", "box")]
QUICK = ("owner", "tile", "staged", "color")
N = 203  # of edges: vectors, and a remainder
Formula = Callable[[list[Any]], list[Any]]
TWO = (np.add, np.subtract, np.multiply, np.multiply, np.minimum, np.maximum, np.add, np.true_divide)


def formulas(seed: int, outputs: int, operations: int = 24) -> Formula:
    """Random formulas of some values: sums of products that others share, quotients, roots, minima and maxima. The last
    needs a product by itself which the first one adds: whoever has the first alone could contract it otherwise."""
    rng = np.random.default_rng(seed)
    drawn = [(int(rng.integers(len(TWO) + 1)), *rng.random(2).tolist()) for _ in range(operations)]

    def made(values: list[Any]) -> list[Any]:
        found = list(values)
        for which, one, other in drawn:
            a, b = (found[int(place * len(found))] for place in (one**0.5, other))  # rather those that were made last
            if which == len(TWO):
                found.append(np.sqrt(1.5 + a * a))
            elif TWO[which] is np.true_divide:
                found.append(a / (1.5 + b * b))
            else:
                found.append(0.7 * a - 0.3 * b if TWO[which] is np.subtract else TWO[which](a, b))
        sums = [found[-2 * k - 1] * found[k] + found[-2 * k - 2] * found[-1] for k in range(outputs)]
        shared = values[1] * values[2]
        sums[0], sums[-1] = values[0] * values[3] + shared, shared / (1.5 + values[3])
        return [one / (1.0 + one * one) for one in sums]

    return made


class Edges:
    """Edges between nodes of which no two meet: what a node gets is what its one edge gives it."""

    def __init__(self, seed: int, order: np.ndarray | None = None):
        rng = np.random.default_rng(seed)
        nodes = rng.permutation(2 * N).reshape(N, 2)
        data = rng.uniform(0.5, 2.0, (2 * N, 3))
        order = np.arange(N) if order is None else order
        self.edges, self.nodes = ml.Set(N, "edges"), ml.Set(2 * N, "nodes")
        self.at = ml.Map(self.edges, self.nodes, nodes[order], "at")
        self.u, self.r = self.nodes.field("u", 3, data=data), self.nodes.field("r", 4)
        self.made = formulas(seed, 8)

        @ml.kernel
        def give(u: ml.Read, r: ml.Inc) -> None:
            found = self.made([u[k, c] for k in range(2) for c in range(3)])
            for k in range(2):
                for c in range(4):
                    r[k, c] += found[4 * k + c]

        self.give = give

    def loop(self, strategy: str) -> ml.Operation:
        return self.give.loop(self.edges, self.u[self.at], self.r[self.at], schedule=strategy)

    def given(self, strategy: str) -> np.ndarray:
        self.r.fill(0.0)
        loop = self.loop(strategy)
        assert any(node.op in FUSED for node in nodes_of(loop)), "then nothing is contracted here"
        loop()
        return self.r.numpy().copy()


def nodes_of(loop: ml.Operation) -> tuple[Node, ...]:
    return topological(o.value for o in loop.spec.outputs)


def check_strategies(seed: int, strategies: tuple[str, ...] | list[str], back_ends: tuple[str, ...]) -> None:
    expected = None
    for back_end in back_ends:
        ml.use(back_end)
        for strategy in strategies:
            edges = Edges(seed)
            if not edges.loop(strategy).applies:
                continue
            found = edges.given(strategy)
            expected = found if expected is None else expected
            np.testing.assert_array_equal(found, expected, f"kernel {seed} by {strategy} on {back_end}")


def test_every_strategy_gives_the_same_bits() -> None:
    check_strategies(0, QUICK, ("cpu", "emulated"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_every_strategy_gives_the_same_bits_of_many_kernels(seed: int) -> None:
    check_strategies(seed, EVERY, ("cpu", "emulated"))


@pytest.mark.gpu
def test_a_gpu_gives_the_bits_of_a_cpu() -> None:
    for seed in range(6):
        check_strategies(seed, QUICK, ("cpu", "cuda"))


@pytest.mark.optimised
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 6))])
def test_an_element_may_be_in_a_vector_or_in_its_remainder(seed: int) -> None:
    ml.use("cpu", threads=1)
    usual = Edges(seed).given("staged")
    for shift in (1, 2, 3, 5):
        turned = Edges(seed, (np.arange(N) + shift) % N)
        np.testing.assert_array_equal(turned.given("staged"), usual)


def exactly(node_op: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """An operation of ``FUSED``, rounded once: fractions are exact."""
    sign = (-1 if node_op == "fnma" else 1, -1 if node_op == "fms" else 1)
    each = np.broadcast_arrays(a, b, c)
    return np.array([float(sign[0] * Fraction(x) * Fraction(y) + sign[1] * Fraction(z))
                     for x, y, z in zip(*(one.tolist() for one in each), strict=True)])  # fmt: skip


@pytest.mark.skipif(not CPU.has_fma, reason="this processor has no fma")
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_the_bits_are_those_of_the_graph(back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluated one operation after the other, each rounded once."""
    ml.use(back_end)
    edges = Edges(0)
    found, u = edges.given("owner"), edges.u.numpy()[edges.at.indices]
    for op in FUSED:
        monkeypatch.setitem(FUSED, op, lambda a, b, c, op=op: exactly(op, a, b, c))
    outputs = edges.loop("owner").spec.outputs
    values = evaluate([o.value for o in outputs], lambda node: u[:, node.value[1], node.value[2]])
    expected = np.zeros_like(found)
    for o, value in zip(outputs, values, strict=True):
        expected[edges.at.indices[:, o.slot], o.comp] = value
    np.testing.assert_array_equal(found, expected)


# --- fused or not ---------------------------------------------------------------------------------------------------
def element_kernel(seed: int) -> ml.Kernel:
    made = formulas(seed, 2, 10)

    @ml.kernel
    def changed(a: ml.Read, b: ml.Read, w: ml.Write) -> None:
        first, second = made([a[0], a[1], b[0], b[1]])
        w[0], w[1] = first / b[0] + a[1], second * b[0]  # what fused kernels could share or contract

    return changed


def after_steps(seed: int, fuse: bool) -> tuple[np.ndarray, ml.Program]:
    """Kernels one after the other, each of what the ones before have made; some of that a constant."""
    s, rng = ml.Set(N, "s"), np.random.default_rng(seed)
    fields = [s.field(f"f{k}", 2, data=rng.uniform(0.5, 2.0, (N, 2))) for k in range(2)]
    fields += [s.field(f"f{k}", 2, temporary=k < 5) for k in range(2, 6)]
    kernels = [element_kernel(7 * seed + k) for k in range(3)]

    @ml.program(fuse=fuse)
    def step() -> None:
        fields[2].fill(0.3)
        kernels[0](s, fields[0], fields[1], fields[3])
        kernels[1](s, fields[3], fields[2], fields[4])
        kernels[2](s, fields[4], fields[1], fields[5])

    step.run(1)
    return fields[5].numpy().copy(), step


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 8))])
def test_fused_loops_give_the_bits_of_those_by_themselves(back_end: str, seed: int) -> None:
    ml.use(back_end)
    apart, _ = after_steps(seed, fuse=False)
    fused, program = after_steps(seed, fuse=True)
    assert len(program.fused_steps) == 1
    np.testing.assert_array_equal(fused, apart)


@ml.kernel
def slope(u: ml.Read, w: ml.Write):
    w[...] = u[0, 0] * (0.3 * (u[-1, 0] - u[1, 0]) + u[1, 0] / (u[-1, 0] + u[0, 0]))


@ml.kernel
def spread(w: ml.Read, u: ml.Read, v: ml.Write):
    v[...] = u[0, 0] + 0.1 * (w[-1, 0] * u[1, 0] - w[0, 0] / (u[-1, 0] + u[0, 0])) + w[1, 0]


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_what_is_computed_again_at_other_points_has_the_same_bits(back_end: str) -> None:
    """A stencil of a stencil as one loop, which computes the first at three points, where both divide by the same."""
    ml.use(back_end)
    found = {}
    for fuse in (True, False):
        grid = ml.Grid((40, 30), periodic=True)
        near = grid.offsets((-1, 0), (0, 0), (1, 0))
        data = np.random.default_rng(2).uniform(0.5, 2.0, grid.total)
        u, v, w = grid.field("u", data=data), grid.field("v"), grid.field("w", temporary=True)

        @ml.program(fuse=fuse)
        def step(grid=grid, u=u, v=v, w=w, near=near) -> None:
            slope(grid, u[near], w)
            spread(grid, w[near], u[near], v)

        step.run(1)
        found[fuse] = v.numpy().copy()
        if fuse and back_end != "cpu":
            assert "computed again" in step.explain()
    np.testing.assert_array_equal(found[True], found[False])


# --- what is not contracted -------------------------------------------------------------------------------------------
@pytest.mark.optimised
@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("strategy", ["color", "owner", "staged"])
def test_an_increment_is_rounded_before_it_is_added(back_end: str, strategy: str) -> None:
    ml.use(back_end)
    cells, rng = ml.Set(N, "cells"), np.random.default_rng(1)
    a, b, start = rng.random((3, N))
    at = ml.Map(cells, cells, rng.permutation(N), "at")
    fields, r = [cells.field(name, data=one) for name, one in (("a", a), ("b", b))], cells.field("r", data=start)

    @ml.kernel
    def added(a: ml.Read, b: ml.Read, r: ml.Inc) -> None:
        r += a * b

    added(cells, *fields, r[at], schedule=strategy)
    expected = start.copy()
    expected[at.indices[:, 0]] += a * b
    np.testing.assert_array_equal(r.numpy(), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_solve_along_a_line_is_contracted_in_its_text_unless_told_otherwise(dtype: str, axis: int) -> None:
    """What a nest computes itself, too: with one rounding there, with two where the loop is strict."""
    ml.use("cpu")
    grid = ml.Grid((16, 12), periodic=True)
    stencil = ml.linalg.LineStencil({-1: -0.7, 1: 0.7})
    operator = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.3, 1.0, 0.3, periodic=True), stencil, 1.0)
    a = grid.field("a", dtype=dtype, data=np.random.default_rng(0).random(grid.total))
    r = grid.field("r", dtype=dtype)
    loop = ml.linalg.LineLoop(grid, axis, operator, (a,), r)
    body = loop.source.split("// loop")[1]
    assert body.count("ml_fma(") >= 4 and "ML_NO_FMA" not in loop.source.split("#define INFINITY")[0]
    strict = loop.as_written().source
    assert strict.startswith("#define ML_NO_FMA\n") and strict.endswith(body)


def test_a_processor_without_fma_rounds_products_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(CPU), "has_fma", False)
    ml.use("cpu")
    edges = Edges(0)
    loop = edges.loop("owner")
    assert loop.source.startswith("#define ML_NO_FMA\n")
    assert "no fma on this processor: bits of its own" in loop.explain()
    with ml.using("numpy"):
        expected = Edges(0).given("owner")
    np.testing.assert_array_equal(edges.given("owner"), expected)
