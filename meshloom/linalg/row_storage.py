"""Sums over the entries of rows, stage by stage: how a sparse matrix in the order of its stages is stored and read.

``sell``: SELL-C-sigma. C consecutive rows of a stage are a chunk, whose rows have as many slots as the longest; chunks
of one width are one loop over a part of the rows, in which a thread reads a row, and values lie slot by slot within a
chunk (the layout aosoa C). ``csr``: entries as they are, a loop over them that adds up by rows, and one over the rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.errors import MeshError
from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.linalg.matrix import add_entry
from meshloom.mesh.assigned import MOST_LISTED
from meshloom.mesh.core import Field, Map, Set, Subset
from meshloom.native.algorithms import distinct
from meshloom.native.cholesky import Sparse
from meshloom.operation.loop import Kernel, kernel

WIDTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MOST_LISTED)  # each is code of its own, so there are few
MOST_CHUNK = 1024


@dataclass(frozen=True)
class Storage:
    """``chunk``: rows of a chunk of ``sell``; None for ``csr``. ``dtype`` of the values, and of the ``sums`` of values
    times x. ``strict``: no stage may be stored as ``csr`` because it has rows too long for ``sell``."""

    chunk: int | None
    dtype: np.dtype
    sums: np.dtype
    strict: bool


@dataclass(frozen=True)
class RowKernels:
    """What is done at a row with the sum of its entries times x. ``summed`` gets values and what they multiply, two
    arrays of as many, ``alone`` (None: nothing is done) no sum, as its rows have no entries, ``added`` that which a
    loop of its own made; then all the same."""

    summed: Kernel
    alone: Kernel | None
    added: Kernel


@dataclass(frozen=True, eq=False)
class _EqualRows:
    """Rows with as many slots each; ``way`` and ``values`` are None where they have none."""

    rows: Set
    way: Map | None
    values: Field | None


class RowStage:
    """The rows ``first`` to ``last`` of a matrix, and their entries on one side of the diagonal, or all off it.
    ``of``: the set of the rows, and ``to`` that of the columns. ``sums``: where ``csr`` adds up, zero before."""

    sums: Field | None = None

    def __init__(self, of: Set, to: Set, a: Sparse, first: int, last: int, storage: Storage):
        self.of, self.to, self.first, self.last = of, to, first, last
        self.empty = bool(a.offsets[first] == a.offsets[last])
        lengths = np.diff(a.offsets[first : last + 1])
        self.listed = not self.empty and (storage.chunk is None or _too_long(lengths, storage.strict))
        self._rows = some_rows(of, np.arange(first, last))
        self._groups = [] if self.listed else list(self._chunks(a, lengths, storage))
        if self.listed:
            self._entries = self._as_listed(a, storage.dtype)

    def run(self, kernels: RowKernels, x: Field, *rest: Any) -> None:
        """At every row the sum of its entries times x, and what the kernels make of it with the rest."""
        for group in self._groups:
            if group.way is not None and group.values is not None:
                kernels.summed(group.rows, group.values, x[group.way], *rest)
            elif kernels.alone is not None:
                kernels.alone(group.rows, *rest)
        if self.listed:
            entries, values, row_of, column_of = self._entries
            assert self.sums is not None
            add_entry(entries, values, x[column_of], self.sums[row_of])
            kernels.added(self._rows, self.sums, *rest)

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
        part = some_rows(self.of, rows)
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
    found, most = width.copy(), current().target.numbers.solvers.most_added * width.sum()
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


class RowBlock:
    """A matrix in the order of its stages, from one of ``starts`` to the next, which are run one after the other; for
    ``of`` and ``to`` see ``RowStage``."""

    def __init__(self, of: Set, to: Set, a: Sparse, starts: Iterable[int], storage: Storage):
        self.stages = [RowStage(of, to, a, int(i), int(j), storage) for i, j in pairwise(starts)]
        self._sums = of.field("sums", dtype=storage.sums) if any(one.listed for one in self.stages) else None
        for one in self.stages:
            one.sums = self._sums

    def start(self) -> None:
        """Before each sweep through the stages."""
        if self._sums is not None:
            self._sums.fill(0.0)

    def run(self, kernels: RowKernels, x: Field, *rest: Any, backwards: bool = False) -> None:
        """A sweep through all of them: see ``RowStage.run``."""
        self.start()
        for one in reversed(self.stages) if backwards else self.stages:
            one.run(kernels, x, *rest)


def some_rows(of: Set, numbers: np.ndarray) -> Set:
    """The rows of these numbers, as a set to loop over."""
    return of if len(numbers) == of.total else Subset(of, numbers, "rows of a stage")


# --- what is done at a row --------------------------------------------------------------------------------------------


def at_rows(do: Callable[..., None]) -> RowKernels:
    """Decorator: the kernels of a function of the sum at a row, and of the rest, whose access modes it says."""
    _, *rest = inspect.signature(do).parameters.values()

    def made(what: str, function: Any, *names: str) -> Kernel:
        before = [inspect.Parameter(one, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Read) for one in names]
        function.__name__, function.__signature__ = f"{do.__name__}_{what}", inspect.Signature([*before, *rest])
        return kernel(function)

    return RowKernels(
        made("summed", lambda w, x, *rest: do(np.sum(w * x), *rest), "w", "x"),
        made("alone", lambda *rest: do(0.0, *rest)),
        made("added", lambda total, *rest: do(total, *rest), "total"),
    )


@at_rows
def subtract(total: Any, r: Read, z: Write):
    z[...] = r - total


@at_rows
def subtract_and_scale(total: Any, r: Read, d: Read, z: Write):
    z[...] = d * (r - total)


@at_rows
def scale_and_subtract(total: Any, d: Read, z: ReadWrite):
    z[...] = d * z - total


@at_rows
def plus(total: Any, y: ReadWrite):
    y += total


add = replace(plus, alone=None)  # nothing is added


@at_rows
def image(total: Any, own: Read, d: Read, y: Write):
    y[...] = d * own + total


@at_rows
def inner(total: Any, p: Read, k: Read, t: Read, u: Write, pq: Sum):
    last = p - k * t - total
    u[...] = last
    pq += p * (t + last)


@at_rows
def keep(total: Any, t: Write):
    t[...] = total


@at_rows
def reduce(total: Any, p: Read, d: Read, q: Write, pq: Sum):
    of_p = d * p - total
    q[...] = of_p
    pq += p * of_p


@kernel
def unscaled_square(scale: Read, r: Read, total: Sum):
    total += (r / scale) ** 2
