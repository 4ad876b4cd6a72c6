"""Caches that do not keep alive what their entries were made of.

An entry goes with the first part of it that goes (``weak_entry``), and what is cached of the loops over a set or a box
goes with that (``loops_over``).
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from meshloom.kernel.recent import Recent
from meshloom.mesh.box import Box
from meshloom.mesh.core import Set

K = TypeVar("K")
V = TypeVar("V")
MOST_SHARED = 64  # caches of loops over one set


class WeakCache(dict[K, V]):
    """A dictionary that can be referred to weakly."""

    __slots__ = ("__weakref__",)


def weak_entry(cache: Any, key: Hashable, parts: Iterable[Any]) -> tuple[weakref.ref[Any], ...]:
    """Weak references for the entry ``key`` of ``cache`` to hold: when the first of the parts goes, so does the entry.
    The key, which keeps none of them, names them by their serial numbers."""
    where = weakref.ref(cache)  # a strong one would make a cycle, which only the collector frees

    def forget(_: weakref.ref[Any]) -> None:
        found = where()
        if found is not None:
            found.pop(key, None)

    return tuple([weakref.ref(one, forget) for one in parts])


class LoopsOver:
    """What is cached of loops over one set or box. ``recorded``: those that programs have recorded, as long as one
    holds them; ``calls``: what stays of those that were called (``operation/calls.py``); both found by their arguments.
    ``shared``: the ``SharedCache`` of loops that differ in their fields and globals alone.
    """

    __slots__ = ("calls", "recorded", "shared")

    def __init__(self) -> None:
        self.recorded: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
        self.calls: WeakCache[tuple[Any, ...], Any] = WeakCache()
        self.shared: Recent[tuple[Any, ...], Any] = Recent(MOST_SHARED)


def loops_over(place: Set | Box) -> LoopsOver:
    """They lie with the place itself: what is cached refers to boxes, these to their grid, and a table of all places
    would keep them for ever."""
    found = place.kept.get(LoopsOver)
    if found is None:
        found = place.kept.setdefault(LoopsOver, LoopsOver())
    return found
