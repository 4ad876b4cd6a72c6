"""Parts of a grid that a loop may run over, and offsets at which it may read. Arithmetic only: no index is stored."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from meshloom.mesh.copies import ItsOwnCopy
from meshloom.native.algorithms import distinct

if TYPE_CHECKING:
    from meshloom.mesh.grid import Grid

Index = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Offsets(ItsOwnCopy):
    """Where a kernel may read a field of a grid, relative to its own point; the same object for the same offsets."""

    grid: Grid
    offsets: tuple[Index, ...]

    @property
    def arity(self) -> int:
        return len(self.offsets)

    @property
    def name(self) -> str:
        return ", ".join(map(index_text, self.offsets))

    def __repr__(self) -> str:
        return f"Offsets({self.grid.name}: {self.name})"


@dataclass(frozen=True, eq=False)
class Box(ItsOwnCopy):
    """The points of a grid with ``low`` <= index < ``high`` on every axis; ghosts have indices below 0 and from n."""

    grid: Grid
    low: Index
    high: Index
    kept: dict[Hashable, Any] = field(default_factory=dict)  # what others keep with it, as with a Set
    _made_again: ClassVar[tuple[str, ...]] = ("kept",)

    def _restored(self) -> None:
        object.__setattr__(self, "kept", {})

    @property
    def shape(self) -> Index:
        return tuple(last - first for first, last in zip(self.low, self.high, strict=True))

    @property
    def size(self) -> int:
        """Number of points: what a loop visits."""
        return prod(self.shape)

    def __len__(self) -> int:
        return self.size

    @property
    def covers_inside(self) -> bool:
        """Does it hold all points of the grid but, perhaps, ghosts?"""
        inside = self.grid.inside
        return all(a <= b for a, b in zip(self.low, inside.low, strict=True)) and all(
            a >= b for a, b in zip(self.high, inside.high, strict=True)
        )

    @cached_property
    def stored_low(self) -> Index:
        """Where the box begins in memory, counted along each axis."""
        return tuple(x + first for x, first in zip(self.low, self.grid.first, strict=True))

    @property
    def stored_high(self) -> Index:
        return tuple(x + first for x, first in zip(self.high, self.grid.first, strict=True))

    def rows(self, offset: Index | None = None, first: int = 0, last: int | None = None) -> np.ndarray:
        """Positions in memory of the points [first, last) of the box, in C order, seen at an offset."""
        index = np.unravel_index(np.arange(first, self.size if last is None else last), self.shape)
        rows = np.zeros(len(index[0]), np.int64)
        for a, part in enumerate(index):
            along = part + (self.stored_low[a] + (offset[a] if offset else 0))
            rows += self.grid.strides[a] * (along % self.grid.stored[a] if self.grid.wraps[a] else along)
        return rows

    def reaches_out(self, axis: int, step: int) -> bool:
        """Does a step along an axis lead from some point of the box beyond what is stored?"""
        ghosts, n = self.grid.ghosts[axis], self.grid.shape[axis]
        return self.low[axis] + step < -ghosts or self.high[axis] + step > n + ghosts

    def touched(self, offsets: Iterable[Index]) -> int:
        """How many different points are seen at these offsets from all points of the box."""
        parts = [cell for o in offsets for cell in product(*(self._pieces(a, o[a]) for a in range(self.grid.rank)))]
        cuts = [distinct([end for part in parts for end in part[a]]) for a in range(self.grid.rank)]
        seen = np.zeros([max(len(c) - 1, 0) for c in cuts], bool)
        for part in parts:
            seen[tuple(slice(*np.searchsorted(c, ends)) for c, ends in zip(cuts, part, strict=True))] = True
        for c in cuts[::-1]:
            seen = seen @ np.diff(c)
        return int(seen)

    def _pieces(self, axis: int, step: int) -> list[tuple[int, int]]:
        """The points along an axis that are seen at a step, as ranges in memory; two where it wraps around."""
        low, high, n = self.stored_low[axis] + step, self.stored_high[axis] + step, self.grid.stored[axis]
        if not self.grid.wraps[axis] or (low >= 0 and high <= n):
            return [(low, high)]
        low, high = low % n, low % n + (high - low)
        return [(low, high)] if high <= n else [(low, n), (0, high - n)]

    def __repr__(self) -> str:
        ranges = ", ".join(f"{first}:{last}" for first, last in zip(self.low, self.high, strict=True))
        return f"{self.grid.name}[{ranges}]"


def index_text(index: Iterable[int]) -> str:
    """``(1, -2)``, or ``(3)`` for one axis."""
    return f"({', '.join(map(str, index))})"
