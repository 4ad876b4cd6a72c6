"""Offsets from a cell, or a point, to others on a grid of any number of axes."""

from __future__ import annotations

Offset = tuple[int, ...]


def along(rank: int, axis: int, step: int = 1) -> Offset:
    """So many cells along an axis."""
    return tuple(step if a == axis else 0 for a in range(rank))


def moved(at: Offset, by: Offset) -> Offset:
    """One offset after the other."""
    return tuple(a + b for a, b in zip(at, by, strict=True))
