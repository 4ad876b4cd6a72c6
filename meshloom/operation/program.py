"""A program: loops recorded once and replayed without Python in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, overload
from weakref import WeakSet

import numpy as np

from meshloom.backend import current
from meshloom.backend.base import Backend, Recording, Replayed
from meshloom.errors import KernelError, ProgramError, UserError, interrupted, shown, whole_number, yes_or_no
from meshloom.markup import Explanation
from meshloom.mesh.condition import Condition
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Field, Global
from meshloom.native import machine
from meshloom.native.together import together
from meshloom.operation.field_layouts import layouts_by_votes
from meshloom.operation.fused_recording import FusedRecording
from meshloom.operation.fusion import FusedProgram, fuse
from meshloom.operation.operation import Operation, prepared
from meshloom.operation.parameters import Given, Known, Parameters, name_of
from meshloom.operation.recorded import Recorded, check_written_first, without_idle_fills
from meshloom.operation.replay import ReadyProgram, Replay, Way, backends_of, left_behind, transients_among, written_by
from meshloom.operation.ties import Kept, tied
from meshloom.recording import outside_program, recorder, refuse_in_program

MOST_REPLAYS = 2**48
MOST_INLINED = 100_000  # operations that a program takes from one inside it
MOST_NESTED = 100  # recordings of one program inside each other, with other arguments each
MOST_KEPT = 16  # combinations of arguments of one program that stay ready
MOST_MEMORY = 0.5  # of the machine's, for the history of globals


class Program(NoCopy):
    """The loops and fills that a function calls, in order. The function runs once, when the program is first needed:
    what it does besides is not repeated, so what would then differ from calling it is refused (``meshloom.recording``).

    Where the function has parameters, they are fields and globals (or sets and maps) that whoever calls the program
    gives; it is recorded once for every combination of them, as long as they are there.

    ``fuse``: may loops be combined into one, so that values pass from one to the next in registers? They are where that
    is faster, unless it says False; the back end numpy runs every loop by itself. Every field but transient ones holds
    the same afterwards, but for rounding. ``branches``: may a GPU run small operations that do not depend on each other
    at the same time? The results are the same to the last bit.
    """

    def __init__(self, function: Callable[..., None], *, fuse: bool = True, branches: bool = True):
        if not callable(function):
            raise ProgramError(f"a program is made of a function that calls kernels, got {type(function).__name__}")
        self.function, self.name = function, name_of(function)
        self.fuse = yes_or_no(f"program {self.name}: fuse", fuse, error=ProgramError)
        self.branches = yes_or_no(f"program {self.name}: branches", branches, error=ProgramError)
        self._ready: tuple[tuple[int, ...], Recording] | None = None
        self._fused: tuple[tuple[object, ...], FusedProgram, list[FusedRecording]] | None = None
        self._being_recorded: set[tuple[Any, ...]] = set()  # arguments, by their addresses
        self._kept: Kept[tuple[Any, ...], ReadyProgram] = Kept()  # for other arguments each
        self._laid_out = False  # do fields have the layouts that it likes?
        self._had_its_say: WeakSet[Field] = WeakSet()  # about these, whatever its arguments are

    @cached_property
    def parameters(self) -> Parameters:
        """What its function takes."""
        return Parameters(self.function)

    @property
    def parts(self) -> tuple[Program, ...]:
        """As a ``Sequence`` has them: itself alone."""
        return (self,)

    @cached_property
    def loops(self) -> tuple[Operation, ...]:
        """The recorded operations, but for fills that nobody sees; each can be called by itself."""
        check_written_first(self.operations)
        return without_idle_fills(self.operations)

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """All that was recorded. A program around this one takes it as it is: it may write transient fields before, and
        look at them behind."""
        if self.parameters.names:
            names = ", ".join(self.parameters.names)
            raise ProgramError(f"program {self.name} takes arguments: ask {self.name}.bind({names}) instead")
        return self._recorded(Given((), {}))

    def _recorded(self, given: Given) -> tuple[Operation, ...]:
        """The operations that the function calls with these arguments."""
        if given.key in self._being_recorded or len(self._being_recorded) >= MOST_NESTED:
            again = " again and again" if given.parts else ""
            raise ProgramError(f"program {self.name} calls itself{again}: it would never end")
        recorded = Recorded()
        token = recorder.set(recorded)
        self._being_recorded.add(given.key)
        try:
            self.function(*given.values, **given.named)
        except UserError as error:
            if given.parts:
                raise self.parameters.at_its_line(error, given) from error
            raise
        finally:
            recorder.reset(token)
            self._being_recorded.discard(given.key)
        if not recorded:
            raise KernelError(f"program {self.name} calls no kernel: there is nothing to replay")
        return tuple(recorded)

    def bind(self, *arguments: Known, **named: Known) -> Program:
        """The program with these arguments, as one that takes none: to look at, or to keep. It keeps its arguments."""
        given = self.parameters.given(arguments, named)
        return BoundProgram(self, given) if given.parts else self

    @cached_property
    def layouts(self) -> dict[Field, str]:
        """On a GPU, what fields whose layout is free are changed to: decided once, by the sum over the loops."""
        return layouts_by_votes(self.loops)

    def _lay_out(self, others: Sequence[Operation] = ()) -> None:
        """Change them, once; ``others``: operations that use the same fields in turn with its own, and have a vote.

        Programs may differ about a field that they share: changed to and fro in every round, everything would be made
        ready again in every round. So one has its say about a field once, also where it is given it again and again.
        """
        if self._laid_out:
            return
        own = {one for o in self.loops for one in o.storages if isinstance(one, Field)}
        if others:
            self.layouts = {one: best for one, best in layouts_by_votes(others).items() if one in own}
        for one, layout in self.layouts.items():
            if one.layout_is_free and one not in self._had_its_say:
                one.relayout(layout, free=True)
        self._had_its_say |= own
        self._laid_out = True

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Replay once; inside another program, become a part of it."""
        self.run(1, *arguments, **named)

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
        return self._history(done, times)

    def repeat(self, *arguments: Any, until: Condition, at_most: int, **named: Any) -> int:
        """Replay until a condition such as ``residual < 1e-6`` holds, ``at_most`` so many times; how often it was.

        The condition is asked for after every replay, so there is at least one; one of not a number is never true.
        ``arguments``: what the function takes. Ctrl-C as for ``run``. Not inside another program.
        """
        if not isinstance(until, Condition):
            raise ProgramError(
                f"program {self.name}: until takes a condition, which is a Global itself compared with a number, as in"
                f" residual < 1e-6; got {shown(until)}"
            )
        most = whole_number(f"program {self.name}: at_most", at_most, 1, MOST_REPLAYS, error=ProgramError)
        refuse_in_program(f"repeating program {self.name} until {until}", "repeat the outer one, or run it n times")

        def way(one: Recording | Replay, most: int) -> Replayed:
            return one.repeat(most, until.in_memory())

        done = self._performed(most, way, until.globals, arguments, named, until=until)
        return len(self._history(done, most))

    def _performed(
        self, times: int, way: Way, watched: Sequence[Global], arguments: tuple[Any, ...], named: dict[str, Any], *,
        until: Condition | None = None,
    ) -> Replayed:  # fmt: skip
        """Run it with these arguments: by what is kept of an earlier run with them, where it still fits. ``until``:
        what decides when to end."""
        if not arguments and not named and not self.parameters.names:
            check_decides(self.name, until, self._left[0])
            return self._execute(times, way, watched)
        given = self.parameters.given(arguments, named) if named else Given(arguments, {})
        key = (current().key, self.fuse, self.branches, *given.key)
        ready = self._kept.get(key)
        if ready is not None and ready.usable() and Operation.watched is None:
            check_decides(self.name, until, ready.written)
            return ready.perform(times, way, watched)
        bound = self.bind(*arguments, **named)
        check_decides(self.name, until, bound._left[0])
        done = bound._execute(times, way, watched)
        if times:
            self._kept.pop(key, None)
            self._kept[key] = bound._ready_to_keep(tied(self._kept, key, given.parts))
            if len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return done

    def _ready_to_keep(self, ties: tuple[Any, ...]) -> ReadyProgram:
        """What runs of it, after it has run; it goes with the first of the ``ties``."""
        fused = self._fused_recording()
        return ReadyProgram(self.name, self.operations, fused.replay if fused else Replay(self._recording()), ties)

    def _history(self, done: Replayed, times: int) -> np.ndarray:
        """The history of replays; KeyboardInterrupt where Ctrl-C came."""
        if done.stopped:
            history = done.history
            where = f"after {len(history)} of {times} replays; fields are as the last one left them"
            raise interrupted(f"program {self.name}: stopped {where}", replays=len(history), history=history)
        return done.history

    def _execute(self, times: int, way: Way, watched: Sequence[Global]) -> Replayed:
        """Run the recorded operations; ``watched`` are globals that somebody looks at after replays."""
        for operation in self.loops:
            operation.settle()
        self._lay_out()
        used = self._backends()
        for target in watched if len(used) == 1 else ():
            target.move(next(iter(used)).place(target.storage))
        try:
            return self._replayed(times, way)
        except MemoryError as error:
            raise ProgramError(f"program {self.name}: not enough memory to run {times:,} times: {error}") from error
        finally:
            if times:
                left_behind(self.name, *self._left)

    def _inlined(self, times: int, record: Sequence[Global], into: Callable[[Any], None], given: Given) -> np.ndarray:
        if tuple(record):
            raise ProgramError(
                f"program {self.name} runs inside another one, where nothing can be kept; give record= to the outer one"
            )
        loops = self._recorded(given) if given.parts else self.operations
        if times * len(loops) > MOST_INLINED:
            raise ProgramError(
                f"program {self.name} inside another one would become {times * len(loops):,} operations, at most"
                f" {MOST_INLINED:,}; run the outer one more often"
            )
        for operation in loops * times:
            into(operation)
        return np.zeros((times, 0))

    @cached_property
    def _filled(self) -> tuple[Field | Global, ...]:
        """What fills set, each once."""
        return tuple(dict.fromkeys(w for o in self.loops if o.domain.all_memory for w in o.writes))

    @cached_property
    def _fills_last(self) -> tuple[Operation, ...]:
        """The operations, each once, in the order in which they are made ready: loops bring values to where they run,
        and what is filled is the memory there."""
        return tuple(sorted(dict.fromkeys(self.loops), key=lambda o: o.domain.all_memory))

    @cached_property
    def _left(self) -> tuple[tuple[Field | Global, ...], tuple[Field, ...]]:
        """What it writes, and the transient fields among them."""
        written = written_by(self.operations)
        return written, transients_among(written)

    def _replayed(self, times: int, way: Way) -> Replayed:
        if Operation.watched is not None and times:
            ready = self._made_ready()
            return way(Recording([partial(Operation.watched, o, ready[o]) for o in self.loops]), times)
        recording = self._fused_recording() if self._may_fuse() else None
        if recording is None:
            return self._run_loops(times, way)
        if recording.replay.may_start():
            if not times:  # it is ready: nothing of it is to be done
                return way(recording.replay.body, 0)
            return recording.noted(way(recording.replay, times))
        first = self._run_loops(min(times, 1), way)  # one replay loop by loop makes the constants true
        if first.stopped or first.met or times <= 1:
            return first
        rest = recording.noted(way(recording.replay, times - 1))
        return rest._replace(history=np.concatenate([first.history, rest.history]))

    def _run_loops(self, times: int, way: Way) -> Replayed:
        return self._noted(way(self._recording(), times))

    def _noted(self, done: Replayed) -> Replayed:
        """The same; its times are kept, loop by loop."""
        for operation, took in zip(self.loops, done.seconds.tolist(), strict=True):
            if math.isfinite(took):
                operation.total_seconds += took
                operation.calls += len(done.history)
        return done

    def _note(self, done: Replayed) -> None:
        """Somebody has replayed what was made ready for it: its times are kept."""
        made = self._fused[2] if self._fused is not None else []
        if made:
            made[0].noted(done)
        elif len(done.seconds) == len(self.loops):
            self._noted(done)

    def timed(self) -> list[tuple[Operation, float, int]]:
        """What was timed so far, with its seconds and how often it ran, in all: loops that ran by themselves, and the
        steps of the program as it is fused. Nothing where a device replays all of it as one graph."""
        alone = [(one, one.total_seconds, one.calls) for one in dict.fromkeys(self.loops) if one.calls]
        made = self._fused[2] if self._fused is not None else []
        return alone + (made[0].timed() if made else [])

    def _recording(self) -> Recording:
        """What the back end made of the operations; made again when a loop has been invalidated."""
        used = self._backends()
        one = used.pop() if len(used) == 1 else None
        with together():
            ready = self._made_ready()
            executables = [ready[o] for o in self.loops]
            signature = (self.branches, *map(id, executables))
            if self._ready is None or self._ready[0] != signature:
                made = one.recording(executables, branches=self.branches) if one else Recording(executables)
                self._ready = signature, made
        return self._ready[1]

    def _made_ready(self) -> dict[Operation, Callable[[], None]]:
        """Its operations as they are executed, one by one."""
        used = self._backends()
        if len(used) == 1:  # what is set need not be used by a loop, which would bring it there
            (one,) = used
            for target in self._filled:
                target.move(one.place(target.storage))
        return prepared(self._fills_last)

    def _backends(self) -> set[Backend]:
        return backends_of(self.loops)

    def _may_fuse(self) -> bool:
        """Could loops be fused here? One by itself on a CPU is best as it is."""
        used = self._backends()
        able = self.fuse and len(used) == 1 and next(iter(used)).fuses
        return able and (len(self.loops) > 1 or next(iter(used)).target.together)

    def _fused_recording(self) -> FusedRecording | None:
        """The fused program, ready to run, made again when a field has moved; None where loops run by themselves."""
        if not self._may_fuse() or (self._fused is not None and self._fused[1].stays_apart):
            return None  # what was weighed once is not weighed again when a field moves
        found, made = self._fusion()
        if found.stays_apart:
            return None
        if not made:
            made.append(FusedRecording(found, next(iter(self._backends())), branches=self.branches))
        return made[0]

    def _explained_fusion(self) -> str:
        if not self._may_fuse():
            return ""
        found, made = self._fusion()
        return found.explain(made[0].measured if made else ())

    def _fusion(self) -> tuple[FusedProgram, list[FusedRecording]]:
        """The program fused, and what the back end made of it, if that was asked for."""
        (backend,) = self._backends()
        storages = dict.fromkeys(s for o in self.loops for s in o.storages)
        for one in storages:
            one.move(backend.place(one.storage))
        for operation in self.loops:
            operation.refresh()
        states = [state for operation in self.loops for state in operation.states]
        versions = [one.version for operation in self.loops for one in operation.maps]
        signature = (self.branches, *(id(one.storage) for one in storages), *states, *versions)
        if self._fused is None or self._fused[0] != signature:
            self._fused = signature, fuse(self.loops), []
        return self._fused[1:]

    @property
    @outside_program()
    def fused_steps(self) -> tuple[Operation, ...]:
        """The fused loops of one replay; none where loops are not fused."""
        return tuple(o for o in self.steps if o.how.as_one)

    @property
    @outside_program()
    def steps(self) -> tuple[Operation, ...]:
        """The operations of one replay: as they are fused, or as they were recorded."""
        found = self._fused_recording()
        return found.program.body if found else self.loops

    @property
    @outside_program()
    def launches(self) -> int:
        """Kernels that one replay starts on a device; 0 where there is none."""
        found = self._fused_recording()
        steps = found.body if found else [o.prepare() for o in self.loops]
        return sum(len(getattr(step, "steps", ())) for step in steps)

    @property
    @outside_program()
    def graph(self) -> str:
        """How one replay is ordered on a device, in one line; empty where there is none."""
        return (self._fused_recording() or self._recording()).summary

    def explain(self, *arguments: Known, **named: Known) -> str:
        """Every loop's schedule, reason and figures; before that how they are fused and, on a GPU, replayed."""
        return Explanation(self.bind(*arguments, **named)._explained())

    @outside_program()
    def _explained(self) -> str:
        loops = [o.explain() for o in dict.fromkeys(self.loops) if not o.domain.all_memory]
        said, layouts = self._had_its_say, self.layouts.items()
        chosen = [(f.name, layout) for f, layout in layouts if f not in said or str(f.layout) == layout]
        moved = [f"layout of {name}: {layout}, the least time over all loops" for name, layout in chosen]
        graph = self.graph if self._fused_recording() or self._ready else ""  # loops by themselves are not compiled
        fused = "\n".join(filter(None, [self._explained_fusion(), graph]))
        return "\n\n".join(filter(None, [*moved, fused, *loops]))

    def __repr__(self) -> str:
        """Of one that takes arguments what they are called; of others the loops: looking at it may record it."""
        if self.parameters.any and "operations" not in vars(self):
            return f"Program({self.name} of {', '.join(self.parameters.names) or 'what it is given'})"
        try:
            return f"Program({self.name}: {', '.join(o.name for o in self.loops)})"
        except UserError:  # which running it will tell
            return f"Program({self.name})"


