"""Objects of Python's own types, most of them written in C, whose state a function can read and somebody can change."""

from __future__ import annotations

import array
import ast
import asyncio
import bz2
import collections
import contextvars
import csv
import ctypes
import decimal
import functools
import gc
import hashlib
import io
import itertools
import json
import lzma
import mmap
import operator
import os
import pickle
import queue
import random
import re
import socket
import sqlite3
import string
import struct
import tempfile
import threading
import types
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

Change = Callable[[Any], Any]


class State(NamedTuple):
    """``make(kind)`` makes an object, of a type or of one derived from it, ``read`` gives a number that ``change``
    changes. ``quietly``: kernels and programs follow it without a word."""

    kind: Any
    make: Callable[[Any], Any]
    read: Callable[[Any], float]
    change: Change
    quietly: bool = False


class Referred:
    """What can be referred to weakly."""

    def __init__(self) -> None:
        self.level, self.kept = 1, [float(k) for k in range(3)]


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_double),)


def set_to(name: str) -> Change:
    """Adds 1 to an attribute."""
    return lambda one: setattr(one, name, getattr(one, name) + 1)


def set_entry(key: Any) -> Change:
    return lambda one: operator.setitem(one, key, one[key] + 1)


def first(one: Any) -> float:
    return float(one[0])


def rewrite(one: Any) -> None:
    """One digit more."""
    one.write("7" if isinstance(one, io.TextIOBase) else b"7")


def text_of(one: Any) -> float:
    one.seek(0)
    return float(one.read() or 0)


def in_file(mode: str, buffering: int = -1) -> Callable[[Any], Any]:
    return lambda _: tempfile.TemporaryFile(mode, buffering=buffering)


def numbers() -> Iterator[int]:
    yield from range(1000)


#: What only weak references lead to, by the address of these.
KEPT: dict[int, Any] = {}


def kept_for(one: Any, referred: Any) -> Any:
    KEPT[id(one)] = referred
    return one


def dropped(one: Any) -> None:
    KEPT.pop(id(one), None)
    gc.collect()


def swapped(one: Any, new: Any) -> None:
    one.clear()
    one.update(new)


