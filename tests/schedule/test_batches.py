"""Elements of colored blocks that take much arithmetic are evaluated in batches, with the same bits as one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.schedule.choice.cost import Cost
from meshloom.schedule.fused.chunks import StagedTouching
from meshloom.schedule.strategies import strategy
from tests.fitted import changed

pytestmark = pytest.mark.optimised
SIZES = (1, 31, 32, 33, 700)


@ml.kernel
def heavy(x: ml.Read, w: ml.Read, r: ml.Inc, low: ml.Min, count: ml.Inc):
    """Roots and quotients, shared up to a sign by what two ends get; a minimum; whole numbers."""
    f = np.sqrt(x[0] * x[0] + x[1] * x[1] + w) / (1.0 + x[0] * x[1])
    r[0] += f
    r[1] -= f
    low[0] = f[0] * x[1, 1]
    low[1] = x[0, 0]
    count[0] += 1
    count[1] -= 2


@ml.kernel
def with_own(x: ml.Read, r: ml.Inc, own: ml.Write, total: ml.Sum):
    f = np.sqrt(x[0] * x[1] + 1.0)
    r[0] += f
    r[1] -= f
    own[...] = f[0]
    total += f[1]


def set_number(monkeypatch: pytest.MonkeyPatch, **numbers: float) -> None:
    """Of block_color, with the rest as it is."""
    kind = type(strategy("block_color"))
    before: Callable[..., float] = kind.fitted
    monkeypatch.setattr(kind, "fitted", lambda self, target, word: numbers.get(word, before(self, target, word)))


def ran(size: int, dtype: Any, layout: str, order: str = "given", schedule: str = "block_color") -> tuple[Any, Any]:
    rng = np.random.default_rng(size)
    points, links = ml.Set(size // 3 + 2, "points"), ml.Set(size, "links")
    ends = ml.Map(links, points, rng.integers(0, len(points), (size, 2)), "ends")
    x = points.field("x", 2, dtype=dtype, data=rng.random((len(points), 2)), layout=layout)
    r, low = points.field("r", 2, dtype=dtype, layout=layout), points.field("low", dtype=dtype)
    count, w = points.field("count", dtype=np.int32), links.field("w", dtype=dtype, data=rng.random(size))
    wish = ml.Schedule(schedule, block=64, order=order)
    loop = heavy.loop(links, x[ends], w, r[ends], low[ends], count[ends], schedule=wish)
    loop()
    loop()
    return loop, [one.numpy().copy() for one in (r, low, count)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "layout"), [(np.float64, "aos"), (np.float32, "soa"), (np.float64, "aosoa4")])
def test_batches_give_the_same_bits(
    size: int, dtype: Any, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ml.use("cpu", threads=2)
    set_number(monkeypatch, batch_flops=1e9)
    loop, expected = ran(size, dtype, layout)
    assert "waiting" not in loop.source
    for batch in (8.0, 32.0):
        set_number(monkeypatch, batch_flops=1.0, batch=batch)
        loop, found = ran(size, dtype, layout)
        assert f"batch_first += {batch:.0f}" in loop.source and "#pragma omp simd" in loop.source
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_batches_visit_in_the_order_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("cpu", threads=2)
    set_number(monkeypatch, batch_flops=1.0)
    loop, found = ran(700, np.float64, "aos", "random")
    assert "visit[i]" in loop.source and "waiting" in loop.source
    ml.use("numpy")
    _, expected = ran(700, np.float64, "aos", schedule="auto")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_what_elements_keep_for_themselves_goes_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    set_number(monkeypatch, batch_flops=1.0)
    ml.use("cpu", threads=2)
    points, links = ml.Set(9, "points"), ml.Set(40, "links")
    ends = ml.Map(links, points, np.random.default_rng(1).integers(0, 9, (40, 2)), "ends")
    x, r = points.field("x", 2, data=np.full((9, 2), 0.5)), points.field("r", 2)
    total = ml.Global(0.0, "total")
    loop = with_own.loop(links, x[ends], r[ends], links.field("own"), total, schedule="block_color")
    loop()
    assert "waiting" not in loop.source and total.value == pytest.approx(40 * np.sqrt(1.25))


def test_batches_pay_from_a_number_of_operations_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("cpu", threads=2)
    loop, _ = ran(33, np.float64, "aos")
    flops = loop.counts.flops_by_kind
    least = sum(flops.values()) - flops.get("sign", 0)
    for number, expected in ((1.0, True), (least + 10.0, False)):
        set_number(monkeypatch, batch_flops=number)
        assert ("waiting" in ran(33, np.float64, "aos")[0].source) is expected


@pytest.mark.parametrize("batch_flops", [1.0, 1e9])
def test_fused_they_are_evaluated_in_vectors_where_they_are_by_themselves(
    monkeypatch: pytest.MonkeyPatch, batch_flops: float
) -> None:
    """Whichever strategy a loop would take alone, chunks of the loop that it is fused into do as that does."""
    changed(monkeypatch, fusion={"worth": np.inf}, threads={"small_elements": 1})
    set_number(monkeypatch, batch_flops=batch_flops)
    monkeypatch.setattr(type(strategy("block_color")), "cost", lambda *given, **named: Cost(1.0, 0.0))  # always best
    ml.use("cpu", threads=2)
    mesh = ml.generate.box((60, 50), cells="quad")
    u, rate = mesh.cells.field("u", data=np.arange(3000.0)), mesh.cells.field("rate")

    @ml.kernel
    def flux(u: ml.Read, rate: ml.Inc):
        rate[0] += u[1] - u[0]
        rate[1] -= u[1] - u[0]

    @ml.kernel
    def move(rate: ml.ReadWrite, u: ml.ReadWrite):
        u += 0.1 * rate
        rate[...] = 0.0 * rate

    @ml.program
    def step() -> None:
        flux(mesh.faces, u[mesh.face_cells], rate[mesh.face_cells])
        move(mesh.cells, rate, u)

    step.run(2)
    (fused,) = step.fused_steps
    assert flux.loop(mesh.faces, u[mesh.face_cells], rate[mesh.face_cells]).schedule.strategy == "block_color"
    staged = [isinstance(one, StagedTouching) for one in fused.policy.gathers.values()]
    assert staged == [batch_flops == 1.0]
