"""What functions find outside of themselves that nobody follows: Python's own modules, NumPy's, clocks and settings."""

from __future__ import annotations

import decimal
import os
import sys
import sysconfig
import types
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

_UNFOLLOWED = frozenset({*sys.stdlib_module_names, "numpy", "scipy", "cupy"} - {"__main__"})
_TRACER = f"{__name__.rpartition('.')[0]}."  # modules beside this one
_RANDOM = ("random", "numpy.random", "secrets")  # modules of random numbers
#: Modules whose functions give the same for the same arguments.
_PURE = ("math", "cmath", "itertools", "functools", "operator", "collections", "dataclasses", "enum", "typing",
         "types", "abc", "copy", "fractions", "decimal", "pydecimal", "numbers", "string", "re", "sre", "contextlib",
         "statistics", "builtins", "warnings", "logging", "inspect", "numpy", "scipy", "cupy", "textwrap", "weakref",
         "weakrefset", "bisect", "heapq", "struct", "collections_abc", "colorsys", "graphlib", "keyword", "reprlib",
         "pprint", "binascii", "zlib", "base64")  # fmt: skip
_FILES = ("scipy.io", "scipy.datasets")  # modules of functions that read files
_READERS = (np.load, np.loadtxt, np.genfromtxt, np.fromfile, np.fromregex, np.memmap)
#: Where Python's own modules are.
_LIBRARY = tuple(os.path.join(os.path.realpath(sysconfig.get_path(one)), "") for one in ("stdlib", "platstdlib"))
_PLACES: WeakKeyDictionary[types.ModuleType, bool] = WeakKeyDictionary()  # modules that lie elsewhere
_CLOCKS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
           "process_time_ns", "thread_time", "thread_time_ns", "now", "today", "utcnow")  # fmt: skip
#: What tells how NumPy and decimal numbers are set up just now.
_SETTINGS = (np.geterr, np.geterrcall, np.getbufsize, np.get_printoptions, decimal.getcontext, decimal.localcontext)
#: They end Python, and so give nothing that could differ.
ENDS = (sys.exit, os._exit, os.abort)
#: Functions of Python itself that reach what no name tells: variables, files, people.
ASKS = ("open", "input", "__import__")


def is_followed(module: str) -> bool:
    """Is a module one whose values may change: not NumPy's, SciPy's, Python's own or the tracer's?"""
    package = module.partition(".")[0]
    return (package not in _UNFOLLOWED or _is_shadowed(package)) and not module.startswith(_TRACER)


def is_pure(module: str) -> bool:
    """Is it known that what functions of a module give depends on their arguments alone?"""
    package = module.partition(".")[0]
    by_name = package.lstrip("_") in _PURE and not module.startswith(_FILES) and not _is_shadowed(package)
    return by_name or module.startswith(_TRACER)


def _is_shadowed(package: str) -> bool:
    """Has the user's folder a file of the name of one of Python's own modules, which was imported in its place?"""
    found = sys.modules.get(package)
    if package not in sys.stdlib_module_names or found is None:
        return False
    if found not in _PLACES:
        file = asked(found, "__file__")
        _PLACES[found] = isinstance(file, str) and not os.path.realpath(file).startswith(_LIBRARY)
    return _PLACES[found]


def reads_file(value: Any) -> bool:
    """Is it a function of NumPy's that reads a file, which may be another one the next time?"""
    return any(value is one for one in _READERS)


def asked(value: Any, name: str) -> Any:
    """An attribute, or None where there is none: what a class of the user's does when asked may raise anything."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def is_random(value: Any) -> bool:
    """Is it a generator of random numbers, a method of one, or of a module that is for them?"""
    owner = asked(value, "__self__")
    names = [type(value).__module__, type(owner).__module__, asked(value, "__module__")]
    if isinstance(value, types.ModuleType) or isinstance(owner, types.ModuleType):
        names.append((owner if isinstance(owner, types.ModuleType) else value).__name__)
    if asked(value, "__name__") == "rvs":  # of scipy.stats
        names.append(_RANDOM[0])
    return any(isinstance(one, str) and (one in _RANDOM or one.startswith("numpy.random.")) for one in names)


def module_of(value: Any) -> str:
    """The module that a module, function, method or class is, or comes from. A function that wraps another one has the
    name of that one's module, and what its own module has."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.FunctionType) and (home := value.__globals__.get("__name__")) in sys.modules:
        return str(home)
    owner = asked(value, "__self__")
    where = (owner, "__module__"), (owner, "__name__"), (value, "__module__")
    return str(next(filter(None, [asked(one, name) for one, name in where]), ""))


def homes_of(function: types.FunctionType) -> set[str]:
    """The module that a function was written in, and the one whose it says to be: ``functools.wraps`` and
    ``functools.singledispatch`` give it the name of another's."""
    return {module_of(function), function.__module__ or ""}


def changing(value: Any) -> str:
    """What a function does that calls this clock, or asks for these settings: something else each time; empty for all
    others."""
    name = asked(value, "__name__") or ""
    if name in _CLOCKS and module_of(value) in ("time", "datetime"):
        return f"reads the time ({name})"
    if any(value is one for one in _SETTINGS):
        return f"reads settings of {value.__module__} ({name})"
    return ""


class Unrepeatable(Exception):
    """At ``place`` (file:line) a function does ``what``, which gives something else each time."""

    def __init__(self, place: str, what: str):
        super().__init__(f"{place}: {what}")
        self.place, self.what = place, what


class RandomDraw(Unrepeatable):
    """It draws random numbers."""
