"""Numbering data after the elements that touch them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import ScheduleError, whole_number
from meshloom.native.ffi import MOST_TARGETS, as_indices, as_order, call, empty, suffix


def follow(element_order: ArrayLike, indices: ArrayLike, n_targets: int, block: int | None = None) -> np.ndarray:
    """Permutation (n_targets,) int64 of the targets in the order in which ``element_order`` touches them first.

    With ``block``, targets are grouped by the set of blocks (runs of ``block`` elements) that touch them: those that
    block 0 has to itself, those it shares with later blocks, those that block 1 has to itself, and so on; first touch
    decides within a group. Untouched targets come last.
    """
    rows = as_indices(indices, n_targets)
    elements = as_order(element_order, len(rows))
    order = empty(n_targets, np.int64)
    arguments = (elements, len(elements), rows, rows.shape[1], n_targets)
    if block is None:
        call("sorting", f"first_touch_{suffix(rows)}", *arguments, order)
    else:
        run = whole_number("elements of a block", block, 1, MOST_TARGETS, error=ScheduleError)
        call("sorting", f"group_by_blocks_{suffix(rows)}", *arguments, run, order)
    return order
