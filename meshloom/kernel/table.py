"""Operations of the IR that look something up: by an index, or between the numbers of a sorted table.

``index`` brings any integer between 0 and the last entry, so that nothing behind it leaves a table: a negative one
counts from the end, as in NumPy; one that is outside is taken for the nearest end, where NumPy raises IndexError.
``pick`` is the entry of several values at such an index, ``entry`` that of a constant table, ``interval`` the last
number of an increasing table that is not above a value (the first, where all are).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np


class LookupTable:
    """Constants, (n,), of one type; equal where type and bytes are. Its name is that in generated code."""

    __slots__ = ("name", "values")

    def __init__(self, values: np.ndarray):
        self.values = np.array(values)  # a copy: what a user does with theirs is not seen
        self.values.flags.writeable = False
        said = f"{self.values.dtype} {self.values.size} ".encode() + self.values.tobytes()
        self.name = f"table_{hashlib.blake2b(said, digest_size=10).hexdigest()}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LookupTable) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


class TableExtent(NamedTuple):
    """How many entries an index is one of, and of what, for messages."""

    size: int
    of: str


def index(extent: TableExtent, k: Any) -> Any:
    """The entry that is read for index k, (...): always one that there is."""
    number = np.asarray(k, np.int64)
    return np.clip(np.where(number < 0, number + extent.size, number), 0, extent.size - 1)


def is_outside(extent: TableExtent, k: Any) -> Any:
    """Would NumPy raise IndexError?"""
    return (np.asarray(k) < -extent.size) | (np.asarray(k) >= extent.size)


def pick(_: None, k: Any, *entries: Any) -> Any:
    """Entry k of some values, each a number or one for each k."""
    values = np.stack(np.broadcast_arrays(*entries))
    if values.ndim == 1:
        return values[k]
    return np.take_along_axis(values, np.broadcast_to(k, values.shape[1:])[None], axis=0)[0]


def entry(table: LookupTable, k: Any) -> Any:
    """Entry k of a constant table."""
    return table.values[k]


def interval(table: LookupTable, x: Any) -> Any:
    """The last of the numbers that is not above x; the first where all are, or x is not a number."""
    found = np.searchsorted(table.values, x, side="right") - 1
    return np.where(np.isnan(x), 0, np.maximum(found, 0)).astype(np.int64)


LOOKUPS: dict[str, Callable[..., Any]] = {"index": index, "pick": pick, "entry": entry, "interval": interval}


def lookup_of(op: str, value: Any) -> Callable[..., Any]:
    """What gives the value of such an operation from those of its arguments; ``value``: that of its node."""
    return partial(LOOKUPS[op], value)
