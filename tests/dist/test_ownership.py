"""Sets follow those that are cut: through their maps, parts through what they are parts of, the rest by numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.dist.halo import distributed
from meshloom.dist.ownership import EVERY, Link, everywhere, owners
from meshloom.dist.partition import runs
from meshloom.dist.verify import verify


def test_an_element_belongs_to_the_rank_of_its_lowest_target() -> None:
    cells = np.array([1, 0, 2], np.int32)
    links = [Link("faces", "cells", np.array([(2, 1), (1, 0), (2, 2)]))]
    found = owners({"cells": 3, "faces": 3}, {"cells": cells}, links, 3)
    assert found["faces"].tolist() == [0, 1, 2] and found["cells"] is cells


def test_what_is_only_led_to_belongs_to_the_lowest_that_leads_there() -> None:
    """Node 4 is in no cell: it is shared out by its number, as if there were no others."""
    links = [Link("cells", "nodes", np.array([(3, 1, 2), (2, 0, 1)]))]
    found = owners({"cells": 2, "nodes": 5}, {"cells": np.array([1, 0], np.int32)}, links, 2)
    assert found["nodes"].tolist() == [0, 1, 1, 1, *runs(np.ones(1), 2)]


def test_one_element_on_every_rank_has_an_owner_once_something_is_added_to_it() -> None:
    """Each rank would add what it has, and no two would have the same."""
    everywhere_at_first = {"clock": np.full(1, EVERY, np.int32)}
    links = [Link("cells", "clock", np.zeros((4, 1), np.int64))]
    assert everywhere(owners({"cells": 4, "clock": 1}, everywhere_at_first, links, 2)["clock"])
    links = [Link("cells", "clock", np.zeros((4, 1), np.int64), updated=True)]
    found = owners({"cells": 4, "clock": 1}, everywhere_at_first, links, 2)
    assert found["clock"].tolist() == found["cells"].tolist()[:1] != [EVERY]


def test_a_set_with_a_guide_follows_that_alone() -> None:
    """Neither what else it leads to, nor what leads to it; and it is not cut by itself."""
    links = [
        Link("entries", "rows", np.array([[0], [0], [1], [2]]), guide=True),
        Link("entries", "columns", np.array([[2], [1], [0], [0]])),
        Link("things", "entries", np.array([[3], [2], [1]]), updated=True),
    ]
    columns, sizes = np.array([2, 1, 0], np.int32), {"entries": 4, "things": 3, "columns": 3, "rows": 3}
    found = owners(sizes, {"columns": columns}, links, 3)
    assert found["rows"].tolist() == [0, 1, 2] and found["entries"].tolist() == [0, 0, 1, 2]
    assert found["things"].tolist() == [2, 1, 0]
    assert owners(sizes, {"things": np.array([2, 2, 2], np.int32)}, links, 3)["entries"].tolist() == [0, 0, 1, 2]


def reference(sizes: dict[str, int], cut: dict[str, list[int]], links: list[Link], ranks: int) -> dict[str, list[int]]:
    """The rules as the docs have them: all sets that can follow their targets do so at once, then the next ones, and
    only where there are none those that follow what leads to them."""

    def in_runs(n: int) -> list[int]:
        return [int((2 * k + 1) * ranks // (2 * n)) for k in range(n)]

    def guides(key: str) -> bool:
        return key in found and found[key] != [EVERY]

    def by_targets(key: str) -> list[int] | None:
        of_set = [one for one in links if one.source == key and one.as_member]
        if of_set:
            (link,) = of_set
            return [found[link.target][t] for (t,) in link.rows.tolist()] if link.target in found else None
        for link in links:
            if link.source == key and guides(link.target):
                return [found[link.target][min(row)] for row in link.rows.tolist()]
        return None

    def by_sources(key: str) -> list[int] | None:
        there = [one for one in links if one.target == key and not one.as_member and guides(one.source)]
        if not there or key in parts:
            return None
        owner = []
        for k in range(sizes[key]):
            leading = [(link, e) for link in there for e, row in enumerate(link.rows.tolist()) if k in row]
            owner.append(found[leading[0][0].source][leading[0][1]] if leading else EVERY)
        left = iter(in_runs(owner.count(EVERY)))
        return [next(left) if one == EVERY else one for one in owner]

    parts = {one.source for one in links if one.as_member}
    added_to = {one.target for one in links if one.updated}
    found = {key: [EVERY] for key, size in sizes.items() if size == 1 and key not in parts | added_to} | cut
    while len(found) < len(sizes):
        waiting = [key for key in sizes if key not in found]
        next_ones = {key: owner for key in waiting if (owner := by_targets(key)) is not None}
        if not next_ones:
            next_ones = {key: owner for key in waiting if (owner := by_sources(key)) is not None}
        if not next_ones:
            left = [key for key in sizes if key not in found and key not in parts]
            led_to = {key: sum(one.target == key and not one.as_member for one in links) for key in left}
            first = max(left, key=lambda key: (led_to[key], sizes[key]))
            next_ones = {first: in_runs(sizes[first])}
        found |= next_ones
    return found


def test_maps_that_lead_to_a_set_complete_each_other() -> None:
    """As the entries of a matrix: cells lead to those on its diagonal, faces, which follow the cells, to the others; of
    two that reach one element the first counts."""
    links = [
        Link("cells", "entries", np.array([[0], [1], [2]])),
        Link("faces", "entries", np.array([(3, 4), (5, 2)])),
        Link("faces", "cells", np.array([(1, 2), (0, 1)])),
    ]
    cells = np.array([2, 1, 0], np.int32)
    found = owners({"entries": 6, "faces": 2, "cells": 3}, {"cells": cells}, links, 3)
    assert found["faces"].tolist() == [1, 2] and found["entries"].tolist() == [2, 1, 0, 1, 1, 2]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, np.ndarray], list[Link], int]:
    """Sets, parts of them and parts of these, maps between all, of which at most one is cut, into parts of any size."""
    ranks, rng = draw(st.integers(1, 6)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = {name: draw(st.integers(0, 9)) for name in "abc"[: draw(st.integers(1, 3))]}
    links = []
    for name in "xyz"[: draw(st.integers(0, 3))]:
        of = draw(st.sampled_from(sorted(sizes)))
        numbers = np.flatnonzero(rng.random(sizes[of]) < 0.5)
        links.append(Link(name, of, numbers[:, None], as_member=True))
        sizes[name] = len(numbers)
    for _ in range(draw(st.integers(0, 5))):
        source, target = (draw(st.sampled_from(sorted(sizes))) for _ in range(2))
        if sizes[target]:
            rows = rng.integers(0, sizes[target], (sizes[source], draw(st.integers(1, 3))))
            links.append(Link(source, target, rows, updated=draw(st.booleans())))
    cut = {"a": rng.integers(0, ranks, sizes["a"]).astype(np.int32)} if draw(st.booleans()) else {}
    return sizes, cut, links, ranks


@settings(max_examples=50, deadline=None)
@given(worlds())
def test_all_sets_follow_as_written_down(world: tuple[dict[str, int], dict[str, np.ndarray], list[Link], int]) -> None:
    sizes, cut, links, ranks = world
    found = owners(sizes, cut, links, ranks)
    expected = reference(sizes, {key: one.tolist() for key, one in cut.items()}, links, ranks)
    assert {key: one.tolist() for key, one in found.items()} == expected
    assert all(one.dtype == np.int32 for one in found.values())
    verify(distributed(found, links, ranks), links, ranks)


def test_sets_follow_over_several_maps() -> None:
    edges, corners = np.array([(0, 1), (1, 2), (2, 0)]), np.array([(0, 1), (1, 2)])
    links = [Link("edges", "nodes", edges), Link("cells", "nodes", corners)]
    found = owners({"edges": 3, "nodes": 3, "cells": 2}, {"cells": np.array([0, 1], np.int32)}, links, 2)
    assert found["nodes"].tolist() == [0, 0, 1] and found["edges"].tolist() == [0, 0, 0]


def test_a_part_goes_with_its_set_whatever_its_maps_say() -> None:
    """Also a part of one element, and a part of a part; a part of what lives everywhere does so, too."""
    cells = np.array([0, 0, 1, 1], np.int32)
    links = [
        Link("wall", "cells", np.array([[3], [2]]), as_member=True),
        Link("wall", "others", np.array([[0], [0]])),
        Link("corner", "wall", np.array([[1]]), as_member=True),
        Link("tick", "clock", np.array([[0]]), as_member=True),
    ]
    sizes = {"tick": 1, "corner": 1, "wall": 2, "others": 2, "cells": 4, "clock": 1}
    found = owners(sizes, {"cells": cells, "others": np.zeros(2, np.int32)}, links, 2)
    assert found["wall"].tolist() == [1, 1] and found["corner"].tolist() == [1]
    assert everywhere(found["clock"]) and everywhere(found["tick"])


def test_of_sets_made_by_hand_the_one_that_most_maps_lead_to_is_cut() -> None:
    a, b = np.array([[0], [5], [3]]), np.array([[1], [2], [4]])
    links = [Link("pairs", "points", a), Link("pairs", "points", b), Link("points", "labels", np.zeros((6, 1), int))]
    found = owners({"labels": 9, "pairs": 3, "points": 6, "alone": 4}, {}, links, 3)
    assert found["points"].tolist() == [0, 0, 1, 1, 2, 2]
    assert found["pairs"].tolist() == [0, 2, 1]
    assert found["labels"][0] == 0
    assert found["alone"].tolist() == runs(np.ones(4), 3).tolist()


def test_a_set_of_one_element_lives_on_every_rank_unless_it_is_added_to_through_a_map() -> None:
    to_one = np.zeros((4, 1), int)
    cells = np.array([1, 1, 0, 0], np.int32)
    for updated in (False, True):
        found = owners({"cells": 4, "one": 1}, {"cells": cells}, [Link("cells", "one", to_one, updated=updated)], 2)
        assert found["one"].tolist() == ([1] if updated else [EVERY])
    one_cell = owners({"cells": 1}, {"cells": np.zeros(1, np.int32)}, [], 2)
    assert one_cell["cells"].tolist() == [0]
