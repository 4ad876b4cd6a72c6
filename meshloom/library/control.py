"""What a program decides by itself, without asking Python: at which element a value lies."""

from __future__ import annotations

import numpy as np

from meshloom.errors import MeshError, instance
from meshloom.kernel.access import Min, Read
from meshloom.mesh.core import Field, Global
from meshloom.operation.loop import kernel

#: What ``locate`` answers when no element holds the value.
NOWHERE = int(np.iinfo(np.int64).max)


@kernel
def find_value(values: Read, number: Read, wanted: Read, where: Min):
    """Every element that holds the wanted value offers its number."""
    where[...] = np.where(values == wanted, number, NOWHERE)


def locate(values: Field, wanted: Global, where: Global) -> None:
    """Set ``where`` (an int64 Global) to the lowest number of an element at which the field equals ``wanted``.

    After a loop has reduced ``values`` to ``wanted`` by Min or Max, this is the place of the extreme: the same
    element in every run, however many share the value. ``NOWHERE`` when there is none. Of a grid only points are looked
    at: ``grid.index_of`` tells the index of their number. Inside a program it is recorded.
    """
    instance("locate: values", values, Field, error=MeshError)
    for one, what in ((wanted, "wanted"), (where, "where")):
        instance(f"locate: {what}", one, Global, error=MeshError)
    if values.dim != 1 or wanted.dim != 1:
        raise MeshError(f"locate: {values.name} and {wanted.name} must have one value each, got {values.dim} and"
                        f" {wanted.dim}")  # fmt: skip
    if where.dtype != np.dtype(np.int64) or where.dim != 1:
        raise MeshError(f"locate: {where.name} must be one int64, such as ml.Global(0, dtype=np.int64),"
                        f" got {where.dim} {where.dtype}")  # fmt: skip
    where.value = NOWHERE
    find_value(values.set, values, values.set.numbers, wanted, where)
