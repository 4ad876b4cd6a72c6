"""What a kernel's function reads besides its parameters: closures, globals, attributes, helpers and what these read.

Such values become constants of the traced kernel, so a kernel must be traced again when one of them has changed.
``captured`` finds them from the bytecode of the function and of every function that it can reach, and remembers each
with the value that it has now. Asking whether all of them are ``unchanged`` takes a fraction of a microsecond.

An attribute that is named, ``self.gamma`` or ``settings.alpha``, is compared by itself. An object that is passed on as
a whole is compared with all that it holds, an array by its bytes. NumPy, SciPy and the standard library are not
followed. What cannot be compared, or holds more than ``MOST`` values, makes ``comparable`` False: a kernel that reads
it is traced every time. Arrays may hold more; beyond ``MOST_BYTES`` in all a warning says what comparing them costs.
"""

from __future__ import annotations

import contextvars
import enum
import functools
import hashlib
import numbers
import sys
import types
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from meshloom.kernel.bytecode import ReadOfName, reads_of

MOST = 10_000  # values that are compared at every call
MOST_BYTES = 2**20  # of arrays that are compared at every call without a word
_UNFOLLOWED = frozenset({*sys.stdlib_module_names, "numpy", "scipy", "cupy"} - {"__main__"})
_RANDOM = ("random", "numpy.random", "secrets")  # modules of random numbers
_TRACER = f"{__name__.rpartition('.')[0]}."  # modules beside this one
_ATOMS = (type(None), type(Ellipsis), bool, int, str, bytes)
_TABLES = (dict, types.MappingProxyType)
#: What a class may hold that a kernel can use; the rest is Python's own machinery.
_HELD = (*_ATOMS, numbers.Number, np.ndarray, np.generic, tuple, list, *_TABLES, set, frozenset, types.FunctionType,
         type, staticmethod, classmethod, property, functools.cached_property, functools.partial)  # fmt: skip
#: Methods of a class that say nothing about values.
_SILENT = ("__repr__", "__str__", "__format__", "__hash__", "__del__", "__reduce__", "__reduce_ex__", "__getstate__",
           "__setstate__", "__set_name__", "__setattr__", "__delattr__", "__post_init__")  # fmt: skip
#: Functions of Python that reach any variable by its name.
_ANYTHING = ("globals", "eval", "exec")
_NOTHING: Any = object()

#: How to compare objects of the package that nobody should look into: a function gives an array that stands for one.
_stand_ins: dict[type, Callable[[Any], Any]] = {}


def compare_by(what: Callable[[Any], Any] | None, *types_: type) -> None:
    """An object of these types is the same as long as the array ``what(object)`` is; None: always."""
    for one in types_:
        _stand_ins[one] = what or Same


@dataclass(frozen=True, eq=False)
class Captured:
    """Values as they were. ``key`` is equal for equal values; ``culprit`` names what cannot be compared, if any."""

    key: Hashable
    reads: tuple[tuple[Callable[[Any, Any], Any], Any, Any, Any], ...]  # how, where, name, value
    arrays: tuple[tuple[np.ndarray, np.dtype, tuple[int, ...], bytes], ...]  # with the content that each had
    culprit: str
    suspect: tuple[str, str] = ("", "")  # the first of what may draw random numbers, if it is used: file:line, what

    @property
    def comparable(self) -> bool:
        return not self.culprit

    @property
    def array_bytes(self) -> int:
        """What comparing arrays has to look at."""
        return sum(len(content) for *_, content in self.arrays)

    def unchanged(self) -> bool:
        """Is every value what it was? False also where that takes a closer look."""
        return not self.culprit and self.holds()

    def holds(self, replaced: Mapping[Any, Any] = MappingProxyType({})) -> bool:
        """The same of those values that can be compared. ``replaced``: objects (by what they were) that others may have
        taken the place of."""
        try:
            for read, where, name, before in self.reads:
                now = read(where, name)
                if now is not before and not same(now, before, replaced):
                    return False
            for array, dtype, shape, content in self.arrays:
                if array.tobytes() != content or array.dtype != dtype or array.shape != shape:
                    return False
        except Exception:  # a name that is gone, a property that fails: tracing will tell
            return False
        return True

    def first_changed(self) -> str:
        """The name of a value that is not what it was, as far as it has one."""
        for read, where, name, before in self.reads:
            try:
                now = read(where, name)
            except Exception:  # a property of the user's may raise anything; that it does is the change
                now = _NOTHING
            if now is not before and not same(now, before):
                return str(name) if isinstance(name, str) and name != "cell_contents" else type(before).__name__
        return "an array"


