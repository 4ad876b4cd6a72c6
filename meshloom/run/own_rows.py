"""What a case makes of its fields on this rank's own elements, and who looks at it.

``values`` on a set are those of this rank's own elements, in the order of ``set.mine``, as ``field.local()`` has them:
all of them where there is one rank. A field or an array of all elements will do, too. No rank has all of them but the
root, and it those alone that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from meshloom.io.field_rows import as_rows, rows_on
from meshloom.io.rank_rows import AnyRows, RankRows, on_every_rank, taken
from meshloom.mesh.core import Field, Set
from meshloom.mesh.grid import Grid
from meshloom.process.ranks import on_root

__all__ = [
    "AnyRows", "as_rows", "by_root_from_all", "on_every_rank", "own_values_at", "root_points", "root_rows", "rows_at",
    "rows_of", "rows_on", "values_at",
]  # fmt: skip

T = TypeVar("T")
Values = Field | AnyRows


# ----- collective: all ranks must call these ------------------------------------------------------------------------
def rows_of(on: Set, values: Values) -> AnyRows:
    """Values on a set as rows by number."""
    return rows_on(on, {"": values})[""]


def rows_at(on: Set, values: Values, numbers: np.ndarray) -> AnyRows:
    """Those of some elements, the same on all ranks, in their order: to be drawn."""
    return taken(rows_of(on, values), numbers)


def values_at(on: Set, values: Values, numbers: np.ndarray) -> np.ndarray:
    """The same on every rank, (n, ...)."""
    return on_every_rank(rows_at(on, values, numbers))


def own_values_at(on: Set, values: Values, numbers: np.ndarray) -> np.ndarray:
    """Those of elements that every rank chooses for itself, (*numbers.shape, ...), whoever has them."""
    rows = rows_of(on, values)
    if not isinstance(rows, RankRows):
        return rows[numbers]
    return rows.at(numbers.reshape(-1)).reshape(*numbers.shape, *rows.shape[1:])


def by_root_from_all(on: Set, values: Values, function: Callable[[np.ndarray], T]) -> T:
    """What a function makes of the values of all elements by number, which the root alone has; every rank gets it."""
    everything = root_rows(rows_of(on, values))
    return on_root(lambda: function(everything))


def root_points(grid: Grid, values: Values) -> np.ndarray:
    """Values at the points of a grid, (*shape, ...), as the root has them, to draw them; what other ranks have in their
    place has no values, and takes no memory."""
    rows = as_rows(values)
    if not isinstance(rows, RankRows):
        return rows
    found, shape = rows.on_root(), (*grid.shape, *rows.shape[1:])
    return found.reshape(shape) if len(found) else np.broadcast_to(np.full((), np.nan), shape)


def root_rows(rows: AnyRows) -> np.ndarray:
    """Rows as the root has them, to draw them; other ranks have all of them already, or none."""
    return rows.on_root() if isinstance(rows, RankRows) else rows
