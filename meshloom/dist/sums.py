"""Globals that every rank reduces a part of: each rank its own elements, then all ranks the parts, in the order of
ranks. Reproducible sums are put together as whole numbers in bins, and rounded once, so that it does not matter who has
summed up what."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import NamedTuple

import numpy as np

from meshloom.backend.numpy_binned import Bins
from meshloom.dist.world import world
from meshloom.kernel.access import Mode, OpenSum
from meshloom.mesh.buffer import overwrite
from meshloom.mesh.core import Global, on_host
from meshloom.operation.operand import Operand
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

    def combine(self, parts: list[np.ndarray]) -> None:
        """The total of all, from what each rank has here, as bytes in the order of ranks."""
        before, own = on_host(self.total.storage), [part.view(self.here.dtype) for part in parts]
        if self.mode.open:
            bins = [part.view(WORDS[0]).reshape(-1, WORDS[1]) for part in own]
            values = np.array([_rounded(before[c], [one[c] for one in bins]) for c in range(len(before))], before.dtype)
        else:
            values = reduce(COMBINED[self.mode.combine], own, before)
        overwrite(self.total.storage, values)


def reduced_here(one: Operand, totals: list[RankReduction]) -> Operand:
    """An operand that is a Global as a loop on this rank has it; ``totals`` get one that the loop reduces to."""
    if not one.mode.combine:
        return one
    assert isinstance(one.storage, Global)
    totals.append(RankReduction.of(one.storage, one.mode))
    return one._replace(storage=totals[-1].here, mode=totals[-1].mode)


class Reductions:
    """Those of one loop, which all ranks put together at once: all must call it."""

    def __init__(self, each: Sequence[RankReduction]):
        self.each = tuple(each)
        self._named = f"the parts of {', '.join(one.total.name for one in each)}"

    def __call__(self) -> None:
        here = [on_host(one.here.storage).view(np.uint8) for one in self.each]
        parts = [row[0] for row in world().gathered(np.concatenate(here).reshape(1, -1), self._named)]
        ends = np.cumsum([0, *(len(one) for one in here)])
        for one, first, last in zip(self.each, ends[:-1], ends[1:], strict=True):
            one.combine([np.ascontiguousarray(part[first:last]) for part in parts])


def _rounded(before: np.floating, parts: list[np.ndarray]) -> np.floating:
    """What was there is one more summand."""
    found = Bins(np.array([before]))
    for one in parts:
        found.merge(Bins.of_words(one))
    return found.rounded(before.dtype)
