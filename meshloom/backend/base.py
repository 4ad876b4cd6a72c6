"""What a back end is: something that turns a bound loop into a callable."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from meshloom.backend.bound_loop import BoundLoop
from meshloom.backend.lowering import Launches
from meshloom.errors import ScheduleError
from meshloom.mesh.core import Field, Global, on_host
from meshloom.mesh.globals import Comparison
from meshloom.native.runtime import copy_bandwidth
from meshloom.process.ranks import ranks
from meshloom.process.signals import held_back
from meshloom.target import CPU, Rates, Target
from meshloom.target.limit import Peaks

#: Of each operation of a program the positions of the earlier ones that it has to wait for; asked for at need
Waits = Callable[[], Sequence[Collection[int]]]


class Backend(ABC):
    """A compiler call, a launch and an allocator."""

    name: str = ""
    fuses: bool = True  # can it run loops of a program as one?
    lowers: bool = False  # does it run a program of its own in place of a recorded one, and change sets to make it?
    strict: bool = False  # are all kernels strict from now on? one answer for all back ends, so it is set on this class
    copied_among_ranks: float | None = None  # bytes per second, while all ranks of this node copied
    reproducible: bool = False  # have sums to Globals the same bits in any order, of loops made from now on? likewise

    @property
    def target(self) -> Target:
        """What there is where its code runs."""
        return CPU

    @property
    def rates(self) -> Rates:
        """The cost model's figures for what is in use of it. Choices are made by ``target.rates``: they must not depend
        on the number of threads, by which the bits of a result would change."""
        return self.target.rates

    @property
    def compiles_apart(self) -> bool:
        """Are its compilers processes of their own, so that several may run at the same time?"""
        return False

    def place(self, storage: Any) -> Any:
        """The values of a field or global in this back end's memory; they stay there until somebody moves them."""
        return storage if isinstance(storage, np.ndarray) else storage.get()

    def zeros(self, storage: Any) -> Any:
        """The same of values that are zero, where nothing need be copied for that."""
        return self.place(storage)

    def bring(self, one: Field | Global) -> None:
        """A field or global to this back end's memory."""
        made = self.zeros if one.untouched else self.place
        one.move(made(one.storage))

    def copy_bandwidth(self) -> float:
        """Bytes per second, read and written, of copying within this back end's memory."""
        return copy_bandwidth()

    def peaks(self) -> Peaks:
        """What it does at most: copying, measured now, and operations, when one is asked for."""
        return Peaks(self.copy_bandwidth(), self.rate)

    def rate(self, kind: str, dtype: str) -> float | None:
        """Operations per second of a kind and type (``target/limit.py``) that it does at most, measured once; None of
        what nobody measures."""
        return None

    def known_copy_bandwidth(self) -> float | None:
        """The same as far as nobody else has to be asked; of one of several ranks, which would have to copy at the
        same time, what they have measured so far, None where they have not."""
        return self.copy_bandwidth() if ranks().size == 1 else self.copied_among_ranks

    @property
    def key(self) -> tuple[object, ...]:
        """What makes the same loop a different executable."""
        return self.name, self.strict, self.reproducible

    @abstractmethod
    def unavailable(self) -> str | None:
        """Why it cannot run here, in one sentence; None when it can."""

    def executable(self, operation: Any) -> Launches:
        """What executes an operation, any number of times, with its values where this back end has them."""
        return self.prepare(operation.policy.bound(operation))

    @abstractmethod
    def prepare(self, bound: BoundLoop) -> Launches:
        """The same of a loop with its data."""

    def source(self, bound: BoundLoop) -> str:
        """The text that is compiled for the loop. ScheduleError where nothing is."""
        raise ScheduleError(f"loop {bound.spec.name}: the back end {self.name} compiles nothing, so there is no text")

    def begin_with(self, operation: Any) -> None:
        """Begin to make ready what ``executable`` will need, where that can be done apart."""
        if self.compiles_apart:
            self.begin(operation.policy.bound(operation))

    def begin(self, bound: BoundLoop) -> None:
        """Begin to compile what ``prepare`` will need, where it ``compiles_apart``."""
        return

    def explain(self, operation: Any) -> str:
        """How it executes an operation, why, and the figures."""
        found: str = operation.policy.explain(operation)
        return found

    def recording(
        self, operations: Sequence[Callable[[], None]], waits: Waits | None = None, of: Sequence[Any] = ()
    ) -> Recording:
        """The launches of operations, in order, made ready to be replayed. ``waits``: of each operation the earlier
        ones that it has to wait for, if others may run at the same time where the back end can do that. ``of``: what is
        executed, where a back end may make other operations of all of it together."""
        return Recording(operations)


class Replayed(NamedTuple):
    """What replays gave: the values of the globals after each (replays, values), and seconds per operation.

    ``stopped``: Ctrl-C came, perhaps during the last of them, so the number of rows does not tell. ``met``: what they
    were repeated for came true.
    """

    history: np.ndarray
    seconds: np.ndarray
    stopped: bool = False
    met: bool = False


class Recording:
    """Operations replayed one by one from Python; back ends have faster ones."""

    summary = ""  # what there is to know about how they are replayed, in one line
    lowered: Any = None  # the recorded program that is replayed in their place, and keeps the times, where there is one

    def __init__(self, operations: Sequence[Callable[[], None]]):
        self.operations = tuple(operations)

    @property
    def explained(self) -> str:
        """All there is to know about what is replayed, where that is something else than the operations."""
        return ""

    def run(self, times: int, record: Sequence[Global]) -> Replayed:
        """Replay ``times`` times, or fewer where Ctrl-C comes."""
        history = np.zeros((times, sum(g.dim for g in record)))
        seconds = np.zeros(len(self.operations))
        with held_back() as interrupted:
            for done, row in enumerate(history, 1):
                for k, operation in enumerate(self.operations):
                    before = time.perf_counter()
                    operation()
                    seconds[k] += time.perf_counter() - before
                row[:] = np.concatenate([on_host(g.storage) for g in record]) if record else ()
                if interrupted():
                    return Replayed(history[:done], seconds, stopped=True)
        return Replayed(history, seconds)

    def repeat(self, at_most: int, until: Comparison) -> Replayed:
        """Replay until a comparison holds after a replay, or Ctrl-C comes; nothing is recorded."""
        done, seconds, met, stopped = 0, np.zeros(len(self.operations)), False, False
        with held_back() as interrupted:
            while done < at_most and not (met or stopped):
                once = self.run(1, ())
                done, seconds = done + 1, seconds + once.seconds
                met, stopped = until.holds(), interrupted() or once.stopped
        return Replayed(np.zeros((done, 0)), seconds, stopped, met)
