"""A program: loops recorded once and replayed without Python in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, overload

import numpy as np

from meshloom.backend.base import Backend, Bound, Recording
from meshloom.errors import KernelError, ScheduleError
from meshloom.fusion import FusedLoop, FusedProgram, Step, fuse
from meshloom.loop import Loop, Runnable
from meshloom.mesh.core import Field, Fill, Global, recorder
from meshloom.schedule.layouts import best_layout


class Program:
    """The loops and fills that a function calls, in order. The function runs once, when the program is first needed.

    ``fuse``: may loops be combined into one, so that values pass from one to the next in registers? On a GPU they are
    unless it says False; other back ends run every loop by itself. Every field but transient ones holds the same
    afterwards. ``branches``: may a GPU run small operations that do not depend on each other at the same time? The
    results are the same to the last bit.
    """

    def __init__(self, function: Callable[[], None], *, fuse: bool = True, branches: bool = True):
        self.function, self.name, self.fuse, self.branches = function, function.__name__, fuse, branches
        self._ready: tuple[tuple[int, ...], Recording] | None = None
        self._fused: tuple[tuple[object, ...], FusedRecording] | None = None

    @cached_property
    def loops(self) -> tuple[Runnable | Fill, ...]:
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

    @cached_property
    def layouts(self) -> dict[Field, str]:
        """On a GPU, what fields whose layout is free are changed to: decided once, by the sum over the loops."""
        loops = [o for o in self.loops if isinstance(o, Loop) and o.backend.simt]
        chosen: dict[Field, str] = {}
        for one in dict.fromkeys(s for o in loops for s in o.storages if isinstance(s, Field)):
            if one.layout_is_free and one.dim > 1:
                votes = [(o.schedule.strategy, o.estimate) for o in loops if one in o.storages]
                best, _ = best_layout(votes)
                if best != str(one.layout):
                    chosen[one] = best
        return chosen

    def run(self, times: int = 1, record: Sequence[Global] = ()) -> np.ndarray:
        """Replay ``times`` times. Returns the values of the recorded globals after every replay, (times, values)."""
        if times < 0:
            raise ScheduleError(f"program {self.name}: cannot replay {times} times")
        for one, layout in self.layouts.items():
            if one.layout_is_free:
                one.relayout(layout, free=True)
        if not self._fuses():
            return self._run_loops(times, record)
        fused = self._fused_recording()
        alone = 0 if fused.may_start() else min(times, 1)  # one replay loop by loop makes the constants true
        first = self._run_loops(alone, record)
        return np.concatenate([first, fused.run(times - alone, record)]) if times > alone else first

    def _run_loops(self, times: int, record: Sequence[Global]) -> np.ndarray:
        history, seconds = self._recording().run(times, record)
        for operation, took in zip(self.loops, seconds, strict=True):
            if isinstance(operation, Runnable) and np.isfinite(took):
                operation.total_seconds += float(took)
                operation.calls += times
        return history

    def _recording(self) -> Recording:
        """What the back end made of the operations; made again when a loop has been invalidated."""
        used = self._backends()
        one = used.pop() if len(used) == 1 else None
        fills = [o.target for o in self.loops if isinstance(o, Fill)]
        if one is not None:  # what is set need not be used by a loop, which would bring it there
            for target in fills:
                target.move(one.place(target.storage))
        executables = [o.prepare() if isinstance(o, Runnable) else o for o in self.loops]
        signature = (self.branches, *map(id, executables), *(id(target.storage) for target in fills))
        if self._ready is None or self._ready[0] != signature:
            made = one.recording(executables, branches=self.branches) if one else Recording(executables)
            self._ready = signature, made
        return self._ready[1]

    def _backends(self) -> set[Backend]:
        return {o.backend for o in self.loops if isinstance(o, Runnable)}

    def _fuses(self) -> bool:
        used = self._backends()
        return self.fuse and len(used) == 1 and next(iter(used)).simt

    def _fused_recording(self) -> FusedRecording:
        """The fused program, ready to run; made again when a field has moved."""
        (backend,) = self._backends()
        storages = dict.fromkeys(s for o in self.loops for s in (o.storages if isinstance(o, Runnable) else o.writes))
        for one in storages:
            one.move(backend.place(one.storage))
        for loop in (o for o in self.loops if isinstance(o, Runnable)):
            loop.refresh()
        states = [state for o in self.loops if isinstance(o, Runnable) for state in o.states]
        signature = (self.branches, *(id(one.storage) for one in storages), *states)
        if self._fused is None or self._fused[0] != signature:
            self._fused = signature, FusedRecording(fuse(self.loops), backend, branches=self.branches)
        return self._fused[1]

    @property
    def fused_steps(self) -> tuple[FusedLoop, ...]:
        """The fused loops of one replay; none where loops are not fused."""
        body = self._fused_recording().program.body if self._fuses() else ()
        return tuple(step for step in body if isinstance(step, FusedLoop))

    @property
    def launches(self) -> int:
        """Kernels that one replay starts on a device; 0 where there is none."""
        alone = [o for o in self.loops if isinstance(o, Runnable)]
        steps = self._fused_recording().body if self._fuses() else [o.prepare() for o in alone]
        return sum(len(getattr(step, "steps", ())) for step in steps)

    @property
    def graph(self) -> str:
        """How one replay is ordered on a device, in one line; empty where there is none."""
        return (self._fused_recording() if self._fuses() else self._recording()).summary

    def explain(self) -> str:
        """Every loop's schedule, reason and figures; on a GPU first how they are fused and replayed."""
        loops = [o.explain() for o in dict.fromkeys(self.loops) if isinstance(o, Runnable)]
        moved = [f"layout of {f.name}: {layout}, the least time over all loops" for f, layout in self.layouts.items()]
        fused = [self._fused_recording().program.explain()] if self._fuses() else []
        graph = self.graph if fused or self._ready else ""  # loops by themselves are not compiled to be explained
        return "\n\n".join(filter(None, [*moved, "\n".join(filter(None, [*fused, graph])), *loops]))

    def __repr__(self) -> str:
        return f"Program({self.name}: {', '.join(o.name for o in self.loops)})"


