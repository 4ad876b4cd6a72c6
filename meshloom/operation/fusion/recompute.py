"""A stencil over a stencil's results: values computed again where they are read, instead of stored and loaded.

A loop over points of a grid (the *producer*) sets a field that a later loop (the *consumer*) looks at from others.
The two are no group: what the consumer needs, other points make. But it may make that itself: the producer's formula at
the shifted points, its own reads shifted with it. Such a consumer is a loop as others are, which asks for what the
producer reads; nobody may need the field then, and the producer is gone.

That is right where the producer has set every point that the consumer looks at, and what the producer reads is the same
version there. It is done where the cost model says that the whole program takes less time: the field is not moved, but
its formula is evaluated at every offset, less what neighbouring evaluations share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from meshloom.kernel import passes
from meshloom.kernel.access import Read, Write
from meshloom.kernel.count import loads
from meshloom.kernel.expr import Node, load, topological
from meshloom.kernel.model import Output
from meshloom.mesh.box import AXES, Box
from meshloom.mesh.core import Field, Global
from meshloom.mesh.grid import Grid
from meshloom.mesh.offsets import Index
from meshloom.operation.body import BodyGraph, GivenBody
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.domain import BoxPoints
from meshloom.operation.fusion.cost import seconds_at_points
from meshloom.operation.fusion.groups import fusion_blocker
from meshloom.operation.fusion.substitution import evaluated, valued
from meshloom.operation.fusion.trials import Trials
from meshloom.operation.operand import DIRECTLY, AccessPattern, Operand, Operands
from meshloom.operation.operation import Operation
from meshloom.records import dataclass
from meshloom.target import CPU


# ----- which loops ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class StencilPair:
    """A loop that looks at ``fields`` from other points than its own, and the loop that has set them. ``position``: of
    the consumer in the program; ``refused``: why it cannot compute them itself, or nothing."""

    producer: Operation
    consumer: Operation
    position: int
    fields: tuple[Field, ...]
    refused: str = ""

    @property
    def names(self) -> str:
        return " and ".join(one.name for one in self.fields)


def pairs_of(graph: Dataflow, position: int) -> list[StencilPair]:
    """Readers that look around in what the loop at a position sets."""
    producer = graph.operations[position]
    if not producer.domain.visits_elements or not isinstance(producer.set, Grid):
        return []
    seen: dict[int, list[Field]] = {}
    for one in dict.fromkeys(w for w in producer.writes if isinstance(w, Field)):
        for k in graph.uses(one, position):
            seen.setdefault(k, []).append(one)
    found: list[StencilPair] = []
    for k in sorted(seen):
        consumer = graph.operations[k]
        if consumer.domain.visits_elements and _seen_around(consumer).intersection(seen[k]):
            fields = tuple(one for one in dict.fromkeys(consumer.storages) if isinstance(one, Field) and one in seen[k])
            pair = StencilPair(producer, consumer, k, fields)
            found.append(replace(pair, refused=_blocker(pair, graph, position)))
    return found


def _seen_around(loop: Operation) -> set[Field]:
    """Fields that a loop loads at other points than its own."""
    loaded = [one for k, one in enumerate(loop.operands) if k in loop.graph.loaded]
    return {o.storage for o in loaded if isinstance(o.storage, Field) and o.pattern.looks_around}


def _blocker(pair: StencilPair, graph: Dataflow, position: int) -> str:
    """Why the consumer cannot compute the fields itself; empty where it can. ``position``: of the producer."""
    producer, consumer = pair.producer, pair.consumer
    for loop in (producer, consumer):
        apart = fusion_blocker(loop) or ("it goes through a map" if loop.maps else "")
        if apart:
            return f"{loop.name} stays by itself: {apart}"
    if producer.strict != consumer.strict:
        return "one of the two is strict, and the other is not"
    for one in pair.fields:
        set_anew = not producer.needs(one) and len(_formulas(producer, one)) == one.dim
        if not set_anew or graph.changed_by(one, pair.position, pair.position + 1) is not None:
            return f"{one.name} is changed, not set"
        outside = _not_covered(producer, consumer, one)
        if outside:
            return outside
    made_from = {what for one in pair.fields for what in _inputs(producer, one)}
    inputs = [what for what in dict.fromkeys(producer.storages) if what in made_from]
    for what in inputs:
        changing = graph.changed_by(what, position, pair.position)
        if changing is producer:
            return f"{producer.name} changes {what.name}, from which it is made"
        if changing is not None:
            return f"{changing.name} changes {what.name} in between"
    around = _seen_around(consumer)
    own = next((w for w in consumer.writes if w in around or (w in inputs and not _sets(consumer, w))), None)
    return f"it changes {own.name}, which it would look at from other points" if own is not None else ""


def _sets(loop: Operation, one: Field | Global) -> bool:
    """Does a loop say for every component of a field what it is afterwards?"""
    combined = any(o.mode.combine for o in loop.operands if o.storage is one)
    return isinstance(one, Field) and not combined and len(_formulas(loop, one)) == one.dim


def _formulas(producer: Operation, one: Field) -> dict[int, Node]:
    """What the producer sets the components of a field to."""
    return {o.comp: o.value for o in producer.spec.outputs if producer.storages[o.param] is one}


def _inputs(producer: Operation, one: Field) -> set[Field | Global]:
    """What the producer reads for a field."""
    return {producer.storages[param] for param, _, _ in loads(_formulas(producer, one).values())}


def _not_covered(producer: Operation, consumer: Operation, one: Field) -> str:
    """Where the consumer looks at points that the producer does not set, or too far around the end of a grid; or
    nothing."""
    grid = producer.set
    assert isinstance(grid, Grid)
    made, read = _box(producer), _box(consumer)
    for offset in _offsets_read(consumer, one):
        for a, step in enumerate(offset):
            inside = made.low[a] <= read.low[a] + step and read.high[a] + step <= made.high[a]
            all_round = grid.wraps[a] and made.shape[a] == grid.shape[a]
            if not inside and not all_round:
                return f"it looks at points beyond {made} on axis {AXES[a]}, which others set"
            offsets = [s for p in _inputs(producer, one) for s in _offsets_read(producer, p)]
            reach = max((abs(step + s[a]) for s in offsets), default=0)
            if grid.wraps[a] and reach > grid.shape[a]:
                return f"axis {AXES[a]} has only {grid.shape[a]} points"
    return ""


def _box(loop: Operation) -> Box:
    """The points that a loop over a grid visits."""
    assert isinstance(loop.set, Grid)
    return loop.box or loop.set.everything


def _offsets_read(loop: Operation, what: Field | Global) -> list[Index]:
    """The offsets at which a loop loads a field."""
    loaded = {(param, slot) for param, slot, _ in loads(o.value for o in loop.spec.outputs)}
    return [_offset(loop, param, slot) for param, slot in sorted(loaded) if loop.storages[param] is what]


def _offset(loop: Operation, param: int, slot: int) -> Index:
    offsets = loop.operands[param].pattern.offsets
    return (0,) * _box(loop).grid.rank if offsets is None else offsets.offsets[slot]


# ----- one loop of two ------------------------------------------------------------------------------------------------
class _Joined:
    """Collects what a consumer needs that computes fields itself: one operand for everything that it reads or writes,
    a field that is read at several points with all of its offsets."""

    def __init__(self, pair: StencilPair):
        self.pair, self.operands = pair, Operands()
        self.written: dict[Field | Global, int] = {}  # what the consumer writes: the operand by which it does now
        self.offsets: dict[Field, list[Index]] = {}
        self.double_buffers: dict[Field, Field] = {}  # what is written beside its place, because others look there
        looked_at = {what for one in pair.fields for what in _inputs(pair.producer, one)}
        for one in pair.consumer.operands:
            what, mode = one.storage, one.mode
            if mode.writes and what in looked_at and isinstance(what, Field):
                what, mode = self.double_buffers.setdefault(what, _twin(what)), Write
            if mode.writes:
                self.written[one.storage] = self.operands.number(Operand(what, mode, name=one.name))

    def loops(self) -> list[Operation]:
        """The consumer that needs the fields no more, and loops that copy back what it wrote next to its place."""
        copied = [_copy_back_loop(self.pair.consumer, new, old) for old, new in self.double_buffers.items()]
        return [self._loop(), *copied]

    def _loop(self) -> Operation:
        consumer = self.pair.consumer
        found = [o for o, _ in evaluated(consumer, self._read_by_consumer)]
        best = valued(found, passes.composed)
        outputs = tuple([replace(o, param=self.written[consumer.storages[o.param]]) for o in best])
        names = [one.name for one in self.operands.listed]
        unique = [n if n not in names[:k] else f"{n}_{k}" for k, n in enumerate(names)]
        operands = tuple([one._replace(pattern=self._reach(one.storage), name=name)
                          for one, name in zip(self.operands.listed, unique, strict=True)])  # fmt: skip
        body = GivenBody(BodyGraph(outputs), consumer.strict, (self.pair.producer, consumer))
        return Operation(consumer.name, BoxPoints(_box(consumer)), operands, body, consumer.policy, consumer.backend)

    def _reach(self, what: Field | Global) -> AccessPattern:
        """How the loop reaches it."""
        offsets = [] if isinstance(what, Global) else self.offsets.get(what, [])
        if isinstance(what, Global) or not any(map(any, offsets)):
            return DIRECTLY
        assert isinstance(what.set, Grid)
        return AccessPattern(offsets=what.set.offsets(*offsets))

    def _read_by_consumer(self, node: Node) -> Node:
        consumer, (param, slot, comp) = self.pair.consumer, node.value
        there, what = _offset(consumer, param, slot), consumer.storages[param]
        if isinstance(what, Field) and what in self.pair.fields:
            return self._produced_at(what, there)[comp]
        return self._load(consumer, param, there, node)

    def _produced_at(self, one: Field, offset: Index) -> dict[int, Node]:
        """What the producer sets the components of a field to at a point so far away."""
        producer = self.pair.producer

        def value(node: Node) -> Node:
            param, slot, _ = node.value
            there = tuple(x + d for x, d in zip(_offset(producer, param, slot), offset, strict=True))
            return self._load(producer, param, there, node)

        return {o.comp: o.value for o, _ in evaluated(producer, value, one)}

    def _load(self, loop: Operation, param: int, offset: Index, node: Node) -> Node:
        """What a loop loads by a parameter, at an offset."""
        what = loop.storages[param]
        number, comp = self.operands.number(Operand(what, Read, name=loop.operands[param].name)), node.value[2]
        if isinstance(what, Global):
            return load(number, 0, comp, node.dtype)
        known = self.offsets.setdefault(what, [])
        if offset not in known:
            known.append(offset)
        return load(number, known.index(offset), comp, node.dtype)


def _twin(one: Field) -> Field:
    return Field(one.set, f"{one.name}_new", one.components, dtype=one.dtype, layout=one.layout, temporary=True)


def _copy_back_loop(consumer: Operation, new: Field, old: Field) -> Operation:
    """A loop that copies, at the points of a consumer, what it has written elsewhere."""
    values = tuple(Output(1, 0, c, load(0, 0, c, old.dtype)) for c in range(old.dim))
    body = GivenBody(BodyGraph(values), consumer.strict, (consumer,))
    operands = (Operand(new, Read, name="new"), Operand(old, Write, name="old"))
    domain, name = BoxPoints(_box(consumer)), f"{old.name} copied back"
    return Operation(name, domain, operands, body, consumer.policy.asked(name, None), consumer.backend)


# ----- a program ------------------------------------------------------------------------------------------------------
def without_store(graph: Dataflow, position: int, pairs: list[StencilPair]) -> tuple[Dataflow, list[StencilPair]]:
    """The operations with consumers that compute themselves what the loop at a position makes, wherever they can, and
    without that loop where nobody needs it any more; and the pairs."""
    operations, producer, pairs = graph.operations, graph.operations[position], [*pairs]
    if all(pair.refused for pair in pairs):
        return graph, pairs
    new: dict[int, list[Operation]] = {}
    for k, pair in enumerate(pairs):
        if not pair.refused:
            loops = _Joined(pair).loops()
            pairs[k] = replace(pair, refused=_too_long(loops[0]))
            new |= {} if pairs[k].refused else {pair.position: [*loops]}
    rest = [one for k in range(position + 1, len(operations)) for one in new.get(k, [operations[k]])]
    changed = graph.with_operations([*operations[: position + 1], *rest])
    regions = {one: graph.written_region(one, position, position + 1) for one in producer.writes}
    temporary = all(map(graph.is_temporary, regions))
    if temporary and not any(changed.is_live(one, position + 1, region) for one, region in regions.items()):
        changed = graph.with_operations([*operations[:position], *rest])
    return changed, pairs


def _too_long(loop: Operation) -> str:
    roots = [o.value for o in loop.spec.outputs]
    operations, loaded = len(topological(roots)), loads(roots)
    registers, target = sum(loop.spec.params[param].dtype.itemsize // 4 for param, _, _ in loaded), loop.backend.target
    if operations > target.numbers.fusion.most_operations:
        return f"computed again it would be one of {operations} operations at a point"
    if target.is_simt and registers > target.gpu.fused.most_registers:
        return f"computed again it would be one of {len(loaded)} loads at a point"
    return ""


def recompute(graph: Dataflow, trials: Trials) -> Dataflow:
    """The operations with loops that compute again what others make, wherever the program then takes less time. Of a
    trial only the groups that differ are put together, but all operations are gone through: a long program, of which
    every step is a trial, would take longer to weigh than to run."""
    numbers = next((o.backend.target for o in graph.operations if not o.domain.all_memory), CPU).numbers.fusion
    position = weighed = 0
    while position < len(graph.operations) and weighed < numbers.most_weighed:
        known = _that_matter(pairs_of(graph, position), partial(trials.seconds, graph))
        changed, pairs = without_store(graph, position, known)
        taken = [pair for pair in pairs if not pair.refused]
        trials.note(*[_note(pair) for pair in pairs if pair.refused])
        position += 1
        if taken:
            weighed += len(changed.operations)
            share = trials.seconds(changed) / trials.seconds(graph)
            trials.note(*[_note(pair, share) for pair in taken])
            better, worse = (changed, graph) if share < numbers.worth_again else (graph, changed)
            position -= better.operations[position - 1] is not graph.operations[position - 1]  # the producer is gone
            trials.forget(worse)
            graph = better
    if position < len(graph.operations):
        left = len(graph.operations) - position
        trials.note(f"of {left} operations more nobody asked what to compute again: it is long")
    return graph


def _that_matter(pairs: list[StencilPair], takes: Callable[[], float]) -> list[StencilPair]:
    """The same, refused where it would not be worth it even if all of their loops took no time. ``takes``: seconds of
    the program."""
    asked = [pair for pair in pairs if not pair.refused]
    loops = dict.fromkeys(one for pair in asked for one in (pair.producer, pair.consumer))
    most = sum(seconds_at_points(one, one.backend.target.rates) for one in loops)
    if not asked or most >= (1.0 - asked[0].consumer.backend.target.numbers.fusion.worth_again) * takes():
        return pairs
    return [replace(pair, refused=pair.refused or "it takes little of the program's time") for pair in pairs]


def _note(pair: StencilPair, share: float = 1.0) -> str:
    count = len({offset for one in pair.fields for offset in _offsets_read(pair.consumer, one)})
    points = f"{count} point{'s' if count != 1 else ''}"
    kept = f"{pair.names} {'is' if len(pair.fields) == 1 else 'are'}"
    percent = f"{100 * share:.0f}"
    estimated = f"{'as long' if percent == '100' else f'{percent} % of the time'} by the cost model"
    if pair.refused:
        return f"{kept} stored for {pair.consumer.name}: {pair.refused}"
    if share < pair.consumer.backend.target.numbers.fusion.worth_again:
        return f"{kept} computed again by {pair.consumer.name} at {points}, and not loaded: {estimated}"
    found = f"{kept} stored for {pair.consumer.name}: computed again at {points} it would take {estimated}"
    lasting = any(not one.temporary for one in pair.fields)  # so that it is stored anyway, read or not
    they = "it" if len(pair.fields) == 1 else "they"
    return f"{found}; made inside the program, or temporary, {they} need not be stored at all" if lasting else found
