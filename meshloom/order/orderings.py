"""The orderings themselves, from the plainest to the dearest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meshloom.order.curves import bisect, hilbert_order
from meshloom.order.graph import Graph, cuthill_mckee, gibbs_poole_stockmeyer
from meshloom.order.partition import block_sizes, kaminpar_labels, metis_labels, order_by_labels
from meshloom.order.registry import ordering
from meshloom.order.task import Task


@ordering("given")
def given(task: Task) -> np.ndarray:
    """As they are."""
    return np.arange(task.n, dtype=np.int64)


@ordering("random")
def random(task: Task) -> np.ndarray:
    """Shuffled by the seed: the worst case, for tests."""
    return np.random.default_rng(task.seed).permutation(task.n).astype(np.int64, copy=False)


@ordering("rcm")
def rcm(task: Task) -> np.ndarray:
    """Reverse Cuthill-McKee of the targets; elements follow them."""
    return task.by_targets(cuthill_mckee(task.targets_joined()))


@ordering("gps")
def gps(task: Task) -> np.ndarray:
    """Gibbs-Poole-Stockmeyer of the targets; elements follow them."""
    return task.by_targets(gibbs_poole_stockmeyer(task.targets_joined()))


@ordering("hilbert")
def hilbert(task: Task) -> np.ndarray:
    """Along the Hilbert curve."""
    return hilbert_order(task.positions("hilbert"))


@ordering("rcb")
def rcb(task: Task) -> np.ndarray:
    """Recursive coordinate bisection down to blocks."""
    return bisect(task.positions("rcb"), task.block)


@ordering("greedy")
def greedy(task: Task) -> np.ndarray:
    """Greedy growing of blocks, seeded along reverse Cuthill-McKee: a partition without a partitioner."""
    return task.grow(cuthill_mckee(task.targets_joined()))


@ordering("color")
def color(task: Task) -> np.ndarray:
    """Elements by color: neighbours in the order share no target. Targets stay. Made for the strategy of this name."""
    return task.by_color()


@ordering("kaminpar")
def kaminpar(task: Task) -> np.ndarray:
    """Partition into blocks by KaMinPar; blocks and their members along reverse Cuthill-McKee."""
    return _by_blocks(kaminpar_labels, task)


@ordering("metis")
def metis(task: Task) -> np.ndarray:
    """Partition into blocks by METIS; blocks and their members along reverse Cuthill-McKee."""
    return _by_blocks(metis_labels, task)


def _by_blocks(labels: Callable[[Graph, np.ndarray, int], np.ndarray], task: Task) -> np.ndarray:
    found = labels(task.weighted_graph(), block_sizes(task.n, task.block), task.seed)
    return order_by_labels(found, rcm(task))
