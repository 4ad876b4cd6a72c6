"""Which rank owns each element of every set: some sets are cut, all others follow through the maps.

An element of a part of a set belongs to the rank that owns it in that set, any other to the rank of its lowest target.
Where a set has a guide that map alone counts: the entries of a matrix belong to the rank of their row. Where no map
leads from a set to one whose owners are known, its elements belong to the rank of the lowest element that leads to
them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from meshloom.dist.partition import even_runs
from meshloom.records import dataclass

EVERY = -1  # the owner of what lives on every rank


@dataclass(frozen=True, eq=False)
class Link:
    """A map between sets as far as ranks are concerned: row k of ``rows`` (n, arity) names the elements of ``target``
    that element k of ``source`` reaches. ``updated``: loops write or add there. ``as_member``: the source is a part of
    the target, and each of its elements leads to itself. ``guide``: the source follows this target and no other; there
    is more than one of it."""

    source: Hashable
    target: Hashable
    rows: np.ndarray
    updated: bool = False
    as_member: bool = False
    guide: bool = False


Owners = Mapping[Any, np.ndarray]


def owners(sizes: Mapping[Any, int], cut: Owners, links: Sequence[Link], ranks: int) -> dict[Any, np.ndarray]:
    """The ranks (size,) int32 that own the elements of every set, from those of the sets that are ``cut``.

    Earlier links count first. Of sets that none of these reaches, the one that most maps lead to is cut into equal runs
    of numbers. A set of one element that no loop writes to through a map lives on every rank, unless it is a part; from
    the first loop that does so on it has an owner.
    """
    parts = {one.source for one in links if one.as_member}
    followers = parts | {one.source for one in links if one.guide}
    bound = parts | {one.target for one in links if one.updated and not one.as_member}
    alone = [key for key, size in sizes.items() if size == 1 and key not in bound]
    known = {key: owner for key, owner in cut.items() if key not in bound or not everywhere(owner)}
    found = {key: np.full(1, EVERY, np.int32) for key in alone} | known
    while left := [key for key in sizes if key not in found]:
        free = [key for key in left if key not in followers]
        following = {key: owner for key in left if (owner := _by_targets(key, links, found)) is not None} or {
            key: owner for key in free if (owner := _by_sources(key, sizes[key], links, found, ranks)) is not None
        }  # fmt: skip
        if not following:
            first = max(free, key=lambda key: (_maps_to(key, links), sizes[key]))
            following = {first: even_runs(sizes[first], ranks)}
        found |= following
    return found


def everywhere(owner: np.ndarray) -> bool:
    """Does a set with these owners live on every rank?"""
    return len(owner) == 1 and owner[0] == EVERY


def _maps_to(key: Hashable, links: Iterable[Link]) -> int:
    return sum(one.target == key and not one.as_member for one in links)


def _guides(key: Hashable, found: Owners) -> bool:
    """Does a set tell others who owns their elements?"""
    return key in found and not everywhere(found[key])


def _by_targets(key: Hashable, links: Sequence[Link], found: Owners) -> np.ndarray | None:
    """The owners of a set by the first link from it to one whose owners are known; of a part by the set that it is a
    part of and no other, of a set with a guide by that. None where that is not there yet."""
    away = [one for one in links if one.source == key]
    away = [one for one in away if one.guide] or away
    members = [one for one in away if one.as_member and one.target in found]
    usable = members if any(one.as_member for one in away) else [one for one in away if _guides(one.target, found)]
    # Rows are short: what is lowest is found faster column by column.
    return found[usable[0].target][reduce(np.minimum, usable[0].rows.T)] if usable else None


def _by_sources(key: Hashable, size: int, links: Sequence[Link], found: Owners, ranks: int) -> np.ndarray | None:
    """The owners of a set by the links that lead to it from sets whose owners are known, the first that reaches an
    element; None where there are no such links. Elements that none reaches are shared out in equal runs."""
    leading = [one for one in links if one.target == key and not one.as_member and _guides(one.source, found)]
    owner = np.full(size, EVERY, np.int32)
    for one in leading:
        lowest = np.full(size, len(one.rows), np.int64)
        np.minimum.at(lowest, one.rows.reshape(-1), np.repeat(np.arange(len(one.rows)), one.rows.shape[1]))
        new = (owner == EVERY) & (lowest < len(one.rows))
        owner[new] = found[one.source][lowest[new]]
        if (owner != EVERY).all():
            break
    unreached = np.flatnonzero(owner == EVERY)
    owner[unreached] = even_runs(len(unreached), ranks)
    return owner if leading else None
