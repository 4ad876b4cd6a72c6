"""What a rank has of sets, as loops come one after the other: owners stay, and so does what no loop has changed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.dist import local
from meshloom.dist.halo import DistributedSet, distributed
from meshloom.dist.local import Distribution, distribution, owned_alone
from meshloom.dist.usage import link_of
from meshloom.dist.world import World

FIRST = World(0, 2)  # of two ranks, by itself: nothing is sent


def things_and_places() -> tuple[ml.Set, ml.Set, ml.Map]:
    things, places = ml.Set(8, "things"), ml.Set(8, "places")
    return things, places, ml.Map(things, places, np.arange(8)[::-1], "turned")


def test_a_part_by_itself_leaves_the_owners_of_its_set() -> None:
    """The things follow the places, in the opposite order; cut by themselves they would not."""
    things, places, turned = things_and_places()
    before = distribution(FIRST, [things, places], {turned: False})
    owners, maps = before.owners[things].tolist(), dict(before.maps)
    assert owners == [1] * 4 + [0] * 4
    part = things.subset([0, 1, 7])
    found = distribution(FIRST, [part], {})
    assert found.owners[things].tolist() == owners and found.owners[part].tolist() == [1, 1, 0]
    assert found.maps == maps and distribution(FIRST, [things, places], {turned: False}) is found


def test_a_part_that_nobody_has_is_forgotten() -> None:
    """Parts of parts, too, and what was made of them."""
    things, places, turned = things_and_places()
    cut = distribution(FIRST, [things, places], {turned: False})
    gone = []
    for k in range(1, 7):
        part = things.subset([0, k, 7])
        inner = part.subset([1])
        for one in (part, inner):
            assert distribution(FIRST, [one], {one.members: False}) is cut
            assert cut.local_map(one.members).source is cut.local(one).set
        gone += [weakref.ref(part), weakref.ref(inner)]
    cut.uncompared = []
    del part, inner, one
    gc.collect()
    assert not any(one() for one in gone)
    known = cut.owners, cut.sets, cut.maps, cut.versions, cut._local, cut._local_maps
    assert [len(one) for one in known] == [2, 2, 1, 1, 1, 0] and cut.local(things) is cut.local(things)


def test_a_part_with_rows_of_a_map_is_forgotten_and_halos_stay() -> None:
    """Those that its loops write and read through: one rank may forget it before another makes halos again."""
    things, places = ml.Set(8, "things"), ml.Set(8, "places")
    turned = ml.Map(things, places, np.arange(8)[::-1], "turned")
    further = ml.Map(things, places, (np.arange(8) + 3) % 8, "further")
    cut, gone = distribution(FIRST, [things, places], {turned: False}), []
    owners = cut.owners[things].tolist()
    for k in range(1, 7):
        part = things.subset([0, k, 7])
        inner = part.subset([0, 1])
        for one in (part, inner):
            map_ = one.restricted(further)
            assert distribution(FIRST, [one, places], {map_: k == 3, one.members: False}) is cut
            assert cut.local_map(map_).source is cut.local(one).set
        gone += [weakref.ref(part), weakref.ref(inner)]
    cut.uncompared, before = [], [arrays(cut.halos(one)) for one in (things, places)]
    assert cut.owners[things].tolist() == owners and cut.maps[further], "which some part writes through"
    del part, inner, one, map_
    gc.collect()
    assert not any(one() for one in gone)
    known = cut.owners, cut.sets, cut.maps, cut.versions
    assert [len(one) for one in known] == [2, 2, 2, 2]
    cut._due = {things, places}
    assert [arrays(cut.halos(one)) for one in (things, places)] == before


def test_maps_that_halos_depend_on_stay() -> None:
    """Ranks would forget them at different times."""
    things, places, _ = things_and_places()
    part = things.subset([0, 1])
    far = ml.Map(part, places, [0, 7], "far")
    cut = distribution(FIRST, [things, places], {far: False})
    before = arrays(cut.halos(places))
    del part, far
    gc.collect()
    straight = ml.Map(places, things, np.arange(8), "straight")
    distribution(FIRST, [places], {straight: True})
    assert [one.name for one in cut.maps] == ["far", "straight"] and arrays(cut.halos(places)) == before


def test_a_part_takes_the_owners_of_its_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found out for it, and to ask for its owners leaves everything as it was."""
    things, places, turned = things_and_places()
    cut = distribution(FIRST, [things, places], {turned: False})
    monkeypatch.setattr(local, "owned", None)
    part = things.subset([0, 1, 7])
    inner = part.subset([1, 2])
    cut.uncompared = []
    assert owned_alone(FIRST, part).tolist() == [2] and owned_alone(FIRST, inner).tolist() == [1]
    assert not cut.uncompared and part not in cut.owners
    assert distribution(FIRST, [inner], {inner.members: True}) is cut and cut.uncompared[-2:] != []
    assert cut.owners[inner].tolist() == [1, 0] and cut.owned(inner).tolist() == [1]