#: Containers, arrays and objects that are compared by what they hold.
COMPARED = {
    "list": State(list, lambda kind: kind([1.0]), first, set_entry(0), True),
    "dict": State(dict, lambda kind: kind(a=1), lambda one: one["a"], set_entry("a"), True),
    "order of a dict": State(dict, lambda kind: kind(a=1, b=2), lambda one: next(iter(one.values())),
                             lambda one: swapped(one, dict(reversed(one.items()))), True),
    "set": State(set, lambda kind: kind([1]), len, lambda one: one.add(len(one) + 1), True),
    "entry of a tuple": State(tuple, lambda kind: kind([[1.0]]), lambda one: one[0][0],
        lambda one: set_entry(0)(one[0]), True),
    "frozenset": State(frozenset, lambda kind: [kind([1])], lambda one: float(min(one[0])),
                       lambda one: operator.setitem(one, 0, frozenset([min(one[0]) + 1])), True),
    "bytearray": State(bytearray, lambda kind: kind(b"12"), first, set_entry(0), True),
    "memoryview": State(memoryview, lambda kind: kind(bytearray(b"12")), first, set_entry(0), True),
    "array": State(array.array, lambda kind: kind("d", [1.0]), first, set_entry(0), True),
    "deque": State(collections.deque, lambda kind: kind([1.0]), first, lambda one: one.appendleft(one[0] + 1), True),
    "position in a deque": State(collections.deque, lambda kind: kind([1.0, 2.0]), first, lambda one: one.rotate(),
        True),
    "defaultdict": State(collections.defaultdict, lambda kind: kind(list, a=1), lambda one: one["a"], set_entry("a"),
        True),
    "default of a defaultdict": State(collections.defaultdict, lambda kind: kind(int),
        lambda one: float(one.default_factory() != 0),
                                      lambda one: setattr(one, "default_factory",
                                      int if one.default_factory is not int else lambda: 1), True),
    "OrderedDict": State(collections.OrderedDict, lambda kind: kind(a=1, b=2), lambda one: next(iter(one.values())),
                         lambda one: one.move_to_end(next(iter(one))), True),
    "Counter": State(collections.Counter, lambda kind: kind("a"), lambda one: one["a"], lambda one: one.update("a"),
        True),
    "method of a Counter": State(collections.Counter, lambda kind: kind("a"), lambda one: one.most_common(1)[0][1],
                                 lambda one: one.update("a"), True),
    "ChainMap": State(collections.ChainMap, lambda kind: kind({"a": 1}), lambda one: one.get("a"), set_entry("a"),
        True),
    "UserDict": State(collections.UserDict, lambda kind: kind(a=1), lambda one: one.get("a"), set_entry("a"), True),
    "UserList": State(collections.UserList, lambda kind: kind([1]), lambda one: one.index(1),
        lambda one: one.insert(0, 2), True),
    "dict_values": State(None, lambda _: {"a": 1}.values(), sum,
        lambda one: gc.get_referents(one)[0].update(a=sum(one) + 1), True),
    "dict_keys": State(None, lambda _: {"a": 1}.keys(), len,
        lambda one: gc.get_referents(one)[0].update({len(one): 1}), True),
    "mappingproxy": State(None, lambda _: types.MappingProxyType({"a": 1}), lambda one: one["a"],
                          lambda one: gc.get_referents(one)[0].update(a=one["a"] + 1), True),
    "slice": State(slice, lambda kind: kind([1.0]), lambda one: one.stop[0], lambda one: set_entry(0)(one.stop), True),
    "SimpleNamespace": State(types.SimpleNamespace, lambda kind: kind(level=1), lambda one: one.level,
        set_to("level"), True),
    "cell": State(types.CellType, lambda kind: kind(1), lambda one: one.cell_contents, set_to("cell_contents"), True),
    "function": State(None, lambda _: types.FunctionType((lambda: 1).__code__, {}), lambda one: getattr(one, "level",
        1),
                      lambda one: setattr(one, "level", getattr(one, "level", 1) + 1)),
    "module": State(types.ModuleType, lambda kind: kind("settings"), lambda one: getattr(one, "level", 1),
                    lambda one: setattr(one, "level", getattr(one, "level", 1) + 1), True),
    "method": State(None, lambda _: [1.0].__len__, lambda one: one(), lambda one: one.__self__.append(1.0), True),
    "super": State(None, lambda _: super(Referred, Referred()), lambda one: one.__self__.level,
        lambda one: set_to("level")(one.__self__), True),
    "partial": State(functools.partial, lambda kind: kind(first, [1.0]), lambda one: one(),
        lambda one: set_entry(0)(one.args[0]), True),
    "arguments of a partial": State(functools.partial, lambda kind: kind(float, 1), lambda one: one(),
                                    lambda one: one.__setstate__((float, (one() + 1,), {}, None)), True),
    "methodcaller": State(None, lambda _: [operator.methodcaller("__add__", added := [1.0]), added],
        lambda one: one[0]([2.0])[1],
                          lambda one: set_entry(0)(one[1]), True),
    "exception": State(ValueError, lambda kind: kind(1), lambda one: float(str(one)), lambda one: setattr(one, "args",
        (one.args[0] + 1,))),
    "Decimal": State(decimal.Decimal, lambda kind: [kind(1)], lambda one: float(one[0]),
        lambda one: operator.setitem(one, 0, one[0] + 1), True),
    "array with fields": State(None, lambda _: np.zeros(1, [("a", float)])[0], lambda one: one["a"], set_entry("a"),
        True),
    "array of objects": State(None, lambda _: np.array([[1.0], None], object), lambda one: one[0][0],
        lambda one: set_entry(0)(one[0]), True),
    "shape of an array of objects": State(None, lambda _: np.array([[1, None]], object), lambda one: one.shape[0],
                                          lambda one: setattr(one, "shape", one.shape[::-1]), True),
    "array with objects": State(None, lambda _: np.array([([1.0],)], [("a", object)]), lambda one: one["a"][0][0],
                                lambda one: set_entry(0)(one["a"][0])),
    "masked array": State(None, lambda _: np.ma.masked_array([1.0], mask=[True]), lambda one: one.data[0],
        lambda one: set_entry(0)(one.data), True),
    "Struct": State(struct.Struct, lambda kind: kind("d"), lambda one: one.size,
        lambda one: one.__init__(f"d{one.format}")),
    "Template": State(string.Template, lambda kind: kind("1"), lambda one: float(one.substitute()),
                      lambda one: setattr(one, "template", f"{one.template}1"), True),
    "context variable": State(contextvars.ContextVar, lambda kind: kind("level", default=1), lambda one: one.get(),
                              lambda one: one.set(one.get() + 1) and None, True),
    "thread's own": State(threading.local, lambda kind: _with_level(kind()), lambda one: one.level, set_to("level"),
        True),
    "node of a syntax tree": State(ast.Constant, lambda kind: kind(1), lambda one: one.value, set_to("value"), True),
}  # fmt: skip


