"""Rows by number of which every rank has some, and how they come to others without any rank having all of them.

Where something needs rows in the order of their numbers, as a file does, each rank gets a range of them: the first
phase of collective input and output in two phases. An array stands for rows that every rank has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from meshloom.process.ranks import ranks

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
            some = slice(*np.searchsorted(known, (first, last)))
            parts.append(np.concatenate((_as_bytes(known[some].astype(np.int64)), _as_bytes(self.values[order[some]]))))
        first, last = ranges[ranks().rank]
        found = np.zeros((last - first, *self.shape[1:]), self.dtype)
        for one in all_to_all(parts, "rows"):
            cut = 8 * (len(one) // (8 + self.row_bytes))
            numbers = one[:cut].view(np.int64)
            found[numbers - first] = one[cut:].view(self.dtype).reshape(len(numbers), *self.shape[1:])
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
        asked = all_to_all([_as_bytes(wanted[low:high]) for low, high in pairwise(ends)], "numbers of rows")
        rows = all_to_all([_as_bytes(own[one.view(np.int64) - first]) for one in asked], "rows")
        found = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        found[order] = np.concatenate(rows).view(self.dtype).reshape(found.shape)
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
    """So many things in a row for all ranks, in order, as equal as can be: the first ranks have one more."""
    size = ranks().size
    ends = [-(-count * k // size) for k in range(size + 1)]
    return list(pairwise(ends))


def all_to_all(parts: Sequence[np.ndarray], what: str) -> list[np.ndarray]:
    """Bytes for each rank; what each rank has for this one, by rank. All must call it."""
    here = ranks()
    lengths = here.allgathered([len(one) for one in parts], f"sizes of {what}")
    others = [one for one in range(here.size) if one != here.rank]
    receivers = [one for one in others if len(parts[one])]
    senders = [one for one in others if lengths[one][here.rank]]
    come = [np.empty(lengths[one][here.rank], np.uint8) for one in senders]
    here.begin_exchange([parts[one] for one in receivers], come, receivers, senders, dict.fromkeys(others, what))()
    found = [np.zeros(0, np.uint8) for _ in parts]
    found[here.rank] = parts[here.rank]
    for sender, message in zip(senders, come, strict=True):
        found[sender] = message
    return found


def _as_bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
