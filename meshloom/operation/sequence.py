"""A sequence: programs and solvers that run one after the other, round after round.

A step of an implicit method has a linear system in its middle, and a solver iterates for as long as it takes, or works
on whole arrays: no program records that. So one step is a program, a solve, another program; here they are one thing,
which runs, stops and explains itself as a program does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.errors import ProgramError, SolveError, interrupted, shown, whole_number
from meshloom.markup import Explanation
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Global, on_host
from meshloom.mesh.values import named
from meshloom.operation.operation import Operation
from meshloom.operation.program import MOST_REPLAYS, Program, checked_record
from meshloom.operation.replay import ReadyProgram
from meshloom.process.signals import held_back
from meshloom.recording import refuse_in_program

Part = Program | Callable[[], Any]


class Sequence(NoCopy):
    """``Sequence(before, solve, behind)``: programs without arguments, and functions of none, such as one that solves a
    system, in the order in which they run. A function that cannot do its work raises ``ml.errors.SolveError``.

    What a function returns is dropped. One that has ``loops`` shows them among those of the sequence.
    """

    def __init__(self, *parts: Part, name: str = "sequence"):
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

    @cached_property
    def _of_programs(self) -> tuple[Operation, ...]:
        """The operations of its programs, which share fields."""
        return tuple(loop for one in self._programs for loop in one.loops)

    @cached_property
    def loops(self) -> tuple[Operation, ...]:
        """The operations of its programs, and of functions that say theirs."""
        return tuple(loop for one in self.parts for loop in getattr(one, "loops", ()))

    def __call__(self) -> None:
        """One round."""
        self.run(1)

    def run(self, times: int = 1, record: Iterable[Global] = ()) -> np.ndarray:
        """So many rounds. Returns the values of the recorded globals after each, (times, values).

        Ctrl-C raises KeyboardInterrupt after a whole round, as in ``Program.run``, with ``replays`` and ``history``.
        Whatever a part raises ends it at once, in the middle of a round; a SolveError then knows ``replays``, too.
        """
        refuse_in_program(f"running sequence {self.name}", "make its programs part of the outer one, and solve outside")
        times = whole_number(f"sequence {self.name}: rounds", times, 0, MOST_REPLAYS, error=ProgramError)
        kept = checked_record(self.name, record, times)
        for program in self._programs:
            program._lay_out(self._of_programs)
        for program, ready in self._programs.items():
            ready.begin()
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


def part_name(part: Part) -> str:
    """What a part is called."""
    if isinstance(part, Program):
        return f"program {part.name}"
    return str(getattr(part, "__qualname__", repr(part))).rpartition("<locals>.")[2]


class _ReadyPart:
    """A program that runs once, again and again: what was made ready for the first time serves as long as it fits, so
    that little is asked of Python before each. Kernels and schedules are looked at when a run begins."""

    def __init__(self, program: Program):
        self.program = program
        self._ready: tuple[tuple[Any, ...], ReadyProgram] | None = None

    def begin(self) -> None:
        """Before the first round: is it still what it was?"""
        if self._ready is not None and not (self._ready[0] == self._key() and self._ready[1].usable()):
            self._ready = None

    def _key(self) -> tuple[Any, ...]:
        program = self.program
        return (current().key, program.fuse, program.branches, *(loop.how for loop in program.loops))

    def __call__(self) -> None:
        ready = None if self._ready is None else self._ready[1]
        if Operation.watched is not None:
            self.program.run(1)
            return
        if ready is not None and ready.replay is not None and ready.replay.may_start():
            self.program._note(ready.perform(1, _once, ()))
            return
        self.program.run(1)
        self._ready = self._key(), self.program._ready_to_keep(())


def _once(one: Any, most: int) -> Any:
    return one.run(most, ())
