"""What a function reads besides its parameters, looked through: from its code, and that of every function that it can
reach, to the values that these read by name."""

from __future__ import annotations

import enum
import operator
import sys
import types
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from meshloom.kernel import outside
from meshloom.kernel.bytecode import ReadOfName, identities_asked, names_in, reads_of
from meshloom.kernel.c_state import NOTHING, decimal_settings, in_cell
from meshloom.kernel.notes import Path
from meshloom.kernel.sameness import ATOMS, TABLES, Entries, IdentityDict, Same, is_number
from meshloom.kernel.survey_values import ValueSurvey, is_sentinel

#: Functions of Python that reach any variable by its name.
_ANYTHING = ("globals", "eval", "exec")
#: Those that reach any attribute by its name.
_BY_NAME = frozenset(("getattr", "hasattr", "vars", "setattr"))
#: Those that tell equal objects apart.
_IDENTITY = (id, operator.is_, operator.is_not)
_THEMSELVES = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum)
_BUILTINS = operator.attrgetter("__builtins__")  # which some checkers of types do not know
#: Do dictionaries, by their keys, have none of some names?
_HAVE_NONE: Any = type({}.keys()).isdisjoint


class _Reached(NamedTuple):
    """A function in the depth of an object: used only where code that is used has its name. ``doubts``: what it reads
    that nobody follows, where (path, file:line)."""

    name: str
    names: frozenset[str]
    doubts: list[tuple[str, Path | None, str]]


