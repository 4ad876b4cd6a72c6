"""How much of its gradient a cell may use: bounds over its neighbours, and the share that keeps within them.

``change`` is what the gradient makes of a value on the way from the centre of a cell to a face, ``room`` how far it is
from there to the largest value about (the smallest one where the change is negative).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import meshloom as ml


@ml.kernel
def own_bounds(v: ml.Read, low: ml.Write, high: ml.Write):
    low[...] = v
    high[...] = v


@ml.kernel
def bounds(v: ml.Read, low: ml.Min, high: ml.Max):
    """The smallest and the largest value in a cell and its neighbours."""
    for mine, other in ((0, 1), (1, 0)):
        low[mine] = v[other]
        high[mine] = v[other]


def barth_jespersen(change: Any, room: Any, threshold: Any) -> Any:
    """As much as stays between the bounds (Barth and Jespersen 1989)."""
    return np.minimum(room / np.where(change == 0.0, 1.0, change), 1.0)


def venkatakrishnan(change: Any, room: Any, threshold: Any) -> Any:
    """The same, smoothly; below the root of the threshold nothing is limited (Venkatakrishnan 1993)."""
    top = room**2 + threshold + 2.0 * change * room
    return top / (room**2 + threshold + change * room + 2.0 * change**2)


#: By name: the share as a function of change, room and threshold.
SHARES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "barth_jespersen": barth_jespersen,
    "venkatakrishnan": venkatakrishnan,
}
