"""A program: loops recorded once and replayed without Python in between."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar, overload
from weakref import WeakSet, ref

import numpy as np

from meshloom.backend import current
from meshloom.backend.base import Recording, Replayed
from meshloom.errors import ProgramError, UserError, one_line, whole_number, yes_or_no
from meshloom.exclusion import belong, exclusive, mutex_of
from meshloom.kernel.captured import Captured
from meshloom.kernel.recent import Recent
from meshloom.kernel.sameness import Distinct
from meshloom.markup import Explanation
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Field, Global
from meshloom.mesh.globals import Condition
from meshloom.operation.call import functions_inside, functions_of, may_change_anything, with_loops_of_calls
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.execution import Spent
from meshloom.operation.fused_recording import FusedRecording
from meshloom.operation.fusion.program import FusedProgram
from meshloom.operation.in_turn import executed_in_turn
from meshloom.operation.operation import Operation
from meshloom.operation.parameters import Given, Known, Parameters, name_of
from meshloom.operation.past_times import PastTimes, Timed, together
from meshloom.operation.reads import reads_of_program
from meshloom.operation.recorded import Outline, Recorded, check_calls, difference
from meshloom.operation.repeated import RepeatedProgram
from meshloom.operation.replay import CachedProgram, Replay, RunMode
from meshloom.operation.run_arguments import check_condition, check_decides, check_inside, checked_record, whole_history
from meshloom.operation.tape import Tape
from meshloom.operation.tape_times import fused_times, timed_loops
from meshloom.operation.weak_cache import WeakCache, weak_entry
from meshloom.recording import outside_program, recorder

MOST_REPLAYS = 2**48
MOST_NESTED = 100  # recordings of one program inside each other, with other arguments each
MOST_CACHED = 16  # combinations of arguments of one program that stay ready
MOST_TAPES = 4  # of one program, for other Python values each: as many as a Runge-Kutta method has stages

T = TypeVar("T", Tape, CachedProgram)

_ABSENT: Any = object()  # the function of a decorator with options alone


class Program(NoCopy, Distinct):
    """The loops and fills that a function calls, in order, and functions that it has called at every replay by
    ``ml.call``, as solvers are. The function runs when the program is first needed, and again before a run where a
    Python value that it read has changed: a number, a flag, another field in one's place. What it does besides is not
    repeated, so what would then differ from calling it at every replay is refused (``meshloom.recording``,
    ``operation/reads.py``).

    Where the function has parameters, they are fields and globals (or sets and maps) that whoever calls the program
    gives; it is recorded once for every combination of them, as long as they are there.

    ``fuse``: may loops be combined into one, so that values pass from one to the next in registers? They are where that
    is faster, unless it says False; the back end numpy runs every loop by itself. Every field but temporary ones holds
    the same afterwards, but for rounding. ``branches``: may a GPU run small operations that do not depend on each other
    at the same time? The results are the same to the last bit.
    """

    def __init__(self, function: Callable[..., None], *, fuse: bool = True, branches: bool = True):
        if not callable(function):
            raise ProgramError(f"a program is made of a function that calls kernels, got {type(function).__name__}")
        belong(self)
        self.function, self.name = function, name_of(function)
        self.fuse = yes_or_no(f"program {self.name}: fuse", fuse, error=ProgramError)
        self.branches = yes_or_no(f"program {self.name}: branches", branches, error=ProgramError)
        self._given = Given((), {})
        self._tapes: list[Tape] = []  # that of now is the last
        self._past = PastTimes()  # of tapes that are no longer there
        self._taped: tuple[Captured, tuple[object, ...]] | None = None  # for what it read, and on which back end
        self._keeps_made = False  # does somebody have fields or globals that the function made?
        self._reads: Captured | None = None  # what the function read when it was last given arguments
        self._values: Recent[Any, object] = Recent(MOST_CACHED)  # what stands for the values read, by key
        self._cached: WeakCache[tuple[Any, ...], tuple[CachedProgram, ...]] = WeakCache()  # by arguments; now last
        self._voted: WeakSet[Field] = WeakSet()  # for their layouts, whatever its arguments are
        self._begun: dict[tuple[Any, ...], Tape] = {}  # which compilers have begun with (``begun.py``)
        self._called: tuple[Callable[[], Any], ...] | None = None  # by ``ml.call``, when it was last recorded
        self._warned = False

    @property
    def _recorded_function(self) -> Callable[..., None]:
        """What a program around this one records."""
        return self.function

    @cached_property
    def parameters(self) -> Parameters:
        """What its function takes."""
        return Parameters(self.function)

    @property
    def called_functions(self) -> tuple[Callable[..., Any], ...]:
        """What it may call while it runs, as far as is known: before it is recorded, whatever its function does."""
        return (self.function,) if self._called is None else self._called

    @property
    @exclusive
    def loops(self) -> tuple[Operation, ...]:
        """The recorded operations, but for fills that nobody sees; each can be called by itself, unless it draws random
        numbers. In place of a call stand the loops of what is called, where that has some."""
        tape = self._tape()
        return with_loops_of_calls(tape.loops) if tape.calls else tape.loops

    @property
    @exclusive
    def operations(self) -> tuple[Operation, ...]:
        """All that was recorded, calls included. A program around this one takes it as it is: it may write temporary
        fields before, and look at them behind."""
        return self._tape().operations

    @property
    @exclusive
    def segments(self) -> tuple[Tape, ...]:
        """What runs without a call in between, as it is recorded now: all of it, where there are no calls."""
        return self._tape().segments

    @property
    @exclusive
    def dataflow(self) -> Dataflow:
        """Who writes which values and who reads them, of what was recorded; nothing of it is fused or left out."""
        return self._tape().dataflow

    @property
    @exclusive
    def layouts(self) -> dict[Field, str]:
        """On a GPU, what fields whose layout is free are changed to: decided once, by the sum over the loops."""
        return self._tape().layouts

    @exclusive
    def _tape(self) -> Tape:
        """What is recorded for the Python values of now."""
        return self._own_tape()

    def _own_tape(self) -> Tape:
        """The same for the thread that holds it."""
        if self.parameters.names:
            names = ", ".join(self.parameters.names)
            raise ProgramError(f"program {self.name} takes arguments: ask {self.name}.bind({names}) instead")
        if self._taped is None or self._taped[1] != current().key or not self._taped[0].unchanged():
            self._follow()
        tape = self._tapes[-1]
        tape.fuse, tape.branches = self.fuse, self.branches
        return tape

    def _follow(self) -> None:
        """Record again, and make the tape of these operations the last one; where only numbers differ it takes them."""
        used, (reads, tape, new) = current().key, self._found_or_recorded(self._given, self._tapes)
        tape = tape or Tape(self.name, new, self._voted)
        others = [one for one in self._tapes if one is not tape]
        self._tapes, dropped = [*others[-MOST_TAPES + 1 :], tape], others[: -MOST_TAPES + 1]
        for one in dropped:
            still = {loop for each in self._tapes for loop in each.loops}
            self._past.add([loop for loop in timed_loops(one) if loop not in still], fused_times(one))
        self._taped = reads, used

    def _found_or_recorded(self, given: Given, known: Sequence[T]) -> tuple[Captured, T | None, Recorded]:
        """Record again: what the function read; that of some known ones which does the same, with the numbers of now,
        if there is one; else what was recorded."""
        reads, new = self._recorded_now(given)
        outline = Outline(new)
        for one in reversed(known):
            numbers = one.outline.other_numbers(outline)
            if numbers is None or (new.made and self._keeps_made):
                continue
            made = [ref(each) for each in new.made]
            if made:
                del new  # with which goes what it made, unless somebody has it, and expects results there
                self._keeps_made = any(each() is not None for each in made)
                if self._keeps_made:
                    reads, new = self._recorded_now(given)
                    break
            for number, value in numbers.items():
                number.put(value)
            return reads, one, Recorded()
        self._check_repeatable(reads, new, given)
        return reads, None, new

    def _recorded_now(self, given: Given) -> tuple[Captured, Recorded]:
        """What the function reads now, and what it calls. ProgramError where it changes what it reads itself: then each
        replay would see something else. What it makes when it first runs, and then keeps, is no such change; nor are
        fields and globals that it makes each time, and puts where those of before were, unless it uses these."""
        seen = self._reads  # a moment ago, perhaps
        reads = seen if seen is not None and seen.unchanged() else reads_of_program(self.function, self.name)
        new = self._recorded(given)
        if not reads.holds():
            (changed, place), before = reads.changed(), new
            reads = reads_of_program(self.function, self.name)
            new = self._recorded_again(given)
            holds = reads.holds()
            if difference(before, new) or not (holds or reads.holds(dict(zip(before.made, new.made, strict=False)))):
                raise ProgramError(
                    f"{place}: program {self.name} changes what it reads ({changed}): that would happen"
                    " once for all its replays; keep it in a Global or field, or change it outside"
                )
            if not holds:
                reads = reads_of_program(self.function, self.name)
        check_calls(self.name, new)
        if not reads.comparable and not self._warned:
            self._warned = True
            warnings.warn(
                f"program {self.name} reads {reads.culprit}, which cannot be compared at every run, so it is recorded"
                " every time; name what it needs (settings.dt), or use an ml.Global",
                stacklevel=2,
            )
        return reads, new

    def _check_repeatable(self, reads: Captured, new: Recorded, given: Given) -> None:
        """ProgramError where a function that reads what nobody can compare does something else when called again."""
        differs = "" if reads.comparable else difference(new, self._recorded_again(given))
        if differs:
            raise ProgramError(
                f"{Parameters(self.function).place}program {self.name} calls something else each time ({differs}): its"
                " replays could not follow; put what changes into an ml.Global before each run"
            )

    def _values_now(self) -> object:
        """An object that is the same as long as the function reads the same Python values, and for those of before."""
        if self._reads is None or not self._reads.unchanged():
            self._note(reads_of_program(self.function, self.name))
        return self._value

    def _note(self, reads: Captured) -> None:
        """This is what the function reads now."""
        known = self._values.find(reads.key) if reads.comparable else None
        self._value = known or self._values.keep(reads.key if reads.comparable else object(), object())
        self._reads = reads

    def _recorded(self, given: Given) -> Recorded:
        """The operations that the function calls with these arguments."""
        before = recorder.get()
        recorded = Recorded(before, call=(self.serial, given.key))
        *outer, this = (one for one in recorded.calls if one[0] == self.serial)
        if this in outer or len(outer) >= MOST_NESTED:
            again = " again and again" if given.parts else ""
            raise ProgramError(f"program {self.name} calls itself{again}: it would never end")
        try:
            recorder.set(recorded)
            self.function(*given.values, **given.named)
        except UserError as error:
            if given.parts:
                raise Parameters(self.function).at_its_line(error, given) from error
            raise
        finally:
            recorder.set(before)  # nothing else: an interrupt may come behind every call, also here
        self._called = functions_inside(recorded)
        return recorded

    def _recorded_again(self, given: Given) -> Recorded:
        """What a second call gives; ProgramError where the function can be called but once."""
        try:
            return self._recorded(given)
        except UserError:
            raise
        except Exception as error:
            what = one_line(f"{type(error).__name__}: {error}")
            raise ProgramError(
                f"{Parameters(self.function).place}program {self.name} fails when it is called again ({what}): its"
                " replays could not follow; read what it needs before, and put it into an ml.Global"
            ) from error

    @exclusive
    def bind(self, *arguments: Known, **named: Known) -> Program:
        """The program with these arguments, as one that takes none: to look at, or to keep. It keeps its arguments."""
        given = self.parameters.given(arguments, named)
        return BoundProgram(self, given) if given.parts else self

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Replay once; inside another program, become a part of it."""
        self.run(1, *arguments, **named)

    @exclusive
    def run(self, times: int = 1, *arguments: Any, record: Sequence[Global] = (), **named: Any) -> np.ndarray:
        """Replay ``times`` times. Returns the values of the recorded globals after every replay, (times, values).

        ``arguments``: what the function takes. Ctrl-C is seen within 0.2 seconds and raises KeyboardInterrupt after
        a whole replay, with the attributes ``replays``, how many there were, and ``history`` (replays, values), what
        was recorded of them; where there are only a few replays on a GPU, which are over at once, Python raises its
        own, without these.
        Inside another program its operations are recorded, ``times`` times, as if its function had been called.
        """
        times = whole_number(f"program {self.name}: replays", times, 0, MOST_REPLAYS, error=ProgramError)
        if len(arguments) == 1 and (not self.parameters.any or isinstance(arguments[0], list | tuple)):
            (record,), arguments = arguments, ()  # after ``times``: no argument is a tuple
        into = recorder.get()
        if into is not None:
            return self._inlined(times, record, into, self.parameters.given(arguments, named))
        kept = checked_record(self.name, record, times)
        done = self._performed(times, lambda one, most: one.run(most, kept), kept, arguments, named)
        return whole_history(self.name, done, times)

    @exclusive
    def repeat(self, *arguments: Any, until: Condition, at_most: int, **named: Any) -> int:
        """Replay until a condition such as ``residual < 1e-6`` holds, ``at_most`` so many times; how often it was.

        The condition is asked for after every replay, so there is at least one; one of not a number is never true.
        ``arguments``: what the function takes. Ctrl-C as for ``run``. Inside another program it is an operation of
        that, which repeats anew at every replay; how often it was then nobody can ask.
        """
        check_condition(self.name, until)
        most = whole_number(f"program {self.name}: at_most", at_most, 1, MOST_REPLAYS, error=ProgramError)
        into = recorder.get()
        if into is not None:
            given, made = self.parameters.given(arguments, named), len(into.made)
            loops = self._recorded(given if given.parts else self._given)
            check_calls(self.name, loops)
            return RepeatedProgram(self, given, until, most).recorded(into, loops, into.forget_made(made))

        def mode(one: Recording | Replay, most: int) -> Replayed:
            return one.repeat(most, until.in_memory())

        done = self._performed(most, mode, until.globals, arguments, named, until=until)
        return len(whole_history(self.name, done, most))

    def _performed(
        self, times: int, mode: RunMode, watched: Sequence[Global], arguments: tuple[Any, ...], named: dict[str, Any],
        *, until: Condition | None = None,
    ) -> Replayed:  # fmt: skip
        """Run it with these arguments: by what is cached of an earlier run with them, where it still fits. ``until``:
        what decides when to end."""
        if not arguments and not named and not self.parameters.names:
            tape = self._own_tape()
            check_decides(self.name, None if any(map(may_change_anything, tape.calls)) else until, tape.left[0])
            if tape.calls:
                return executed_in_turn(self._own_tape, tape, times, mode, watched)
            return tape.perform(times, mode, watched)
        given = self.parameters.given(arguments, named) if named else Given(arguments, {})
        key = (current().key, self.fuse, self.branches, *given.key)
        values, watching = self._values_now(), Operation.watched is not None
        cached = [one for one in self._cached.get(key, ()) if one.usable() and not watching]
        hit = next((one for one in cached if one.values is values), None)
        if hit is None:
            given, begun = self.parameters.given(arguments, named), self._begun.pop((key, values), None)
            hit, made = self._recorded_with(given, cached) if begun is None else (None, begun)
            if made is not None:
                return self._first_run(made, (key, given, cached), times, mode, watched, until)
            if hit is None:
                return BoundProgram(self, given)._performed(times, mode, watched, (), {}, until=until)
            hit.values = self._value
        if hit is not cached[-1]:
            self._cached[key] = (*[one for one in cached if one is not hit], hit)
        check_decides(self.name, until, hit.written)
        return hit.perform(times, mode, watched)

    def _recorded_with(self, given: Given, cached: Sequence[T]) -> tuple[T | None, Tape | None]:
        """Record with these arguments: that of some cached ones which does the same, or a tape; neither where functions
        are called, which may hold anything, so that nothing of it is cached."""
        reads, hit, new = self._found_or_recorded(given, cached)
        if reads is not self._reads:
            self._note(reads)
        if hit is not None or functions_of(new):
            return hit, None
        tape = Tape(self.name, new, self._voted)
        tape.fuse, tape.branches = self.fuse, self.branches
        return None, tape

    @exclusive
    def _begin_to_prepare(self, *arguments: Known) -> bool:
        """Record it with these arguments, and have compilers begin with it, for a run that other programs go before
        (``begun.py``); False where that has to wait until they have run."""
        given = self.parameters.given(arguments, {})
        key = (current().key, self.fuse, self.branches, *given.key)
        if key not in self._cached:
            _, tape = self._recorded_with(given, ())
            if tape is None or not tape.begin_early():
                return False
            self._begun[key, self._values_now()] = tape
        return True

    def _first_run(
        self, tape: Tape, place: tuple[tuple[Any, ...], Given, list[CachedProgram]], times: int, mode: RunMode,
        watched: Sequence[Global], until: Condition | None,
    ) -> Replayed:  # fmt: skip
        """Run what was recorded, and cache what was made ready; ``place``: where, for which arguments, next to what."""
        check_decides(self.name, until, tape.left[0])
        done = tape.execute(times, mode, watched)
        if times:
            key, given, others = place
            made = tape.cached_program(weak_entry(self._cached, key, given.parts))
            made.outline, made.values = tape.outline, self._value
            self._cached.pop(key, None)
            self._cached[key] = (*others[-MOST_TAPES + 1 :], made)
            if len(self._cached) > MOST_CACHED:
                del self._cached[next(iter(self._cached))]
        return done

    def _inlined(self, times: int, record: Sequence[Global], into: Callable[[Any], None], given: Given) -> np.ndarray:
        check_inside(self.name, record)
        loops = self._recorded(given if given.parts else self._given)
        check_calls(self.name, loops)
        check_inside(self.name, record, times * len(loops))
        for operation in list(loops) * times:
            into(operation)
        return np.zeros((times, 0))

    @exclusive
    def timed(self) -> list[Timed]:
        """What was timed so far, in all: loops that ran by themselves, and the steps of the program as it is fused.
        Nothing where a device replays all of it as one graph; what was recorded for other Python values long ago is
        among ``past_times``."""
        tapes = self._tapes or [self._tape()]
        alone = self._past.since(loop for tape in tapes for loop in timed_loops(tape))
        return together([*alone, *[step for tape in tapes for step in fused_times(tape)]])

    @exclusive
    def past_times(self) -> dict[tuple[str, str], Spent]:
        """The same of what is no longer recorded, by name and what it ran over."""
        return dict(self._past.by_unit)

    @exclusive
    def _fused_recording(self) -> FusedRecording | None:
        return self._tape().fused_recording()

    def _fusion(self) -> tuple[FusedProgram, list[FusedRecording]]:
        return self._tape().fusion()

    @property
    @outside_program()
    def fused_steps(self) -> tuple[Operation, ...]:
        """The fused loops of one replay; none where loops are not fused."""
        return tuple(o for o in self.steps if o.policy.as_one)

    @property
    @exclusive
    @outside_program()
    def steps(self) -> tuple[Operation, ...]:
        """The operations of one replay: as they are fused, or as they were recorded."""
        return self._tape().steps

    @property
    @exclusive
    @outside_program()
    def launches(self) -> int:
        """Kernels that one replay starts on a device; 0 where there is none."""
        return self._tape().launches

    @property
    @exclusive
    @outside_program()
    def graph(self) -> str:
        """How one replay is ordered on a device, in one line; empty where there is none."""
        return self._tape().graph

    def explain(self, *arguments: Known, **named: Known) -> str:
        """Every loop's schedule, reason and figures; before that how they are fused and, on a GPU, replayed."""
        return Explanation(self.bind(*arguments, **named)._explained())

    @exclusive
    def _explained(self) -> str:
        return self._tape().explained()

    def __repr__(self) -> str:
        """Of one that takes arguments what they are called; of others the loops: looking at it may record it."""
        if self.parameters.any and not self._tapes:
            return f"Program({self.name} of {', '.join(self.parameters.names) or 'what it is given'})"
        try:
            return f"Program({self.name}: {', '.join(o.name for o in self._tape().loops)})"
        except UserError:  # which running it will tell
            return f"Program({self.name})"


class BoundProgram(Program):
    """A program with its arguments."""

    def __init__(self, program: Program, given: Given):
        super().__init__(program.function, fuse=program.fuse, branches=program.branches)
        self._mutex = mutex_of(program)
        self.parameters = Parameters(_nothing)
        self._given = given
        self._voted = program._voted
        self._tape()


def _nothing() -> None:
    """The function of no parameters."""


@overload
def program(function: Callable[..., None]) -> Program: ...
@overload
def program(*, fuse: bool = True, branches: bool = True) -> Callable[[Callable[..., None]], Program]: ...


def program(function: Any = _ABSENT, *, fuse: bool = True, branches: bool = True) -> Any:
    """Decorator: record the loops that a function calls, to be replayed by ``run`` or ``repeat``. Parameters of the
    function are fields and globals that are given to each run.

    ``@ml.program(fuse=False)`` keeps every loop by itself, ``branches=False`` one operation after the other.
    """
    made = partial(Program, fuse=fuse, branches=branches)
    return made if function is _ABSENT else made(function)