class Survey(ValueSurvey):
    """Collects reads, and makes the key of what is found."""

    def __init__(self, by_identity: bool = False) -> None:
        super().__init__(by_identity)
        self._names: set[str] = set()  # that code has which is used
        self._reached: list[_Reached] = []
        self._current: _Reached | None = None  # the function that is looked at, if in the depth of an object
        self._plain_functions: list[tuple[types.FunctionType, Path | None, str]] = []  # without attributes, yet
        #: Names that variables of modules could shadow: of each module its variables, and these.
        self._of_python: IdentityDict[tuple[dict[str, Any], set[str]]] = IdentityDict()

    def followed(self, module: str) -> bool:
        return outside.is_followed(module)

    def known(self, module: str) -> bool:
        """Is it known that what functions of a module give depends on their arguments alone?"""
        return outside.is_pure(module)

    def counts(self, read: ReadOfName, function: types.FunctionType) -> bool:
        """May what a function reads by a name change?"""
        return not read.name.startswith("@")  # no name of Python's: what pytest puts into assertions

    def finish(self) -> Hashable:
        """All was seen: notes what is left to compare. The key of that, if any."""
        for variables, names in self._of_python.values():
            self.read(_HAVE_NONE, variables.keys(), frozenset(names), True)
        doubts = self._used()
        if self._names & _BY_NAME:
            for function, path, place in self._plain_functions:
                self.path, self.place = path, place
                self.read(operator.eq, function.__dict__, dict(function.__dict__), True)
        told = [(f"{name}()", path, place) for name, path, place in self.telling if name in self._names]
        for what, path, place in (*doubts, *told):
            self.path, self.place = path, place
            self.fail(what)
        found: list[Hashable] = []
        for name, value, path, place in self.unheld:
            if name in self._names:
                self.path, self.place, self.depth = (path, ".", name), place, 1
                found.append((name, self.key_of(value)))
                self.depth = 0
        if self.decimals:
            settings = decimal_settings()
            self.read(decimal_settings, None, None, settings)
            found.append(settings)
        return tuple(found)

    def unknown(self, what: str) -> None:
        doubt = what, self.path, self.place
        if not self.depth:
            self.fail(what)
        elif self._current is not None:
            self._current.doubts.append(doubt)
        else:  # what an object holds
            name = str(self.path[2]) if self.path is not None else ""
            self._reached.append(_Reached(name, frozenset(), [doubt]))

    def _used(self) -> list[tuple[str, Path | None, str]]:
        """The doubts about functions whose names code has that is used, as well as their own."""
        waiting, used = self._reached, [_Reached("", frozenset(), [])]
        doubts: list[tuple[str, Path | None, str]] = []
        while used:
            used, rest = [], waiting
            waiting = []
            for one in rest:
                (used if one.name in self._names or one.name.startswith("__") else waiting).append(one)
            self._names.update(*[one.names for one in used])
            doubts += [doubt for one in used for doubt in one.doubts]
        return doubts

    def outside(self, value: Any, chain: tuple[str, ...] = ()) -> Hashable:
        module, name = outside.module_of(value), outside.asked(value, "__name__") or ""
        named = ".".join([name if isinstance(value, types.ModuleType) else f"{module}.{name}", *chain])
        steps: list[tuple[Any, str, Any]] = []
        for one in chain:
            if outside.is_random(value):
                self.random(named)
            steps.append((value, one, getattr(value, one, None)))
            value = steps[-1][2]
        if outside.is_random(value):
            self.random(named)
        if outside.changing(value):
            self.unrepeatable(outside.changing(value))
        self.decimals = self.decimals or module.lstrip("_") == "decimal"
        self.asks_identity = self.asks_identity or any(value is one for one in _IDENTITY)
        if (self.known(module) and not outside.reads_file(value)) or any(value is one for one in outside.ENDS):
            return None
        if not chain or not (type(value) in ATOMS or is_number(value)):
            self.unknown(named)
            return None
        for step in steps:  # sys.maxsize
            self.read(getattr, *step)
        return self.key_of(value)

    def walk(self, value: Any, chain: tuple[str, ...]) -> Hashable:
        outer = self.path
        form: Hashable = None
        for number, name in enumerate(chain):
            if isinstance(value, types.ModuleType) and not self.followed(value.__name__):
                found = Same(value), self.outside(value, chain[number:])
                self.path = outer
                return found
            if isinstance(value, np.ndarray) and name in ("flags", "strides"):
                form = _layout_of(value)
                self.read(_layout_of, value, None, form)
            if isinstance(value, (np.ndarray, list, tuple, *TABLES, set, *ATOMS, float, complex)):
                break
            try:
                inner = getattr(value, name)
            except Exception:  # it will fail in the kernel, too
                break
            self.path = (self.path, ".", name)
            self.read(getattr, value, name, inner)
            value = inner
        key = self.key_of(value)
        self.path = outer
        return key if form is None else (key, form)

    def function(self, function: types.FunctionType, first: Any = NOTHING) -> Hashable:
        if not self.follows(function):
            self.outside(function)
            return Same(function)
        again = self.again(function, first)
        if again:
            return again
        code, before = function.__code__, (self.path, self.place, self._current)
        if self.depth:
            self._current = _Reached(_named_as(function), names_in(code), [])
            self._reached.append(self._current)
        else:
            self._names |= names_in(code)
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        self._note_identities(function, cells)
        self.read(getattr, function, "__code__", code)
        key: list[Hashable] = [code, *self._defaults(function)]
        if isinstance(function.__dict__.get("registry"), types.MappingProxyType):  # of functools.singledispatch
            key.append(self.key_of(function.registry))  # type: ignore[attr-defined]
        elif function.__dict__.keys() - {"__wrapped__"}:
            key.append(self.attributes(function.__dict__))
        else:
            self._plain_functions.append((function, self.path, self.place))
        for one in reads_of(code):
            if self.goes_on and self.counts(one, function):
                self.path, self.place = (None, "", one.name), f"{code.co_filename}:{one.line}"
                key.append((one.name, one.chain, self._root(one, function, cells, first)))
        self.path, self.place, self._current = before
        return tuple(key)

    def _note_identities(self, function: types.FunctionType, cells: dict[str, types.CellType]) -> None:
        """Does a function tell equal objects apart? Classes, functions and their like are known by being themselves."""
        for name, *chain in (one or ("",) for one in identities_asked(function.__code__)):
            value = function.__globals__.get(name, _of_python(function).get(name))
            value = in_cell(cells[name]) if name in cells else value
            for one in chain:
                value = getattr(value, one, None) if isinstance(value, type | types.ModuleType) else None
            itself = isinstance(value, _THEMSELVES) or (value is not None and is_sentinel(value))
            self.asks_identity = self.asks_identity or not itself

    def _defaults(self, function: types.FunctionType) -> list[Hashable]:
        code = function.__code__
        found: list[Hashable] = []
        for name, count in (("__defaults__", code.co_argcount), ("__kwdefaults__", code.co_kwonlyargcount)):
            if count:
                given = getattr(function, name)
                self.read(getattr, function, name, given)
                found += [self.key_of(given)] if given else []
        return found

    def _root(self, one: ReadOfName, function: types.FunctionType, cells: dict[str, Any], first: Any) -> Hashable:
        """The key of one value that a function reads by name."""
        how: Callable[[Any, Any], Any]
        if one.kind == "global":
            variables = function.__globals__
            if one.name not in variables:
                return self._of_python_itself(one, function)
            how, where, name = dict.get, variables, one.name
        elif one.kind == "free":
            if one.name not in cells:
                return None
            how, where, name = getattr, cells[one.name], "cell_contents"
            if in_cell(where) is NOTHING:
                self.read(in_cell, where, None, NOTHING)
                return None
        elif one.kind == "import":
            module = sys.modules.get(one.name)
            how, where, name = dict.get, sys.modules, one.name
            if module is None:
                return None
        else:
            return None if first is NOTHING else self.walk(first, one.chain)
        value = how(where, name)
        self.read(how, where, name, value)
        if isinstance(value, types.ModuleType) and not self.followed(value.__name__):
            return self.outside(value, one.chain)
        return self.walk(value, one.chain)

    def _of_python_itself(self, one: ReadOfName, function: types.FunctionType) -> Hashable:
        """A name that no variable of the module has, yet: a function of Python's, or what somebody put next to them."""
        self._of_python.setdefault((function.__globals__,), (function.__globals__, set()))[1].add(one.name)
        if one.name in _ANYTHING:
            self.fail(f"variables by {one.name}()")
        if one.name in outside.ASKS:
            self.unknown(f"{one.name}()")
        variables = _of_python(function)
        value = variables.get(one.name)
        self.asks_identity = self.asks_identity or value is id
        if getattr(value, "__module__", None) == "builtins" or one.name in _CONSTANTS:
            return None
        self.read(dict.get, variables, one.name, value)
        return self.walk(value, one.chain)


#: Names of Python itself that are no functions or classes.
_CONSTANTS = ("Ellipsis", "NotImplemented", "__debug__", "__name__", "__doc__", "__build_class__")


def _of_python(function: types.FunctionType) -> dict[str, Any]:
    """What a function finds where its module has no variable of a name."""
    found: dict[str, Any] = _BUILTINS(function)
    return found


def _named_as(function: types.FunctionType) -> str:
    """The name that code has which calls a function: that of the class, where it makes an object."""
    *around, name = function.__qualname__.split(".")
    return around[-1] if around and name in ("__init__", "__new__") else name


def _layout_of(array: np.ndarray, _: Any = None) -> Entries:
    """How an array lies in memory, and whether it may be written to."""
    return Entries((array.flags.num, str(array.strides)))
