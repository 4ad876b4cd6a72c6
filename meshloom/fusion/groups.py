"""Which operations of a program go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from meshloom.kernel.access import Write
from meshloom.loop import Loop, Runnable
from meshloom.mesh.core import Field, Fill, Global, Set
from meshloom.schedule.plan import Plan, alike
from meshloom.schedule.schedule import Schedule
from meshloom.schedule.strategies import AUTOMATIC
from meshloom.schedule.strategies.owner import NeighbourPlan, role_tables

Operation = Runnable | Fill
BLOCK = 128  # threads that a fused loop puts into a block
FEW = 4  # so many times fewer elements than targets, and it does not matter how they are evaluated


@dataclass
class Group:
    """Operations in order that run as one loop over ``on``; a single one that cannot has ``on`` None."""

    on: Set | None
    parts: list[Operation] = field(default_factory=list)
    end: int = 0  # position after its last part, in the list it was made from

    def touches(self, what: Field | Global) -> bool:
        return any(what in o.reads or what in o.writes for o in self.parts)


def sunk(operations: Sequence[Operation]) -> list[Operation]:
    """The same with every Fill right before the first operation that touches what it sets, where it can join it."""
    moved: list[Operation] = []
    waiting: list[Fill] = []
    for operation in operations:
        touched = (*operation.reads, *operation.writes)
        moved += [fill for fill in waiting if fill.target in touched]
        waiting = [fill for fill in waiting if fill.target not in touched]
        (waiting if isinstance(operation, Fill) else moved).append(operation)  # type: ignore[arg-type]
    return [*moved, *waiting]


def grouped(operations: Sequence[Operation]) -> list[Group]:
    """The operations in groups, as large as they can be. Fills belong to what follows them."""
    done: list[Group] = []
    open_group: Group | None = None
    fills: list[Operation] = []  # wait for what follows
    for position, operation in enumerate(operations, 1):
        if isinstance(operation, Fill):
            fills.append(operation)
            continue
        target = meeting_set(operation, open_group)
        if open_group and target is open_group.on and _all_join(open_group, [*fills, operation]):
            open_group.end = position
        else:
            fresh = Group(target, [], position)
            if target is None or not _all_join(fresh, [*fills, operation]):
                done += [Group(meeting_set(one), [one], position - 1) for one in fills]
                fresh.parts = [operation]
            done.append(fresh)
            open_group = fresh if target is not None else None
        fills = []
    if open_group and _all_join(open_group, fills):
        open_group.end = len(operations)
        return done
    return done + [Group(meeting_set(one), [one], len(operations)) for one in fills]


def _all_join(group: Group, operations: Sequence[Operation]) -> bool:
    """Put the operations into the group, in order, if all of them may join it."""
    before = len(group.parts)
    for operation in operations:
        if not _joins(group, operation):
            del group.parts[before:]
            return False
        group.parts.append(operation)
    return True


def _joins(group: Group, operation: Operation) -> bool:
    if isinstance(operation, Fill):
        of = operation.target
        return of.set is group.on if isinstance(of, Field) else not group.touches(of)
    return isinstance(operation, Loop) and _may_follow(group, operation)


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
        free = wish.strategy in AUTOMATIC and not _sets_globals(operation) and not operation.set.halo
        return operation.set if free else None
    if len(spec.racy_maps) != 1 or spec.other_outputs:
        return None
    target = operation.maps[spec.racy_maps[0]].target
    fits = target is not operation.set and not target.halo and not operation.set.halo
    follows = group is not None and any(isinstance(o, Loop) and _by_owner(o) for o in group.parts)
    few = operation.wish.strategy in AUTOMATIC and FEW * operation.set.size < target.size
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
    modes = loop.modes.values()
    return any(isinstance(s, Global) and m.control for s, m in zip(loop.storages, modes, strict=True))


def _may_follow(group: Group, operation: Loop) -> bool:
    """Nothing is read at other elements, or as a Global, that the loops of the group have written. A Global that was
    reset may be read, because that is done before the group; but then no loop of the group adds to it."""
    loops = [o for o in group.parts if isinstance(o, Loop)]
    through = {operation.maps[m] for m in operation.spec.racy_maps}
    again = [o for o in loops if any(o.maps[m] in through for m in o.spec.racy_maps)]
    if again and not _one_visit(again, operation):
        return False
    reset = {id(o.target) for o in group.parts if isinstance(o, Fill) and isinstance(o.target, Global)}
    written = {id(w) for o in group.parts for w in o.writes} - reset | {id(w) for o in loops for w in o.writes}
    far = [s for s, a in zip(operation.storages, operation.arguments, strict=True)
           if isinstance(a, Global) or a.map is not None or operation.set is not group.on]  # fmt: skip
    racy = {id(operation.storages[o.param]) for o in operation.spec.racy_outputs}
    reduced = {id(operation.storages[o.param]) for o in operation.spec.reductions}
    before = {id(w) for o in loops for w in o.writes} | (reset & {id(r) for o in loops for r in o.reads})
    return not (reduced & before) and not any(id(s) in written for s in far if id(s) not in racy | reduced)


def _one_visit(before: Sequence[Loop], another: Loop) -> bool:
    """Can targets take what loops over one map give them in the same visit, each to fields of its own? Tables in roles
    belong to the first loop, and serve another one only where its own are the same; without them all follow the
    incidences."""
    given = {id(loop.storages[o.param]) for loop in before for o in loop.spec.racy_outputs}
    if any(id(another.storages[o.param]) in given for o in another.spec.racy_outputs):
        return False
    plans = [loop.plan_of(Schedule("owner", block=BLOCK)) for loop in (before[0], another)]
    if not in_roles(plans[0]):
        return True
    alone = len(before[0].maps) == len(another.maps) == 1  # tables of other maps would come with them
    return alone and alike(*plans)


def in_roles(plan: Plan) -> bool:
    """Has a plan of ``owner`` tables in roles? Those by slot, of kernels without symmetry, serve ``owner`` alone."""
    return isinstance(plan, NeighbourPlan) and any(role_tables(one) for one in plan.gathers.values())


def replaces(operation: Operation, one: Field) -> bool:
    """Does it write all values of a field without looking at them?"""
    if isinstance(operation, Fill):
        return operation.target is one
    if not isinstance(operation, Loop):
        return False
    roles = [(a, m) for s, a, m in zip(operation.storages, operation.arguments, operation.modes.values(),
                                       strict=True) if s is one]  # fmt: skip
    whole = operation.set is one.set and not one.set.halo and operation.box is None
    return bool(roles) and whole and all(m is Write and a.map is None for a, m in roles if not isinstance(a, Global))
