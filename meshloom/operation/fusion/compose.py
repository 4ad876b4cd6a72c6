"""A group of operations as one loop: expressions put together, outputs that are left, the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshloom.kernel import passes
from meshloom.kernel.access import Mode, Read, ReadWrite, identity
from meshloom.kernel.expr import Node, const, load, operate
from meshloom.kernel.model import Output
from meshloom.mesh.core import Field, Global, Map
from meshloom.mesh.offsets import Offsets
from meshloom.operation.arguments import spec_box
from meshloom.operation.body import BodyGraph, GivenBody
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.domain import BoxPoints, SetElements
from meshloom.operation.fusion.fused_policy import FusedPolicy
from meshloom.operation.fusion.groups import Group
from meshloom.operation.fusion.memory import Memory
from meshloom.operation.fusion.substitution import evaluated, substituted, valued, written
from meshloom.operation.operand import AccessPattern, Operand, Operands
from meshloom.operation.operation import Operation
from meshloom.operation.policy import spec_param
from meshloom.records import dataclass
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.fused.chunks import ChunkPlan, StagedTouching, Touching
from meshloom.schedule.fused.fused import FusedGather, FusedPlan, FusedSpec, touched_bits
from meshloom.schedule.plan.plan import Plan, topology
from meshloom.schedule.spec import SpecBox, SpecMap, SpecParam
from meshloom.schedule.strategies import CHUNKS, ELEMENTS, GATHERS, POINTS, serving
from meshloom.schedule.strategies.common.neighbours import (
    NeighbourPlan,
    OwnRing,
    SymmetricTables,
    element_order,
    symmetric_tables,
)
from meshloom.schedule.strategies.common.one_ring import along_map
from meshloom.schedule.strategies.common.tiles import TilePlan
from meshloom.target import CPU


@dataclass(frozen=True)
class _Sum:
    """What loops over other sets give to a field: the parameter it belongs to, and the components that are in it."""

    param: int
    mode: type[Mode]
    components: set[int]


class _Composer:
    """Collects parameters, maps and outputs of a fused loop while its parts are put together."""

    def __init__(self, group: Group, memory: Memory):
        assert group.on is not None
        self.group, self.memory, self.on = group, memory, group.on
        self.operands = Operands()
        self.maps: list[Map] = []
        self.gathers: list[tuple[Operation, int]] = []  # the loop, its racy map
        self.outputs: list[Output] = []
        self.values: dict[Field, list[Node]] = {}
        self.far: set[Field] = set()  # buffers read at other elements
        self.reset: dict[Global, Operation] = {}  # Globals that start anew: the fills
        self.starts_from: dict[int, float] = {}  # of these, those that the group itself adds up, by parameter
        self.sums: dict[Field, _Sum] = {}  # what was gathered last, and nobody has looked at
        self.starts: list[Output] = []  # what sums begin with, by parameter and component
        self.in_order = any(o.spec.in_order for o in group.loops)
        self.joined: dict[int, int] = {}  # parameters whose sum is that of another

    @property
    def storages(self) -> list[Field | Global]:
        """Of each parameter."""
        return [one.storage for one in self.operands.listed]

    @property
    def params(self) -> tuple[SpecParam, ...]:
        """The operands without their data."""
        return tuple([spec_param(one, self.maps, lambda field: field.layout) for one in self.operands.listed])

    def map_number(self, one: Map) -> int:
        if one not in self.maps:
            self.maps.append(one)
        return self.maps.index(one)

    def param(self, storage: Field | Global, through: Map | None, mode: type[Mode], name: str,
              offsets: Offsets | None = None) -> int:  # fmt: skip
        """The number of a parameter; direct reads and writes of one buffer share one, so that they keep their order."""
        seen_at = offsets.offsets if offsets is not None else ()
        apart = through, mode if isinstance(storage, Global) or mode.combine else None, seen_at
        if through is not None:
            self.map_number(through)
        return self.operands.number(Operand(storage, mode, AccessPattern(through, offsets), name), apart)

    def value(self, one: Field) -> list[Node]:
        """What the components of a field at the own element are at this point of the group."""
        if one not in self.values:
            number = self.memory.number(one)
            own = self._own(self.memory.buffer(one)) if number is None else [const(number, one.dtype)] * one.dim
            self.values[one] = own
        return self.values[one]

    def _own(self, buffer: Field) -> list[Node]:
        number = self.param(buffer, None, Read, buffer.name)
        return [load(number, 0, c, buffer.dtype) for c in range(buffer.dim)]

    def add(self, operation: Operation) -> None:
        first = operation.writes[0]
        if operation.domain.all_memory and isinstance(first, Global):
            self.reset[first] = operation
        else:
            (self._gather if operation.spec.racy_outputs else self._element)(operation)

    def _evaluated(self, loop: Operation) -> list[tuple[Output, str]]:
        """What a loop computes, in terms of the fused loop's parameters and of values at the own element."""

        def value(node: Node) -> Node:
            param, slot, comp = node.value
            operand = loop.operands[param]
            storage, reach = operand.storage, operand.pattern
            if isinstance(storage, Global):
                return load(self.param(storage, None, Read, operand.name), 0, comp, node.dtype)
            if loop.domain.set is self.on and not reach.elsewhere(slot):
                return self.value(storage)[comp]
            buffer = self.memory.buffer(storage)
            if not reach.elsewhere(slot):
                return load(self.param(buffer, None, Read, operand.name), slot, comp, node.dtype)
            self.far.add(buffer)
            return load(self.param(buffer, reach.map, Read, operand.name, reach.offsets), slot, comp, node.dtype)

        return evaluated(loop, value)

    def _element(self, loop: Operation) -> None:
        self.sums = {one: found for one, found in self.sums.items() if one not in loop.storages}
        outputs = self._evaluated(loop)
        for o, _ in outputs:
            storage, mode = loop.storages[o.param], loop.operands[o.param].mode
            if isinstance(storage, Global):
                number = self.param(storage, None, mode, storage.name)
                self.outputs.append(Output(number, 0, o.comp, o.value))
                if storage in self.reset:
                    self.starts_from[number] = self.reset[storage].graph.outputs[0].value.value
        modes = {one.storage: one.mode for one in loop.operands if one.mode.writes}
        self.values |= written(loop, outputs, lambda field: self._row_before(field, modes[field]))

    def _row_before(self, one: Field, mode: type[Mode]) -> list[Node]:
        """Values that a loop's outputs replace; those of a Write are all replaced, so nothing is loaded for them."""
        return self.value(one) if mode.reads or mode.combine else [const(0, one.dtype)] * one.dim

    def _gather(self, loop: Operation) -> None:
        (m,) = loop.spec.racy_maps
        self.gathers.append((loop, m))
        for o, _ in self._evaluated(loop):
            one, mode = loop.storages[o.param], loop.operands[o.param].mode
            assert isinstance(one, Field)
            number = self.param(one, loop.maps[m], mode, one.name)
            self.outputs.append(Output(number, o.slot, o.comp, o.value))
            total = self._sum(one, number, mode)
            if o.comp not in total.components:  # once for all slots: the total is that of all
                total.components.add(o.comp)
                old = self.value(one)
                after = self._added(total.param, mode, o.comp, old[o.comp])
                self.values[one] = [after if c == o.comp else v for c, v in enumerate(old)]

    def _added(self, param: int, mode: type[Mode], comp: int, old: Node) -> Node:
        """A component with what a gather gives to it. The sum begins with what was there, as that of the loop by itself
        does. Where fast algebra allows it, a formula is not evaluated before the gather, but merged with a sum that
        begins with nothing: its parts may be known to the loops after it; the order of terms must be free for that."""
        at_hand = old.op == "const" or (old.op == "load" and not self._is_sum(old.value[0]))
        total = load(param, 0, comp, old.dtype)
        if at_hand or self.in_order:
            self.starts.append(Output(param, 0, comp, old))
            return total
        self.starts.append(Output(param, 0, comp, const(identity(mode.combine, old.dtype), old.dtype)))
        return operate(mode.combine, [old, total])

    def _is_sum(self, param: int) -> bool:
        """Is a parameter what a gather adds up?"""
        operand = self.operands.listed[param]
        return operand.pattern.map is not None and bool(operand.mode.combine)

    def _sum(self, one: Field, number: int, mode: type[Mode]) -> _Sum:
        """What a parameter's increments are added up in: on a CPU that of the gather before, if nobody has looked."""
        found = self.sums.get(one)
        if found is None or (found.param != number and (self.group.is_simt or found.mode is not mode)):
            found = self.sums[one] = _Sum(number, mode, set())
        elif found.param != number:
            self.joined[number] = found.param
        return found

    def is_there(self, one: Field) -> bool:
        """Do a field's final values lie in its memory already, because both are one number everywhere?"""
        row = self.values[one]
        uniform = one in self.memory.constants and row == [const(self.memory.constants[one], one.dtype)] * one.dim
        return uniform and self.memory.number(one) is not None

    def alike(self, one: Field, other: Field) -> bool:
        """Do two fields that were written end with the same values, in the same form?"""
        stored = other not in self.memory.constants and _form(one) == _form(other)
        return stored and self.values[one] == self.values[other]

    def left_to_reset(self) -> list[Operation]:
        """Resets that the reductions of the group do not do by themselves, because they leave some components alone."""
        reduced = {k: {o.comp for o in self.outputs if o.param == k} for k in self.starts_from}
        self.starts_from = {k: v for k, v in self.starts_from.items() if len(reduced[k]) == self.storages[k].dim}
        done = [self.storages[k] for k in self.starts_from]
        return [fill for one, fill in self.reset.items() if one not in done]

    def unchanged(self, one: Field) -> Field | None:
        """The buffer whose rows the field's final values are, if they are just that."""
        row = self.values[one]
        for number, operand in enumerate(self.operands.listed):
            storage = operand.storage
            if not isinstance(storage, Field) or storage.set is not self.on or operand.pattern.through is not None:
                continue
            if _form(storage) == _form(one) and row == [load(number, 0, c, one.dtype) for c in range(one.dim)]:
                return storage
        return None


