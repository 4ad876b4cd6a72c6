"""Offsets at which a kernel reads fields of a grid. Arithmetic only: no index is stored."""

from __future__ import annotations

from collections.abc import Iterable

from meshloom.mesh.copies import ItsOwnCopy
from meshloom.mesh.numbering import Rows
from meshloom.records import dataclass

Index = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Offsets(ItsOwnCopy):
    """Where a kernel may read a field of a grid, relative to its own point; the same object for the same offsets."""

    grid: Rows
    offsets: tuple[Index, ...]

    @property
    def arity(self) -> int:
        return len(self.offsets)

    @property
    def name(self) -> str:
        return ", ".join(map(index_text, self.offsets))

    def __repr__(self) -> str:
        return f"Offsets({self.grid.name}: {self.name})"


def index_text(index: Iterable[int]) -> str:
    """``(1, -2)``, or ``(3)`` for one axis."""
    return f"({', '.join(map(str, index))})"
