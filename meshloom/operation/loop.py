"""Kernel and Loop. A kernel is what happens at one element; a loop is a kernel with arguments and a schedule."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, overload

import numpy as np

from meshloom.backend import current
from meshloom.backend.base import Backend, Bound
from meshloom.errors import KernelError, ScheduleError, nearest
from meshloom.kernel import define, passes
from meshloom.kernel.captured import compare_by
from meshloom.kernel.count import loads
from meshloom.kernel.model import Output, Param, Trace
from meshloom.kernel.recent import Recent
from meshloom.kernel.signature import Signature
from meshloom.kernel.state import State, States
from meshloom.kernel.trace import trace
from meshloom.mesh.box import Box, Offsets
from meshloom.mesh.core import Arg, Field, Global, Map, Set, VaryingMap, on_host
from meshloom.mesh.layout import Layout, parse_layout
from meshloom.mesh.mesh import Mesh
from meshloom.mesh.number import PlainNumber, kind_of_number
from meshloom.mesh.sharing import hidden_values
from meshloom.operation.arguments import Argument, as_arguments, param_of, place_of, spec_box
from meshloom.operation.calls import remembered
from meshloom.operation.plain import run_plainly
from meshloom.operation.runnable import Runnable, derived
from meshloom.operation.ties import loops_over, tied
from meshloom.operation.varying import Pattern, known_arguments, over_collections, pattern_of, signature_over
from meshloom.order import TYPICAL_BLOCK, order_elements
from meshloom.recording import not_in_program, refuse_in_program
from meshloom.schedule.choice.auto import choose, estimated
from meshloom.schedule.choice.cost import Work
from meshloom.schedule.choice.counts import Counts, flops_per_element
from meshloom.schedule.choice.explain import explain
from meshloom.schedule.choice.schedule import Schedule, parse_schedule
from meshloom.schedule.plan.plan import Plan, topology
from meshloom.schedule.plan.plan_cache import cached_plan
from meshloom.schedule.plan.verify import check_one_to_one
from meshloom.schedule.spec import LoopSpec, SpecMap, SpecParam
from meshloom.schedule.strategies import strategy, verify

SHARED = ("spec", "_work", "_chosen", "plan")  # what a loop has from its form
_PLACES = (Set, Box)
_STORED = frozenset((Field, Global, Arg))
Wish = Schedule | str | Mapping[str, Any] | None

compare_by(None, Set, Map, Box, Mesh)
compare_by(lambda stored: on_host(stored.storage), Field, Global)


class Kernel:
    """A NumPy function of one element. Calling it with a set runs it over that set."""

    def __init__(self, function: Callable[..., None], *, strict: bool = False):
        self._make(function, strict, define.signature_of(function), function)

    def _make(self, function: Callable[..., None], strict: bool, signature: Signature,
              reads: Callable[..., None]) -> None:  # fmt: skip
        """``reads``: the function as it was written, whose captured values count."""
        self.function, self.name, self.strict = function, function.__name__, strict
        self.signature = signature
        self.modes = self.signature.modes
        define.check_text(function, self.modes)
        self._states = States(reads, self.name)
        self._fixed: dict[Pattern, Kernel] = {}  # the same over maps of varying arity, as loops know it
        functools.update_wrapper(self, function)

    def __call__(self, on: Set | Box, /, *arguments: Argument, schedule: Wish = None, **named: Argument) -> None:
        """Run over a set or a box of a grid; inside a program, record. Arguments may be named, and be plain numbers."""
        one, given = self._for_loop(on, arguments, named)
        numbers = [a for a in given if type(a) not in _STORED and kind_of_number(a) is not None]
        key = (id(one), current().key, str(schedule), *map(_known_by, given))
        remembered(on, key, (one,), Loop, one, on, given, schedule, numbers=numbers)

    def loop(self, on: Set | Box, /, *arguments: Argument, schedule: Wish = None, **named: Argument) -> Loop:
        """The loop as an object: to call, to ask what it costs, to explain. Plain numbers are those given here."""
        one, given = self._for_loop(on, arguments, named)
        return Loop(one, on, given, schedule)

    def counts(self, on: Set | Box, /, *arguments: Argument, schedule: Wish = None, **named: Argument) -> Counts:
        """Flops by kind, bytes three ways, V/S and B/F of the loop with these arguments."""
        return self.loop(on, *arguments, schedule=schedule, **named).counts

    @not_in_program("running kernel {} element by element", "call the kernel itself")
    def python(self, on: Set | Box, /, *arguments: Argument, **named: Argument) -> None:
        """Run element by element with plain small arrays: slow, independent of the tracer, made for breakpoints."""
        one, given = self._for_loop(on, arguments, named)
        Loop(one, on, given, None).run_plainly()

    def _for_loop(
        self, on: Set | Box, arguments: tuple[Argument, ...], named: Mapping[str, Argument]
    ) -> tuple[Kernel, tuple[Any, ...]]:
        """One argument for each parameter, and the kernel of them: this one, unless a map is of varying arity."""
        if not isinstance(on, _PLACES):
            place_of(self.name, on, ())  # says so
        given = self.signature.ordered(arguments, named)
        if not any(type(a) is Arg and type(a.map) is VaryingMap for a in given):
            return self, given
        pattern, maps = pattern_of(given)
        modes = self.signature.expanded(len(given))
        known = known_arguments(self.name, modes, given, pattern, maps)
        if pattern not in self._fixed:
            made, function = Kernel.__new__(Kernel), over_collections(self.function, tuple(modes), pattern)
            made._make(function, self.strict, signature_over(self.name, modes, len(maps)), self.function)
            self._fixed[pattern] = made
        return self._fixed[pattern], known

    @property
    def state(self) -> State:
        """The same object as long as the function reads the same values besides its parameters."""
        return self._states.now()

    def trace(self, params: tuple[Param, ...]) -> Trace:
        """The traced kernel for parameters of these shapes and types; traced once while it captures the same."""
        state = self.state
        found = state.traces.find(params)
        if found is None:
            with hidden_values():
                found = state.traces.keep(params, trace(self.function, self.name, params))
            self._states.traced(state)
        return found

    def outputs(self, params: tuple[Param, ...], *, strict: bool) -> tuple[Output, ...]:
        """What the kernel computes for such parameters, after the passes; made once, whatever the schedule."""
        state = self.state
        found = state.outputs.find((params, strict))
        if found is None:
            traced = self.trace(params).outputs
            values = passes.optimise([o.value for o in traced], strict=strict)
            found = tuple(Output(o.param, o.slot, o.comp, v) for o, v in zip(traced, values, strict=True))
            state.outputs.keep((params, strict), found)
        return found

    def __reduce__(self) -> str:
        """By its name, as functions: a copy is itself, and another process imports it."""
        return str(getattr(self, "__qualname__", self.name))

    def __repr__(self) -> str:
        star = self.signature.variadic
        listed = [f"{'*' if name == star else ''}{name}: {mode.__name__}" for name, mode in self.modes.items()]
        return f"Kernel({self.name}: {', '.join(listed)})"


def _known_by(argument: Argument) -> Any:
    """What tells an argument from others in a key; access through a map is made anew at every call, and a plain number
    may be another one every time."""
    if type(argument) is Arg:
        return id(argument.field), id(argument.map), id(argument.offsets), argument.slots
    return id(argument) if type(argument) in _STORED else kind_of_number(argument) or id(argument)


@overload
def kernel(function: Callable[..., None], /, *, strict: bool = False) -> Kernel: ...
@overload
def kernel(*, strict: bool = False) -> Callable[[Callable[..., None]], Kernel]: ...


def kernel(function: Callable[..., None] | None = None, /, *, strict: bool = False, **unknown: object) -> Any:
    """Decorator: make a kernel of a NumPy function whose parameters are annotated with access modes.

    ``@ml.kernel(strict=True)``: the formula as written, term by term, every operation rounded by itself, so that an
    element gives what NumPy gives, to the last bit for + - * / and sqrt.
    """
    if unknown:
        raise KernelError(f"ml.kernel has no option '{next(iter(unknown))}'{nearest(next(iter(unknown)), ['strict'])}")
    if not isinstance(strict, bool):
        raise KernelError(f"ml.kernel: strict must be True or False, got {strict!r}")
    if function is None:
        return partial(Kernel, strict=strict)
    if not inspect.isfunction(function):
        raise KernelError(f"ml.kernel makes a kernel of a function, got {type(function).__name__}")
    return Kernel(function, strict=strict)


class Form:
    """What loops of one form share: what was derived from it, and what back ends compiled. ``ties``: see ``tied``."""

    def __init__(self, ties: tuple[Any, ...]) -> None:
        self.known: dict[str, Any] = {}
        self.compiled: dict[Any, Any] = {}
        self.ties = ties


class Loop(Runnable):
    """A kernel over a set, or a box of a grid, with its arguments; scheduled and compiled when it first runs.

    ``arguments``: one for each parameter, in order. ``box`` is None where the elements are those of the set, one after
    the other.
    """

    def __init__(self, what: Kernel, on: Set | Box, arguments: tuple[Argument, ...], wish: Wish, *,
                 strict: bool = False, numbers: Sequence[PlainNumber] = ()):  # fmt: skip
        self.kernel, self.kernels, self.name = what, (what,), what.name
        self.backend: Backend = current()
        self.strict = strict or what.strict or self.backend.strict
        self.wish = parse_schedule(wish)
        self.set, self.box = place_of(what.name, on, arguments)
        self.modes = what.signature.expanded(len(arguments))
        self.arguments = as_arguments(what.name, self.modes, self.set, self.box, arguments, numbers)
        self._unsettled = bool(self.wish.layout)
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
        modes, partly = self.modes.values(), self.box is not None
        return tuple(s for s, m in zip(self.storages, modes, strict=True) if m.reads or m.combine or partly)

    @property
    def compulsory(self) -> int:
        return int(self.counts.bytes.compulsory)

    @property
    def flops(self) -> float:
        return float(self.elements * flops_per_element(self.spec, self.spec.outputs))

    @property
    def writes(self) -> tuple[Field | Global, ...]:
        return tuple(s for s, m in zip(self.storages, self.modes.values(), strict=True) if m.writes)

    def needs(self, one: Field | Global) -> bool:
        read = {param for param, _, _ in loads(o.value for o in self.spec.outputs)}
        modes = enumerate(zip(self.storages, self.modes.values(), strict=True))
        return any(s is one and bool(m.combine or (m.reads and (m.writes or k in read))) for k, (s, m) in modes)

    def defines(self, one: Field) -> bool:
        direct = [a for a in self.arguments if isinstance(a, Arg) and a.field is one and a.map is None]
        all_of_it = self.set is one.set and (self.box is None or self.box.covers_inside)
        return bool(direct) and all_of_it and one in self.writes and not self.needs(one)

    @derived
    def spec(self) -> LoopSpec:
        """The loop without data: traced, optimised, with layouts."""
        params = self.params
        targets = list(dict.fromkeys(m.target for m in self.maps))
        maps = tuple(SpecMap(m.arity, m.index_type, targets.index(m.target), m.formula) for m in self.maps)
        described = tuple(self._spec_param(p, a) for p, a in zip(params, self.arguments, strict=True))
        box = None if self.box is None else spec_box(self.box, self.arguments, self.wish)
        outputs = self.kernel.outputs(params, strict=self.strict)
        return LoopSpec(self.name, described, maps, outputs, box=box, strict=self.strict)

    def _spec_param(self, param: Param, argument: Arg | Global) -> SpecParam:
        if isinstance(argument, Global):  # one that is set is like a field of the loop's only element
            reduced_or_read = not param.mode.control
            return SpecParam(param.name, param.mode, param.dim, param.dtype, Layout("aos"), None, reduced_or_read)
        number = None if argument.map is None else self.maps.index(argument.map)
        layout = self._layout_of(argument.field)
        return SpecParam(param.name, param.mode, param.dim, param.dtype, layout, number, offsets=param.offsets,
                         as_member=argument.as_member)  # fmt: skip

    def _layout_of(self, one: Field) -> Layout:
        """The layout that it has when the loop runs."""
        wished = parse_layout(self.wish.layout) if self._unsettled and self.wish.layout else None
        return wished if wished is not None and one.dim > 1 else one.layout

    def settle(self) -> None:
        if self._unsettled:
            self._unsettled = False
            for one in self.storages:
                if isinstance(one, Field) and one.dim > 1 and self.wish.layout:
                    one.relayout(self.wish.layout)

    def settled(self) -> None:
        self._unsettled = False

    @cached_property
    def ways(self) -> tuple[Map | Offsets, ...]:
        """The maps and offsets by which fields are reached, one for each argument that has one."""
        return tuple(w for a in self.arguments if isinstance(a, Arg) and (w := a.map or a.offsets) is not None)

    @property
    def parts(self) -> tuple[Any, ...]:
        return (*super().parts, *self.ways)

    @cached_property
    def params(self) -> tuple[Param, ...]:
        """The kernel's parameters for these arguments."""
        return tuple(param_of(n, m, a) for (n, m), a in zip(self.modes.items(), self.arguments, strict=True))

    @derived
    def form(self) -> Form:
        """What it shares with loops over the same set that differ in their fields and globals alone."""
        layouts = tuple(self._layout_of(s) if isinstance(s, Field) else None for s in self.storages)
        parts = (*self.states, *self.ways)  # kernels and maps may come and go, and their forms, with plans, with them
        key = (*map(id, parts), self.strict, self.backend.key, self.wish, self.params, layouts, self.box)
        forms: Recent[Any, Form] = loops_over(self.set).forms
        return forms.find(key) or forms.keep(key, Form(tied(forms, key, parts)))

    def known_of(self, name: str) -> dict[str, Any]:
        return self.form.known if name in SHARED else self.known

    @property
    def elements(self) -> int:
        """How many elements it visits."""
        return self.set.owned if self.box is None else self.box.size

    @property
    def over(self) -> str:
        """What it runs over, in words."""
        return self.set.name if self.box is None else str(self.box)

    @derived
    def counts(self) -> Counts:
        """What the loop costs."""
        return Counts(self.spec, self.elements, self.storages, self.maps, self.schedule.block or 1, self.box)

    @derived
    def _uncut(self) -> Counts:
        """Counts that no schedule has a say in."""
        return Counts(self.spec, self.elements, self.storages, self.maps, TYPICAL_BLOCK, self.box)

    @derived
    def _work(self) -> Work:
        """What there is to do, whatever the schedule."""
        return self._uncut.work(self.backend.target)

    @derived
    def _chosen(self) -> tuple[Schedule, str]:
        return self._choice(self.wish)

    def _choice(self, wish: Schedule) -> tuple[Schedule, str]:
        flops = float(self._uncut.flops * self.elements)
        return choose(self.spec, self.elements, flops, lambda: self._work, wish, target=self.backend.target)

    def can_run(self, wish: Wish) -> bool:
        """Could the loop be executed so?"""
        return strategy(self._choice(parse_schedule(wish))[0].strategy).declines(self.spec) is None

    @property
    def estimate(self) -> float:
        """Seconds by the cost model: to weigh loops against each other, not to predict."""
        return estimated(self.spec, self._work, self.schedule.strategy, target=self.backend.target)

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

    @derived
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
        block, target, variant = schedule.block or 1, self.backend.target, schedule.variant
        return cached_plan(
            partial(chosen.build, target=target, variant=variant),
            chosen.plan_type(target=target, variant=variant),
            chosen.name,
            topo,
            block,
            partial(verify, target=target, variant=variant),
            f"{target.plan_key} {variant}",
            chosen.plan_has_blocks,
        )

    def _visit_order(self, schedule: Schedule) -> np.ndarray | None:
        if schedule.order == "given" or not self.maps:
            return None
        one = self.maps[(self.spec.racy_maps or (0,))[0]]
        points = self.set.points
        return order_elements(
            schedule.order,
            one.positions[: self.set.owned],
            one.target.total,
            points=None if points is None else self.set.by_position(points)[: self.set.owned],
            block=schedule.block or 256,
        )

    # ----- running it -------------------------------------------------------------------------------------------
    def _prepared(self) -> Callable[[], None]:
        self.settle()
        for storage in self.storages:
            storage.move(self.backend.place(storage.storage))
        if not self.applies:
            raise ScheduleError(f"loop {self.name}: strategy '{self.schedule.strategy}' does not apply: {self.reason}")
        for number in self.spec.one_to_one_maps:
            check_one_to_one(self.name, self.maps[number])
        bound = Bound(self.spec, self.elements, self.storages, self.maps, self.schedule, lambda: self.plan, self.box,
                      self.form.compiled)  # fmt: skip
        return self.backend.prepare(bound)

    @not_in_program("another schedule for loop {}", "give it before")
    def reschedule(self, wish: Wish) -> None:
        """Run otherwise from now on; programs that have recorded it and have not run yet follow."""
        self.wish = parse_schedule(wish)
        self._unsettled = bool(self.wish.layout)
        self.invalidate()

    def explain(self) -> str:
        """The schedule in force, why, and the figures."""
        return explain(self)

    def as_written(self) -> Loop:
        """The same loop with the formula as written, by the same schedule."""
        if self.strict:
            return self
        made = Loop(self.kernel, self.set if self.box is None else self.box, self.arguments, self.wish, strict=True)
        made.backend = self.backend
        return made

    def run_plainly(self) -> None:
        """The kernel called element by element on plain arrays, its results merged one after the other."""
        refuse_in_program(f"running kernel {self.name} element by element", "call the kernel itself")
        self.check_transients()
        undefined = {one: one.undefined_after for one in self.transients if not self.defines(one)}
        run_plainly(self.kernel.function, self.name, self.modes, self.arguments, self.elements, self.box)
        for one, program in undefined.items():
            one.undefined_after = program

    def __repr__(self) -> str:
        return f"Loop({self.name} over {self.over}: {self.schedule})"
