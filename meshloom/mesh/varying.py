"""Maps of varying arity: for every element a list of others, as long as it happens to be."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError
from meshloom.mesh.core import AnyMap, Field, Map, Set, check_ends
from meshloom.mesh.values import enough_memory, whole_numbers
from meshloom.recording import outside_program

MOST = 64  # elements of a list: kernels are unrolled over them


class VaryingMap(AnyMap):
    """``ml.Map.varying(source, target, starts, entries)``: see there. ``starts`` (source.total + 1,) and ``entries``
    are by number, and read-only.

    Loops see it as two things that they know: ``padded``, a map with a slot for each element of the longest list, and
    ``counts``, a field of ``source`` that says how many of them there are.
    """

    def __init__(self, source: Set, target: Set, starts: ArrayLike, entries: ArrayLike, name: str = "map"):
        check_ends(name, source, target)
        first, listed = (np.array(whole_numbers(one, f"map {name}: {what}"), np.int64)
                         for one, what in ((starts, "starts"), (entries, "entries")))  # fmt: skip
        if first.shape != (source.total + 1,) or listed.ndim != 1:
            shapes = f"got the shapes {first.shape} and {listed.shape}"
            raise MeshError(f"map {name}: starts must be {source.total + 1} integers, one more than {source.name} has"
                            f" elements, and entries a list; {shapes}")  # fmt: skip
        counts = np.diff(first)
        if first[0] != 0 or first[-1] != len(listed) or (counts < 0).any():
            raise MeshError(f"map {name}: starts must ascend from 0 to {len(listed)}, the number of entries")
        outside = np.flatnonzero((listed < 0) | (listed >= target.total))
        if outside.size:
            raise MeshError(f"map {name}: entry {outside[0]} is {listed[outside[0]]}, but {target.name} has"
                            f" {target.total} elements (0 to {target.total - 1})")  # fmt: skip
        most = int(counts.max(initial=0))
        if most > MOST:
            raise MeshError(f"map {name}: element {int(np.argmax(counts))} leads to {most} others, and a kernel takes"
                            f" {MOST} at most; loop over a set of the pairs, and add up with Inc")  # fmt: skip
        if source.total and not target.total:
            raise MeshError(f"map {name}: {target.name} has no elements, so there is nothing to lead to")
        self.source, self.target, self.name, self.starts, self.entries = source, target, name, first, listed
        for one in (first, listed):
            one.flags.writeable = False

    @cached_property
    def padded(self) -> Map:
        """(total, most): behind the end of a list stands its first element, or 0, which nobody looks at."""
        counts = np.diff(self.starts)
        most = max(int(counts.max(initial=0)), 1)
        with enough_memory(f"map {self.name}", len(counts) * most, 8):
            there = np.arange(most) < counts[:, None]
            rows = np.zeros(there.shape, np.int64)
            rows[there] = self.entries
        return Map(self.source, self.target, np.where(there, rows, rows[:, :1]), self.name)

    @cached_property
    def counts(self) -> Field:
        """How many each element leads to."""
        with outside_program():
            made = Field(self.source, f"count of {self.name}", dtype=np.int32)
            made.assign_rows(self.source.by_position(np.diff(self.starts).astype(np.int32).reshape(-1, 1)))
            return made

    def __repr__(self) -> str:
        return f"Map({self.name}: {self.source.name} -> 0 to {np.diff(self.starts).max(initial=0)} {self.target.name})"
