"""Values that functions read, and all that they hold: a key of each, and what there is to compare."""

from __future__ import annotations

import contextvars
import enum
import functools
import io
import logging
import numbers
import threading
import types
import weakref
from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator
from operator import attrgetter, itemgetter, methodcaller
from typing import Any

import numpy as np

from meshloom.kernel import c_state
from meshloom.kernel.c_state import CACHE, CONTAINERS, LOCKS, NOTHING, entries_of
from meshloom.kernel.notes import Notes
from meshloom.kernel.outside import asked, changing, homes_of, is_followed, is_random, module_of
from meshloom.kernel.sameness import ATOMS, TABLES, Entries, Same, bits, content_of, is_nan, is_number, shortened

MOST_BYTES = 2**20  # of arrays that are compared at every call without a word
_PACKAGE = __name__.partition(".")[0]
#: What a class may hold that a kernel can use; of the rest, which is Python's own machinery, only what code names.
_HELD = (*ATOMS, numbers.Number, np.ndarray, np.generic, *CONTAINERS, types.FunctionType, type, staticmethod,
         classmethod, property, functools.cached_property, functools.partial, CACHE)  # fmt: skip
#: What members of an enumeration have of its class, besides themselves.
_OF_MEMBERS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
#: Methods of a class that say nothing about values.
_SILENT = ("__repr__", "__str__", "__format__", "__hash__", "__del__", "__reduce__", "__reduce_ex__", "__getstate__",
           "__setstate__", "__set_name__", "__setattr__", "__delattr__", "__post_init__")  # fmt: skip
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_CALLERS = (itemgetter, attrgetter, methodcaller)
#: What code is made of: where a cached function reads nothing else, what it computes cannot change.
_CODE = (types.CodeType, types.FunctionType, types.ModuleType, type, types.BuiltinFunctionType)

#: How to compare objects of the package that nobody should look into: a function gives an array that stands for one.
_stand_ins: dict[type, Callable[[Any], Any]] = {}


def compare_by(what: Callable[[Any], Any] | None, *types_: type) -> None:
    """An object of these types is the same as long as the array ``what(object)`` is; None: always."""
    for one in types_:
        _stand_ins[one] = what or Same


