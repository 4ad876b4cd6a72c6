"""Chains: which element a thread should do next, so that what it has found for one target can wait for more.

Elements are looked at in the order of visit. A *link* leads from an element to a later one that shares a target with
it; links are made by one rule for the whole mesh, "the next element whose slot ``b`` is my slot ``a``". Chains are cut
into *strips* of at most ``longest`` elements, one for each thread. Strips of neighbouring threads lie side by side, so
they too meet at targets. Which rule is best is tried on a part of the mesh; nothing knows how the mesh was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from meshloom.records import dataclass
from meshloom.schedule.plan.declare import Pair, Pairs, holds
from meshloom.target import StripNumbers


class Rule(NamedTuple):
    """The next element whose slot ``later`` of the map ``rows`` is this one's slot ``earlier``."""

    rows: int
    earlier: int
    later: int


@dataclass(frozen=True)
class Meetings:
    """Slots of one map that often lead to the same target.

    ``kept`` (a, b): slot a of an element is slot b of the next one in its strip. ``lower`` (t, g): slot t of an element
    is slot g of the one next to it in the next strip, and takes what that offers; ``upper``: in the strip before.
    ``ends`` (t, g): as ``lower``, among what is kept to the end of the strip.
    """

    kept: tuple[Pair, ...] = holds(Pairs(), "(slot, slot of the next element in the strip)")
    lower: tuple[Pair, ...] = holds(Pairs(), "(taker, giver in the next strip)")
    upper: tuple[Pair, ...] = holds(Pairs(), "(taker, giver in the strip before)")
    ends: tuple[Pair, ...] = holds(Pairs(), "(taker, giver in the next strip), at the end")