def _form(one: Field) -> tuple[Any, ...]:
    """What two fields on one set must share for one buffer to serve both."""
    return one.dim, one.dtype, one.layout


def fused(group: Group, memory: Memory) -> list[Operation]:
    """The group as one loop, if anything is left to do, after Globals that must be reset before. Moves the memory. What
    was put together before, of the same parts and with the same in memory, is taken as it was."""
    key = tuple(group.parts), group.on, group.part, memory.state(Dataflow(group.parts), group.part)
    if key in memory.cache.groups:
        steps, moves = memory.cache.groups[key]
        memory.move(moves)
    else:
        steps, moves = memory.cache.groups[key] = memory.moved_by(lambda: _composed(group, memory))
    found = [_once_more(one) if one in memory.steps else one for one in steps]
    memory.steps |= {one for one in found if one.composed}
    return found


def _once_more(one: Operation) -> Operation:
    """The same as a step of its own, which has times of its own."""
    return Operation(one.name, one.domain, one.operands, one.body, one.policy, one.backend)


def _composed(group: Group, memory: Memory) -> list[Operation]:
    composer = _Composer(group, memory)
    for part in group.parts:
        composer.add(part)
    _assign_buffers(composer)
    left = composer.left_to_reset()
    if not composer.outputs:
        return [*left]
    spec, plan = _finished(composer)
    schedule = Schedule("fused" if group.box is None else serving(POINTS).name, block=plan.block)
    domain = SetElements(composer.on) if group.box is None else BoxPoints(group.box)
    graph = BodyGraph(spec.outputs, starts_from=spec.starts_from, starts=spec.starts)
    body = GivenBody(graph, spec.strict, tuple(group.parts))
    policy = FusedPolicy(spec, plan, schedule, tuple(composer.maps))
    made = Operation(spec.name, domain, tuple(composer.operands.listed), body, policy, memory.backend)
    return [*left, made]


