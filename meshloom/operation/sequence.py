"""A sequence: programs and solvers that run one after the other, round after round.

A step of an implicit method has a linear system in its middle, and a solver iterates for as long as it takes, or works
on whole arrays: no program records that. So one step is a program, a solve, another program; here they are one thing,
which runs, stops and explains itself as a program does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from inspect import signature
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.errors import ProgramError, SolveError, interrupted, shown, whole_number
from meshloom.exclusion import belong, exclusive, holding, mutex_of, unowned
from meshloom.kernel.outside import is_followed
from meshloom.kernel.sameness import IdentityDict
from meshloom.markup import Explanation
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Global, on_host
from meshloom.mesh.values import named
from meshloom.operation.operation import Operation
from meshloom.operation.program import MOST_REPLAYS, Program
from meshloom.operation.replay import ReadyProgram
from meshloom.operation.run_arguments import checked_record
from meshloom.operation.tape import Tape
from meshloom.process.signals import held_back
from meshloom.recording import refuse_in_program

Part = Program | Callable[[], Any]
_PACKAGE = __name__.partition(".")[0]
#: What calls nothing.
_SILENT = (bool, int, float, str, type(None), np.dtype)
_COLLECTIONS = (tuple, list, set, frozenset)
#: Classes of CuPy's whose objects run on a GPU, and call nothing of Python's; others of its do, as ``cupy.fuse``.
_ON_DEVICE = ("ElementwiseKernel", "ReductionKernel", "RawKernel", "ufunc")
#: Rooms whose objects programs are made of, and what these run on.
_RECORDED = tuple(f"{_PACKAGE}.{room}" for room in ("mesh", "kernel", "operation", "schedule", "backend", "native"))


class Sequence(NoCopy):
    """``Sequence(before, solve, behind)``: programs without arguments, and functions of none, such as one that solves a
    system, in the order in which they run. A function that cannot do its work raises ``ml.errors.SolveError``.

    What a function returns is dropped. One that has ``loops`` shows them among those of the sequence.
    """

    def __init__(self, *parts: Part, name: str = "sequence"):
        belong(self)
        self.name = named("a sequence", name)
        if not parts:
            raise ProgramError(f"sequence {name}: give the programs and functions that it is made of")
        for one in parts:
            if not callable(one):
                raise ProgramError(f"sequence {name} is made of programs and functions, got {shown(one)}")
            if isinstance(one, Program) and one.parameters.names:
                raise ProgramError(f"sequence {name}: program {one.name} takes arguments: give {one.name}.bind(...)")
            if not isinstance(one, Program) and not _needs_nothing(one):
                raise ProgramError(f"sequence {name}: {part_name(one)} takes arguments, and is called without any")
        self.parts: tuple[Part, ...] = parts
        self._programs = {one: _ReadyPart(one) for one in parts if isinstance(one, Program)}
        self._steps = tuple(self._programs[one] if isinstance(one, Program) else one for one in parts)
        self.part_seconds, self.rounds = [0.0] * len(parts), 0  # of each part, in all; whole rounds so far

    @property
    def loops(self) -> tuple[Operation, ...]:
        """The operations of its programs, as they are recorded now, and of functions that say theirs."""
        return tuple(loop for one in self.parts for loop in getattr(one, "loops", ()))

    def _tapes(self) -> list[Tape]:
        """What its programs record for the Python values of now. Fields get the layouts that all of them have voted
        for, which share them."""
        tapes = [one._tape() for one in self._programs]
        if not all(tape.laid_out for tape in tapes):
            votes = [loop for tape in tapes for loop in tape.loops]
            for tape in tapes:
                tape.lay_out(votes)
        return tapes

    def __call__(self) -> None:
        """One round."""
        self.run(1)

    @exclusive
    @unowned  # what functions of the user's make is theirs
    def run(self, times: int = 1, record: Iterable[Global] = ()) -> np.ndarray:
        """So many rounds. Returns the values of the recorded globals after each, (times, values).

        Ctrl-C raises KeyboardInterrupt after a whole round, as in ``Program.run``, with ``replays`` and ``history``.
        Whatever a part raises ends it at once, in the middle of a round; a SolveError then knows ``replays``, too.
        """
        refuse_in_program(f"running sequence {self.name}", "make its programs part of the outer one, and solve outside")
        times = whole_number(f"sequence {self.name}: rounds", times, 0, MOST_REPLAYS, error=ProgramError)
        kept = checked_record(self.name, record, times)
        tapes = holding(map(mutex_of, self._programs), self._tapes)
        followed = not calls_only_ours(*self.parts)  # asked anew: solvers may have got a callback since
        for tape, (program, ready) in zip(tapes, self._programs.items(), strict=True):
            ready.begin(tape, followed=followed)
            if not times:
                program.run(0)  # which compiles it
        history, done, stop = np.zeros((times, sum(one.dim for one in kept))), 0, False
        with held_back() as interrupts:
            try:
                for row in history:
                    before = time.perf_counter()
                    for number, step in enumerate(self._steps):
                        step()
                        after = time.perf_counter()
                        self.part_seconds[number] += after - before
                        before = after
                    self.rounds += 1
                    if kept:
                        row[:] = np.concatenate([on_host(one.storage) for one in kept])
                    done += 1
                    stop = interrupts()
                    if stop:
                        break
            except SolveError as error:
                error.replays = done
                raise
        if not stop:
            return history
        where = f"after {done} of {times} rounds; fields are as the last one left them"
        raise interrupted(f"sequence {self.name}: stopped {where}", replays=done, history=history[:done])

    def explain(self) -> str:
        """Its parts in order; of programs every loop's schedule, reason and figures."""
        texts = []
        for number, one in enumerate(self.parts, 1):
            title = f"part {number} of {len(self.parts)}: {part_name(one)}"
            texts.append(f"{title}\n\n{one.explain()}" if isinstance(one, Program) else title)
        return Explanation("\n\n".join(texts))

    def __repr__(self) -> str:
        return f"Sequence({self.name}: {', '.join(map(part_name, self.parts))})"


