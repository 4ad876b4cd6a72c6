"""The algorithms behind plans: ``incidence.cpp``, ``coloring.cpp`` and ``blocks.cpp``, each compiled at first use.

``indices`` are (n, arity) int32 or int64 arrays: row e holds the targets of element e. Where several maps are racy
at once they come as a list, each entry with a target space of its own; two maps into the same set are passed as one
array (n, arity1 + arity2). An element that touches a target twice does not conflict with itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, whole_number
from meshloom.native import ffi
from meshloom.native.ffi import as_indices, as_offsets, as_order, as_permutation, call, same_type, suffix

MOST_BYTES = 2**20  # of a row or a cache line: its product with a number of targets fits 64 bits


def incidence(indices: ArrayLike, n_targets: int) -> tuple[np.ndarray, np.ndarray]:
    """The slots that lead to each target.

    Returns ``offsets`` (n_targets+1,) int64 and ``entries`` (n*arity,), int32 where they fit, else int64:
    ``entries[offsets[t]:offsets[t+1]]`` are the e*arity+slot that lead to target t, ascending.
    """
    rows = as_indices(indices, n_targets)
    offsets = ffi.empty(n_targets + 1, np.int64)
    bits = 32 if rows.size < 2**31 else 64
    entries = np.empty(rows.size, np.int32 if bits == 32 else np.int64)
    call("incidence", f"incidence{bits}_{suffix(rows)}", rows, rows.size, n_targets, offsets, entries)
    return offsets, entries


WRONG_INCIDENCE = ("", "out of bounds", "under the wrong target", "missing or doubled, or not ascending")


def wrong_incidence(indices: np.ndarray, n_targets: int, offsets: np.ndarray, entries: np.ndarray) -> str:
    """What is wrong with some entries as the ``incidence`` of (n, arity) indices, in a few words; "" if nothing is.

    ``offsets`` (n_targets+1,) int64 must rise from 0 to the number of slots, which is that of the entries, int32 or
    int64.
    """
    rows = as_indices(indices, n_targets)
    as_offsets(offsets, rows.size)
    if entries.shape != (rows.size,) or len(offsets) != n_targets + 1:
        raise MeshError(f"an incidence of {rows.size} slots and {n_targets} targets has as many entries and rows")
    verdict, bits = np.zeros(1, np.int64), 32 if entries.dtype == np.int32 else 64
    numbers = np.ascontiguousarray(entries, np.int32 if bits == 32 else np.int64)
    function = f"wrong_incidence{bits}_{suffix(rows)}"
    call("incidence", function, rows, rows.size, n_targets, np.ascontiguousarray(offsets, np.int64), numbers, verdict)
    return WRONG_INCIDENCE[int(verdict[0])]


def color_elements(maps: Sequence[ArrayLike], n_targets: Sequence[int]) -> np.ndarray:
    """Colors (n,) int32: each element in turn gets the smallest color no earlier conflicting element has."""
    rows, sizes = _maps(maps, n_targets)
    n = len(rows[0])
    colors = np.full(n, -1, np.int32)
    call("coloring", f"color_elements_{suffix(rows[0])}", n, *_tables(rows, sizes), colors)
    return colors


def color_blocks(
    block_offsets: ArrayLike, element_order: ArrayLike, maps: Sequence[ArrayLike], n_targets: Sequence[int]
) -> np.ndarray:
    """Colors (nb,) int32 of blocks, block b being ``element_order[block_offsets[b]:block_offsets[b+1]]``.

    Each block in turn gets the smallest color that no earlier block with a common target has.
    """
    rows, sizes = _maps(maps, n_targets)
    order = as_order(element_order, len(rows[0]))
    offsets = as_offsets(block_offsets, len(order))
    n_blocks = len(offsets) - 1
    colors = np.full(n_blocks, -1, np.int32)
    call("coloring", f"color_blocks_{suffix(rows[0])}", n_blocks, offsets, order, *_tables(rows, sizes), colors)
    return colors


def thread_colors(
    block_offsets: ArrayLike, element_order: ArrayLike, maps: Sequence[ArrayLike], n_targets: Sequence[int]
) -> np.ndarray:
    """Colors (n,) int32 by element number: greedy within each block, independent between blocks.

    Blocks as in ``color_blocks``; an element that is in no block keeps -1.
    """
    rows, sizes = _maps(maps, n_targets)
    order = as_order(element_order, len(rows[0]))
    offsets = as_offsets(block_offsets, len(order))
    colors = np.full(len(rows[0]), -1, np.int32)
    n_blocks = len(offsets) - 1
    call("coloring", f"thread_colors_{suffix(rows[0])}", n_blocks, offsets, order, *_tables(rows, sizes), colors)
    return colors


def grow_blocks(indices: ArrayLike, n_targets: int, block: int, seeds_order: ArrayLike) -> np.ndarray:
    """An order (n,) int64 of the elements whose runs of ``block`` touch few targets: greedy growing.

    ``seeds_order`` (n,) is a permutation: where the growth starts, and where it goes on in a new component.
    """
    rows = as_indices(indices, n_targets)
    return _grow(rows, n_targets, block, as_permutation(seeds_order, len(rows)), of_targets=False)


def grow_target_blocks(indices: ArrayLike, n_targets: int, block: int, seeds_order: ArrayLike) -> np.ndarray:
    """As ``grow_blocks`` with the roles exchanged: an order (n_targets,) of targets whose runs touch few rows."""
    rows = as_indices(indices, n_targets)
    return _grow(rows, n_targets, block, as_permutation(seeds_order, n_targets), of_targets=True)


def lines_touched(
    indices: ArrayLike, n_targets: int, element_order: ArrayLike, block_offsets: ArrayLike, *, row: int, line: int
) -> np.ndarray:
    """Per block (nb,) int64: the different lines of ``line`` bytes under the rows of ``row`` bytes of its targets."""
    rows = as_indices(indices, n_targets)
    order = as_order(element_order, len(rows))
    offsets = as_offsets(block_offsets, len(order))
    counts = np.empty(len(offsets) - 1, np.int64)
    row = whole_number("bytes per row", row, 1, MOST_BYTES, error=MeshError)
    line = whole_number("bytes per line", line, 1, MOST_BYTES, error=MeshError)
    name = f"lines_touched_{suffix(rows)}"
    call("blocks", name, len(counts), offsets, order, rows, rows.shape[1], n_targets, row, line, counts)
    return counts


def _grow(rows: np.ndarray, n_targets: int, block: int, seeds: np.ndarray, *, of_targets: bool) -> np.ndarray:
    block = whole_number("elements of a block", block, 1, ffi.MOST_TARGETS, error=MeshError)
    offsets, entries = incidence(rows, n_targets)
    rows, entries = same_type([rows, entries])
    order = np.empty(len(seeds), np.int64)
    block = min(block, max(len(seeds), 1))
    shape = len(rows), rows.shape[1], n_targets
    name = f"grow_blocks_{suffix(rows)}"
    call("blocks", name, rows, *shape, offsets, entries, block, seeds, int(of_targets), order)
    return order


def _maps(maps: Sequence[ArrayLike], n_targets: Sequence[int]) -> tuple[list[np.ndarray], list[int]]:
    """The maps checked, of one type and one length."""
    if not maps or len(maps) != len(n_targets):
        raise MeshError(f"expected maps, each with its number of targets; got {len(maps)} and {len(n_targets)}")
    rows = same_type([as_indices(one, size) for one, size in zip(maps, n_targets, strict=True)])
    if len({len(one) for one in rows}) > 1:
        raise MeshError(f"maps of one loop have one row per element, got {[len(one) for one in rows]} rows")
    return rows, [int(size) for size in n_targets]


def _tables(rows: list[np.ndarray], sizes: list[int]) -> tuple[object, ...]:
    arities = np.array([one.shape[1] for one in rows], np.int64)
    return len(rows), rows, arities, np.array(sizes, np.int64)


def distinct(values: ArrayLike) -> np.ndarray:
    """Every value once, ascending, (n,). ``np.unique`` puts whole numbers into a hash table since NumPy 2.3: a million
    of them take it 4.7 s, sorting 0.08."""
    ascending = np.sort(np.asarray(values), axis=None)
    return ascending[np.concatenate([[True], ascending[1:] != ascending[:-1]])] if len(ascending) else ascending
