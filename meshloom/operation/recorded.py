"""What a program recorded, looked at as a whole: is everything written before it is read, and what is for nothing?"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

from meshloom.errors import KernelError
from meshloom.mesh.core import Field, Global
from meshloom.operation import in_memory
from meshloom.operation.operation import Operation


class Recorded(list[Operation]):
    """What a function calls while it is recorded, in order: see ``recording.Recorder``."""

    def __call__(self, operation: Operation) -> None:
        self.append(operation)

    def fill(self, target: Field | Global, value: float | int) -> None:
        key = id(target), repr(value)  # no other has the address as long as the operation is there, which holds it
        found = _fills.get(key)
        if found is None:
            found = _fills[key] = in_memory.fill(target, value)
        self.append(found)


#: Fills that somebody holds: what is recorded twice is the same operation, as with loops.
_fills: WeakValueDictionary[tuple[int, str], Operation] = WeakValueDictionary()


def check_written_first(operations: Sequence[Operation]) -> None:
    """KernelError where a transient field is read before it is written: between replays it has no values."""
    written: set[Field | Global] = set()
    for operation in operations:
        for one in operation.transients:
            if one not in written and operation.needs(one):
                raise KernelError(
                    f"field {one.name} is transient, but a program reads it before it is written; write it first, or"
                    " make it an ordinary field"
                )
        written |= set(operation.writes)


def without_idle_fills(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Without the fills that nobody sees, because what comes next sets all of the field anew, or nothing comes next;
    where there are no others they stay. For a whole program: of a part of it nobody knows what comes next."""
    last_first: list[Operation] = []
    next_use: dict[Field | Global, Operation] = {}
    for operation in reversed(operations):
        if operation.domain.all_memory and all(_replaced(one, next_use.get(one)) for one in operation.writes):
            continue
        last_first.append(operation)
        next_use |= dict.fromkeys(operation.storages, operation)
    return tuple(last_first[::-1]) or tuple(operations)


def _replaced(what: Field | Global, by: Operation | None) -> bool:
    """Does an operation set everything that there is of a field or global, without looking at it? Ghosts and copies of
    another rank's elements are set by fills only. What is left of a transient field in the end nobody sees."""
    if by is None:
        return isinstance(what, Field) and what.transient
    shown = isinstance(what, Field) and what.set.shows_all and not what.set.halo
    return (shown or by.domain.all_memory) and by.defines(what)