def _assign_buffers(composer: _Composer) -> None:
    """Decide for every field that was written where its values stay, and add the outputs that bring them there."""
    memory, part, temporary = composer.memory, composer.group.part, composer.memory.graph.is_temporary
    given = [one for one in Dataflow(composer.group.parts).written if isinstance(one, Field)]
    written = [one for one in given if one in composer.values]  # not those that may be written, and keep what they are
    moved: dict[Field, Field | None] = {}
    for one in written:
        source = composer.unchanged(one)
        if not memory.is_live(one, part):
            moved[one] = None
        elif composer.is_there(one):
            moved[one] = one
        elif source is not None and ((temporary(one) and not part) or source is memory.buffers.get(one, one)):
            moved[one] = source
    taken = composer.far | {b for b in moved.values() if b is not None}
    taken |= {b for f, b in memory.buffers.items() if f not in written and b is not None and memory.is_live(f)}
    for one in sorted((w for w in written if w not in moved), key=temporary):
        twin = next((f for f in moved if temporary(one) and moved[f] is not None and composer.alike(one, f)), None)
        if twin is not None and not part:
            moved[one] = moved[twin]
            continue
        place = moved[one] = one if part else memory.place_for(one, taken)
        memory.stored(one, place)
        taken.add(place)
        number = composer.param(place, None, ReadWrite, one.name)
        composer.outputs += [Output(number, 0, c, v) for c, v in enumerate(composer.values[one])]
    memory.buffers |= moved


