"""Sets, maps and owners at random for the tests of halos, and what halos are, slowly and obviously."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from meshloom.dist.halo import DistributedSet, ExchangeLists
from meshloom.dist.ownership import EVERY, Link

Owner = Mapping[Hashable, np.ndarray]
Copies = dict[Hashable, set[int]]


@dataclass(frozen=True)
class Sample:
    """Sets by name, with the owners of their elements, and links between them."""

    owner: dict[Hashable, np.ndarray]
    links: tuple[Link, ...]
    ranks: int


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Empty sets, empty ranks, ranks of one element, sets that live on every rank, maps of a set to itself, elements
    that lead to one target twice."""
    ranks = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    used = rng.permutation(ranks)[: draw(st.integers(1, ranks))]  # the others are empty
    owner: dict[Hashable, np.ndarray] = {}
    for name in "abcd"[: draw(st.integers(1, 4))]:
        size = draw(st.integers(0, 14))
        owner[name] = np.sort(rng.choice(used, size)) if draw(st.booleans()) else rng.choice(used, size)
        owner[name] = owner[name].astype(np.int32)
    if draw(st.booleans()):
        owner["clock"] = np.full(1, EVERY, np.int32)
    links = []
    for _ in range(draw(st.integers(0, 6))):
        source, target = (draw(st.sampled_from(sorted(owner, key=str))) for _ in range(2))
        if len(owner[target]):
            rows = rng.integers(0, len(owner[target]), (len(owner[source]), draw(st.integers(1, 4))))
            links.append(Link(source, target, rows.astype(draw(st.sampled_from([np.int32, np.int64]))),
                              updated=draw(st.booleans())))  # fmt: skip
    return Sample(owner, tuple(links), ranks)


def is_own(owner: Owner, key: Hashable, element: int, rank: int) -> bool:
    return int(owner[key][element]) in (rank, EVERY)


def executed_by(rank: int, owner: Owner, links: Sequence[Link]) -> Copies:
    """Elements of others that write to a target that a rank owns."""
    found: Copies = {key: set() for key in owner}
    for link in links:
        for element, row in enumerate(link.rows):
            owned = any(int(owner[link.target][target]) == rank for target in row)
            if link.updated and owned and not is_own(owner, link.source, element, rank):
                found[link.source].add(element)
    return found


def imported_by(rank: int, owner: Owner, links: Sequence[Link]) -> Copies:
    """What else is reached by the elements that a rank executes."""
    executed = executed_by(rank, owner, links)
    found: Copies = {key: set() for key in owner}
    for link in links:
        for element, row in enumerate(link.rows):
            if is_own(owner, link.source, element, rank) or element in executed[link.source]:
                found[link.target] |= {int(t) for t in row if not is_own(owner, link.target, int(t), rank)}
    return {key: found[key] - executed[key] for key in owner}


def rim_of(rank: int, key: Hashable, owner: Owner, links: Sequence[Link]) -> set[int]:
    """The elements of a rank that reach another rank's."""
    return {
        element
        for link in links
        if link.source == key
        for element, row in enumerate(link.rows)
        if int(owner[key][element]) == rank and any(not is_own(owner, link.target, int(t), rank) for t in row)
    }


def messages(lists: ExchangeLists) -> dict[tuple[int, int], list[int]]:
    """(rank, neighbour) -> numbers."""
    found = {}
    for m, pair in enumerate(zip(lists.ranks.tolist(), lists.neighbours.tolist(), strict=True)):
        assert pair not in found, "one message for each neighbour"
        found[pair] = lists.numbers[lists.offsets[m] : lists.offsets[m + 1]].tolist()
    return found


def held_by(rank: int, one: DistributedSet) -> np.ndarray:
    """(n,) bool: what a rank has of a set."""
    held = (one.owner == rank) | (one.owner == EVERY)
    for layer in (one.exec_halo, one.import_halo):
        for (receiver, _), numbers in messages(layer.receives).items():
            if receiver == rank:
                held[numbers] = True
    return held
