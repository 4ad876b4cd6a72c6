"""Globals that every rank reduces a part of: each rank its own elements, then all ranks the parts, in the order of
ranks. Reproducible sums are put together as whole numbers in bins, and rounded once, so that it does not matter who has
summed up what."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import NamedTuple

import numpy as np

from meshloom.backend.numpy_binned import Bins
from meshloom.dist.world import world
from meshloom.kernel.access import Mode, OpenSum
from meshloom.mesh.buffer import overwrite
from meshloom.mesh.core import Global, on_host
from meshloom.schedule.nest.binned import WORDS

COMBINED = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}


class OpenSums(Global):
    """The bins of each component of a Global, in memory of its type."""

    __slots__ = ()

    def __init__(self, like: Global):
        super().__init__(np.zeros(like.shape, like.dtype), like.name)
        dtype, count = WORDS
        self._storage = np.zeros(like.dim * count * dtype.itemsize // like.dtype.itemsize, like.dtype)

    @property
    def dim(self) -> int:
        return prod(self.shape)


class RankReduction(NamedTuple):
    """A Global ``total``, ``here``, what stands for it in a loop on this rank, and the ``mode`` of the loop."""

    total: Global
    here: Global
    mode: type[Mode]

    @classmethod
    def of(cls, total: Global, mode: type[Mode]) -> RankReduction:
        if mode.binned:
            return cls(total, OpenSums(total), OpenSum)
        return cls(total, Global(np.zeros(total.shape, total.dtype), total.name), mode)

    def finish(self) -> None:
        """All ranks get the total of all; all must ask."""
        here = on_host(self.here.storage).reshape(1, -1)
        before, parts = on_host(self.total.storage), world().gathered(here, f"the parts of global {self.total.name}")
        if self.mode.open:
            bins = [part[0].view(WORDS[0]).reshape(-1, WORDS[1]) for part in parts]
            values = np.array([_rounded(before[c], [one[c] for one in bins]) for c in range(len(before))], before.dtype)
        else:
            values = reduce(COMBINED[self.mode.combine], [one[0] for one in parts], before)
        overwrite(self.total.storage, values)


def _rounded(before: np.floating, parts: list[np.ndarray]) -> np.floating:
    """What was there is one more summand."""
    found = Bins(np.array([before]))
    for one in parts:
        found.merge(Bins.of_words(one))
    return found.rounded(before.dtype)
