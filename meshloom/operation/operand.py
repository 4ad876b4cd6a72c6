"""Operands: the fields and globals of an operation, what it may do with them, and how it reaches them.

They are named tuples because every loop that is called anew makes some, and calls are counted in microseconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from meshloom.kernel.access import Mode, ReadWrite
from meshloom.kernel.model import Param
from meshloom.mesh.core import Field, Global, Map
from meshloom.mesh.number import PlainNumber
from meshloom.mesh.offsets import Offsets
from meshloom.recording import outside_program


class AccessPattern(NamedTuple):
    """How an operation reaches the values of an operand from where it is: at most one of these.

    Directly, at its own element; through ``map``; at ``offsets`` from its own point of a grid; or all along its line,
    by the operator of a line operation. ``slots``: the shape in which a kernel sees the map's entries where that is not
    (arity,): those of a matrix. ``as_member``: the map leads from an element of a part of a set to itself in the whole.
    """

    map: Map | None = None
    offsets: Offsets | None = None
    slots: tuple[int, ...] = ()
    as_member: bool = False
    along_line: bool = False

    @property
    def through(self) -> Map | Offsets | None:
        """What leads there, if it is not the element itself or its line."""
        return self.map or self.offsets

    @property
    def looks_around(self) -> bool:
        """Does it lead to other points of a grid than the own?"""
        return self.offsets is not None and any(map(any, self.offsets.offsets))

    @property
    def arity(self) -> int:
        """Slots that a kernel sees; 0 where it sees one value without a slot."""
        return 0 if self.through is None or self.as_member else self.through.arity

    def elsewhere(self, slot: int) -> bool:
        """Does a slot lead to another element, or may it?"""
        return self.map is not None or (self.offsets is not None and any(self.offsets.offsets[slot]))

    def __str__(self) -> str:
        return " along lines" if self.along_line else "" if self.through is None else f"[{self.through.name}]"


DIRECTLY = AccessPattern()
ALONG_LINES = AccessPattern(along_line=True)


class Operand(NamedTuple):
    """A field or global as an operation uses it. ``name``: what its kernel calls it."""

    storage: Field | Global
    mode: type[Mode]
    pattern: AccessPattern = DIRECTLY
    name: str = ""

    @property
    def is_global(self) -> bool:
        return isinstance(self.storage, Global)

    @property
    def param(self) -> Param:
        """The parameter as a kernel sees it."""
        one, reach = self.storage, self.pattern
        if isinstance(one, Global):
            number = one.kind if isinstance(one, PlainNumber) else ""
            return Param(self.name, self.mode, one.shape, one.dtype, 0, one.dim, number=number)
        slots = reach.slots or ((reach.arity,) if reach.arity else ())
        offsets = reach.offsets.offsets if reach.offsets is not None else ()
        return Param(self.name, self.mode, slots + one.components, one.dtype, reach.arity, one.dim, offsets,
                     len(slots) or 1)  # fmt: skip

    @property
    def content(self) -> tuple[object, ...]:
        """What tells it from others: a plain number by its value, since every loop has memory of its own for it."""
        if not isinstance(self.storage, PlainNumber):
            return self.storage, self.mode, self.pattern
        with outside_program():
            return self.storage.kind, repr(self.storage.plain), self.mode

    def __str__(self) -> str:
        return f"{self.mode.__name__} {self.storage.name}{self.pattern}"

    def __repr__(self) -> str:
        return f"Operand({self})"


class Operands:
    """Those of an operation that is put together, numbered as its parts come to use them. What several parts use is one
    operand, which is reached, and called, as the first of them does that; where one reads it and another writes it, it
    is both."""

    def __init__(self) -> None:
        self.listed: list[Operand] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, one: Operand, apart: Hashable = ()) -> int:
        """The number of an operand. ``apart``: uses of a field or global that differ in this are operands each."""
        key, new = (one.storage, apart), len(self.listed)
        found = self._numbers.setdefault(key, new)
        if found == new:
            self.listed.append(one)
        elif self.listed[found].mode is not one.mode:
            assert not one.mode.combine and not self.listed[found].mode.combine, "what is combined is not also read"
            self.listed[found] = self.listed[found]._replace(mode=ReadWrite)
        return found


def merged_operands(uses: Iterable[Operand]) -> tuple[Operand, ...]:
    """One operand for each field and global of some uses, in their order."""
    found = Operands()
    for one in uses:
        found.number(one)
    return tuple(found.listed)
