"""A recorded program with its loops fused: what is done once, what is done for every replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from meshloom.errors import one_line
from meshloom.fusion.absorb import absorbed
from meshloom.fusion.compose import FusedLoop, NoConstant, fused
from meshloom.fusion.groups import Operation, grouped, sunk
from meshloom.fusion.memory import Memory
from meshloom.loop import Loop, Runnable
from meshloom.mesh.core import Field, Fill
from meshloom.schedule.vectors import in_words, share_of


class _Held(NamedTuple):
    """Some memory, whoever it belongs to."""

    storage: Any


class CopyMemory:
    """A copy as it is executed, without the fields."""

    def __init__(self, source: Any, target: Any):
        self.reads, self.writes = (_Held(source),), (_Held(target),)

    def __call__(self) -> None:
        source, target = self.reads[0].storage, self.writes[0].storage
        if isinstance(target, np.ndarray):
            target[:] = source
        else:
            target.data.copy_from_device_async(source.data, target.nbytes)


@dataclass(frozen=True)
class Copy:
    """Bring the values of a field home."""

    source: Field
    target: Field

    @property
    def name(self) -> str:
        return f"{self.target.name} brought home"

    @property
    def reads(self) -> tuple[Field, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[Field, ...]:
        return (self.target,)

    def in_memory(self) -> CopyMemory:
        """As it is executed."""
        return CopyMemory(self.source.storage, self.target.storage)


Step = FusedLoop | Runnable | Fill | Copy


@dataclass(frozen=True)
class FusedProgram:
    """``prologue`` once, then ``body`` for every replay. ``constants``: what fields must hold at the start."""

    prologue: tuple[Step, ...]
    body: tuple[Step, ...]
    constants: dict[Field, float]

    @property
    def bytes_moved(self) -> int:
        """By one replay, each buffer counted once in every step."""
        return sum(map(_moved, self.body))

    def explain(self) -> str:
        """One line for every step."""
        lines = ["fused program, each replay:"]
        for step in self.body:
            if isinstance(step, FusedLoop):
                apart = sum(o.counts.bytes.compulsory for o in step.parts if isinstance(o, Loop))
                now, before = step.compulsory / step.on.owned, apart / step.on.owned
                lines.append(
                    f"  {step.spec.name} as one loop over {step.on.name}: {now:.0f} bytes per element instead of"
                    f" {before:.0f}{in_words(share_of(step.spec, step.schedule, step.on.owned))}"
                    f"{', formulas as written (strict)' if step.spec.strict else ''}"
                )
            else:
                lines.append(f"  {step.name}" + (" by itself" if isinstance(step, Runnable) else ""))
        if self.prologue:
            names = " + ".join(s.spec.name if isinstance(s, FusedLoop) else s.name for s in self.prologue)
            lines.append(f"  before the first one: {names}; later ones find it done by the one before")
        lines += [f"  {f.name} is {v:g} everywhere between replays, so it is neither loaded nor stored"
                  for f, v in self.constants.items()]  # fmt: skip
        return "\n".join(map(one_line, lines))


Way = Callable[[Sequence[Operation], dict[Field, float]], FusedProgram | None]


def _moved(step: Step) -> int:
    if isinstance(step, FusedLoop | Runnable):
        return step.compulsory
    return int(step.target.storage.nbytes) * (2 if isinstance(step, Copy) else 1)


def fuse(operations: Sequence[Operation]) -> FusedProgram:
    """A recorded program with its loops fused where that is possible.

    Operations at its start that write transient fields only may be done at its end as well, for the next replay, where
    they can join the last group; before the first replay they are then done once by themselves. What moves less counts.
    """
    together = any(isinstance(o, Runnable) and o.backend.target.together for o in operations)
    operations = sunk(absorbed(operations, together=together))
    ways = [_with_constants(way, operations) for way in (_rotated, _straight)]
    return min((way for way in ways if way is not None), key=lambda way: way.bytes_moved)


def _with_constants(way: Way, operations: Sequence[Operation]) -> FusedProgram | None:
    """One way to fuse, with as many fields as possible taken to be constant between replays."""
    constants = _constants(operations)
    while True:
        try:
            return way(operations, constants)
        except NoConstant as failed:
            constants = {f: v for f, v in constants.items() if f is not failed.field}


def _rotated(operations: Sequence[Operation], constants: dict[Field, float]) -> FusedProgram | None:
    head = 0
    while head < len(operations) and all(isinstance(w, Field) and w.transient for w in operations[head].writes):
        head += 1
    if head in (0, len(operations)):
        return None
    cycle = [*operations[head:], *operations[:head]]
    memory = Memory(cycle, constants)
    prologue = tuple(_steps(operations[:head], memory, len(cycle) - head))
    start = dict(memory.at)
    body = tuple(_steps(cycle, memory, 0))
    # The next replay must find everything that it asks for where the first one did.
    asked = [f for f in memory.at if memory.needed_later(f)]
    same = all(memory.at[f] is start.get(f, None if f.transient else f) for f in asked)
    return FusedProgram(prologue, body, constants) if same else None


def _straight(operations: Sequence[Operation], constants: dict[Field, float]) -> FusedProgram:
    memory = Memory(operations, constants)
    body = list(_steps(operations, memory, 0))
    for one in [f for f in memory.at if not f.transient]:
        body += _home(one, (), memory)
    return FusedProgram((), tuple(body), constants)


def _steps(operations: Sequence[Operation], memory: Memory, start: int) -> Iterator[Step]:
    """The operations, which begin at position ``start`` of the memory's cycle."""
    for group in grouped(operations):
        memory.position = start + group.end
        if group.on is not None and (len(group.parts) > 1 or _gains(group.parts[0], memory)):
            yield from fused(group, memory)
            continue
        for operation in group.parts:
            yield from _homecoming(operation, memory)
            yield operation


