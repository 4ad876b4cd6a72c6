"""Plans: random maps for every builder; a verifier that accepts what is right and rejects what is not; the cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import PlanError
from meshloom.schedule.plan.declare import Pair
from meshloom.schedule.plan.plan import Plan, Topology, arrays
from meshloom.schedule.strategies import names, strategy, variants, verify
from meshloom.schedule.strategies.color import ColorPlan, IndexedColorPlan
from meshloom.schedule.strategies.common.neighbours import NeighbourPlan, SymmetricTables, _padded
from meshloom.schedule.strategies.common.tiles import TilePlan
from meshloom.schedule.strategies.common.visits import VisitPlan
from meshloom.schedule.strategies.warp_atomic import WarpPlan
from meshloom.target import CPU, H200, Target
from tests.schedule.spoil import replaced, spoilt
from tests.schedule.topologies import grid, neighbourly, topologies


@pytest.mark.parametrize("name, variant", [(name, variant) for name in names() for variant in variants(name)])
@settings(max_examples=60, deadline=None)
@given(topology=topologies(), block=st.integers(1, 50), target=st.sampled_from([CPU, H200]))
def test_the_verifier_accepts_every_plan(name: str, variant: str, topology: Topology, block: int, target: Target):
    verify(strategy(name).build(topology, block, target=target, variant=variant), topology)


def swap(a: int, b: int):
    def change(array: np.ndarray) -> None:
        array[[a, b]] = array[[b, a]]

    return change


def put(position: int, value: int):
    def change(array: np.ndarray) -> None:
        array[position] = value

    return change


@pytest.mark.parametrize(
    ("name", "array", "change", "words"),
    [
        ("color", "visit", swap(0, -1), "share a target"),
        ("color", "visit", put(3, 4), "exactly once"),
        ("color", "visit", put(3, 10**6), "out of bounds"),
        ("color", "visit", put(3, -1), "out of bounds"),
        ("color", "color_offsets", put(1, 5), "share a target"),
        ("color", "color_offsets", put(-1, 5), "does not run"),
        ("block_color", "block_list", swap(0, -1), "share a target"),
        ("block_color", "block_list", put(0, 1), "exactly once"),
        ("block_color", "block_offsets", put(1, 20), "more than"),
        ("block_color", "color_offsets", put(0, 1), "does not run"),
        ("block_atomic", "shared0", lambda a: a.fill(0), "not marked"),
        ("block_atomic", "block_offsets", put(1, 2), "more than"),
        ("staged", "entries0", swap(0, -1), "wrong target"),
        ("staged", "entries0", put(0, 5), "wrong target"),
        ("staged", "entries0", lambda a: put(1, a[0])(a), "missing or doubled"),
        ("staged", "entries0", swap(0, 1), "not ascending"),
        ("owner", "entries0", put(0, -4), "out of bounds"),
        ("owner", "offsets0", put(3, 1), "ascending"),
        ("tile", "local0", swap(0, -1), "out of bounds|wrong target|missing"),
        ("tile", "tile_elements0", swap(0, 1), "ascending"),
        ("tile", "tile_elements0", put(0, 10**6), "out of bounds"),
        ("tile", "tile_offsets0", put(1, 0), "out of bounds|ascending|wrong|missing"),
    ],
)
def test_the_verifier_rejects_spoilt_plans(name: str, array: str, change, words: str) -> None:
    topology = grid()
    plan = strategy(name).plan(topology, 16)
    verify(plan, topology)
    with pytest.raises(PlanError, match=words):
        verify(spoilt(plan, array, change), topology)


@pytest.mark.parametrize(
    ("by", "array", "words"),
    [
        ("slots", "entry0", "another entry"),
        ("slots", "near0_0", "wrong rows of map 0"),
        ("slots", "near0_9", "wrong rows of map 9"),
        ("rows", "entry0", "another entry"),
        ("rows", "near0", "wrong rows of map 0"),
        ("rows", "rows0_9", "wrong rows of map 9"),
        ("ring", "entry0", "another entry"),
        ("ring", "near0", "wrong rows of map 0"),
        ("ring", "ring0_9", "wrong rows of map 9"),
    ],
)
def test_the_verifier_rejects_spoilt_neighbour_tables(by: str, array: str, words: str) -> None:
    topology = neighbourly(by)
    plan = strategy("owner").plan(topology, 16, target=H200)
    verify(plan, topology)
    assert ("ring0_9" in arrays(plan)) == (by == "ring")

    def change(values: np.ndarray) -> None:
        inner = 20 * 10 + 10  # a cell with four faces
        one = values[:, inner] if by == "slots" else values.reshape(20 * 20, -1)[inner]
        one[1] += 1

    with pytest.raises(PlanError, match=words):
        verify(spoilt(plan, array, change), topology)
    assert arrays(strategy("owner").plan(topology, 16)).keys() == {"offsets0", "entries0"}


def with_tables(plan: Plan, **others: object) -> Plan:
    """The plan with something else in the tables of map 0."""
    assert isinstance(plan, NeighbourPlan)
    found = plan.gathers[0]
    assert isinstance(found.tables, SymmetricTables)
    return replace(plan, gathers={0: replace(found, tables=replace(found.tables, **others))})  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["rows", "ring"])
def test_the_verifier_rejects_lost_and_doubled_neighbours(by: str) -> None:
    topology = neighbourly(by)
    plan = strategy("owner").plan(topology, 16, target=H200)
    with pytest.raises(PlanError, match="gap"):
        verify(spoilt(plan, "near0", lambda a: a.__setitem__(int(np.flatnonzero(a >= 0)[7]), -1)), topology)
    inner = 4 * (20 * 10 + 10)  # a cell with four faces
    with pytest.raises(PlanError, match="marked"):
        verify(spoilt(plan, "near0", lambda a: a.__setitem__(inner, -2)), topology)
    with pytest.raises(PlanError, match="list of marked"):
        verify(with_tables(plan, marked=np.array([3])), topology)
    with pytest.raises(PlanError, match="another entry"):
        verify(spoilt(plan, "entry0", lambda a: a.__setitem__(inner, a[inner + 1])), topology)


@pytest.mark.parametrize("by", ["slots", "rows", "ring"])
def test_the_verifier_sorts_nothing(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for equal numbers by sorting or hashing took 90 % of the time of a plan with 21 million neighbours."""
    topology = neighbourly(by)
    plan = strategy("owner").plan(topology, 16, target=H200)

    def sorts(*arguments: object, **options: object) -> None:
        raise AssertionError("sorted")

    for name in ("unique", "sort", "argsort", "lexsort", "isin", "setdiff1d"):
        monkeypatch.setattr(np, name, sorts)
    verify(plan, topology)


