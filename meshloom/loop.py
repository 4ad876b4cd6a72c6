"""Kernel and Loop. A kernel is what happens at one element; a loop is a kernel with arguments and a schedule."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.backend.base import Backend, Bound
from meshloom.errors import KernelError, MeshError, ScheduleError
from meshloom.kernel import define, passes
from meshloom.kernel.access import Mode, identity
from meshloom.kernel.model import Output, Param, Trace
from meshloom.kernel.trace import trace
from meshloom.mesh.core import Arg, Field, Global, Map, Set, recorder
from meshloom.mesh.layout import Layout
from meshloom.order import TYPICAL_BLOCK, order_elements
from meshloom.schedule.auto import choose, estimated
from meshloom.schedule.cost import Work
from meshloom.schedule.counts import Counts
from meshloom.schedule.explain import explain
from meshloom.schedule.plan import Plan, cached_plan, topology
from meshloom.schedule.schedule import Schedule, parse_schedule
from meshloom.schedule.spec import LoopSpec, SpecMap, SpecParam
from meshloom.schedule.strategies import strategy, verify
from meshloom.schedule.verify import check_one_to_one

Argument = Field | Arg | Global
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

    def __call__(self, on: Set, *arguments: Argument, schedule: Wish = None) -> None:
        """Run over ``on``; inside a program, record."""
        key = (id(self), current().key, str(schedule), *map(id, arguments))
        loop = on.loops.get(key) if isinstance(on, Set) else None
        if loop is None:
            loop = Loop(self, on, arguments, schedule)
            on.loops[key] = loop
        loop()

    def loop(self, on: Set, *arguments: Argument, schedule: Wish = None) -> Loop:
        """The loop as an object: to call, to ask what it costs, to explain."""
        return Loop(self, on, arguments, schedule)

    def counts(self, on: Set, *arguments: Argument, schedule: Wish = None) -> Counts:
        """Flops by kind, bytes three ways, V/S and B/F of the loop with these arguments."""
        return Loop(self, on, arguments, schedule).counts

    def python(self, on: Set, *arguments: Argument) -> None:
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
    """A kernel over a set with its arguments, scheduled and compiled when it first runs."""

    def __init__(self, what: Kernel, on: Set, arguments: tuple[Argument, ...], wish: Wish):
        self.kernel, self.set, self.name = what, on, what.name
        self.backend: Backend = current()
        self.wish = parse_schedule(wish)
        self.arguments = _as_arguments(what, on, arguments)
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
        modes = self.kernel.modes.values()
        return tuple(s for s, m in zip(self.storages, modes, strict=True) if m.reads or m.combine)

    @property
    def writes(self) -> tuple[Field | Global, ...]:
        return tuple(s for s, m in zip(self.storages, self.kernel.modes.values(), strict=True) if m.writes)

    @cached_property
    def spec(self) -> LoopSpec:
        """The loop without data: traced, optimised, with layouts."""
        params = tuple(_param(n, m, a) for (n, m), a in zip(self.kernel.modes.items(), self.arguments, strict=True))
        targets = list(dict.fromkeys(m.target for m in self.maps))
        maps = tuple(SpecMap(m.arity, m.positions.dtype, targets.index(m.target)) for m in self.maps)
        described = tuple(self._spec_param(p, a) for p, a in zip(params, self.arguments, strict=True))
        return LoopSpec(self.name, described, maps, self.kernel.outputs(params))

    def _spec_param(self, param: Param, argument: Arg | Global) -> SpecParam:
        if isinstance(argument, Global):  # one that is set is like a field of the loop's only element
            reduced_or_read = not param.mode.control
            return SpecParam(param.name, param.mode, param.dim, param.dtype, Layout("aos"), None, reduced_or_read)
        number = None if argument.map is None else self.maps.index(argument.map)
        return SpecParam(param.name, param.mode, param.dim, param.dtype, argument.field.layout, number)

    @cached_property
    def counts(self) -> Counts:
        """What the loop costs."""
        return Counts(self.spec, self.set.size, self.storages, self.maps, self.schedule.block or 1)

    @cached_property
    def _work(self) -> Work:
        """What there is to do, whatever the schedule."""
        return Counts(self.spec, self.set.size, self.storages, self.maps, TYPICAL_BLOCK).work

    @cached_property
    def _chosen(self) -> tuple[Schedule, str]:
        return choose(self.spec, self._work, self.wish, simt=self.backend.simt)

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
            self.set.size,
            {k: (m.positions, m.target.total, m.digest) for k, m in enumerate(self.maps)},
            self._visit_order(schedule),
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
            bound = Bound(self.spec, self.set.size, self.storages, self.maps, self.schedule, lambda: self.plan)
            self._executable = self.backend.prepare(bound)
        return self._executable

    def invalidate(self) -> None:
        """A field moved: everything that depends on layouts is made again at the next call."""
        self._executable = None
        for name in ("spec", "counts", "_work", "_chosen", "plan"):
            self.__dict__.pop(name, None)

    def explain(self) -> str:
        """The schedule in force, why, and the figures."""
        return explain(self)

    def run_plainly(self) -> None:
        """The kernel called element by element on plain arrays, its results merged one after the other."""
        modes = list(self.kernel.modes.values())
        values = [s.numpy().reshape(-1 if isinstance(s, Global) else (-1, s.dim)) for s in self.storages]
        before = [v.copy() for v in values]
        for element in range(self.set.size):
            rows = [_rows(a, element) for a in self.arguments]
            local = [_local(m, a, b, r) for m, a, b, r in zip(modes, self.arguments, before, rows, strict=True)]
            self.kernel.function(*local)
            for mode, value, part, row in zip(modes, values, local, rows, strict=True):
                if mode.writes:
                    _merge(mode, value, part, row)
        for mode, storage, value in zip(modes, self.storages, values, strict=True):
            if mode.writes:
                storage.assign(value)

    def __repr__(self) -> str:
        return f"Loop({self.name} over {self.set.name}: {self.schedule})"


# ----- arguments ------------------------------------------------------------------------------------------------
def _as_arguments(what: Kernel, on: Set, given: tuple[Argument, ...]) -> tuple[Arg | Global, ...]:
    """The arguments checked against the kernel's parameters and the set."""
    names = ", ".join(what.modes)
    if not isinstance(on, Set):
        raise MeshError(f"kernel {what.name}: the first argument is the set to loop over, got {type(on).__name__}")
    if len(given) != len(what.modes):
        raise KernelError(
            f"kernel {what.name} takes {len(what.modes)} arguments after the set ({names}), got {len(given)}"
        )
    result: list[Arg | Global] = []
    for (name, mode), argument in zip(what.modes.items(), given, strict=True):
        result.append(_checked(f"kernel {what.name}, parameter {name}", mode, on, argument))
    _check_aliases(what, result)
    return tuple(result)


