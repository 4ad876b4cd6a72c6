"""Loops that together need more registers than a GPU has threads for run apart: fewer bytes would take longer."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

import meshloom as ml
from meshloom.config import build, parse_set
from meshloom.kernel.count import live_registers
from meshloom.kernel.expr import Node, const, load, operate, topological
from meshloom.solvers.airfoil import Airfoil
from tests.fitted import changed


@ml.kernel
def weigh(u: ml.Read, s: ml.Write):
    total = np.sum(u)
    s[...] = np.sum(u * (total - u))


@ml.kernel
def spread(w: ml.Read, s: ml.Read, t: ml.Write):
    """It needs half as many registers: with the other one all of its traffic would take longer."""
    t[...] = w * (np.sum(w) - s)


def made(backend: str, values: int) -> tuple[ml.Program, ml.Field]:
    ml.use(backend)
    cells = ml.Set(80_000, "cells")
    rng = np.random.default_rng(5)
    u, w = (cells.field(name, (values,), data=rng.random((cells.total, values))) for name in "uw")
    s, t = cells.field("s"), cells.field("t", (values,))

    @ml.program
    def step() -> None:
        weigh(cells, u, s)
        spread(cells, w, s, t)

    return step, t


@pytest.mark.parametrize(("values", "expected"), [(4, ["weigh+spread"]), (48, [])])
def test_loops_with_many_values_run_apart_on_a_gpu(values: int, expected: list[str]) -> None:
    step, _ = made("emulated", values)
    assert [one.name for one in step.fused_steps] == expected
    assert ("register pressure would be too high" in step.explain()) == (not expected)


@pytest.mark.parametrize("launch", [3e-6, 1e-12])
def test_small_loops_join_large_ones_whatever_their_size(launch: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few boundary faces save a launch only, which is nothing on large meshes, and need no registers more."""
    changed(monkeypatch, rates={"per_launch": launch})
    ml.use("emulated")
    settings = [parse_set(one) for one in ("mesh.i=100", "mesh.j=150")]
    case = Airfoil(build(Airfoil.Config, settings))
    steps = [step.name for step in case.program._tape().fusion()[0].operations]
    assert steps == ["res_calc+bres_calc+update+adt_calc", "res_calc+bres_calc+update+save_soln+adt_calc"]


def test_a_group_that_was_cut_gives_the_same() -> None:
    (cut, found), (plain, wanted) = made("emulated", 48), made("numpy", 48)
    for one in (cut, plain):
        one.run(1)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)


# ----- the count ------------------------------------------------------------------------------------------------------
def test_values_that_are_needed_later_are_counted() -> None:
    one = [load(0, 0, c, np.dtype("f8")) for c in range(4)]
    chain = one[0]
    for other in one[1:]:
        chain = operate("add", [chain, other])
    assert live_registers((chain,)) == 6, "a sum, the next value, and what they give"
    again = operate("mul", [chain, operate("add", one[:2])])
    assert live_registers((again,)) == 2 * 4, "two of the values wait for the end"
    assert live_registers((const(1.0, np.dtype("f8")),)) == 0
    half = [load(0, 0, c, np.dtype("f4")) for c in range(2)]
    assert live_registers((operate("add", half),)) == 3
    assert live_registers(tuple(one)) == 2, "results are stored at once"


@given(st.integers(0, 2**32), st.integers(1, 30))
@limits(max_examples=60, deadline=None)
def test_the_count_is_that_of_every_moment(seed: int, size: int) -> None:
    rng = random.Random(seed)
    nodes: list[Node] = [load(0, 0, c, np.dtype("f8")) for c in range(3)]
    for _ in range(size):
        nodes.append(operate(rng.choice(["add", "mul"]), [rng.choice(nodes), rng.choice(nodes)]))
    roots = rng.sample(nodes, rng.randint(1, 3))
    order = list(topological(roots))
    moments = []
    for k in range(len(order)):
        later = {argument for node in order[k + 1 :] for argument in node.args} | {order[k]}
        used_now = set(order[k].args)
        moments.append(2 * len((later | used_now) & set(order[: k + 1])))
    assert live_registers(tuple(roots)) == max(moments)
