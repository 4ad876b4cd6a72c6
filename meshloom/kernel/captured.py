"""What a kernel's function reads besides its parameters: closures, globals, attributes, helpers and what these read.

Such values become constants of the traced kernel, so a kernel must be traced again when one of them has changed.
``captured`` finds them from the bytecode of the function and of every function that it can reach (``survey.py``), and
remembers each with the value that it has now. Asking whether all of them are ``unchanged`` looks at each
once, first whether it is the same object.

An attribute that is named, ``self.gamma`` or ``settings.alpha``, is compared by itself. An object that is passed on as
a whole is compared with all that it holds, an array by its bytes. NumPy, SciPy and the standard library are not
followed. What cannot be compared (``c_state.py``), or holds more than ``MOST`` values, makes ``comparable`` False: a
kernel that reads it is traced every time. Arrays may hold more; beyond ``MOST_BYTES`` in all a warning says what
comparing them costs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from meshloom.kernel.c_state import NOTHING, entries_of
from meshloom.kernel.notes import ArrayRead, Path, Read, called
from meshloom.kernel.sameness import TABLES, IdentityDict, identical, same
from meshloom.kernel.survey import Survey
from meshloom.records import dataclass

Label = tuple[Path | None, str]  # what was read, and at which file:line


@dataclass(frozen=True, eq=False)
class Captured:
    """Values as they were. ``key`` is equal for equal values; ``culprit`` names what cannot be compared, if any."""

    key: Hashable
    reads: tuple[Read, ...]
    arrays: tuple[ArrayRead, ...]
    culprit: str
    suspect: tuple[str, str] = ("", "")  # file:line, what: of the first that differs each time, if it is used at all
    labels: tuple[Label, ...] = ()  # of the reads, then of the arrays
    by_identity: bool = False  # does a function ask for ``a is b``?

    @property
    def comparable(self) -> bool:
        return not self.culprit

    @property
    def array_bytes(self) -> int:
        """What comparing arrays has to look at."""
        return sum(len(content) for *_, content in self.arrays)

    def unchanged(self) -> bool:
        """Is every value what it was? False also where that takes a closer look."""
        return not self.culprit and self.holds()

    def holds(self, replaced: Mapping[Any, Any] = MappingProxyType({})) -> bool:
        """The same of those values that can be compared. ``replaced``: objects (by what they were) that others may have
        taken the place of."""
        alike = identical if self.by_identity else same
        try:
            for read, where, name, before in self.reads:
                now = read(where, name)
                if now is not before and not alike(now, before, replaced):
                    return False
            for array, dtype, shape, content in self.arrays:
                if array.shape != shape or array.dtype != dtype or array.tobytes() != content:
                    return False
        except Exception:  # a name that is gone, a property that fails: tracing will tell
            return False
        return True

    def changed(self) -> tuple[str, str]:
        """What a person calls the first value that is not what it was, and the file:line that reads it."""
        found = next(self._changes(), None)
        return ("something", "") if found is None else (called(found[0]) or "its own code", found[1])

    def steady(self) -> Captured:
        """The same without what is another object whenever it is asked for: that it differs says nothing."""
        if self.holds():
            return self
        kept = [
            (one, label) for one, label in zip(self.reads, self.labels, strict=False)
            if replace(self, reads=(one,), arrays=()).holds()
        ]  # fmt: skip
        name, place = self.changed()
        return replace(
            self, reads=tuple([one for one, _ in kept]),
            labels=(*[label for _, label in kept], *self.labels[len(self.reads) :]),
            culprit=self.culprit or f"{name}, made anew at every look ({place})",
        )  # fmt: skip

    def _changes(self) -> Iterator[Label]:
        """The labels of what has changed."""
        alike = identical if self.by_identity else same
        for (read, where, name, before), (path, place) in zip(self.reads, self.labels, strict=False):
            try:
                now = read(where, name)
            except Exception:  # a property of the user's may raise anything; that it does is the change
                now = NOTHING
            if now is not before and not alike(now, before):
                yield _entry(path, where, before, now) if read is entries_of else _shadowed(path, where, name), place
        for (array, dtype, shape, content), label in zip(self.arrays, self.labels[len(self.reads) :], strict=False):
            if array.tobytes() != content or array.dtype != dtype or array.shape != shape:
                yield label


def _entry(path: Path | None, holder: Any, before: Any, now: Any) -> Path | None:
    """The entry of a container that has changed; all of it where there are more, or fewer."""
    if now is NOTHING or len(now) != len(before) or isinstance(holder, set | frozenset):
        return path
    number = next(k for k, (a, b) in enumerate(zip(now, before, strict=True)) if a is not b and not same(a, b))
    if isinstance(holder, TABLES):
        return path if number < len(now) // 2 else (path, "[", before[number - len(now) // 2])
    return path, "[", number - isinstance(holder, np.ndarray)


def _shadowed(path: Path | None, where: Any, name: Any) -> Path | None:
    """The name that no variable of the module had before, if that is what was read."""
    return (None, "", min(where & name)) if isinstance(name, frozenset) and where & name else path


def captured(function: Callable[..., Any], survey: type[Survey] = Survey) -> Captured:
    """What a function reads, with the values of now. ``survey``: one that looks further than for a kernel."""
    one = survey()
    key, rest = one.key_of(function), one.finish()
    if one.asks_identity:
        one = survey(by_identity=True)
        key, rest = one.key_of(function), one.finish()
    once: IdentityDict[tuple[Read, Label]] = IdentityDict()
    for read, label in zip(one.reads, one.labels, strict=True):
        once.setdefault(read[:3], (read, label))
    found = Captured(
        (key, rest) if rest else key, tuple([read for read, _ in once.values()]), tuple(one.arrays), one.culprit,
        one.suspect, (*[label for _, label in once.values()], *one.array_labels), one.by_identity,
    )  # fmt: skip
    return found.steady() if one.by_identity else found
