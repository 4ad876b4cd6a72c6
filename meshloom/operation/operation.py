"""The one operation: a domain, operands and a body. Loops over sets and boxes, loops along lines, fills, copies, and
loops that were put together from others are all of this class: what differs stands in its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, final

import numpy as np

from meshloom.backend import current
from meshloom.backend.base import Backend
from meshloom.backend.lowering import Launches
from meshloom.errors import KernelError, MeshError, ScheduleError
from meshloom.exclusion import Mutex, holding, mutex_of, mutexes_of
from meshloom.kernel.model import Param
from meshloom.markup import Explanation, table
from meshloom.mesh.box import Box, Offsets
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Field, Global, Map, Set
from meshloom.mesh.layout import Layout, parse_layout
from meshloom.mesh.random import Random
from meshloom.operation.body import Body, BodyGraph, Traced
from meshloom.operation.domain import EVERYWHERE, INSIDE, Domain, Extent, Part
from meshloom.operation.execution import Execution, Spent, cached
from meshloom.operation.inspection import Inspection, inspect
from meshloom.operation.operand import Operand
from meshloom.operation.policy import ExecutionPolicy, SharedCache, Wish
from meshloom.order import TYPICAL_BLOCK, sampled_blocks
from meshloom.recording import not_in_program, recorder, refuse_in_program
from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Work
from meshloom.schedule.choice.counts import Counts
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.fused.chunks import Chunking, chunking
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import LoopSpec
from meshloom.target import CPU
from meshloom.target.limit import Peaks, Roofline, limit_of

if TYPE_CHECKING:
    from meshloom.schedule.choice.candidate import Candidates

SHARED = ("spec", "work", "chosen", "plan", "flops", "chunking")  # what lies in the cache that operations share


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Operation(NoCopy):
    """What a program holds, a back end runs and fusion rewrites: ``body`` over ``domain`` on ``operands``. It never
    changes.

    How it runs is chosen when it first does: it is prepared by a back end then, and again when a field has moved or one
    of its ``kernels`` reads other values than before. All that is known of that is its ``execution``'s.
    """

    name: str
    domain: Domain
    operands: tuple[Operand, ...]
    body: Body
    backend: Backend
    execution: Execution
    #: Who executes operations where somebody looks at every one of them (``debugging.py``); None as a rule
    watched: ClassVar[Callable[[Operation, Callable[[], None]], None] | None] = None

    def __init__(self, name: str, domain: Domain, operands: tuple[Operand, ...], body: Body, policy: ExecutionPolicy,
                 backend: Backend | None = None):  # fmt: skip
        execution = Execution(name, policy)
        vars(self).update(name=name, domain=domain, operands=operands, body=body, execution=execution,
                          backend=current() if backend is None else backend)  # fmt: skip
        for one in operands:
            one.storage.watch(execution)
            if one.pattern.map is not None:
                one.pattern.map.watch(execution)

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("no class derives from Operation: what differs is a domain, a body, or how it runs")

    # ----- what it is -------------------------------------------------------------------------------------------
    @property
    def set(self) -> Set:
        """What its elements belong to."""
        found = self.domain.set
        if found is None:
            raise MeshError(f"{self.name} runs over no set")
        return found

    @property
    def box(self) -> Box | None:
        """Of a grid, where its points are visited as such."""
        return self.domain.box

    @property
    def elements(self) -> int:
        """How many elements it visits."""
        return self.domain.size

    @property
    def over(self) -> str:
        """What it runs over, in words."""
        return str(self.domain)

    @property
    def strict(self) -> bool:
        """Are its formulas as written, every operation rounded by itself?"""
        return self.body.strict

    @property
    def composed(self) -> tuple[Operation, ...]:
        """What it was put together from."""
        return self.body.composed

    @cached
    def graph(self) -> BodyGraph:
        """What it computes, in terms of its operands."""
        return self.body.graph(self)

    @property
    def content(self) -> tuple[object, ...]:
        """What it does, whatever it is called and however it runs: equal, and of one hash, for operations with the same
        domain, operands, graph and operators, or function that is called."""
        operands = tuple([one.content for one in self.operands])
        return self.domain, operands, self.graph.content, self.body.beyond_graph, self.strict

    @cached_property
    def _draws(self) -> bool:
        """Does its kernel draw random numbers? Whoever runs it then counts the call."""
        return any(type(one.storage) is Random and not one.mode.writes for one in self.operands)

    @cached_property
    def params(self) -> tuple[Param, ...]:
        """Its operands as a kernel sees them."""
        return tuple([one.param for one in self.operands])

    @cached_property
    def maps(self) -> tuple[Map, ...]:
        """The maps used, each once, in order of appearance."""
        return self.policy.maps(self)

    @cached_property
    def maps_and_offsets(self) -> tuple[Map | Offsets, ...]:
        """The maps and offsets by which fields are reached, one for each operand that has one."""
        return tuple(found for one in self.operands if (found := one.pattern.through) is not None)

    @property
    def parts(self) -> tuple[Any, ...]:
        """What it is made of, apart from sets."""
        return (*self.storages, *self.kernels, *self.maps_and_offsets)

    @cached_property
    def temporary_fields(self) -> tuple[Field, ...]:
        return tuple(s for s in self.storages if isinstance(s, Field) and s.temporary)

    @cached_property
    def storages(self) -> tuple[Field | Global, ...]:
        """Fields and globals, one for each operand."""
        return tuple([one.storage for one in self.operands])

    @cached_property
    def kernels(self) -> tuple[Traced, ...]:
        """Those whose captured values it depends on."""
        return self.body.kernels

    @cached_property
    def _shared(self) -> tuple[Mutex, ...]:
        """Those of objects whose work space it uses."""
        return mutexes_of(self.storages)

    # ----- what it does with its operands -----------------------------------------------------------------------
    @cached_property
    def reads(self) -> tuple[Field | Global, ...]:
        """What it needs to know: increments included, and fields of which its domain covers a part only, so that the
        rest stays: of a grid, of lines without ghosts, of what a map leads to."""

        def keeps_rest(one: Operand) -> bool:
            field = one.storage
            if not isinstance(field, Field):
                return False
            return one.pattern.map is not None or not self.domain.covers(field, EVERYWHERE)

        return tuple([o.storage for o in self.operands if o.mode.reads or o.mode.combine or keeps_rest(o)])

    @cached_property
    def writes(self) -> tuple[Field | Global, ...]:
        """What it changes."""
        return tuple([o.storage for o in self.operands if o.mode.writes])

    @cached_property
    def written(self) -> tuple[Field | Global, ...]:
        """What it changes, each once."""
        return tuple(dict.fromkeys(self.writes))

    def needs(self, one: Field | Global) -> bool:
        """Does it look at values that are there before, increments included?"""
        mine = [(k, o.mode) for k, o in enumerate(self.operands) if o.storage is one]
        if any(m.combine or (m.reads and m.writes) for _, m in mine):
            return True
        return any(m.reads and k in self.body.loaded(self) for k, m in mine)

    def defines(self, one: Field | Global, where: Extent | Part = INSIDE) -> bool:
        """Does it write all values of a field, of a grid but for ghosts, without looking at them? ``where``: or those
        everywhere in memory, or of a part of a grid."""
        at_own = any(o.storage is one and o.mode.writes and o.pattern.map is None for o in self.operands)
        return at_own and self.domain.covers(one, where) and not self.needs(one)

    def as_written(self) -> Operation:
        """The same with formulas as written, run in the same way; itself where they are."""
        body = self.body.as_written()
        if body is self.body:
            return self
        return Operation(self.name, self.domain, self.operands, body, self.policy, self.backend)

    # ----- how it runs ------------------------------------------------------------------------------------------
    @property
    def policy(self) -> ExecutionPolicy:
        """Who answers for how it runs."""
        return self.execution.policy

    @property
    def wish(self) -> Schedule:
        """The schedule that was asked for."""
        return self.policy.wish

    @cached
    def spec(self) -> LoopSpec:
        """It without its data: traced, optimised, with layouts."""
        return self.policy.spec(self)

    @cached
    def shared_cache(self) -> SharedCache:
        """What it shares with loops over the same set that differ in their fields and globals alone."""
        return self.policy.shared_cache(self)

    @cached
    def counts(self) -> Counts:
        """What it costs."""
        return self.policy.counts(self, self.schedule.block or 1)

    @cached
    def uncut(self) -> Counts:
        """Counts that no schedule has a say in."""
        return self.policy.counts(self, TYPICAL_BLOCK)

    @cached
    def work(self) -> Work:
        """What there is to do, whatever the schedule."""
        return self.uncut.work(self.backend.target)

    @cached
    def chosen(self) -> tuple[Schedule, str]:
        """The schedule in force, and why."""
        return self.policy.chosen(self)

    @property
    def schedule(self) -> Schedule:
        """The schedule in force, every choice made."""
        return self.chosen[0]

    @property
    def applies(self) -> bool:
        """Can it run as was asked for? If not, ``reason`` says why."""
        return self.policy.declines(self) is None

    @property
    def reason(self) -> str:
        """Why the schedule is what it is, or why it does not apply."""
        return self.policy.declines(self) or self.chosen[1]

    @cached
    def compulsory(self) -> int:
        """Bytes that it has to move, each datum once."""
        return self.policy.compulsory(self)

    @cached
    def flops(self) -> float:
        """Floating-point operations of one execution, for the cost model."""
        return self.policy.flops(self)

    @cached
    def chunking(self) -> Chunking:
        """Chunks on a CPU of the targets of its racy map, judged by a sample of its elements."""
        through = [self.maps[m] for m in self.spec.racy_maps[:1]]
        blocks = sampled_blocks(self.set.owned, TYPICAL_BLOCK)
        parts = [one.positions[first:last] for one in through for first, last in blocks]
        rows = np.concatenate(parts) if parts else np.empty((0, 1), np.int64)
        return chunking(rows, sum(one.target.owned for one in through), CPU.cpu.chunks)

    @property
    def limit(self) -> Roofline:
        """Seconds that its bytes and operations take at least where it runs; measures that, where nobody has."""
        return self.limit_by(self.backend.peaks())

    def limit_by(self, peaks: Peaks) -> Roofline:
        """The same by what a machine does at most."""
        return limit_of(self.compulsory, self.policy.instructions(self), peaks)

    @property
    def estimate(self) -> float:
        """Seconds by the cost model, with the threads in use: to weigh operations by each other, not to predict."""
        return self.policy.estimate(self)

    @property
    def candidates(self) -> Candidates:
        """What its schedule was chosen from, ranked, with estimated times and reasons; prints as a table."""
        return self.policy.candidates(self)

    @cached
    def plan(self) -> Plan:
        """The plan arrays, from the cache or built and verified."""
        return self.policy.plan(self)

    def plan_of(self, schedule: Schedule) -> Plan:
        """The plan that some schedule needs."""
        return self.policy.plan(self, schedule)

    def can_run(self, wish: Wish) -> bool:
        """Could it be executed so?"""
        return self.policy.can_run(self, wish)

    def by(self, wish: Wish) -> Operation:
        """The same by another schedule, on the back end in use now: an operation of its own."""
        return Operation(self.name, self.domain, self.operands, self.body, self.policy.asked(self.name, wish))

    def on(self, backend: Backend) -> Operation:
        """The same on another back end: an operation of its own."""
        return Operation(self.name, self.domain, self.operands, self.body, self.policy, backend)

    @not_in_program("another schedule for loop {}", "give it before")
    def reschedule(self, wish: Wish) -> None:
        """Run otherwise from now on; programs that have recorded it and have not run yet follow."""
        self.execution.go_on_by(self.policy.asked(self.name, wish))

    def layout_of(self, one: Field) -> Layout:
        """The layout that a field has when it runs."""
        wished = parse_layout(self.wish.layout) if self.execution.layout_pending and self.wish.layout else None
        return wished if wished is not None and one.dim > 1 else one.layout

    def apply_layout(self) -> None:
        """Give the fields the layout that was wished for, once, before it first runs."""
        if self.execution.layout_pending:
            self.execution.layout_pending = False
            for one in self.storages:
                if isinstance(one, Field) and one.dim > 1 and self.wish.layout:
                    one.relayout(self.wish.layout)

    def explain(self) -> str:
        """How it runs, why, and the figures."""
        return Explanation(self.backend.explain(self))

    def cache_of(self, name: str) -> dict[str, Any]:
        """Where a property is cached."""
        return self.shared_cache.values if name in SHARED else self.execution.cache

    def refresh(self) -> None:
        """Forget what is cached if a kernel reads other values now."""
        self.execution.refresh(self.kernels)

    # ----- running it -------------------------------------------------------------------------------------------
    def prepare(self) -> Launches:
        """Schedule and compile now; running does it by itself. On a GPU fields may get another layout before."""
        self.policy.choose_layouts(self)
        return self.ready()

    def ready(self) -> Launches:
        """The same as one of several operations, with the layouts that all of them have chosen."""
        self.refresh()
        return self.execution.launches or self.execution.with_the_same_values(self._made_launches)

    def _made_launches(self) -> Launches:
        self.execution.launches = found = self.policy.launches(self)
        return found

    def begin_to_prepare(self) -> None:
        """Have a compiler begin with it, where it can work by itself; ``prepare`` then waits for it."""
        self.refresh()
        if self.execution.launches is None and self.domain.compiled:
            self.execution.with_the_same_values(lambda: self.backend.begin_with(self))

    def check_temporaries(self) -> None:
        """ProgramError where it reads a temporary field that a program has left without values."""
        for one in self.temporary_fields:
            if self.needs(one):
                one.check_readable(f"loop {self.name}: ")

    def __call__(self) -> None:
        """Run once; inside a program, record."""
        record = recorder.get()
        if record is not None:
            record(self)
            return
        if self._draws:
            raise KernelError(f"loop {self.name} draws random numbers, and by itself would not count that it did: call"
                              " its kernel, or the program")  # fmt: skip
        mutex = self.execution._mutex or mutex_of(self.execution)
        if self._shared:
            holding((mutex, *self._shared), self._run)
            return
        with mutex:
            self._run()

    def _run_counted(self) -> None:
        """The same for whoever counts it, or repeats a call, where it draws random numbers; never recorded."""
        holding((mutex_of(self.execution), *self._shared), self._run)

    def _run(self) -> None:
        if self.temporary_fields:
            self.check_temporaries()
        execution = self.execution
        execution.refresh(self.kernels)
        execute = execution.launches or self.prepare()
        before = time.perf_counter()
        try:
            if Operation.watched is None:
                execute()
            else:
                Operation.watched(self, execute)
        finally:  # it may have got half-way
            for one in self.written:
                one.changed()
        execution.seconds += time.perf_counter() - before  # as ``add``, without a call
        execution.calls += 1
        for one in self.temporary_fields:
            if one.undefined_after and self.defines(one):
                one.undefined_after = ""

    def inspect(self, element: int | tuple[int, ...]) -> Inspection:
        """What it would read, compute and write at one element, which is a number, or the index of a point of a grid:
        by the NumPy reference with formulas as written; nothing is changed or compiled."""
        refuse_in_program(f"looking at loop {self.name}", "do it before or behind")
        self.check_temporaries()
        return inspect(self, element)

    @property
    def source(self) -> str:
        """The text compiled for it: C++, CUDA C++ or HIP, for the layouts that its fields have or it was asked for."""
        if not self.domain.compiled:
            raise ScheduleError(f"{self.name} has no text of its own: {self.policy.words(self)}")
        self.refresh()
        return self.execution.with_the_same_values(lambda: self.backend.source(self.policy.described(self)))

    def run_plainly(self) -> None:
        """The kernel called element by element on plain arrays, its results merged one after the other."""
        refuse_in_program(f"running kernel {self.name} element by element", "call the kernel itself")
        self.check_temporaries()
        undefined = {one: one.undefined_after for one in self.temporary_fields if not self.defines(one)}
        self.body.run_plainly(self)
        for one, program in undefined.items():
            one.undefined_after = program

    @property
    def spent(self) -> Spent:
        """What it has spent so far by itself, as the host saw it."""
        return Spent(self.execution.seconds, self.execution.calls)

    @property
    def calls(self) -> int:
        """How often it ran by itself."""
        return self.execution.calls

    @property
    def seconds(self) -> float | None:
        """Average seconds of one execution so far (on a device: seconds of the last one); None before the first. On
        ranks of what runs on this one, since it was last made ready, without messages."""
        launches = self.execution.launches
        if not self.calls or (launches is None and self.backend.lowers):
            return None
        return (None if launches is None else launches.seconds) or self.execution.seconds / self.calls

    def __repr__(self) -> str:
        """Its name, domain and operands; looking at it traces nothing."""
        return f"Operation({self.name} over {self.over}: {', '.join(map(str, self.operands))})"

    def _repr_html_(self) -> str:
        """The same as a table; how it runs is told once it has run."""
        rows: list[tuple[object, object]] = [(one.name or one.storage.name, one) for one in self.operands]
        took = f", {1e3 * self.seconds:.3g} ms each" if self.seconds else ""
        rows.append(("calls", f"{self.calls:,} on {self.backend.name}{took}; .explain() says how it runs and why"))
        return table(f"Loop {self.name} over {self.over}, {self.elements:,} elements", rows)


@contextmanager
def asking(operations: Sequence[Operation]) -> Iterator[list[Field | Global]]:
    """A question that only an operation that is ready can answer: what is brought to a device, or turned to another
    layout for it, is where and as it was afterwards. Gives what that was, behind the block."""
    before = {one: one.placement() for operation in operations for one in operation.storages}
    layout_pending = [one.execution for one in operations if one.execution.layout_pending]
    moved: list[Field | Global] = []
    try:
        yield moved
    finally:
        moved += [one for one, placement in before.items() if one.put_back(placement)]
        for execution in layout_pending:
            execution.layout_pending = True
