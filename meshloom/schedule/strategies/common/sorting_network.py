"""Sorting networks: few numbers in registers put in order without an index that is known only at run time.

A comparator looks at two fixed places and exchanges what stands there or not. Which of them do is found when a plan is
made, by sorting keys; generated code then moves values the same way, by selects, and no thread goes another way than
its neighbours. The network is Batcher's merge exchange (Knuth, The Art of Computer Programming 3, algorithm 5.2.2 M):
3 comparators for 3 numbers, 5 for 4, 12 for 6, 19 for 8.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

BITS = ("uint8", "uint16", "uint32")  # what holds a bit for each comparator


@lru_cache
def comparators(count: int) -> tuple[tuple[int, int], ...]:
    """The two places of each comparator, the lower one first, in order."""
    found: list[tuple[int, int]] = []
    merged = widest = 1 << max(count - 1, 0).bit_length() >> 1
    while merged:
        distance, remainder, largest = merged, 0, widest
        while True:
            found += [(k, k + distance) for k in range(count - distance) if k & merged == remainder]
            if largest == merged:
                break
            distance, remainder, largest = largest - merged, merged, largest // 2
        merged //= 2
    return tuple(found)


def exchanges(keys: np.ndarray) -> np.ndarray:
    """(rows,): a bit for each comparator, set where it must exchange to sort a row of the keys (rows, count)."""
    left, pairs = keys.copy(), comparators(keys.shape[1])
    found = np.zeros(len(keys), np.min_scalar_type((1 << len(pairs)) - 1))
    for bit, (low, high) in enumerate(pairs):
        wrong = left[:, low] > left[:, high]
        found |= wrong.astype(found.dtype) << found.dtype.type(bit)
        left[:, low], left[:, high] = _exchanged(left, low, high, wrong)
    return found


def in_order(rows: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """The rows (rows, count) after these exchanges."""
    moved = rows.copy()
    for bit, (low, high) in enumerate(comparators(rows.shape[1])):
        moved[:, low], moved[:, high] = _exchanged(moved, low, high, (bits >> bits.dtype.type(bit)) & 1 == 1)
    return moved


def _exchanged(rows: np.ndarray, low: int, high: int, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two columns, exchanged in some rows."""
    first, second = rows[:, low], rows[:, high]
    return np.where(where, second, first), np.where(where, first, second)