def _with_level(one: Any) -> Any:
    one.level = 1
    return one


def _cached(_: Any) -> Any:
    return functools.lru_cache(lambda x: x)


def _locked(one: Any) -> None:
    one.release() if one.locked() else one.acquire()


def _loaded(one: sqlite3.Connection) -> None:
    one.execute("create table if not exists t (a)")
    one.execute("insert into t values (1)")


def _element(_: Any) -> Any:
    return ElementTree.fromstring("<a><b/></a>")


def _dispatched(one: Any) -> None:
    before = one(1)
    one.register(int, lambda x: before + 1)


#: What is inside nobody can compare.
HIDDEN = {
    "StringIO": State(io.StringIO, lambda kind: kind(), lambda one: float(one.getvalue() or 0), rewrite),
    "position of a StringIO": State(io.StringIO, lambda kind: kind("1234567"), lambda one: one.tell(),
        lambda one: one.read(1)),
    "BytesIO": State(io.BytesIO, lambda kind: kind(), lambda one: float(one.getvalue() or 0), rewrite),
    "FileIO": State(None, in_file("wb+", 0), text_of, rewrite),
    "BufferedRandom": State(None, in_file("wb+"), text_of, rewrite),
    "TextIOWrapper": State(None, in_file("w+"), text_of, rewrite),
    "lru_cache": State(None, _cached, lambda one: one.cache_info().hits, lambda one: (one(1), one(1))),
    "cmp_to_key": State(None, lambda _: [functools.cmp_to_key(lambda a, b, up=(up := [1]): up[0]), up],
        lambda one: float(one[0](1) < one[0](2)),
                        lambda one: operator.setitem(one[1], 0, -one[1][0])),
    "singledispatch": State(None, lambda _: functools.singledispatch(lambda x: 1), lambda one: one(1), _dispatched,
        True),
    "weak reference": State(weakref.ref, lambda kind: kept_for(kind(one := Referred()), one),
        lambda one: float(one() is None), dropped),
    "behind a weak reference": State(weakref.ref, lambda kind: kept_for(kind(one := Referred()), one),
        lambda one: one().level,
                                     lambda one: set_to("level")(one())),
    "weak proxy": State(None, lambda _: kept_for(weakref.proxy(one := Referred()), one), lambda one: one.level,
        set_to("level")),
    "WeakSet": State(weakref.WeakSet, lambda kind: kept_for(kind([one := Referred()]), one), len, dropped),
    "WeakValueDictionary": State(weakref.WeakValueDictionary, lambda kind: kept_for(kind(a=(one := Referred())), one),
        len, dropped),
    "lock": State(None, lambda _: threading.Lock(), lambda one: float(one.locked()), _locked),
    "acquired lock": State(None, lambda _: threading.Lock(),
        lambda one: float(one.acquire(False) and not one.release()), _locked),
    "RLock": State(None, lambda _: threading.RLock(), lambda one: float(one._is_owned()), lambda one: one.acquire()),
    "Event": State(threading.Event, lambda kind: kind(), lambda one: float(one.is_set()), lambda one: one.set()),
    "Semaphore": State(threading.Semaphore, lambda kind: kind(9), lambda one: one._value, lambda one: one.acquire(),
        True),
    "Queue": State(queue.Queue, lambda kind: kind(), lambda one: one.qsize(), lambda one: one.put(1)),
    "SimpleQueue": State(queue.SimpleQueue, lambda kind: kind(), lambda one: one.qsize(), lambda one: one.put(1)),
    "decimal.Context": State(decimal.Context, lambda kind: kind(prec=3), lambda one: float(one.divide(1, 3)),
        set_to("prec")),
    "Context": State(None, lambda _: contextvars.copy_context(), len,
        lambda one: one.run(contextvars.ContextVar("new").set, 1)),
    "Random": State(random.Random, lambda kind: kind(1), lambda one: one.getstate()[1][1],
        lambda one: one.seed(one.getstate()[1][1])),
    "Generator": State(None, lambda _: np.random.default_rng(1),
        lambda one: float(one.bit_generator.state["state"]["state"] % 997), lambda one: one.random()),
    "hash": State(None, lambda _: hashlib.md5(), lambda one: float(one.digest()[0]), lambda one: one.update(b"a")),
    "compressor": State(None, lambda _: zlib.decompressobj(), lambda one: len(one.unused_data),
        lambda one: one.decompress(zlib.compress(b"a") + b"more")),
    "bz2": State(bz2.BZ2Decompressor, lambda kind: kind(), lambda one: float(one.eof),
        lambda one: one.eof or one.decompress(bz2.compress(b"a"))),
    "lzma": State(lzma.LZMADecompressor, lambda kind: kind(), lambda one: float(one.eof),
        lambda one: one.eof or one.decompress(lzma.compress(b"a"))),
    "c_double": State(ctypes.c_double, lambda kind: kind(1), lambda one: one.value, set_to("value")),
    "array of c_double": State(ctypes.c_double * 2, lambda kind: kind(1), first, set_entry(0)),
    "Structure": State(Point, lambda kind: kind(1), lambda one: one.x, set_to("x")),
    "pointer": State(None, lambda _: ctypes.pointer(ctypes.c_double(1)), lambda one: one.contents.value,
        lambda one: set_to("value")(one.contents)),
    "csv.reader": State(None, lambda _: csv.reader(iter("1234567")), lambda one: one.line_num, next),
    "mmap": State(None, lambda _: mmap.mmap(-1, 8), first, set_entry(0)),
    "sqlite3": State(sqlite3.Connection, lambda kind: kind(":memory:"), lambda one: one.total_changes, _loaded),
    "socket": State(None, lambda _: socket.socket(), lambda one: one.gettimeout() or 0,
        lambda one: one.settimeout((one.gettimeout() or 0) + 1)),
    "Pickler": State(pickle.Pickler, lambda kind: kind(io.BytesIO()), lambda one: len(one.memo.copy()),
        lambda one: one.dump([1])),
    "JSONDecoder": State(json.JSONDecoder, lambda kind: kind(), lambda one: float(one.strict),
        lambda one: setattr(one, "strict", not one.strict)),
    "Element": State(None, _element, len, lambda one: one.append(_element(None))),
    "asyncio.Future": State(None, lambda _: asyncio.Future(loop=asyncio.SelectorEventLoop()),
        lambda one: float(one.done()),
                            lambda one: one.cancel()),
    "ufunc": State(None, lambda _: [np.frompyfunc(lambda x, to=(to := [1]): to[0] * x, 1, 1), to],
        lambda one: float(one[0](1)),
                   lambda one: set_entry(0)(one[1])),
    "nditer": State(None, lambda _: np.nditer(np.arange(9.0)), lambda one: one.iterindex, next),
    "flatiter": State(None, lambda _: np.arange(9.0).flat, lambda one: one.index, next),
}  # fmt: skip


