"""How good an order is: data reused within a block, and cache lines a block touches."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from meshloom.native.algorithms import lines_touched

TYPICAL_BLOCK = 1024  # elements; what such blocks load tells about the order
SAMPLED_BLOCKS = 64
_TARGETS_PER_LINE = 8  # one double each

#: An order whose ``excess`` is above this is bad: as if a whole line were loaded for every double. Every ordering but
#: the random one stays below on every kind of cell (the highest is reverse Cuthill-McKee on tetrahedra); that one is
#: above unless a cache holds the mesh.
BAD_EXCESS = 8.0


def sampled_blocks(elements: int, block: int) -> list[tuple[int, int]]:
    """Ranges of at most ``SAMPLED_BLOCKS`` evenly chosen blocks of consecutive elements."""
    blocks = -(-elements // block)
    chosen = np.unique(np.linspace(0, blocks - 1, min(blocks, SAMPLED_BLOCKS)).astype(int))
    return [(b * block, min((b + 1) * block, elements)) for b in chosen.tolist()]


def excess(rows: np.ndarray, n_targets: int) -> float:
    """How many times the memory they need do blocks of consecutive elements load? At least about 1.

    ``rows`` (n, arity) name the targets of the elements in the order of their visit. What a block of ``TYPICAL_BLOCK``
    elements loads are the cache lines under its targets, one double each; what it needs is its share of all targets. So
    both weigh: lines of which little is used, and targets that several blocks load. Loops that fit into a cache cannot
    come out badly. Blocks are sampled: the time does not grow with n.
    """
    chosen = sampled_blocks(len(rows), TYPICAL_BLOCK)
    lines = sum(len(np.unique(rows[first:last] // _TARGETS_PER_LINE)) for first, last in chosen)
    share = sum(last - first for first, last in chosen) * n_targets / max(len(rows), 1)
    return lines * _TARGETS_PER_LINE / share if share else 1.0


def reuse_factor(indices: ArrayLike, element_order: ArrayLike, block_offsets: ArrayLike) -> float:
    """How often a target loaded by a block is used there: slots / distinct targets, over all blocks; at least 1.

    ``block_offsets`` (nb+1,): block b is ``element_order[block_offsets[b]:block_offsets[b+1]]``.
    """
    rows = np.asarray(indices)
    distinct = int(_lines(rows, element_order, block_offsets, row=1, line=1).sum())
    slots = np.size(element_order) * (rows.shape[1] if rows.ndim == 2 else 1)
    return slots / distinct if distinct else 1.0


def lines_per_block(
    indices: ArrayLike,
    element_order: ArrayLike,
    block_offsets: ArrayLike,
    bytes_per_target: int,
    *,
    line_bytes: int = 64,
) -> float:
    """Average number of distinct cache lines under the targets of a block.

    A target's data are ``bytes_per_target`` consecutive bytes (AoS; for SoA one component's, then times their number).
    """
    counts = _lines(np.asarray(indices), element_order, block_offsets, row=bytes_per_target, line=line_bytes)
    return float(counts.mean()) if counts.size else 0.0


def _lines(rows: np.ndarray, order: ArrayLike, offsets: ArrayLike, *, row: int, line: int) -> np.ndarray:
    n_targets = int(rows.max()) + 1 if rows.size else 0
    return lines_touched(rows, n_targets, order, offsets, row=row, line=line)
