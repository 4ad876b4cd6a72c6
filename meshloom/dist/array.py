"""The values of a field over ranks, as a field has them for its storage: outside all of them are seen, in one piece,
and here are those of this rank, in a field of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from meshloom.dist.agreement import OWN_RUNS, SAME_NUMBERS, GivenToRank, gathered_known, note
from meshloom.dist.checks import digest
from meshloom.dist.halo import ALL_LAYERS
from meshloom.dist.local import LocalSet, rows_by_rank
from meshloom.dist.world import world
from meshloom.mesh.buffer import OverRanks
from meshloom.mesh.core import Field

RANDOM_START = f"an unseeded random start? {OWN_RUNS}"


class DistributedArray(OverRanks):
    """``of_set``: its set. ``local``: a field on what this rank has of it, in the layout of the whole. ``valid``: the
    layers of its halo in which values are those of their owners. ``given``: what it was given from outside, until ranks
    have compared that, or noted it for their next sum: solvers fill some in every iteration."""

    local: Field
    given: GivenToRank | None

    ndim, flags = 1, SimpleNamespace(c_contiguous=True)

    def __init__(self, field: Field, on: LocalSet):
        self.on, self.of_set, self.layout, self.rows = on, field.set, field.layout, field.set.total
        self.local = Field(on.set, field.name, field.components, dtype=field.dtype, layout=field.layout,
                           temporary=field.temporary)  # fmt: skip
        self.size, self.dtype = self.layout.stride(self.rows) * field.dim, field.dtype
        self.valid, self.given = ALL_LAYERS, None

    @property
    def _called(self) -> str:
        return f"field {self.local.name}"

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def get(self) -> np.ndarray:
        """All values, in memory of the host, as they lie in the whole: on every rank, and all must ask."""
        if self.on.everywhere:
            return self.layout.pack(self.local.unpacked()[:1])
        if self.given is not None:  # no loop has come since: what each rank was given would be put together
            note([self.given])
            self.given = None
        by, found = rows_by_rank(self.of_set, self.on), np.empty((self.rows, self.local.dim), self.dtype)
        found[by.rows] = gathered_known(world(), self.owned()[1], by.counts, self._called)
        return self.layout.pack(found)

    def owned(self) -> tuple[np.ndarray, np.ndarray]:
        return self.on.here[self.on.mine].astype(np.int64), self.local.unpacked()[self.on.mine]

    def assign_owned(self, rows: np.ndarray) -> None:
        here = self.local.unpacked()
        here[self.on.mine] = rows
        self.local.repack(here)
        self.valid, self.given = ALL_LAYERS if self.on.everywhere else frozenset(), None

    def set(self, values: np.ndarray) -> None:
        """Take what is here of all values, as they lie in the whole; no other rank is asked."""
        said = f"of {self.rows} x {self.local.dim} {self.dtype} ({self.layout})"
        self.given = GivenToRank(self._called, said, RANDOM_START, digest(values))
        self.local.repack(self.layout.unpack(values, self.rows, self.local.dim)[self.on.here])
        self.valid = ALL_LAYERS

    def fill(self, value: Any) -> None:
        """All values are one number; no other rank is asked."""
        self.given = GivenToRank(self._called, "", SAME_NUMBERS, digest(np.asarray(value)))
        self.local.fill(value)
        self.valid = ALL_LAYERS

    def moved_to(self, on: LocalSet, field: Field) -> DistributedArray:
        """The same where more of the set, or less, is here; owners are the same."""
        made = DistributedArray(field, on)
        own, made.given = self.local.unpacked()[self.on.mine], self.given
        if self.on.everywhere:
            made.local.repack(own[on.here])
            return made
        rows = np.zeros((on.set.total, self.local.dim), self.dtype)
        rows[on.mine] = own
        made.local.repack(rows)
        made.valid = frozenset()
        return made
