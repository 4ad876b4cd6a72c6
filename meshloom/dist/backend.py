"""A back end over ranks: every program is lowered to what of it runs here (``lower.py``), and the back end inside runs
that as it runs any program.

Fields that loops use are cut with their sets (``local.py``), and have arrays over ranks for their storage
(``array.py``). Whoever executes an element that writes to a target of this rank is this rank: nothing partial is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from weakref import WeakSet

import numpy as np

from meshloom.backend import ENVIRONMENT_THREADS, distribute
from meshloom.backend.base import Backend, Recording, Replayed, Waits
from meshloom.backend.bound_loop import BoundLoop
from meshloom.backend.lowering import Launches
from meshloom.dist.agreement import forget
from meshloom.dist.array import DistributedArray
from meshloom.dist.explained import loop_explained, program_explained
from meshloom.dist.grid_rows import RowsField, on_rows
from meshloom.dist.local import LocalSet, distribution
from meshloom.dist.lone_loop import LoneLaunches, LoneLoop
from meshloom.dist.lower import Here, LocalProgram, local_set, lowered
from meshloom.dist.placement import Placement
from meshloom.dist.shared import return_freed_memory
from meshloom.dist.slabs import cut_for, grid_of, refusal
from meshloom.dist.usage import maps_of, sets_of
from meshloom.dist.world import World, stand_in, world
from meshloom.errors import ScheduleError
from meshloom.mesh.core import Field, Global, on_host
from meshloom.mesh.globals import Comparison
from meshloom.mesh.numbering import OneRank, Rows
from meshloom.native import threads as native_threads
from meshloom.native.runtime import copy_bandwidth
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.in_turn import executed_in_turn
from meshloom.operation.operation import Operation
from meshloom.operation.replay import RunMode
from meshloom.operation.tape import Tape
from meshloom.target import Rates, Target


class Ranks(Backend):
    """``inside``: what runs loops on this rank."""

    fuses = False  # what is fused is what of a program runs here
    lowers = True  # and halos grow with what looks at them

    def __init__(self, inside: Backend, world: World):
        self.inside, self.world, self.name = inside, world, inside.name
        self._begun: list[Operation] = []  # for which sets are not cut yet

    @property
    def target(self) -> Target:
        return self.inside.target

    @property
    def rates(self) -> Rates:
        return self.inside.rates

    @property
    def key(self) -> tuple[object, ...]:
        return *self.inside.key, self.world.size

    def unavailable(self) -> str | None:
        return self.inside.unavailable()

    def bring(self, one: Field | Global) -> None:
        """A field goes over ranks when its first loop is made ready, which says with which others."""
        if isinstance(one, Global):
            self.inside.bring(one)

    def prepare(self, bound: BoundLoop) -> Launches:
        raise ScheduleError(f"loop {bound.spec.name}: over {self.world.size} ranks operations run, not what is bound")

    def begin_with(self, operation: Operation) -> None:
        """All operations of a program are begun before the first is made ready, so sets are cut for all of them at
        once."""
        begun, self._begun = self._begun, []  # none of a program that is refused
        if not operation.domain.all_memory:
            refuse(operation, self.world)
            operation.apply_layout()
            begun.append(operation)
        self._begun = begun

    def executable(self, operation: Operation) -> Launches:
        """A loop by itself; nothing of it is made ready before it is called, since a program lowers all of its own
        together."""
        here = self._here([operation])
        return LoneLaunches.of(LoneLoop(operation, self._here, self.world), here)

    def explain(self, operation: Operation) -> str:
        return loop_explained(operation, self.world)

    def copy_bandwidth(self) -> float:
        """Of this rank while all of its node copy, who share the memory there; measured once. All ranks must ask."""
        inside, threads = self.inside, int(native_threads.in_use[0])
        if (known := inside.copied_among_ranks) is None:
            self.world.on_node(None, "that it is about to copy memory")
            known = inside.copy_bandwidth() if inside.target.is_simt else copy_bandwidth(threads)
            inside.copied_among_ranks = known
        return known

    def rate(self, kind: str, dtype: str) -> float | None:
        return self.inside.rate(kind, dtype)

    def recording(
        self, operations: Sequence[Callable[[], None]], waits: Waits | None = None, of: Sequence[Operation] = ()
    ) -> Recording:
        if not of:
            return Recording(operations)
        on = on_rows(of, self.world)
        return RankRecording(operations, lowered(Dataflow(on), self._here(on)), self.world)

    def _here(self, operations: Sequence[Operation]) -> Here:
        """The sets of operations and their fields, over ranks."""
        loops = [one for one in operations if not one.domain.all_memory]
        begun, self._begun = self._begun, []
        for one in (one for one in loops if not one.domain.is_call):
            refuse(one, self.world)
            one.apply_layout()
            begun.append(one)
        together = [one for one in on_rows(begun, self.world) if not one.domain.is_call]
        for one in together:
            if (grid := grid_of(one)) is not None:
                cut_for(self.world, one, grid)
        over_sets = [one for one in together if grid_of(one) is None]
        cut = distribution(self.world, sets_of(over_sets), maps_of(over_sets)) if over_sets else None
        fields = (one for one in Dataflow(loops).storages if isinstance(one, Field))
        arrays = {one: _array(one, local_set(one.set, cut)) for one in fields}
        rest = (one for one in Dataflow(operations).storages if one not in arrays)  # which fills set
        arrays |= {one: one.storage for one in rest
                   if isinstance(one, Field) and isinstance(one.storage, DistributedArray)}  # fmt: skip
        return Here(cut, arrays, self.inside)


def _array(one: Field, on: LocalSet) -> DistributedArray:
    """The values of a field over ranks; ``on``: what is here of its set."""
    storage = one.storage
    if isinstance(storage, DistributedArray):
        if storage.on is on:
            return storage
        made = storage.moved_to(on, one)
    else:
        made = DistributedArray(one, on)
        if not isinstance(one, RowsField):
            made.set(on_host(storage))
    one.move(made)
    return made


class RankRecording(Recording):
    """A program as it runs here: a recorded program, too, which the back end inside fuses between exchanges."""

    def __init__(self, operations: Sequence[Callable[[], None]], local: LocalProgram, world: World):
        super().__init__(operations)
        self._local, self._world = local, world
        own = WeakSet(one.local for one in local.arrays.values())  # have the layouts that the whole has chosen
        self.lowered = Tape("on this rank", local.operations, own)

    @property
    def summary(self) -> str:  # type: ignore[override]
        """What is exchanged at every replay, and which loops have become one."""
        return "; ".join(filter(None, [self._local.summary, *(f"{one.name} as one" for one in self.lowered.steps
                                                               if one.policy.as_one)]))  # fmt: skip

    @property
    def explained(self) -> str:
        return program_explained(self.lowered, self._world)

    def run(self, times: int, record: Sequence[Global]) -> Replayed:
        return self._replayed(times, lambda one, most: one.run(most, record), record, str(times))

    def repeat(self, at_most: int, until: Comparison) -> Replayed:
        return self._replayed(at_most, lambda one, most: one.repeat(most, until), (), f"{until} {at_most}")

    def _replayed(self, times: int, mode: RunMode, watched: Sequence[Global], often: str) -> Replayed:
        if times:
            began = self._local.begin(often)
            done = self._performed(times, mode, watched)
            self._local.end(began, len(done.history))
        else:  # it is made ready: nothing looks at halos, nor leaves any
            self._local.compare()
            done = self._performed(times, mode, watched)
        return done._replace(seconds=np.full(len(self.operations), np.nan))

    def _performed(self, times: int, mode: RunMode, watched: Sequence[Global]) -> Replayed:
        """What it calls is messages and copies, which set no Python value."""
        tape = self.lowered
        if not tape.calls:
            return tape.perform(times, mode, watched)
        return executed_in_turn(lambda: tape, tape, times, mode, watched, followed=False)


def refuse(of: Operation, world: World) -> None:
    """ScheduleError for what does not run over ranks yet."""
    where = f"loop {of.name}: on {world.size} ranks"
    if problem := refusal(of):
        raise ScheduleError(f"{where} {problem}; run it on one")
    if not (of.domain.visits_elements or of.domain.along_lines):
        raise ScheduleError(f"{where} loops over sets and grids run, and nothing else yet; run it on one")


def over_ranks(inside: Backend) -> Backend:
    """A back end, run by all ranks together."""
    return _over_ranks(inside, world())


@cache
def _over_ranks(inside: Backend, world: World) -> Backend:
    return Ranks(inside, world)


def enter(here: World) -> None:
    """From now on this process is one of the ranks of that world, or by itself where it has one, with the threads and
    the back end of a process that begins; those of before stay who they are for loops and programs that there are,
    which must not be used any more."""
    stand_in(here)
    forget()
    start()


def start() -> None:
    """This process is one of several ranks, of which those of a node that may use the same cores share them out; or
    by itself again."""
    several = world().size > 1
    distribute(over_ranks if several else None, world().cores if several and ENVIRONMENT_THREADS is None else None)
    Rows.placement = Placement() if several else OneRank()
    if several:
        return_freed_memory()
