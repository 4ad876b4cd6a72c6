"""When are two values the same for a kernel or a program? Numbers by type and bits, containers by what they hold, all
else by being itself."""

from __future__ import annotations

import hashlib
import itertools
import struct
import types
import weakref
from collections.abc import Callable, Hashable, Mapping
from operator import is_
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar

import numpy as np

#: Types of values that cannot change and are equal where they cannot be told apart, ``is`` aside.
ATOMS = (type(None), type(Ellipsis), bool, int, str, bytes)
TABLES = (dict, types.MappingProxyType)
_NUMBERS = (float, complex)
_METHODS = (types.BuiltinMethodType, types.MethodWrapperType)
_REAL: Any = complex.real.__get__  # whatever a derived class calls so
_IMAG: Any = complex.imag.__get__
Content = tuple[str, tuple[int, ...], bytes]  # of an array
V = TypeVar("V")
_serials = itertools.count(1)


class Distinct:
    """What is known by being itself. ``serial``: its number, which no other object of this process has, or gets when it
    is gone: a key names it by that, and does not keep it. A copy, in another process too, has a number of its own."""

    __slots__ = ("serial",)
    serial: int

    def __new__(cls, *_: Any, **__: Any) -> Self:
        made = super().__new__(cls)
        object.__setattr__(made, "serial", next(_serials))  # frozen classes, too
        return made


class Entries(tuple[Any, ...]):
    """What an object holds, listed anew at every look."""

    __slots__ = ()


class Same:
    """An object as part of a key: equal to itself alone. Keys are kept for a while: they keep alive only what cannot be
    referred to weakly, which is small; once it is gone, nothing is equal to it, whatever takes its place."""

    __slots__ = ("_hash", "_what")

    def __init__(self, what: Any):
        self._hash = object.__hash__(what)
        try:
            self._what: Callable[[], Any] = weakref.ref(what)
        except TypeError:
            self._what = lambda: what

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Same) and self._what() is other._what() is not None)

    def __hash__(self) -> int:
        return self._hash


class IdentityDict(Generic[V]):
    """Values by objects, by one or several of them, each equal to itself alone. For a walk over objects of any kind: it
    holds them, so that no other one gets the address of one that was met."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[tuple[int, ...], tuple[tuple[Any, ...], V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def setdefault(self, objects: tuple[Any, ...], value: V) -> V:
        """The value of these objects: this one, where they have none yet."""
        return self._entries.setdefault(tuple(map(id, objects)), (objects, value))[1]

    def values(self) -> list[V]:
        return [value for _, value in self._entries.values()]


def is_number(value: Any) -> bool:
    """Is it a float or complex number of Python's, or a scalar of NumPy's that cannot change?"""
    kind = type(value)
    return kind in _NUMBERS or (isinstance(value, np.generic) and kind.__module__ == "numpy" and kind is not np.void)


def bits(value: Any) -> Hashable:
    """What tells such a number, or one of a class derived from Python's, from others: the sign of NaN and of 0, too."""
    if not isinstance(value, np.generic):
        parts = (_REAL(value), _IMAG(value)) if isinstance(value, complex) else (value,)
        return struct.pack(f"{len(parts)}d", *parts)
    if value.dtype.char in "gG":  # whose bytes have gaps
        return value.dtype.str, repr(value), bool(np.signbit(value.real)), bool(np.signbit(value.imag))
    return value.dtype.str, value.tobytes()


def is_nan(value: Any) -> bool:
    """Not a number: ``x in values`` finds such a number by its identity."""
    return bool(value != value)


def content_of(array: np.ndarray) -> Content:
    """Type, shape and bytes of an array of anything but objects."""
    return kind_of(array.dtype), array.shape, array.tobytes()


def kind_of(dtype: np.dtype) -> str:
    """A type of NumPy's, with the names and types of its fields where it has any."""
    return dtype.str if dtype.names is None else repr(dtype)


def shortened(content: Content) -> Hashable:
    """The content of an array as part of a key: keys are kept for a while, arrays may be large."""
    kind, shape, values = content
    return kind, shape, values if len(values) < 64 else hashlib.sha256(values).digest()


def same(one: Any, other: Any, replaced: Mapping[Any, Any] = MappingProxyType({})) -> bool:
    """Are two values the same for a kernel? Numbers by type and bits, lists and arrays by what they hold; ``one`` may
    be what ``replaced`` has for the ``other``. False also where that takes a closer look: another NaN, a list of a
    class of its own."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is list or kind is Entries or _is_plain_tuple(kind):
        return len(one) == len(other) and (
            all(map(is_, one, other)) or all(a is b or same(a, b, replaced) for a, b in zip(one, other, strict=True))
        )
    if kind is np.ndarray:
        return not one.dtype.hasobject and content_of(one) == content_of(other)
    return _same_atom(one, other, replaced)


def identical(one: Any, other: Any, replaced: Mapping[Any, Any] = MappingProxyType({})) -> bool:
    """The same for a function that asks ``is``: numbers and texts by value, all else by being itself."""
    if type(one) is type(other) is Entries:
        return len(one) == len(other) and (
            all(map(is_, one, other))
            or all(a is b or identical(a, b, replaced) for a, b in zip(one, other, strict=True))
        )
    return _same_atom(one, other, replaced)


def _same_atom(one: Any, other: Any, replaced: Mapping[Any, Any]) -> bool:
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in ATOMS:
        return bool(one == other)
    if is_number(one):
        return bits(one) == bits(other) and not is_nan(one)
    if kind in _METHODS:  # made anew whenever it is asked for
        return one.__self__ is other.__self__ and one.__qualname__ == other.__qualname__
    if kind is types.MethodType:
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return bool(replaced) and replaced.get(other) is one


def _is_plain_tuple(kind: type) -> bool:
    """A tuple, or one with names for its entries, and nothing else."""
    if kind is tuple or not issubclass(kind, tuple):
        return kind is tuple
    return hasattr(kind, "_fields") and kind.__basicsize__ == tuple.__basicsize__ and kind.__dictoffset__ == 0
