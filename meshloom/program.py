"""A program: loops recorded once and replayed without Python in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from meshloom.backend.base import Recording
from meshloom.errors import KernelError, ScheduleError
from meshloom.loop import Loop
from meshloom.mesh.core import Fill, Global, recorder


class Program:
    """The loops and fills that a function calls, in order. The function runs once, when the program is first needed."""

    def __init__(self, function: Callable[[], None]):
        self.function, self.name = function, function.__name__
        self._ready: tuple[tuple[int, ...], Recording] | None = None

    @cached_property
    def loops(self) -> tuple[Loop | Fill, ...]:
        """The recorded operations; each can be called by itself."""
        recorded: list[Any] = []
        if recorder.get() is not None:
            raise KernelError(f"program {self.name}: a program cannot be recorded inside another one")
        token = recorder.set(recorded.append)
        try:
            self.function()
        finally:
            recorder.reset(token)
        if not recorded:
            raise KernelError(f"program {self.name} calls no kernel: there is nothing to replay")
        return tuple(recorded)

    def run(self, times: int = 1, record: Sequence[Global] = ()) -> np.ndarray:
        """Replay ``times`` times. Returns the values of the recorded globals after every replay, (times, values)."""
        if times < 0:
            raise ScheduleError(f"program {self.name}: cannot replay {times} times")
        history, seconds = self._recording().run(times, record)
        for operation, took in zip(self.loops, seconds, strict=True):
            if isinstance(operation, Loop) and np.isfinite(took):
                operation.total_seconds += float(took)
                operation.calls += times
        return history

    def _recording(self) -> Recording:
        """What the back end made of the operations; made again when a loop has been invalidated."""
        executables = [o.prepare() if isinstance(o, Loop) else o for o in self.loops]
        storages = [id(o.target.storage) for o in self.loops if isinstance(o, Fill)]
        signature = (*map(id, executables), *storages)
        if self._ready is None or self._ready[0] != signature:
            used = {o.backend for o in self.loops if isinstance(o, Loop)}
            make = used.pop().recording if len(used) == 1 else Recording
            self._ready = signature, make(executables)
        return self._ready[1]

    def explain(self) -> str:
        """Every loop's schedule, reason and figures."""
        return "\n\n".join(o.explain() for o in dict.fromkeys(self.loops) if isinstance(o, Loop))

    def __repr__(self) -> str:
        return f"Program({self.name}: {', '.join(o.name for o in self.loops)})"


def program(function: Callable[[], None]) -> Program:
    """Decorator: record the loops that a function without arguments calls, to be replayed by ``run``."""
    return Program(function)
