"""What a distribution costs, set by set: balance, halo share, neighbours, bytes of an exchange."""

from __future__ import annotations

import numpy as np

from meshloom.dist.halo import DistributedSet, ExchangeLists
from meshloom.records import dataclass


@dataclass(frozen=True)
class SetQuality:
    """``balance``: what the busiest rank owns over the mean, 1 where all have the same. ``rim``: the share of the
    elements that wait for messages; ``halo``: copies over elements. Neighbours are counted for each rank. ``bytes``:
    what the rank that receives most receives in one exchange of all fields that are due."""

    name: str
    elements: int
    balance: float
    rim: float
    halo: float
    most_neighbours: int
    mean_neighbours: float
    bytes: int


def quality(
    name: str, one: DistributedSet, ranks: int, weights: np.ndarray | None, points: int, due: tuple[int, int]
) -> SetQuality:
    """Of a set that does not live on every rank. ``weights`` (n,): what elements cost, None where they are alike;
    ``points``: for how many each stands; ``due``: bytes that an exchange carries for a point of the exec halo, and of
    the import halo."""
    n, layers = len(one.owner), (one.exec_halo, one.import_halo)
    owned = np.bincount(one.owner, weights, minlength=ranks)
    received = sum(size * _by_rank(layer.receives, ranks) for size, layer in zip(due, layers, strict=True))
    met = np.zeros(0, np.int64)
    for layer in layers:
        for lists in (layer.receives, layer.sends):
            met = np.union1d(met, lists.ranks.astype(np.int64) * ranks + lists.neighbours)
    neighbours = np.bincount(met // ranks, minlength=ranks)
    copies = sum(len(layer.receives.numbers) for layer in layers)
    return SetQuality(
        name=name,
        elements=n * points,
        balance=float(owned.max() / owned.mean()) if n else 1.0,
        rim=float(one.rim.mean()) if n else 0.0,
        halo=copies / n if n else 0.0,
        most_neighbours=int(neighbours.max()),
        mean_neighbours=float(neighbours.mean()),
        bytes=int(np.max(received)) * points,
    )


def _by_rank(lists: ExchangeLists, ranks: int) -> np.ndarray:
    """How many elements the messages of each rank are about."""
    return np.bincount(lists.ranks, lists.lengths, minlength=ranks).astype(np.int64)
