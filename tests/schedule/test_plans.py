"""Plans: random maps for every builder; a verifier that accepts what is right and rejects what is not; the cache."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import PlanError
from meshloom.native import cache
from meshloom.schedule import plan as plans
from meshloom.schedule.neighbours import _padded
from meshloom.schedule.plan import Plan, Topology, cached_plan
from meshloom.schedule.strategies import names, strategy, variants, verify


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """One or two racy maps of any arity, into one set or two, from few or many elements; sometimes in another order."""
    elements = draw(st.integers(0, 70))
    targets = draw(st.integers(1, 40))
    arities = draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))
    same = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    hub = draw(st.booleans())  # everybody meets at one target
    maps, spaces = {}, {}
    for k, arity in enumerate(arities):
        indices = rng.integers(0, targets, (elements, arity)).astype(draw(st.sampled_from([np.int32, np.int64])))
        if hub and elements:
            indices[:, 0] = 0
        maps[k], spaces[k] = (indices, targets), 0 if same else k
    order = rng.permutation(elements) if draw(st.booleans()) else None
    others = {9: rng.integers(0, 30, (elements, 3))} if draw(st.booleans()) else {}
    return Topology(elements, maps, spaces, order, "test", others)


@pytest.mark.parametrize("name, variant", [(name, variant) for name in names() for variant in variants(name)])
@settings(max_examples=60, deadline=None)
@given(topology=topologies(), block=st.integers(1, 50), simt=st.booleans())
def test_the_verifier_accepts_every_plan(name: str, variant: str, topology: Topology, block: int, simt: bool) -> None:
    verify(strategy(name).build(topology, block, simt=simt, variant=variant), topology)


def grid(n: int = 12) -> Topology:
    """Faces of an n x n grid of quads, each with two cells."""
    cell = np.arange(n * n).reshape(n, n)
    pairs = np.concatenate(
        [np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], 1), np.stack([cell[:-1].ravel(), cell[1:].ravel()], 1)]
    )
    return Topology(len(pairs), {0: (pairs.astype(np.int32), n * n)}, {0: 0}, None, "grid")


def spoilt(plan: Plan, name: str, change) -> Plan:
    array = plan.arrays[name].copy()
    change(array)
    return replace(plan, arrays=plan.arrays | {name: array})


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


def neighbourly(by: str) -> Topology:
    """A grid of cells and the faces between them, with their nodes (map 9), as owner sees them on a GPU."""
    mesh = ml.generate.box((20, 20))
    faces, cells, nodes = mesh.faces.size, mesh.face_cells.indices, mesh.face_nodes.indices
    if by == "rows":  # nodes that no two faces of a cell share
        nodes = np.arange(2 * faces).reshape(-1, 2)
    swapped = {} if by == "slots" else {0: frozenset({0, 9})}
    return Topology(faces, {0: (cells, mesh.cells.size)}, {0: 0}, others={9: nodes}, swapped=swapped)


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
    plan = strategy("owner").plan(topology, 16, simt=True)
    verify(plan, topology)
    assert ("ring0_9" in plan.arrays) == (by == "ring")

    def change(values: np.ndarray) -> None:
        inner = 20 * 10 + 10  # a cell with four faces
        one = values[:, inner] if by == "slots" else values.reshape(20 * 20, -1)[inner]
        one[1] += 1

    with pytest.raises(PlanError, match=words):
        verify(spoilt(plan, array, change), topology)
    assert strategy("owner").plan(topology, 16).arrays.keys() == {"offsets0", "entries0"}


@pytest.mark.parametrize("by", ["rows", "ring"])
def test_the_verifier_rejects_lost_and_doubled_neighbours(by: str) -> None:
    topology = neighbourly(by)
    plan = strategy("owner").plan(topology, 16, simt=True)
    with pytest.raises(PlanError, match="gap"):
        verify(spoilt(plan, "near0", lambda a: a.__setitem__(int(np.flatnonzero(a >= 0)[7]), -1)), topology)
    inner = 4 * (20 * 10 + 10)  # a cell with four faces
    with pytest.raises(PlanError, match="marked"):
        verify(spoilt(plan, "near0", lambda a: a.__setitem__(inner, -2)), topology)
    with pytest.raises(PlanError, match="list of marked"):
        verify(replace(plan, arrays=plan.arrays | {"marked0": np.array([3])}), topology)
    with pytest.raises(PlanError, match="another entry"):
        verify(spoilt(plan, "entry0", lambda a: a.__setitem__(inner, a[inner + 1])), topology)


@pytest.mark.parametrize("by", ["slots", "rows", "ring"])
def test_the_verifier_sorts_nothing(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for equal numbers by sorting or hashing took 90 % of the time of a plan with 21 million neighbours."""
    topology = neighbourly(by)
    plan = strategy("owner").plan(topology, 16, simt=True)

    def sorts(*arguments: object, **options: object) -> None:
        raise AssertionError("sorted")

    for name in ("unique", "sort", "argsort", "lexsort", "isin", "setdiff1d"):
        monkeypatch.setattr(np, name, sorts)
    verify(plan, topology)


