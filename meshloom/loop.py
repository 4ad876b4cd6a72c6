"""Kernel and Loop. A kernel is what happens at one element; a loop is a kernel with arguments and a schedule."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from meshloom.arguments import Argument, as_arguments, param_of, place_of, spec_box
from meshloom.backend import current
from meshloom.backend.base import Backend, Bound
from meshloom.errors import ScheduleError
from meshloom.kernel import define, passes
from meshloom.kernel.model import Output, Param, Trace
from meshloom.kernel.trace import trace
from meshloom.mesh.box import Box
from meshloom.mesh.core import Arg, Field, Global, Map, Set, recorder
from meshloom.mesh.layout import Layout
from meshloom.order import TYPICAL_BLOCK, order_elements
from meshloom.plain import run_plainly
from meshloom.schedule.auto import choose, estimated
from meshloom.schedule.cost import Work
from meshloom.schedule.counts import Counts
from meshloom.schedule.explain import explain
from meshloom.schedule.plan import Plan, cached_plan, topology
from meshloom.schedule.schedule import Schedule, parse_schedule
from meshloom.schedule.spec import LoopSpec, SpecMap, SpecParam
from meshloom.schedule.strategies import strategy, verify
from meshloom.schedule.verify import check_one_to_one

Wish = Schedule | str | Mapping[str, Any] | None


class Kernel:
    """A NumPy function of one element. Calling it with a set runs it over that set."""

    def __init__(self, function: Callable[..., None]):
        self.function, self.name = function, function.__name__
        self.modes = define.modes_of(function)
        define.check_text(function, self.modes)
        self._traces: dict[tuple[Param, ...], Trace] = {}
        self._outputs: dict[tuple[Param, ...], tuple[Output, ...]] = {}
        functools.update_wrapper(self, function)

    def __call__(self, on: Set | Box, *arguments: Argument, schedule: Wish = None) -> None:
        """Run over a set or a box of a grid; inside a program, record."""
        key = (id(self), current().key, str(schedule), *map(id, arguments))
        loop = on.loops.get(key) if isinstance(on, Set | Box) else None
        if loop is None:
            loop = Loop(self, on, arguments, schedule)
            on.loops[key] = loop
        loop()

    def loop(self, on: Set | Box, *arguments: Argument, schedule: Wish = None) -> Loop:
        """The loop as an object: to call, to ask what it costs, to explain."""
        return Loop(self, on, arguments, schedule)

    def counts(self, on: Set | Box, *arguments: Argument, schedule: Wish = None) -> Counts:
        """Flops by kind, bytes three ways, V/S and B/F of the loop with these arguments."""
        return Loop(self, on, arguments, schedule).counts

    def python(self, on: Set | Box, *arguments: Argument) -> None:
        """Run element by element with plain small arrays: slow, independent of the tracer, made for breakpoints."""
        Loop(self, on, arguments, None).run_plainly()

    def trace(self, params: tuple[Param, ...]) -> Trace:
        """The traced kernel for parameters of these shapes and types; traced once."""
        found = self._traces.get(params)
        if found is None:
            found = self._traces[params] = trace(self.function, self.name, params)
        return found

    def outputs(self, params: tuple[Param, ...]) -> tuple[Output, ...]:
        """What the kernel computes for such parameters, after the passes; made once, whatever the schedule."""
        found = self._outputs.get(params)
        if found is None:
            traced = self.trace(params).outputs
            values = passes.optimise([o.value for o in traced])
            found = tuple(Output(o.param, o.slot, o.comp, v) for o, v in zip(traced, values, strict=True))
            self._outputs[params] = found
        return found

    def __repr__(self) -> str:
        return f"Kernel({self.name}: {', '.join(f'{n}: {m.__name__}' for n, m in self.modes.items())})"


def kernel(function: Callable[..., None]) -> Kernel:
    """Decorator: make a kernel of a NumPy function whose parameters are annotated with access modes."""
    return Kernel(function)


class Runnable(ABC):
    """What a program can record: prepared by a back end when it first runs, made again when a field has moved."""

    name: str
    set: Set
    backend: Backend
    calls = 0
    total_seconds = 0.0
    _executable: Callable[[], None] | None = None

    @property
    @abstractmethod
    def storages(self) -> tuple[Field | Global, ...]:
        """All fields and globals that it uses."""

    @property
    @abstractmethod
    def reads(self) -> tuple[Field | Global, ...]:
        """What it needs to know, increments included."""

    @property
    @abstractmethod
    def writes(self) -> tuple[Field | Global, ...]:
        """What it changes."""

    @property
    @abstractmethod
    def spec(self) -> LoopSpec:
        """It without its data."""

    @property
    @abstractmethod
    def compulsory(self) -> int:
        """Bytes that it has to move, each datum once."""

    @abstractmethod
    def prepare(self) -> Callable[[], None]:
        """Schedule and compile now; running does it by itself."""

    @abstractmethod
    def explain(self) -> str:
        """How it runs, why, and the figures."""

    def __call__(self) -> None:
        """Run once; inside a program, record."""
        record = recorder.get()
        if record is not None:
            record(self)
            return
        execute = self._executable or self.prepare()
        before = time.perf_counter()
        execute()
        self.total_seconds += time.perf_counter() - before
        self.calls += 1

    @property
    def seconds(self) -> float | None:
        """Average seconds of one execution so far (on a device: seconds of the last one); None before the first."""
        if not self.calls:
            return None
        return getattr(self._executable, "seconds", None) or self.total_seconds / self.calls


class Loop(Runnable):
    """A kernel over a set, or a box of a grid, with its arguments; scheduled and compiled when it first runs.

    ``box`` is None where the elements are those of the set, one after the other.
    """

    def __init__(self, what: Kernel, on: Set | Box, arguments: tuple[Argument, ...], wish: Wish):
        self.kernel, self.name = what, what.name
        self.backend: Backend = current()
        self.wish = parse_schedule(wish)
        self.set, self.box = place_of(what.name, on, arguments)
        self.arguments = as_arguments(what.name, what.modes, self.set, self.box, arguments)
        if self.wish.layout:
            for storage in self.storages:
                if isinstance(storage, Field) and storage.dim > 1:
                    storage.relayout(self.wish.layout)
        for storage in self.storages:
            storage.watch(self)

    # ----- the loop as data -------------------------------------------------------------------------------------
    @cached_property
    def storages(self) -> tuple[Field | Global, ...]:
        """The fields and globals in the order of the kernel's parameters."""
        return tuple(a if isinstance(a, Global) else a.field for a in self.arguments)

    @cached_property
    def maps(self) -> tuple[Map, ...]:
        """The maps used, each once, in order of appearance."""
        return tuple(dict.fromkeys(a.map for a in self.arguments if isinstance(a, Arg) and a.map is not None))

    @property
    def reads(self) -> tuple[Field | Global, ...]:
        """Increments included, and what it changes in a part of a grid only."""
        modes, partly = self.kernel.modes.values(), self.box is not None
        return tuple(s for s, m in zip(self.storages, modes, strict=True) if m.reads or m.combine or partly)

    @property
    def compulsory(self) -> int:
        return int(self.counts.bytes.compulsory)

    @property
    def writes(self) -> tuple[Field | Global, ...]:
        return tuple(s for s, m in zip(self.storages, self.kernel.modes.values(), strict=True) if m.writes)

    @cached_property
    def spec(self) -> LoopSpec:
        """The loop without data: traced, optimised, with layouts."""
        params = tuple(param_of(n, m, a) for (n, m), a in zip(self.kernel.modes.items(), self.arguments, strict=True))
        targets = list(dict.fromkeys(m.target for m in self.maps))
        maps = tuple(SpecMap(m.arity, m.positions.dtype, targets.index(m.target)) for m in self.maps)
        described = tuple(self._spec_param(p, a) for p, a in zip(params, self.arguments, strict=True))
        box = None if self.box is None else spec_box(self.box, self.arguments, self.wish.variant)
        return LoopSpec(self.name, described, maps, self.kernel.outputs(params), box=box)

    def _spec_param(self, param: Param, argument: Arg | Global) -> SpecParam:
        if isinstance(argument, Global):  # one that is set is like a field of the loop's only element
            reduced_or_read = not param.mode.control
            return SpecParam(param.name, param.mode, param.dim, param.dtype, Layout("aos"), None, reduced_or_read)
        number = None if argument.map is None else self.maps.index(argument.map)
        layout = argument.field.layout
        return SpecParam(param.name, param.mode, param.dim, param.dtype, layout, number, offsets=param.offsets)

    @property
    def elements(self) -> int:
        """How many elements it visits."""
        return self.set.size if self.box is None else self.box.size

    @property
    def over(self) -> str:
        """What it runs over, in words."""
        return self.set.name if self.box is None else str(self.box)

    @cached_property
    def counts(self) -> Counts:
        """What the loop costs."""
        return Counts(self.spec, self.elements, self.storages, self.maps, self.schedule.block or 1, self.box)

    @cached_property
    def _uncut(self) -> Counts:
        """Counts that no schedule has a say in."""
        return Counts(self.spec, self.elements, self.storages, self.maps, TYPICAL_BLOCK, self.box)

    @cached_property
    def _work(self) -> Work:
        """What there is to do, whatever the schedule."""
        return self._uncut.work(simt=self.backend.simt)

    @cached_property
    def _chosen(self) -> tuple[Schedule, str]:
        flops = float(self._uncut.flops * self.elements)
        return choose(self.spec, self.elements, flops, lambda: self._work, self.wish, simt=self.backend.simt)

    @property
    def estimate(self) -> float:
        """Seconds by the cost model: to weigh loops against each other, not to predict."""
        return estimated(self.spec, self._work, self.schedule.strategy, simt=self.backend.simt)

    @property
    def schedule(self) -> Schedule:
        """The schedule in force, every choice made."""
        return self._chosen[0]

    @property
    def applies(self) -> bool:
        """Can the wished strategy run this loop? If not, ``reason`` says why."""
        return strategy(self.schedule.strategy).declines(self.spec) is None

    @property
    def reason(self) -> str:
        """Why the schedule is what it is, or why the strategy does not apply."""
        return strategy(self.schedule.strategy).declines(self.spec) or self._chosen[1]

    @cached_property
    def plan(self) -> Plan:
        """The plan arrays, from the cache or built and verified."""
        return self.plan_of(self.schedule)

    def plan_of(self, schedule: Schedule) -> Plan:
        """The plan that some schedule needs for this loop."""
        chosen = strategy(schedule.strategy)
        topo = topology(
            self.spec,
            self.elements,
            {k: (m.positions, m.target.total, m.digest) for k, m in enumerate(self.maps)},
            self._visit_order(schedule),
            self.box,
        )
        block, simt, variant = schedule.block or 1, self.backend.simt, schedule.variant
        return cached_plan(
            partial(chosen.build, simt=simt, variant=variant),
            chosen.name,
            topo,
            block,
            verify,
            f"{'simt ' if simt else ''}{variant}",
            chosen.plan_has_blocks,
        )

    def _visit_order(self, schedule: Schedule) -> np.ndarray | None:
        if schedule.order == "given" or not self.maps:
            return None
        one = self.maps[(self.spec.racy_maps or (0,))[0]]
        points = self.set.points
        return order_elements(
            schedule.order,
            one.positions[: self.set.size],
            one.target.total,
            points=None if points is None else self.set.by_position(points)[: self.set.size],
            block=schedule.block or 256,
        )

    # ----- running it -------------------------------------------------------------------------------------------
    def prepare(self) -> Callable[[], None]:
        if self._executable is None:
            for storage in self.storages:
                storage.move(self.backend.place(storage.storage))
            if not self.applies:
                raise ScheduleError(
                    f"loop {self.name}: strategy '{self.schedule.strategy}' does not apply: {self.reason}"
                )
            for number in self.spec.one_to_one_maps:
                check_one_to_one(self.name, self.maps[number])
            bound = Bound(
                self.spec, self.elements, self.storages, self.maps, self.schedule, lambda: self.plan, self.box
            )
            self._executable = self.backend.prepare(bound)
        return self._executable

    def invalidate(self) -> None:
        """A field moved: everything that depends on layouts is made again at the next call."""
        self._executable = None
        for name in ("spec", "counts", "_uncut", "_work", "_chosen", "plan"):
            self.__dict__.pop(name, None)

    def explain(self) -> str:
        """The schedule in force, why, and the figures."""
        return explain(self)

    def run_plainly(self) -> None:
        """The kernel called element by element on plain arrays, its results merged one after the other."""
        run_plainly(self.kernel.function, self.kernel.modes, self.arguments, self.elements, self.box)

    def __repr__(self) -> str:
        return f"Loop({self.name} over {self.over}: {self.schedule})"
