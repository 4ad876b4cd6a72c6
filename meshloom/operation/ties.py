"""What is kept for later without keeping what it was made of.

Entries of a dictionary go with the first part of them that goes (``tied``), and what is kept of the loops over a set or
a box goes with it (``loops_over``).
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
MOST_FORMS = 64  # of loops over one set


class Kept(dict[K, V]):
    """A dictionary that can be referred to weakly."""

    __slots__ = ("__weakref__",)


def tied(home: Any, key: Hashable, parts: Iterable[Any]) -> tuple[weakref.ref[Any], ...]:
    """Weak references for the entry ``key`` of ``home`` to hold: when the first of the parts goes, so does the entry.
    The key, which keeps none of them, names them by their serial numbers."""
    where = weakref.ref(home)  # a strong one would make a cycle, which only the collector frees

    def forget(_: weakref.ref[Any]) -> None:
        found = where()
        if found is not None:
            found.pop(key, None)

    return tuple([weakref.ref(one, forget) for one in parts])


class LoopsOver:
    """What is kept of loops over one set or box. ``recorded``: those that programs have recorded, as long as one holds
    them; ``calls``: what stays of those that were called (``operation/calls.py``); both found by their arguments.
    ``forms``: what loops share that differ in their fields and globals alone.
    """

    __slots__ = ("calls", "forms", "recorded")

    def __init__(self) -> None:
        self.recorded: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
        self.calls: Kept[tuple[Any, ...], Any] = Kept()
        self.forms: Recent[tuple[Any, ...], Any] = Recent(MOST_FORMS)


def loops_over(place: Set | Box) -> LoopsOver:
    """They lie with the place itself: forms and what NumPy runs refer to boxes, these to their grid, and a table of all
    places would keep them for ever."""
    found = place.kept.get(LoopsOver)
    if found is None:
        found = place.kept.setdefault(LoopsOver, LoopsOver())
    return found
