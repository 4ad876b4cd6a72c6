"""Types of what a nest names: numbers by C's names, and what is made of them."""

from __future__ import annotations

from meshloom.records import dataclass

INDEX, UNSIGNED = "ml_index", "ml_unsigned"  # a number of an element, a place in memory; the same for cheap division
BOOL, INT = "bool", "int"


@dataclass(frozen=True, slots=True)
class RowOf:
    """The type of so many numbers that are moved at once."""

    ctype: str
    width: int


@dataclass(frozen=True, slots=True)
class PairOf:
    """The type of two numbers side by side that are moved and computed with as one."""

    ctype: str


@dataclass(frozen=True, slots=True)
class PointerTo:
    """The type of a place in memory; ``fixed``: what lies there is not changed through it."""

    of: str | PairOf
    fixed: bool = False


Type = str | RowOf | PairOf | PointerTo
