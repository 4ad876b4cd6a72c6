"""Maps that are given other indices: particles move from cell to cell while the loops over them stay the same.

A map never changes in place. ``assign`` puts another array in the place of the old one and tells whoever has made
something of it: loops plan again when they next run, recorded ones included, and parts of the map follow.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError
from meshloom.mesh.copies import ItsOwnCopy
from meshloom.mesh.values import index_dtype, whole_numbers
from meshloom.recording import not_in_program

if TYPE_CHECKING:
    from meshloom.mesh.core import Map, Set

M = TypeVar("M", bound="Assignable")
_MADE_OF_INDICES = ("indices", "digest", "ascends")  # cached properties


class Assignable(ItsOwnCopy):
    """A map whose indices may be replaced. ``version``: how often they have been."""

    source: Set
    target: Set
    name: str
    positions: np.ndarray
    version = 0
    held_by = ""  # who has made something of it that cannot follow, and so keeps it as it is
    _watchers: weakref.WeakSet[Any] | None = None
    _made_again: ClassVar[tuple[str, ...]] = ("_watchers",)

    @not_in_program("assigning to map {}", "assign before, between two runs")
    def assign(self, indices: ArrayLike) -> None:
        """Take other indices, (source.total, arity) by number. Loops through the map, those of programs included, see
        them when they next run. Where something is wrong with them, the map stays as it was."""
        if self.held_by:
            raise MeshError(f"map {self.name} stays as it is: {self.held_by}; make a map of your own, ml.Map(...)")
        rows = checked_indices(indices, self.source, self.target, self.name)
        if rows.shape != self.positions.shape:
            raise MeshError(f"map {self.name}: indices have shape {rows.shape}, expected {self.positions.shape}")
        self._replace(rows)

    def _replace(self, rows: np.ndarray) -> None:
        """Go on with other indices by number, which are right."""
        kept_as = self.positions.dtype
        self.positions = as_positions(self.source, self.target, rows, kept_as)
        self.version += 1
        for name in _MADE_OF_INDICES:
            self.__dict__.pop(name, None)
        for watcher in list(self._watchers or ()):
            watcher.invalidate()

    def watch(self, watcher: Any) -> None:
        """``watcher.invalidate()`` is called when there are other indices."""
        if self._watchers is None:
            self._watchers = weakref.WeakSet()
        self._watchers.add(watcher)

    def kept_for(self: M, why: str) -> M:
        """The same map, which cannot be assigned to from now on: the first reason given counts."""
        self.held_by = self.held_by or why
        return self


def checked_indices(indices: ArrayLike, source: Set, target: Set, name: str) -> np.ndarray:
    """Indices of a map as (source.total, arity) whole numbers of elements that there are."""
    array = whole_numbers(indices, f"map {name}: indices")
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or len(array) != source.total or array.shape[1] < 1:
        raise MeshError(
            f"map {name}: indices have shape {array.shape}, but {source.name} has {source.total} elements:"
            f" expected ({source.total}, arity)"
        )
    check_range(array, target, name)
    return array


def check_range(array: np.ndarray, target: Set, name: str, first: int = 0) -> None:
    """MeshError that names the entry where one leads to no element. ``first``: the number of the first row."""
    if array.size and (array.min() < 0 or array.max() >= target.total):
        row, slot = np.argwhere((array < 0) | (array >= target.total))[0]
        raise MeshError(
            f"map {name}: index {array[row, slot]} at row {first + row}, slot {slot} is out of range;"
            f" {target.name} has {target.total} elements (0 to {target.total - 1})"
        )


def as_positions(source: Set, target: Set, rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Indices by number as they lie in memory, read-only: plans are made of them."""
    placed = source.by_position(rows)
    placed = placed if target.position is None else target.position[placed]
    made = np.array(placed, dtype=dtype, order="C")
    made.flags.writeable = False
    return made


def new_positions(source: Set, target: Set, rows: np.ndarray, dtype: Any, name: str) -> np.ndarray:
    """The same for a new map, in 32 bits where they fit unless ``dtype`` asks for more."""
    return as_positions(source, target, rows, index_dtype(target.total, dtype, name))


def assigned_name(maps: tuple[Map, ...], numbers: tuple[int, ...] | None = None) -> str:
    """The name of the first of some maps, or of those with these numbers, that has been assigned to; else ''."""
    chosen = maps if numbers is None else [maps[number] for number in numbers]
    return next((one.name for one in chosen if one.version), "")
