"""Calls of Python's functions as operations of a program: what no loop is, such as a solver that iterates for as long
as it takes, or works on whole arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from inspect import iscoroutinefunction, isgeneratorfunction, signature
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any, ClassVar, NoReturn, cast

from meshloom.backend.lowering import Launch, Launches
from meshloom.errors import ProgramError, ScheduleError, shown
from meshloom.exclusion import made_for
from meshloom.kernel.access import Read, Write
from meshloom.kernel.sameness import Same
from meshloom.mesh.core import Field, Global
from meshloom.operation.body import Body, BodyGraph
from meshloom.operation.domain import Extent, WholeFields
from meshloom.operation.in_memory import InMemory
from meshloom.operation.operand import Operand, merged_operands
from meshloom.operation.operation import Operation
from meshloom.operation.parameters import name_of
from meshloom.recording import recorder
from meshloom.records import dataclass

Storages = tuple[Field | Global, ...]


def call(
    function: Callable[[], Any], reads: Iterable[Field | Global] | None = None,
    writes: Iterable[Field | Global] | None = None,
) -> None:  # fmt: skip
    """Inside a program: call a function, such as one that solves a system, at this place of every replay. It takes no
    arguments, what it returns is dropped, and where it cannot do its work it raises ``ml.errors.SolveError``.

    ``reads``, ``writes``: the fields and globals that it looks at, and those that it may change; unsaid, all that there
    are: no operation moves past it then, and temporary fields have no values behind it. One that has ``loops`` shows
    them among those of the program.
    """
    if not callable(function):
        raise ProgramError(f"ml.call takes a function, got {shown(function)}")
    name = name_of(function)
    if not needs_nothing(function):
        raise ProgramError(f"ml.call: {name} takes arguments, and is called without any; give functools.partial of it")
    if isgeneratorfunction(function) or iscoroutinefunction(function):
        raise ProgramError(f"ml.call: {name} is a generator or a coroutine, of which a call does nothing")
    body = CalledFunction(function, _storages(name, "reads", reads), _storages(name, "writes", writes))
    record = recorder.get()
    if record is None:
        raise ProgramError(f"ml.call of {name} outside of a program: call it itself")
    record(called(body, name))


@dataclass(frozen=True)
class CalledFunction(Body):
    """A function of Python's; what it has not said that it reads, or writes, is None."""

    function: Callable[[], Any]
    reads: Storages | None
    writes: Storages | None
    tells_failures = True
    what: ClassVar[str] = "a call from Python"
    timed_as: ClassVar[str] = "functions"  # which kind of row it is among the times of a run
    #: The recorded program that is replayed there, where it stands for what is between two calls and is none itself.
    segment: ClassVar[Any] = None

    @property
    def inside(self) -> tuple[Callable[..., Any], ...]:
        """What may be called where it is, without what it is given."""
        return (self.function,)

    @property
    def said(self) -> Storages:
        return (*(self.reads or ()), *(self.writes or ()))

    @property
    def known_by(self) -> Hashable:
        return _itself(self.function), self.reads is None, self.writes is None

    @property
    def beyond_graph(self) -> Hashable:
        return self.known_by

    @property
    def blame(self) -> str:
        """Who has not said what it reads and writes, and what to do, where that matters."""
        name = name_of(self.function)
        return (f"the call of {name}, which has not said what it reads and writes; say it (ml.call({name},"
                " reads=(...), writes=(...))), or")  # fmt: skip

    def explain(self, name: str) -> str:
        """What there is to know about it."""
        read, written = (
            "everything" if one is None else ", ".join(s.name for s in one) or "nothing"
            for one in (self.reads, self.writes)
        )
        return f"{name}: {self.what}, which reads {read} and writes {written}"

    @property
    def launch(self) -> Launch:
        """What calls it; what it makes is its own."""
        return Launch.here(made_for, None, self.function)

    def steps(self, of: Operation) -> tuple[Operation, ...]:
        """What runs of it at every replay, as a program shows that: it is one step."""
        return (of,)

    def graph(self, of: Operation) -> BodyGraph:
        return BodyGraph(())

    def loaded(self, of: Operation) -> range:
        return range(len(of.operands))


