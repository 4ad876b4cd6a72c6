"""A program: loops recorded once and replayed without Python in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, overload

import numpy as np

from meshloom.backend.base import Backend, Bound, Recording
from meshloom.errors import KernelError, ProgramError, interrupted, whole
from meshloom.fusion import FusedLoop, FusedProgram, Step, fuse
from meshloom.loop import Loop, Runnable
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Field, Fill, Global
from meshloom.mesh.recording import outside_program, recorder
from meshloom.native import machine
from meshloom.schedule.layouts import best_layout

MOST_REPLAYS = 2**48
MOST_INLINED = 100_000  # operations that a program takes from one inside it
MOST_MEMORY = 0.5  # of the machine's, for the history of globals


class Program(NoCopy):
    """The loops and fills that a function calls, in order. The function runs once, when the program is first needed:
    what it does besides is not repeated, so what would then differ from calling it is refused (``mesh.recording``).

    ``fuse``: may loops be combined into one, so that values pass from one to the next in registers? On a GPU they are
    unless it says False; other back ends run every loop by itself. Every field but transient ones holds the same
    afterwards. ``branches``: may a GPU run small operations that do not depend on each other at the same time? The
    results are the same to the last bit.
    """

    def __init__(self, function: Callable[[], None], *, fuse: bool = True, branches: bool = True):
        self.function, self.name, self.fuse, self.branches = function, function.__name__, fuse, branches
        self._ready: tuple[tuple[int, ...], Recording] | None = None
        self._fused: tuple[tuple[object, ...], FusedRecording] | None = None
        self._being_recorded = False

    @cached_property
    def loops(self) -> tuple[Runnable | Fill, ...]:
        """The recorded operations; each can be called by itself."""
        if self._being_recorded:
            raise ProgramError(f"program {self.name} calls itself: it would never end")
        recorded: list[Any] = []
        token, self._being_recorded = recorder.set(recorded.append), True
        try:
            self.function()
        finally:
            recorder.reset(token)
            self._being_recorded = False
        if not recorded:
            raise KernelError(f"program {self.name} calls no kernel: there is nothing to replay")
        check_written_first(recorded)
        return tuple(recorded)

    @cached_property
    def layouts(self) -> dict[Field, str]:
        """On a GPU, what fields whose layout is free are changed to: decided once, by the sum over the loops."""
        loops = [o for o in self.loops if isinstance(o, Loop) and o.backend.simt]
        chosen: dict[Field, str] = {}
        for one in dict.fromkeys(s for o in loops for s in o.storages if isinstance(s, Field)):
            if one.layout_is_free and one.dim > 1 and not any(o.wish.layout for o in loops if one in o.storages):
                votes = [(o.schedule.strategy, o.estimate) for o in loops if one in o.storages]
                best, _ = best_layout(votes)
                if best != str(one.layout):
                    chosen[one] = best
        return chosen

    def __call__(self) -> None:
        """Replay once; inside another program, become a part of it."""
        self.run()

    def run(self, times: int = 1, record: Sequence[Global] = ()) -> np.ndarray:
        """Replay ``times`` times. Returns the values of the recorded globals after every replay, (times, values).

        Ctrl-C is seen within about a second and raises KeyboardInterrupt after a whole replay, with the attributes
        ``replays``, how many there were, and ``history`` (replays, values), what was recorded of them; where there are
        only a few replays on a GPU, which are over at once, Python raises its own, without these.
        Inside another program its operations are recorded, ``times`` times, as if its function had been called.
        """
        times = whole(f"program {self.name}: replays", times, 0, MOST_REPLAYS, error=ProgramError)
        into = recorder.get()
        if into is not None:
            return self._inlined(times, record, into)
        kept = checked_record(self.name, record, times)
        for loop in self._runnables:
            loop.settle()
        for one, layout in self.layouts.items():
            if one.layout_is_free:
                one.relayout(layout, free=True)
        used = self._backends()
        for target in kept if len(used) == 1 else ():
            target.move(next(iter(used)).place(target.storage))
        try:
            history, stopped = self._replayed(times, kept)
        except MemoryError as error:
            raise ProgramError(f"program {self.name}: not enough memory to run {times:,} times: {error}") from error
        finally:
            for one in self._transients if times else ():
                one.undefined_after = self.name
        if stopped:
            where = f"after {len(history)} of {times} replays; fields are as the last one left them"
            raise interrupted(f"program {self.name}: stopped {where}", replays=len(history), history=history)
        return history

    def _inlined(self, times: int, record: Sequence[Global], into: Callable[[Any], None]) -> np.ndarray:
        if tuple(record):
            raise ProgramError(
                f"program {self.name} runs inside another one, where nothing can be kept; give record= to the outer one"
            )
        if times * len(self.loops) > MOST_INLINED:
            raise ProgramError(
                f"program {self.name} inside another one would become {times * len(self.loops):,} operations, at most"
                f" {MOST_INLINED:,}; run the outer one more often"
            )
        for operation in self.loops * times:
            into(operation)
        return np.zeros((times, 0))

    @cached_property
    def _runnables(self) -> list[Runnable]:
        return [o for o in self.loops if isinstance(o, Runnable)]

    @cached_property
    def _fills(self) -> list[Fill]:
        return [o for o in self.loops if isinstance(o, Fill)]

    @cached_property
    def _transients(self) -> tuple[Field, ...]:
        written = dict.fromkeys(w for o in self.loops for w in o.writes)
        return tuple(w for w in written if isinstance(w, Field) and w.transient)

    def _replayed(self, times: int, record: Sequence[Global]) -> tuple[np.ndarray, bool]:
        """The recorded values, (replays, values), and whether Ctrl-C came: there may be fewer than ``times`` then."""
        if not self._fuses():
            return self._run_loops(times, record)
        fused = self._fused_recording()
        alone = 0 if fused.may_start() else min(times, 1)  # one replay loop by loop makes the constants true
        first, stopped = self._run_loops(alone, record)
        if stopped or times == alone:
            return first, stopped
        rest, stopped = fused.run(times - alone, record)
        return np.concatenate([first, rest]), stopped

    def _run_loops(self, times: int, record: Sequence[Global]) -> tuple[np.ndarray, bool]:
        history, seconds, stopped = self._recording().run(times, record)
        for operation, took in zip(self.loops, seconds.tolist(), strict=True):
            if not isinstance(operation, Fill) and math.isfinite(took):
                operation.total_seconds += took
                operation.calls += len(history)
        return history, stopped

    def _recording(self) -> Recording:
        """What the back end made of the operations; made again when a loop has been invalidated."""
        used = self._backends()
        one = used.pop() if len(used) == 1 else None
        fills = [o.target for o in self._fills]
        if one is not None:  # what is set need not be used by a loop, which would bring it there
            for target in fills:
                target.move(one.place(target.storage))
        executables = [o if isinstance(o, Fill) else o.prepare() for o in self.loops]
        signature = (self.branches, *map(id, executables), *(id(target.storage) for target in fills))
        if self._ready is None or self._ready[0] != signature:
            made = one.recording(executables, branches=self.branches) if one else Recording(executables)
            self._ready = signature, made
        return self._ready[1]

    def _backends(self) -> set[Backend]:
        return {loop.backend for loop in self._runnables}

    def _fuses(self) -> bool:
        used = self._backends()
        return self.fuse and len(used) == 1 and next(iter(used)).simt

    def _fused_recording(self) -> FusedRecording:
        """The fused program, ready to run; made again when a field has moved."""
        (backend,) = self._backends()
        storages = dict.fromkeys(s for o in self.loops for s in (o.storages if isinstance(o, Runnable) else o.writes))
        for one in storages:
            one.move(backend.place(one.storage))
        for loop in self._runnables:
            loop.refresh()
        states = [state for loop in self._runnables for state in loop.states]
        signature = (self.branches, *(id(one.storage) for one in storages), *states)
        if self._fused is None or self._fused[0] != signature:
            self._fused = signature, FusedRecording(fuse(self.loops), backend, branches=self.branches)
        return self._fused[1]

    @property
    @outside_program()
    def fused_steps(self) -> tuple[FusedLoop, ...]:
        """The fused loops of one replay; none where loops are not fused."""
        body = self._fused_recording().program.body if self._fuses() else ()
        return tuple(step for step in body if isinstance(step, FusedLoop))

    @property
    @outside_program()
    def launches(self) -> int:
        """Kernels that one replay starts on a device; 0 where there is none."""
        steps = self._fused_recording().body if self._fuses() else [loop.prepare() for loop in self._runnables]
        return sum(len(getattr(step, "steps", ())) for step in steps)

    @property
    @outside_program()
    def graph(self) -> str:
        """How one replay is ordered on a device, in one line; empty where there is none."""
        return (self._fused_recording() if self._fuses() else self._recording()).summary

    @outside_program()
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

    def run(self, times: int, record: Sequence[Global]) -> tuple[np.ndarray, bool]:
        """The recorded values, and whether Ctrl-C came."""
        for operation in self.prologue:
            operation()
        done = self._replay.run(times, record)
        return done.history, done.stopped


def _executable(step: Step, backend: Backend) -> Callable[[], None]:
    if isinstance(step, Runnable):
        return step.prepare()
    if not isinstance(step, FusedLoop):
        return step
    for storage in step.storages:  # the fields are there already; spare buffers may not be
        storage.move(backend.place(storage.storage))
    plan = step.plan
    return backend.prepare(Bound(step.spec, step.on.size, step.storages, step.maps, step.schedule, lambda: plan))


# ----- what a person gives ------------------------------------------------------------------------------------------
def checked_record(name: str, record: Any, times: int) -> tuple[Global, ...]:
    """The globals to keep after every replay: ProgramError for anything else, and where memory cannot hold them."""
    if isinstance(record, Global) or not isinstance(record, Iterable):
        raise ProgramError(f"program {name}: record takes a tuple of Globals, got a single {type(record).__name__}")
    kept = tuple(record)
    for one in kept:
        if not isinstance(one, Global):
            what = f"field {one.name}" if isinstance(one, Field) else f"{type(one).__name__}"
            raise ProgramError(
                f"program {name}: record takes Globals, got {what}; what a field tells is reduced to a Global by Sum,"
                " Min or Max"
            )
    needed, memory = 8 * times * sum(one.dim for one in kept), machine.memory()
    if needed > MOST_MEMORY * memory:
        raise ProgramError(
            f"program {name}: {times:,} replays with {len(kept)} recorded globals need {needed / 2**30:.3g} GiB of"
            f" {memory / 2**30:.3g}; run fewer at a time"
        )
    return kept


def check_written_first(operations: Sequence[Runnable | Fill]) -> None:
    """KernelError where a transient field is read before it is written: between replays it has no values."""
    written: set[Field | Global] = set()
    for operation in operations:
        unwritten = [f for f in operation.transients if f not in written] if isinstance(operation, Runnable) else []
        for one in unwritten:
            if isinstance(operation, Runnable) and operation.needs(one):
                raise KernelError(
                    f"field {one.name} is transient, but a program reads it before it is written; write it first, or"
                    " make it an ordinary field"
                )
        written |= set(operation.writes)


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