class BoundProgram(Program):
    """A program with its arguments."""

    def __init__(self, program: Program, given: Given):
        super().__init__(program.function, fuse=program.fuse, branches=program.branches)
        self.parameters = Parameters(_nothing)
        self.operations = program._recorded(given)
        self._had_its_say = program._had_its_say


def _nothing() -> None:
    """The function of no parameters."""


# ----- what a person gives ------------------------------------------------------------------------------------------
def checked_record(name: str, record: Any, times: int) -> tuple[Global, ...]:
    """The globals to keep after every replay: ProgramError for anything else, and where memory cannot hold them."""
    if isinstance(record, Global):
        raise ProgramError(f"program {name}: record takes a tuple of Globals, as in record=(total,), got a single one")
    if isinstance(record, Field) or not isinstance(record, Iterable):
        raise ProgramError(f"program {name}: record takes a tuple of Globals, got a single {type(record).__name__}")
    try:
        kept = tuple(record)
    except TypeError:  # an array without axes, and others that only look as if there was something in them
        raise ProgramError(f"program {name}: record takes a tuple of Globals, got {type(record).__name__}") from None
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


def check_decides(name: str, until: Condition | None, written: Iterable[Field | Global]) -> None:
    """ProgramError where no Global of a condition is among what a program writes: it would never change."""
    if until is not None and not any(one is known for one in written for known in until.globals):
        raise ProgramError(
            f"program {name}: it never sets {' or '.join(one.name for one in until.globals)}, so {until} would stay as"
            " it is; repeat until something that its loops set, or run it n times"
        )


@overload
def program(function: Callable[..., None]) -> Program: ...
@overload
def program(*, fuse: bool = True, branches: bool = True) -> Callable[[Callable[..., None]], Program]: ...


def program(function: Callable[..., None] | None = None, *, fuse: bool = True, branches: bool = True) -> Any:
    """Decorator: record the loops that a function calls, to be replayed by ``run`` or ``repeat``. Parameters of the
    function are fields and globals that are given to each run.

    ``@ml.program(fuse=False)`` keeps every loop by itself, ``branches=False`` one operation after the other.
    """
    made = partial(Program, fuse=fuse, branches=branches)
    return made if function is None else made(function)
