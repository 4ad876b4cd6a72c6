"""What a program recorded, looked at as a whole: is everything written before it is read, and what is for nothing?"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from meshloom.errors import KernelError
from meshloom.mesh.core import Field, Global
from meshloom.mesh.number import PlainNumber
from meshloom.operation import in_memory
from meshloom.operation.operation import Operation
from meshloom.operation.policy import ExecutionPolicy
from meshloom.recording import outside_program


class Recorded(list[Operation]):
    """What a function calls while it is recorded, in order: see ``recording.Recorder``.

    ``made``: fields and globals that the function made, in order. ``own``: loops with plain numbers, which belong to
    this recording alone, so that it may be given other numbers. ``hows``: how each was to run, and to be compiled, when
    it was recorded. A recording ``within`` another one shares both. ``calls``: which functions call each other up to
    here, the innermost last: the serial number of a program, and what it is given.
    """

    def __init__(self, within: Any = None, call: tuple[int, Hashable] = (0, ())):
        super().__init__()
        self.calls: tuple[tuple[int, Hashable], ...] = (*getattr(within, "calls", ()), call)
        self.made: dict[Field | Global, None] = getattr(within, "made", {})
        self.own: dict[tuple[Any, ...], Operation] = getattr(within, "own", {})
        self.hows: list[tuple[ExecutionPolicy, tuple[object, ...]]] = []

    def __call__(self, operation: Operation) -> None:
        self.append(operation)
        self.hows.append((operation.policy, operation.backend.key))

    def make(self, target: Field | Global) -> None:
        self.made[target] = None

    def forget_made(self, count: int) -> set[Field | Global]:
        found = [*self.made][count:]
        for one in found:
            del self.made[one]
        return {*found}

    def own_loop(self, key: tuple[Any, ...], make: Callable[[], Operation]) -> Operation:
        """The loop of this key: made once."""
        if key not in self.own:
            self.own[key] = make()
        return self.own[key]

    def fill(self, target: Field | Global, value: float | int) -> None:
        key = target.serial, repr(value)
        found = _fills.get(key)
        if found is None:
            found = _fills[key] = in_memory.fill(target, value)
        self(found)


Numbers = dict[PlainNumber, Any]


class Outline:
    """What tells a recording from others, but for its plain numbers: it holds these, and nothing else of it.

    ``numbers``: those of its own loops, at every place where one is used. Fields and globals that the function makes
    are known by the order in which it does: nobody but the recording has them, or it is not compared.
    """

    __slots__ = ("key", "numbers")

    def __init__(self, recorded: Recorded):
        own, made = set(recorded.own.values()), {one: k for k, one in enumerate(recorded.made)}
        numbers: list[PlainNumber] = []
        self.key: tuple[Hashable, ...] = tuple(
            [
                (one.name, one.backend, key, policy.wish, one.domain.known_by, one.body.known_by,
                 *_used(one, made, numbers if one in own else None))
                for one, (policy, key) in zip(recorded, recorded.hows, strict=True)
            ]
        )  # fmt: skip
        self.numbers = tuple(numbers)

    def other_numbers(self, new: Outline) -> Numbers | None:
        """The numbers by which a recording becomes a new one; None where they differ in more than numbers."""
        if self.key != new.key:
            return None
        found: Numbers = {}
        with outside_program():
            for one, other in zip(self.numbers, new.numbers, strict=True):
                value = other.plain
                if repr(found.setdefault(one, value)) != repr(value):
                    return None
        return found


def _used(one: Operation, made: Mapping[Any, int], numbers: list[PlainNumber] | None) -> tuple[Hashable, ...]:
    """What an operation works on, and how it gets there; plain numbers are put into ``numbers`` where they may
    differ."""
    found: list[Hashable] = []
    for storage, mode, reach, _ in one.operands:
        through = None if reach.map is None else reach.map.serial
        around = None if reach.offsets is None else (reach.offsets.grid.serial, reach.offsets.offsets)
        what: Hashable
        if numbers is not None and isinstance(storage, PlainNumber):
            numbers.append(storage)
            what = storage.kind
        elif storage in made:
            what = made[storage], _like(storage)
        else:
            what = storage.serial
        found.append((what, mode, through, around, *reach[2:]))
    return tuple(found)


def _like(one: Field | Global) -> Hashable:
    """What another field or global has in common with one that it can stand for."""
    if isinstance(one, Field):
        layout = None if one.layout_is_free else str(one.layout)
        return one.set.serial, one.components, one.dtype, one.temporary, layout
    return type(one), one.shape, one.dtype


def check_calls(name: str, recorded: Recorded) -> None:
    """KernelError where the function of a program has called nothing."""
    if not recorded:
        raise KernelError(f"program {name} calls no kernel: there is nothing to replay")


def difference(old: Recorded, new: Recorded) -> str:
    """In which operation two recordings of one function differ, as a person sees it; empty where they do not."""
    for a, b in zip(old, new, strict=False):
        if (a.name, str(a.domain), len(a.operands)) != (b.name, str(b.domain), len(b.operands)):
            return f"{a.name}, then {b.name}"
        for x, y in zip(a.operands, b.operands, strict=True):
            one, other = x.storage, y.storage
            if isinstance(one, PlainNumber) and isinstance(other, PlainNumber):
                with outside_program():
                    shown = repr(one.plain), repr(other.plain)
                if shown[0] != shown[1]:
                    return f"{a.name} with {shown[0]}, then with {shown[1]}"
            elif one is not other and not (one in old.made and other in new.made):
                return f"{a.name} with {one.name}, then with {other.name}"
    return "" if len(old) == len(new) else f"{len(old)} operations, then {len(new)}"


#: Fills that somebody holds: what is recorded twice is the same operation, as with loops.
_fills: WeakValueDictionary[tuple[int, str], Operation] = WeakValueDictionary()
