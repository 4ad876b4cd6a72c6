"""Times of operations whose recordings a program no longer keeps: their names and seconds stay, their fields go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from meshloom.operation.execution import Spent
from meshloom.operation.operation import Operation


class Timed(NamedTuple):
    """An operation, and what it has spent."""

    operation: Operation
    spent: Spent

    @property
    def unit(self) -> tuple[str, str]:
        """Its name, and what it runs over."""
        return self.operation.name, self.operation.over


class PastTimes:
    """What operations of dropped recordings have spent, by name and domain: as many as there are names."""

    def __init__(self) -> None:
        self.by_unit: dict[tuple[str, str], Spent] = {}
        #: A loop that somebody holds may be recorded again, with all that it has spent so far
        self._counted: WeakKeyDictionary[Operation, Spent] = WeakKeyDictionary()

    def since(self, loops: Iterable[Operation]) -> list[Timed]:
        """What loops have spent by themselves, each once, besides what is known here."""
        found = [Timed(one, one.spent) for one in dict.fromkeys(loops) if one.calls]
        return [Timed(one, spent.minus(self._counted.get(one, Spent()))) for one, spent in found]

    def add(self, loops: Iterable[Operation], fused: Iterable[Timed]) -> None:
        """These are dropped: loops that ran by themselves, and steps of a fused program."""
        alone = self.since(loops)
        for one in (*alone, *fused):
            self.by_unit[one.unit] = self.by_unit.get(one.unit, Spent()).plus(one.spent)
        for one in alone:
            self._counted[one.operation] = self._counted.get(one.operation, Spent()).plus(one.spent)


def together(timed: Iterable[Timed]) -> list[Timed]:
    """Every operation once, with all that it has spent; nothing of those that never ran."""
    found: dict[Operation, Spent] = {}
    for one, spent in timed:
        found[one] = found.get(one, Spent()).plus(spent)
    return [Timed(one, spent) for one, spent in found.items() if spent.calls]
