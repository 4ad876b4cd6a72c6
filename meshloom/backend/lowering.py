"""From a loop to its launches in four stages, each of them frozen, with one key and one cache:

    Lowered (nests, text, options) -> Compiled (code) -> Loaded (functions) -> Launches (grids, arguments)

A back end keeps the last Lowered ones, by spec, plan and options. Compiled ones are kept on disk, by content. Loaded
ones are found by their Lowered, by content as well, as long as launches or loops of the same form hold them. Launches
belong to an operation, until a field moves. ``CompilingBackend`` is the walk from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from meshloom.backend.translation_unit import KernelText, TranslationUnit
from meshloom.native.threads import check_device
from meshloom.records import dataclass


@dataclass(frozen=True)
class Lowered:
    """A loop without its data as a compiler takes it: equal ones become the same code, whatever they are called here.

    ``unit``: what the text was printed from; ``options``: all else that code depends on; ``kernels``: those of a GPU,
    as they stand in the text.
    """

    unit: TranslationUnit = field(compare=False, repr=False)
    source: str = field(repr=False)
    options: Any
    kernels: tuple[KernelText, ...] = field(default=(), compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.unit.spec.name

    @property
    def pass_names(self) -> tuple[str, ...]:
        """What the kernels of its passes are called in the text of a GPU; behind them may stand what ends sums."""
        return tuple([one.name for one in self.kernels[: len(self.unit.passes)]])


@dataclass(frozen=True, eq=False)
class Compiled:
    """What a compiler gave: something that can be loaded, what each function uses (registers, spills) where that is
    known, and the text that it was given in the end."""

    content: Any = field(repr=False)
    resources: Mapping[str, dict[str, int]] = field(default_factory=dict)
    source: str = field(default="", repr=False)

    def used_by(self, name: str) -> dict[str, int]:
        """What a function uses; nothing where nobody knows."""
        return self.resources.get(name, {})


@dataclass(frozen=True, eq=False)
class Loaded:
    """Functions by their names: gone with the last who holds them."""

    compiled: Compiled
    functions: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Launch:
    """A function with its arguments, which are arrays and whole numbers. ``call()`` launches it: what is left to decide
    is nothing. On a device: blocks, threads of each, and bytes of shared memory."""

    name: str
    function: Any
    arguments: tuple[Any, ...] = field(repr=False)
    call: Callable[[], None] = field(repr=False)
    grid: int = 0
    threads: int = 0
    shared: int = 0

    @classmethod
    def here(cls, function: Callable[..., None], *arguments: Any) -> Launch:
        """Of a function of Python."""
        return cls(function.__name__, function, arguments, partial(function, *arguments))


def fill_memory(storage: Any, value: float | int) -> None:
    """Set some memory, whoever it belongs to."""
    if not isinstance(storage, np.ndarray):
        check_device()
    storage.fill(value)


def copy_memory(source: Any, target: Any) -> None:
    """Copy some memory to other memory of its type and size."""
    if isinstance(target, np.ndarray):
        target[:] = source
    else:
        target.data.copy_from_device_async(source.data, target.nbytes)


@dataclass(frozen=True, eq=False)
class Launches:
    """What executes an operation, in order: data that recordings and graphs read, and that may be called.

    ``pinned``: what must not go meanwhile. ``resources``: what each kernel uses of a device. ``needed``: threads that a
    device must have to run all blocks of the largest launch at the same time. ``events``: a clock before and one
    behind, where a device has them.
    """

    launches: tuple[Launch, ...]
    pinned: tuple[Any, ...] = field(default=(), repr=False)
    resources: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    needed: float = 0.0
    events: Any = field(default=None, repr=False)

    @property
    def steps(self) -> tuple[Launch, ...]:
        """The kernels that are started on a device."""
        return tuple(one for one in self.launches if one.grid)

    def launch(self) -> None:
        """The launches alone, on the current stream."""
        for one in self.launches:
            one.call()

    def __call__(self) -> None:
        """The same between two events, so that somebody may ask later how long they took."""
        if self.events is None:
            return self.launch()
        check_device()
        start, end = self.events
        start.record()
        self.launch()
        end.record()

    @property
    def seconds(self) -> float | None:
        """Device time of the last call; waits for it. None where there is no device."""
        return self.events and self.events[0].elapsed(self.events[1])
