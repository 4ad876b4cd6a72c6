"""What tracing works with and produces: parameters, outputs, and the traced kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from meshloom.kernel.access import Mode
from meshloom.kernel.expr import Node
from meshloom.records import dataclass


@dataclass(frozen=True)
class Param:
    """A kernel parameter as the loop sees it. ``shape`` is what the user's function gets."""

    name: str
    mode: type[Mode]
    shape: tuple[int, ...]  # that of the components, after the arity where there is one
    dtype: np.dtype
    arity: int  # 0: direct or global; several axes of the shape where the slots have a shape
    dim: int
    offsets: tuple[tuple[int, ...], ...] = ()  # of a grid: the slots, where there is no map
    slot_axes: int = 1  # of an arity: two for the entries of a matrix
    number: str = ""  # the kind of a plain number, where it is one: "float" of Python, "float64" of NumPy, and so on

    def address(self, index: tuple[int, ...]) -> tuple[int, int]:
        """(slot, component) of an entry of the parameter's array; both are counted with the last axis fastest."""
        axes = self.slot_axes if self.arity else 0
        return _counted(index[:axes], self.shape[:axes]), _counted(index[axes:], self.shape[axes:])


def _counted(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    number = 0
    for length, entry in zip(shape, index, strict=True):
        number = number * length + entry
    return number


class ParamArray(np.ndarray):
    """The values of a parameter while its kernel is traced; a view of it is what the user gets."""

    param: Param | None = None


def owner_of(array: np.ndarray) -> Param | None:
    """The parameter whose values an array shows, if any: views lead back to it, copies do not."""
    root: Any = array
    while isinstance(root, np.ndarray) and not isinstance(root, ParamArray):
        root = root.base
    return root.param if isinstance(root, ParamArray) else None


@dataclass(frozen=True)
class Output:
    """One value the kernel produces: what is stored, added or offered to a slot and component of a parameter."""

    param: int
    slot: int
    comp: int
    value: Node


@dataclass(frozen=True)
class Trace:
    """What a kernel does at one element. ``again``: the outputs of another trace, of which those that are the same are
    the same nodes; it holds the kernel's function, so whoever keeps a trace takes it away."""

    name: str
    params: tuple[Param, ...]
    outputs: tuple[Output, ...]
    again: Callable[[], tuple[Output, ...]] | None = field(default=None, compare=False, repr=False)
