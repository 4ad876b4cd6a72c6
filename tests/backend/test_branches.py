"""Operations side by side: any order that the dependencies allow gives what one after the other gives, bit for bit."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.backend.branches import StreamAssignment, in_streams, levels, reduced, summary
from meshloom.backend.cuda.graph import assign_streams
from meshloom.operation import in_memory
from meshloom.operation.dataflow import DataAccess, Dataflow
from meshloom.operation.domain import Extent
from meshloom.solvers.navier_stokes import VortexOutflow
from meshloom.target import H200
from tests.backend.streams import ShuffledRecording

# ----- the analysis -----------------------------------------------------------------------------------------------
LENGTH = 6


@ml.kernel
def mixed(source: ml.Read, target: ml.ReadWrite):
    target[...] = 3.0 * target + source + 1.0


@ml.kernel
def shifted(source: ml.Read, target: ml.Write):
    target[...] = source[1] - 0.5 * source[-1]


@ml.kernel
def added(source: ml.Read, total: ml.Sum):
    total += source


@ml.kernel
def scaled(by: ml.Read, target: ml.ReadWrite):
    target[...] = 0.25 * target + 0.001 * by


class Line:
    """Points with fields and a Global, and random operations on them: whole fields, boxes, neighbours, sums."""

    def __init__(self, periodic: bool):
        grid = self.grid = ml.Grid((LENGTH,), periodic=periodic, ghosts=0 if periodic else 1)
        self.fields = [grid.field(f"f{k}", data=np.arange(LENGTH) + 10.0 * k) for k in range(3)]
        self.total = ml.Global(0.0, "total")
        self.around = grid.offsets(-1, 1)

    def operation(self, data: st.DataObject) -> Any:
        a, b = data.draw(st.permutations(self.fields), label="fields")[:2]
        low, high = sorted(data.draw(st.lists(st.integers(0, LENGTH), min_size=2, max_size=2, unique=True)))
        box = data.draw(st.sampled_from([self.grid, self.grid.box(low, high)]))
        kind = data.draw(st.sampled_from(["mixed", "shifted", "added", "scaled", "fill", "reset"]))
        if kind == "fill":
            return in_memory.fill(a, float(low))
        if kind == "reset":
            return in_memory.fill(self.total, float(low))
        given = {"mixed": (a, b), "shifted": (a[self.around], b), "added": (a, self.total), "scaled": (self.total, b)}
        kernels = {"mixed": mixed, "shifted": shifted, "added": added, "scaled": scaled}
        return kernels[kind].loop(box, *given[kind])

    def after(self, operations: Any) -> list[np.ndarray]:
        for k, one in enumerate(self.fields):
            one.fill(0.0)  # ghosts, too
            one.assign(np.arange(LENGTH) + 10.0 * k)
        self.total.assign(0.0)
        for one in operations:
            one()
        return [*(one.numpy() for one in self.fields), np.array(self.total.value)]


def some_order(needed: list[set[int]], rng: random.Random) -> list[int]:
    order: list[int] = []
    while len(order) < len(needed):
        order.append(rng.choice([k for k in range(len(needed)) if k not in order and needed[k] <= set(order)]))
    return order


def edges(assigned: list[StreamAssignment]) -> list[set[int]]:
    """What each waits for: others by events, and the one before in its branch."""
    last: dict[int, int] = {}
    found = []
    for k, assignment in enumerate(assigned):
        found.append({*assignment.waits, *([last[assignment.branch]] if assignment.branch in last else [])})
        last[assignment.branch] = k
    return found


@given(st.data(), st.integers(1, 4), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_any_allowed_order_gives_the_same(data: st.DataObject, most: int, periodic: bool, rng: random.Random) -> None:
    ml.use("numpy")
    line = Line(periodic)
    program = [line.operation(data) for _ in range(data.draw(st.integers(0, 8), label="length"))]
    expected = line.after(program)
    needed = reduced(Dataflow(program).waits())
    assigned = in_streams(needed, most)
    assert {assignment.branch for assignment in assigned} <= set(range(most))
    for allowed in ([set(one) for one in needed], edges(assigned)):
        for _ in range(3):
            for a, b in zip(line.after(program[k] for k in some_order(allowed, rng)), expected, strict=True):
                np.testing.assert_array_equal(a, b)


@given(st.lists(st.sets(st.integers(0, 8)), max_size=9))
@settings(max_examples=100, deadline=None)
def test_no_operation_waits_for_another_twice(drawn: list[set[int]]) -> None:
    waits = [{j for j in one if j < k} for k, one in enumerate(drawn)]
    before: list[set[int]] = []
    for mine, direct in zip(waits, reduced(waits), strict=True):
        before.append(set(direct).union(*(before[j] for j in direct)))
        assert set(direct) <= mine <= before[-1]
        assert not any(j in before[i] for i in direct for j in direct)


def test_what_orders_two_operations() -> None:
    ml.use("numpy")
    grid = ml.Grid((8, 8))
    q, r = grid.field("q"), grid.field("r")
    low, high = (in_box.loop(grid.box(*ends), q) for ends in (((0, 0), (8, 1)), ((0, 7), (8, 8))))
    read, reset = mixed.loop(grid, q, r), in_memory.fill(q, 0.0)
    assert Dataflow([low, high, read, reset, low]).waits() == [set(), set(), {0, 1}, {0, 1, 2}, {3}]


@ml.kernel
def in_box(target: ml.ReadWrite):
    target[...] = target + 1.0


def test_branches_are_continued_and_few() -> None:
    free = [()] * 5
    assert [assignment.branch for assignment in in_streams(free, 3)] == [0, 1, 2, 0, 1]
    diamond = in_streams([(), (0,), (0,), (2, 1), (3,)], 4)
    waits = [(0, ()), (0, ()), (1, (0,)), (1, (1,)), (1, ())]
    assert diamond == [StreamAssignment(branch, needed) for branch, needed in waits]
    assert levels(diamond) == [1, 2, 2, 3, 4]
    assert summary(diamond) == "graph: 5 operations in 4 turns, up to 2 at the same time"
    assert summary([StreamAssignment(0)] * 3) == "graph: 3 operations one after the other"


# ----- programs ---------------------------------------------------------------------------------------------------
@ml.kernel
def slope_x(u: ml.Read, s: ml.Write):
    s[...] = 0.5 * (u[1, 0] - u[-1, 0])


@ml.kernel
def slope_y(u: ml.Read, s: ml.Write):
    s[...] = 0.5 * (u[0, 1] - u[0, -1])


@ml.kernel
def edge(u: ml.Read, rate: ml.Inc):
    rate[...] += 0.25 * u


@ml.kernel
def advance(sx: ml.Read, sy: ml.Read, rate: ml.Read, dt: ml.Read, u: ml.ReadWrite):
    u[...] = u + dt * (rate - 0.3 * sx - 0.7 * sy)


@ml.kernel
def size(u: ml.Read, total: ml.Sum):
    total += u * u


class Plane:
    """A step with something of everything: slopes that are independent, sides that meet at corners, a field that is
    filled, a global that nobody reads, and one loop that is called twice."""

    def __init__(self, points: int = 12):
        grid = self.grid = ml.Grid((points, points), periodic=True)
        rng = np.random.default_rng(3)
        self.u = grid.field("u", data=rng.random((points, points)))
        self.sx, self.sy, self.rate = (grid.field(name) for name in ("sx", "sy", "rate"))
        self.first, self.second, self.dt = ml.Global(0.0, "first"), ml.Global(0.0, "second"), ml.Global(0.01, "dt")
        self.sides = [grid.box(low, high) for low, high in (
            ((0, 0), (points, 1)), ((0, points - 1), (points, points)), ((0, 0), (1, points)))]  # fmt: skip
        self.measure = size.loop(grid, self.u, self.first)

    def step(self) -> None:
        grid = self.grid
        self.first.value = 0.0
        self.measure()
        self.rate.fill(1.0)
        slope_x(grid, self.u[grid.offsets((-1, 0), (1, 0))], self.sx)
        slope_y(grid, self.u[grid.offsets((0, -1), (0, 1))], self.sy)
        for side in self.sides:
            edge(side, self.u, self.rate)
        advance(grid, self.sx, self.sy, self.rate, self.dt, self.u)
        self.measure()
        self.second.value = 2.0

    def results(self, **options: bool) -> tuple[list[np.ndarray], ml.Program]:
        program = ml.program(**options)(self.step)
        rows = [program.run(n, record=(self.first, self.second)) for n in (1, 3)]
        self.u.relayout("aos")
        rows.append(program.run(2, record=(self.first,)))
        return [*rows, *(one.numpy() for one in (self.u, self.sx, self.sy, self.rate))], program


def plane(backend: str, **options: bool) -> tuple[list[np.ndarray], ml.Program]:
    ml.use(backend)
    return Plane().results(**options)


@pytest.mark.parametrize("fuse", [True, False])
def test_a_program_in_branches_gives_the_same_bits(fuse: bool) -> None:
    expected, _ = plane("emulated", fuse=fuse)
    found, program = plane("shuffled", fuse=fuse)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(program._fused_recording()._replay if fuse else program._tape().recording(), ShuffledRecording)
    assert "at the same time" in program.graph and program.graph in program.explain()


def test_a_program_may_be_kept_in_one_branch() -> None:
    _, program = plane("shuffled", branches=False)
    assert program.graph.endswith("one after the other")
    program.branches = True
    assert program.graph.endswith("at the same time")


def test_what_is_called_twice_or_shares_corners_is_ordered() -> None:
    ml.use("silent")
    step = ml.program(fuse=False)(Plane().step)
    before = all_before(step._tape().recording().assigned)  # type: ignore[attr-defined]
    names = [o.name for o in step.loops]
    once, again = (k for k, name in enumerate(names) if name == "size")
    assert once in before[again]
    x, y = names.index("slope_x"), names.index("slope_y")
    assert x not in before[y]
    low, high, across = (k for k, name in enumerate(names) if name == "edge")
    assert low not in before[high] and {low, high} <= before[across]


def test_ghosts_at_both_ends_of_an_axis_are_filled_together() -> None:
    ml.use("silent")
    u = ml.Grid((8, 9), periodic=True, ghosts=2).field("u")
    step = ml.program(fuse=False)(lambda: ml.fill_ghosts(u))
    assert step.graph == "graph: 4 operations in 2 turns, up to 2 at the same time", "corners: one axis after the other"


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_box_covers_every_point_that_is_seen(data: st.DataObject) -> None:
    """Round the ends of periodic axes and into ghosts: what a loop reads at offsets, and its own points exactly."""
    ml.use("silent")
    ghosts, periodic = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))), data.draw(st.booleans())
    grid = ml.Grid((6, 7), periodic=periodic, ghosts=ghosts)
    reach = [(2 if g == 0 and periodic else g) for g in ghosts]
    low = [data.draw(st.integers(0, n - 1)) for n in grid.shape]
    high = [data.draw(st.integers(first + 1, n)) for first, n in zip(low, grid.shape, strict=True)]
    offset = tuple(data.draw(st.integers(-r, r)) for r in reach)
    box, u, v = grid.box(low, high), grid.field("u"), grid.field("v")

    @ml.kernel
    def take(source: ml.Read, target: ml.Write):
        target[...] = source[offset]

    graph = Dataflow([take.loop(box, u[grid.offsets(offset)], v)])
    (seen,), (written,) = graph.accesses[u], graph.accesses[v]
    assert set(box.rows(offset)) <= rows_of(seen, grid)
    assert rows_of(written, grid) == set(box.rows()) and written.covers and written.exact
    assert not seen.exact or set(box.rows(offset)) == rows_of(seen, grid)


def rows_of(access: DataAccess, grid: ml.Grid) -> set[int]:
    """Positions in memory of the points that an operation may touch."""
    if isinstance(access.region, Extent):
        return set(range(grid.total))
    ends = zip(*access.region, grid.ghosts, strict=True)
    index = np.meshgrid(*(np.arange(low + width, high + width) for low, high, width in ends), indexing="ij")
    return {int(k) for k in sum(i * s for i, s in zip(index, grid.strides, strict=True)).ravel()}


def all_before(assigned: list[StreamAssignment]) -> list[set[int]]:
    found: list[set[int]] = []
    for direct in edges(assigned):
        found.append(direct.union(*(found[j] for j in direct)))
    return found


def test_large_operations_keep_their_order_and_small_ones_pass_them() -> None:
    ml.use("silent")
    wide = Plane(12)
    step = ml.program(fuse=False)(wide.step)
    operations = step._tape().recording().operations
    names = [o.name for o in step.loops]
    x, y = names.index("slope_x"), names.index("slope_y")
    first, last = names.index("first = 0"), names.index("second = 2")
    small = replace(H200, multiprocessors=1, resident_threads=16)
    waits = Dataflow(step.loops).waits
    many, few = (all_before(assign_streams(operations, waits, one)) for one in (H200, small))
    assert x not in many[y] and x in few[y]
    assert first not in few[last] and not few[last] & {x, y}
    assert levels(assign_streams(operations, None, small)) == list(range(1, len(operations) + 1))


def test_the_vortex_runs_slopes_and_opposite_sides_together() -> None:
    ml.use("silent")
    case = VortexOutflow(VortexOutflow.Config())
    recording: Any = case.program._fused_recording()
    steps, assigned = recording.program.operations, recording._replay.assigned
    before = all_before(assigned)
    names = [getattr(step, "name", "fused") for step in steps]
    for x, y in zip(*([k for k, n in enumerate(names) if n == name] for name in ("slope_x", "slope_y")), strict=True):
        assert x not in before[y] and y not in before[x]
    sides = [k for k, name in enumerate(names) if name in ("outflow", "held_inflow")]
    for k in range(0, len(sides), 4):
        low, high, right, left = sides[k : k + 4]
        assert low not in before[high] and right not in before[left] and {low, high} <= before[left] & before[right]
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert case.program.graph.removeprefix("graph: ") in " ".join(page.split()), "the page counts the same"


# ----- on a device ------------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("fuse", [True, False])
def test_branches_on_a_device_give_the_same_bits(fuse: bool) -> None:
    expected, _ = plane("cuda", fuse=fuse, branches=False)
    for _ in range(3):
        found, program = plane("cuda", fuse=fuse)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
    assert "at the same time" in program.graph and program.graph in program.explain()


@pytest.mark.gpu
@pytest.mark.parametrize("fuse", [True, False])
def test_a_global_that_no_loop_uses_is_set_by_every_replay(fuse: bool) -> None:
    ml.use("cuda")
    one = Plane()
    program = ml.program(fuse=fuse)(one.step)
    program.run(1)
    one.second.assign(5.0)
    assert program.run(1, record=(one.second,)) == 2.0 and one.second.value == 2.0


@pytest.mark.gpu
def test_the_vortex_on_a_device_is_the_same_in_branches() -> None:
    ml.use("cuda")
    found = []
    for branches in (False, True):
        case = VortexOutflow(VortexOutflow.Config())
        case.program.branches = branches
        rows = case.program.run(20, record=case.recorded)
        found.append((rows, case.flow.q.numpy()))
        assert ("at the same time" in case.program.graph) is branches
    np.testing.assert_array_equal(found[1][0], found[0][0])
    np.testing.assert_array_equal(found[1][1], found[0][1])
