"""The public surface, used the way a newcomer would, on every back end: names and meanings that must not change."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import meshloom as ml


@pytest.fixture(params=["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)], autouse=True)
def back_end(request: pytest.FixtureRequest) -> Iterator[str]:
    before = ml.backend()
    ml.use(request.param)
    yield request.param
    ml.use(before)


@ml.kernel
def truss(x: ml.Read, stiffness: ml.Read, load: ml.Inc, shortest: ml.Min, work: ml.Sum):
    """A bar pulls at its two ends; the nodes learn the length of their shortest bar."""
    d = x[1] - x[0]
    length = np.sqrt(d @ d + 1e-12)
    pull = stiffness * d / length
    load[0] += pull
    load[1] -= pull
    shortest[0] = length
    shortest[1] = length
    work += 0.5 * stiffness * length**2


@ml.kernel
def triangle_area(x: ml.Read, area: ml.Write):
    a, b = x[1] - x[0], x[2] - x[0]
    area[...] = 0.5 * np.abs(a[0] * b[1] - a[1] * b[0])


class Truss:
    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.nodes, self.bars = ml.Set(300, "nodes"), ml.Set(1100, "bars")
        pairs = rng.integers(0, 300, (1100, 2))
        self.ends = ml.Map(self.bars, self.nodes, pairs, "ends")
        self.x = self.nodes.field("x", 2, data=rng.random((300, 2)))
        self.stiffness = self.bars.field("stiffness", data=rng.random(1100))
        self.load = self.nodes.field("load", 2, layout="soa")
        self.shortest = self.nodes.field("shortest", data=np.full(300, np.inf))
        self.work = ml.Global(0.0)

    @property
    def arguments(self) -> tuple:
        e = self.ends
        return self.x[e], self.stiffness, self.load[e], self.shortest[e], self.work

    def clear(self) -> None:
        self.load.fill(0.0)
        self.shortest.fill(np.inf)
        self.work.value = 0.0

    def by_hand(self) -> tuple[np.ndarray, np.ndarray, float]:
        """The same with plain NumPy, written independently."""
        x, k, (a, b) = self.x.numpy(), self.stiffness.numpy(), self.ends.indices.T
        d = x[b] - x[a]
        length = np.sqrt((d**2).sum(axis=1) + 1e-12)
        load, shortest = np.zeros((300, 2)), np.full(300, np.inf)
        np.add.at(load, a, (k / length)[:, None] * d)
        np.add.at(load, b, -(k / length)[:, None] * d)
        for end in (a, b):
            np.minimum.at(shortest, end, length)
        return load, shortest, float((0.5 * k * length**2).sum())


def test_a_loop_by_call_and_by_every_strategy() -> None:
    truss_ = Truss()
    load, shortest, work = truss_.by_hand()
    truss(truss_.bars, *truss_.arguments)
    for strategy in (None, *ml.strategies()):
        if strategy:
            loop = truss.loop(truss_.bars, *truss_.arguments, schedule=ml.Schedule(strategy=strategy, block=128))
            assert loop.applies, loop.reason
            truss_.clear()
            loop()
        np.testing.assert_allclose(truss_.load.numpy(), load, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(truss_.shortest.numpy(), shortest, rtol=1e-15)
        np.testing.assert_allclose(truss_.work.value, work, rtol=1e-12)
    bars, nodes = truss_.bars.size, len(np.unique(truss_.ends.indices))
    compulsory = bars * (8 + 2 * 4) + nodes * 8 * (2 + 2 * 2 + 2 * 1)  # stiffness, ends; x, load, shortest
    counts = loop.counts
    assert counts.bytes.compulsory == pytest.approx(compulsory, abs=16), "and the work"
    assert counts.bytes_per_flop == pytest.approx(counts.bytes.compulsory / (counts.flops * bars))
    assert 15 <= counts.flops <= 30, "the kernel has about twenty operations"
    assert loop.explain().startswith(f"truss over bars: {bars:,} elements, back end {ml.backend()}\n")


def test_meshes_and_programs(back_end: str) -> None:
    mesh = ml.generate.box((40, 30), cells="triangle")
    area, truss_ = mesh.cells.field("area"), Truss()
    triangle_area(mesh.cells, mesh.coordinates[mesh.cell_nodes], area)
    assert area.numpy().sum() == pytest.approx(1.0, abs=1e-12)
    assert mesh.face_cells.arity == 2 and mesh.boundary_cells.arity == 1
    smooth = mesh.reordered("hilbert")
    moved = smooth.cells.field("area")
    triangle_area(smooth.cells, smooth.coordinates[smooth.cell_nodes], moved)
    np.testing.assert_allclose(smooth.permutation.undo("cells", moved.numpy()), area.numpy(), rtol=1e-13)

    @ml.program
    def step() -> None:
        triangle_area(mesh.cells, mesh.coordinates[mesh.cell_nodes], area)
        truss(truss_.bars, *truss_.arguments)

    step.run(10)
    load, _, work = truss_.by_hand()
    np.testing.assert_allclose(truss_.load.numpy(), 10 * load, rtol=1e-10, atol=1e-11)
    assert truss_.work.value == pytest.approx(10 * work, rel=1e-12)