def called(
    body: CalledFunction, name: str, used: Sequence[Field | Global] = (), sets: Iterable[tuple[Any, Extent]] = ()
) -> Operation:
    """The operation. ``used``: what it may use, too, where it has not said it; temporary fields of them end there.
    ``sets``: what it certainly sets, and how much of it."""
    everything = body.reads is None or body.writes is None
    ends = frozenset(s for s in used if isinstance(s, Field) and s.temporary and s not in body.said)
    rest = frozenset(used) - ends
    reads, writes = (rest if one is None else frozenset(one) for one in (body.reads, body.writes))
    both = (Read, reads), (Write, writes | ends)
    operands = merged_operands(Operand(s, mode) for s in (*used, *body.said) for mode, those in both if s in those)
    return Operation(name, WholeFields(everything, ends, frozenset(sets)), operands, body, _OUTSIDE)


class _Outside(InMemory):
    """By Python, wherever the function does its work."""

    def compulsory(self, of: Operation) -> int:
        raise ScheduleError(f"nobody counts what the call of {of.name} moves")

    def flops(self, of: Operation) -> float:
        raise ScheduleError(f"nobody counts what the call of {of.name} computes")

    def instructions(self, of: Operation) -> Counter[tuple[str, str]]:
        raise ScheduleError(f"nobody counts what the call of {of.name} computes")

    def launches(self, of: Operation) -> Launches:
        return Launches((cast(CalledFunction, of.body).launch,))

    def words(self, of: Operation) -> str:
        return "by Python"

    def explain(self, of: Operation) -> str:
        return cast(CalledFunction, of.body).explain(of.name)


_OUTSIDE = _Outside()


def functions_of(operations: Iterable[Operation]) -> tuple[Callable[[], Any], ...]:
    """Those that are called among some operations."""
    return tuple([cast(CalledFunction, one.body).function for one in operations if one.domain.is_call])


def functions_inside(operations: Iterable[Operation]) -> tuple[Callable[..., Any], ...]:
    """What may be called among some operations; of programs that are repeated, which hold their arguments, what these
    call."""
    return tuple([f for one in operations if one.domain.is_call for f in cast(CalledFunction, one.body).inside])


def may_change_anything(one: Operation) -> bool:
    """Is it a call that has not said what it writes?"""
    return one.domain.is_call and cast(CalledFunction, one.body).writes is None


def with_loops_of_calls(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """The same without calls; in their place stand the loops of what is called, where it has some."""
    listed = [getattr(functions_of([one])[0], "loops", ()) if one.domain.is_call else (one,) for one in operations]
    return tuple(loop for one in listed for loop in one)


def _itself(function: Any) -> Hashable:
    """What tells a function from others, methods and functions that are made anew whenever they are named included."""
    if isinstance(function, MethodType):
        return Same(function.__func__), _itself(function.__self__)
    if isinstance(function, BuiltinMethodType):  # such as append of a list
        return function.__name__, Same(function.__self__)
    if isinstance(function, partial):
        given = (*function.args, *function.keywords.values())
        return _itself(function.func), tuple(function.keywords), *map(_itself, given)
    if isinstance(function, FunctionType) and not function.__defaults__ and not function.__kwdefaults__:
        return function.__code__, Same(function.__globals__), *map(Same, function.__closure__ or ())
    plain = isinstance(function, int | float | str | None)  # 1, 1.0 and True are equal, 0.0 and -0.0 too
    return (type(function), repr(function)) if plain else Same(function)


class Later:
    """What a call gives at every replay: nobody can look at it while a program is recorded. ``instead``: what to do."""

    def __init__(self, what: str, instead: str):
        self._what, self._instead = what, instead

    def __repr__(self) -> str:
        return f"{self._what} at every replay"

    def _refuse(self, *_: object) -> NoReturn:
        raise ProgramError(
            f"{self._what} is known at every replay, and not when a program is recorded: {self._instead}"
        )

    __hash__ = object.__hash__
    __bool__ = __int__ = __index__ = __float__ = __iter__ = __len__ = __neg__ = __abs__ = __round__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse()


def needs_nothing(function: Callable[..., Any]) -> bool:
    """Can it be called without arguments, as far as it says?"""
    try:
        signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # nobody knows
        pass
    return True


def _storages(name: str, what: str, given: Any) -> Storages | None:
    """What a call says that it reads or writes; ProgramError for anything else."""
    if given is None:
        return None
    is_one = isinstance(given, Field | Global) or not isinstance(given, Iterable)
    listed = () if is_one else tuple(given)
    for one in (given,) if is_one else [one for one in listed if not isinstance(one, Field | Global)]:
        raise ProgramError(f"ml.call of {name}: {what} takes a tuple of fields and Globals, got {shown(one)}")
    return listed
