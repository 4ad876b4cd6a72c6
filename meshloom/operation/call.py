"""Calls of Python's functions as operations of a program: what no loop is, such as a solver that iterates for as long
as it takes, or works on whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from types import FunctionType, MethodType
from typing import Any, NoReturn

from meshloom.errors import ProgramError, ScheduleError, shown
from meshloom.exclusion import made_for
from meshloom.kernel.access import Read, ReadWrite, Write
from meshloom.kernel.sameness import Same
from meshloom.mesh.core import Field, Global
from meshloom.mesh.number import PlainNumber
from meshloom.operation.body import Body, BodyGraph
from meshloom.operation.domain import WholeFields
from meshloom.operation.in_memory import InMemory
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.recording import recorder
from meshloom.schedule.spec import LoopSpec

Storages = Iterable[Field | Global] | None  # None: all that there are


def call(function: Callable[[], Any], reads: Storages = None, writes: Storages = None) -> None:
    """Inside a program: call a function, such as one that solves a system, at this place of every replay. It takes no
    arguments, what it returns is dropped, and where it cannot do its work it raises ``ml.errors.SolveError``.

    ``reads``, ``writes``: the fields and globals that it looks at, and those that it may change; unsaid, all that there
    are: no operation moves past it then, and temporary fields have no values behind it. One that has ``loops`` shows
    them among those of the program.
    """
    if not callable(function):
        raise ProgramError(f"ml.call takes a function, got {shown(function)}")
    name = function_name(function)
    if not _needs_nothing(function):
        raise ProgramError(f"ml.call: {name} takes arguments, and is called without any; give functools.partial of it")
    read, written = (_storages(name, *one) for one in (("reads", reads), ("writes", writes)))
    record = recorder.get()
    if record is None:
        raise ProgramError(f"ml.call of {name} outside of a program: call it itself")
    record(called(function, read, written, name))


class Later:
    """What a function that a program has recorded will return: nobody can look at it yet."""

    def __init__(self, what: str):
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ProgramError(f"{self._what} inside a program reports at every replay, and not when it is recorded: look"
                           f" at its .{name} in a function that ml.call is given")  # fmt: skip


def recorded_solve(name: str, solve: Callable[[], Any], reads: Storages, writes: Iterable[Field | Global]) -> Any:
    """A solver of ours, asked to ``solve`` while a program is recorded, does so at this place of every replay."""
    record = recorder.get()
    assert record is not None
    record(called(solve, None if reads is None else tuple(reads), tuple(writes), f"{name}.solve"))
    return Later(f"solving by {name}")


def called(
    function: Callable[[], Any], reads: Sequence[Field | Global] | None, writes: Sequence[Field | Global] | None,
    name: str,
) -> Operation:  # fmt: skip
    """The operation."""
    body = CalledFunction(function, reads is None, writes is None)
    domain = WholeFields(body.reads_all or body.writes_all)
    operands = _operands(frozenset(reads or ()), frozenset(writes or ()), (*(reads or ()), *(writes or ())))
    return Operation(name, domain, operands, body, _OUTSIDE)


def with_everything(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """The same operations, where calls that have not said what they read or write have all that the others use as
    operands, and so depend on it."""
    vague = list(filter(is_vague, dict.fromkeys(operations)))
    if not vague:
        return tuple(operations)
    used = [s for s in dict.fromkeys(s for o in operations for s in o.storages) if not isinstance(s, PlainNumber)]
    made = {one: _with_operands(one, used) for one in vague}
    return tuple([made.get(one, one) for one in operations])


def _with_operands(one: Operation, used: Sequence[Field | Global]) -> Operation:
    body, said = one.body, frozenset(one.storages)
    assert isinstance(body, CalledFunction)
    ends = frozenset(s for s in used if isinstance(s, Field) and s.temporary and s not in said)
    lasting = [s for s in used if s not in ends]
    reads = frozenset(lasting) if body.reads_all else frozenset(one.reads)
    writes = frozenset(lasting) if body.writes_all else frozenset(one.writes)
    return Operation(one.name, WholeFields(True, ends), _operands(reads, writes | ends, used), body, _OUTSIDE)


def _operands(
    reads: frozenset[Field | Global], writes: frozenset[Field | Global], used: Iterable[Field | Global]
) -> tuple[Operand, ...]:
    """Of all that are used those that are read or written, each once."""
    listed = [one for one in dict.fromkeys(used) if one in reads or one in writes]
    return tuple([Operand(s, Read if s not in writes else ReadWrite if s in reads else Write) for s in listed])


@dataclass(frozen=True)
class CalledFunction(Body):
    """A function of Python's. ``reads_all``, ``writes_all``: it has not said what."""

    function: Callable[[], Any]
    reads_all: bool
    writes_all: bool

    @property
    def known_by(self) -> Hashable:
        return _itself(self.function), self.reads_all, self.writes_all

    def graph(self, of: Operation) -> BodyGraph:
        return BodyGraph(())

    def loaded(self, of: Operation) -> range:
        return range(len(of.operands))


