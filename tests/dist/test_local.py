"""What a rank has of sets, as loops come one after the other: owners stay, and so does what no loop has changed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import meshloom as ml
from meshloom.dist.local import Distribution, distribution
from meshloom.dist.world import World

FIRST = World(0, 2)  # of two ranks, by itself: nothing is sent


def things_and_places() -> tuple[ml.Set, ml.Set, ml.Map]:
    things, places = ml.Set(8, "things"), ml.Set(8, "places")
    return things, places, ml.Map(things, places, np.arange(8)[::-1], "turned")


def test_a_part_by_itself_leaves_the_owners_of_its_set() -> None:
    """The things follow the places, in the opposite order; cut by themselves they would not."""
    things, places, turned = things_and_places()
    before = distribution(FIRST, [things, places], {turned: False})
    owners = before.owners[things].tolist()
    assert owners == [1] * 4 + [0] * 4
    part = things.subset([0, 1, 7])
    found = distribution(FIRST, [part], {})
    assert found.owners[things].tolist() == owners and found.owners[part].tolist() == [1, 1, 0]
    assert found.maps == before.maps and distribution(FIRST, [things, places], {turned: False}) is found


def kept(before: Distribution, maps: Mapping[ml.Map, bool], *sets: ml.Set) -> list[bool]:
    """Of which sets a loop that reaches through these maps, too, leaves what is here as it is."""
    had = {one: before.local(one) for one in sets}
    found = distribution(FIRST, list(sets), maps)
    assert found is not before and all(found.owners[one].tolist() == before.owners[one].tolist() for one in sets)
    return [found.local(one) is had[one] for one in sets]


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
