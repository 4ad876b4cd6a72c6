"""Rows of fields on a set: where they lie in memory, and what a person sees of them.

A row has a position, where it lies in memory, and a number, by which a person knows its element. On most sets a person
sees all of them, by number; a grid shows its points in its own shape, and neither ghosts nor padding.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError
from meshloom.mesh.values import whole_numbers


class Rows:
    """A set as far as rows are concerned."""

    numbering: np.ndarray | None

    @property
    @abstractmethod
    def total(self) -> int:
        """The rows of a field."""

    @property
    def padding(self) -> np.ndarray:
        """Numbers of rows of fields that belong to no element: they fill memory, and nobody looks at them."""
        return np.empty(0, np.int64)

    @cached_property
    def position(self) -> np.ndarray | None:
        """The inverse of ``numbering``: where in memory the element of each number lies, (total,)."""
        if self.numbering is None:
            return None
        place = np.empty_like(self.numbering)
        place[self.numbering] = np.arange(len(place))
        place.flags.writeable = False
        return place

    def by_position(self, rows: np.ndarray) -> np.ndarray:
        """Rows (total, ...) ordered by number, in the order of memory."""
        return rows if self.numbering is None else rows[self.numbering]

    def by_number(self, rows: np.ndarray) -> np.ndarray:
        """Rows (total, ...) in the order of memory, ordered by number."""
        return rows if self.position is None else rows[self.position]

    # What a person sees of rows: those of all elements, by number. A grid shows its points in its own shape.
    @property
    def array_shape(self) -> tuple[int, ...]:
        """The shape of what a person gives and gets, components apart."""
        return (self.total,)

    @property
    def shows_all(self) -> bool:
        """Is there no row besides padding that a person does not see?"""
        return True

    def shown(self, rows: np.ndarray) -> np.ndarray:
        """Of rows (total, dim) by position what a person sees, (*array_shape, dim)."""
        return self.by_number(rows)

    def points_of(self, memory: Any) -> Any:
        """The part of a field's memory (total, ...) that a person sees, as it lies: no copy."""
        return memory

    def with_shown(self, values: np.ndarray, rows: Callable[[], np.ndarray]) -> np.ndarray:
        """Rows (total, dim) by position that show ``values`` (*array_shape, dim); others stay as in ``rows()``."""
        return self.by_position(values)


def checked_numbering(numbering: ArrayLike, name: str, owned: int, total: int) -> np.ndarray:
    """The numbering of a set as a read-only int64 array, after checking that it names every element once, halo last."""
    numbers = whole_numbers(numbering, f"set {name}: numbering")
    if numbers.shape != (total,):
        raise MeshError(f"set {name}: numbering must be {total} integers, got shape {numbers.shape}")
    for first, last, what in ((0, owned, "owned"), (owned, total, "halo")):
        part, seen = numbers[first:last], np.zeros(last - first, bool)
        seen[part[(part >= first) & (part < last)] - first] = True
        if not seen.all():
            raise MeshError(
                f"set {name}: numbering must name each of its {what} elements, {first} to {last - 1}, once at"
                f" positions {first} to {last - 1}; number {first + int(np.argmin(seen))} is missing there"
            )
    numbers = numbers.astype(np.int64)
    numbers.flags.writeable = False
    return numbers
