"""Orderings: permutations of elements and targets that put neighbors side by side.

A permutation is an int64 array: position k holds the old number of what comes k-th. Runs of ``block`` elements are
what a thread block (or a core) works on; ``follow`` numbers the data after the elements that touch them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import ScheduleError, whole_number
from meshloom.native.ffi import MOST_TARGETS, as_indices
from meshloom.order import orderings as _orderings  # noqa: F401 - importing registers them
from meshloom.order.following import follow
from meshloom.order.quality import (
    BAD_EXCESS,
    TYPICAL_BLOCK,
    Loads,
    blocks_of,
    conflicting_blocks,
    excess,
    lines_per_block,
    loads_by_elements,
    loads_by_targets,
    reuse_factor,
    sampled_blocks,
    target_reuse,
)
from meshloom.order.registry import ORDERINGS, find, names
from meshloom.order.task import Elements, Targets, Task

__all__ = [
    "BAD_EXCESS", "ORDERINGS", "TYPICAL_BLOCK", "USUAL_BLOCK", "Loads", "blocks_of", "conflicting_blocks", "excess",
    "follow", "lines_per_block", "loads_by_elements", "loads_by_targets", "names", "order_elements", "order_targets",
    "reuse_factor", "sampled_blocks", "target_reuse",
]  # fmt: skip

USUAL_BLOCK = 256  # elements of a run, where nobody asks for another length: numberings depend on it


def order_elements(
    name: str,
    indices: ArrayLike,
    n_targets: int,
    *,
    points: ArrayLike | None = None,
    block: int = USUAL_BLOCK,
    seed: int = 0,
) -> np.ndarray:
    """Permutation (n,) of the elements (faces) whose rows in ``indices`` (n, arity) name their targets (cells).

    ``points`` (n, d), d from 1 to 3: where the elements are, for hilbert and rcb. ``block``: the run length that
    rcb, greedy, kaminpar and metis optimise; every run but the last is full.
    """
    return _run(Elements, name, indices, n_targets, points, block, seed)


def order_targets(
    name: str,
    indices: ArrayLike,
    n_targets: int,
    *,
    points: ArrayLike | None = None,
    block: int = USUAL_BLOCK,
    seed: int = 0,
) -> np.ndarray:
    """Permutation (n_targets,) of the targets (cells), which the rows of ``indices`` (n, arity) join to each other.

    ``points`` (n_targets, d): where the targets are; the rest as in ``order_elements``.
    """
    return _run(Targets, name, indices, n_targets, points, block, seed)


def _run(
    kind: type[Task],
    name: str,
    indices: ArrayLike,
    n_targets: int,
    points: ArrayLike | None,
    block: int,
    seed: int,
) -> np.ndarray:
    function = find(name)
    run = whole_number(f"ordering '{name}': block", block, 1, MOST_TARGETS, error=ScheduleError)
    start = whole_number(f"ordering '{name}': seed", seed, 0, 2**31 - 1, error=ScheduleError)
    task = kind(as_indices(indices, n_targets), int(n_targets), None, run, start)
    cloud = None if points is None else _cloud(points, task.n, name)
    return function(replace(task, points=cloud, block=min(task.block, max(task.n, 1))))


def _cloud(points: ArrayLike, n: int, name: str) -> np.ndarray:
    """Points as a contiguous (n, d) float64 array, d from 1 to 3, all finite."""
    cloud = np.ascontiguousarray(points, np.float64)
    cloud = cloud.reshape(-1, 1) if cloud.ndim == 1 else cloud
    if cloud.ndim != 2 or len(cloud) != n or not 1 <= cloud.shape[1] <= 3:
        raise ScheduleError(f"ordering '{name}': points have shape {np.shape(points)}, expected ({n}, 1 to 3)")
    if not np.isfinite(cloud).all():
        row = int(np.argmin(np.isfinite(cloud).all(axis=1)))
        raise ScheduleError(f"ordering '{name}': point {row} is {cloud[row].tolist()}, expected finite numbers")
    return cloud
