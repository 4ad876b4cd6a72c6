"""Sums, extremes, means, norms and products of fields: the loops behind ``field.sum()`` and its like."""

from __future__ import annotations

import math
from math import prod
from typing import Any

import numpy as np

from meshloom.errors import MeshError, instance
from meshloom.kernel.access import Max, Min, Read, ReadWrite, Sum
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.reduced import reducer
from meshloom.operation.loop import kernel
from meshloom.recording import recorder


@kernel
def add_up(u: Read, total: Sum):
    total += np.sum(u)


@kernel
def lower(u: Read, lowest: Min):
    lowest[...] = np.min(u)


@kernel
def raise_to(u: Read, highest: Max):
    highest[...] = np.max(u)


@kernel
def multiply(u: Read, v: Read, total: Sum):
    total += np.sum(u * v)


@kernel
def divide(total: ReadWrite, count: Read):
    total[...] = total / count


@kernel
def take_root(total: ReadWrite):
    total[...] = np.sqrt(total)


_ONCE = Set(1, "once")
_LOOPS = {"sum": add_up, "mean": add_up, "min": lower, "max": raise_to, "dot": multiply, "norm": multiply}


def reduced(what: str, field: Field, other: Any = None) -> Global:
    """``field`` as one Global: by a loop now, or recorded where a program is."""
    fields = (field,) if what not in ("dot", "norm") else (field, _fitting(field, field if what == "norm" else other))
    count = prod(field.set.array_shape) - field.set.halo
    if not count and what in ("min", "max", "mean"):
        raise MeshError(f"field {field.name}: {field.set.name} has no elements, so there is no {what}")
    first, dtype = _start(what, np.result_type(*(one.dtype for one in fields)))
    name = f"{what} of {field.name}"
    if recorder.get() is not None:
        made = Global(first, name, dtype=dtype)
        _LOOPS[what](field.set, *fields, made)
        if what == "mean":
            divide(_ONCE, made, float(count * field.dim))
        elif what == "norm":
            take_root(_ONCE, made)
        return made
    key = ("reduction", _LOOPS[what], dtype)
    if key not in field.set.kept:  # the same one for all: a loop that is called again with it is at hand
        field.set.kept[key] = Global(first, name, dtype=dtype)
    kept: Global = field.set.kept[key]
    kept.value = first
    _LOOPS[what](field.set, *fields, kept)
    found = kept.value
    found = found / (count * field.dim) if what == "mean" else math.sqrt(found) if what == "norm" else found
    return Global(found, name, dtype=dtype)


def _fitting(field: Field, other: Any) -> Field:
    instance(f"field {field.name}: what it is multiplied with", other, Field, error=MeshError)
    if other.set is not field.set:
        raise MeshError(f"field {field.name} lives on {field.set.name}, and {other.name} on {other.set.name}: they have"
                        " no product")  # fmt: skip
    if other.components != field.components:
        raise MeshError(f"field {field.name} has the components {field.components}, and {other.name}"
                        f" {other.components}: they have no product")  # fmt: skip
    return other


def _start(what: str, of: np.dtype) -> tuple[float | int, np.dtype]:
    """What a reduction begins with, and the type of its result."""
    if what in ("min", "max"):
        ends = (np.iinfo(of).max, np.iinfo(of).min) if of.kind == "i" else (np.inf, -np.inf)
        return ends[what == "max"], of
    whole_numbers = of.kind == "i" and what in ("sum", "dot")
    return (0, np.dtype(np.int64)) if whole_numbers else (0.0, np.dtype(np.float64))


reducer.append(reduced)