def _finished(composer: _Composer) -> tuple[FusedSpec, Plan]:
    """Spec and plan; own values that a gather loads through its map are taken from there."""
    first = {composer.map_number(loop.maps[m]): (loop, m) for loop, m in reversed(composer.gathers)}  # of each map
    plan = _plan_together(composer, first) if composer.group.is_simt else _plan_in_chunks(composer, first)
    spec = _finished_spec(composer, plan)
    return spec, plan if spec.box is None else _plan_of_points(composer, spec)


def _finished_spec(composer: _Composer, plan: FusedPlan | ChunkPlan) -> FusedSpec:
    params, maps = composer.params, composer.maps
    dense = next((n for n, one in plan.gathers.items() if isinstance(one, FusedGather) and one.tables), None)
    same = composer.storages  # equal to themselves alone
    if dense is not None:
        twin = {k: next((j for j, p in enumerate(params) if p.map == dense and same[j] == same[k] and not p.racy), None)
                for k, p in enumerate(params) if p.map is None and not p.is_global and not p.mode.writes}  # fmt: skip
        _load_from(composer, {k: (j, 0) for k, j in twin.items() if j is not None})
    _take_own_points_from_stencils(composer)
    racy = [o for o in composer.outputs if params[o.param].racy]
    rest = [o for o in composer.outputs if not params[o.param].racy]
    best = valued((*rest, *composer.starts), passes.composed)
    outputs, starts = (*racy, *best[: len(rest)]), best[len(rest) :]
    targets = list(dict.fromkeys(m.target for m in maps))
    described = tuple(SpecMap(m.arity, m.index_type, targets.index(m.target), m.formula) for m in maps)
    own_maps = frozenset(k for k, m in enumerate(maps) if m.source is composer.on)
    loops = composer.group.loops
    name = "+".join(o.name for o in loops)
    buffers, starts_from = tuple(map(same.index, same)), tuple(composer.starts_from.items())
    return FusedSpec(name, params, described, outputs, own_maps=own_maps, buffers=buffers, starts_from=starts_from,
                     joined=tuple(composer.joined.items()), starts=starts, strict=any(o.strict for o in loops),
                     reproducible=any(o.spec.reproducible for o in loops), box=_points(composer.group))  # fmt: skip


def _load_from(composer: _Composer, places: Mapping[int, tuple[int, int]]) -> None:
    """Let parameters be loaded by others: their numbers -> another one, and its slot."""

    def value(node: Node) -> Node:
        param, slot, comp = node.value
        other, place = places.get(param, (param, slot))
        return load(other, place, comp, node.dtype)

    found = substituted((*composer.outputs, *composer.starts), value)
    cut = len(composer.outputs)
    composer.outputs, composer.starts = list(found[:cut]), list(found[cut:])