def _gains(operation: Operation, memory: Memory) -> bool:
    """Is an operation better composed even alone? A field is not at home, or one is written that needs no store: nobody
    will ask for it, or it is a copy of another."""
    fields = [f for f in (*operation.reads, *operation.writes) if isinstance(f, Field)]
    away = any(memory.at.get(f, f) is not f for f in fields)
    written = [f for f in operation.writes if isinstance(f, Field)]
    return away or any(not memory.needed_later(f) or (f.transient and _only_copied(operation, f)) for f in written)


def _only_copied(operation: Operation, one: Field) -> bool:
    if isinstance(operation, Fill):
        return False
    values = [o.value for o in operation.spec.outputs if operation.storages[o.param] is one]
    return all(value.op == "load" for value in values)


def _homecoming(operation: Operation, memory: Memory) -> Iterator[Step]:
    """Copies that bring everything home that an operation by itself uses, or would overwrite."""
    for one in operation.writes:
        if isinstance(one, Field) and one in memory.constants:
            raise NoConstant(one)
    wanted = operation.reads
    for one, where in list(memory.at.items()):
        if one in wanted or (where is not one and where in operation.writes and memory.needed_later(one)):
            yield from _home(one, wanted, memory)
    memory.at |= {one: one for one in operation.writes if isinstance(one, Field)}


def _home(one: Field, wanted: Sequence[object], memory: Memory) -> Iterator[Step]:
    """Copies that bring a field home; what still lives there, and is needed, goes to its own home before."""
    where = memory.buffer(one)
    if where is one:
        return
    for other, lives in list(memory.at.items()):
        if other is not one and lives is one and (other in wanted or memory.needed_later(other)):
            yield from _home(other, wanted, memory)
    yield Copy(where, one)
    memory.at[one] = one


def _constants(operations: Sequence[Operation]) -> dict[Field, float]:
    """Fields whose last write in the program sets one number everywhere: they hold it when the next replay begins."""
    found: dict[Field, float] = {}
    for operation in operations:
        for one in operation.writes:
            if not isinstance(one, Field):
                continue
            found.pop(one, None)
            if isinstance(operation, Fill):
                found[one] = operation.value
            elif isinstance(operation, Loop) and operation.set is one.set and operation.box is None:
                mine = [o for o in operation.spec.outputs if operation.storages[o.param] is one]
                values = {o.value.value for o in mine if o.value.op == "const"}
                if len(values) == 1 and len(mine) == one.dim and all(o.value.op == "const" for o in mine):
                    found[one] = float(values.pop())
    return {f: v for f, v in found.items() if not f.transient and not f.set.halo}
