"""What a program can record and replay: loops of every kind."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, overload

from meshloom.backend.base import Backend
from meshloom.kernel.state import State
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Field, Global, Set
from meshloom.recording import outside_program, recorder
from meshloom.schedule.spec import LoopSpec

T = TypeVar("T")


class Stateful(Protocol):
    """A kernel, as far as it matters here."""

    @property
    def state(self) -> State: ...


class derived(Generic[T]):
    """A property of a Runnable, made once, and again when a field has moved or a kernel reads other values."""

    def __init__(self, make: Callable[[Any], T]):
        self.make, self.name, self.__doc__ = make, make.__name__, make.__doc__

    @overload
    def __get__(self, one: None, owner: type) -> derived[T]: ...
    @overload
    def __get__(self, one: Runnable, owner: type) -> T: ...

    def __get__(self, one: Runnable | None, owner: type) -> Any:
        if one is None:
            return self
        one.refresh()
        known = one.known_of(self.name)
        if self.name not in known:
            known[self.name] = self.make(one)
        return known[self.name]


class Runnable(NoCopy, ABC):
    """What a program can record: prepared by a back end when it first runs, made again when a field has moved.

    ``kernels``: those that it runs; where one reads other values than before, it is made again, too.
    """

    name: str
    set: Set
    backend: Backend
    kernels: tuple[Stateful, ...]
    calls = 0
    total_seconds = 0.0
    _executable: Callable[[], None] | None = None
    states: tuple[State, ...] = ()
    composed: tuple[Runnable, ...] = ()  # what it was put together from
    _preparing = False

    @property
    @abstractmethod
    def flops(self) -> float:
        """Floating-point operations of one execution, for the cost model."""

    @cached_property
    def known(self) -> dict[str, Any]:
        """What was derived so far, by name."""
        return {}

    def known_of(self, name: str) -> dict[str, Any]:
        """Where something derived is kept."""
        return self.known

    @property
    def parts(self) -> tuple[Any, ...]:
        """What it is made of, apart from sets."""
        return (*self.storages, *self.kernels)

    def refresh(self) -> None:
        """Forget what was derived if a kernel reads other values now."""
        if self._preparing:
            return
        states = tuple([one.state for one in self.kernels])
        if states != self.states:
            if self.states:
                self.invalidate()
            self.states = states

    def invalidate(self) -> None:
        """A field moved, or a kernel changed: all that depends on it is made again at the next call."""
        self._executable = None
        self.known.clear()

    @property
    @abstractmethod
    def storages(self) -> tuple[Field | Global, ...]:
        """All fields and globals that it uses."""

    @property
    @abstractmethod
    def reads(self) -> tuple[Field | Global, ...]:
        """What it needs to know, increments included."""

    @property
    @abstractmethod
    def writes(self) -> tuple[Field | Global, ...]:
        """What it changes."""

    @property
    @abstractmethod
    def spec(self) -> LoopSpec:
        """It without its data."""

    @property
    @abstractmethod
    def compulsory(self) -> int:
        """Bytes that it has to move, each datum once."""

    def prepare(self) -> Callable[[], None]:
        """Schedule and compile now; running does it by itself."""
        self.refresh()
        if self._executable is None:
            self._preparing = True  # all of it with the same values
            try:
                with outside_program():
                    self._executable = self._prepared()
            finally:
                self._preparing = False
        return self._executable

    @abstractmethod
    def _prepared(self) -> Callable[[], None]:
        """The executable, made by the back end."""

    @abstractmethod
    def explain(self) -> str:
        """How it runs, why, and the figures."""

    @abstractmethod
    def as_written(self) -> Runnable:
        """The same with strict kernels."""

    @abstractmethod
    def needs(self, one: Field | Global) -> bool:
        """Does it look at values that are there before, increments included?"""

    @abstractmethod
    def defines(self, one: Field) -> bool:
        """Does it write all values of a field (of a grid: but for ghosts) without looking at them?"""

    def taking(self, before: Mapping[Field, Any], after: Sequence[Any], idle: Collection[Field]) -> Runnable | None:
        """The same with some loops done on its way, at the points that it visits; None where it cannot.

        ``before``: fields that it reads, and the loops that make them; ``after``: loops that follow; ``idle``: fields
        that nobody reads any more, so that they need no store.
        """
        return None

    def settle(self) -> None:
        """Give the fields the layout that was wished for, once, before it first runs."""
        return

    def settled(self) -> None:
        """They have been given it: leave them as they are."""
        return

    @cached_property
    def transients(self) -> tuple[Field, ...]:
        return tuple(s for s in self.storages if isinstance(s, Field) and s.transient)

    @cached_property
    def written(self) -> tuple[Field | Global, ...]:
        """What it changes, each once."""
        return tuple(dict.fromkeys(self.writes))

    def check_transients(self) -> None:
        """ProgramError where it reads a transient field that a program has left without values."""
        for one in self.transients:
            if self.needs(one):
                one.check_readable(f"loop {self.name}: ")

    def __call__(self) -> None:
        """Run once; inside a program, record."""
        record = recorder.get()
        if record is not None:
            record(self)
            return
        if self.transients:
            self.check_transients()
        self.refresh()
        execute = self._executable or self.prepare()
        before = time.perf_counter()
        try:
            execute()
        finally:  # it may have got half-way
            for one in self.written:
                one.changed()
        self.total_seconds += time.perf_counter() - before
        self.calls += 1
        for one in self.transients:
            if one.undefined_after and self.defines(one):
                one.undefined_after = ""

    @property
    def seconds(self) -> float | None:
        """Average seconds of one execution so far (on a device: seconds of the last one); None before the first."""
        if not self.calls:
            return None
        return getattr(self._executable, "seconds", None) or self.total_seconds / self.calls