def test_an_entry_beyond_the_map_is_rejected_not_followed() -> None:
    topology = neighbourly("rows")
    plan = strategy("owner").plan(topology, 16, simt=True)
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
    plan = strategy("owner").plan(topology, 16, simt=True)
    near = plan.arrays["near0"].reshape(-1, 4)
    assert (near > -2).all()  # no cell has to take the general way
    assert (near == -1).sum() == 4 * 20  # one gap for every side at the boundary


@pytest.mark.parametrize("array", ["by_color0", "by_color9"])
def test_the_verifier_rejects_spoilt_maps_by_color(array: str) -> None:
    topology = grid()
    topology = replace(topology, others={9: np.arange(topology.elements * 3).reshape(-1, 3)})
    plan = strategy("color").build(topology, 16, variant="indices")
    assert plan.arrays[array].shape == (2 if array == "by_color0" else 3, topology.elements)
    verify(plan, topology)
    with pytest.raises(PlanError, match=f"{array} does not hold the rows of map {array[-1]}"):
        verify(spoilt(plan, array, lambda a: a[1].__setitem__(7, a[1, 7] + 1)), topology)


def test_elements_numbered_by_color_are_not_looked_up() -> None:
    """Greedy coloring in the order of a greedy coloring finds the same colors again."""
    topology = grid()
    plan = strategy("color").plan(topology, 16)
    rows = topology.maps[0][0][plan.arrays["visit"]]
    again = strategy("color").plan(replace(topology, maps={0: (rows, topology.maps[0][1])}), 16)
    assert again.arrays.keys() == {"color_offsets"}
    np.testing.assert_array_equal(again.arrays["color_offsets"], plan.arrays["color_offsets"])


def test_the_verifier_sees_too_little_scratch_memory() -> None:
    topology = grid()
    plan = strategy("tile").plan(topology, 16)
    with pytest.raises(PlanError, match="scratch"):
        verify(replace(plan, sizes=plan.sizes | {"largest0": 3}), topology)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    monkeypatch.setattr(plans, "SMALLEST_CACHED", 1)
    return tmp_path


def built(monkeypatch: pytest.MonkeyPatch | None = None) -> tuple[Plan, int]:
    """The plan of the grid through the cache, and how often it was really built."""
    calls = []
    tile = strategy("tile")

    def build(topology: Topology, block: int) -> Plan:
        calls.append(1)
        return tile.plan(topology, block)

    return cached_plan(build, "tile", grid(), 16, verify), len(calls)


