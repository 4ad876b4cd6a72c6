"""Which elements this rank owns, and values that every rank has of its own, for sets that are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from meshloom.dist.agreement import alike, gathered_known
from meshloom.dist.consistency import compare_sets
from meshloom.dist.local import ByRank, distribution, owned_alone, rows_by_rank
from meshloom.dist.once import made_once
from meshloom.dist.ownership import everywhere
from meshloom.dist.partition import check_installed, given
from meshloom.dist.slabs import slabs
from meshloom.dist.world import world
from meshloom.mesh.box import IndexSpace
from meshloom.mesh.core import Set
from meshloom.mesh.numbering import OneRank, Rows, checked_partition
from meshloom.process.ranks import alone, ranks

T = TypeVar("T")


def _numbered(on: Set, by: ByRank) -> ByRank:
    """By number what is by position; what has no number is left away."""
    numbers, ranks = on.numbers_at(by.rows), np.repeat(np.arange(len(by.counts)), by.counts)
    numbers, ranks = numbers[numbers >= 0], ranks[numbers >= 0]
    return ByRank(np.bincount(ranks, minlength=len(by.counts)), numbers[np.lexsort((numbers, ranks))])


class Placement(OneRank):
    """Over the ranks of this run."""

    shape_hint: ClassVar[str] = "; on several ranks values are those of the whole set, on every rank"

    def cut_by(self, how: str | ArrayLike) -> None:
        found = checked_partition(how)
        if isinstance(found, str):
            check_installed(found)
            self.cutting = found
        else:  # a copy; whether there are as many as cells is seen when a mesh is cut
            self.cutting = given(found, len(found), world().size)

    def mine(self, on: Rows) -> np.ndarray:
        assert isinstance(on, Set)
        if isinstance(on, IndexSpace):
            local = slabs(world(), on).local(on)
            positions = local.here[local.mine].astype(np.int64)
        else:
            positions = owned_alone(world(), on)
        numbers = on.numbers_at(positions)
        return np.sort(numbers[numbers >= 0])

    def asked(self, function: Callable[[np.ndarray], ArrayLike], points: np.ndarray) -> ArrayLike:
        """Nobody else is there: a rank without elements is not asked, and others are when they come to it."""
        with alone():
            return function(points)

    def collected(self, on: Rows, values: np.ndarray, what: str) -> np.ndarray:
        assert isinstance(on, Set)
        values = alike(world(), values, len(self.mine(on)), what)
        if values.ndim == 0:
            return values
        if isinstance(on, IndexSpace):
            by = rows_by_rank(on, slabs(world(), on).local(on))
        else:
            cut = distribution(world(), [on], {})
            compare_sets(world(), cut)
            if everywhere(cut.owners[on]):
                return values
            by = cut.by_rank(on)
        counts, numbers = _numbered(on, by)
        found = np.empty((on.size, *values.shape[1:]), values.dtype)
        found[numbers] = gathered_known(world(), values, counts, f"values on {on.name}")
        return found

    def made_once(self, make: Callable[[], T], *given: object) -> T:
        return make() if ranks().size == 1 else made_once(world(), make, given)

    def check_alone(self, what: str, others: str = "") -> None:
        if ranks().size > 1:
            world().check_alone(what, others)
