"""``owner`` on a CPU sees elements from the side of the target where that gives the same bits: no branch to a slot."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.schedule.strategies.common.symmetric_gather import seen_alike

pytestmark = pytest.mark.optimised


@ml.kernel
def exchanged(a: ml.Read, b: ml.Inc):
    b[0] += a[1]
    b[1] += a[0]


@ml.kernel
def opposed(w: ml.Read, a: ml.Read, b: ml.Inc):
    """What one end gets the other one loses, to the last bit."""
    f = w * np.sqrt(1.0 + a[0] * a[1]) * (a[1] - a[0])
    b[0] += f
    b[1] -= f


@ml.kernel
def bounds(a: ml.Read, b: ml.Max):
    b[0] = a[1]
    b[1] = a[0]


@ml.kernel
def far_ends(w: ml.Read, a: ml.Read, x: ml.Read, b: ml.Inc):
    """Another map whose slots change places, too."""
    f = (x[1] - x[0]) * (a[0] + a[1])
    b[0] += f
    b[1] -= f


@ml.kernel
def oriented(w: ml.Read, a: ml.Read, b: ml.Inc):
    """One end gets something else."""
    b[0] += w * a[1]
    b[1] += a[0] / w


@ml.kernel
def by_algebra(w: ml.Read, a: ml.Read, b: ml.Inc):
    """Alike in formulas; contracted, squares are rounded by their order."""
    f = w * (a[0] * a[0] + a[1] * a[1]) * (a[0] - a[1])
    b[0] += f
    b[1] -= f


ALIKE = {"exchanged": exchanged, "opposed": opposed, "bounds": bounds, "far_ends": far_ends}
NOT_ALIKE = {"oriented": oriented, "by_algebra": by_algebra}


def loop_of(kernel: ml.Kernel, schedule: str) -> tuple[ml.Operation, ml.Field]:
    rng = np.random.default_rng(3)
    points, far, links = ml.Set(40, "points"), ml.Set(11, "far"), ml.Set(300, "links")
    rows = rng.integers(0, 40, (300, 2))
    rows[7] = 5, 5  # an element whose ends are one
    ends, others = ml.Map(links, points, rows, "ends"), ml.Map(links, far, rng.integers(0, 11, (300, 2)), "others")
    given = {"w": links.field("w", data=rng.uniform(0.5, 2.0, 300)),
             "a": points.field("a", data=rng.uniform(-0.7, 0.9, 40))[ends],
             "x": far.field("x", data=rng.uniform(-1.0, 1.0, 11))[others]}  # fmt: skip
    b = points.field("b", data=rng.uniform(-1.0, 1.0, 40))
    names = {"exchanged": "a", "bounds": "a", "far_ends": "wax"}.get(kernel.name, "wa")
    return kernel.loop(links, *(given[name] for name in names), b[ends], schedule=schedule), b


@pytest.mark.parametrize("name", [*ALIKE, *NOT_ALIKE])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_are_those_of_elements_in_their_order(name: str, threads: int) -> None:
    ml.use("cpu", threads=threads)
    found = {}
    for schedule in ("owner", "staged"):
        loop, b = loop_of((ALIKE | NOT_ALIKE)[name], schedule)
        loop()
        found[schedule] = b.numpy().copy()
        if schedule == "owner":
            assert ("switch" in loop.source) is (name == "oriented")
            alike = [seen_alike(loop.spec, m) for m in loop.spec.racy_maps]
            assert alike == [name in ALIKE]
    np.testing.assert_array_equal(found["owner"], found["staged"])
