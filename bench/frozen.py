"""A loop taken out of its case with its data, to be made again on the same mesh in another order and layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.mesh.permutation import SETS
from meshloom.schedule.strategies import strategy

Outcome = tuple[np.ndarray, ...]  # what a loop writes, each field by number, (n,) or (n, dim)


@dataclass(frozen=True)
class BoundKernel:
    """The loop's arguments on some mesh; ``loop`` schedules them."""

    kernel: ml.Kernel
    on: ml.Set
    arguments: tuple[Any, ...]

    def loop(self, schedule: ml.Schedule | None = None) -> ml.Loop:
        return self.kernel.loop(self.on, *self.arguments, schedule=schedule)

    def outcome(self, schedule: ml.Schedule | None = None) -> Outcome:
        """What the loop writes when it starts from zero."""
        loop = self.loop(schedule)
        for one in loop.writes:
            one.assign(0.0)
        loop()
        return tuple(one.numpy() for one in loop.writes)

    def checker(self, expected: Outcome) -> Callable[[], float]:
        """How far what the loop writes is from what must come out, whenever it is called: the largest difference, as a
        share of the component's largest value. The values stay where they are, be it on a device."""
        loop = self.loop()
        pairs = []
        for one, rows in zip(loop.writes, expected, strict=True):
            assert isinstance(one, ml.Field)
            values = one.set.by_position(rows.reshape(one.set.total, one.dim).astype(np.float64))
            largest = np.abs(values).max(axis=0)
            weights = np.broadcast_to(1.0 / np.where(largest > 0.0, largest, 1.0), values.shape)
            pairs.append((one, *(loop.backend.place(one.layout.pack(array)) for array in (values, weights))))

        def error() -> float:
            found = [float((abs(one.storage - values) * weights).max()) for one, values, weights in pairs]
            return float(np.max(found))  # a NaN stays one

        return error


class Frozen:
    """A loop and copies of its data, by number, so that they fit the mesh in any arrangement.

    The loop runs over a set of the mesh, and its fields live on sets of the mesh.
    """

    def __init__(self, loop: ml.Loop, mesh: ml.Mesh):
        (kernel,), self.operands = loop.kernels, loop.operands
        assert isinstance(kernel, ml.Kernel)
        self.kernel = kernel
        self._names = {id(getattr(mesh, name)): name for name in SETS}
        self._set = loop.set
        self._values = {one: one.numpy() if loop.needs(one) else np.zeros(one.shape) for one in loop.storages}
        self._indices = {one: one.indices for one in loop.maps}

    @property
    def elements(self) -> int:
        return self._set.size

    def on(self, mesh: ml.Mesh, precision: str, layout: str) -> BoundKernel:
        """The loop on an arrangement of its mesh; values that are no integers are in ``precision``."""

        def place(one: ml.Set) -> ml.Set:
            found: ml.Set = getattr(mesh, self._names[id(one)])
            return found

        def dtype(one: ml.Field | ml.Global) -> np.dtype:
            return np.dtype(precision) if one.dtype.kind == "f" else one.dtype

        storages: dict[Any, Any] = {}
        for one, values in self._values.items():
            if isinstance(one, ml.Global):
                storages[one] = ml.Global(values, one.name, dtype=dtype(one))
            else:
                storages[one] = place(one.set).field(one.name, one.dim, dtype=dtype(one), data=values,
                                                     layout=layout)  # fmt: skip
        maps = {one: ml.Map(place(one.source), place(one.target), rows, one.name)
                for one, rows in self._indices.items()}  # fmt: skip
        reached = [(storages[one.storage], one.pattern.map) for one in self.operands]
        arguments = tuple(storage if through is None else storage[maps[through]] for storage, through in reached)
        return BoundKernel(self.kernel, place(self._set), arguments)


def deterministic_outcome(ready: BoundKernel) -> tuple[str, Outcome]:
    """By the first strategy that applies and always adds in the same order; and its name."""
    for name in ml.strategies():
        wish = ml.Schedule(name)
        if strategy(name).deterministic and ready.loop(wish).applies:
            return name, ready.outcome(wish)
    raise ml.errors.ScheduleError(f"loop {ready.kernel.name}: no deterministic strategy applies")


def reference_outcome(frozen: Frozen, mesh: ml.Mesh, precision: str = "float64") -> Outcome:
    """By the NumPy back end."""
    before = ml.backend()
    ml.use("numpy")
    try:
        return frozen.on(mesh, precision, "aos").outcome()
    finally:
        ml.use(before)