class FusedRecording:
    """A fused program prepared by a back end."""

    def __init__(self, program: FusedProgram, backend: Backend, *, branches: bool = True):
        self.program, self.backend = program, backend
        self.prologue = [_executable(step, backend) for step in program.prologue]
        self.body = [_executable(step, backend) for step in program.body]
        self._replay = backend.recording(self.body, branches=branches)
        self.summary = self._replay.summary

    def may_start(self) -> bool:
        """Do the fields that the program takes for constant hold that constant now?"""
        return all(bool((one.storage == value).all()) for one, value in self.program.constants.items())

    def run(self, times: int, record: Sequence[Global]) -> np.ndarray:
        for operation in self.prologue:
            operation()
        return self._replay.run(times, record)[0]


def _executable(step: Step, backend: Backend) -> Callable[[], None]:
    if isinstance(step, Runnable):
        return step.prepare()
    if not isinstance(step, FusedLoop):
        return step
    for storage in step.storages:  # the fields are there already; spare buffers may not be
        storage.move(backend.place(storage.storage))
    plan = step.plan
    return backend.prepare(Bound(step.spec, step.on.size, step.storages, step.maps, step.schedule, lambda: plan))


@overload
def program(function: Callable[[], None]) -> Program: ...
@overload
def program(*, fuse: bool = True, branches: bool = True) -> Callable[[Callable[[], None]], Program]: ...


def program(function: Callable[[], None] | None = None, *, fuse: bool = True, branches: bool = True) -> Any:
    """Decorator: record the loops that a function without arguments calls, to be replayed by ``run``.

    ``@ml.program(fuse=False)`` keeps every loop by itself, ``branches=False`` one operation after the other.
    """
    made = partial(Program, fuse=fuse, branches=branches)
    return made(function) if function else made