def captured(function: Callable[..., Any], survey: Survey | None = None) -> Captured:
    """What a function reads, with the values of now. ``survey``: a new one that looks further than for a kernel."""
    survey = Survey() if survey is None else survey
    key = survey.key_of(function)
    once = {(how, id(where), id(name)): (how, where, name, value) for how, where, name, value in survey.reads}
    return Captured(key, tuple(once.values()), tuple(survey.arrays), survey.culprit, survey.suspect)


def same(one: Any, other: Any, replaced: Mapping[Any, Any] = MappingProxyType({})) -> bool:
    """Are two values the same for a kernel? Numbers by type and value, 0.0 apart from -0.0, NaN equal to NaN; ``one``
    may be what ``replaced`` has for the ``other``."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float | complex | np.generic):
        return repr(one) == repr(other)
    if isinstance(one, _ATOMS):
        return bool(one == other)
    if isinstance(one, np.ndarray):
        return one.dtype != object and _content(one) == _content(other)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(
            a is b or same(a, b, replaced) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, types.BuiltinMethodType):  # made anew whenever it is asked for
        return one.__self__ is other.__self__ and one.__qualname__ == other.__qualname__
    if isinstance(one, types.MethodType):
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return bool(replaced) and replaced.get(other) is one


class RandomDraw(Exception):
    """A function draws random numbers at ``place`` (file:line), by ``what``."""

    def __init__(self, place: str, what: str):
        super().__init__(f"{place}: {what}")
        self.place, self.what = place, what


def is_random(value: Any) -> bool:
    """Is it a generator of random numbers, a method of one, or of a module that is for them?"""
    owner = getattr(value, "__self__", None)
    names = [type(value).__module__, type(owner).__module__, getattr(value, "__module__", None)]
    if isinstance(value, types.ModuleType) or isinstance(owner, types.ModuleType):
        names.append((owner if isinstance(owner, types.ModuleType) else value).__name__)
    if getattr(value, "__name__", "") == "rvs":  # of scipy.stats
        names.append(_RANDOM[0])
    return any(isinstance(one, str) and (one in _RANDOM or one.startswith("numpy.random.")) for one in names)


class Same:
    """An object as part of a key: equal to itself alone. Keys are kept for a while: they keep alive only what cannot be
    referred to weakly, which is small; once it is gone, nothing is equal to it, whatever takes its place."""

    __slots__ = ("_address", "_what")

    def __init__(self, what: Any):
        self._address = id(what)
        try:
            self._what: Callable[[], Any] = weakref.ref(what)
        except TypeError:
            self._what = lambda: what

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Same) and self._what() is other._what() is not None)

    def __hash__(self) -> int:
        return self._address


def _content(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.str, array.shape, array.tobytes()


def _short(content: tuple[str, tuple[int, ...], bytes]) -> Hashable:
    """The content of an array as part of a key: keys are kept for a while, arrays may be large."""
    kind, shape, values = content
    return kind, shape, values if len(values) < 64 else hashlib.sha256(values).digest()


def _content_of(stand_in: Callable[[Any], np.ndarray], value: Any) -> tuple[str, tuple[int, ...], bytes]:
    return _content(stand_in(value))


def _entries(holder: Any, _: Any = None) -> tuple[Any, ...]:
    """What a container holds, in order; of a dictionary the keys, then the values."""
    if isinstance(holder, np.ndarray):
        return tuple(holder.ravel().tolist())
    return (*holder, *holder.values()) if isinstance(holder, _TABLES) else tuple(holder)


def _names(holder: Any, _: Any = None) -> tuple[str, ...]:
    return tuple(holder.__dict__)


class Survey:
    """Collects reads, and makes the key of what is found. Objects that were met before are named by their number.

    ``depth``: how many objects that are passed on as a whole are around what is looked at. Nobody knows which of their
    methods and attributes are used, so what is found there may not be used at all."""

    #: Methods of objects, not of classes, that say nothing either: those that make them.
    constructors: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.reads: list[tuple[Callable[[Any, Any], Any], Any, Any, Any]] = []
        self.arrays: list[tuple[np.ndarray, np.dtype, tuple[int, ...], bytes]] = []
        self.culprit, self.too_many = "", False
        self.suspect, self.depth = ("", ""), 0
        self.place = ""  # file:line of the read that is followed
        self._count = 0
        self._met: dict[Any, tuple[str, int]] = {}
        self._keep: list[Any] = []  # so that no address is used twice while the survey lasts

    def read(self, how: Callable[[Any, Any], Any], where: Any, name: Any, value: Any) -> None:
        self.reads.append((how, where, name, value))
        self._count += len(value) if how is _entries else 1
        if self._count > MOST:
            self.too_many = True
            self.fail(f"more than {MOST:,} values")

    def fail(self, why: str) -> None:
        self.culprit = self.culprit or why

    @property
    def goes_on(self) -> bool:
        """Is there anything to be found still?"""
        return not self.culprit

    def followed(self, module: str) -> bool:
        """Are values of a module, and what its functions read, among those that may change?"""
        return is_followed(module)

    def counts(self, read: ReadOfName, function: types.FunctionType) -> bool:
        """May what a function reads by a name change?"""
        return True

    def outside(self, value: Any, chain: tuple[str, ...] = ()) -> None:
        """``value.a.b`` of a module, or a function, that is not followed, is read."""
        name = ".".join([str(getattr(value, "__name__", "")), *chain])
        for one in (*chain, ""):
            if is_random(value):
                self.random(name)
            value = getattr(value, one, None)

    def random(self, what: str) -> None:
        """Random numbers are drawn at ``self.place``; in the depth of an object they may be."""
        if not self.depth:
            raise RandomDraw(self.place, what)
        self.suspect = self.suspect if self.suspect[1] else (self.place, what)

    def _again(self, *what: Any) -> tuple[str, int] | None:
        """How to name objects that were met before; None, and remembered, where they were not."""
        address = tuple(map(id, what))
        if address in self._met:
            return self._met[address]
        self._met[address] = ("met", len(self._met))
        self._keep.append(what)
        return None

    # ----- values -------------------------------------------------------------------------------------------------
    def key_of(self, value: Any) -> Hashable:
        """The key of a value with all that it holds."""
        kind = type(value)
        if kind in _ATOMS:
            return kind, value
        if isinstance(value, np.generic):
            return "number", value.dtype.str, value.tobytes()
        if isinstance(value, numbers.Number) and not hasattr(value, "__dict__"):
            return kind, repr(value)
        if kind in (range, slice):
            return kind, repr(value)
        if isinstance(value, np.dtype | np.ufunc):
            return Same(value)
        if not self.goes_on:
            return None
        if is_random(value):
            self.random(getattr(value, "__name__", type(value).__name__))
            return Same(value)
        return self._again(value) or self.mutable(value)

    def mutable(self, value: Any) -> Hashable:
        stand_in = next((_stand_ins[one] for one in type(value).__mro__ if one in _stand_ins), None)
        if stand_in is not None:
            if stand_in is Same:
                return Same(value)
            content = _content_of(stand_in, value)
            self.read(_content_of, stand_in, value, content)
            return Same(value), _short(content)
        if isinstance(value, numbers.Number | str | bytes):
            return self.key_of(type(value)), repr(value), self._added(value)
        if isinstance(value, np.ndarray):
            return self._array(value), self._added(value)
        if isinstance(value, (tuple, list, *_TABLES, set, frozenset)):
            return self._container(value)
        if isinstance(value, enum.Enum):
            return Same(value), self.key_of(value._value_)
        if isinstance(value, weakref.ref):
            return "reference", self.key_of(value())
        if isinstance(value, contextvars.ContextVar):
            self.read(_in_context, value, None, _in_context(value))
            return "variable", self.key_of(_in_context(value))
        return self._callable(value)

    def _container(self, value: Any) -> Hashable:
        """Its entries, and what a class of its own adds."""
        entries = _entries(value)
        if not isinstance(value, tuple):
            self.read(_entries, value, None, entries)
        found = tuple(map(self.key_of, entries))
        listed = frozenset(found) if isinstance(value, set | frozenset) else found
        return self.key_of(type(value)), listed, self._added(value)

    def _added(self, value: Any) -> Hashable:
        """What an object of a class derived from Python's or NumPy's has besides."""
        return self.key_of(value.__dict__) if hasattr(value, "__dict__") else None

    def _callable(self, value: Any) -> Hashable:
        if isinstance(value, functools.partial):
            return "partial", self.key_of(value.func), self.key_of(value.args), self.key_of(value.keywords)
        if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):  # such as entries.get
            owner = value.__self__
            if owner is None or isinstance(owner, types.ModuleType):
                return Same(value)
            return "method", value.__name__, self.key_of(owner)
        if isinstance(value, types.MethodType):
            inner: Any = value.__func__
            return "method", self.function(inner, value.__self__)
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, types.ModuleType):
            return self._module(value)
        return self.object_key(value)

    def _array(self, array: np.ndarray) -> Hashable:
        if array.dtype != object:
            _, shape, values = content = _content(array)
            self.arrays.append((array, array.dtype, shape, values))
            return _short(content)
        entries = tuple(array.ravel().tolist())
        self.read(_entries, array, None, entries)
        return array.shape, *map(self.key_of, entries)

    def _module(self, module: types.ModuleType) -> Hashable:
        """A module that is passed on: all that it holds but other modules."""
        if not self.followed(module.__name__):
            return Same(module)
        held = {n: v for n, v in vars(module).items() if not n.startswith("__") and _is_held(v)}
        self.read(_names, module, None, tuple(vars(module)))
        for name, value in held.items():
            self.read(getattr, module, name, value)
        return module.__name__, tuple((name, self.key_of(value)) for name, value in held.items())

    def object_key(self, value: Any) -> Hashable:
        """Any other object: its attributes, and what its class holds."""
        self.depth += 1
        try:
            return self._looked_into(value)
        finally:
            self.depth -= 1

    def _looked_into(self, value: Any) -> Hashable:
        wrapped = getattr(value, "__wrapped__", None)
        if isinstance(wrapped, types.FunctionType):  # functools.cache, decorators that are objects
            return "wrapped", self.key_of(wrapped)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, staticmethod | classmethod):
            return "method", self.key_of(value.__func__)
        if isinstance(value, property | functools.cached_property):
            return "property", self.key_of(value.fget if isinstance(value, property) else value.func)
        if type(value).__module__ == "_thread":  # locks
            return Same(value)
        slots = [n for c in type(value).__mro__ for n in _listed(getattr(c, "__slots__", ())) if hasattr(value, n)]
        if not hasattr(value, "__dict__") and not slots:
            if callable(value) and not self.followed(type(value).__module__):  # such as tuple.__new__
                return Same(value)
            self.fail(f"an object of type {type(value).__module__}.{type(value).__qualname__}")
            return None
        names = list(dict.fromkeys([*slots, *getattr(value, "__dict__", ())]))
        if hasattr(value, "__dict__"):
            self.read(_names, value, None, tuple(value.__dict__))
        return self._class_of(type(value)), tuple((name, self.walk(value, (name,))) for name in names)

    def _class_of(self, kind: type) -> Hashable:
        """The class of an object that is there, which its constructors have made."""
        return self._again(kind, "class of an object") or self._class(kind, self.constructors, self._class_of)

    def _class(
        self, value: type, silent: tuple[str, ...] = (), of_base: Callable[[type], Hashable] | None = None
    ) -> Hashable:
        """What methods of a class read, but for the ``silent`` ones, and its own data; ``of_base``: the same of one
        that it is derived from."""
        if not self.followed(value.__module__) or issubclass(value, enum.Enum):
            return Same(value)
        held = {n: v for n, v in vars(value).items() if not (n.startswith("__") and n.endswith("__")) or
                (n not in (*_SILENT, *silent) and isinstance(v, types.FunctionType))}  # fmt: skip
        held = {n: v for n, v in held.items() if _is_held(v)}
        self.read(_names, value, None, tuple(vars(value)))
        for name, one in held.items():
            self.read(_class_entry, value, name, one)
        bases = tuple((of_base or self.key_of)(base) for base in value.__bases__)
        return Same(value), tuple((name, self.key_of(one)) for name, one in held.items()), bases

    # ----- functions ----------------------------------------------------------------------------------------------
    def walk(self, value: Any, chain: tuple[str, ...]) -> Hashable:
        """The key of ``value.a.b.c``: only the last one counts with all that it holds."""
        for number, name in enumerate(chain):
            if isinstance(value, types.ModuleType) and not self.followed(value.__name__):
                self.outside(value, chain[number:])
                return Same(value)
            if isinstance(value, (np.ndarray, list, tuple, *_TABLES, set, numbers.Number, str)):
                break
            try:
                inner = getattr(value, name)
            except Exception:  # it will fail in the kernel, too
                break
            self.read(getattr, value, name, inner)
            value = inner
        return self.key_of(value)

    def function(self, function: types.FunctionType, first: Any = _NOTHING) -> Hashable:
        """The key of a function: its code, its defaults and what it reads. ``first``: its first argument if known."""
        if not self.followed(function.__module__ or ""):
            self.outside(function)
            return Same(function)
        again = self._again(function, first)
        if again:
            return again
        code = function.__code__
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        self.read(getattr, function, "__code__", code)
        defaults = function.__defaults__, function.__kwdefaults__
        key: list[Hashable] = [code]
        for name, given in zip(("__defaults__", "__kwdefaults__"), defaults, strict=True):
            if given:
                self.read(getattr, function, name, given)
                key.append(self.key_of(given))
        for one in reads_of(code):
            if self.goes_on and self.counts(one, function):
                self.place = f"{code.co_filename}:{one.line}"
                key.append((one.name, one.chain, self._root(one, function, cells, first)))
        return tuple(key)

    def _root(self, one: ReadOfName, function: types.FunctionType, cells: dict[str, Any], first: Any) -> Hashable:
        """The key of one value that a function reads by name."""
        how: Callable[[Any, Any], Any]
        if one.kind == "global":
            if one.name not in function.__globals__:
                if one.name in _ANYTHING:
                    self.fail(f"variables by {one.name}()")
                return None  # of Python itself, or an error when the kernel is traced
            how, where, name = dict.get, function.__globals__, one.name
        elif one.kind == "free":
            if one.name not in cells:
                return None
            how, where, name = getattr, cells[one.name], "cell_contents"
        elif one.kind == "import":
            module = sys.modules.get(one.name)
            return None if module is None else self.walk(module, one.chain)
        else:
            return None if first is _NOTHING else self.walk(first, one.chain)
        try:
            value = how(where, name)
        except ValueError:  # an empty cell
            return None
        if isinstance(value, types.ModuleType) and not self.followed(value.__name__):
            self.outside(value, one.chain)
            return None
        self.read(how, where, name, value)
        return self.walk(value, one.chain)


def _in_context(variable: contextvars.ContextVar[Any], _: Any = None) -> Any:
    return variable.get(None)


def _is_held(value: Any) -> bool:
    return isinstance(value, _HELD) or is_followed(type(value).__module__)


def _class_entry(one: type, name: str) -> Any:
    return one.__dict__[name]


def _listed(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def is_followed(module: str) -> bool:
    """Is a module one whose values may change: not NumPy's, SciPy's, Python's own or the tracer's?"""
    return module.partition(".")[0] not in _UNFOLLOWED and not module.startswith(_TRACER)
