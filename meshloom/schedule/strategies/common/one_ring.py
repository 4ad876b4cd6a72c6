"""One-rings: the incident elements of a target put in a circle, each beginning where the one before it ended.

The sides of a cell go around it: the second node of one is the first node of the next. Found in the maps alone, this
halves what has to be known about the nodes: position u of the ring holds the first node of element u, and the second
node of element u is what position u + 1 holds. Cells at a boundary lack some sides; their positions are gaps.
"""

from __future__ import annotations

import numpy as np

from meshloom.records import dataclass


@dataclass(frozen=True)
class OneRings:
    """``place`` (targets, degree): which of the target's elements stands at a position, -1 for a gap.

    ``nodes`` (targets, degree): what the ring holds there. ``closed`` (targets,): all elements found their place.
    """

    place: np.ndarray
    nodes: np.ndarray
    closed: np.ndarray


def find_one_rings(first: np.ndarray, second: np.ndarray, present: np.ndarray) -> OneRings:
    """Of all targets at once; ``first`` and ``second`` (targets, degree) are the two ends of each element."""
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
    return OneRings(place, nodes, closed)


def along_map(
    ring: np.ndarray, near: np.ndarray, entry: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """``near`` and ``entry`` turned so that the ring's nodes stand as ``rows`` of a map name them, and whether they go
    around the other way; None where that is impossible. All (targets, degree).

    Going around the other way, position u holds the *second* end of its element. Nodes that no element needs, next to a
    gap, may differ.
    """
    degree = ring.shape[1]
    listed = near[:, 0] != -2  # others are not in the tables
    needed = (near >= 0) | np.roll(near >= 0, 1, axis=1)
    positions = np.arange(degree)
    for turned in (False, True):
        found_near, found_entry = np.full_like(near, -1), np.full_like(entry, -1)
        left = listed.copy()
        for shift in range(degree):
            at = (shift - positions if turned else shift + positions) % degree  # the node's position in the ring
            element = (at - 1) % degree if turned else at
            fits = left & ((ring[:, at] == rows) | ~needed[:, at]).all(axis=1)
            found_near[fits], found_entry[fits] = near[fits][:, element], entry[fits][:, element]
            left &= ~fits
        if not left.any():
            found_near[~listed] = near[~listed]
            return found_near, found_entry, turned
    return None
