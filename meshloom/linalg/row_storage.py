"""Sums over the entries of rows, stage by stage: how a sparse matrix in the order of its stages is stored and read.

``sell``: SELL-C-sigma. C consecutive rows of a stage are a chunk, whose rows have as many slots as the longest; chunks
of one width are one loop over a part of the rows, in which a thread reads a row, and values lie slot by slot within a
chunk (the layout aosoa C). ``csr``: entries as they are, a loop over them that adds up by rows, and one over the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from meshloom.errors import MeshError
from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.linalg.product import add_entry
from meshloom.mesh.core import MOST_LISTED, Field, Map, Set, Subset
from meshloom.native.algorithms import distinct
from meshloom.native.cholesky import Sparse
from meshloom.operation.loop import Kernel, kernel

WIDTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MOST_LISTED)  # each is code of its own, so there are few
MOST_CHUNK = 1024
MOST_ADDED = 1 / 16  # of all slots of a stage


@dataclass(frozen=True)
class Storage:
    """``chunk``: rows of a chunk of ``sell``; None for ``csr``. ``dtype`` of the values. ``strict``: no stage may be
    stored as ``csr`` because it has rows too long for ``sell``."""

    chunk: int | None
    dtype: np.dtype
    strict: bool = True


@dataclass(frozen=True)
class RowKernels:
    """What is done at a row. ``summed`` gets values and what they multiply, two arrays of as many, ``alone`` nothing
    where a row has no entries, ``added`` the sum where that was made by a loop of its own; then all the same."""

    summed: Kernel
    alone: Kernel
    added: Kernel


@dataclass(frozen=True, eq=False)
class _EqualRows:
    """Rows with as many slots each; ``way`` and ``values`` are None where they have none."""

    rows: Set
    way: Map | None
    values: Field | None


class RowStage:
    """The rows ``first`` to ``last`` of a matrix, and their entries on one side of the diagonal, or all next to it.
    ``of``: the set of the rows, and ``to`` that of the columns."""

    def __init__(self, of: Set, to: Set, a: Sparse, first: int, last: int, storage: Storage):
        self.of, self.to, self.first, self.last = of, to, first, last
        self.empty = bool(a.offsets[first] == a.offsets[last])
        lengths = np.diff(a.offsets[first : last + 1])
        self.listed = not self.empty and (storage.chunk is None or _too_long(lengths, storage.strict))
        self._rows = _part(of, np.arange(first, last))
        self._groups = [] if self.listed else list(self._chunks(a, lengths, storage))
        if self.listed:
            self._entries = self._as_listed(a, storage.dtype)

    def run(self, kernels: RowKernels, x: Field, sums: Field | None, *rest: Any) -> None:
        """At every row the sum of its entries times x, and what the kernels make of it with the rest. ``sums``: where
        ``csr`` adds up, zero before."""
        for group in self._groups:
            if group.way is None or group.values is None:
                kernels.alone(group.rows, *rest)
            else:
                kernels.summed(group.rows, group.values, x[group.way], *rest)
        if self.listed:
            entries, values, row_of, column_of = self._entries
            assert sums is not None
            add_entry(entries, values, x[column_of], sums[row_of])
            kernels.added(self._rows, sums, *rest)

    def _chunks(self, a: Sparse, lengths: np.ndarray, storage: Storage) -> Iterator[_EqualRows]:
        if self.empty or storage.chunk is None:
            yield _EqualRows(self._rows, None, None)
            return
        rows, chunk = np.arange(self.first, self.last), np.arange(len(lengths)) // storage.chunk
        longest = np.zeros(chunk[-1] + 1, np.int64)
        np.maximum.at(longest, chunk, lengths)
        width = few_widths(np.asarray(WIDTHS)[np.searchsorted(WIDTHS, longest)])[chunk]
        for one in distinct(width):
            yield self._padded(a, rows[width == one], int(one), storage)

    def _padded(self, a: Sparse, rows: np.ndarray, width: int, storage: Storage) -> _EqualRows:
        part = _part(self.of, rows)
        if width == 0:
            return _EqualRows(part, None, None)
        counts = np.diff(a.offsets)[rows]
        entry = a.offsets[rows][:, None] + np.arange(width)
        there = np.arange(width) < counts[:, None]
        entry[~there] = a.offsets[rows[np.argmax(counts)]]  # any that leads out of the stage: its value is 0
        values = np.where(there, a.values[entry], 0.0)
        layout = f"aosoa{storage.chunk}" if width > 1 else None
        held = part.field("values", width, dtype=storage.dtype, data=values, layout=layout)
        return _EqualRows(part, Map(part, self.to, a.columns[entry], "columns"), held)

    def _as_listed(self, a: Sparse, dtype: np.dtype) -> tuple[Set, Field, Map, Map]:
        begin, end = int(a.offsets[self.first]), int(a.offsets[self.last])
        entries = Set(end - begin, "entries")
        row = np.repeat(np.arange(self.first, self.last), np.diff(a.offsets[self.first : self.last + 1]))
        values = entries.field("values", dtype=dtype, data=a.values[begin:end])
        columns = Map(entries, self.to, a.columns[begin:end], "columns")
        return entries, values, Map(entries, self.of, row, "rows"), columns


def few_widths(width: np.ndarray) -> np.ndarray:
    """The widths of chunks, with those that few have raised to the next one: a loop of their own would take longer than
    the few slots that are added."""
    found, most = width.copy(), MOST_ADDED * width.sum()
    known = distinct(width)
    for shorter, longer in pairwise(known):
        chosen = found == shorter
        added = (longer - shorter) * chosen.sum()
        if added <= most:
            found[chosen] = longer
            most -= added
    return found


def _too_long(lengths: np.ndarray, strict: bool) -> bool:
    """Has a row more entries than a kernel takes?"""
    if lengths.max() <= MOST_LISTED:
        return False
    if strict:
        raise MeshError(f"piccg: a row has {lengths.max()} entries on one side of the diagonal, and storage='sell'"
                        f" takes {MOST_LISTED} at most; leave storage out, or use 'csr'")  # fmt: skip
    return True


def stages(ordered: Set, a: Sparse, starts: np.ndarray, storage: Storage) -> list[RowStage]:
    """A matrix in the order of its stages."""
    return [RowStage(ordered, ordered, a, int(i), int(j), storage) for i, j in pairwise(starts)]


def side(a: Sparse, *, above: bool) -> Sparse:
    """The entries of a matrix on one side of its diagonal."""
    row = np.repeat(np.arange(len(a)), np.diff(a.offsets))
    chosen = a.columns > row if above else a.columns < row
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row[chosen], minlength=len(a)))])
    return Sparse(offsets, a.columns[chosen], a.values[chosen])


def turned(a: Sparse) -> Sparse:
    """The transpose."""
    n = len(a)
    row = np.repeat(np.arange(n), np.diff(a.offsets))
    order = np.argsort(a.columns, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(a.columns, minlength=n))])
    return Sparse(offsets, row[order].astype(a.columns.dtype), a.values[order])


def sums_for(parts: Iterable[RowStage], of: Set, dtype: np.dtype) -> Field | None:
    """Where sums are made by a loop of their own: a field for them."""
    return of.field("sums", dtype=dtype) if any(one.listed for one in parts) else None


def start_sums(sums: Field | None) -> None:
    if sums is not None:
        sums.fill(0.0)


def _part(of: Set, rows: np.ndarray) -> Set:
    return of if len(rows) == of.size else Subset(of, rows, "rows of a stage")


# --- kernels ----------------------------------------------------------------------------------------------------------


@kernel
def subtract_summed(w: Read, x: Read, r: Read, z: Write):
    z[...] = r - np.sum(w * x)


@kernel
def subtract_nothing(r: Read, z: Write):
    z[...] = r


@kernel
def subtract_added(total: Read, r: Read, z: Write):
    z[...] = r - total


SUBTRACT = RowKernels(subtract_summed, subtract_nothing, subtract_added)  # z = r - sum


@kernel
def scale_summed(w: Read, x: Read, r: Read, d: Read, z: Write):
    z[...] = d * (r - np.sum(w * x))


@kernel
def scale_alone(r: Read, d: Read, z: Write):
    z[...] = d * r


@kernel
def scale_added(total: Read, r: Read, d: Read, z: Write):
    z[...] = d * (r - total)


SUBTRACT_AND_SCALE = RowKernels(scale_summed, scale_alone, scale_added)  # z = d (r - sum)


@kernel
def back_summed(w: Read, x: Read, d: Read, z: ReadWrite):
    z[...] = d * z - np.sum(w * x)


@kernel
def back_alone(d: Read, z: ReadWrite):
    z[...] = d * z


@kernel
def back_added(total: Read, d: Read, z: ReadWrite):
    z[...] = d * z - total


SCALE_AND_SUBTRACT = RowKernels(back_summed, back_alone, back_added)  # z = d z - sum


@kernel
def plus_summed(w: Read, x: Read, y: ReadWrite):
    y += np.sum(w * x)


@kernel
def plus_nothing(y: ReadWrite):
    y[...] = y


@kernel
def plus_added(total: Read, y: ReadWrite):
    y += total


PLUS = RowKernels(plus_summed, plus_nothing, plus_added)  # y += sum


@kernel
def image_summed(w: Read, x: Read, own: Read, d: Read, y: Write):
    y[...] = d * own + np.sum(w * x)


@kernel
def image_alone(own: Read, d: Read, y: Write):
    y[...] = d * own


@kernel
def image_added(total: Read, own: Read, d: Read, y: Write):
    y[...] = d * own + total


IMAGE = RowKernels(image_summed, image_alone, image_added)  # y = d x + sum


@kernel
def inner_summed(w: Read, x: Read, p: Read, k: Read, t: Read, u: Write, pq: Sum):
    last = p - k * t - np.sum(w * x)
    u[...] = last
    pq += p * (t + last)


@kernel
def inner_alone(p: Read, k: Read, t: Read, u: Write, pq: Sum):
    last = p - k * t
    u[...] = last
    pq += p * (t + last)


@kernel
def inner_added(total: Read, p: Read, k: Read, t: Read, u: Write, pq: Sum):
    last = p - k * t - total
    u[...] = last
    pq += p * (t + last)


INNER = RowKernels(inner_summed, inner_alone, inner_added)  # u = p - k t - sum, and the product of p and t + u


@kernel
def sum_summed(w: Read, x: Read, t: Write):
    t[...] = np.sum(w * x)


@kernel
def sum_of_nothing(t: Write):
    t[...] = 0.0


@kernel
def sum_added(total: Read, t: Write):
    t[...] = total


SUM = RowKernels(sum_summed, sum_of_nothing, sum_added)  # t = sum


@kernel
def reduce_summed(w: Read, x: Read, p: Read, d: Read, q: Write, pq: Sum):
    image = d * p - np.sum(w * x)
    q[...] = image
    pq += p * image


@kernel
def reduce_alone(p: Read, d: Read, q: Write, pq: Sum):
    q[...] = d * p
    pq += p * d * p


@kernel
def reduce_added(total: Read, p: Read, d: Read, q: Write, pq: Sum):
    image = d * p - total
    q[...] = image
    pq += p * image


REDUCE = RowKernels(reduce_summed, reduce_alone, reduce_added)  # q = d p - sum, and the product of p and q


@kernel
def unscaled_square(scale: Read, r: Read, total: Sum):
    total += (r / scale) ** 2
