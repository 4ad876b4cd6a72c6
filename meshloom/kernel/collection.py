"""What a kernel sees through a map of varying arity: so many elements, how many differs from place to place.

While it is traced, such a parameter has a slot for each of the most elements that there may be, and the number of
those that count, a symbol. What is computed of it is computed slot by slot; a reduction leaves out the others.
Called on plain arrays (``kernel.python``) the parameter is the plain array of those that do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from meshloom.kernel.symbols import SymbolArray, fail

_NEUTRAL = {np.sum: 0, np.prod: 1, np.any: False, np.all: True}
_EXTREMES = (np.min, np.max, np.amin, np.amax)


class Collection(NDArrayOperatorsMixin):
    """``values`` (most, ...): one symbol or more in each slot; ``count``: how many slots count, from the first on."""

    def __init__(self, name: str, values: SymbolArray, count: Any):
        self.name, self.values, self.count = name, values, count

    @property
    def shape(self) -> tuple[Any, ...]:
        """As that of an array; the first entry is a symbol."""
        return (self.count, *self.values.shape[1:])

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            fail(f"np.{ufunc.__name__}.{method} of {self.name} is not supported: how many there are varies")
        return Collection(self.name, ufunc(*self._slots(inputs)), self.count)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function is np.where and len(args) == 3:
            return Collection(self.name, np.where(*self._slots(args)), self.count)
        if function is np.shape:
            return self.shape
        if (function in _NEUTRAL or function in _EXTREMES) and args[0] is self:
            return self._reduced(function, *args[1:], **options)
        fail(f"np.{function.__name__} of {self.name} is not supported: how many there are varies; sum, prod, min, max,"
             " any and all are")  # fmt: skip

    def _slots(self, given: tuple[Any, ...]) -> list[Any]:
        """Several things to be combined, slot by slot; what has no slots is the same for all of them."""
        found = []
        for one in given:
            if isinstance(one, Collection):
                if one.count is not self.count or len(one.values) != len(self.values):
                    fail(f"{self.name} and {one.name} are seen through different maps, so they do not go together")
                if one.ndim != self.ndim:
                    fail(f"{self.name} and {one.name} have {self.ndim - 1} and {one.ndim - 1} axes at an element: index"
                         " the one with fewer as [:, None], or reduce the other")  # fmt: skip
                found.append(one.values)
            elif np.ndim(one) >= self.ndim:
                fail(f"{self.name} has as many entries as there are elements, which varies, and does not go together"
                     f" with an array of shape {np.shape(one)}")  # fmt: skip
            else:
                found.append(one)
        return found

    def _reduced(self, function: Any, axis: Any = None, *, initial: Any = None, **others: Any) -> Any:
        name = function.__name__
        if others:
            fail(f"np.{name} of {self.name} with {', '.join(others)} is not supported")
        if axis is not None and (not isinstance(axis, int) or not -self.ndim <= axis < self.ndim):
            fail(f"np.{name} of {self.name}: axis {axis} is none of its {self.ndim}")
        if axis is not None and axis % self.ndim:
            start = {} if initial is None else {"initial": initial}
            return Collection(self.name, function(self.values, axis=axis, **start), self.count)
        if function in _EXTREMES and initial is None:
            fail(f"np.{name} of {self.name}, of which there may be none: say initial=, which is the answer then")
        neutral = initial if function in _EXTREMES else _NEUTRAL[function]
        counts = [np.where(k < self.count, one, neutral) for k, one in enumerate(self.values)]
        found = function(np.stack([np.asarray(one).view(SymbolArray) for one in counts]), axis=axis)
        if initial is None:
            return found
        merge: dict[Any, Callable[[Any, Any], Any]] = {np.sum: operator.add, np.prod: operator.mul}
        if function in _EXTREMES:
            return (np.minimum if function in (np.min, np.amin) else np.maximum)(found, initial)
        return merge[function](found, initial) if function in merge else fail(f"np.{name} takes no initial=")

    def __getitem__(self, key: Any) -> Collection:
        indices = key if isinstance(key, tuple) else (key,)
        others = sum(one is not None for one in indices[1:])  # axes that are indexed behind the first entry
        rest = indices[:1] == (Ellipsis,) and others < self.ndim  # then all of the first axis is in the ellipsis
        if rest or (indices and isinstance(indices[0], slice) and indices[0] == slice(None)):
            return Collection(self.name, self.values[key], self.count)
        fail(f"{self.name} has as many entries as there are elements, which varies: index it as {self.name}[:, c], and"
             " reduce it by np.sum, np.min or np.max")  # fmt: skip

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        fail(f"parameter {self.name} is seen through a map of varying arity, and only read")

    def __len__(self) -> int:
        fail(f"how many {self.name} there are varies, so a kernel has no loop over them: np.sum, np.min and np.max"
             f" reduce, and {self.name}.shape[0] is their number")  # fmt: skip

    def __iter__(self) -> Iterator[Any]:
        len(self)
        yield

    def sum(self, axis: Any = None) -> Any:
        return self._reduced(np.sum, axis)

    def min(self, axis: Any = None, *, initial: Any = None) -> Any:
        return self._reduced(np.min, axis, initial=initial)

    def max(self, axis: Any = None, *, initial: Any = None) -> Any:
        return self._reduced(np.max, axis, initial=initial)


def collected(name: str, values: Any, count: Any) -> Any:
    """What a function gets for a parameter: a collection of symbols, or the plain values that count."""
    return Collection(name, values, count) if isinstance(values, SymbolArray) else values[: int(count)]
