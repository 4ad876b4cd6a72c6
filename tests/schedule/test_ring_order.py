"""``owner`` on a GPU, where elements stand in rings and their targets add in the order of elements: the bits of tables
in that order, and of no tables, on any numbering, fused or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import PlanError
from meshloom.schedule.choice.symmetry import rounded_by_side
from meshloom.schedule.plan.plan import arrays
from meshloom.schedule.strategies import strategy, verify
from meshloom.schedule.strategies.common import neighbours
from meshloom.schedule.strategies.common.neighbours import SymmetricTables
from meshloom.schedule.strategies.common.one_ring import OneRings
from meshloom.schedule.strategies.common.sorting_network import comparators, exchanges, in_order
from meshloom.target import H200
from tests.schedule.spoil import replaced, spoilt
from tests.schedule.topologies import neighbourly

OWNER = ml.Schedule("owner", block=64)


@pytest.mark.parametrize(("count", "most"), [(1, 0), (2, 1), (3, 3), (4, 5), (5, 9), (6, 12), (7, 16), (8, 19)])
def test_a_network_sorts_whatever_it_is_given(count: int, most: int) -> None:
    """All zeros and ones, which suffices (Knuth's zero-one principle)."""
    rows = np.array(list(product((0, 1), repeat=count)))
    found = exchanges(rows)
    assert len(comparators(count)) == most and all(low < high < count for low, high in comparators(count))
    np.testing.assert_array_equal(in_order(rows, found), np.sort(rows, axis=1))
    assert found.dtype.itemsize == (1 if most <= 8 else 2 if most <= 16 else 4)


# --- the same bits --------------------------------------------------------------------------------------------------
@ml.kernel
def flux(x: ml.Read, q: ml.Read, res: ml.Inc, more: ml.Inc, high: ml.Max, low: ml.Min):
    """The two sides are the same by algebra alone: one of two squares is rounded before they are added."""
    dx, dy = x[0] - x[1]
    f = dy * (q[0] ** 2 + q[1] ** 2) - dx * (q[0] + q[1])
    res[0] += f
    res[1] -= f
    more[0] += [q[1] - q[0], f]
    more[1] += [q[0] - q[1], -f]
    high[0] = q[1]
    high[1] = q[0]
    low[0] = f
    low[1] = -f


@ml.kernel
def step(res: ml.Read, more: ml.Read, x: ml.Read, q: ml.ReadWrite):
    q += 1e-3 * res + 1e-9 * (more[0] - more[1]) * (x[0, 0] - x[2, 1])


def spread(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of very different sizes, so that any other order of adding has other bits."""
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)


class World:
    """Cells of a kind, or the nodes of triangles, of which six or so meet at each."""

    def __init__(self, kind: str, numbering: str):
        size = (24, 24) if kind == "nodes" else (7, 8)  # few nodes at the boundary
        grid = ml.generate.box(size, cells="quad" if kind == "quad" else "triangle")
        mesh = grid if numbering == "given" else grid.reordered(numbering)
        rng = np.random.default_rng(5)
        around, at = (mesh.face_cells, mesh.face_nodes) if kind == "nodes" else (mesh.face_nodes, mesh.face_cells)
        self.mesh, self.on = mesh, at.target
        self.x = around.target.field("x", 2, data=spread(rng, len(around.target), 2))
        self.q = self.on.field("q", data=spread(rng, len(self.on)))
        self.res, self.more = self.on.field("res"), self.on.field("more", 2)
        self.high, self.low = self.on.field("high"), self.on.field("low")
        self.arguments = self.x[around], self.q[at], self.res[at], self.more[at], self.high[at], self.low[at]

    def loop(self) -> ml.Loop:
        return flux.loop(self.mesh.faces, *self.arguments, schedule=OWNER)

    def found(self) -> list[bytes]:
        """What a loop by itself makes of them."""
        self.loop()()
        return self.bits()

    def bits(self) -> list[bytes]:
        return [one.numpy().tobytes() for one in (self.res, self.more, self.high, self.low, self.q)]

    def replayed(self, *, fuse: bool) -> tuple[list[bytes], ml.Program]:
        def recorded() -> None:
            for one in (self.res, self.more, self.high, self.low):
                one.fill(0.0)
            flux(self.mesh.faces, *self.arguments, schedule=OWNER)
            step(self.mesh.cells, self.res, self.more, self.x[self.mesh.cell_nodes], self.q)

        program = ml.Program(recorded, fuse=fuse)
        program.run(2)
        return self.bits(), program


def without_rings(first: np.ndarray, *_: np.ndarray) -> OneRings:
    return OneRings(np.full(first.shape, -1, np.int8), first, np.zeros(len(first), bool))


def without_tables(offsets: np.ndarray) -> int:
    return 0


@pytest.mark.parametrize("options", [{}, pytest.param({"target": "hip"}, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize(("kind", "numbering"), [
    ("quad", "random"),
    *(pytest.param(kind, numbering, marks=pytest.mark.slow) for kind in ("quad", "triangle", "nodes")
      for numbering in ("given", "random", "hilbert") if (kind, numbering) != ("quad", "random"))])  # fmt: skip
def test_a_ring_has_the_bits_of_ascending_order(
    kind: str, numbering: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with tables in that order, and without: ranks may have either."""
    ml.use("emulated", reproducible=True, **options)
    world = World(kind, numbering)
    found, (gather,) = world.found(), world.loop().plan.gathers.values()
    assert gather.degree == {"quad": 4, "triangle": 3, "nodes": 6}[kind]
    assert gather.tables.ring and gather.tables.sorting is not None and gather.tables.sorting.any()
    assert rounded_by_side(world.loop().spec, 1), "the sides of an element have other bits"
    monkeypatch.setattr(neighbours, "roomy_degree", without_tables)
    other = World(kind, numbering)
    assert other.loop().plan.gathers[1].tables is None and other.found() == found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["quad", "triangle", "nodes"])
def test_tables_in_ascending_order_have_the_bits_of_a_ring(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("emulated", reproducible=True)
    found = World(kind, "random").found()
    ml.use("emulated", reproducible=False)
    assert World(kind, "random").found() != found, "another order has other bits"
    ml.use("emulated", reproducible=True)
    monkeypatch.setattr(neighbours, "find_one_rings", without_rings)
    other = World(kind, "random")
    tables = other.loop().plan.gathers[1].tables
    assert not tables.ring and tables.sorting is None and other.found() == found


@pytest.mark.parametrize("options", [{}, pytest.param({"target": "hip"}, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("numbering", ["random", pytest.param("hilbert", marks=pytest.mark.slow)])
def test_fused_rings_have_the_bits_of_ascending_order(
    numbering: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ml.use("emulated", reproducible=True, **options)
    found, program = World("quad", numbering).replayed(fuse=True)
    (fused,) = program.fused_steps
    (gather,) = fused.plan.gathers.values()
    assert gather.along is not None and gather.tables.sorting is not None and gather.tables.sorting.any()
    assert World("quad", numbering).replayed(fuse=False)[0] == found
    if numbering != "random":
        monkeypatch.setattr(neighbours, "roomy_degree", without_tables)
        assert World("quad", numbering).replayed(fuse=True)[0] == found


def test_ranks_do_not_weigh_strategies_that_round_otherwise() -> None:
    """By their work, of which each has another: an element seen from its targets' sides has other bits."""
    ml.use("emulated", reproducible=True)
    world = World("quad", "given")
    loop = flux.loop(world.mesh.faces, *world.arguments)
    assert loop.schedule.strategy == "owner"
    others = {one.what.strategy: one.forbidden for one in loop.candidates["strategy"] if one.forbidden}
    assert "from the sides of their targets" in others["staged"] and "from the sides" in others["tile"]


# --- the plan -------------------------------------------------------------------------------------------------------
def test_the_verifier_rejects_another_order() -> None:
    topology = replace(neighbourly("ring"), in_order=True)
    plan = strategy("owner").plan(topology, 16, target=H200)
    verify(plan, topology)
    sorting = arrays(plan)["sorting0"]
    assert sorting.dtype == np.uint8 and sorting.any()
    changes: tuple[Callable[[np.ndarray], object], ...] = (
        lambda a: a.__setitem__(210, a[210] ^ 1), lambda a: a.fill(0))  # fmt: skip
    for change in changes:
        with pytest.raises(PlanError, match="order of elements"):
            verify(spoilt(plan, "sorting0", change), topology)
    with pytest.raises(PlanError):
        verify(replaced(plan, "sorting0", sorting[:-1]), topology)
    free = strategy("owner").plan(replace(topology, in_order=False), 16, target=H200)
    assert isinstance(tables := free.gathers[0].tables, SymmetricTables) and tables.sorting is None
    with pytest.raises(PlanError, match="order of elements"):
        verify(free, topology)
