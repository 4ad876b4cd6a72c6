"""Plans: random maps for every builder; a verifier that accepts what is right and rejects what is not; the cache."""

from __future__ import annotations

import gc
import json
import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import PlanError
from meshloom.native import cache
from meshloom.schedule.plan import plan_cache
from meshloom.schedule.plan.declare import Pair
from meshloom.schedule.plan.plan import Plan, Topology, alike, arrays, leaves
from meshloom.schedule.plan.plan_cache import cached_plan, restored, stored
from meshloom.schedule.strategies import names, strategy, variants, verify
from meshloom.schedule.strategies.color import ColorPlan, IndexedColorPlan
from meshloom.schedule.strategies.common.neighbours import RoleTables, _padded
from meshloom.schedule.strategies.direct import VisitPlan
from meshloom.schedule.strategies.owner import NeighbourPlan
from meshloom.schedule.strategies.tile import TilePlan
from meshloom.schedule.strategies.warp_atomic import WarpPlan
from meshloom.target import CPU, H200, Target
from tests.schedule.spoil import Forgetful, replaced, spoilt


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
@given(topology=topologies(), block=st.integers(1, 50), target=st.sampled_from([CPU, H200]))
def test_the_verifier_accepts_every_plan(name: str, variant: str, topology: Topology, block: int, target: Target):
    verify(strategy(name).build(topology, block, target=target, variant=variant), topology)


def grid(n: int = 12) -> Topology:
    """Faces of an n x n grid of quads, each with two cells."""
    cell = np.arange(n * n).reshape(n, n)
    pairs = np.concatenate(
        [np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], 1), np.stack([cell[:-1].ravel(), cell[1:].ravel()], 1)]
    )
    return Topology(len(pairs), {0: (pairs.astype(np.int32), n * n)}, {0: 0}, None, "grid")


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
    assert isinstance(found.tables, RoleTables)
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


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    monkeypatch.setattr(plan_cache, "SMALLEST_CACHED", 1)
    monkeypatch.setattr(plan_cache, "_living", Forgetful())
    return tmp_path


def built(monkeypatch: pytest.MonkeyPatch | None = None) -> tuple[Plan, int]:
    """The plan of the grid through the cache, and how often it was really built."""
    calls = []
    tile = strategy("tile")

    def build(topology: Topology, block: int) -> Plan:
        calls.append(1)
        return tile.plan(topology, block)

    return cached_plan(build, TilePlan, "tile", grid(), 16, verify), len(calls)