def test_an_entry_beyond_the_map_is_rejected_not_followed() -> None:
    topology = neighbourly("rows")
    plan = strategy("owner").plan(topology, 16, target=H200)
    inner = 4 * (20 * 10 + 10)
    with pytest.raises(PlanError, match="another entry"):
        verify(spoilt(plan, "entry0", lambda a: a.__setitem__(inner, 2 * topology.elements)), topology)


def test_tables_keep_as_many_entries_as_there_is_room_for() -> None:
    """Targets with more elements than usual are marked, and keep none; the others keep theirs in order."""
    offsets, entries = np.array([0, 3, 3, 8, 10]), np.arange(10, dtype=np.int32)
    table, fits = _padded(offsets, entries, 3)
    assert table.tolist() == [[0, 1, 2], [-1, -1, -1], [3, 4, 5], [8, 9, -1]]
    assert fits.tolist() == [True, True, False, True] and table.dtype == np.int32
    empty, all_fit = _padded(np.zeros(3, np.int64), np.zeros(0, np.int32), 2)
    assert (empty == -1).all() and empty.shape == (2, 2) and all_fit.all()


def test_rings_go_round_every_cell_and_leave_gaps_at_the_boundary() -> None:
    topology = neighbourly("ring")
    plan = strategy("owner").plan(topology, 16, target=H200)
    near = arrays(plan)["near0"].reshape(-1, 4)
    assert (near > -2).all()  # no cell has to take the general way
    assert (near == -1).sum() == 4 * 20  # one gap for every side at the boundary


@pytest.mark.parametrize("number", [0, 9])
def test_the_verifier_rejects_spoilt_maps_by_color(number: int) -> None:
    topology = grid()
    topology = replace(topology, others={9: np.arange(topology.elements * 3).reshape(-1, 3)})
    plan = strategy("color").build(topology, 16, variant="indices")
    assert isinstance(plan, IndexedColorPlan)
    assert plan.by_color[number].shape == ({0: 2, 9: 3}[number], topology.elements)
    verify(plan, topology)
    with pytest.raises(PlanError, match=f"by_color does not hold the rows of map {number}"):
        verify(spoilt(plan, f"by_color{number}", lambda a: a[1].__setitem__(7, a[1, 7] + 1)), topology)


