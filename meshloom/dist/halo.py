"""Halos: what every rank holds of other ranks' elements, and what is exchanged with whom.

An element that writes to a target is executed by the owner of the target, too, so that nothing partial is ever sent.
What a rank has of a set is

- its **owned core**, elements that reach nothing of another rank's through any map: they can run while messages travel;
- its **owned rim**, the other elements that it owns;
- its **exec halo**, elements of others that write to a target that it owns;
- its **import halo**, what its own elements and those of its exec halos reach beyond these.

Each of the two halos is a layer of its own (``LAYERS``): a loop asks for what it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from meshloom.dist.ownership import Link, Owners, everywhere
from meshloom.native.algorithms import distinct
from meshloom.records import dataclass

EXEC, IMPORT = LAYERS = ("exec", "import")
ALL_LAYERS = frozenset(LAYERS)


@dataclass(frozen=True, eq=False)
class ExchangeLists:
    """One side of the messages of a layer, of all ranks: message m is between ``ranks[m]``, whose side this is, and
    ``neighbours[m]``, and is about elements ``numbers[offsets[m]:offsets[m + 1]]``, ascending. Messages are ordered by
    rank, then by neighbour."""

    ranks: np.ndarray
    neighbours: np.ndarray
    offsets: np.ndarray
    numbers: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """How many elements each message is about."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of the halos of a set: what ranks receive from their neighbours, and what they send to them."""

    receives: ExchangeLists
    sends: ExchangeLists


@dataclass(frozen=True, eq=False)
class DistributedSet:
    """A set over ranks: ``owner`` (n,) int32, ``rim`` (n,) bool, true for elements in the rim of their owner and false
    in its core, and the two layers of the halos."""

    owner: np.ndarray
    rim: np.ndarray
    exec_halo: Layer
    import_halo: Layer

    @property
    def layers(self) -> dict[str, Layer]:
        """Those of the halos that some rank has, by name."""
        both = zip(LAYERS, (self.exec_halo, self.import_halo), strict=True)
        return {name: layer for name, layer in both if len(layer.receives.numbers)}


@dataclass(frozen=True, eq=False)
class Needs:
    """What the links demand of a set: its ``rim`` (n,) and who must hold which copies, as ascending
    rank * n + element."""

    rim: np.ndarray
    executed: np.ndarray
    imported: np.ndarray


def distributed(owner: Owners, links: Sequence[Link], ranks: int) -> dict[Any, DistributedSet]:
    """All sets over ranks, from who owns their elements and the links by which loops reach them."""
    return {
        key: DistributedSet(owner[key], one.rim, _layer(one.executed, owner[key]), _layer(one.imported, owner[key]))
        for key, one in needs(owner, links, ranks).items()
    }


def needs(owner: Owners, links: Sequence[Link], ranks: int) -> dict[Any, Needs]:
    """What the links demand of every set."""
    rim = {key: np.zeros(len(of), bool) for key, of in owner.items()}
    executes: dict[Any, list[np.ndarray]] = {key: [] for key in owner}
    reads: dict[Any, list[np.ndarray]] = {key: [] for key in owner}
    cut = [one for one in links if not everywhere(owner[one.target])]
    for link in cut:
        if everywhere(owner[link.source]):
            continue
        at, to = owner[link.source], owner[link.target]
        elements, targets = off_rank(link.rows, at, to)  # few: all that follows is about the ends of parts
        rim[link.source][elements] = True
        reads[link.target].append(_pairs(at[elements], targets, len(to)))
        if link.updated:
            executes[link.source].append(_pairs(to[targets], elements, len(at)))
    executed = {key: _together(found) for key, found in executes.items()}
    for link in cut:
        to = owner[link.target]
        if everywhere(owner[link.source]):
            at, elements = np.arange(ranks), np.zeros(ranks, np.int64)
        else:
            at, elements = np.divmod(executed[link.source], max(len(owner[link.source]), 1))
        targets, readers = link.rows[elements], np.repeat(at, link.rows.shape[1])
        others = to[targets].reshape(-1) != readers
        reads[link.target].append(_pairs(readers[others], targets.reshape(-1)[others], len(to)))
    imported = {key: np.setdiff1d(_together(found), executed[key], assume_unique=True) for key, found in reads.items()}
    return {key: Needs(rim[key], executed[key], imported[key]) for key in owner}


def off_rank(rows: np.ndarray, at: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Elements (m,) that rows (n, arity) lead to others of another rank, and these (m,); ``at``, ``to``: the owners of
    both."""
    columns = [(np.flatnonzero(to[column] != at), column) for column in rows.T]  # faster than all at once
    elements = np.concatenate([found for found, _ in columns])
    return elements, np.concatenate([column[found] for found, column in columns])


def _pairs(ranks: np.ndarray, elements: np.ndarray, size: int) -> np.ndarray:
    return ranks.astype(np.int64) * size + elements


def _together(pairs: Iterable[np.ndarray]) -> np.ndarray:
    return distinct(np.concatenate([np.zeros(0, np.int64), *pairs]))


def _layer(pairs: np.ndarray, owner: np.ndarray) -> Layer:
    """The exchange lists of copies, as rank * n + element."""
    receivers, numbers = np.divmod(pairs, max(len(owner), 1))
    senders = owner[numbers]
    return Layer(_listed(receivers, senders, numbers), _listed(senders, receivers, numbers))


def _listed(ranks: np.ndarray, neighbours: np.ndarray, numbers: np.ndarray) -> ExchangeLists:
    order = np.lexsort((neighbours, ranks))  # a stable sort, and numbers of equal pairs ascend
    here, there = ranks[order], neighbours[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (np.diff(here) != 0) | (np.diff(there) != 0)
    first = np.flatnonzero(begins)
    return ExchangeLists(here[first], there[first], np.append(first, len(order)), numbers[order])
