"""Slots of a map through which a kernel reads and gives nothing: no two elements meet there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import PlanError
from meshloom.schedule.choice.counts import Counts
from meshloom.schedule.plan.topology import Topology
from meshloom.schedule.strategies import strategy
from meshloom.schedule.strategies.base import verify
from meshloom.target import H200
from tests.schedule.forms import FORMS, every_form

CELLS, POINTS = 60, 40


@ml.kernel
def to_some(x: ml.Read, heat: ml.Inc, load: ml.Inc, low: ml.Min, seen: ml.Write):
    """Reads three points, gives to the first and the last; the middle one it only reads."""
    mean = (x[0] + 2.0 * x[1] + x[2]) / 4.0
    heat[0] += mean
    heat[2] -= 3.0 * mean
    load[2, 1] += mean * mean
    low[0] = mean
    seen[...] = mean - x[1]


@ml.kernel
def to_one_side(x: ml.Read, far: ml.Read, heat: ml.Inc, load: ml.Inc):
    """Two maps into one set, of each of which one slot is written."""
    heat[1] += x[0] - far[1]
    load[0, 0] += far[0] * x[1]


class Scene:
    """Every cell looks at point 0 in the middle, where all of them would meet."""

    def __init__(self, points: np.ndarray | None = None) -> None:
        rng = np.random.default_rng(3)
        ends = rng.integers(1, POINTS, (CELLS, 2)) if points is None else points
        self.rows = np.column_stack([ends[:, 0], np.zeros(len(ends), int), ends[:, 1]])
        self.cells, self.nodes = ml.Set(len(ends), "cells"), ml.Set(POINTS, "points")
        self.corners = ml.Map(self.cells, self.nodes, self.rows, "corners")
        self.far = ml.Map(self.cells, self.nodes, rng.integers(0, POINTS, (len(ends), 2)), "far")
        self.x = self.nodes.field("x", data=rng.random(POINTS))
        self.heat, self.load = self.nodes.field("heat"), self.nodes.field("load", 2)
        self.low = self.nodes.field("low", data=np.full(POINTS, 9.0))
        self.seen = self.cells.field("seen")

    def loop(self, form: ml.Schedule | str = "auto") -> ml.Loop:
        at = self.corners
        return to_some.loop(
            self.cells, self.x[at], self.heat[at], self.load[at], self.low[at], self.seen, schedule=form
        )

    def sides(self, form: ml.Schedule | str = "auto") -> ml.Loop:
        ends = ml.Map(self.cells, self.nodes, self.rows[:, :2], "ends")
        arguments = self.x[ends], self.x[self.far], self.heat[ends], self.load[self.far]
        return to_one_side.loop(self.cells, *arguments, schedule=form)

    def values(self) -> list[np.ndarray]:
        return [one.numpy().copy() for one in (self.heat, self.load, self.low, self.seen)]


def found(which: str, form: ml.Schedule | str, back_end: str, points: np.ndarray | None = None) -> list[np.ndarray]:
    ml.use(back_end, threads=2)
    scene = Scene(points)
    loop = getattr(scene, which)(form)
    loop()
    loop()
    return scene.values()


@pytest.mark.parametrize("back_end", ["cpu", "emulated"])
@pytest.mark.parametrize("which", ["loop", "sides"])
@every_form
def test_every_strategy_gives_what_numpy_gives(form: ml.Schedule, which: str, back_end: str) -> None:
    for block in (8, None):
        mine = found(which, replace(form, block=block), back_end)
        for one, expected in zip(mine, found(which, "auto", "numpy"), strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-13, atol=1e-13 * np.abs(expected).max(initial=0.0))


@settings(max_examples=15, deadline=None)
@given(ends=st.lists(st.tuples(st.integers(0, POINTS - 1), st.integers(0, POINTS - 1)), max_size=12), data=st.data())
def test_any_rows(ends: list[tuple[int, int]], data: st.DataObject) -> None:
    """Elements that lead to one point twice, and to the point that all of them read; one element, and none."""
    points, form = np.array(ends, int).reshape(-1, 2), data.draw(st.sampled_from(FORMS))
    for one, expected in zip(found("loop", form, "cpu", points), found("loop", "auto", "numpy", points), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-13, atol=1e-13 * np.abs(expected).max(initial=0.0))


def test_cells_that_only_read_a_point_do_not_meet_there() -> None:
    """By colors that would take one for each cell; and a target has the entries that give it something."""
    ml.use("cpu")
    apart = np.arange(1, 2 * 15 + 1).reshape(15, 2)
    for name in ("color", "block_color"):
        plan = Scene(apart).loop(ml.Schedule(name, block=1)).plan
        assert plan.n_colors == 1, name
    plan = Scene().loop("owner").plan
    (incidence,) = plan.gathers.values()
    assert len(incidence.entries) == 2 * CELLS and set(incidence.entries % 3) == {0, 2}
    assert incidence.offsets[1] == 0, "nothing is given to the point in the middle"


def test_loops_that_give_through_other_slots_have_plans_of_their_own() -> None:
    """Though they share the map: plans are kept in memory and on disk."""

    @ml.kernel
    def to_all(x: ml.Read, heat: ml.Inc):
        heat[0] += x[1]
        heat[1] += x[2]
        heat[2] += x[0]

    ml.use("cpu")
    scene = Scene()
    for _ in range(2):
        every = to_all.loop(scene.cells, scene.x[scene.corners], scene.heat[scene.corners], schedule="owner").plan
        for plan, slots in ((scene.loop("owner").plan, 2), (every, 3)):
            (incidence,) = plan.gathers.values()
            assert len(incidence.entries) == slots * CELLS


def test_the_model_counts_what_is_given() -> None:
    ml.use("numpy")
    loop = Scene().loop()
    work = Counts(loop.spec, loop.elements, loop.storages, loop.maps, 8).work(H200)
    assert work.incidences == 2 * CELLS
    both = Scene().sides()
    assert Counts(both.spec, both.elements, both.storages, both.maps, 8).work(H200).incidences == 2 * CELLS


def test_a_plan_for_other_slots_is_rejected() -> None:
    """Plans that are kept are found by their slots, too, and the verifier knows them."""
    scene = Scene()
    rows = np.ascontiguousarray(scene.rows)
    some, every = (Topology(CELLS, {0: (rows, POINTS)}, {0: 0}, written=slots) for slots in ({0: (0, 2)}, {}))
    for name in ("owner", "staged", "tile"):
        plan = strategy(name).build(some, 8)
        verify(plan, some)
        with pytest.raises(PlanError):
            verify(plan, every)
        with pytest.raises(PlanError):
            verify(strategy(name).build(every, 8), some)
        wrong = strategy(name).build(Topology(CELLS, {0: (rows, POINTS)}, {0: 0}, written={0: (0, 1)}), 8)
        with pytest.raises(PlanError):
            verify(wrong, some)
