"""Plain execution: a kernel called element by element on small arrays, its results merged one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from meshloom.errors import KernelError
from meshloom.kernel.access import Mode, identity
from meshloom.kernel.signature import of_all
from meshloom.kernel.stencil import Stencil
from meshloom.kernel.trace import explained
from meshloom.mesh.box import Box
from meshloom.mesh.core import Arg, Global
from meshloom.mesh.number import PlainNumber
from meshloom.operation.arguments import param_of


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
    modes: Mapping[str, type[Mode]],
    arguments: Sequence[Arg | Global],
    elements: int,
    box: Box | None,
) -> None:
    """The function called for every element; values read are those from before."""
    kinds, call = list(modes.values()), of_all(function)
    storages = [a if isinstance(a, Global) else a.field for a in arguments]
    values = [s.numpy() if isinstance(s, Global) else s.set.by_number(s.unpacked()) for s in storages]
    values = [v.reshape(-1 if isinstance(s, Global) else (-1, s.dim)) for s, v in zip(storages, values, strict=True)]
    before = [v.copy() for v in values]
    for element in range(elements):
        rows = [_rows(a, element, box) for a in arguments]
        local = [_local(m, a, b, r) for m, a, b, r in zip(kinds, arguments, before, rows, strict=True)]
        given = [_handed_over(n, a, part) for n, a, part in zip(modes, arguments, local, strict=True)]
        try:
            call(given)
        except KernelError:
            raise
        except Exception as error:
            shapes = {n: part.shape for n, part in zip(modes, local, strict=True)}
            raise KernelError(explained(error, name, shapes)) from error
        for mode, value, part, row in zip(kinds, values, local, rows, strict=True):
            if mode.writes:
                _merge(mode, value, part, row)
    for mode, storage, value in zip(kinds, storages, values, strict=True):
        if mode.writes:
            by_position = value if isinstance(storage, Global) else storage.set.by_position(value)
            storage.assign_rows(by_position)


def _rows(argument: Arg | Global, element: int, box: Box | None) -> Any:
    if isinstance(argument, Global):
        return slice(None)
    if box is not None:
        offsets = (None,) if argument.offsets is None else argument.offsets.offsets
        rows = np.concatenate([box.rows(o, element, element + 1) for o in offsets])
        return rows[0] if argument.offsets is None else rows
    if argument.map is None:
        return element
    return argument.map.indices[element, 0] if argument.as_member else argument.map.indices[element]


def _local(mode: type[Mode], argument: Arg | Global, before: np.ndarray, rows: Any) -> np.ndarray:
    """Values from before the loop, or the neutral element of a combining mode."""
    shape = param_of("", mode, argument).shape
    if not mode.combine:
        return np.array(before[rows]).reshape(shape)
    values = np.full(shape, identity(mode.combine, before.dtype), before.dtype)
    if mode.combine == "add":
        return values
    offers = values.view(_Offers)
    offers.keep = np.minimum if mode.combine == "minimum" else np.maximum
    return offers


def _handed_over(name: str, argument: Arg | Global, part: np.ndarray) -> Any:
    """What the user's function gets."""
    if isinstance(argument, PlainNumber):
        return argument.plain
    at_offsets = isinstance(argument, Arg) and argument.offsets is not None
    return Stencil(name, argument.offsets.offsets, part) if at_offsets else part  # type: ignore[union-attr]


def _merge(mode: type[Mode], value: np.ndarray, part: np.ndarray, rows: Any) -> None:
    plain = np.asarray(part).reshape(np.shape(value[rows]))
    if not mode.combine:
        value[rows] = plain
    else:
        ufunc = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}[mode.combine]
        index = np.arange(len(value)) if isinstance(rows, slice) else rows
        ufunc.at(value, index, plain)