def _take_own_points_from_stencils(composer: _Composer) -> None:
    """What is read at the own point of a buffer around which a loop looks is the middle of that stencil: loaded once,
    with its neighbours. A buffer that is written here is not looked around in (``Memory.place_for``)."""
    params, storages = composer.params, composer.storages
    middle: dict[int, tuple[int, int]] = {}  # direct parameter -> the stencil's parameter, and the slot of its middle
    for k, one in enumerate(params):
        if one.offsets and not one.is_global:
            slots = [slot for slot, offset in enumerate(one.offsets) if not any(offset)]
            direct = (j for j, other in enumerate(params) if storages[j] is storages[k] and other.map is None
                      and not other.offsets and not other.mode.writes)  # fmt: skip
            middle |= {j: (k, slots[0]) for j in direct if slots}
    if middle:
        _load_from(composer, middle)


def _points(group: Group) -> SpecBox | None:
    if group.box is None:
        return None
    operands = [one for loop in group.loops for one in loop.operands]
    return spec_box(group.box, operands, Schedule(), group.loops[0].backend.target)


def _plan_of_points(composer: _Composer, spec: FusedSpec) -> Plan:
    """Of a loop over a box of a grid: that of the strategy ``box``."""
    box, chosen, target = composer.group.box, serving(POINTS), composer.group.loops[0].backend.target
    assert box is not None
    return chosen.build(topology(spec, box.size, {}, None, box), chosen.block(target, box.size, spec), target=target)


Gathers = dict[int, tuple[Operation, int]]  # the map's number in the fused loop: a loop through it, its number there


def _plan_together(composer: _Composer, gathers: Gathers) -> FusedPlan:
    """Every target visits its elements."""
    block = composer.group.loops[0].backend.target.gpu.fused.block
    return FusedPlan("fused", block, {n: _taken(composer, *gathers[n]) for n in sorted(gathers)})


def _plan_in_chunks(composer: _Composer, gathers: Gathers) -> ChunkPlan:
    """Chunks of targets visit the elements that touch them."""
    direct = serving(ELEMENTS).block(CPU, composer.on.owned)
    block = max((loop.chunking.size for loop, _ in gathers.values()), default=direct)
    return ChunkPlan("fused_chunks", block, {n: _touching(*gathers[n], block) for n in sorted(gathers)})


def _touching(loop: Operation, m: int, block: int) -> Touching:
    """What the plan of a loop by ``tile`` has for its map."""
    plan = loop.plan_of(Schedule(serving(CHUNKS).name, block=block))
    assert isinstance(plan, TilePlan)
    kind = StagedTouching if loop.policy.evaluates_first(loop) else Touching
    return kind(plan.tiled[m].tile_offsets, plan.tiled[m].tile_elements)


def _taken(composer: _Composer, loop: Operation, m: int) -> FusedGather:
    """What the plan of a gather by ``owner`` has for its map, with the maps numbered as in the fused loop."""
    plan = loop.plan_of(Schedule(serving(GATHERS).name, block=loop.backend.target.gpu.fused.block))
    assert isinstance(plan, NeighbourPlan)
    found, new = plan.gathers[m], {k: composer.map_number(one) for k, one in enumerate(loop.maps)}
    tables, along = symmetric_tables(found), None
    if tables is not None:
        ring, rows = ({new[k]: one for k, one in table.items()} for table in (tables.ring, tables.rows))
        tables, along = _along_own_map(composer, replace(tables, ring=ring, rows=rows), found.degree)
    return FusedGather(found.offsets, found.entries, tables, touched_bits(found.offsets), along)


def _along_own_map(composer: _Composer, tables: SymmetricTables, degree: int) -> tuple[SymmetricTables, OwnRing | None]:
    """Where a map of the targets themselves names the nodes of the ring, in order, it takes the ring's place."""
    near, entry = (one.reshape(composer.on.total, degree) for one in (tables.near, tables.entry))
    for k, ring in tables.ring.items():
        for j, one in enumerate(composer.maps):
            fits = one.source is composer.on and one.arity == degree and one.target is composer.maps[k].target
            if fits and not one.formula:
                found = along_map(ring.reshape(near.shape), near, entry, one.positions)
                if found is not None:
                    rest = {other: nodes for other, nodes in tables.ring.items() if other != k}
                    sorting = None if tables.sorting is None else element_order(found[1])
                    turned = replace(tables, near=found[0].reshape(-1), entry=found[1].reshape(-1), ring=rest,
                                     sorting=sorting)  # fmt: skip
                    return turned, OwnRing(j, k, int(found[2]))
    return tables, None