def test_elements_numbered_by_color_are_not_looked_up() -> None:
    """Greedy coloring in the order of a greedy coloring finds the same colors again."""
    topology = grid()
    plan = strategy("color").plan(topology, 16)
    assert isinstance(plan, ColorPlan)
    rows = topology.maps[0][0][plan.visit]
    again = strategy("color").plan(replace(topology, maps={0: (rows, topology.maps[0][1])}), 16)
    assert isinstance(again, ColorPlan) and again.visit is None
    np.testing.assert_array_equal(again.color_offsets, plan.color_offsets)


def test_sizes_follow_from_the_arrays() -> None:
    """So that scratch memory is never too small for what is kept in it."""
    plan = strategy("tile").plan(grid(), 16)
    assert isinstance(plan, TilePlan)
    found = plan.tiled[0]
    assert found.largest == np.diff(found.tile_offsets).max() and found.tiles == 9
    one = replace(found, tile_offsets=np.array([0, 3]))
    assert (one.largest, one.tiles) == (3, 1)
    with pytest.raises(PlanError, match="number or size of tiles"):
        verify(replace(plan, tiled={0: replace(found, tile=17)}), grid())


def test_a_plan_of_another_type_or_form_is_rejected() -> None:
    topology = grid()
    plan = strategy("color").plan(topology, 16)
    assert isinstance(plan, ColorPlan)
    with pytest.raises(PlanError, match="its type is ColorPlan, expected IndexedColorPlan"):
        verify(plan, topology, target=CPU, variant="indices")
    with pytest.raises(PlanError, match="its type is VisitPlan, expected StripPlan"):
        verify(strategy("strip").plan(topology, 16), topology, target=H200)
    ordered = replace(topology, order=np.arange(topology.elements)[::-1].copy())
    for wrong, about, words in (
        (replace(plan, color_offsets=None), topology, "color_offsets is missing"),
        (replace(plan, color_offsets=[0, 1]), topology, "color_offsets is no array"),
        (replaced(plan, "visit", np.zeros((4, 4), np.int32)), topology, "visit has 4 x 4 entries"),
        (replaced(plan, "visit", np.zeros(4, np.float32)), topology, "visit is of float32"),
        (VisitPlan("atomic", 16, None), ordered, "visit is missing"),
        (VisitPlan("atomic", 16, np.arange(topology.elements)), topology, "visit should not be there"),
        (VisitPlan("atomic", 16, np.arange(topology.elements)), ordered, "not the order that was asked for"),
        (WarpPlan("warp_atomic", 16, None, {1: ()}), topology, "takes is not for 0"),
        (WarpPlan("warp_atomic", 16, None, {0: ((0, 1),)}), topology, "does not hold pairs"),  # type: ignore[dict-item]
    ):
        with pytest.raises(PlanError, match=words):
            verify(wrong, about)


def test_slots_that_often_agree_are_paired_whatever_made_the_mesh() -> None:
    """Hexahedra in rows: the four nodes of one side are those of the next one's other side."""
    mesh = ml.generate.box((12, 3, 2))
    rows = mesh.cell_nodes.indices
    shared = {tuple(sorted(set(a) & set(b))) for a, b in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True)}
    assert max(map(len, shared)) == 4
    topology = Topology(len(rows), {0: (rows, mesh.nodes.size)}, {0: 0})
    plan = strategy("warp_atomic").plan(topology, 32, target=H200)
    verify(plan, topology)
    assert isinstance(plan, WarpPlan) and len(plan.takes[0]) == 4
    for taker, giver in plan.takes[0]:
        assert np.mean(rows[:-1, taker] == rows[1:, giver]) > 0.8
    assert not isinstance(strategy("warp_atomic").plan(topology, 32), WarpPlan)
    shuffled = replace(topology, maps={0: (np.random.default_rng(0).permutation(rows), mesh.nodes.size)})
    plan = strategy("warp_atomic").plan(shuffled, 32, target=H200)
    assert isinstance(plan, WarpPlan) and plan.takes == {0: ()}


def test_the_verifier_rejects_slots_in_two_pairs() -> None:
    topology = grid()
    verify(WarpPlan("warp_atomic", 16, None, {0: (Pair(0, 1),)}), topology)
    for pairs in ((Pair(0, 0),), (Pair(0, 5),), (Pair(0, 1), Pair(0, 1))):
        with pytest.raises(PlanError, match="in two pairs, or does not exist"):
            verify(WarpPlan("warp_atomic", 16, None, {0: pairs}), topology)
