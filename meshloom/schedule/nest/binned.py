"""Sums to Globals that have the same bits in any order: binned summation (Demmel and Nguyen; Ahrens, Demmel, Nguyen).

Bins lie at fixed places, each of 30 bits. The three from that of the largest summand down count: a summand is rounded
to a whole number of units of the last of them, whatever else was added before, and whole numbers are added exactly. The
total is rounded once. ``backend/binned.hpp`` is the arithmetic; here is what a nest says about it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshloom.kernel.expr import C_TYPES
from meshloom.schedule.nest.nodes import (
    Block,
    Body,
    Cast,
    Deposit,
    Do,
    Expr,
    For,
    Name,
    Number,
    Room,
    Statement,
    Store,
    call,
    least,
    let,
)
from meshloom.schedule.nest.reduce import Reduction
from meshloom.schedule.nest.walk import everything

BINNED = "ml_binned"
WORDS = np.dtype(np.int64), 4  # what the bins of a share are in memory: so many of these
MOST_SUMMANDS = 2**32  # each less than 2^29 units of the top bin, whose number has 63 bits and a sign
WAITING = 512  # summands that wait for the largest of them to be known: 4 kB, which stay in the nearest cache


class BinnedSum(Reduction):
    """Floating-point numbers, added up in bins."""

    ctype, stored, operator, unroll, any_order = BINNED, WORDS, "", 4, True

    @property
    def start(self) -> Expr:
        return call(BINNED)

    def added(self, share: Expr, value: Expr) -> Statement:
        return Deposit(share, Cast(C_TYPES[self.dtype], value))

    def merged(self, share: Expr, other: Expr) -> Statement:
        return Store(share, call("ml_merged", share, other))

    def total(self, before: Expr, share: Expr) -> Expr:
        """What was there before is one more summand."""
        return call("ml_rounded", share, before)


class OpenBinnedSum(BinnedSum):
    """The same, whose bins are kept as they are: others have more summands."""

    def finished(self, to: Expr, comp: int, before: Expr | None, share: Expr) -> Statement:
        dtype, count = WORDS
        return Do(call("ml_keep", to + comp * (count * dtype.itemsize // self.dtype.itemsize), share))


def in_chunks(loop: For) -> Statement:
    """A loop of independent turns that makes deposits, so that it can still be vectorised: the summands of a chunk of
    turns wait, and are deposited together, their largest known. In turn where deposits are not the same in all turns.
    """
    deposits = [one for one in loop.body if isinstance(one, Deposit)]
    if len(deposits) < sum(isinstance(one, Deposit) for one in everything(loop.body)):
        return replace(loop, independent=False)
    first, last, end = Name("chunk_first"), Name("chunk_last"), Name("chunk_end")
    rows = [Name(f"waiting{k}") for k in range(len(deposits))]
    place, left = Name(loop.variable) - first, iter(rows)
    body = tuple(Store(next(left)[place], one.value) if isinstance(one, Deposit) else one for one in loop.body)
    chunk: Body = (
        let(last.name, least(first + WAITING, end), loop.ctype),
        replace(loop, first=first, last=last, body=body),
        *(Do(call("ml_deposit_all", one.bins, row, last - first)) for one, row in zip(deposits, rows, strict=True)),
    )
    outer = For(first.name, loop.first, loop.last, chunk, loop.ctype, step=Number(WAITING), bound=end.name)
    return Block((*(Room("double", row.name, Number(WAITING)) for row in rows), outer))
