"""Which operations of a program go together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field

from meshloom.kernel.count import flops_by_kind
from meshloom.kernel.expr import topological
from meshloom.mesh.assigned import assigned_name
from meshloom.mesh.box import Box
from meshloom.mesh.core import Field, Global, Set
from meshloom.operation.dataflow import OFFSETS, SAME, DataAccess, Dataflow
from meshloom.operation.domain import Part
from meshloom.operation.operation import Operation
from meshloom.records import dataclass
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.choice.symmetry import rounded_by_side
from meshloom.schedule.plan.plan import Plan, alike
from meshloom.schedule.strategies import AUTOMATIC, GATHERS, serving, strategy
from meshloom.schedule.strategies.common.neighbours import NeighbourPlan, symmetric_tables
from meshloom.target import FusionNumbers

Joins = dict[Hashable, bool]  # of the operations of a group, and another one: may it join them?


@dataclass
class Group:
    """Operations in order that run as one loop over ``on``; a single one that cannot has ``on`` None. ``part``: where
    the points of the loop begin and end, if they are not all of a grid; what it writes then keeps its other values.
    ``joins``: what is known of groups of the same operations."""

    on: Set | None
    begin: int  # position of its first part in the program, and behind its last
    end: int
    parts: list[Operation] = field(default_factory=list)
    part: Part | None = None
    joins: Joins = field(default_factory=dict, repr=False)

    @property
    def loops(self) -> list[Operation]:
        return [o for o in self.parts if o.domain.visits_elements]

    @property
    def box(self) -> Box | None:
        """Of a grid, where its points are visited as such, because a loop looks around or they are not all."""
        return next((o.box for o in self.loops if o.box is not None), None)

    @property
    def is_simt(self) -> bool:
        """Do its loops run where the threads of a block run together?"""
        return any(o.backend.target.is_simt for o in self.loops)

    def in_order(self, another: Operation) -> bool:
        """Must targets take their terms in the order of elements, once another operation joins?"""
        return any(o.spec.in_order for o in (*self.loops, another))


def grouped(graph: Dataflow, gathers: bool = True, start: int = 0, joins: Joins | None = None) -> list[Group]:
    """The operations from ``start`` on in groups, as large as they can be. Fills belong to what follows them, else to
    what goes before. ``gathers``: may loops over other sets take part, whose increments go to the elements of the
    group? ``joins``: what is known of graphs that have some of the same operations."""
    operations, done, joins = graph.operations, list[Group](), {} if joins is None else joins
    open_group: Group | None = None
    first = start  # of the fills that wait for what follows
    for k in range(start, len(operations)):
        operation = operations[k]
        if operation.domain.all_memory:
            continue
        waiting = range(first, k + 1)
        target, part = iteration_set(operation, open_group, gathers), operation.domain.part
        same_set = open_group and target is open_group.on and part == open_group.part
        if open_group and same_set and _all_join(open_group, graph, waiting):
            open_group.end = k + 1
        else:
            new_group = Group(target, first, k + 1, [], part, joins)
            if target is None or not _all_join(new_group, graph, waiting):
                left = [j for j in waiting[:-1] if not (open_group and _takes_fill(open_group, graph, j, k))]
                done += [_alone(operations[j], j, k) for j in left]
                new_group = Group(target, k, k + 1, [operation], part, joins)
            done.append(new_group)
            open_group = new_group if target is not None else None
        first = k + 1
    waiting = range(first, len(operations))
    if open_group and _all_join(open_group, graph, waiting):
        open_group.end = len(operations)
        return done
    return done + [_alone(operations[j], j, len(operations)) for j in waiting]


def _alone(fill: Operation, position: int, end: int) -> Group:
    """A fill that no group takes, among others up to ``end``."""
    return Group(iteration_set(fill), position, end, [fill])


def _all_join(group: Group, graph: Dataflow, positions: Sequence[int]) -> bool:
    """Put the operations into the group, in order, if all of them may join it."""
    before = len(group.parts)
    for k in positions:
        if not _joins(group, graph, k):
            del group.parts[before:]
            return False
        group.parts.append(graph.operations[k])
    return True


def _takes_fill(group: Group, graph: Dataflow, position: int, end: int) -> bool:
    """Let a group set a field for an operation behind it that cannot start from the number itself; not where the group
    would need a second buffer for that, because it reads the field at other elements than its own."""
    (one,) = graph.operations[position].writes
    before = (access for access in graph.accessed(group.begin, position) if access.storage is one)
    elsewhere = any(_elsewhere(group, graph, access) for access in before if not _by_fill(graph, access))
    if not isinstance(one, Field) or elsewhere or not _all_join(group, graph, [position]):
        return False
    group.end = end
    return True


def _joins(group: Group, graph: Dataflow, position: int) -> bool:
    """May an operation join a group? Nothing else than the operations of the group has a say in that."""
    key = tuple(group.parts), graph.operations[position], group.on, group.part
    if key not in group.joins:
        group.joins[key] = _may_join(group, graph, position)
    return group.joins[key]


def _may_join(group: Group, graph: Dataflow, position: int) -> bool:
    operation = graph.operations[position]
    if operation.domain.all_memory:
        (of,) = operation.writes
        if isinstance(of, Field):
            return of.set is group.on and group.part is None
        return not any(True for _ in graph.into(position, group.begin))
    return (
        operation.domain.visits_elements
        and _one_loop(group, operation)
        and _one_box(group, graph, position)
        and not _waits_for_others(group, graph, position)
        and _one_visit(group, graph, position)
    )


def iteration_set(operation: Operation, group: Group | None = None, gathers: bool = True) -> Set | None:
    """The set at whose elements an operation can take part in a fused loop, after a group; None where it cannot."""
    if operation.domain.all_memory:
        return operation.domain.set
    if fusion_blocker(operation, group, gathers):
        return None
    return operation.maps[operation.spec.racy_maps[0]].target if operation.spec.racy_outputs else operation.set


def fusion_blocker(operation: Operation, group: Group | None = None, gathers: bool = True) -> str:
    """Why an operation cannot take part in a fused loop, after a group; empty where it can."""
    if not operation.domain.visits_elements:
        return "it is no plain loop"
    spec, wish = operation.spec, operation.wish
    around = [one.storage for one in operation.operands if one.pattern.looks_around]
    if operation.domain.part and any(one in operation.writes for one in around):
        return "it reads at other points what it writes"
    if operation.box is not None and wish.variant != "plain":
        return "its schedule was asked for"
    if wish.order != "given" or (not spec.racy_outputs and wish.strategy not in AUTOMATIC):
        return "its schedule was asked for"
    if _sets_globals(operation):
        return "it sets a Global"
    if operation.set.halo and not operation.set.exchanged:
        return "its set has a halo"
    if assigned := assigned_name(operation.maps):
        return f"map {assigned} was given other indices, and may be again"
    if spec.one_to_one_maps or any(spec.params[o.param].map is not None for o in spec.other_outputs):
        return "it writes through a map"
    return _gather_blocker(operation, group, gathers) if spec.racy_outputs else ""


def _gather_blocker(loop: Operation, group: Group | None, gathers: bool) -> str:
    """The same of a loop whose increments meet at the elements of another set."""
    if len(loop.spec.racy_maps) != 1 or loop.spec.other_outputs:
        return "not all that it changes is at the elements of one set"
    target = loop.maps[loop.spec.racy_maps[0]].target
    if target is loop.set:
        return "its elements add to their own set"
    if target.halo and not target.exchanged:
        return "the set that it adds to has a halo"
    if not gathers:
        return "as a part of a fused loop it would save too little"
    follows = group is not None and any(map(_at_targets, group.loops))
    few = loop.wish.strategy in AUTOMATIC and _numbers(loop).few * loop.set.owned < target.owned
    if _at_targets(loop) or (few and follows):
        return ""
    if few:
        return "it has few elements, and no loop that adds to the same set goes before"
    if loop.backend.target.is_simt or loop.wish.strategy not in AUTOMATIC:
        return f"its strategy is {loop.schedule.strategy}"
    return f"chunks of the set that it adds to would evaluate its elements {loop.chunking.evaluations:.2g} times"


def _at_targets(loop: Operation) -> bool:
    """Are its elements evaluated where their targets are? On a GPU once for every target, because that was asked for,
    or is best; on a CPU once for every chunk of targets, where few elements touch two of them.

    A loop with few elements may join such a one, but not begin a group: reading its targets through a map, it would
    make the group write to a second buffer, for little gain.
    """
    if not loop.spec.racy_outputs or _numbers(loop).few * loop.set.owned < _targets(loop):
        return False
    if loop.backend.target.is_simt:
        return strategy(loop.schedule.strategy).at_targets
    return loop.wish.strategy in AUTOMATIC and loop.chunking.evaluations <= loop.backend.target.cpu.chunks.most_again


def _numbers(loop: Operation) -> FusionNumbers:
    return loop.backend.target.numbers.fusion


def _one_loop(group: Group, operation: Operation) -> bool:
    """Is what its loops and another do with an element of the group a good loop? Its formulas are all as written or
    none is, so that each has the bits that it has by itself. On a CPU it must not be too long, and all of its parts or
    none must call functions such as exp: that is what keeps loops from being vectorised."""
    if any(o.strict != operation.strict for o in group.loops):
        return False
    if operation.backend.target.is_simt:
        return True
    loops = [o for o in (*group.loops, operation) if not o.spec.racy_outputs]
    roots = [[o.value for o in loop.spec.outputs] for loop in loops]
    calls = {bool(flops_by_kind(values).get("special")) for values in roots}
    short = len(loops) <= 1 or sum(1 for r in roots for _ in topological(r)) <= _numbers(operation).most_operations
    return len(calls) <= 1 and short


def _targets(loop: Operation) -> int:
    return max(loop.maps[m].target.owned for m in loop.spec.racy_maps)


def _sets_globals(loop: Operation) -> bool:
    return any(one.is_global and one.mode.control for one in loop.operands)


def _elsewhere(group: Group, graph: Dataflow, access: DataAccess) -> bool:
    """Does a loop access values at other elements of the set of a group than its own? What a gather adds to is at the
    elements of the group; all else that it reads is elsewhere."""
    loop = graph.operations[access.position]
    added = {loop.storages[o.param] for o in loop.spec.racy_outputs}
    return access.storage not in added and (access.distance != SAME or loop.set is not group.on)


def _by_fill(graph: Dataflow, access: DataAccess) -> bool:
    return graph.operations[access.position].domain.all_memory


def _waits_for_others(group: Group, graph: Dataflow, position: int) -> bool:
    """Does an operation need values that the loops of a group have made at other elements than its own, or for a
    Global? A Global that was reset may be read, because that is done before the group; but then no loop of the group
    adds to it."""
    found = list(graph.into(position, group.begin))
    reset = {earlier.storage for _, earlier, _ in found if _by_fill(graph, earlier)}
    for kind, earlier, mine in found:
        if isinstance(mine.storage, Global):
            anew = kind == "anti" and mine.storage in reset
            if not _by_fill(graph, earlier) and (kind == "flow" or anew):
                return True
        elif kind == "flow" and _elsewhere(group, graph, mine):
            return True
    return False


def _one_box(group: Group, graph: Dataflow, position: int) -> bool:
    """Can points of a grid do the loops of a group and another one after the other? None may go through a map where
    another looks around. Where the points are a part of the grid, nothing is written that any of them looks at from
    elsewhere: a second buffer would lack the other points."""
    loops = [*group.loops, graph.operations[position]]
    if all(loop.box is None for loop in loops):
        return True
    count = sum(1 for loop in loops for _ in topological(o.value for o in loop.spec.outputs))
    if count > _numbers(loops[-1]).most_operations or any(loop.maps for loop in loops):
        return False
    span = group.begin, position + 1
    around = {access.storage for access in graph.accessed(*span) if access.distance == OFFSETS} if group.part else ()
    return all(graph.changed_by(one, *span) is None for one in around)


def _one_visit(group: Group, graph: Dataflow, position: int) -> bool:
    """Can targets take what loops over one map give them in the same visit, each to fields of its own? Tables in roles
    belong to the first loop, and serve another one only where its own are the same; without them all follow the
    incidences. Where formulas are as written every sum must begin with what is there: no loop since the first of them
    has written that."""
    another = graph.operations[position]
    through = {another.maps[m] for m in another.spec.racy_maps}
    gathers = [k for k, o in enumerate(group.parts, group.begin)
               if o.domain.visits_elements and any(o.maps[m] in through for m in o.spec.racy_maps)]  # fmt: skip
    if not gathers:
        return True
    added = {another.storages[o.param] for o in another.spec.racy_outputs}
    writers = {k for one in added for k in graph.definitions(one, group.begin, position)}
    if not writers.isdisjoint(gathers):
        return False
    since = (graph.operations[k] for k in writers if k >= gathers[0])
    if group.in_order(another) and not all(one.domain.all_memory for one in since):
        return False
    first = graph.operations[gathers[0]]
    if not _written_slots(another) <= _written_slots(first):
        return False  # the incidences are those of the first
    if not another.backend.target.is_simt:
        return True
    block = another.backend.target.gpu.fused.block
    alone = len(first.maps) == len(another.maps) == 1  # tables of other maps would come with them
    sides = {_rounded_by_side(one) for one in (first, another)}
    if another.spec.reproducible and (len(sides) > 1 or (sides == {True} and not alone)):
        return False  # whatever tables there are: ranks have others
    plans = [loop.plan_of(Schedule(serving(GATHERS).name, block=block)) for loop in (first, another)]
    return not has_symmetric_tables(plans[0]) or (alone and alike(*plans))


def _written_slots(loop: Operation) -> set[int]:
    """Of the map through which it adds."""
    return set(loop.spec.written_slots(loop.spec.racy_maps[0]))


def _rounded_by_side(loop: Operation) -> bool:
    return rounded_by_side(loop.spec, loop.spec.racy_maps[0])


def has_symmetric_tables(plan: Plan) -> bool:
    """Has a plan of gathers tables in roles? Those by slot, of kernels without symmetry, serve loops by themselves."""
    return isinstance(plan, NeighbourPlan) and any(symmetric_tables(one) for one in plan.gathers.values())
