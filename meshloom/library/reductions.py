"""Sums, extremes, means, norms and products of fields: the loops behind ``field.sum()`` and its like."""

from __future__ import annotations

import math
from math import prod
from typing import Any

import numpy as np

from meshloom.errors import MeshError, instance
from meshloom.exclusion import unowned
from meshloom.kernel.access import Max, Min, Read, ReadWrite, Sum
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.reduced import reducer
from meshloom.operation.loop import Kernel, kernel
from meshloom.recording import recorder


@kernel
def add_up(u: Read, total: Sum):
    total += np.sum(np.float64(1.0) * u)


@kernel
def lower(u: Read, lowest: Min):
    lowest[...] = np.min(u)


@kernel
def raise_to(u: Read, highest: Max):
    highest[...] = np.max(u)


@kernel
def multiply(u: Read, v: Read, total: Sum):
    total += np.sum((np.float64(1.0) * u) * v)


@kernel
def add_up_integers(u: Read, total: Sum, size: Sum):
    total += np.sum(np.int64(1) * u)
    size += np.sum(np.abs(np.float64(1.0) * u))


@kernel
def multiply_integers(u: Read, v: Read, total: Sum, size: Sum):
    total += np.sum((np.int64(1) * u) * v)
    size += np.sum(np.abs((np.float64(1.0) * u) * v))


@kernel
def divide(total: ReadWrite, count: Read):
    total[...] = total / count


@kernel
def take_root(total: ReadWrite):
    total[...] = np.sqrt(total)


_ONCE = Set(1, "once")
#: All but extremes in double, whatever the field is
_LOOPS = {"sum": add_up, "mean": add_up, "min": lower, "max": raise_to, "dot": multiply, "norm": multiply}
#: Of integers: sums and products by 64 bits, with the sum of absolute values, which tells where these are too few
_OF_INTEGERS = _LOOPS | {"sum": add_up_integers, "dot": multiply_integers}
_SIZED = (add_up_integers, multiply_integers)
LARGEST = 2.0**63


def reduced(what: str, field: Field, other: Any = None) -> Global:
    """``field`` as one Global: by a loop now, or recorded where a program is."""
    fields = (field,) if what not in ("dot", "norm") else (field, _fitting(field, field if what == "norm" else other))
    count = prod(field.set.array_shape) - field.set.halo
    if not count and what in ("min", "max", "mean"):
        raise MeshError(f"field {field.name}: {field.set.name} has no elements, so there is no {what}")
    of = np.result_type(*(one.dtype for one in fields))
    first, dtype = _start(what, of)
    name, loop = f"{what} of {field.name}", (_OF_INTEGERS if of.kind == "i" else _LOOPS)[what]
    if recorder.get() is not None:
        made = Global(first, name, dtype=dtype)
        loop(field.set, *fields, made, *([Global(0.0, "size")] if loop in _SIZED else []))
        if what == "mean":
            divide(_ONCE, made, float(count * field.dim))
        elif what == "norm":
            take_root(_ONCE, made)
        return made
    found = _now(loop, field, fields, first, dtype, name)
    found = found / (count * field.dim) if what == "mean" else math.sqrt(found) if what == "norm" else found
    return Global(found, name, dtype=dtype)


def _now(loop: Kernel, field: Field, fields: tuple[Field, ...], first: float | int, dtype: np.dtype, name: str) -> Any:
    """The value of a reduction. The Globals that it takes are kept, so that a loop which is called again with them is
    at hand: as many as threads reduce at the same time."""
    unused = field.set.kept.setdefault(("reduction", loop, dtype), [])
    try:
        totals: list[Global] = unused.pop()
    except IndexError:
        totals = _new_totals(first, dtype, sized=loop in _SIZED)
    for one, value in zip(totals, (first, 0.0), strict=False):
        one.repack(np.array(value, one.dtype))  # from here, and not from outside: ranks need not compare it
    loop(field.set, *fields, *totals)
    found, size = totals[0].value, float(totals[1].value) if loop in _SIZED else 0.0
    unused.append(totals)
    rounded = field.set.size * field.dim * float(np.finfo(np.float64).eps)  # the absolute values are added up in double
    if loop in _SIZED and not size * (1.0 + rounded) < LARGEST:
        raise MeshError(f"the {name} may not fit into 64 bits of an integer (absolute values add up to {size:.3g}):"
                        " make a field of float64 of it")  # fmt: skip
    return found


@unowned
def _new_totals(first: float | int, dtype: np.dtype, *, sized: bool) -> list[Global]:
    return [Global(first, "total", dtype=dtype), *([Global(0.0, "size")] if sized else [])]


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