class _Outside(InMemory):
    """By Python, wherever the function does its work."""

    def spec(self, of: Operation) -> LoopSpec:
        return LoopSpec(of.name, (), (), ())

    def compulsory(self, of: Operation) -> int:
        raise ScheduleError(f"nobody counts what the call of {of.name} moves")

    def flops(self, of: Operation) -> float:
        raise ScheduleError(f"nobody counts what the call of {of.name} computes")

    def executable(self, of: Operation) -> Callable[[], None]:
        assert isinstance(of.body, CalledFunction)
        return partial(made_for, None, of.body.function)  # what it makes is its own

    def begin(self, of: Operation) -> None:
        return

    def words(self, of: Operation) -> str:
        return "called from Python"

    def explain(self, of: Operation) -> str:
        body = of.body
        assert isinstance(body, CalledFunction)
        read = [o.storage.name for o in of.operands if o.mode.reads]
        said = (body.reads_all, read), (body.writes_all, [one.name for one in of.writes])
        words = ["everything" if everything else ", ".join(names) or "nothing" for everything, names in said]
        return f"{of.name}: a call from Python, which reads {words[0]} and writes {words[1]}"


_OUTSIDE = _Outside()


def functions_of(operations: Iterable[Operation]) -> tuple[Callable[[], Any], ...]:
    """Those that are called among some operations."""
    return tuple([one.body.function for one in operations if isinstance(one.body, CalledFunction)])


def is_vague(one: Operation) -> bool:
    """Is it a call that has not said what it reads, or what it writes?"""
    return isinstance(one.domain, WholeFields) and one.domain.everything


def writes_everything(one: Operation) -> bool:
    """Is it a call that has not said what it writes?"""
    return isinstance(one.body, CalledFunction) and one.body.writes_all


def loops_of_call(one: Operation) -> tuple[Operation, ...]:
    """Those that the function says to have."""
    (function,) = functions_of([one])
    return tuple(getattr(function, "loops", ()))


def function_name(function: Any) -> str:
    """What people call a function."""
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__qualname__", None) or getattr(inner, "name", repr(inner))).rpartition("<locals>.")[2]


def _itself(function: Any) -> Hashable:
    """What tells a function from others, methods and functions that are made anew whenever they are named included."""
    if isinstance(function, MethodType):
        return Same(function.__func__), _itself(function.__self__)
    if isinstance(function, partial):
        given = (*function.args, *function.keywords.values())
        return _itself(function.func), tuple(function.keywords), *map(_itself, given)
    if isinstance(function, FunctionType) and not function.__defaults__ and not function.__kwdefaults__:
        return function.__code__, *map(Same, function.__closure__ or ())
    return function if isinstance(function, int | float | str | None) else Same(function)


def _needs_nothing(function: Callable[..., Any]) -> bool:
    """Can it be called without arguments, as far as it says?"""
    try:
        signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # nobody knows
        pass
    return True


def _storages(name: str, what: str, given: Any) -> tuple[Field | Global, ...] | None:
    """What a call says that it reads or writes; ProgramError for anything else."""
    if given is None:
        return None
    if isinstance(given, Field | Global) or not isinstance(given, Iterable):
        raise ProgramError(f"ml.call of {name}: {what} takes a tuple of fields and Globals, got {shown(given)}")
    for one in (listed := tuple(given)):
        if not isinstance(one, Field | Global):
            raise ProgramError(f"ml.call of {name}: {what} takes fields and Globals, got {shown(one)}")
    return listed
