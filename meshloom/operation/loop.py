"""Kernels: what happens at one element. With a set, arguments and a schedule a kernel is an operation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, overload

from meshloom.backend import current
from meshloom.errors import KernelError, nearest
from meshloom.exclusion import holding, mutexes_of
from meshloom.kernel import define, passes
from meshloom.kernel.access import RandomNumbers, ReadWrite
from meshloom.kernel.model import Output, Param, Trace
from meshloom.kernel.sameness import Distinct
from meshloom.kernel.signature import Signature
from meshloom.kernel.state import State, States
from meshloom.kernel.survey_values import compare_by
from meshloom.kernel.trace import trace
from meshloom.mesh.array_interop import hidden_values
from meshloom.mesh.box import Box
from meshloom.mesh.buffer import Buffered
from meshloom.mesh.core import Arg, Field, Global, Map, Set, VaryingMap, on_host
from meshloom.mesh.mesh import Mesh
from meshloom.mesh.number import PlainNumber, kind_of_number
from meshloom.mesh.random import Random, element_numbers
from meshloom.operation.arguments import Argument, as_operands, domain_of
from meshloom.operation.body import KernelBody
from meshloom.operation.calls import remembered
from meshloom.operation.drawing import drawing, drawing_signature, sources
from meshloom.operation.operation import Operation
from meshloom.operation.policy import Wish, by_strategy
from meshloom.operation.varying import known_arguments, over_collections, pattern_of, signature_over
from meshloom.recording import not_in_program
from meshloom.schedule.choice.counts import Counts

_PLACES = (Set, Box)
_ABSENT: Any = object()  # the function of a decorator with options alone
_NO_SET: Any = None  # what a call without one is given: refused as any other thing that is no set
_STORED = frozenset((Field, Global, Arg))

compare_by(None, Set, Map, Box, Mesh)
compare_by(lambda stored: on_host(stored.storage), Field, Global)


class Kernel(Distinct):
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
        self._reads, self._states = reads, States(reads, self.name)
        self.draws = RandomNumbers in self.modes.values()
        self._fixed: dict[Any, Kernel] = {}  # the same over maps of varying arity, or with element numbers
        functools.update_wrapper(self, function)

    def __call__(
        self, on: Set | Box = _NO_SET, /, *arguments: Argument, schedule: Wish = None, **named: Argument
    ) -> None:
        """Run over a set or a box of a grid; inside a program, record. Arguments may be named, and be plain numbers."""
        one, given = self._for_loop(on, arguments, named)
        numbers = [a for a in given if type(a) not in _STORED and kind_of_number(a) is not None]
        key = (one.serial, current().key, str(schedule), *map(_known_by, given))
        if not self.draws:
            remembered(on, key, (one,), loop_over, one, on, given, schedule, numbers=numbers)
            return

        def draw_and_count() -> None:
            remembered(on, key, (one,), loop_over, one, on, given, schedule, numbers=numbers)
            for source in _drawn_from(given):
                _one_more_call(_ONCE, source)

        _undisturbed(given, draw_and_count)

    def loop(
        self, on: Set | Box = _NO_SET, /, *arguments: Argument, schedule: Wish = None, **named: Argument
    ) -> Operation:
        """The loop as an object: to call, to ask what it costs, to explain. Plain numbers are those given here."""
        if self.draws:
            raise KernelError(
                f"kernel {self.name} draws random numbers, other ones at every call: a loop by itself would not count"
                " its calls; call the kernel, or make a program of it"
            )
        one, given = self._for_loop(on, arguments, named)
        return loop_over(one, on, given, schedule)

    def counts(
        self, on: Set | Box = _NO_SET, /, *arguments: Argument, schedule: Wish = None, **named: Argument
    ) -> Counts:
        """Flops by kind, bytes three ways, V/S and B/F of the loop with these arguments."""
        one, given = self._for_loop(on, arguments, named)
        return loop_over(one, on, given, schedule).counts

    @not_in_program("running kernel {} element by element", "call the kernel itself")
    def python(self, on: Set | Box = _NO_SET, /, *arguments: Argument, **named: Argument) -> None:
        """Run element by element with plain small arrays: slow, independent of the tracer, made for breakpoints."""
        one, given = self._for_loop(on, arguments, named)

        def draw_and_count() -> None:
            loop_over(one, on, given, None).run_plainly()
            for source in _drawn_from(given) if self.draws else ():
                _one_more_call.python(_ONCE, source)

        _undisturbed(given, draw_and_count)

    def _for_loop(
        self, on: Set | Box, arguments: tuple[Argument, ...], named: Mapping[str, Argument]
    ) -> tuple[Kernel, tuple[Any, ...]]:
        """One argument for each parameter, and the kernel of them: this one, unless a map is of varying arity."""
        if not isinstance(on, _PLACES):
            domain_of(self.name, on, ())  # says so
        given = self.signature.ordered(arguments, named)
        if not any(type(a) is Arg and type(a.map) is VaryingMap for a in given):
            return self._with_numbers(on, given) if self.draws else (self, given)
        pattern, maps = pattern_of(given)
        modes = self.signature.expanded(len(given))
        known = known_arguments(self.name, modes, given, pattern, maps)
        if pattern not in self._fixed:
            made, function = Kernel.__new__(Kernel), over_collections(self.function, tuple(modes), pattern)
            made._make(function, self.strict, signature_over(self.name, modes, len(maps)), self.function)
            self._fixed[pattern] = made
        made = self._fixed[pattern]
        return made._with_numbers(on, known) if self.draws else (made, known)

    def _with_numbers(self, on: Set | Box, given: tuple[Any, ...]) -> tuple[Kernel, tuple[Any, ...]]:
        """The same for a kernel that draws random numbers: the numbers of the elements come behind the arguments."""
        modes = self.signature.expanded(len(given))
        sources(self.name, modes, given)
        pattern = ("random", len(given))
        if pattern not in self._fixed:
            made, function = Kernel.__new__(Kernel), drawing(self.function, modes)
            made._make(function, self.strict, drawing_signature(self.name, modes), self._reads)
            self._fixed[pattern] = made
        return self._fixed[pattern], (*given, element_numbers(on))

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
        listed = [f"{'*' if name == star else ''}{name}: {mode.shown}" for name, mode in self.modes.items()]
        return f"Kernel({self.name}: {', '.join(listed)})"


def _known_by(argument: Argument) -> Any:
    """What tells an argument from others in a key; access through a map is made anew at every call, and a plain number
    may be another one every time. None of what no loop takes."""
    if type(argument) is Arg:
        through, around = argument.map, argument.offsets
        return (argument.field.serial, None if through is None else through.serial,
                None if around is None else around.serial, argument.slots)  # fmt: skip
    return argument.serial if isinstance(argument, Buffered) else kind_of_number(argument)


@overload
def kernel(function: Callable[..., None], /, *, strict: bool = False) -> Kernel: ...
@overload
def kernel(*, strict: bool = False) -> Callable[[Callable[..., None]], Kernel]: ...


def kernel(function: Any = _ABSENT, /, *, strict: bool = False, **unknown: object) -> Any:
    """Decorator: make a kernel of a NumPy function whose parameters are annotated with access modes.

    ``@ml.kernel(strict=True)``: the formula as written, term by term, every operation rounded by itself, so that an
    element gives what NumPy gives, to the last bit for + - * / and sqrt.
    """
    if unknown:
        raise KernelError(f"ml.kernel has no option '{next(iter(unknown))}'{nearest(next(iter(unknown)), ['strict'])}")
    if not isinstance(strict, bool):
        raise KernelError(f"ml.kernel: strict must be True or False, got {strict!r}")
    if function is _ABSENT:
        return partial(Kernel, strict=strict)
    if not inspect.isfunction(function):
        raise KernelError(f"ml.kernel makes a kernel of a function, got {type(function).__name__}")
    return Kernel(function, strict=strict)


def loop_over(what: Kernel, on: Set | Box, arguments: tuple[Argument, ...], wish: Wish, *,
              numbers: Sequence[PlainNumber] = ()) -> Operation:  # fmt: skip
    """A kernel over a set, or a box of a grid: one argument for each parameter, in order. ``numbers``: what holds the
    plain numbers among them, where that is there already."""
    backend, policy = current(), by_strategy(wish)
    domain = domain_of(what.name, on, arguments)
    modes, any_order = what.signature.expanded(len(arguments)), backend.reproducible
    operands = as_operands(what.name, modes, domain, arguments, numbers, any_order)
    return Operation(what.name, domain, operands, KernelBody(what, what.strict or backend.strict), policy, backend)


def _drawn_from(given: Sequence[Any]) -> list[Random]:
    return [one for one in given if type(one) is Random]


def _undisturbed(given: Sequence[Any], action: Callable[[], None]) -> None:
    """An action by the thread that holds whatever is among the arguments of a kernel: what it draws from, to begin
    with, which nobody else draws from before this draw has been counted."""
    stored = [one.field if type(one) is Arg else one for one in given]
    holding(mutexes_of(one for one in stored if isinstance(one, Field | Global)), action)


def count_draws(source: ReadWrite) -> None:
    """What follows every loop that draws random numbers: programs and graphs show it by this name."""
    source[1] += 1


_one_more_call, _ONCE = Kernel(count_draws), Set(1, "once")
