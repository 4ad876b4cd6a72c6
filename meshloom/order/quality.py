"""How good an order is: data reused within a block, and cache lines a block touches."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from meshloom.native.algorithms import lines_touched


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
