"""State that Python does not show: what objects of types that were written in C hold besides attributes.

Of an object of a class written in Python all state is in its attributes. One of a type written in C, or of a class
derived from one, may hold more: the text of an ``io.StringIO``, the place of an iterator. ``hides_state`` sees that by
the size of the type. Types that are listed here hold nothing that could change, or say what they hold; of all others
nobody knows, so what reads them cannot be compared.
"""

from __future__ import annotations

import array
import collections
import contextvars
import datetime
import decimal
import fractions
import functools
import gc
import io
import logging
import re
import struct
import threading
import types
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from meshloom.kernel.sameness import TABLES, Entries, bits

_POINTER = struct.calcsize("P")
NOTHING: Any = object()

#: Containers of Python, and classes derived from them.
CONTAINERS = (tuple, list, *TABLES, set, frozenset, collections.deque)
#: Objects that never change and hold nothing that does, but for what derived classes add.
CONSTANT = (types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType,
            types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.NotImplementedType, re.Pattern,
            type(collections.namedtuple("Named", "entry").entry),  # type: ignore[attr-defined]
            datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)  # fmt: skip
LOCKS = (type(threading.Lock()), type(threading.RLock()))
CACHE = type(functools.lru_cache(lambda: None))
#: What tells whether somebody holds a lock.
OF_LOCKS = ("locked", "acquire", "_is_owned")
#: What tells where a generator of random numbers is, without drawing one.
OF_GENERATORS = ("bit_generator", "getstate", "get_state")
#: Methods of loggers that say something, and give nothing back.
SAYS = ("debug", "info", "warning", "error", "critical", "exception", "log", "fatal", "warn")

#: Types whose value a derived class cannot change, and what it is.
_VALUES: tuple[tuple[type, Callable[[Any], Hashable]], ...] = (
    (int, int.__repr__), (float, bits), (complex, bits), (str, str.__str__), (bytes, bytes.__repr__),
    (decimal.Decimal, decimal.Decimal.__repr__), (fractions.Fraction, fractions.Fraction.__repr__))  # fmt: skip


def hides_state(kind: type) -> bool:
    """Do objects of a type have more in them than their class, attributes, slots and weak references?"""
    known = object.__basicsize__ + _POINTER * ((kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0))
    return bool(kind.__itemsize__) or kind.__basicsize__ > known + _POINTER * len(slots_of(kind))


def slots_of(kind: type) -> list[str]:
    """The attributes that a class, and those that it is derived from, have places of their own for."""
    return [
        name for one in kind.__mro__ if "__slots__" in vars(one)
        for name, each in vars(one).items() if isinstance(each, types.MemberDescriptorType)
    ]  # fmt: skip


def own_value(value: Any) -> Hashable:
    """The number or text that an object of a class derived from Python's is; NOTHING where it is none."""
    found = next((show for kind, show in _VALUES if isinstance(value, kind)), None)
    return NOTHING if found is None else found(value)


def has_bytes(value: Any) -> bool:
    """Is it one of Python's own arrays of bytes or numbers, or a view of one?"""
    return isinstance(value, bytearray | array.array | memoryview | np.void)


def bytes_of(holder: Any, _: Any = None) -> Entries:
    """What such an array holds."""
    if isinstance(holder, memoryview):
        return Entries((holder.format, str(holder.shape), holder.tobytes()))
    kind = holder.typecode if isinstance(holder, array.array) else str(getattr(holder, "dtype", ""))
    return Entries((kind, "", bytes(holder) if isinstance(holder, bytearray) else holder.tobytes()))


def entries_of(holder: Any, _: Any = None) -> Entries:
    """What a container holds, in order; of a dictionary the keys, then the values; of an array its shape first."""
    if isinstance(holder, np.ndarray):
        return Entries((str(holder.shape), *holder.ravel().tolist()))
    return Entries((*holder, *holder.values()) if isinstance(holder, TABLES) else holder)


def results_kept(cache: Any, _: Any = None) -> Entries:
    """What a ``functools.lru_cache`` has kept, in any order that stays: the results, and what belongs to them."""
    kept: list[Any] = []
    for one in gc.get_referents(cache):
        if type(one) is not dict:
            kept += [] if isinstance(one, type) or one is cache.__wrapped__ else [one]
        elif one is not vars(cache) and cache.cache_parameters()["maxsize"] is None:
            kept += one.values()
    return Entries(sorted(kept, key=id))


def is_only_written(value: Any) -> bool:
    """Is it a stream that nobody can read from, such as where messages go?"""
    try:
        return isinstance(value, io.IOBase) and not value.readable()
    except ValueError:  # a closed one
        return False


def level_of(logger: logging.Logger, _: Any = None) -> Entries:
    """What of a logger decides which messages it lets through."""
    return Entries((logger.getEffectiveLevel(), logger.disabled, logger.manager.disable))


def decimal_settings(_: Any = None, __: Any = None) -> Entries:
    """How decimal numbers are computed just now; not which of its signals were given, which computing changes."""
    now = decimal.getcontext()
    return Entries((now.prec, now.rounding, now.Emin, now.Emax, now.capitals, now.clamp, repr(now.traps)))


def in_context(variable: contextvars.ContextVar[Any], _: Any = None) -> Any:
    """What a variable of the context is now."""
    try:
        return variable.get()
    except LookupError:
        return NOTHING


def in_cell(cell: types.CellType, _: Any = None) -> Any:
    """What a variable of a closure is now, if it has a value."""
    try:
        return cell.cell_contents
    except ValueError:
        return NOTHING
