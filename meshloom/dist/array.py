"""The values of a field over ranks, as a field has them for its storage: outside all of them are seen, in one piece,
and here are those of this rank, in a field of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from meshloom.dist.local import LocalSet
from meshloom.dist.world import World
from meshloom.mesh.core import Field, on_host
from meshloom.mesh.layout import Layout


class DistributedArray:
    """``local``: a field on what this rank has of the set, in the layout of the whole. ``valid``: are the rows of its
    halo those of their owners? Arrays on devices are used in the same way: ``get``, ``set``, ``fill``."""

    ndim, flags = 1, SimpleNamespace(c_contiguous=True)

    def __init__(self, field: Field, on: LocalSet, world: World):
        self.on, self.world, self.layout, self.rows = on, world, field.layout, field.set.total
        self.local = Field(on.set, field.name, field.components, dtype=field.dtype, layout=field.layout)
        self.size, self.dtype, self.valid = self.layout.stride(self.rows) * field.dim, field.dtype, True

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def get(self) -> np.ndarray:
        """All values, in memory of the host, as they lie in the whole: on every rank, and all must ask."""
        return self.layout.pack(self.gathered())

    def gathered(self) -> np.ndarray:
        """All rows (n, dim), by position in the whole."""
        found = np.empty((self.rows, self.local.dim), self.dtype)
        if self.on.everywhere:
            return self.local.unpacked()
        for at, rows in zip(*map(self.world.gathered, self.owned()), strict=True):
            found[at] = rows
        return found

    def owned(self) -> tuple[np.ndarray, np.ndarray]:
        """Of this rank's own elements the positions in the whole, ascending, and the rows (n, dim)."""
        return self.on.here[self.on.mine], self.local.unpacked()[self.on.mine]

    def set(self, values: np.ndarray) -> None:
        """Take what is here of all values, as they lie in the whole; no other rank is asked."""
        self.take(self.layout.unpack(values, self.rows, self.local.dim))

    def take(self, rows: np.ndarray) -> None:
        """The same of rows (n, dim) by position."""
        self.local.repack(rows[self.on.here])
        self.valid = True

    def fill(self, value: Any) -> None:
        self.local.fill(value)
        self.valid = True

    def copy_from(self, other: DistributedArray) -> None:
        """The values of another one of the same set and layout."""
        self.local.repack(other.local.unpacked())
        self.valid = other.valid

    def moved_to(self, on: LocalSet, field: Field) -> DistributedArray:
        """The same where more of the set, or less, is here; owners are the same."""
        made = DistributedArray(field, on, self.world)
        rows, own = np.zeros((on.set.total, self.local.dim), self.dtype), self.local.unpacked()[self.on.mine]
        rows[on.mine] = own
        made.local.repack(rows)
        made.valid = False
        return made


def flat_places(rows: np.ndarray, layout: Layout, total: int, dim: int) -> np.ndarray:
    """Where the values of some rows lie in a buffer, (rows, dim)."""
    places = np.arange(layout.stride(total) * dim)
    return layout.unpack(places, total, dim)[rows]


def exchange(arrays: list[DistributedArray], world: World) -> None:
    """Bring the halos of fields up to date: one message to each neighbour, with all of them."""
    sends: dict[int, list[np.ndarray]] = {}
    expected: dict[int, list[tuple[DistributedArray, np.ndarray, np.ndarray]]] = {}
    memory = [on_host(one.local.storage) for one in arrays]
    for one, values in zip(arrays, memory, strict=True):
        at = (one.layout, one.on.set.total, one.local.dim)
        for to, rows in zip(one.on.sends.neighbours, one.on.sends.rows, strict=True):
            sends.setdefault(to, []).append(values[flat_places(rows, *at)].view(np.uint8).reshape(-1))
        for of, rows in zip(one.on.receives.neighbours, one.on.receives.rows, strict=True):
            expected.setdefault(of, []).append((one, values, flat_places(rows, *at)))
    lengths = [sum(places.size * one.dtype.itemsize for one, _, places in parts) for parts in expected.values()]
    found = world.exchanged([np.concatenate(parts) for parts in sends.values()], lengths, list(sends), list(expected))
    for message, parts in zip(found, expected.values(), strict=True):
        first = 0
        for one, values, places in parts:
            last = first + places.size * one.dtype.itemsize
            values[places] = message[first:last].view(one.dtype).reshape(places.shape)
            first = last
    for one, values in zip(arrays, memory, strict=True):
        if values is not one.local.storage:
            one.local.storage.set(values)
        one.valid = True
