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
from meshloom.backend.branches import BranchPart, Footprint, Turn, dependencies, in_branches, levels, summary
from meshloom.backend.cuda.graph import dealt_out
from meshloom.solvers.navier_stokes import VortexOutflow
from meshloom.target import H200
from tests.backend.streams import ShuffledRecording

# ----- the analysis -----------------------------------------------------------------------------------------------
MEMORIES, LENGTH = 3, 6


@st.composite
def parts(draw: st.DrawFn) -> BranchPart:
    memory = draw(st.integers(0, MEMORIES - 1))
    if draw(st.booleans()):
        return BranchPart(memory)
    ends = sorted(draw(st.lists(st.integers(0, LENGTH), min_size=2, max_size=2, unique=True)))
    return BranchPart(memory, ((ends[0], ends[1]),))


few = st.lists(parts(), max_size=2).map(tuple)
footprints = st.one_of(st.builds(Footprint, few, few), st.builds(Footprint, few, few), st.none())


def carry_out(number: int, what: Footprint | None, store: np.ndarray) -> None:
    """Something that depends on all that is read, and changes all that is written, differently for each operation."""
    everything = (BranchPart(0), BranchPart(1), BranchPart(2))
    reads, writes = (everything, everything) if what is None else (what.reads, what.writes)
    seen = sum(int(store[p.memory, slice(*p.box[0]) if p.box else slice(None)].sum()) for p in reads)
    for p in writes:
        cut = slice(*p.box[0]) if p.box else slice(None)
        store[p.memory, cut] = (3 * store[p.memory, cut] + seen + number + 1) % 10007


def some_order(needed: list[set[int]], rng: random.Random) -> list[int]:
    order: list[int] = []
    while len(order) < len(needed):
        order.append(rng.choice([k for k in range(len(needed)) if k not in order and needed[k] <= set(order)]))
    return order


def edges(dealt: list[Turn]) -> list[set[int]]:
    """What each waits for: others by events, and the one before in its branch."""
    last: dict[int, int] = {}
    found = []
    for k, turn in enumerate(dealt):
        found.append({*turn.waits, *([last[turn.branch]] if turn.branch in last else [])})
        last[turn.branch] = k
    return found


@given(st.lists(footprints, max_size=9), st.integers(1, 4), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_any_allowed_order_gives_the_same(program: list[Footprint | None], most: int, rng: random.Random) -> None:
    def after(order: Any) -> np.ndarray:
        store = np.arange(MEMORIES * LENGTH).reshape(MEMORIES, LENGTH)
        for k in order:
            carry_out(k, program[k], store)
        return store

    needed = dependencies(program)
    dealt = in_branches(needed, most)
    assert {turn.branch for turn in dealt} <= set(range(most))
    for allowed in ([set(one) for one in needed], edges(dealt)):
        for _ in range(3):
            np.testing.assert_array_equal(after(some_order(allowed, rng)), after(range(len(program))))


@given(st.lists(footprints, max_size=9))
@settings(max_examples=100, deadline=None)
def test_only_operations_that_meet_are_ordered_and_none_twice(program: list[Footprint | None]) -> None:
    needed = dependencies(program)
    before: list[set[int]] = []
    for k, direct in enumerate(needed):
        before.append(set(direct).union(*(before[j] for j in direct)))
        for j in direct:
            a, b = program[j], program[k]
            assert a is None or b is None or a.conflicts(b)
            assert not any(j in before[i] for i in direct)


def test_what_orders_two_operations() -> None:
    read, write = Footprint(reads=(BranchPart("q"),)), Footprint(writes=(BranchPart("q"),))
    assert dependencies([read, read]) == [(), ()]
    assert dependencies([write, read]) == dependencies([read, write]) == dependencies([write, write]) == [(), (0,)]
    low, high = (Footprint(writes=(BranchPart("q", ((0, 8), ends)),)) for ends in ((0, 1), (7, 8)))
    assert dependencies([low, high, read, None, low]) == [(), (), (1, 0), (2,), (3,)]


def test_branches_are_continued_and_few() -> None:
    free = [()] * 5
    assert [turn.branch for turn in in_branches(free, 3)] == [0, 1, 2, 0, 1]
    diamond = in_branches([(), (0,), (0,), (2, 1), (3,)], 4)
    assert diamond == [Turn(0), Turn(0), Turn(1, (0,)), Turn(1, (1,)), Turn(1)]
    assert levels(diamond) == [1, 2, 2, 3, 4]
    assert summary(diamond) == "graph: 5 operations in 4 turns, up to 2 at the same time"
    assert summary([Turn(0)] * 3) == "graph: 3 operations one after the other"


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
    assert isinstance(program._fused_recording()._replay if fuse else program._recording(), ShuffledRecording)
    assert "at the same time" in program.graph and program.graph in program.explain()


def test_a_program_may_be_kept_in_one_branch() -> None:
    _, program = plane("shuffled", branches=False)
    assert program.graph.endswith("one after the other")
    program.branches = True
    assert program.graph.endswith("at the same time")


def test_what_is_called_twice_or_shares_corners_is_ordered() -> None:
    ml.use("silent")
    step = ml.program(fuse=False)(Plane().step)
    before = all_before(step._recording().dealt)  # type: ignore[attr-defined]
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

    footprint: Footprint = take.loop(box, u[grid.offsets(offset)], v).prepare().footprint  # type: ignore[attr-defined]
    (seen, own), (written,) = footprint.reads, footprint.writes
    assert set(box.rows(offset)) <= rows_of(seen, grid)
    assert own == written and rows_of(written, grid) == set(box.rows())


def rows_of(part: BranchPart, grid: ml.Grid) -> set[int]:
    """Positions in memory of the points of a part."""
    assert part.box is not None
    index = np.meshgrid(*(np.arange(*ends) for ends in part.box), indexing="ij")
    return {int(k) for k in sum(i * s for i, s in zip(index, grid.strides, strict=True)).ravel()}


def all_before(dealt: list[Turn]) -> list[set[int]]:
    found: list[set[int]] = []
    for direct in edges(dealt):
        found.append(direct.union(*(found[j] for j in direct)))
    return found


def test_large_operations_keep_their_order_and_small_ones_pass_them() -> None:
    ml.use("silent")
    wide = Plane(12)
    step = ml.program(fuse=False)(wide.step)
    operations = step._recording().operations
    names = [o.name for o in step.loops]
    x, y = names.index("slope_x"), names.index("slope_y")
    first, last = names.index("first = 0"), names.index("second = 2")
    small = replace(H200, multiprocessors=1, resident_threads=16)
    many, few = (all_before(dealt_out(operations, one, branches=True)) for one in (H200, small))
    assert x not in many[y] and x in few[y]
    assert first not in few[last] and not few[last] & {x, y}
    assert levels(dealt_out(operations, small, branches=False)) == list(range(1, len(operations) + 1))


def test_the_vortex_runs_slopes_and_opposite_sides_together() -> None:
    ml.use("silent")
    case = VortexOutflow(VortexOutflow.Config())
    recording: Any = case.program._fused_recording()
    steps, dealt = recording.program.body, recording._replay.dealt
    before = all_before(dealt)
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