@dataclass(frozen=True)
class Strips:
    """``elements[offsets[k] + s]`` is the element that strip s does in step k; longer strips come first."""

    elements: np.ndarray
    offsets: np.ndarray

    @property
    def number(self) -> int:
        """How many strips there are."""
        return int(self.offsets[1]) if len(self.offsets) > 1 else 0

    def steps(self) -> list[np.ndarray]:
        """The elements of each step."""
        return [self.elements[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]


def best_strips(maps: Sequence[np.ndarray], numbers: StripNumbers) -> tuple[Strips, list[Meetings]]:
    """Strips for elements with these rows (n, arity), in the order of visit, and what meets in each of the maps."""
    start = max(0, (len(maps[0]) - numbers.window) // 2)
    window = [rows[start : start + numbers.window] for rows in maps]
    strips, meetings = _tried(window, None, numbers)
    fewest, best = updates(window, strips, meetings), None
    for rule in _promising(window, numbers):
        strips, found = _tried(window, rule, numbers)
        left = updates(window, strips, found)
        if left < fewest:
            fewest, best, meetings = left, rule, found
    return cut(_links(maps, best), numbers.longest), meetings


def pairs_beside(rows: np.ndarray, numbers: StripNumbers) -> tuple[Pair, ...]:
    """(taker, giver): slots of consecutive ``rows`` (n, arity) that often agree; each slot in one pair at most."""
    often = _often(_agreeing(rows[:-1], rows[1:]), numbers.least_hits * len(rows))
    return _disjoint([(i, j) for i, j in often if i != j])


def updates(maps: Sequence[np.ndarray], strips: Strips, meetings: Sequence[Meetings]) -> float:
    """Updates of targets per element that are left when strips and their neighbours have joined what they can."""
    left = 0.0
    for rows, found in zip(maps, meetings, strict=True):
        along, across = _hits(rows, strips)
        joined = sum(along[pair] for pair in found.kept) + sum(across[pair] for pair in found.lower)
        left += rows.shape[1] - (joined + sum(across[g, t] for t, g in found.upper)) / max(len(rows), 1)
    return left


def links(rows: np.ndarray, rule: Rule) -> np.ndarray:
    """The element that follows each one by a rule, -1 for none; nobody follows two."""
    n = len(rows)
    if not n:
        return np.empty(0, np.int64)
    here = np.arange(n, dtype=np.int64)
    keys = np.sort(rows[:, rule.later].astype(np.int64) * n + here)
    wanted = rows[:, rule.earlier].astype(np.int64)
    at = np.minimum(np.searchsorted(keys, wanted * n + here, side="right"), n - 1)
    following = np.where(keys[at] // n == wanted, keys[at] % n, -1)
    some = np.flatnonzero(following > here)
    nearest = np.full(n, -1, np.int64)
    nearest[following[some]] = some  # of those that ask for one element the last
    some = some[nearest[following[some]] == some]
    result = np.full(n, -1, np.int64)
    result[some] = following[some]
    return result


def cut(link: np.ndarray, longest: int) -> Strips:
    """Chains cut evenly into strips, longer strips first, equally long ones in the order of their first elements."""
    n = len(link)
    head, place = _places(link)
    length = np.bincount(head, minlength=n)[head]
    parts = -(-length // longest)
    step = place + (-(place * parts // np.maximum(length, 1)) * length // parts)  # less the first place of one's part
    order = np.lexsort((place, head))  # chain by chain, strip by strip
    starts = np.flatnonzero(step[order] == 0)
    lengths = np.diff(np.append(starts, n))
    rank = np.empty(len(starts), np.int64)
    rank[np.lexsort((order[starts], -lengths))] = np.arange(len(starts))
    by_step = np.lexsort((np.repeat(rank, lengths), step[order]))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(step))])
    return Strips(order[by_step], offsets.astype(np.int64))


def _places(link: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first element of everyone's chain, and one's place in it: steps to the front, doubled until all are there."""
    front = np.arange(len(link), dtype=np.int64)
    some = np.flatnonzero(link >= 0)
    front[link[some]] = some
    place = (front != np.arange(len(link))).astype(np.int64)
    while not np.array_equal(further := front[front], front):
        place, front = place + place[front], further
    return front, place


def _links(maps: Sequence[np.ndarray], rule: Rule | None) -> np.ndarray:
    return np.full(len(maps[0]), -1, np.int64) if rule is None else links(maps[rule.rows], rule)


def _tried(maps: Sequence[np.ndarray], rule: Rule | None, numbers: StripNumbers) -> tuple[Strips, list[Meetings]]:
    strips = cut(_links(maps, rule), numbers.longest)
    return strips, [_meetings(rows, strips, numbers.least_hits * len(rows)) for rows in maps]


def _promising(maps: Sequence[np.ndarray], numbers: StripNumbers) -> list[Rule]:
    """The rules whose links save most updates; of rules that make the same links the first."""
    found: dict[bytes, tuple[int, Rule]] = {}
    for k, rows in enumerate(maps):
        for a, b in np.ndindex(rows.shape[1], rows.shape[1]):
            link = links(rows, rule := Rule(k, a, b))
            here = np.flatnonzero(link >= 0)
            if len(here) >= numbers.least_hits * len(rows):
                saved = sum(_shared(other[here], other[link[here]]) for other in maps)
                found.setdefault(link.tobytes(), (-saved, rule))
    return [rule for _, rule in sorted(found.values())[: numbers.tried]]


def _shared(before: np.ndarray, after: np.ndarray) -> int:
    """How many slots of rows lead to a target of the rows next to them."""
    return sum(int(np.count_nonzero((column[:, None] == after).any(axis=1))) for column in before.T)


def _hits(rows: np.ndarray, strips: Strips) -> tuple[np.ndarray, np.ndarray]:
    """(arity, arity): how often slot i of an element is slot j of the next in its strip; of that in the next strip."""
    steps = [rows[one] for one in strips.steps()]
    nothing = np.zeros((rows.shape[1],) * 2, np.int64)
    along = sum((_agreeing(p[: len(q)], q) for p, q in pairwise(steps)), nothing)
    return along, sum((_agreeing(p[:-1], p[1:]) for p in steps), nothing)


def _agreeing(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.array([[np.count_nonzero(a == b) for b in second.T] for a in first.T])


def _meetings(rows: np.ndarray, strips: Strips, least: float) -> Meetings:
    """``least``: hits from which on slots meet often."""
    (along, across), arity = _hits(rows, strips), rows.shape[1]
    disjoint = _disjoint([(a, arity + b) for a, b in _often(along, least)])  # a slot may be kept and take what was kept
    kept = [Pair(a, b - arity) for a, b in disjoint]
    sources = {a for a, _ in kept}
    pairs = [(i, j) for i, j in _often(across, least) if i != j]
    in_steps = _disjoint([(i, j) for i, j in pairs if not {i, j} <= sources])
    return Meetings(
        tuple(kept),
        tuple(Pair(i, j) for i, j in in_steps if j not in sources),
        tuple(Pair(j, i) for i, j in in_steps if j in sources),
        _disjoint([(i, j) for i, j in pairs if {i, j} <= sources]),
    )


def _often(hits: np.ndarray, least: float) -> list[tuple[int, int]]:
    """Pairs that meet often enough, the most frequent first."""
    places = np.argsort(-hits, axis=None, kind="stable")
    return [(int(i), int(j)) for i, j in zip(*np.unravel_index(places, hits.shape), strict=True) if hits[i, j] >= least]


def _disjoint(pairs: Sequence[tuple[int, int]]) -> tuple[Pair, ...]:
    """The pairs without those that use a number again."""
    found: list[Pair] = []
    used: set[int] = set()
    for pair in pairs:
        if not used & set(pair):
            found.append(Pair(*pair))
            used |= set(pair)
    return tuple(found)