class ValueSurvey(Notes):
    """Makes keys of values, and notes what they hold."""

    #: Methods of objects, not of classes, that say nothing either: those that make them.
    constructors: tuple[str, ...] = ()

    def __init__(self, by_identity: bool = False) -> None:
        super().__init__(by_identity)
        self.decimals = False  # is anything computed with decimal numbers?
        self.telling: list[tuple[str, Any, str]] = []  # attributes that tell more than is compared: name, path, place
        self.unheld: list[tuple[str, Any, Any, str]] = []  # of classes and modules: name, value, path, place

    @abstractmethod
    def followed(self, module: str) -> bool:
        """Are values of a module, and what its functions read, among those that may change?"""

    def follows(self, function: types.FunctionType) -> bool:
        """Is a function, or who it stands for, of a module that is followed?"""
        return any(map(self.followed, homes_of(function)))

    @abstractmethod
    def outside(self, value: Any, chain: tuple[str, ...] = ()) -> Hashable:
        """``value.a.b`` of a module, or a function, that is not followed, is read. Its key, if it is a number."""

    @abstractmethod
    def unknown(self, what: str) -> None:
        """A function reads what nobody follows, such as a file; in the depth of an object perhaps."""

    @abstractmethod
    def walk(self, value: Any, chain: tuple[str, ...]) -> Hashable:
        """The key of ``value.a.b.c``: only the last one counts with all that it holds."""

    @abstractmethod
    def function(self, function: types.FunctionType, first: Any = NOTHING) -> Hashable:
        """The key of a function: its code, its defaults and what it reads. ``first``: its first argument if known."""

    # ----- values -------------------------------------------------------------------------------------------------
    def key_of(self, value: Any) -> Hashable:
        """The key of a value with all that it holds."""
        kind = type(value)
        if kind in ATOMS:
            return kind, value
        if is_number(value):
            found: Hashable = (kind, bits(value))
            if not is_nan(value):
                return found
            return (Same(value), found) if self.by_identity else self.again(value) or found
        if kind is range or isinstance(value, np.dtype):
            return kind, repr(value)
        if not self.goes_on:
            return None
        if is_random(value):
            self.random(getattr(value, "__name__", type(value).__name__))
            self.telling += [(name, self.path, self.place) for name in c_state.OF_GENERATORS]
            return Same(value)
        found = self.again(value) or self.mutable(value)
        return (Same(value), found) if self.by_identity else found

    def mutable(self, value: Any) -> Hashable:
        kind = type(value)
        stand_in = next((_stand_ins[one] for one in kind.__mro__ if one in _stand_ins), None)
        if stand_in is not None:
            return Same(value) if stand_in is Same else self._by_stand_in(stand_in, value)
        if kind in weakref.ProxyTypes or isinstance(value, weakref.ref):  # comparing would keep alive what it refers to
            self.fail("a weak reference")
            return Same(value)
        if isinstance(value, enum.Enum):
            own = [name for name in value.__dict__ if not name.startswith("_")]
            found = self.key_of(value._value_), self._extra(value) if own else None
            return Same(value), *found, self._class_of(type(value))
        if isinstance(value, np.ndarray):
            return self._array(value), self._extra(value)
        if c_state.has_bytes(value):
            return self._bytes(value)
        if isinstance(value, CONTAINERS):
            return self._container(value)
        number = bits(value) if isinstance(value, np.generic) else c_state.own_value(value)
        if number is not NOTHING:
            self.decimals = self.decimals or kind.__module__ == "decimal"
            return self.key_of(kind), number, self._extra(value)
        if isinstance(value, contextvars.ContextVar | types.CellType):
            how: Any = c_state.in_context if isinstance(value, contextvars.ContextVar) else c_state.in_cell
            self.read(how, value, None, how(value))
            return "variable", self.key_of(how(value))
        if isinstance(value, Iterator) and c_state.hides_state(kind) and not isinstance(value, io.IOBase):
            self.iterator(value)
        return self._callable(value)

    def iterator(self, value: Iterator[Any]) -> None:
        """An iterator is another one after each look."""
        if not self.depth:
            self.unrepeatable(f"reads an iterator ({type(value).__name__})")

    def _by_stand_in(self, stand_in: Callable[[Any], np.ndarray], value: Any) -> Hashable:
        content = _content_of(stand_in, value)
        self.read(_content_of, stand_in, value, content)
        return Same(value), shortened(content)

    def _container(self, value: Any) -> Hashable:
        """Its entries, and what a class of its own adds."""
        if isinstance(value, tuple) and hasattr(type(value), "n_unnamed_fields"):  # time.struct_time and its like
            return Same(value)
        try:
            entries = entries_of(value)
        except Exception:  # its class may say anything about what it holds
            return self._uncomparable(value)
        if not isinstance(value, tuple):
            self.read(entries_of, value, None, entries)
        found = tuple(self._entry_keys(entries, isinstance(value, TABLES)))
        listed = frozenset(found) if isinstance(value, set | frozenset) else found
        return self.key_of(type(value)), listed, self._extra(value)

    def _entry_keys(self, entries: Entries, is_table: bool) -> list[Hashable]:
        """The keys of entries; of a table's each of the second half is found by one of the first."""
        outer, found, half = self.path, [], len(entries) // 2 if is_table else 0
        for number, entry in enumerate(entries):
            if number >= half:
                self.path = (outer, "[", entries[number - half] if is_table else number)
            found.append(self.key_of(entry))
        self.path = outer
        return found

    def _array(self, array: np.ndarray) -> Hashable:
        if array.dtype == object:
            entries = entries_of(array)
            self.read(entries_of, array, None, entries)
            return self.key_of(type(array)), tuple(map(self.key_of, entries))
        if array.dtype.hasobject:
            self.fail("an array with objects among its fields")
            return Same(array)
        plain = array if type(array) is np.ndarray else array.view(np.ndarray)
        content = content_of(plain)
        self.read_array(plain, content[-1])
        if plain is not array:  # whose shape and type a view does not follow
            self.read(_form_of, array, None, _form_of(array))
        return shortened(content)

    def _bytes(self, value: Any) -> Hashable:
        """An array of Python's, or an entry of one of NumPy's that has fields."""
        kind = type(value)
        try:
            content = c_state.bytes_of(value)
        except (ValueError, BufferError):  # a view that was released
            content = Entries(("", "", b""))
        if len(content[-1]) > MOST_BYTES or (isinstance(value, np.void) and value.dtype.hasobject):
            return self._uncomparable(value)
        self.read(c_state.bytes_of, value, None, content)
        return self.key_of(kind), shortened(tuple(content)), self._extra(value)

    def _extra(self, value: Any) -> Hashable:
        """What an object of a class derived from Python's or NumPy's has besides."""
        found: list[Hashable] = []
        if isinstance(value, defaultdict):
            found.append(self.walk_attribute(value, "default_factory"))
        if isinstance(value, deque):
            found.append(value.maxlen)
        if hasattr(value, "__dict__"):
            found.append(self.attributes(value.__dict__))
        return (*found, *self._slots(value))

    def attributes(self, holder: dict[str, Any]) -> Hashable:
        """Attributes in their dictionary."""
        self.read(entries_of, holder, None, entries_of(holder))
        return tuple([(name, self._attribute_key(name, value)) for name, value in holder.items()])

    def _slots(self, value: Any) -> list[Hashable]:
        return [(name, self.walk_attribute(value, name)) for name in c_state.slots_of(type(value))]

    def walk_attribute(self, value: Any, name: str) -> Hashable:
        """The key of an attribute, which may not be there."""
        inner = _attribute(value, name)
        self.read(getattr if inner is not NOTHING else _attribute, value, name, inner)
        return None if inner is NOTHING else self._attribute_key(name, inner)

    # ----- what can be called, and other objects ------------------------------------------------------------------
    def _callable(self, value: Any) -> Hashable:
        if isinstance(value, functools.partial):
            parts = [self.walk(value, (name,)) for name in ("func", "args", "keywords")]
            return self.key_of(type(value)), *parts, self._extra(value) if value.__dict__ else None
        if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):  # such as entries.get
            return self._builtin(value)
        if isinstance(value, types.MethodType):
            return self._method(value)
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, types.ModuleType):
            return self._module(value)
        return self.object_key(value)

    def _builtin(self, value: Any) -> Hashable:
        """A function of C, or a method that is bound to an object."""
        owner = value.__self__
        if changing(value):
            self.unrepeatable(changing(value))
        if owner is None or isinstance(owner, types.ModuleType):
            if not is_followed(module_of(value)):
                self.outside(value)
            return Same(value)
        if isinstance(owner, LOCKS):
            self.telling.append((value.__name__, self.path, self.place))
        outer = self.path
        self.path = outer[0] if outer is not None and outer[1] == "." else outer
        found = "method", value.__name__, self.key_of(owner)
        self.path = outer
        return found

    def _method(self, value: types.MethodType) -> Hashable:
        inner, owner = value.__func__, value.__self__
        if not isinstance(inner, types.FunctionType):  # such as a cached one
            return "method", self.key_of(inner), self.key_of(owner)
        if self.follows(inner):
            return "method", self.function(inner, owner)
        if isinstance(owner, logging.Logger) and inner.__name__ in c_state.SAYS:
            return Same(owner)
        self.outside(inner)
        return "method", Same(inner), self.key_of(owner)

    def _module(self, module: types.ModuleType) -> Hashable:
        """A module that is passed on: all that it holds but other modules."""
        if not self.followed(module.__name__):
            return Same(module)
        held = {n: v for n, v in vars(module).items() if not n.startswith("__") and self._is_held(n, v)}
        self.read(names_of, module, None, names_of(module))
        for name, value in held.items():
            self.read(getattr, module, name, value)
        return module.__name__, tuple((name, self.key_of(value)) for name, value in held.items())

    def _is_held(self, name: str, value: Any) -> bool:
        """Is it something that a class or module holds for functions to use? What is left out counts where code has
        its name."""
        if isinstance(value, _HELD) or is_followed(type(value).__module__):
            return True
        if not isinstance(value, types.ModuleType):
            self.unheld.append((name, value, self.path, self.place))
        return False

    def object_key(self, value: Any) -> Hashable:
        """Any other object: its attributes, and what its class holds."""
        self.depth += 1
        try:
            found = self._special(value)
            return self._looked_into(value) if found is NOTHING else found
        finally:
            self.depth -= 1

    def _special(self, value: Any) -> Hashable:
        """Objects of Python's own types; NOTHING for others."""
        kind, wrapped = type(value), asked(value, "__wrapped__")
        if kind is CACHE:
            return self._cache(value)
        if isinstance(wrapped, types.FunctionType) and not _is_users(kind):
            return "wrapped", self.key_of(wrapped)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, staticmethod | classmethod):
            return "method", self.key_of(value.__func__)
        if isinstance(value, property | functools.cached_property):
            return "property", self.key_of(value.fget if isinstance(value, property) else value.func)
        if kind is super:
            return "super", self.key_of(value.__thisclass__), self.key_of(value.__self__)
        if kind is slice:
            return "slice", *map(self.key_of, (value.start, value.stop, value.step))
        if kind in _VIEWS or isinstance(value, _VIEWS):
            return "view", kind, self.key_of(value.mapping)
        if kind in _CALLERS:
            return "caller", self.key_of(value.__reduce__())
        if isinstance(value, types.GenericAlias | types.UnionType) or kind.__module__ == "typing":
            return Same(value)
        return self._plain(value)

    def _plain(self, value: Any) -> Hashable:
        """Objects that hold nothing to compare, or hold it in a way of their own; NOTHING for others."""
        kind = type(value)
        if kind in LOCKS:
            self.telling += [(name, self.path, self.place) for name in c_state.OF_LOCKS]
            return Same(value)
        if isinstance(value, logging.Logger):
            self.read(c_state.level_of, value, None, c_state.level_of(value))
            return Same(value), c_state.level_of(value)
        if isinstance(value, logging.Handler | logging.Filterer | logging.Formatter):
            return Same(value)
        if kind in c_state.CONSTANT:
            return kind, repr(value), self.key_of(getattr(value, "tzinfo", None))
        if isinstance(value, np.ufunc) and value.__name__.endswith("(vectorized)"):  # by np.frompyfunc
            self.fail(f"a function of Python's as a ufunc, {value.__name__.partition(' ')[0]}")
        of_numpy = kind.__module__.partition(".")[0] in ("numpy", "scipy", "cupy")
        if isinstance(value, np.ufunc) or (callable(value) and of_numpy and c_state.hides_state(kind)):
            return Same(value)
        if self.depth > 1 and c_state.is_only_written(value):
            return Same(value)
        return NOTHING

    def _cache(self, cache: Any) -> Hashable:
        """A function whose results are kept: one that reads what may change may have kept results of before."""
        before = len(self.reads)
        key = "cache", self.key_of(cache.__wrapped__)
        self.telling.append(("cache_info", self.path, self.place))
        if all(isinstance(value, _CODE) for *_, value in self.reads[before:]):
            return key
        kept = c_state.results_kept(cache)
        self.read(c_state.results_kept, cache, None, kept)
        return key, frozenset(map(self.key_of, kept))

    def _looked_into(self, value: Any) -> Hashable:
        """An object with its attributes and its class."""
        kind = type(value)
        if c_state.hides_state(kind) and not isinstance(value, threading.local):
            return self._uncomparable(value)
        names = list(getattr(value, "__dict__", ()))
        if hasattr(value, "__dict__"):
            self.read(names_of, value, None, names_of(value))
        found = (*self._slots(value), *((name, self.walk(value, (name,))) for name in names))
        return self._class_of(kind), Same(value) if is_sentinel(value) else found

    def _uncomparable(self, value: Any) -> Hashable:
        kind = type(value)
        self.fail(f"an object of type {kind.__module__}.{kind.__qualname__}")
        return Same(value)

    def _class_of(self, kind: type) -> Hashable:
        """The class of an object that is there, which its constructors have made."""
        return self.again(kind, "class of an object") or self._class(kind, self.constructors, self._class_of)

    def _class(
        self, value: type, silent: tuple[str, ...] = (), of_base: Callable[[type], Hashable] | None = None
    ) -> Hashable:
        """What methods of a class read, but for the ``silent`` ones, and its own data; ``of_base``: the same of one
        that it is derived from."""
        self.decimals = self.decimals or value.__module__ == "decimal"
        if not self.followed(value.__module__):
            return Same(value)
        if issubclass(value, enum.Enum):
            return self._enum(value)
        held = {n: v for n, v in vars(value).items() if not (n.startswith("__") and n.endswith("__")) or
                (n not in (*_SILENT, *silent) and isinstance(v, types.FunctionType))}  # fmt: skip
        held = {n: v for n, v in held.items() if self._is_held(n, v)}
        self.read(names_of, value, None, names_of(value))
        for name, one in held.items():
            self.read(_class_entry, value, name, one)
        bases = tuple((of_base or self.key_of)(base) for base in value.__bases__)
        return Same(value), tuple((name, self._attribute_key(name, one)) for name, one in held.items()), bases

    def _enum(self, value: type[enum.Enum]) -> Hashable:
        """Its members, and what their methods and properties read."""
        held = {n: v for n, v in vars(value).items() if isinstance(v, _OF_MEMBERS) and self.followed(_home_of(v))}
        self.read(names_of, value, None, names_of(value))
        for name, one in held.items():
            self.read(_class_entry, value, name, one)
        members = tuple([self._attribute_key(one.name, one) for one in value])
        bases = tuple([self._class_of(base) for base in value.__bases__ if base is not enum.Enum])
        return Same(value), members, tuple([(n, self._attribute_key(n, v)) for n, v in held.items()]), bases

    def _attribute_key(self, name: str, value: Any) -> Hashable:
        outer = self.path
        self.path = (outer, ".", name)
        found = self.key_of(value)
        self.path = outer
        return found


