"""The sets of a program over ranks: cut, followed, with halos, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshloom.dist.halo import DistributedSet, distributed
from meshloom.dist.ownership import Owners, everywhere, owners
from meshloom.dist.partition import even_runs, given, partition
from meshloom.dist.quality import SetQuality, quality
from meshloom.dist.usage import Usage, slab_points
from meshloom.mesh.core import Set


def distribute(used: Usage, how: str | ArrayLike, ranks: int) -> dict[Any, DistributedSet]:
    """All sets over ranks: who owns their elements, and halos for all loops."""
    return distributed(owned(used, how, ranks), used.links, ranks)


def owned(used: Usage, how: str | ArrayLike, ranks: int, known: Owners | None = None) -> dict[Any, np.ndarray]:
    """The owners of all sets: the cells of meshes by a partitioner, or as a given array says by number; grids in slabs.
    ``known``: those of sets that have been cut."""
    used.check(ranks)
    cut = {grid: even_runs(used.sizes[grid], ranks) for grid in used.radius} | dict(known or {})
    for cells, task in used.tasks.items():
        by_position = how if isinstance(how, str) else cells.by_position(given(how, task.n, ranks))
        cut[cells] = partition(by_position, task, ranks)
    return owners(used.sizes, cut, used.guides, ranks)


def qualities(used: Usage, sets: Mapping[Any, DistributedSet], ranks: int) -> list[SetQuality]:
    """What the distribution of every set costs, but for sets that live on every rank."""

    def of(one: Set) -> SetQuality:
        weights = used.tasks[one].weights if one in used.tasks else None
        return quality(one.name, sets[one], ranks, weights, slab_points(one), used.due.get(one, (0, 0)))

    return [of(one) for one in used.sizes if not everywhere(sets[one].owner)]
