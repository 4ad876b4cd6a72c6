"""Rows by number of which every rank has some, and how they come to others without any rank having all of them.

Where something needs rows in the order of their numbers, as a file does, each rank gets a range of them: the first
phase of collective input and output in two phases. An array stands for rows that every rank has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from meshloom.process.ranks import ranks
from meshloom.records import dataclass

Range = tuple[int, int]  # the first, and behind the last


@dataclass(frozen=True, eq=False)
class RankRows:
    """Rows (count, ...): those of ``numbers`` (n,) are here, ``values`` (n, ...). A row may be on several ranks, and is
    the same there."""

    count: int
    numbers: np.ndarray
    values: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, *self.values.shape[1:])

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def row_by_row(self, function: Callable[[np.ndarray], np.ndarray]) -> RankRows:
        """What a function makes of rows (n, ...), each by itself."""
        return replace(self, values=function(self.values))

    def taken(self, numbers: np.ndarray) -> RankRows:
        """The rows of these numbers (m,), in this order: row k is that of ``numbers[k]``. No other rank is asked."""
        order = np.flatnonzero(np.isin(self.numbers, numbers))  # sorting all takes longer than to look for a few
        order = order[np.argsort(self.numbers[order], kind="stable")]
        known = self.numbers[order]
        at = np.searchsorted(known, numbers)
        found = np.flatnonzero(np.append(known, -1)[at] == numbers)
        return RankRows(len(numbers), found, self.values[order[at[found]]])

    def followed_by(self, other: RankRows) -> RankRows:
        """Both in a row."""
        return RankRows(self.count + other.count, np.concatenate((self.numbers, other.numbers + self.count)),
                        np.concatenate((self.values, other.values)))  # fmt: skip

    # ----- collective: all ranks must call these --------------------------------------------------------------------
    def between(self, ranges: Sequence[Range]) -> np.ndarray:
        """Of the ranges of all ranks this rank's own: the rows from the first number to the last, (n, ...)."""
        order = np.argsort(self.numbers, kind="stable")
        known, parts = self.numbers[order], []
        for first, last in ranges:
            some = order[slice(*np.searchsorted(known, (first, last)))]
            parts.append(np.empty(len(some), [("number", np.int64), ("row", self.dtype, self.shape[1:])]))
            parts[-1]["number"], parts[-1]["row"] = self.numbers[some], self.values[some]
        first, last = ranges[ranks().rank]
        found, come = np.empty((last - first, *self.shape[1:]), self.dtype), np.zeros(last - first, bool)
        for one in ranks().all_to_all(parts):
            found[one["number"] - first] = one["row"]
            come[one["number"] - first] = True
        assert come.all(), f"no rank has given row {first + int(np.argmin(come))}"
        return found

    def gathered(self) -> np.ndarray:
        """All of them, on every rank."""
        return self.between([(0, self.count)] * ranks().size)

    def on_root(self) -> np.ndarray:
        """All of them on the root, and none on other ranks."""
        return self.between([(0, self.count), *[(0, 0)] * (ranks().size - 1)])

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """The rows of these numbers, which every rank chooses for itself."""
        ranges = even_ranges(self.count)
        own, (first, _) = self.between(ranges), ranges[ranks().rank]
        order = np.argsort(numbers, kind="stable")
        wanted = np.ascontiguousarray(numbers[order], np.int64)
        ends = np.searchsorted(wanted, [0, *(last for _, last in ranges)])
        asked = ranks().all_to_all([wanted[low:high] for low, high in pairwise(ends)], "numbers of rows")
        found = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        found[order] = np.concatenate(ranks().all_to_all([own[one - first] for one in asked]))
        return found


AnyRows = np.ndarray | RankRows


def on_every_rank(rows: AnyRows) -> np.ndarray:
    """Rows that every rank has, or gets: all must ask."""
    return rows.gathered() if isinstance(rows, RankRows) else rows


def row_by_row(rows: AnyRows, function: Callable[[np.ndarray], np.ndarray]) -> AnyRows:
    """What a function makes of rows (n, ...), each by itself."""
    return rows.row_by_row(function) if isinstance(rows, RankRows) else function(rows)


def taken(rows: AnyRows, numbers: np.ndarray) -> AnyRows:
    """The rows of these numbers, in this order."""
    return rows.taken(numbers) if isinstance(rows, RankRows) else rows[numbers]


def followed_by(rows: AnyRows, others: AnyRows) -> AnyRows:
    """Both in a row, which every rank has or some of."""
    if isinstance(rows, RankRows):
        assert isinstance(others, RankRows)
        return rows.followed_by(others)
    return np.concatenate((rows, on_every_rank(others)))


def even_ranges(count: int) -> list[Range]:
    """So many things in a row for all ranks, in order, as equal as can be: the first ranks have one more, so that what
    is small is the root's alone."""
    size = ranks().size
    return list(pairwise(-(-count * k // size) for k in range(size + 1)))
