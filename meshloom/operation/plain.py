"""Plain execution: a kernel called element by element on small arrays, its results merged one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshloom.backend.numpy_binned import Bins
from meshloom.errors import KernelError
from meshloom.kernel.access import Mode, identity
from meshloom.kernel.signature import of_all
from meshloom.kernel.stencil import Stencil
from meshloom.kernel.trace import explained
from meshloom.mesh.box import Box
from meshloom.mesh.core import Global
from meshloom.mesh.number import PlainNumber
from meshloom.operation.operand import Operand


class _Offers(np.ndarray):
    """An array that keeps the smallest or largest value assigned to each entry."""

    keep: Any = None

    def __array_finalize__(self, other: Any) -> None:
        self.keep = getattr(other, "keep", None)

    def __setitem__(self, key: Any, value: Any) -> None:
        plain = self.view(np.ndarray)
        offered = self.keep(plain[key], value)
        if not np.can_cast(offered.dtype, plain.dtype, "same_kind"):
            raise TypeError(f"{offered.dtype} is offered to a Min or Max of {plain.dtype}; make it a float")
        plain[key] = offered


def run_plainly(
    function: Callable[..., None],
    name: str,
    operands: Sequence[Operand],
    elements: int,
    box: Box | None,
) -> None:
    """The function called for every element; values read are those from before."""
    call, storages = of_all(function), [one.storage for one in operands]
    values = [s.numpy() if isinstance(s, Global) else s.set.by_number(s.unpacked()) for s in storages]
    values = [v.reshape(-1 if isinstance(s, Global) else (-1, s.dim)) for s, v in zip(storages, values, strict=True)]
    before = [v.copy() for v in values]
    binned = {k: [Bins(first) for first in np.split(values[k], len(values[k]))]
              for k, one in enumerate(operands) if one.mode.binned}  # fmt: skip
    for element in range(elements):
        rows = [_rows(one, element, box) for one in operands]
        local = [_local(one, b, r) for one, b, r in zip(operands, before, rows, strict=True)]
        given = [_handed_over(one, part) for one, part in zip(operands, local, strict=True)]
        try:
            call(given)
        except KernelError:
            raise
        except Exception as error:
            shapes = {one.name: part.shape for one, part in zip(operands, local, strict=True)}
            raise KernelError(explained(error, name, shapes)) from error
        for k, (one, value, part, row) in enumerate(zip(operands, values, local, rows, strict=True)):
            if k in binned:
                for total, summand in zip(binned[k], part.reshape(-1, 1), strict=True):
                    total.add(summand)
            elif one.mode.writes:
                _merge(one.mode, value, part, row)
    for k, totals in binned.items():
        values[k][...] = [total.rounded(values[k].dtype) for total in totals]
    for one, storage, value in zip(operands, storages, values, strict=True):
        if one.mode.writes:
            by_position = value if isinstance(storage, Global) else storage.set.by_position(value)
            storage.assign_rows(by_position)


def _rows(operand: Operand, element: int, box: Box | None) -> Any:
    reach = operand.pattern
    if operand.is_global:
        return slice(None)
    if box is not None:
        offsets = (None,) if reach.offsets is None else reach.offsets.offsets
        rows = np.concatenate([box.rows(o, element, element + 1) for o in offsets])
        return rows[0] if reach.offsets is None else rows
    if reach.map is None:
        return element
    return reach.map.indices[element, 0] if reach.as_member else reach.map.indices[element]


def _local(operand: Operand, before: np.ndarray, rows: Any) -> np.ndarray:
    """Values from before the loop, or the neutral element of a combining mode."""
    shape, combine = operand.param.shape, operand.mode.combine
    if not combine:
        return np.array(before[rows]).reshape(shape)
    values = np.full(shape, identity(combine, before.dtype), before.dtype)
    if combine == "add":
        return values
    offers = values.view(_Offers)
    offers.keep = np.minimum if combine == "minimum" else np.maximum
    return offers


def _handed_over(operand: Operand, part: np.ndarray) -> Any:
    """What the user's function gets."""
    if isinstance(operand.storage, PlainNumber):
        return operand.storage.plain
    offsets = operand.pattern.offsets
    return part if offsets is None else Stencil(operand.name, offsets.offsets, part)


def _merge(mode: type[Mode], value: np.ndarray, part: np.ndarray, rows: Any) -> None:
    plain = np.asarray(part).reshape(np.shape(value[rows]))
    if not mode.combine:
        value[rows] = plain
    else:
        ufunc = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}[mode.combine]
        index = np.arange(len(value)) if isinstance(rows, slice) else rows
        ufunc.at(value, index, plain)