def _needs_nothing(function: Callable[..., Any]) -> bool:
    """Can it be called without arguments, as far as it says?"""
    try:
        signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # nobody knows
        pass
    return True


def calls_only_ours(*functions: Callable[..., Any]) -> bool:
    """Are they Meshloom's own, such as the ``solve`` of a solver, and so is whatever they could call? Then they set no
    value that a program reads. A callback of the user's may be held anywhere: by a sequence that is a part of another
    one, by an object that a function is a method of, by a closure."""
    waiting: list[Any] = list(functions)
    met: IdentityDict[int] = IdentityDict()
    while waiting:
        one = waiting.pop()
        if type(one) in _SILENT or met.setdefault((one,), new := len(met)) != new:
            continue
        held = _held_by(one)
        if held is None:
            return False
        waiting += held
    return True


def _held_by(one: Any) -> Iterable[Any] | None:
    """What may be called by whoever has this; None where it is not Meshloom's. Programs, kernels and fields hold what
    is recorded, which is looked at by itself."""
    module = type(one).__module__
    if isinstance(one, Sequence):
        return one.parts
    if not _is_ours(module) and is_followed(module):
        return None
    if isinstance(one, _COLLECTIONS):
        return one
    if isinstance(one, dict):
        return one.values()
    if isinstance(one, np.ndarray):
        return one.ravel().tolist() if one.dtype.hasobject else ()
    if isinstance(one, MethodType):
        return one.__func__, one.__self__
    if isinstance(one, FunctionType):
        given = one.__defaults__ or ()
        return (*[cell.cell_contents for cell in one.__closure__ or ()], *given) if _is_ours(one.__module__) else None
    if not _is_ours(module):
        return _held_by_libraries(one)
    if module.startswith(_RECORDED):
        return ()
    slots = [name for kind in type(one).__mro__ for name in vars(kind).get("__slots__", ())]
    return (*getattr(one, "__dict__", {}).values(), *[getattr(one, name, None) for name in slots])


def _held_by_libraries(one: Any) -> Iterable[Any] | None:
    """The same of what Python, NumPy and CuPy bring: partial functions and cached ones are what they call."""
    kind = type(one)
    if isinstance(one, partial):
        return one.func, *one.args, *one.keywords.values()
    if isinstance(one, type):
        return None if is_followed(one.__module__) and not _is_ours(one.__module__) else ()
    if kind.__module__.startswith("cupy._core.") and kind.__name__ in _ON_DEVICE:
        return ()
    if (wrapped := getattr(one, "__wrapped__", None)) is not None:
        return (wrapped,)
    return None if callable(one) else ()  # a ufunc may write to an array that it was given


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] == _PACKAGE


def part_name(part: Part) -> str:
    """What a part is called."""
    if isinstance(part, Program):
        return f"program {part.name}"
    return str(getattr(part, "__qualname__", repr(part))).rpartition("<locals>.")[2]


class _ReadyPart:
    """A program that runs once, again and again: what was made ready for the first time serves as long as it fits, so
    that little is asked of Python before each. Kernels, schedules and Python values are looked at when a run begins;
    these before every round where they are ``followed``, because a function of the user's between may set them."""

    def __init__(self, program: Program):
        self.program, self._followed = program, True
        self._tape: Tape | None = None
        self._ready: tuple[tuple[Any, ...], ReadyProgram] | None = None

    def begin(self, tape: Tape, *, followed: bool) -> None:
        """Before the first round, with the tape of now: is it still what it was?"""
        self._followed = followed
        if self._ready is not None:
            kept_for, ready = self._ready
            if self._tape is not tape or kept_for != _key(tape) or not ready.usable():
                self._ready = None

    def __call__(self) -> None:
        with mutex_of(self.program):
            self._run()

    def _run(self) -> None:
        ready = None if self._ready is None else self._ready[1]
        if Operation.watched is not None:
            self.program.run(1)
            return
        tape = self.program._tape() if self._followed or self._tape is None or ready is None else self._tape
        if ready is not None and self._tape is tape and self._may_run(ready):
            tape.note(ready.replay, ready.perform(1, _once, ()))
            return
        self.program.run(1)
        self._tape = tape
        self._ready = _key(tape), tape.ready_to_keep(())

    def _may_run(self, ready: ReadyProgram) -> bool:
        if self._followed:
            return ready.usable()
        return ready.replay is not None and ready.replay.preconditions_hold()


def _key(tape: Tape) -> tuple[Any, ...]:
    """What has been decided about how it runs."""
    return (current().key, tape.fuse, tape.branches, *[loop.policy for loop in tape.loops])


def _once(one: Any, most: int) -> Any:
    return one.run(most, ())