def test_plans_are_kept_on_disk_and_rebuilt_when_damaged(own_cache: Path) -> None:
    first, times = built()
    assert times == 1
    second, times = built()
    assert times == 0 and second.sizes == first.sizes
    assert all((second.arrays[k] == v).all() and second.arrays[k].dtype == v.dtype for k, v in first.arrays.items())
    (file,) = (own_cache / "plans").iterdir()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for damage in (whole[: len(whole) // 2], b"", b"no zip at all", bytes(flipped)):
        file.write_bytes(damage)
        third, times = built()
        assert times == 1 and third.sizes == first.sizes
        assert built()[1] == 0
    cache.store_arrays("plans", file.stem, {"sizes": np.zeros(1, np.int64)})  # a valid file with the wrong content
    assert built()[1] == 1


@pytest.mark.parametrize("simt", [False, True])
@pytest.mark.parametrize("name, variant", [(name, variant) for name in names() for variant in variants(name)])
def test_every_array_of_a_plan_on_disk_is_checked(own_cache: Path, name: str, variant: str, simt: bool) -> None:
    """An entry of each array and each size is changed in turn: the plan is built again, and replaced."""
    topology = replace(grid(8), order=np.arange(112)[::-1].copy(), digest="turned")
    built_anew: list[int] = []

    def build(topology: Topology, block: int) -> Plan:
        built_anew.append(1)
        return strategy(name).build(topology, block, simt=simt, variant=variant)

    def plan() -> Plan:
        built_anew.clear()
        return cached_plan(build, name, topology, 16, partial(verify, simt=simt, variant=variant))

    first = plan()
    (file,) = (own_cache / "plans").iterdir()
    stored = cache.load_arrays("plans", file.stem)
    assert stored is not None and plan() is not first and not built_anew
    harmless = {"block_atomic": ["shared0"]}.get(name, [])  # more than is needed may be marked
    for key, array in stored.items():
        if key in ("size_names", *harmless) or not array.size:
            continue
        wrong = array.copy()
        wrong.reshape(-1)[array.size // 2] += 10**6
        cache.store_arrays("plans", file.stem, stored | {key: wrong})
        again = plan()
        assert built_anew, key
        assert all(np.array_equal(again.arrays[k], v) for k, v in first.arrays.items()) and again.sizes == first.sizes
        plan()
        assert not built_anew, f"{key}: not replaced"
    for k, size in enumerate(bytes(stored["size_names"]).decode().split()):
        if "_" in size and size[-1].isdigit():  # of pairs of slots only the names count
            continue
        for value in (stored["sizes"][k] + 1, 2**39):  # also one that only makes memory larger
            wrong = stored["sizes"].copy()
            wrong[k] = value
            cache.store_arrays("plans", file.stem, stored | {"sizes": wrong})
            plan()
            assert built_anew, (size, value)
    losses = [{*gone} for number in (1, 2, 3) for gone in combinations(stored, number)]
    for gone in losses:  # also several that belong together
        cache.store_arrays("plans", file.stem, {k: v for k, v in stored.items() if k not in gone})
        plan()
        assert built_anew, gone
    for changed in ({}, stored | {"more": np.ones(3, int)}):
        cache.store_arrays("plans", file.stem, changed)
        plan()
        assert built_anew


def _build_in_a_process(_: int) -> dict[str, int]:
    return built()[0].sizes


def test_concurrent_runs_share_the_cache(own_cache: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        results = pool.map(_build_in_a_process, range(8))
    assert all(r == results[0] for r in results)
    assert not [f for f in (own_cache / "plans").iterdir() if f.name.startswith(".")]


def test_slots_that_often_agree_are_paired_whatever_made_the_mesh() -> None:
    """Hexahedra in rows: the four nodes of one side are those of the next one's other side."""
    mesh = ml.generate.box((12, 3, 2))
    rows = mesh.cell_nodes.indices
    shared = {tuple(sorted(set(a) & set(b))) for a, b in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True)}
    assert max(map(len, shared)) == 4
    topology = Topology(len(rows), {0: (rows, mesh.nodes.size)}, {0: 0})
    plan = strategy("warp_atomic").plan(topology, 32, simt=True)
    verify(plan, topology)
    assert len(plan.sizes) == 4 and strategy("warp_atomic").plan(topology, 32).sizes == {}
    for name, giver in plan.sizes.items():
        taker = int(name.removeprefix("takes0_"))
        assert np.mean(rows[:-1, taker] == rows[1:, giver]) > 0.8
    shuffled = replace(topology, maps={0: (np.random.default_rng(0).permutation(rows), mesh.nodes.size)})
    assert strategy("warp_atomic").plan(shuffled, 32, simt=True).sizes == {}


def test_the_verifier_rejects_slots_in_two_pairs() -> None:
    topology = grid()
    for sizes in ({"takes0_0": 0}, {"takes0_0": 5}, {"takes1_0": 1}):
        with pytest.raises(PlanError, match="in two pairs, or does not exist"):
            verify(Plan("warp_atomic", 16, {}, sizes), topology)
