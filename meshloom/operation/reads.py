"""What a program's function reads of Python: numbers, flags and objects that decide which operations it calls.

They are found as for kernels (``kernel/captured.py``), but what a program reads is mostly the package's own: fields,
globals, sets and kernels, which are known by being themselves, and whose values no program may read. What would be
another one at every call of the function, such as a random number or the time, is refused.
"""

from __future__ import annotations

import decimal
import io
import types
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np

from meshloom.errors import ProgramError
from meshloom.kernel.bytecode import ReadOfName
from meshloom.kernel.captured import MOST_BYTES, Captured, RandomDraw, Same, Survey, captured

_PACKAGE = __name__.partition(".")[0]
#: Rooms of the package whose functions hold what users gave them, and whose objects hold numbers.
_NUMBERED = ("linalg", "compact", "library")
#: Those whose objects are known by being themselves. All others are looked into, as what users write.
_CLOSED = ("mesh", "kernel", "operation", "schedule", "backend", "native", "order", "target", "io", "run", "process",
           "studies", "cli", "launch", "config", "toml", "errors", "exclusion", "markup", "recording", "__main__",
           _PACKAGE)  # fmt: skip
#: Modules of Python and others whose functions give the same for the same arguments.
_PURE = ("math", "cmath", "itertools", "functools", "operator", "collections", "dataclasses", "enum", "typing", "types",
         "abc", "copy", "fractions", "decimal", "numbers", "string", "re", "contextlib", "statistics", "builtins",
         "warnings", "logging", "inspect", "numpy", "scipy", "cupy", "textwrap", "weakref")  # fmt: skip
_CLOCKS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
           "process_time_ns", "thread_time", "now", "today", "utcnow")  # fmt: skip
#: What tells how NumPy and decimal numbers are set up just now.
_SETTINGS = (np.geterr, np.geterrcall, np.getbufsize, np.get_printoptions, decimal.getcontext, decimal.localcontext)
_ASKS = ("open", "input", "globals", "eval", "exec", "vars", "locals")  # of Python itself: what they see nobody knows


class _Unrepeatable(Exception):
    """At ``place`` (file:line) a function does ``what``, which gives something else each time."""

    def __init__(self, place: str, what: str):
        super().__init__(what)
        self.place, self.what = place, what


def reads_of_program(function: Callable[..., Any], name: str) -> Captured:
    """What the function of program ``name`` reads, with the values of now; ProgramError for what no replay repeats."""
    try:
        return _stable(captured(function, _ProgramSurvey()))
    except RandomDraw as found:
        place, what = found.place, f"draws random numbers ({found.what})"
        instead = "draw them in a kernel, by ml.Random, or put them into an ml.Global before each run"
    except _Unrepeatable as found:
        place, what = found.place, found.what
        instead = "put it into an ml.Global before each run"
    raise ProgramError(f"{place}: program {name} {what}, once for all its replays; {instead}")


def _stable(found: Captured) -> Captured:
    """The same without what is another object whenever it is asked for: that it differs says nothing."""
    if found.holds():
        return found
    steady = tuple([one for one in found.reads if replace(found, reads=(one,), arrays=()).holds()])
    return replace(found, reads=steady, culprit=found.culprit or f"{found.first_changed()}, made anew at every look")


def _room(module: str | None) -> str:
    """The room of the package that a module belongs to; empty for others."""
    package, _, rest = (module or "").partition(".")
    return rest.partition(".")[0] or package if package == _PACKAGE else ""


def _is_sealed(room: str) -> bool:
    """Are objects of a room of the package not looked into?"""
    return room in _CLOSED or room in _NUMBERED


def _rooms_of(value: Any) -> list[str]:
    """The rooms of an object's classes; of functions and classes themselves none."""
    return [] if isinstance(value, types.FunctionType | type) else [_room(c.__module__) for c in type(value).__mro__]


def _numbers_of(holder: Any, _: Any = None) -> tuple[Any, ...]:
    """The plain values among an object's attributes."""
    return tuple([(n, v) for n, v in vars(holder).items() if isinstance(v, bool | int | float | str | np.generic)])