def test_plans_are_kept_on_disk_and_rebuilt_when_damaged(own_cache: Path) -> None:
    first, times = built()
    assert times == 1
    second, times = built()
    assert times == 0 and alike(first, second)
    assert [a.dtype for a in arrays(first).values()] == [a.dtype for a in arrays(second).values()]
    (file,) = (own_cache / "plans").iterdir()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for damage in (whole[: len(whole) // 2], b"", b"no zip at all", bytes(flipped)):
        file.write_bytes(damage)
        third, times = built()
        assert times == 1 and alike(first, third)
        assert built()[1] == 0
    before = {"sizes": np.zeros(1, np.int64), "size_names": np.frombuffer(b"tiles0", np.uint8)}
    cache.store_arrays("plans", file.stem, arrays(first) | before)  # as an older version wrote them
    assert built()[1] == 1


def test_a_plan_that_somebody_has_is_not_read_again(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    living: WeakValueDictionary[str, Plan] = WeakValueDictionary()
    monkeypatch.setattr(plan_cache, "_living", living)
    first, _ = built()
    (file,) = (own_cache / "plans").iterdir()
    file.write_bytes(b"no zip at all")
    again, times = built()
    assert again is first and times == 0
    maps = replace(grid(5), digest="others")
    other = strategy("tile").plan(maps, 16)
    assert cached_plan(lambda *_, made=other: made, TilePlan, "tile", maps, 16, verify) is other
    del first, again, other
    gc.collect()
    assert not living and built()[1] == 1
    with plan_cache.plans_held():
        number = id(built()[0])
        gc.collect()
        assert len(living) == 1 and id(built()[0]) == number
    gc.collect()
    assert not living


def test_blocks_of_other_sizes_share_the_arrays_that_do_not_depend_on_them(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_cache, "_living", WeakValueDictionary())
    owner, topo = strategy("owner"), grid()
    kind = owner.plan_type(target=CPU, variant="")

    def of(block: int) -> Plan:
        return cached_plan(partial(owner.build, target=CPU), kind, "owner", topo, block, verify, by_block=False)

    small, large = of(16), of(64)
    assert (small.block, large.block) == (16, 64)
    ours, theirs = arrays(small), arrays(large)
    assert ours.keys() == theirs.keys() and all(ours[name] is theirs[name] for name in ours)
    assert ours and not any(one.flags.writeable for one in ours.values()), "what loops share nobody changes"


def test_weighing_ways_to_fuse_reads_every_plan_once(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "_living", WeakValueDictionary())
    read: list[str] = []
    inner = plan_cache._read_or_built

    def counted(*arguments: Any) -> Plan:
        read.append(arguments[-1])
        return inner(*arguments)

    monkeypatch.setattr(plan_cache, "_read_or_built", counted)
    mesh = ml.generate.box((12, 12), cells="triangle")
    u, rate, size = (mesh.cells.field(name, data=np.ones(len(mesh.cells))) for name in ("u", "rate", "size"))

    @ml.kernel
    def empty(rate: ml.Write):
        rate[...] = 0.0

    @ml.kernel
    def exchange(u: ml.Read, rate: ml.Inc):
        rate[0] += u[1] - u[0]
        rate[1] += u[0] - u[1]

    @ml.kernel
    def advance(rate: ml.Read, size: ml.Read, u: ml.ReadWrite):
        u += 0.01 * rate / size

    @ml.program
    def step():
        for _ in range(3):
            empty(mesh.cells, rate)
            exchange(mesh.faces, u[mesh.face_cells], rate[mesh.face_cells])
            advance(mesh.cells, rate, size, u)

    with ml.using("emulated"):
        step.run(2)
    assert read and len(read) == len(set(read))


class OnDisk:
    """The plan of a strategy that is read from the disk, where other things can be put in its place."""

    def __init__(self, folder: Path, name: str, variant: str, target: Target):
        self.name, self.variant, self.target = name, variant, target
        self.topology = replace(grid(8), order=np.arange(112)[::-1].copy(), digest="turned")
        self.built = 0
        self.first = self.plan()
        (self.file,) = (folder / "plans").iterdir()
        entry = cache.load_arrays("plans", self.file.stem)
        assert entry is not None and self.plan() is not self.first and self.built == 1
        self.entry = entry

    @property
    def kind(self) -> type[Plan]:
        return strategy(self.name).plan_type(target=self.target, variant=self.variant)

    def plan(self) -> Plan:
        def build(topology: Topology, block: int) -> Plan:
            self.built += 1
            return strategy(self.name).build(topology, block, target=self.target, variant=self.variant)

        right = partial(verify, target=self.target, variant=self.variant)
        return cached_plan(build, self.kind, self.name, self.topology, 16, right)

    def is_built_again(self, entry: dict[str, np.ndarray]) -> bool:
        """Whether the plan is built again, and right, with this on the disk; the next time it is read again."""
        cache.store_arrays("plans", self.file.stem, entry)
        before = self.built
        assert alike(self.plan(), self.first)
        again = self.built > before
        assert again is False or (self.plan() is not None and self.built == before + 1), "not replaced"
        return again


def outlines_without_a_part(outline: Any) -> Iterator[Any]:
    """Copies of an outline with one field, entry of a table or pair after the other left out or emptied."""
    if isinstance(outline, dict):
        for key, value in outline.items():
            yield {k: v for k, v in outline.items() if k != key}
            if value is not None:
                yield outline | {key: None}
            for less in outlines_without_a_part(value):
                yield outline | {key: less}
    elif isinstance(outline, list):
        for k, value in enumerate(outline):
            yield outline[:k] + outline[k + 1 :]
            for less in outlines_without_a_part(value):
                yield [*outline[:k], less, *outline[k + 1 :]]


def as_text(outline: Any) -> dict[str, np.ndarray]:
    return {plan_cache.OUTLINE: np.frombuffer(json.dumps(outline).encode(), np.uint8)}


every_plan = pytest.mark.parametrize(
    "name, variant, target", [(n, v, target) for n in names() for v in variants(n) for target in (CPU, H200)]
)


@every_plan
def test_every_array_of_a_plan_on_disk_is_checked(own_cache: Path, name: str, variant: str, target: Target) -> None:
    """An entry of each array is changed in turn, and each is left out: the plan is built again, and replaced."""
    disk = OnDisk(own_cache, name, variant, target)
    read = restored(disk.kind, name, 16, disk.entry)
    numbered = [path for path, one in leaves(read) if isinstance(one, np.ndarray)]
    assert len(numbered) == len(disk.entry) - 1
    for path, (key, array) in zip(numbered, list(disk.entry.items())[1:], strict=True):
        for less in ({k: v for k, v in disk.entry.items() if k != key}, disk.entry | {key: array.astype(np.float64)}):
            assert disk.is_built_again(less), path
        if "shared" in path or not array.size:  # more than is needed may be marked
            continue
        wrong = array.copy()
        wrong.reshape(-1)[array.size // 2] += 10**6
        assert disk.is_built_again(disk.entry | {key: wrong}), path
    assert disk.is_built_again({}) and disk.is_built_again(disk.entry | {"more": np.ones(3, int)})


@every_plan
def test_every_part_of_an_outline_is_checked(own_cache: Path, name: str, variant: str, target: Target) -> None:
    """Nothing may be missing; pairs of slots may be fewer, which costs nothing but time. Schema and types are told."""
    disk = OnDisk(own_cache, name, variant, target)
    outline = json.loads(bytes(disk.entry[plan_cache.OUTLINE]))
    assert outline["schema"] == plan_cache.SCHEMA and outline["plan"]["type"] == disk.kind.__name__
    for less in outlines_without_a_part(outline):
        found = restored(disk.kind, name, 16, disk.entry | as_text(less))
        fewer_pairs = found is not None and len(list(leaves(found))) < len(list(leaves(disk.first)))
        if found is not None and fewer_pairs and name in ("warp_atomic", "strip") and target.together:
            continue
        assert disk.is_built_again(disk.entry | as_text(less)), less
    plan = outline["plan"]
    for other in (
        outline | {"schema": plan_cache.SCHEMA - 1},
        outline | {"plan": plan | {"type": "Plan"}},
        outline | {"plan": plan | {"fields": plan["fields"] | {"more": 0}}},
        outline | {"more": 1}, [outline], None, 3, "[" * 10**5,
    ):  # fmt: skip
        assert disk.is_built_again(disk.entry | as_text(other)), other


@every_plan
def test_plans_come_back_from_the_disk_as_they_were(name: str, variant: str, target: Target) -> None:
    for topology in (grid(), neighbourly("ring"), neighbourly("slots")):
        plan = strategy(name).build(topology, 16, target=target, variant=variant)
        again = restored(type(plan), name, 16, stored(plan))
        assert type(again) is type(plan) and alike(again, plan)


def _build_in_a_process(_: int) -> Plan:
    return built()[0]


def test_concurrent_runs_share_the_cache(own_cache: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        results = pool.map(_build_in_a_process, range(8))
    assert all(alike(one, results[0]) for one in results)
    assert not [f for f in (own_cache / "plans").iterdir() if f.name.startswith(".")]


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
