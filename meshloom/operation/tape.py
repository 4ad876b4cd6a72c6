"""A tape: operations that a program's function called, with all that was made of them to run them.

A program has one for each set of Python values that its function read (``operation/program.py``): it records again when
these change, and goes back to an earlier tape where the operations are the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import groupby
from typing import Any, cast
from weakref import WeakSet

import numpy as np

from meshloom.backend.base import Backend, Recording, Replayed
from meshloom.backend.lowering import Launch
from meshloom.errors import ProgramError
from meshloom.exclusion import PREPARING, Mutex, holding, mutexes_of
from meshloom.mesh.core import Field, Global
from meshloom.native.together import together
from meshloom.operation.arguments import check_memory
from meshloom.operation.call import CalledFunction, called
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.execution import Spent
from meshloom.operation.field_layouts import chosen_for, layouts_by_votes, open_to, relayout
from meshloom.operation.fused_recording import FusedRecording
from meshloom.operation.fusion.program import FusedProgram, fuse
from meshloom.operation.measures import Measures, check_nodes_stay
from meshloom.operation.operation import Operation, asking
from meshloom.operation.passes import PASSES, RECORDED_PASSES, passed
from meshloom.operation.recorded import Outline, Recorded
from meshloom.operation.replay import (
    NOT_YET,
    CachedProgram,
    Replay,
    RunMode,
    backends_of,
    is_call,
    lowers,
    mark_written,
    only_counts,
    prepared,
    temporaries_among,
    too_little_memory,
)
from meshloom.recording import outside_program
from meshloom.records import dataclass


class Tape:
    """What was recorded, ready to be replayed. ``fuse`` and ``branches``: see ``Program``. ``voted``: the fields
    for whose layout the program has voted, whatever it recorded. Where functions are called among the
    operations, those between two calls are an operation (``pieces``), whose body is a tape of their own
    (``segments``); ``in_turn.py`` runs these and the calls."""

    def __init__(self, name: str, recorded: Sequence[Operation], voted: WeakSet[Field]):
        self.name, self.recorded = name, recorded
        self.operations = passed(Dataflow(recorded), RECORDED_PASSES).operations
        self.fuse = self.branches = True
        self.carries: Mapping[Field, bool] = {}  # as a segment: temporary fields across calls, and are they read later?
        self.rotates = True  # may a replay do what the next one begins with? a segment runs one at a time
        self.followed = True  # as a segment: may a function of the user's have set a value that kernels read?
        self.spent = Spent()  # as a segment, in all
        self._cached: tuple[tuple[Any, ...], CachedProgram] | None = None  # what runs of it, decided so
        self._ready: tuple[bool, Recording] | None = None  # with ``branches``, or without
        self._fused: tuple[tuple[object, ...], FusedProgram, list[FusedRecording]] | None = None
        self.layouts_chosen = False  # do fields have the layouts that it likes?
        self._voted = voted

    @cached_property
    def loops(self) -> tuple[Operation, ...]:
        """The recorded operations, but for fills that nobody sees; each can be called by itself, unless it draws random
        numbers."""
        graph = passed(Dataflow(self.operations), PASSES)
        for called_there, between in groupby(self.operations, is_call):
            if not called_there:
                check_nodes_stay(self.name, tuple(between))
        return graph.operations

    @cached_property
    def _graph(self) -> Dataflow:
        """The graph of these."""
        return Dataflow(self.loops, self.carries)

    @cached_property
    def pieces(self) -> tuple[Operation, ...]:
        """Calls, and all that is between two of them as one operation, in the order in which they run."""
        across, end = self._graph.temporaries_across_calls(), 0
        found: list[Operation] = []
        for called_there, between in groupby(self.loops, is_call):
            listed = tuple(between)
            end += len(listed)
            carried = {one: self._graph.is_live(one, end) for one in across.intersection(Dataflow(listed).storages)}
            found += listed if called_there else [self._segment(listed, carried)]
        return tuple(found)

    def _segment(self, loops: tuple[Operation, ...], carried: dict[Field, bool]) -> Operation:
        """Some of its operations, none of them a call, as one; ``carried``: temporary fields that live across calls."""
        made = Tape(self.name, loops, self._voted)
        made.loops, made.rotates, made.carries = made.operations, False, carried
        return called(SegmentBody(made, made._graph.read, made._graph.written), self.name)

    @cached_property
    def calls(self) -> tuple[Operation, ...]:
        """Those of Python's functions."""
        return tuple(filter(is_call, self.loops))

    @property
    def segments(self) -> tuple[Tape, ...]:
        """What runs without a call in between, as it is to run now: itself, where there is none."""
        if not self.calls:
            return (self,)
        return tuple([segment for one in self._pieces_now if (segment := segment_of(one)) is not None])

    @property
    def _pieces_now(self) -> tuple[Operation, ...]:
        """The pieces, to run as all of it is to run now."""
        for one in filter(None, map(segment_of, self.pieces)):
            one.fuse, one.branches = self.fuse, self.branches
            one.layouts = {f: best for f, best in self.layouts.items() if f in one._graph.storages}
        return self.pieces

    @property
    def dataflow(self) -> Dataflow:
        """The graph of all that was recorded. Fields that share memory would be told apart, so they are refused."""
        self._check_memory()
        return Dataflow(self.operations)

    @cached_property
    def outline(self) -> Outline:
        """What tells it from others."""
        return Outline(cast(Recorded, self.recorded))

    @cached_property
    def layouts(self) -> dict[Field, str]:
        """On a GPU, what fields whose layout is free are changed to: decided once, by the sum over the loops."""
        return layouts_by_votes(self.loops)

    def choose_layouts(self) -> None:
        """Change them, once: programs may differ about a field that they share, and changed to and fro in every round,
        everything would be made ready again. So one votes for a field once, also where it is given it again."""
        if not self.layouts_chosen:
            self.__dict__.pop("layouts", None)  # whoever asked before saw layouts that others may have changed since
            relayout(open_to(self.layouts, self._voted))
            self._voted |= chosen_for(self.loops, self._graph.storages)
            self.layouts_chosen = True

    def execute(self, times: int, mode: RunMode, watched: Sequence[Global], *, can_start: bool | None = None
                ) -> Replayed:  # fmt: skip
        """Run the recorded operations; ``watched`` are globals that somebody looks at after replays. ``can_start``:
        does memory hold the constants that loops were fused for? where that was asked."""
        for operation in self.loops:
            operation.apply_layout()
        self.measures.follow()
        self.choose_layouts()
        if watched:
            self.bring(watched)
        done = None
        try:
            given = times, mode, can_start
            done = holding(self.shared, self.replayed, *given) if self.shared else self.replayed(*given)
        except MemoryError as error:
            raise too_little_memory(self.name, times, error) from error
        finally:
            if times:
                versions = mark_written(self.name, *self.left)
                for one in self.made if done is not None and len(done.history) else ():
                    one.replay.left(versions)
        return done

    def bring(self, watched: Iterable[Global]) -> None:
        """Globals that somebody looks at to where it runs."""
        used = self.backends()
        for target in watched if len(used) == 1 else ():
            next(iter(used)).bring(target)

    # ----- in turn with calls -------------------------------------------------------------------------------------
    def begin(self, *, followed: bool) -> None:
        """Before the first of several replays: fields get the layouts that all segments have voted for, which share
        them. What segments have ready is looked at: kernels, schedules and how it is to run. ``followed``: functions of
        the user's may set values that kernels read."""
        for operation in self.loops:
            operation.apply_layout()
        self.choose_layouts()
        for one in self.segments:
            one.layouts_chosen, one.followed = True, followed
            if one._cached is not None and (one._cached[0] != one._run_by or not one._cached[1].up_to_date()):
                one._cached = None

    @property
    def _run_by(self) -> tuple[Any, ...]:
        """What has been decided about how it runs."""
        return (self.fuse, self.branches, *[loop.policy for loop in self.loops])

    def __call__(self) -> None:
        """A replay by itself, as a segment."""
        before = time.perf_counter()
        self._performed(1, lambda one, most: one.run(most, ()), ())
        for one in self.carries:
            one.undefined_after = ""
        self.spent = self.spent.plus(Spent(time.perf_counter() - before, 1))

    # ----- by itself ----------------------------------------------------------------------------------------------
    def perform(self, times: int, mode: RunMode, watched: Sequence[Global]) -> Replayed:
        """Replays, decided so as it is decided now; ``watched``: see ``execute``."""
        if self._cached is not None and self._cached[0] != self._run_by:
            self._cached = None
        return self._performed(times, mode, watched)

    def _performed(self, times: int, mode: RunMode, watched: Sequence[Global]) -> Replayed:
        """What was made ready for the first replay serves as long as it fits, so that little is asked of Python."""
        if not times or Operation.watched is not None:
            self._cached = None
            return self.execute(times, mode, watched)
        cached = None if self._cached is None else self._cached[1]
        if cached is None or not cached.up_to_date(followed=self.followed):
            done = self.execute(times, mode, watched)
            self._cached = self._run_by, self.cached_program(())
        elif cached.can_start():
            done = cached.perform(times, mode, watched)
            self.note(cached.replay, done)
        else:
            done = self.execute(times, mode, watched, can_start=False)
        return done

    def cached_program(self, ties: tuple[Any, ...]) -> CachedProgram:
        """What runs of it, after it has run; it goes with the first of the ``ties``."""
        fused = self.fused_recording()
        return CachedProgram(self.name, self.operations, fused.replay if fused else Replay(self.recording()), ties)

    @cached_property
    def measures(self) -> Measures:
        """Those of meshes that it uses."""
        return Measures(self.operations)

    @cached_property
    def shared(self) -> tuple[Mutex, ...]:
        """Those of objects whose work space it uses."""
        return mutexes_of(self._graph.storages)

    @cached_property
    def filled(self) -> tuple[Field | Global, ...]:
        """What fills set, each once."""
        return Dataflow([one for one in self.loops if one.domain.all_memory]).written

    @cached_property
    def fills_last(self) -> tuple[Operation, ...]:
        """The operations, each once, in the order in which they are made ready: loops bring values to where they run,
        and what is filled is the memory there."""
        return tuple(sorted(dict.fromkeys(self.loops), key=lambda o: o.domain.all_memory))

    @cached_property
    def left(self) -> tuple[tuple[Field | Global, ...], tuple[Field, ...]]:
        """What it writes, and the temporary fields among them."""
        written = Dataflow(self.operations).written
        return written, temporaries_among(written)

    def replayed(self, times: int, mode: RunMode, can_start: bool | None = None) -> Replayed:
        if Operation.watched is not None and times:
            ready = self.made_ready()
            return mode(Recording([partial(Operation.watched, o, ready[o]) for o in self.loops]), times)
        recording = self.fused_recording() if self.may_fuse() else None
        if recording is None:
            return self.noted(mode(self.recording(), times))
        if recording.replay.preconditions_hold() if can_start is None else can_start:
            if not times:  # it is ready: nothing of it is to be done
                return mode(recording.replay.body, 0)
            return recording.noted(mode(recording.replay, times))
        first = self.noted(mode(self.recording(), min(times, 1)))  # one replay loop by loop makes the constants true
        if first.stopped or first.met or times <= 1:
            return first
        rest = recording.noted(mode(recording.replay, times - 1))
        return rest._replace(history=np.concatenate([first.history, rest.history]))

    def noted(self, done: Replayed) -> Replayed:
        """The same; its times are kept, loop by loop."""
        for operation, took in zip(self.loops, done.seconds.tolist(), strict=True):
            if math.isfinite(took):
                operation.execution.add(took, len(done.history))
        return done

    def note(self, replay: Replay | None, done: Replayed) -> None:
        """Somebody has replayed what was made ready of it: its times are kept, of the fused program or loop by loop."""
        if any(one.replay is replay for one in self.made):
            self.made[0].noted(done)
        elif len(done.seconds) == len(self.loops):
            self.noted(done)

    @property
    def lowered(self) -> Tape | None:
        """What a back end has made of all of it and replays in its place: over ranks, what runs here."""
        return None if self._ready is None else cast("Tape | None", self._ready[1].lowered)

    @property
    def made(self) -> Sequence[FusedRecording]:
        """The fused program as a back end made it ready, if it has been: one at most."""
        return self._fused[2] if self._fused is not None else ()

    def recording(self) -> Recording:
        """What the back end made of the operations; made again when a loop has been invalidated."""
        used = self.backends()
        one = used.pop() if len(used) == 1 else None
        with together():
            ready = self.made_ready()
            executables = tuple([ready[o] for o in self.loops])
            known = self._ready  # executables are equal to themselves alone
            if known is None or known[0] != self.branches or known[1].operations != executables:
                self._check_memory()
                given = executables, self._graph.waits if self.branches else None, self.loops if self.fuse else ()
                made = one.recording(*given) if one else Recording(executables)
                self._ready = self.branches, made
                return made
        return known[1]

    def _check_memory(self) -> None:
        graph = Dataflow(self.operations)
        check_memory(f"program {self.name}", graph.storages, graph.written, ProgramError)

    def made_ready(self) -> dict[Operation, Callable[[], None]]:
        """Its operations as they are executed, one by one."""
        used = self.backends()
        if len(used) == 1:  # what is set need not be used by a loop, which would bring it there
            (one,) = used
            for target in self.filled:
                one.bring(target)
        return prepared(self.fills_last)

    def backends(self) -> set[Backend]:
        return backends_of(self.loops)

    def may_fuse(self) -> bool:
        """Could loops be fused here? One by itself on a CPU is best as it is."""
        used = self.backends()
        able = self.fuse and not self.calls and len(used) == 1 and next(iter(used)).fuses
        return able and (len(self.loops) > 1 or next(iter(used)).target.is_simt)

    def fused_program(self) -> FusedProgram | None:
        """The program with its loops fused; None where they run by themselves."""
        if not self.may_fuse() or (self._fused is not None and self._fused[1].unfused):
            return None  # what was weighed once is not weighed again when a field moves
        found, _ = self.fusion()
        return None if found.unfused else found

    def fused_recording(self) -> FusedRecording | None:
        """The same, ready to run, made again when a field has moved."""
        found = self.fused_program()
        if found is None or self._fused is None:
            return None
        if not self._fused[2]:
            self._fused[2].append(FusedRecording(found, next(iter(self.backends())), branches=self.branches))
        return self._fused[2][0]

    def begin_to_prepare(self) -> None:
        """Have compilers begin with all that a replay needs, where they can work by themselves: what is made ready
        later waits for them."""
        found = self.fused_program()
        for one in self.fills_last if found is None else (*found.prologue, *found.operations):
            one.begin_to_prepare()

    def begin_early(self) -> bool:
        """The same for one that others go before, unless a field would get another layout for it, since these are to
        find fields as they are. Has it?"""
        moves = open_to(layouts_by_votes(self.loops), self._voted)  # not those it keeps: it votes when it runs
        if moves or any(one.execution.layout_pending for one in self.loops):
            return False
        holding(self.shared, self.begin_to_prepare)
        return True

    def fusion(self) -> tuple[FusedProgram, list[FusedRecording]]:
        """The program fused, and what the back end made of it, if that was asked for."""
        (backend,) = self.backends()
        storages = self._graph.storages
        for one in storages:
            backend.bring(one)
        for operation in self.loops:
            operation.execution.refresh(operation.kernels)
        states = [state for operation in self.loops for state in operation.execution.states]
        versions = [one.version for operation in self.loops for one in operation.maps]
        signature = (self.branches, *[one.storage_version for one in storages], *states, *versions)
        if self._fused is None or self._fused[0] != signature:
            self._check_memory()
            with PREPARING:
                self._fused = signature, fuse(self._graph, rotates=self.rotates), []
        return self._fused[1:]

    # ----- questions ----------------------------------------------------------------------------------------------
    @contextmanager
    def _asked(self) -> Iterator[None]:
        """For questions: fields are afterwards where and as they were, and nothing is kept that was made for others."""
        moved: list[Field | Global] = []
        try:
            with outside_program(), asking(self.loops) as moved:
                yield
        finally:
            if moved:
                self._ready = self._fused = None

    def explained(self) -> str:
        """Every loop's schedule, reason and figures; before that how they are fused and, on a GPU, replayed."""
        if self.calls:
            parts = [one.explain() for one in self._pieces_now]
            return "\n\n".join(f"part {k} of {len(parts)}: {text}" for k, text in enumerate(parts, 1))
        if self._ready and self._ready[1].explained:
            return self._ready[1].explained
        with self._asked():
            for operation in self.loops:
                operation.apply_layout()
            if not self.layouts_chosen:  # to tell of the layouts that fields will have when it runs
                relayout(open_to(self.layouts, self._voted))
            loops = [o.explain() for o in dict.fromkeys(self.loops) if not o.domain.all_memory and not only_counts(o)]
            moved = [f"layout of {f.name}: {best}, the least time over all loops"
                     for f, best in self.layouts.items() if f not in self._voted or str(f.layout) == best]  # fmt: skip
            return "\n\n".join(filter(None, [*moved, self._explained_fusion(), *loops]))

    def _explained_fusion(self) -> str:
        """What is fused, and how a device is given it: known when it is compiled, which is left to the first run."""
        unknown = f"exchanges, and what this rank runs: {NOT_YET}" if lowers(self.loops) else ""
        order = self._ready[1].summary if self._ready else unknown
        if not self.may_fuse():
            return order
        (backend,), (found, made) = self.backends(), self.fusion()
        if backend.target.is_simt:
            order = made[0].summary if made else f"graph: {NOT_YET}"
        return "\n".join(filter(None, [found.explain(made[0].measured if made else ()), order]))

    @property
    def steps(self) -> tuple[Operation, ...]:
        """The operations of one replay: as they are fused, or as they were recorded."""
        if self.calls:
            return tuple(step for one in self._pieces_now for step in cast(CalledFunction, one.body).steps(one))
        with self._asked():
            found = self.fused_program()
            return found.operations if found else self.loops

    @property
    def launches(self) -> int:
        """Kernels that one replay starts on a device; 0 where there is none, and none of those of calls."""
        if self.calls:
            return sum(one.launches for one in self.segments)
        if lowers(self.loops):
            if self.lowered is None:
                raise ProgramError(f"program {self.name}: launches: {NOT_YET}")
            return self.lowered.launches
        with self._asked():
            found = self.fused_recording()
            steps = found.body if found else [o.ready() for o in self.loops]
            return sum(len(getattr(step, "steps", ())) for step in steps)

    @property
    def graph(self) -> str:
        """How one replay is ordered on a device, in one line; empty where there is none."""
        if self.calls:
            return "; a call; ".join(filter(None, [one.graph for one in self.segments]))
        if lowers(self.loops):
            return self._ready[1].summary if self._ready else NOT_YET
        with self._asked():
            return (self.fused_recording() or self.recording()).summary


@dataclass(frozen=True)
class SegmentBody(CalledFunction):
    """All that a program does between two calls, for a body: a program, too, which is replayed once."""

    function: Tape
    tells_failures = False

    @property
    def segment(self) -> Tape:
        return self.function

    @property
    def composed(self) -> tuple[Operation, ...]:  # type: ignore[override]
        return self.function.loops

    @property
    def inside(self) -> tuple[()]:
        return ()

    @property
    def launch(self) -> Launch:
        """What replays it; what it makes ready belongs to the program around it."""
        return Launch.here(self.function.__call__)

    def explain(self, name: str) -> str:
        return self.function.explained()

    def steps(self, of: Operation) -> tuple[Operation, ...]:
        return self.function.steps


def segment_of(piece: Operation) -> Tape | None:
    """What is between two calls, as it is replayed; None of a call."""
    return cast(CalledFunction, piece.body).segment