def _checked(where: str, mode: type[Mode], on: Set, argument: Argument) -> Arg | Global:
    if isinstance(argument, Global):
        if mode.control and on.total != 1:
            raise KernelError(
                f"{where}: a Global can be {mode.__name__} only in a loop over a set of one element, and {on.name} has"
                f" {on.total}; use Sum, Min or Max here, or set it in a loop over ml.Set(1)"
            )
        if not (mode.globals or mode.control):
            raise KernelError(f"{where}: a Global cannot be {mode.__name__}; use Read, Sum, Min or Max")
        return argument
    arg = argument.direct if isinstance(argument, Field) else argument
    if not isinstance(arg, Arg):
        raise MeshError(f"{where}: expected a Field, field[map] or Global, got {type(argument).__name__}")
    if not mode.fields:
        raise KernelError(f"{where}: a Field cannot be {mode.__name__}; use Inc")
    if arg.map is None and arg.field.set is not on:
        raise MeshError(
            f"{where}: field {arg.field.name} lives on {arg.field.set.name}, but the loop runs over {on.name};"
            f" pass {arg.field.name}[map] with a map from {on.name} to {arg.field.set.name}"
        )
    if arg.map is not None and arg.map.source is not on:
        raise MeshError(
            f"{where}: map {arg.map.name} starts at {arg.map.source.name}, but the loop runs over {on.name}"
        )
    return arg


def _check_aliases(what: Kernel, arguments: list[Arg | Global]) -> None:
    """What is written may appear once only: otherwise the result would depend on the order of execution."""
    seen: dict[int, tuple[str, type[Mode]]] = {}
    for (name, mode), argument in zip(what.modes.items(), arguments, strict=True):
        storage = argument if isinstance(argument, Global) else argument.field
        if id(storage) in seen and (mode.writes or seen[id(storage)][1].writes):
            raise KernelError(
                f"kernel {what.name}: {storage.name} is passed as {seen[id(storage)][0]} and as {name}, and one of"
                " them is written; pass it once, as ReadWrite, or use a second field"
            )
        seen[id(storage)] = (name, mode)


def _param(name: str, mode: type[Mode], argument: Arg | Global) -> Param:
    if isinstance(argument, Global):
        return Param(name, mode, argument.shape, argument.dtype, 0, argument.dim)
    arity = argument.map.arity if argument.map is not None else 0
    shape = ((arity,) if arity else ()) + ((argument.field.dim,) if argument.field.dim > 1 else ())
    return Param(name, mode, shape, argument.field.dtype, arity, argument.field.dim)


# ----- plain execution ------------------------------------------------------------------------------------------
class _Offers(np.ndarray):
    """An array that keeps the smallest or largest value assigned to each entry."""

    keep: Any = None

    def __array_finalize__(self, other: Any) -> None:
        self.keep = getattr(other, "keep", None)

    def __setitem__(self, key: Any, value: Any) -> None:
        plain = self.view(np.ndarray)
        plain[key] = self.keep(plain[key], value)


def _rows(argument: Arg | Global, element: int) -> Any:
    if isinstance(argument, Global):
        return slice(None)
    return element if argument.map is None else argument.map.indices[element]


def _local(mode: type[Mode], argument: Arg | Global, before: np.ndarray, rows: Any) -> np.ndarray:
    """What the user's function gets: values from before the loop, or the neutral element of a combining mode."""
    shape = _param("", mode, argument).shape
    if not mode.combine:
        return np.array(before[rows]).reshape(shape)
    values = np.full(shape, identity(mode.combine, before.dtype), before.dtype)
    if mode.combine == "add":
        return values
    offers = values.view(_Offers)
    offers.keep = np.minimum if mode.combine == "minimum" else np.maximum
    return offers


def _merge(mode: type[Mode], value: np.ndarray, part: np.ndarray, rows: Any) -> None:
    plain = np.asarray(part).reshape(np.shape(value[rows]))
    if not mode.combine:
        value[rows] = plain
    else:
        ufunc = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}[mode.combine]
        index = np.arange(len(value)) if isinstance(rows, slice) else rows
        ufunc.at(value, index, plain)
