"""What a program recorded, looked at as a whole: is everything written before it is read, and what is for nothing?"""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.errors import KernelError
from meshloom.mesh.core import Field, Fill, Global
from meshloom.operation.loop import Runnable


def check_written_first(operations: Sequence[Runnable | Fill]) -> None:
    """KernelError where a transient field is read before it is written: between replays it has no values."""
    written: set[Field | Global] = set()
    for operation in operations:
        unwritten = [f for f in operation.transients if f not in written] if isinstance(operation, Runnable) else []
        for one in unwritten:
            if isinstance(operation, Runnable) and operation.needs(one):
                raise KernelError(
                    f"field {one.name} is transient, but a program reads it before it is written; write it first, or"
                    " make it an ordinary field"
                )
        written |= set(operation.writes)


def without_idle_fills(operations: Sequence[Runnable | Fill]) -> tuple[Runnable | Fill, ...]:
    """Without the fills that nobody sees, because what comes next sets all of the field anew, or nothing comes next;
    where there are no others they stay. For a whole program: of a part of it nobody knows what comes next."""
    last_first: list[Runnable | Fill] = []
    next_use: dict[Field | Global, Runnable | Fill] = {}
    for operation in reversed(operations):
        if isinstance(operation, Fill) and _replaced(operation.target, next_use.get(operation.target)):
            continue
        last_first.append(operation)
        used = operation.storages if isinstance(operation, Runnable) else operation.writes
        next_use |= dict.fromkeys(used, operation)
    return tuple(last_first[::-1]) or tuple(operations)


def sets_anew(operation: Runnable | Fill, one: Field) -> bool:
    """Does it write all values of a field (of a grid: but for ghosts) without looking at them?"""
    return one in operation.writes and (isinstance(operation, Fill) or operation.defines(one))


def _replaced(what: Field | Global, by: Runnable | Fill | None) -> bool:
    """Does an operation set everything that there is of a field or global, without looking at it? Ghosts and copies of
    another rank's elements are set by fills only. What is left of a transient field in the end nobody sees."""
    if by is None:
        return isinstance(what, Field) and what.transient
    if isinstance(by, Fill):
        return True
    return isinstance(what, Field) and what.set.shows_all and not what.set.halo and sets_anew(by, what)
