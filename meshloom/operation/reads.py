"""What a program's function reads of Python: numbers, flags and objects that decide which operations it calls.

They are found as for kernels (``kernel/captured.py``), but what a program reads is mostly the package's own: fields,
globals, sets and kernels, which are known by being themselves, and whose values no program may read. What would be
another one at every call of the function, such as a random number or the time, is refused.
"""

from __future__ import annotations

import io
import types
import weakref
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from inspect import getattr_static
from itertools import chain
from typing import Any

import numpy as np

from meshloom.errors import ProgramError
from meshloom.kernel.bytecode import ReadOfName
from meshloom.kernel.c_state import in_cell
from meshloom.kernel.captured import Captured, captured
from meshloom.kernel.outside import RandomDraw, Unrepeatable
from meshloom.kernel.sameness import Entries, Same
from meshloom.kernel.survey import Survey
from meshloom.kernel.survey_values import MOST_BYTES
from meshloom.mesh.assigned import Assignable
from meshloom.operation.call import call

_PACKAGE = __name__.partition(".")[0]
#: Rooms of the package whose functions hold what users gave them, and whose objects hold numbers.
_NUMBERED = ("linalg", "compact", "library")
#: Those whose objects are known by being themselves. All others are looked into, as what users write.
_CLOSED = ("mesh", "kernel", "operation", "schedule", "backend", "native", "order", "target", "io", "run", "process",
           "studies", "cli", "dist", "launch", "config", "toml", "errors", "exclusion", "markup", "recording",
           "records", "__main__", _PACKAGE)  # fmt: skip
_PLAIN = (bool, int, float, str, np.generic)
_ASKS = ("vars", "locals")  # of Python itself: what they see nobody knows


def reads_of_program(function: Callable[..., Any], name: str) -> Captured:
    """What the function of program ``name`` reads, with the values of now; ProgramError for what no replay repeats."""
    try:
        return captured(function, _ProgramSurvey).steady()
    except Unrepeatable as found:
        place, what, instead = found.place, found.what, "put it into an ml.Global before each run"
        if isinstance(found, RandomDraw):
            instead = "draw them in a kernel, by ml.Random, or put them into an ml.Global before each run"
    raise ProgramError(f"{place}: program {name} {what}, once for all its replays; {instead}")


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


def _numbers_of(holder: Any, _: Any = None) -> Entries:
    """The plain values among an object's attributes, each behind its name."""
    plain = [one for one in vars(holder).items() if isinstance(one[1], _PLAIN)]
    return Entries(chain.from_iterable(plain))


def _named(one: ReadOfName, function: types.FunctionType, cells: dict[str, Any]) -> Any:
    """What a function has by a name, and its attributes, of modules alone."""
    found = in_cell(cells[one.name]) if one.name in cells else function.__globals__.get(one.name)
    for name in one.chain:
        found = getattr(found, name, None) if isinstance(found, types.ModuleType) else None
    return found


def _of_class(value: Any, name: str) -> Any:
    """What an object's class has by a name, without asking it for anything."""
    return getattr_static(type(value), name, None)


class _ProgramSurvey(Survey):
    """Collects what decides about the operations of a program."""

    constructors = ("__init__", "__new__")

    _by_itself = False  # is a function met that runs at every replay, whatever it reads then?

    def unknown(self, what: str) -> None:
        self.fail(what)

    def _root(self, one: ReadOfName, function: types.FunctionType, cells: dict[str, Any], first: Any) -> Hashable:
        """What ``ml.call`` is given is known by being itself: nothing of it is recorded."""
        if one.given_to is None or _named(one.given_to, function, cells) is not call:
            return super()._root(one, function, cells, first)
        if one.inside:
            return None
        self._by_itself = True
        found = super()._root(one, function, cells, first)
        self._by_itself = False
        return found

    def key_of(self, value: Any) -> Hashable:
        if not self._by_itself or not callable(value):  # such as what functions are in
            return super().key_of(value)
        parts = (value.__func__, value.__self__) if isinstance(value, types.MethodType) else (value,)
        return tuple(map(Same, parts))

    def unrepeatable(self, what: str, error: type[Unrepeatable] = Unrepeatable) -> None:
        """Refused where it is named; in the depth of an object that is passed on it may not be used at all."""
        super().unrepeatable(what, error)
        self.fail(f"an object that {what}")

    @property
    def goes_on(self) -> bool:
        return not self.too_many  # what can be compared is, also next to what cannot

    def followed(self, module: str) -> bool:
        room = _room(module)
        return room not in _CLOSED if room else super().followed(module)

    def known(self, module: str) -> bool:
        return bool(_room(module)) or super().known(module)

    def counts(self, read: ReadOfName, function: types.FunctionType) -> bool:
        if read.kind == "global" and read.name in _ASKS and read.name not in function.__globals__:
            self.fail(f"{read.name}()")
        own = read.kind in ("global", "import") and _room(function.__module__)  # the package's own are constants
        return not own and super().counts(read, function)

    def mutable(self, value: Any) -> Hashable:
        is_proxy = type(value) in weakref.ProxyTypes  # which has all methods that there are
        if isinstance(value, Iterator) and not isinstance(value, io.IOBase) and not is_proxy:
            self.unrepeatable(f"reads an iterator ({type(value).__name__})")
            return Same(value)
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
        if isinstance(value, Assignable):  # whose indices a function may read
            self.read(getattr, value, "version", value.version)
            return Same(value), name, value.version
        recorded = getattr(value, "_recorded_function", None)
        if recorded is not None:
            return Same(value), self.key_of(recorded)
        numbers = Entries()
        if any(room in _NUMBERED for room in rooms) and hasattr(value, "__dict__"):
            numbers = _numbers_of(value)
            self.read(_numbers_of, value, None, numbers)
        return Same(value), name if isinstance(name, str) else None, tuple(map(self.key_of, numbers))

    def walk(self, value: Any, chain: tuple[str, ...]) -> Hashable:
        """As for kernels; properties are not evaluated, since they may call kernels: what they read is followed."""
        if chain and not isinstance(value, types.ModuleType):
            name, rest = chain[0], chain[1:]
            own = getattr(value, "__dict__", {})
            if name not in own and any(map(_is_sealed, _rooms_of(value))):
                return self.key_of(value)
            found = _of_class(value, name) if name not in own else None
            if isinstance(found, property | cached_property):
                self.read(_of_class, value, name, found)
                inner: Any = found.fget if isinstance(found, property) else found.func
                if isinstance(inner, types.FunctionType) and self.follows(inner):
                    return "property", self.function(inner, value)
                return "property", self.key_of(value)
            if rest and name in own:
                self.read(getattr, value, name, own[name])
                return self.walk(own[name], rest)
        return super().walk(value, chain)
