"""Plans in the cache: shared, verified when they are read, rebuilt where they are damaged."""

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

import meshloom as ml
from meshloom.native import cache
from meshloom.schedule.plan import plan_cache
from meshloom.schedule.plan.plan import Plan, Topology, alike, arrays, leaves
from meshloom.schedule.plan.plan_cache import cached_plan, restored, stored
from meshloom.schedule.strategies import names, strategy, variants, verify
from meshloom.schedule.strategies.common.tiles import TilePlan
from meshloom.target import CPU, H200, Target
from tests.schedule.spoil import Forgetful
from tests.schedule.topologies import grid, neighbourly


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    monkeypatch.setattr(plan_cache, "smallest_stored", lambda: 1)
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
        wrong.reshape(-1)[array.size // 2] += min(10**6, np.iinfo(array.dtype).max // 2)
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
        if found is not None and fewer_pairs and name in ("warp_atomic", "strip") and target.is_simt:
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
