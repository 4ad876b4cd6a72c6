"""Slabs of grids: every rank has what loops see from its points, and messages bring it. All ranks of a world are looked
at one after the other here; ``test_ranks_grids.py`` runs them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.dist.slabs import PlaneStep, Slabs, refusal, slabs
from meshloom.dist.world import World
from meshloom.errors import UserError
from tests.one_line import one_line_from

quick = settings(max_examples=60, deadline=None)
NOWHERE = -1


def all_ranks(grid: ml.Grid, ranks: int, steps: list[PlaneStep]) -> list[Slabs]:
    """As each of the ranks cuts the grid."""
    found = []
    for rank in range(ranks):
        grid.kept.pop("slabs", None)
        found.append(slabs(World(rank, ranks), grid, steps))
    return found


def after_exchange(cut: list[Slabs]) -> list[np.ndarray]:
    """On every rank where the rows that it has come from in the whole, as its own planes and messages say."""
    local = [one.local(one.grid) for one in cut]
    held = [np.full(one.set.total, NOWHERE) for one in local]
    for one, rows in zip(local, held, strict=True):
        rows[one.mine] = one.here[one.mine]
    before = [rows.copy() for rows in held]
    for rank, one in enumerate(local):
        for sender, rows in zip(one.receives.neighbours, one.receives.rows, strict=True):
            assert sender != rank
            sends = local[sender].sends
            held[rank][rows] = before[sender][sends.rows[sends.neighbours.index(rank)]]
    return held


@st.composite
def cuts(draw: st.DrawFn) -> tuple[ml.Grid, int, PlaneStep]:
    """A grid, some ranks, and what a loop reads along the first axis: any that a loop may."""
    axes, ranks = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    n = draw(st.integers(2 * ranks, 4 * ranks + 3))
    shape = (n, *draw(st.lists(st.integers(1, 3), min_size=axes - 1, max_size=axes - 1)))
    ghosts = [draw(st.sampled_from([0, 1, 2, 0])), *(draw(st.integers(0, 1)) for _ in shape[1:])]
    grid = ml.Grid(shape, periodic=draw(st.booleans()), ghosts=ghosts, aligned=draw(st.booleans()))
    least, most = draw(st.sampled_from([(-ghosts[0], n + ghosts[0]), (-ghosts[0], 0), (n, n + ghosts[0])]
                                       if ghosts[0] else [(0, n)]))  # fmt: skip
    low = draw(st.integers(least, most - 1))
    high = draw(st.integers(low + 1, most))
    if grid.wraps[0]:
        return grid, ranks, PlaneStep(low, high, draw(st.sampled_from([-2, -1, 1, 2])))
    steps = [one for one in (-n, n, -3, -2, -1, 1, 2, 3) if low + one >= -ghosts[0] and high + one <= n + ghosts[0]]
    return grid, ranks, PlaneStep(low, high, draw(st.sampled_from(steps or [0])))


@quick
@given(cuts())
def test_every_rank_has_what_loops_see(sample: tuple[ml.Grid, int, PlaneStep]) -> None:
    grid, ranks, seen = sample
    try:
        cut = all_ranks(grid, ranks, [seen])
    except UserError:
        assume(False)
    rest = tuple((0, n) for n in grid.shape[1:])
    box = grid.box(*zip((seen.low, seen.high), *rest, strict=True))
    offsets = grid.offsets((seen.step, *(0,) * (grid.rank - 1)))
    held, visited, owned = after_exchange(cut), [], []
    for one, rows in zip(cut, held, strict=True):
        local = one.local(grid)
        owned.append(local.here[local.mine])
        part = one.part(box)
        if part is not None:
            visited.append(rows[part.rows()])
            (offset,) = one.local_offsets(box, offsets).offsets
            expected = box.rows(offsets.offsets[0])[np.searchsorted(box.rows(), visited[-1])]
            assert np.array_equal(rows[part.rows(offset)], expected)
    assert np.array_equal(np.concatenate(visited), box.rows()), "every point by one rank"
    assert np.array_equal(np.concatenate(owned), np.arange(grid.total)), "every row has one owner"
    planes = np.diff(cut[0].first)
    assert planes.min() >= 1 and planes.max() - planes.min() <= 1


def test_both_neighbours_are_one_rank() -> None:
    grid = ml.Grid((8, 3), periodic=True)
    left, right = all_ranks(grid, 2, [PlaneStep(0, 8, -1), PlaneStep(0, 8, 1)])
    assert left.halo(0).tolist() == [-1, 4] and right.halo(1).tolist() == [3, 8]
    assert left.local(grid).receives.neighbours == left.local(grid).sends.neighbours == (1,)


def test_halos_grow_and_owners_stay() -> None:
    grid, world = ml.Grid((12, 3)), World(1, 3)
    first = slabs(world, grid, [PlaneStep(1, 11, 1)])
    assert first.depth == (1, 0) and slabs(world, grid, [PlaneStep(2, 10, -1)]) is first
    further = slabs(world, grid, [PlaneStep(3, 9, -3)])
    assert further.depth == (3, 0) and slabs(world, grid) is further
    assert further.owned(1) == first.owned(1) == (4, 8)


def test_what_fills_ghosts_of_a_periodic_axis_reaches_the_other_end_alone() -> None:
    """Not all planes between."""
    grid = ml.Grid((40, 3), periodic=True, ghosts=(2, 0))
    low = slabs(World(0, 4), grid, [PlaneStep(-2, 0, 40), PlaneStep(40, 42, -40)])
    assert low.depth == (0, 2) and low.halo(0).tolist() == [-4, -3] and not len(low.halo(1))
    assert low.local_offsets(grid.ghost(0, "low"), grid.offsets((40, 1))).offsets == ((-2, 1),)
    assert low.local(grid).receives.neighbours == (3,)


@pytest.mark.parametrize(("ranks", "steps", "ghosts", "message"), [
    (13, [], 0, "13 ranks are too many for grid: .* axis x, and has 12 planes there; at most 12"),
    (7, [PlaneStep(2, 10, 2)], 0, "7 ranks .* has 12 planes there and stencils that look 2 planes far; at most 6"),
    (5, [], 3, "5 ranks .* and ghosts, with what is copied to them, that reach 3 planes far; at most 4"),
])  # fmt: skip
def test_slabs_are_no_thinner_than_what_is_seen(ranks: int, steps: list[PlaneStep], ghosts: int, message: str) -> None:
    grid = ml.Grid((12, 4), ghosts=(ghosts, 0))
    with one_line_from(UserError, message):
        slabs(World(0, ranks), grid, steps)


@ml.kernel
def doubled(u: ml.Read, v: ml.Write):
    v[...] = 2.0 * u


def test_what_does_not_run_is_told() -> None:
    grid, points = ml.Grid((6, 4)), ml.Set(3, "probes")
    where = ml.Map(points, grid, [[1], [5], [9]], "where")
    u, seen = grid.field("u"), points.field("seen", 1)
    part = grid.subset(np.arange(5), "some")
    v = grid.field("v")

    @ml.kernel
    def probe(u: ml.Read, seen: ml.Write) -> None:
        seen[...] = u[0]

    with ml.using("numpy"):
        assert refusal(doubled.loop(grid, u, v)) == refusal(doubled.loop(points, seen, points.field("twice"))) == ""
        assert refusal(probe.loop(points, u[where], seen)) == ""
        assert "in other parts" in refusal(doubled.loop(part, u, v))
        line = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=False))
        cut, whole = (refusal(ml.linalg.LineLoop(grid, axis, line, u, v)) for axis in (0, 1))
        assert "cut along axis x, and no loops run along lines that are cut" in cut and whole == ""
        assert "in other parts" in refusal(doubled.loop(part, part.field("a"), part.field("b")))