class _ProgramSurvey(Survey):
    """Collects what decides about the operations of a program."""

    constructors = ("__init__", "__new__")

    def random(self, what: str) -> None:
        super().random(what)
        self.fail(f"random numbers ({what})")

    def _unrepeatable(self, what: str) -> None:
        """Refused where it is named; in the depth of an object that is passed on it may not be used at all."""
        if not self.depth:
            raise _Unrepeatable(self.place, what)
        self.fail(f"an object that {what}")

    @property
    def goes_on(self) -> bool:
        return not self.too_many  # what can be compared is, also next to what cannot

    def followed(self, module: str) -> bool:
        room = _room(module)
        return room not in _CLOSED if room else super().followed(module)

    def counts(self, read: ReadOfName, function: types.FunctionType) -> bool:
        if read.kind == "global" and read.name in _ASKS and read.name not in function.__globals__:
            self.fail(f"{read.name}()")
        if read.name.startswith("@"):  # no name of Python's: what pytest puts into assertions
            return False
        return not (read.kind in ("global", "import") and _room(function.__module__))  # the package's own are constants

    def outside(self, value: Any, chain: tuple[str, ...] = ()) -> None:
        super().outside(value, chain)
        name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", "") or ""
        for one in chain:
            value = getattr(value, one, None)
        self._check_state(value)
        if name.partition(".")[0] not in _PURE and not _room(name):
            self.fail(".".join([name, *chain]))

    def _check_state(self, value: Any) -> None:
        owner = getattr(value, "__self__", None)
        asked = (owner, "__module__"), (owner, "__name__"), (value, "__module__")
        module = next(filter(None, [getattr(one, name, None) for one, name in asked]), "")
        if module in ("time", "datetime") and getattr(value, "__name__", "") in _CLOCKS:
            self._unrepeatable(f"reads the time ({value.__name__})")
        if isinstance(value, Hashable) and value in _SETTINGS:
            self._unrepeatable(f"reads settings of {value.__module__} ({value.__name__})")

    def mutable(self, value: Any) -> Hashable:
        if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            self._unrepeatable(f"reads an iterator ({type(value).__name__})")
            return Same(value)
        if isinstance(value, types.BuiltinFunctionType):
            self._check_state(value)
        rooms = _rooms_of(value)
        if any(map(_is_sealed, rooms)):
            return self._of_the_package(value, rooms)
        if isinstance(value, np.ndarray) and value.nbytes > MOST_BYTES:
            self.fail("an array of more than a MB")
            return Same(value)
        return super().mutable(value)

    def _of_the_package(self, value: Any, rooms: list[str]) -> Hashable:
        """An object of the package: itself, and its name, which users may change. A program is what its function reads,
        too."""
        name = getattr(value, "name", None)
        if isinstance(name, str):
            self.read(getattr, value, "name", name)
        recorded = getattr(value, "_recorded_function", None)
        if recorded is not None:
            return Same(value), self.key_of(recorded)
        if any(room in _NUMBERED for room in rooms) and hasattr(value, "__dict__"):
            self.read(_numbers_of, value, None, _numbers_of(value))
        return Same(value), name if isinstance(name, str) else None

    def walk(self, value: Any, chain: tuple[str, ...]) -> Hashable:
        """As for kernels; properties are not evaluated, since they may call kernels: what they read is followed."""
        if chain and not isinstance(value, types.ModuleType):
            name, rest = chain[0], chain[1:]
            own = getattr(value, "__dict__", {})
            if name not in own and any(map(_is_sealed, _rooms_of(value))):
                return self.key_of(value)
            found = getattr_static(type(value), name, None) if name not in own else None
            if isinstance(found, property | cached_property):
                inner: Any = found.fget if isinstance(found, property) else found.func
                return "property", self.function(inner, value) if isinstance(inner, types.FunctionType) else None
            if rest and name in own:
                self.read(getattr, value, name, own[name])
                return self.walk(own[name], rest)
        return super().walk(value, chain)
