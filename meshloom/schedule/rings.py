"""Rings: the incident elements of a target put in a circle, each beginning where the one before it ended.

The sides of a cell go round it: the second node of one is the first node of the next. Found in the maps alone, this
halves what has to be known about the nodes: position u of the ring holds the first node of element u, and the second
node of element u is what position u + 1 holds. Cells at a boundary lack some sides; their positions are gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rings:
    """``place`` (targets, degree): which of the target's elements stands at a position, -1 for a gap.

    ``nodes`` (targets, degree): what the ring holds there. ``closed`` (targets,): all elements found their place.
    """

    place: np.ndarray
    nodes: np.ndarray
    closed: np.ndarray


def find_rings(first: np.ndarray, second: np.ndarray, present: np.ndarray) -> Rings:
    """Rings of all targets at once; ``first`` and ``second`` (targets, degree) are the two ends of each element."""
    count, degree = first.shape
    rows = np.arange(count)
    preceded = np.zeros_like(present)
    for j in range(degree):
        preceded |= present[:, j : j + 1] & (second[:, j : j + 1] == first)
    begins = present & ~preceded
    place, nodes = np.full((count, degree), -1, np.int8), np.zeros((count, degree), first.dtype)
    free = present.copy()
    awaited = np.full(count, -1, np.int64)  # the node at which the next element must begin; -1: any
    for u in range(degree):
        fits = free & np.where((awaited >= 0)[:, None], first == awaited[:, None], begins)
        anywhere = (awaited < 0) & ~fits.any(axis=1)
        fits[anywhere] = free[anywhere]
        found, at = fits.any(axis=1), fits.argmax(axis=1)
        place[:, u] = np.where(found, at, -1)
        nodes[:, u] = np.where(found, first[rows, at], np.maximum(awaited, 0))
        free[rows[found], at[found]] = False
        awaited = np.where(found, second[rows, at], -1)
    closed = ~free.any(axis=1) & ((awaited < 0) | (awaited == nodes[:, 0]))
    return Rings(place, nodes, closed)
