"""A dictionary that forgets: what was used least recently goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """At most ``most`` entries."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def find(self, key: K) -> V | None:
        """The entry, which is then the last to go; None where there is none."""
        found = self.get(key)
        if found is not None:
            with suppress(KeyError):  # another thread may have sent it away meanwhile
                self.move_to_end(key)
        return found

    def find_or_make(self, key: K, make: Callable[[], V]) -> V:
        """The entry, made where there is none."""
        found = self.find(key)
        return self.keep(key, make()) if found is None else found

    def keep(self, key: K, value: V) -> V:
        """Add an entry; the oldest ones beyond the limit go."""
        with suppress(KeyError):
            self[key] = value
            self.move_to_end(key)
            while len(self) > self.most:
                self.popitem(last=False)
        return value
