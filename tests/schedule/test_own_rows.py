"""``staged`` and ``tile`` where slots share nothing: rows by slot, for any sign, mode and mixture with columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import meshloom as ml
from meshloom.schedule.choice.auto import estimates
from meshloom.schedule.choice.counts import Counts
from meshloom.schedule.plan.plan import topology
from meshloom.schedule.strategies import strategy
from meshloom.schedule.strategies.common.gather import columns_of
from meshloom.schedule.strategies.common.stage import has_own_rows
from meshloom.schedule.strategies.common.tiles import TilePlan
from meshloom.target import CPU, H200


@pytest.fixture(params=["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)], autouse=True)
def back_end(request: pytest.FixtureRequest) -> Iterator[str]:
    before = ml.backend()
    ml.use(request.param)
    yield request.param
    ml.use(before)


@ml.kernel
def corners(x: ml.Read, weight: ml.Read, force: ml.Inc, mass: ml.Inc, least: ml.Min, heat: ml.Inc):
    """Eight rows of their own, some negated; eight numbers of their own; one value shared by all slots."""
    centre = sum(x[k] for k in range(8)) / 8.0
    for k in range(8):
        pull = weight * (x[k] - centre) * (1.0 + k)
        if k % 3:
            force[k] -= pull
        else:
            force[k] += pull
        mass[k] += weight * (x[k] @ x[k])
        least[k] = weight * x[k, 0] + k
        heat[k] += 0.125 * weight


class Box:
    def __init__(self) -> None:
        self.mesh = ml.generate.box((6, 5, 7))
        nodes, cells, to = self.mesh.nodes, self.mesh.cells, self.mesh.cell_nodes
        weight = cells.field("weight", data=np.random.default_rng(1).random(len(cells)))
        self.force, self.mass = nodes.field("force", 3), nodes.field("mass")
        self.least, self.heat = nodes.field("least", data=np.full(len(nodes), np.inf)), nodes.field("heat")
        gathered = (field[to] for field in (self.force, self.mass, self.least, self.heat))
        self.arguments = (self.mesh.coordinates[to], weight, *gathered)

    def results(self) -> list[np.ndarray]:
        return [field.numpy() for field in (self.force, self.mass, self.least, self.heat)]


@pytest.mark.parametrize("name", ["staged", "tile"])
@pytest.mark.parametrize("order", ["given", "random"])
def test_rows_give_the_answer_of_the_reference(name: str, order: str):
    wanted, found = Box(), Box()
    corners.python(wanted.mesh.cells, *wanted.arguments)
    schedule = ml.Schedule(strategy=name, block=64, order=order)
    loop = corners.loop(found.mesh.cells, *found.arguments, schedule=schedule)
    own = {loop.spec.params[c.param].name: has_own_rows(c) for c in columns_of(loop.spec, 0)}
    assert own == {"force": True, "mass": True, "least": True, "heat": False}
    loop()
    for one, other in zip(found.results(), wanted.results(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


def test_the_cost_of_tiles_knows_how_often_elements_are_evaluated(back_end: str):
    """Nodes that lie together in memory are slabs in space, and most elements lie across two of them."""
    box = Box()
    loop = corners.loop(box.mesh.cells, *box.arguments)
    plan = strategy("tile").plan(topology(loop.spec, loop.set.size, {0: (box.mesh.cell_nodes.indices,
                                 box.mesh.nodes.total, box.mesh.cell_nodes.digest)}, None), 64)  # fmt: skip
    counts = Counts(loop.spec, loop.set.size, loop.storages, loop.maps, 64)
    assert isinstance(plan, TilePlan)
    again = len(plan.tiled[0].tile_elements) / loop.set.size
    assert again > 1.5 and counts.work(H200).tiles == pytest.approx(again)


@pytest.mark.parametrize("n, fits", [(8, True), (40, False)])
def test_the_automatic_choice_leaves_out_tiles_that_do_not_fit(n: int, fits: bool, back_end: str):
    """Two layers of a large box lie between the nodes of a tile: their corners fill the shared memory."""
    mesh = ml.generate.box((n, n, n))
    to, cells, nodes = mesh.cell_nodes, mesh.cells, mesh.nodes

    @ml.kernel
    def spread(x: ml.Read, force: ml.Inc):
        for k in range(8):
            force[k] += x[k] * (1.0 + k)

    loop = spread.loop(cells, mesh.coordinates[to], nodes.field("force", 3)[to])
    work = Counts(loop.spec, loop.set.size, loop.storages, loop.maps, 1024).work(H200)
    assert ("tile" in estimates(loop.spec, work, H200)) is fits and "tile" in estimates(loop.spec, work, CPU)
    described = topology(loop.spec, loop.set.size, {0: (to.indices, nodes.total, to.digest)}, None)
    plan = strategy("tile").plan(described, 256)
    assert isinstance(plan, TilePlan)
    needed = plan.tiled[0].largest * 24 * 8
    assert strategy("tile").cost(loop.spec, work, target=H200).shared == pytest.approx(needed, rel=0.35)
    assert (needed < H200.gpu.shared.most) is fits
