"""A program: loops recorded once and replayed without Python in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from meshloom.errors import KernelError, ScheduleError
from meshloom.loop import Loop
from meshloom.mesh.core import Fill, Global, recorder
from meshloom.native import runtime


class Program:
    """The loops and fills that a function calls, in order. The function runs once, when the program is first needed."""

    def __init__(self, function: Callable[[], None]):
        self.function, self.name = function, function.__name__
        self._native: tuple[tuple[int, ...], list[runtime.Operation]] | None = None

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
        width = sum(g.dim for g in record)
        history = np.zeros((times, width))
        if all(isinstance(o, Fill) or o.backend.name == "cpu" for o in self.loops):
            self._run_native(times, record, history)
        else:
            for row in history:
                for operation in self.loops:
                    operation()
                row[:] = np.concatenate([g.storage for g in record]) if record else ()
        return history

    def _run_native(self, times: int, record: Sequence[Global], history: np.ndarray) -> None:
        operations = list(self._operations())
        own = len(operations)
        cursors = []
        start = 0
        for g in record:
            cursors.append(np.array([start], np.int64))
            operations.append(runtime.record_operation(g.storage, history, cursors[-1], history.shape[1]))
            start += g.dim
        seconds = np.zeros(len(operations))
        runtime.replay(operations, times, seconds)
        for operation, took in zip(self.loops, seconds[:own], strict=True):
            if isinstance(operation, Loop):
                operation.total_seconds += float(took)
                operation.calls += times

    def _operations(self) -> list[runtime.Operation]:
        """The native operations, made again when a loop has been invalidated."""
        executables = [o.prepare() if isinstance(o, Loop) else o for o in self.loops]
        signature = tuple(map(id, executables))
        if self._native is None or self._native[0] != signature:
            made: list[Any] = [
                runtime.fill_operation(o.target.storage, o.value) if isinstance(o, Fill) else o for o in executables
            ]
            self._native = signature, made
        return self._native[1]

    def explain(self) -> str:
        """Every loop's schedule, reason and figures."""
        return "\n\n".join(o.explain() for o in dict.fromkeys(self.loops) if isinstance(o, Loop))

    def __repr__(self) -> str:
        return f"Program({self.name}: {', '.join(o.name for o in self.loops)})"


def program(function: Callable[[], None]) -> Program:
    """Decorator: record the loops that a function without arguments calls, to be replayed by ``run``."""
    return Program(function)
