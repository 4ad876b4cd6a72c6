"""What a survey notes: each read, how to do it again, the value it gave, and what a person calls what was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshloom.errors import shown
from meshloom.kernel.c_state import entries_of
from meshloom.kernel.outside import RandomDraw, Unrepeatable
from meshloom.kernel.sameness import ATOMS, IdentityDict

MOST = 10_000  # values that are compared at every call
#: Of what is looked at: the path before, "" (a name), "." (its attribute) or "[" (its entry), and which.
Path = tuple[Any, str, Any]
Read = tuple[Callable[[Any, Any], Any], Any, Any, Any]  # how, where, name, value
ArrayRead = tuple[np.ndarray, np.dtype, tuple[int, ...], bytes]  # with the content that it had


def called(path: Path | None) -> str:
    """A path as a person writes it: ``settings.table["a"]``."""
    parts: list[str] = []
    while path is not None:
        path, kind, what = path
        if kind == "[":
            what = f"[{shown(what) if type(what) in ATOMS else '...'}]"
        parts.append(f".{what}" if kind == "." else what)
    return "".join(parts[::-1])


class Notes:
    """Reads as they are found. Objects that were met before are named by their number.

    ``depth``: how many objects that are passed on as a whole are around what is looked at. Nobody knows which of their
    methods and attributes are used, so what is found there may not be used at all."""

    def __init__(self, by_identity: bool = False) -> None:
        self.reads: list[Read] = []
        self.arrays: list[ArrayRead] = []
        self.labels: list[tuple[Path | None, str]] = []  # of the reads: what was read, and at which file:line
        self.array_labels: list[tuple[Path | None, str]] = []
        self.by_identity = by_identity  # does a function ask for ``a is b``, so that equal objects may not be swapped?
        self.asks_identity = False
        self.culprit, self.too_many = "", False
        self.suspect, self.depth = ("", ""), 0
        self.path: Path | None = None  # of what is looked at
        self.place = ""  # file:line of the read that is followed
        self._count = 0
        self._met: IdentityDict[int] = IdentityDict()

    @property
    def goes_on(self) -> bool:
        """Is there anything to be found still?"""
        return not self.culprit

    def read(self, how: Callable[[Any, Any], Any], where: Any, name: Any, value: Any) -> None:
        self.reads.append((how, where, name, value))
        self.labels.append((self.path, self.place))
        self._count += len(value) if how is entries_of else 1
        if self._count > MOST:
            self.too_many = True
            self.fail(f"more than {MOST:,} values")

    def read_array(self, array: np.ndarray, content: bytes) -> None:
        self.arrays.append((array, array.dtype, array.shape, content))
        self.array_labels.append((self.path, self.place))

    def fail(self, why: str) -> None:
        """What is looked at cannot be compared."""
        if not self.culprit:
            where = ", ".join(filter(None, (called(self.path), self.place)))
            self.culprit = f"{why} ({where})" if where else why

    def unrepeatable(self, what: str, error: type[Unrepeatable] = Unrepeatable) -> None:
        """A function does what gives something else each time, at ``self.place``; in the depth of an object perhaps."""
        if not self.depth:
            raise error(self.place, what)
        self.suspect = self.suspect if self.suspect[1] else (self.place, what)

    def random(self, what: str) -> None:
        self.unrepeatable(f"draws random numbers ({what})", RandomDraw)

    def again(self, *what: Any) -> tuple[str, int] | None:
        """How to name objects that were met before; None, and remembered, where they were not."""
        number = self._met.setdefault(what, new := len(self._met))
        return None if number == new else ("met", number)
