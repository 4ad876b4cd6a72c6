"""The order in which rows of a sparse matrix are eliminated, so that many of them can be at the same time.

Multi-color: rows without an entry in common have one color, and each color is a stage. Block-multi-color: rows are
gathered into blocks of neighbours and blocks are colored; the rows of a block follow each other, so a stage is a color
and a place within blocks. Arrays only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.errors import MeshError
from meshloom.linalg.matrix import library
from meshloom.native.algorithms import color_blocks, grow_target_blocks
from meshloom.native.cholesky import Sparse, colors_in_turn


@dataclass(frozen=True)
class ColoredOrder:
    """``rows`` (n,): the number of the row at each place; stage s has the places ``starts[s]`` to ``starts[s + 1]``,
    whose rows have no entry in common. There are so many ``colors``."""

    rows: np.ndarray
    starts: np.ndarray
    colors: int

    @property
    def stages(self) -> np.ndarray:
        """(n,): the stage of each place."""
        return np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))

    def applied(self, a: Sparse) -> Sparse:
        """The same matrix with rows and columns in this order."""
        return Sparse.of(_by_rows(a, a.values)[self.rows][:, self.rows])


def colored(a: Sparse, *, colors: int | None, block: int, window: int | None, reach: int = 1) -> ColoredOrder:
    """The order of a symmetric matrix. ``colors``: so many, given in turn; None: as few as the engine's coloring needs.
    ``window``: within so many rows of a stage the long ones come first; None where that does not matter. ``reach``:
    rows that so many entries in turn connect have different colors, as they may have an entry of the factors."""
    n = len(a)
    order = _gathered(a, block) if block > 1 else np.arange(n)
    ends = np.minimum(np.arange(0, n + block, block), n)
    linked = a if reach == 1 else _further(a, reach)
    found = _colors(linked, order, ends, colors)
    place = np.arange(n) % block  # within its block
    stage = np.repeat(found.astype(np.int64), np.diff(ends)) * block + place
    by_stage = np.argsort(stage, kind="stable")
    rows, stages = order[by_stage], stage[by_stage]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(stages)) + 1, [n]])
    if window is not None:
        lengths = np.diff(a.offsets)[rows]
        part = (np.arange(n) - np.repeat(starts[:-1], np.diff(starts))) // window
        rows = rows[np.lexsort((-lengths, part, stages))]
    return ColoredOrder(rows, starts, int(found.max()) + 1)


def _by_rows(a: Sparse, values: np.ndarray) -> Any:
    """As ``scipy.sparse`` has it, with values of their own for its entries."""
    return library().csr_matrix((values, a.columns, a.offsets), shape=(len(a), len(a)))


def _further(a: Sparse, reach: int) -> Sparse:
    """An entry for each pair of rows that at most so many entries in turn connect."""
    found = one = _by_rows(a, np.ones(len(a.columns)))
    for _ in range(reach - 1):
        found = found @ one
    return Sparse.of(found)


def _gathered(a: Sparse, block: int) -> np.ndarray:
    """The rows in an order whose runs of ``block`` are neighbours."""
    row_of = a.rows
    pairs = np.stack([row_of, a.columns], axis=1)[a.columns > row_of]
    return grow_target_blocks(pairs, len(a), block, np.arange(len(a))) if len(pairs) else np.arange(len(a))


def _colors(a: Sparse, order: np.ndarray, ends: np.ndarray, wanted: int | None) -> np.ndarray:
    """Of blocks ``order[ends[b]:ends[b + 1]]`` of rows: two that share an entry off the diagonal differ."""
    fewest = _fewest(a, order, ends)
    if wanted is None or wanted == fewest.max() + 1:
        return fewest
    if wanted < fewest.max() + 1:
        raise MeshError(f"piccg: {wanted} colors are too few, the coloring needs {fewest.max() + 1}; give as many, or"
                        " colors='auto'")  # fmt: skip
    in_turn = colors_in_turn(a, ends, order, wanted)
    return fewest if in_turn is None else in_turn


def _fewest(a: Sparse, order: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """By the engine's coloring: its elements are entries off the diagonal, and the two of a pair have one target."""
    off_diagonal = a.where(a.columns != a.rows)
    row, column = off_diagonal.rows, off_diagonal.columns
    if not len(row):
        return np.zeros(len(ends) - 1, np.int32)
    above, pair = column > row, np.empty(len(row), np.int32 if len(row) < 2**31 else np.int64)
    pair[above] = np.arange(len(row) // 2)
    pair[~above] = np.argsort(column[above], kind="stable")  # row by row, those below are the others turned
    block_of = np.empty(len(a), np.int64)
    block_of[order] = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    of_entry = block_of[row]
    in_order = bool((np.diff(of_entry) >= 0).all())
    entries = np.arange(len(row)) if in_order else np.argsort(of_entry, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(of_entry, minlength=len(ends) - 1))])
    return color_blocks(offsets, entries, [pair.reshape(-1, 1)], [len(row) // 2])
