"""Entries of a dictionary that do not stay for ever: they go with what they were made of, or as the oldest of many."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Kept(dict[K, V]):
    """A dictionary that can be referred to weakly."""

    __slots__ = ("__weakref__",)


def tied(home: Any, key: Hashable, parts: Iterable[Any]) -> tuple[weakref.ref[Any], ...]:
    """Weak references for the entry ``key`` of ``home`` to hold: when the first of the parts goes, so does the entry.

    So a key may name a part by its address: no other object gets the address before the entry is gone.
    """
    where = weakref.ref(home)  # a strong one would make a cycle, which only the collector frees

    def forget(_: weakref.ref[Any]) -> None:
        found = where()
        if found is not None:
            found.pop(key, None)

    return tuple([weakref.ref(one, forget) for one in parts])


def recalled(known: dict[K, V], key: K, make: Callable[[], V], most: int) -> V:
    """The entry of a key, made where there is none; at most so many stay, those that were asked for last."""
    found = known.pop(key, None)
    known[key] = made = make() if found is None else found
    if len(known) > most:
        del known[next(iter(known))]
    return made
