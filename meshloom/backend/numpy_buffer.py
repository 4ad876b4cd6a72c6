"""The memory of a field or global, without the field."""

from __future__ import annotations

import numpy as np

from meshloom.mesh.core import Field, Global
from meshloom.mesh.layout import Layout
from meshloom.records import dataclass


@dataclass(frozen=True)
class Buffer:
    """Where values are until they move, when loops are prepared anew. An executable that held the field instead would
    keep it alive: ``operation/calls.py`` says why it must not."""

    storage: np.ndarray
    layout: Layout
    rows: int
    dim: int

    def unpacked(self) -> np.ndarray:
        """A copy of the values, (rows, dim)."""
        return self.layout.unpack(self.storage, self.rows, self.dim)

    def repack(self, values: np.ndarray) -> None:
        """Take new values, (rows, dim)."""
        self.storage[:] = self.layout.pack(values)


def buffer_of(one: Field | Global) -> Buffer:
    """The memory of a field, or of a global as a single row, on the host."""
    if isinstance(one, Field):
        return Buffer(one.storage, one.layout, one.set.total, one.dim)
    return Buffer(one.storage, Layout("aos"), 1, one.dim)
