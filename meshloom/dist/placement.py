"""Which elements this rank owns, and values that every rank has of its own, for sets that are asked."""

from __future__ import annotations

import numpy as np

from meshloom.dist.local import distribution
from meshloom.dist.world import world
from meshloom.mesh.core import Set
from meshloom.mesh.numbering import OneRank, Rows


class Placement(OneRank):
    """Over the ranks of this run."""

    def mine(self, on: Rows) -> np.ndarray:
        assert isinstance(on, Set)
        found = distribution(world(), [on], {}).local(on)
        positions = found.here[found.mine]
        return np.sort(positions if on.numbering is None else on.numbering[positions])

    def collected(self, on: Rows, values: np.ndarray) -> np.ndarray:
        found = np.empty((on.size, *values.shape[1:]), values.dtype)
        for numbers, rows in zip(*map(world().gathered, (self.mine(on), values)), strict=True):
            found[numbers] = rows
        return found

    def check_alone(self, what: str, others: str = "") -> None:
        world().check_alone(what, others)