def names_of(holder: Any, _: Any = None) -> Entries:
    """What an object, a class or a module is derived from, and the attributes that it has of its own."""
    return Entries((*(holder.__bases__ if isinstance(holder, type) else ()), type(holder), *holder.__dict__))


def _home_of(method: Any) -> str:
    """The module of a method, as a class holds it."""
    names = ("fget",) if isinstance(method, property) else ("__func__", "func")
    return module_of(next(filter(None, [asked(method, name) for name in names]), method))


def _content_of(stand_in: Callable[[Any], np.ndarray], value: Any) -> Entries:
    kind, shape, content = content_of(stand_in(value))
    return Entries((kind, str(shape), content))


def _form_of(array: np.ndarray, _: Any = None) -> Entries:
    return Entries((str(array.shape), repr(array.dtype)))


def _attribute(value: Any, name: str) -> Any:
    return getattr(value, name, NOTHING)


def _class_entry(one: type, name: str) -> Any:
    return one.__dict__[name]


def is_sentinel(value: Any) -> bool:
    """Is it an object of Python's without anything in it, to be told from all others?"""
    kind = type(value)
    held = c_state.hides_state(kind) or c_state.slots_of(kind) or getattr(value, "__dict__", None)
    return not held and not is_followed(kind.__module__)


def _is_users(kind: type) -> bool:
    return is_followed(kind.__module__) and kind.__module__.partition(".")[0] != _PACKAGE
