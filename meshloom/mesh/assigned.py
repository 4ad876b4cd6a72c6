"""Maps that are given other indices: particles move from cell to cell while the loops over them stay the same.

A map never changes in place. ``assign`` puts another array in the place of the old one and tells whoever has made
something of it: loops plan again when they next run, recorded ones included, and parts of the map follow.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Generic, Self

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError
from meshloom.mesh.copies import ItsOwnCopy
from meshloom.mesh.numbering import Rows, S_co
from meshloom.mesh.values import index_dtype, whole_numbers
from meshloom.native.algorithms import distinct
from meshloom.recording import not_in_program

MOST_LISTED = 64  # elements that one leads to by a map of varying arity: kernels are unrolled over them
GUIDE = "guide"  # where a set keeps the map that guides it, weakly: the map holds the set
CHUNK = 1 << 16  # elements whose targets are computed at a time


class Assignable(ItsOwnCopy, Generic[S_co]):
    """A map whose indices may be replaced. ``version``: how often they have been."""

    source: S_co
    target: S_co
    name: str
    positions: np.ndarray
    version = 0
    held_by = ""  # who has made something of it that cannot follow, and so keeps it as it is
    _watchers: weakref.WeakSet[Any] | None = None
    _made_again: ClassVar[tuple[str, ...]] = ("_watchers",)

    @cached_property
    def distinct_targets(self) -> int:
        """How many targets the owned elements lead to."""
        rows = self.positions[: self.source.owned]
        if rows.size * rows.size.bit_length() < self.target.total:  # a part: to sort is less than to look at all
            return len(distinct(rows))
        hit = np.zeros(self.target.total, bool)
        hit[rows] = True
        return int(np.count_nonzero(hit))

    @not_in_program("assigning to map {}", "assign before, between two runs")
    def assign(self, indices: ArrayLike) -> None:
        """Take other indices, (source.total, arity) by number. Loops through the map, those of programs included, see
        them when they next run. Where something is wrong with them, the map stays as it was."""
        if self.held_by:
            raise MeshError(f"map {self.name} stays as it is: {self.held_by}; make a map of your own, ml.Map(...)")
        rows = checked_indices(indices, self.source, self.target, self.name)
        if rows.shape != self.positions.shape:
            raise MeshError(f"map {self.name}: indices have shape {rows.shape}, expected {self.positions.shape}"
                            f"{Rows.placement.shape_hint}")  # fmt: skip
        self._replace(rows)

    def _replace(self, rows: np.ndarray) -> None:
        """Go on with other indices by number, which are right."""
        kept_as = self.positions.dtype
        self.positions = as_positions(self.source, self.target, rows, kept_as)
        self.version += 1
        for name in [name for name in self.__dict__ if isinstance(getattr(type(self), name, None), cached_property)]:
            del self.__dict__[name]
        for watcher in list(self._watchers or ()):
            watcher.invalidate()

    def watch(self, watcher: Any) -> None:
        """``watcher.invalidate()`` is called when there are other indices."""
        if self._watchers is None:
            self._watchers = weakref.WeakSet()
        self._watchers.add(watcher)

    def kept_for(self, why: str) -> Self:
        """The same map, which cannot be assigned to from now on: the first reason given counts."""
        self.held_by = self.held_by or why
        return self


def guide(map_: Any) -> None:
    """From now on a map says over ranks whose the elements of its source are: they belong to the rank of their lowest
    target by it, whatever loops there are."""
    map_.source.kept[GUIDE] = weakref.ref(map_)


def guide_of(one: Rows) -> Any:
    """The map that says over ranks whose the elements of a set are; None where there is none."""
    found = one.kept.get(GUIDE)
    return None if found is None else found()


def checked_indices(indices: ArrayLike, source: Rows, target: Rows, name: str) -> np.ndarray:
    """Indices of a map as (source.total, arity) whole numbers of elements that there are."""
    array = whole_numbers(indices, f"map {name}: indices")
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or len(array) != source.total or array.shape[1] < 1:
        raise MeshError(
            f"map {name}: indices have shape {array.shape}, but {source.name} has {source.total} elements:"
            f" expected ({source.total}, arity){Rows.placement.shape_hint}"
        )
    check_range(array, target, name)
    return array


def check_range(array: np.ndarray, target: Rows, name: str, first: int = 0) -> None:
    """MeshError that names the entry where one leads to no element. ``first``: the number of the first row."""
    if array.size and (array.min() < 0 or array.max() >= target.total):
        row, slot = np.argwhere((array < 0) | (array >= target.total))[0]
        raise MeshError(
            f"map {name}: index {array[row, slot]} at row {first + row}, slot {slot} is out of range;"
            f" {target.name} has {target.total} elements (0 to {target.total - 1})"
        )


def checked_lists(
    starts: ArrayLike, entries: ArrayLike, source: Rows, target: Rows, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Starts (source.total + 1,) and entries of a map of varying arity, by number, as read-only copies."""
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
    if most > MOST_LISTED:
        raise MeshError(f"map {name}: element {int(np.argmax(counts))} leads to {most} others, and a kernel takes"
                        f" {MOST_LISTED} at most; loop over a set of the pairs, and add up with Inc")  # fmt: skip
    if source.total and not target.total:
        raise MeshError(f"map {name}: {target.name} has no elements, so there is nothing to lead to")
    for one in (first, listed):
        one.flags.writeable = False
    return first, listed


def ascending(rows: Callable[[int, int], np.ndarray], count: int) -> bool:
    """Does each of ``count`` elements lead to one target, which comes after that of the element before? ``rows``: those
    of the elements [first, last)."""
    before = -1
    for first in range(0, count, CHUNK):
        part = rows(first, min(first + CHUNK, count))[:, 0]
        if part[0] <= before or not (part[1:] > part[:-1]).all():
            return False
        before = part[-1]
    return True


def as_positions(source: Rows, target: Rows, rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Indices by number as they lie in memory, read-only: plans are made of them."""
    placed = source.by_position(rows)
    placed = placed if target.position is None else target.position[placed]
    made = np.array(placed, dtype=dtype, order="C")
    made.flags.writeable = False
    return made


def new_positions(source: Rows, target: Rows, rows: np.ndarray, dtype: Any, name: str) -> np.ndarray:
    """The same for a new map, in 32 bits where they fit unless ``dtype`` asks for more."""
    return as_positions(source, target, rows, index_dtype(target.total, dtype, name))


def assigned_name(maps: tuple[Assignable[Rows], ...], numbers: tuple[int, ...] | None = None) -> str:
    """The name of the first of some maps, or of those with these numbers, that has been assigned to; else ''."""
    chosen = maps if numbers is None else [maps[number] for number in numbers]
    return next((one.name for one in chosen if one.version), "")