def kept(before: Distribution, maps: Mapping[ml.Map, bool], *sets: ml.Set) -> list[bool]:
    """Of which sets a loop that reaches through these maps, too, leaves what is here as it is."""
    had = {one: (before.local(one), before.owners[one].tolist()) for one in sets}
    assert not before.serves(sets, maps)
    found = distribution(FIRST, list(sets), maps)
    assert found is before and all(found.owners[one].tolist() == had[one][1] for one in sets)
    return [found.local(one) is had[one][0] for one in sets]


def test_sets_whose_halos_do_not_grow_stay_as_they_are() -> None:
    things, places, turned = things_and_places()
    before = distribution(FIRST, [things, places], {turned: False})
    local_map = before.local_map(turned)
    straight = ml.Map(places, things, np.arange(8)[::-1], "straight")  # to what its rank owns
    assert kept(before, {straight: True}, things, places) == [True, True]
    now = distribution(FIRST, [things], {})
    assert now.local_map(turned) is local_map
    far = ml.Map(things, places, np.arange(8), "far")  # to what the other one owns
    assert kept(now, {far: False}, things, places) == [True, False]
    assert distribution(FIRST, [things], {}).local_map(turned) is not local_map


def test_maps_with_other_indices_are_made_again() -> None:
    things, places, turned = things_and_places()
    before = distribution(FIRST, [things, places], {turned: False})
    local_map = before.local_map(turned)
    turned.assign(np.array([7, 7, 5, 4, 3, 2, 1, 0]))
    assert kept(before, {turned: False}, things, places) == [True, True]
    assert distribution(FIRST, [things], {}).local_map(turned) is not local_map


def all_halos(cut: Distribution) -> dict[ml.Set, DistributedSet]:
    """Made at once, from who owns what and all maps."""
    links = [link_of(one, updated) for one, updated in cut.maps.items()]
    return distributed(cut.owners, links, cut.world.size)


def arrays(one: DistributedSet) -> list[list[int]]:
    found = [one.owner, one.rim]
    for layer in (one.exec_halo, one.import_halo):
        for lists in (layer.receives, layer.sends):
            found += [lists.ranks, lists.neighbours, lists.offsets, lists.numbers]
    return [each.tolist() for each in found]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_halos_that_grow_are_those_that_are_made_at_once(data: st.DataObject) -> None:
    """Whatever order loops come in, with parts, sets of one element that get an owner, and maps of other indices; maps
    that are here lead where they do in the whole."""
    dice = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    world = World(int(dice.integers(3)), 3)
    sets = [ml.Set(int(size), f"set {k}") for k, size in enumerate(dice.choice([1, 2, 5, 9], 4))]
    sets += [one.subset(dice.permutation(len(one))[: (len(one) + 1) // 2]) for one in sets[:2]]
    maps: list[ml.Map] = []
    for _ in range(8):
        source, target = (sets[k] for k in dice.integers(0, len(sets), 2))
        if dice.random() < 0.2 and maps:
            chosen = maps[dice.integers(len(maps))]
            if not chosen.held_by:
                chosen.assign(dice.integers(0, len(chosen.target), chosen.indices.shape))
        elif dice.random() < 0.3 and isinstance(source, ml.mesh.core.Subset):
            chosen = source.members
        else:
            rows = dice.integers(0, len(target), (len(source), 2))
            chosen = ml.Map(source, target, rows, f"map {len(maps)}")
        maps.append(chosen)
        cut = distribution(world, [chosen.source, chosen.target], {chosen: bool(dice.random() < 0.5)})
        now = {one: one.version for one in cut.maps}
        expected = all_halos(cut)
        for one in (one for one in cut.owners if dice.random() < 0.7):
            assert arrays(cut.halos(one)) == arrays(expected[one])
        for one in (one for one in cut.maps if now[one] == cut.versions[one]):
            source, target, visited = cut.local(one.source), cut.local(one.target), cut.local(one.source).set.owned
            led = target.here[cut.local_map(one).positions[:visited]]
            assert led.tolist() == one.positions[source.here[:visited]].tolist()


def test_halos_shrink_where_a_map_no_longer_leads_abroad() -> None:
    things, places, turned = things_and_places()
    far = ml.Map(things, places, np.arange(8), "far")  # to what the other rank owns
    cut = distribution(FIRST, [things, places], {turned: False, far: False})
    assert len(cut.halos(places).import_halo.receives.numbers)
    far.assign(np.arange(8)[::-1])
    distribution(FIRST, [things], {far: False})
    assert not len(cut.halos(places).import_halo.receives.numbers)
