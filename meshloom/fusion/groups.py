"""Which operations of a program go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from meshloom.loop import Loop, Runnable
from meshloom.mesh.core import Field, Fill, Global, Set

Operation = Runnable | Fill
FEW = 4  # so many times fewer elements than targets, and it does not matter how they are evaluated


@dataclass
class Group:
    """Operations in order that run as one loop over ``on``; a single one that cannot has ``on`` None."""

    on: Set | None
    parts: list[Operation] = field(default_factory=list)
    end: int = 0  # position after its last part, in the list it was made from

    def touches(self, what: Field | Global) -> bool:
        return any(what in reads(o) or what in o.writes for o in self.parts)


def grouped(operations: Sequence[Operation]) -> list[Group]:
    """The operations in groups, as large as they can be; resetting a Global may join one that has not touched it."""
    done: list[Group] = []
    open_group: Group | None = None
    for position, operation in enumerate(operations):
        target = meeting_set(operation, open_group)
        if open_group and _joins(open_group, operation, target):
            open_group.parts.append(operation)
            open_group.end = position + 1
        else:
            open_group = Group(target, [operation], position + 1)
            done.append(open_group)
            open_group = open_group if target is not None else None
    return done


def _joins(group: Group, operation: Operation, target: Set | None) -> bool:
    if isinstance(operation, Fill) and isinstance(operation.target, Global):
        return not group.touches(operation.target)
    return target is group.on and _may_follow(group, operation)


def meeting_set(operation: Operation, group: Group | None = None) -> Set | None:
    """The set at whose elements an operation can take part in a fused loop, after a group; None where it cannot."""
    if isinstance(operation, Fill):
        return operation.target.set if isinstance(operation.target, Field) else None
    if not isinstance(operation, Loop):
        return None
    spec, wish = operation.spec, operation.wish
    if spec.one_to_one_maps or wish.order != "given" or operation.box is not None:
        return None
    if not spec.racy_outputs:
        free = wish.strategy == "auto" and not _sets_globals(operation) and not operation.set.halo
        return operation.set if free else None
    if len(spec.racy_maps) != 1 or spec.other_outputs:
        return None
    target = operation.maps[spec.racy_maps[0]].target
    fits = target is not operation.set and not target.halo and not operation.set.halo
    follows = group is not None and any(isinstance(o, Loop) and _by_owner(o) for o in group.parts)
    few = operation.wish.strategy == "auto" and FEW * operation.set.size < target.size
    return target if fits and (_by_owner(operation) or (few and follows)) else None


def _by_owner(loop: Loop) -> bool:
    """Are its elements evaluated once for every target, because that was asked for, or is best?

    A loop with few elements may join such a one, but not begin a group: reading its targets through a map, it would
    make the group write to a second buffer, for little gain.
    """
    return bool(loop.spec.racy_outputs) and loop.schedule.strategy == "owner" and FEW * loop.set.size >= _targets(loop)


def _targets(loop: Loop) -> int:
    return max(loop.maps[m].target.size for m in loop.spec.racy_maps)


def _sets_globals(loop: Loop) -> bool:
    modes = loop.kernel.modes.values()
    return any(isinstance(s, Global) and m.control for s, m in zip(loop.storages, modes, strict=True))


def _may_follow(group: Group, operation: Operation) -> bool:
    """Nothing is read at other elements, or as a Global, that the group has written."""
    if isinstance(operation, Fill):
        return True
    gathered = {o.maps[m] for o in group.parts if isinstance(o, Loop) for m in o.spec.racy_maps}
    if any(operation.maps[m] in gathered for m in operation.spec.racy_maps):
        return False  # the tables of one map serve one loop
    written = {id(w) for o in group.parts for w in o.writes}
    far = [s for s, a in zip(operation.storages, operation.arguments, strict=True)
           if isinstance(a, Global) or a.map is not None or operation.set is not group.on]  # fmt: skip
    racy = {id(operation.storages[o.param]) for o in operation.spec.racy_outputs}
    reduced = {id(operation.storages[o.param]) for o in operation.spec.reductions}
    before = {id(w) for o in group.parts if isinstance(o, Loop) for w in o.writes}
    return not (reduced & before) and not any(id(s) in written for s in far if id(s) not in racy | reduced)


def reads(operation: Operation) -> tuple[Field | Global, ...]:
    """What an operation needs to know, increments included."""
    return () if isinstance(operation, Fill) else operation.reads
