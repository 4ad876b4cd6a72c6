"""What functions find outside of themselves that nobody follows: Python's own modules, NumPy's, clocks and settings."""

from __future__ import annotations

import decimal
import os
import sys
import types
from typing import Any

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
    return module.partition(".")[0] not in _UNFOLLOWED and not module.startswith(_TRACER)


def is_pure(module: str) -> bool:
    """Is it known that what functions of a module give depends on their arguments alone?"""
    return module.partition(".")[0].lstrip("_") in _PURE or module.startswith(_TRACER)


def is_random(value: Any) -> bool:
    """Is it a generator of random numbers, a method of one, or of a module that is for them?"""
    owner = getattr(value, "__self__", None)
    names = [type(value).__module__, type(owner).__module__, getattr(value, "__module__", None)]
    if isinstance(value, types.ModuleType) or isinstance(owner, types.ModuleType):
        names.append((owner if isinstance(owner, types.ModuleType) else value).__name__)
    if getattr(value, "__name__", "") == "rvs":  # of scipy.stats
        names.append(_RANDOM[0])
    return any(isinstance(one, str) and (one in _RANDOM or one.startswith("numpy.random.")) for one in names)


def module_of(value: Any) -> str:
    """The module that a module, function, method or class is, or comes from."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    owner = getattr(value, "__self__", None)
    asked = (owner, "__module__"), (owner, "__name__"), (value, "__module__")
    return str(next(filter(None, [getattr(one, name, None) for one, name in asked]), ""))


def changing(value: Any) -> str:
    """What a function does that calls this clock, or asks for these settings: something else each time; empty for all
    others."""
    name = getattr(value, "__name__", "")
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
