"""Partitioners: the rank of every cell of a mesh, by name or as a given array."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import PartitionError, known_name
from meshloom.order.curves import hilbert_order
from meshloom.order.graph import Graph, target_graph
from meshloom.order.partition import kaminpar_labels, metis_labels, missing, partitioners
from meshloom.records import dataclass

MOST_RANKS = 2**16
_BINS = 4096  # of the cells that are cut in two
_SEED = 0  # of graph partitioners: the same partition every time


@dataclass(frozen=True, eq=False)
class PartitionTask:
    """Cells to be shared out among ranks: ``points`` (n, d) where they are, ``weights`` (n,) what each costs, above 0,
    and ``joined`` (m, 2), the two cells of every face."""

    points: np.ndarray
    weights: np.ndarray
    joined: np.ndarray

    @property
    def n(self) -> int:
        return len(self.points)


Partitioner = Callable[[PartitionTask, int], np.ndarray]


def partition(how: str | ArrayLike, task: PartitionTask, ranks: int) -> np.ndarray:
    """The rank (n,) int32 of every cell: by the partitioner of this name, or as given. Ranks may be left empty."""
    if not isinstance(how, str):
        return given(how, task.n, ranks)
    found = PARTITIONERS[known_name("partitioner", how, PARTITIONERS, error=PartitionError)](task, ranks)
    return found.astype(np.int32, copy=False)


def given(ranks_of_cells: ArrayLike, n: int, ranks: int) -> np.ndarray:
    """A given partition (n,) int32 of the cells; PartitionError where it is none."""
    found = np.asarray(ranks_of_cells)
    if found.shape != (n,) or found.dtype.kind not in "iu":
        raise PartitionError(f"a partition of {n} cells is {n} whole numbers, got {found.dtype} of shape {found.shape}")
    outside = np.flatnonzero((found < 0) | (found >= ranks))
    if len(outside):
        raise PartitionError(f"a partition among {ranks} ranks has numbers from 0 to {ranks - 1}, got"
                             f" {found[outside[0]]} for cell {outside[0]}")  # fmt: skip
    return found.astype(np.int32)


def runs(weights: np.ndarray, ranks: int) -> np.ndarray:
    """Ranks (n,) int32, ascending, that give each the same share of the weights (n,) of things in a row."""
    ends = _run_ends(weights, np.arange(1, ranks), ranks, 0.0, weights.sum())
    return np.repeat(np.arange(ranks, dtype=np.int32), np.diff(ends, prepend=0, append=len(weights)))


def even_ends(count: int, size: int) -> list[int]:
    """Where the equal shares of so many things in a row end that each of some ranks has, and before them 0: at the
    nearest whole numbers, the lower one of two."""
    return [-((size - 2 * count * k) // (2 * size)) for k in range(size + 1)]


def even_runs(count: int, ranks: int) -> np.ndarray:
    """The same of so many things that weigh the same."""
    return np.repeat(np.arange(ranks, dtype=np.int32), np.diff(even_ends(count, ranks)))


def _run_ends(weights: np.ndarray, shares: np.ndarray | int, of: int, before: float, total: float) -> np.ndarray:
    """How many things of a row come before so many ``shares`` ``of`` the ``total``: those whose middle does;
    ``before``: the weight of what comes before the row. For equal weights that is the nearest whole number, so that
    runs differ by one thing at most; whole weights are exact."""
    up_to = np.cumsum(np.append(before, weights))
    return np.searchsorted(up_to[1:] - 0.5 * weights, np.multiply(shares, total) / of)


def rcb(task: PartitionTask, ranks: int) -> np.ndarray:
    """Recursive coordinate bisection: cut across the longest extent, the first of equals, in the ratio of the ranks on
    both sides. Of cells at one place along that axis those of lower number come first."""
    columns, found = np.ascontiguousarray(task.points.T), np.zeros(task.n, np.int32)
    left = [(np.arange(task.n), 0, ranks)]  # cells, ascending, and the ranks that share them: the first, how many
    while left:
        cells, first, several = left.pop()
        if several == 1 or not len(cells):
            found[cells] = first
            continue
        along = max((column[cells] for column in columns), key=np.ptp)
        half = several // 2
        is_low = _lower_part(along, task.weights[cells], half, several)
        left.append((cells[~is_low], first + half, several - half))
        left.append((cells[is_low], first, half))
    return found


def _lower_part(at: np.ndarray, weights: np.ndarray, shares: int, of: int) -> np.ndarray:
    """Which things (n,) come before so many ``shares`` ``of`` the weight of all, by where they are ``at``, and by
    number where that is the same. They are put into bins; those of the bin that is cut are sorted."""
    bins, extent, number = min(_BINS, len(at)), np.ptp(at), np.zeros(len(at), np.int32)
    if bins * np.finfo(float).tiny < extent < np.inf:  # else all are in one
        number = np.minimum((at - at.min()) * (bins / extent), bins - 1).astype(np.int32)
    up_to = np.cumsum(np.append(0.0, np.bincount(number, weights, minlength=bins)))
    cut = int(np.searchsorted(up_to[1:], np.multiply(shares, up_to[-1]) / of))
    found = number < cut
    inside = np.flatnonzero(number == cut)
    inside = inside[np.argsort(at[inside], kind="stable")]
    found[inside[: _run_ends(weights[inside], shares, of, up_to[cut], up_to[-1])]] = True
    return found


def hilbert(task: PartitionTask, ranks: int) -> np.ndarray:
    """Runs of equal weight along the Hilbert curve."""
    order = hilbert_order(task.points)
    found = np.empty(task.n, np.int32)
    found[order] = runs(task.weights[order], ranks)
    return found


def kaminpar(task: PartitionTask, ranks: int) -> np.ndarray:
    """Few cut faces, by KaMinPar; every rank has as many cells, whatever they weigh."""
    return _by_graph("kaminpar", kaminpar_labels, task, ranks)


def metis(task: PartitionTask, ranks: int) -> np.ndarray:
    """Few cut faces, by METIS; every rank has as many cells, whatever they weigh."""
    return _by_graph("metis", metis_labels, task, ranks)


def check_installed(name: str) -> None:
    """PartitionError where the package of a partitioner is missing."""
    if lacks := missing(name):
        raise PartitionError(f"partitioner '{name}' needs {lacks}")


def _by_graph(
    name: str, labels: Callable[[Graph, np.ndarray, int], np.ndarray], task: PartitionTask, ranks: int
) -> np.ndarray:
    check_installed(name)
    sizes = np.diff(even_ends(task.n, ranks))
    return labels(target_graph(task.joined, task.n, weighted=True), sizes, _SEED)


PARTITIONERS: dict[str, Partitioner] = dict(zip(partitioners(), (rcb, hilbert, kaminpar, metis), strict=True))
