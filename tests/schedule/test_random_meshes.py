"""Every strategy on meshes nobody has seen before: hypothesis draws sizes, maps, block sizes and values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from tests.schedule.forms import every_form


@ml.kernel
def trade(q: ml.Read, x: ml.Read, w: ml.Read, res: ml.Inc, high: ml.Max, total: ml.Sum):
    d = x[1] - x[0]
    f = w * (q[0] + q[1]) * d
    res[0] += f
    res[1] -= f
    high[0] = q[1]
    high[1] = q[0]
    total += w * (d @ d)


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
@every_form
@settings(max_examples=8, deadline=None)  # tests/fuzz draws more, on every back end
@given(
    elements=st.integers(0, 300),
    targets=st.integers(1, 60),
    points=st.integers(1, 40),
    block=st.integers(1, 80),
    clustered=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_strategy_equals_numpy_on_a_random_mesh(
    backend: str, form: ml.Schedule, elements: int, targets: int, points: int, block: int, clustered: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    cells, nodes, edges = ml.Set(targets, "cells"), ml.Set(points, "nodes"), ml.Set(elements, "edges")
    ends = rng.integers(0, targets, (elements, 2))
    if clustered:  # neighbours have neighbouring numbers, as on a real mesh
        ends = np.sort((np.arange(elements)[:, None] * targets // max(elements, 1) + ends % 3) % targets, axis=0)
    sides = ml.Map(edges, cells, ends, "sides")
    corners = ml.Map(edges, nodes, rng.integers(0, points, (elements, 2)), "corners")
    q, x = cells.field("q", data=rng.random(targets)), nodes.field("x", 2, data=rng.random((points, 2)))
    w, res, high = edges.field("w", data=rng.random(elements)), cells.field("res", 2), cells.field("high")
    total, results, before = ml.Global(0.0), [], ml.backend()
    for name in ("numpy", backend):
        ml.use(name)
        res.fill(0.5)
        high.fill(-1.0)
        total.value = 1.0
        arguments = (q[sides], x[corners], w, res[sides], high[sides], total)
        trade.loop(edges, *arguments, schedule=form.having(block=block))()
        results.append((res.numpy(), high.numpy(), total.value))
    ml.use(before)
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