LIST = list(range(1000))
#: Iterators, which are other ones after each look.
ITERATORS: dict[str, Callable[[], Iterator[Any]]] = {
    "list": lambda: iter(LIST), "range": lambda: iter(range(1000)), "str": lambda: iter("1" * 1000),
    "dict": lambda: iter(dict.fromkeys(LIST)), "set": lambda: iter(set(LIST)), "bytes": lambda: iter(b"1" * 1000),
    "callable": lambda: iter(lambda: 1, 2), "reversed": lambda: reversed(LIST), "enumerate": lambda: enumerate(LIST),
    "zip": lambda: zip(LIST, LIST, strict=True), "map": lambda: map(float, LIST), "filter": lambda: filter(None, LIST),
    "generator": numbers, "deque": lambda: iter(collections.deque(LIST)), "array": lambda: iter(array.array("d", LIST)),
    "accumulate": lambda: itertools.accumulate(LIST), "chain": lambda: itertools.chain(LIST),
    "combinations": lambda: itertools.combinations(LIST, 2), "compress": lambda: itertools.compress(LIST,
        itertools.repeat(1)),
    "count": itertools.count, "cycle": lambda: itertools.cycle(LIST), "dropwhile": lambda: itertools.dropwhile(bool,
        LIST),
    "filterfalse": lambda: itertools.filterfalse(lambda x: x < 0, LIST), "groupby": lambda: itertools.groupby(LIST),
    "islice": lambda: itertools.islice(LIST, 900), "pairwise": lambda: itertools.pairwise(LIST),
    "permutations": lambda: itertools.permutations(LIST, 2), "product": lambda: itertools.product(LIST),
    "repeat": lambda: itertools.repeat(1), "starmap": lambda: itertools.starmap(max, [LIST] * 1000),
    "takewhile": lambda: itertools.takewhile(lambda x: x >= 0, LIST), "tee": lambda: itertools.tee(LIST)[0],
    "zip_longest": lambda: itertools.zip_longest(LIST), "unpacked": lambda: struct.iter_unpack("B", bytes(900)),
    "finditer": lambda: re.finditer("a", "a" * 900), "csv": lambda: csv.reader(["1"] * 900),
    "scandir": lambda: os.scandir("/"),
}  # fmt: skip
