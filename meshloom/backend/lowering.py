"""From a loop to its launches in four stages, each of them frozen, with one key and one cache:

    Lowered (nests, text, options) -> Compiled (code) -> Loaded (functions) -> Launches (grids, arguments)

A back end keeps the last Lowered ones, by spec, plan and options. Compiled ones are kept on disk, by content. Loaded
ones are found by their Lowered, by content as well, as long as launches or loops of the same form hold them. Launches
belong to an operation, until a field moves. ``CompilingBackend`` is the walk: back ends differ in its steps alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary, finalize

import numpy as np

from meshloom.backend.base import Backend, BoundLoop
from meshloom.backend.unit import KernelText, TranslationUnit
from meshloom.kernel.recent import Recent
from meshloom.kernel.sameness import Same
from meshloom.native import together
from meshloom.native.threads import check_device
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import LoopSpec

MOST_LOWERED = 256  # by one back end: all loops of a program are begun before the first of them is loaded


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


@dataclass(frozen=True, eq=False)
class Compiled:
    """What a compiler gave: something that can be loaded, what each function uses (registers, spills) where that is
    known, and the text that it was given in the end."""

    content: Any = field(repr=False)
    resources: Mapping[str, dict[str, int]] = field(default_factory=dict)
    source: str = field(default="", repr=False)


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


class CompilingBackend(Backend):
    """The walk from a loop to its launches. ``source`` stops at the text, ``begin`` where a compiler has started."""

    def __init__(self) -> None:
        self._lowered: Recent[Hashable, Lowered] = Recent(MOST_LOWERED)
        self._loaded: WeakValueDictionary[Lowered, Loaded] = WeakValueDictionary()

    # ----- the walk ---------------------------------------------------------------------------------------------
    def prepare(self, bound: BoundLoop) -> Launches:
        lowered = self.lowered(bound)
        loaded = bound.pinned[self.key] = self.loaded(lowered)
        return self.launches(replace(bound, spec=lowered.unit.spec), lowered, loaded)

    def begin(self, bound: BoundLoop) -> None:
        lowered = self.lowered(bound)
        if lowered not in self._loaded:
            known, job = partial(self.known, lowered), partial(self.compiled, lowered, apart=True)
            together.start((self.key, lowered), lowered.name, known=known, job=job)

    def source(self, bound: BoundLoop) -> str:
        """As it was compiled; before that for as many registers as kernels like."""
        lowered = self.lowered(bound)
        found = self._loaded.get(lowered)
        return lowered.source if found is None else found.compiled.source

    def lowered(self, bound: BoundLoop) -> Lowered:
        """A solver that goes through colors has hundreds of loops which are one loop over other rows: where a plan has
        no arrays, and the same numbers if any, that of the last such loop serves."""
        spec, plan = bound.spec, bound.plan()
        options, has_arrays = self.options(bound, plan), any(isinstance(one, np.ndarray) for _, one in plan.leaves)
        signs = repr(spec.starts_from)  # 0.0 == -0.0
        content = spec, signs, type(plan), plan.strategy, plan.block, plan.leaves, options
        key = (Same(spec), Same(plan), options) if has_arrays else content
        found = self._lowered.find(key)
        if found is None:
            found = self._lowered.keep(key, self.lower(spec, plan, options))
            if has_arrays:  # without the plan nobody asks for it
                finalize(plan, self._lowered.pop, key, None).atexit = False
        return found

    def loaded(self, lowered: Lowered) -> Loaded:
        """That of another loop with the same text, as long as there is one."""
        found = self._loaded.get(lowered)
        if found is None:
            compiled = together.finish((self.key, lowered), partial(self.compiled, lowered))
            found = self._loaded[lowered] = Loaded(compiled, self.load(lowered, compiled))
        return found

    # ----- its steps --------------------------------------------------------------------------------------------
    @abstractmethod
    def options(self, bound: BoundLoop, plan: Plan) -> Any:
        """What code depends on besides the loop without its data and its plan."""

    @abstractmethod
    def lower(self, spec: LoopSpec, plan: Plan, options: Any) -> Lowered:
        """The loop as text."""

    @abstractmethod
    def known(self, lowered: Lowered) -> Compiled | None:
        """What ``compiled`` gives, where nothing has to be compiled for it."""

    @abstractmethod
    def compiled(self, lowered: Lowered, *, apart: bool = False) -> Compiled:
        """What a compiler makes of it; ``apart``: in a thread, by a process of its own."""

    @abstractmethod
    def load(self, lowered: Lowered, compiled: Compiled) -> Mapping[str, Any]:
        """The functions, by their names."""

    @abstractmethod
    def launches(self, bound: BoundLoop, lowered: Lowered, loaded: Loaded) -> Launches:
        """The functions with all that they are launched with."""
