"""A stencil over a stencil's results: values computed again where they are read, instead of stored and loaded.

A loop over points of a grid (the *maker*) sets a field that a later loop (the *reader*) looks at from other points. The
two are no group: what the reader needs, other points make. But it may make that itself: the maker's formula at the
shifted points, its own reads shifted with it. Such a reader is a loop as others are, which asks for what the maker
reads; nobody may need the field then, and the maker is gone.

That is right where the maker has set every point that the reader looks at, and what the maker reads has not changed in
between. It is done where the cost model says that the whole program takes less time: the field is not moved, but its
formula is evaluated at every offset, less what neighbouring evaluations share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from meshloom.kernel import passes
from meshloom.kernel.access import Mode, Read, ReadWrite, Write
from meshloom.kernel.count import loads
from meshloom.kernel.expr import Node, load, topological
from meshloom.kernel.model import Output
from meshloom.mesh.box import Box, Index
from meshloom.mesh.core import Field, Global
from meshloom.mesh.grid import AXES, Grid
from meshloom.operation.body import BodyGraph, GivenBody
from meshloom.operation.dataflow import Dataflow, written_region
from meshloom.operation.domain import BoxPoints
from meshloom.operation.fusion.cost import seconds_at_points
from meshloom.operation.fusion.groups import why_apart
from meshloom.operation.operand import DIRECTLY, Operand, Reach
from meshloom.operation.operation import Operation
from meshloom.target import CPU

if TYPE_CHECKING:
    from meshloom.operation.fusion.program import FusedProgram

    Fuse = Callable[[Sequence[Operation]], FusedProgram]


# ----- which loops ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class StencilPair:
    """A loop that looks at ``fields`` from other points than its own, and the loop that has set them. ``position``: of
    the reader in the program; ``refused``: why it cannot compute them itself, or nothing."""

    maker: Operation
    reader: Operation
    position: int
    fields: tuple[Field, ...]
    refused: str = ""

    @property
    def names(self) -> str:
        return " and ".join(one.name for one in self.fields)


def pairs_of(operations: Sequence[Operation], position: int) -> list[StencilPair]:
    """Readers that look around in what the loop at a position sets."""
    maker = operations[position]
    if not maker.domain.visits_elements or not isinstance(maker.set, Grid):
        return []
    valid = {w for w in maker.writes if isinstance(w, Field)}  # what nobody has written since
    found: list[StencilPair] = []
    for k, operation in enumerate(operations[position + 1 :], position + 1):
        if operation.domain.visits_elements and valid & _seen_around(operation):
            fields = tuple(f for f in dict.fromkeys(operation.storages) if isinstance(f, Field) and f in valid)
            read = tuple(f for f in fields if operation.needs(f))
            refused = _why_not(maker, operation, read, operations[position + 1 : k])
            found.append(StencilPair(maker, operation, k, read, refused))
        valid -= set(operation.writes)  # by a loop that is a maker, too, or keeps others from being one
        if not valid:
            break
    return found


def _seen_around(loop: Operation) -> set[Field]:
    """Fields that a loop loads at other points than its own."""
    loaded = [one for k, one in enumerate(loop.operands) if k in loop.graph.loaded]
    return {o.storage for o in loaded if isinstance(o.storage, Field) and o.reach.looks_around}


def _why_not(maker: Operation, reader: Operation, fields: Sequence[Field], between: Sequence[Operation]) -> str:
    """Why the reader cannot compute the fields itself; empty where it can."""
    for loop in (maker, reader):
        apart = why_apart(loop) or ("it goes through a map" if loop.maps else "")
        if apart:
            return f"{loop.name} stays by itself: {apart}"
    for one in fields:
        if maker.needs(one) or len(_formulas(maker, one)) < one.dim or one in reader.writes:
            return f"{one.name} is changed, not set"
        outside = _not_covered(maker, reader, one)
        if outside:
            return outside
    inputs = {what for one in fields for what in _inputs(maker, one)}
    itself = next((w for w in maker.writes if w in inputs), None)
    if itself is not None:
        return f"{maker.name} changes {itself.name}, from which it is made"
    for operation in between:
        changed = next((w for w in operation.writes if w in fields or w in inputs), None)
        if changed is not None:
            return f"{operation.name} changes {changed.name} in between"
    own = next((w for w in reader.writes if w in _seen_around(reader) or (w in inputs and not _sets(reader, w))), None)
    return f"it changes {own.name}, which it would look at from other points" if own is not None else ""


def _sets(loop: Operation, one: Field | Global) -> bool:
    """Does a loop say for every component of a field what it is afterwards?"""
    combined = any(o.mode.combine for o in loop.operands if o.storage is one)
    return isinstance(one, Field) and not combined and len(_formulas(loop, one)) == one.dim


def _formulas(maker: Operation, one: Field) -> dict[int, Node]:
    """What the maker sets the components of a field to."""
    return {o.comp: o.value for o in maker.spec.outputs if maker.storages[o.param] is one}


def _inputs(maker: Operation, one: Field) -> set[Field | Global]:
    """What the maker reads for a field."""
    return {maker.storages[param] for param, _, _ in loads(_formulas(maker, one).values())}


def _not_covered(maker: Operation, reader: Operation, one: Field) -> str:
    """Where the reader looks at points that the maker does not set, or too far round the end of a grid; or nothing."""
    grid = maker.set
    assert isinstance(grid, Grid)
    made, read = _box(maker), _box(reader)
    for offset in _offsets_read(reader, one):
        for a, step in enumerate(offset):
            inside = made.low[a] <= read.low[a] + step and read.high[a] + step <= made.high[a]
            all_round = grid.wraps[a] and made.shape[a] == grid.shape[a]
            if not inside and not all_round:
                return f"it looks at points beyond {made} on axis {AXES[a]}, which others set"
            reach = max((abs(step + s[a]) for p in _inputs(maker, one) for s in _offsets_read(maker, p)), default=0)
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
    offsets = loop.operands[param].reach.offsets
    return (0,) * _box(loop).grid.rank if offsets is None else offsets.offsets[slot]


# ----- one loop of two ------------------------------------------------------------------------------------------------
class _Joined:
    """Collects what a reader needs that computes fields itself: one parameter for everything that it reads or writes,
    a field that is read at several points with all of its offsets."""

    def __init__(self, pair: StencilPair):
        self.pair = pair
        self.modes: dict[Field | Global, type[Mode]] = {}
        self.names: dict[Field | Global, str] = {}
        self.offsets: dict[Field, list[Index]] = {}
        self.beside: dict[Field, Field] = {}  # what is written beside its place, because others look there
        looked_at = {what for one in pair.fields for what in _inputs(pair.maker, one)}
        for one in pair.reader.operands:
            what, mode = one.storage, one.mode
            if mode.writes and what in looked_at and isinstance(what, Field):
                what, mode = self.beside.setdefault(what, _twin(what)), Write
            if mode.writes:
                self.modes[what], self.names[what] = mode, one.name

    def loops(self) -> list[Operation]:
        """The reader that needs the fields no more, and loops that bring home what it has written beside its place."""
        return [self._loop(), *(_brought_home(self.pair.reader, new, old) for old, new in self.beside.items())]

    def _loop(self) -> Operation:
        reader, strict = self.pair.reader, self.pair.reader.strict or self.pair.maker.strict
        values = passes.rewrite([o.value for o in reader.spec.outputs], self._read_by_reader)
        best = passes.optimise(values, strict=strict)
        number = {what: k for k, what in enumerate(self.modes)}
        written = [self.beside.get(s, s) if isinstance(s, Field) else s for s in reader.storages]
        outputs = tuple(Output(number[written[o.param]], o.slot, o.comp, v)
                        for o, v in zip(reader.spec.outputs, best, strict=True))  # fmt: skip
        names = list(self.names.values())
        unique = [n if n not in names[:k] else f"{n}_{k}" for k, n in enumerate(names)]
        operands = tuple(Operand(what, mode, self._reach(what), name)
                         for (what, mode), name in zip(self.modes.items(), unique, strict=True))  # fmt: skip
        body = GivenBody(BodyGraph(outputs), strict, (self.pair.maker, reader))
        return Operation(reader.name, BoxPoints(_box(reader)), operands, body, reader.how, reader.backend)

    def _reach(self, what: Field | Global) -> Reach:
        """How the loop reaches it."""
        offsets = [] if isinstance(what, Global) else self.offsets.get(what, [])
        if isinstance(what, Global) or not any(map(any, offsets)):
            return DIRECTLY
        assert isinstance(what.set, Grid)
        return Reach(offsets=what.set.offsets(*offsets))

    def _read_by_reader(self, node: Node) -> Node:
        if node.op != "load":
            return node
        reader, (param, slot, comp) = self.pair.reader, node.value
        there, what = _offset(reader, param, slot), reader.storages[param]
        if isinstance(what, Field) and what in self.pair.fields:
            return self._made_at(what, there)[comp]
        return self._load(reader, param, there, node)

    def _made_at(self, one: Field, offset: Index) -> dict[int, Node]:
        """What the maker sets the components of a field to at a point so far away."""
        maker, found = self.pair.maker, _formulas(self.pair.maker, one)

        def leaf(node: Node) -> Node:
            if node.op != "load":
                return node
            param, slot, _ = node.value
            there = tuple(x + d for x, d in zip(_offset(maker, param, slot), offset, strict=True))
            return self._load(maker, param, there, node)

        return dict(zip(found, passes.rewrite(list(found.values()), leaf), strict=True))

    def _load(self, loop: Operation, param: int, offset: Index, node: Node) -> Node:
        """What a loop loads by a parameter, at an offset."""
        what = loop.storages[param]
        self.names.setdefault(what, loop.operands[param].name)
        if self.modes.setdefault(what, Read) is Write:
            self.modes[what] = ReadWrite
        number, comp = list(self.modes).index(what), node.value[2]
        if isinstance(what, Global):
            return load(number, 0, comp, node.dtype)
        known = self.offsets.setdefault(what, [])
        if offset not in known:
            known.append(offset)
        return load(number, known.index(offset), comp, node.dtype)


def _twin(one: Field) -> Field:
    return Field(one.set, f"{one.name}_new", one.components, dtype=one.dtype, layout=one.layout, transient=True)


def _brought_home(reader: Operation, new: Field, old: Field) -> Operation:
    """A loop that copies, at the points of a reader, what it has written elsewhere."""
    values = tuple(Output(1, 0, c, load(0, 0, c, old.dtype)) for c in range(old.dim))
    body = GivenBody(BodyGraph(values), reader.strict, (reader,))
    operands = (Operand(new, Read, name="new"), Operand(old, Write, name="old"))
    domain, name = BoxPoints(_box(reader)), f"{old.name} copied back"
    return Operation(name, domain, operands, body, reader.how.asked(name, None), reader.backend)


# ----- a program ------------------------------------------------------------------------------------------------------
def without_store(
    operations: Sequence[Operation], position: int, pairs: list[StencilPair]
) -> tuple[list[Operation], list[StencilPair]]:
    """The operations with readers that compute themselves what the loop at a position makes, wherever they can, and
    without that loop where nobody needs it any more; and the pairs."""
    maker, pairs = operations[position], [*pairs]
    if all(pair.refused for pair in pairs):
        return list(operations), pairs
    new: dict[int, list[Operation]] = {}
    for k, pair in enumerate(pairs):
        if not pair.refused:
            loops = _Joined(pair).loops()
            pairs[k] = replace(pair, refused=_too_long(loops[0]))
            new |= {} if pairs[k].refused else {pair.position: [*loops]}
    rest = [one for k in range(position + 1, len(operations)) for one in new.get(k, [operations[k]])]
    behind = Dataflow(rest)
    temporary = all(isinstance(w, Field) and w.transient for w in maker.writes)
    dead = temporary and not any(behind.is_live(w, 0, written_region(maker, w)) for w in maker.writes)
    return [*operations[:position], *([] if dead else [maker]), *rest], pairs


def _too_long(loop: Operation) -> str:
    roots = [o.value for o in loop.spec.outputs]
    operations, loaded = len(topological(roots)), loads(roots)
    registers, target = sum(loop.spec.params[param].dtype.itemsize // 4 for param, _, _ in loaded), loop.backend.target
    if operations > target.numbers.fusion.most_operations:
        return f"computed again it would be one of {operations} operations at a point"
    if target.together and registers > target.gpu.fused.most_registers:
        return f"computed again it would be one of {len(loaded)} loads at a point"
    return ""


def with_recomputing(operations: Sequence[Operation], fuse: Fuse) -> FusedProgram:
    """A program fused, with loops that compute again what others make wherever that takes less time. Each trial fuses
    all of it anew, so a long program, of which every step is a trial, would take longer to weigh than to run."""
    numbers = next((o.backend.target for o in operations if not o.domain.all_memory), CPU).numbers.fusion
    best, notes, position, weighed = fuse(operations), list[str](), 0, 0
    takes = cache(lambda: _seconds(best))  # asked for where there is a pair
    while position < len(operations) and weighed < numbers.most_weighed:
        known = _that_matter(pairs_of(operations, position), takes)
        changed, pairs = without_store(operations, position, known)
        taken = [pair for pair in pairs if not pair.refused]
        notes += [_note(pair) for pair in pairs if pair.refused]
        position += 1
        if taken:
            tried = fuse(changed)
            weighed += len(changed)
            share = _seconds(tried) / takes()
            notes += [_note(pair, share) for pair in taken]
            if share < numbers.worth_again:
                position -= changed[position - 1] is not operations[position - 1]  # the maker is gone
                best, operations = tried, changed
                takes.cache_clear()
    if position < len(operations):
        notes.append(f"of {len(operations) - position} operations more nobody asked what to compute again: it is long")
    return replace(best, notes=tuple(dict.fromkeys(notes)))


def _seconds(of: FusedProgram) -> float:
    (rates,) = {step.backend.target.rates for step in of.body if not step.domain.all_memory}
    return of.seconds(rates, seconds_at_points)


def _that_matter(pairs: list[StencilPair], takes: Callable[[], float]) -> list[StencilPair]:
    """The same, refused where it would not be worth it even if all of their loops took no time. ``takes``: seconds of
    the program."""
    asked = [pair for pair in pairs if not pair.refused]
    loops = dict.fromkeys(one for pair in asked for one in (pair.maker, pair.reader))
    most = sum(seconds_at_points(one, one.backend.target.rates) for one in loops)
    if not asked or most >= (1.0 - asked[0].reader.backend.target.numbers.fusion.worth_again) * takes():
        return pairs
    return [replace(pair, refused=pair.refused or "it takes little of the program's time") for pair in pairs]


def _note(pair: StencilPair, share: float = 1.0) -> str:
    count = len({offset for one in pair.fields for offset in _offsets_read(pair.reader, one)})
    points = f"{count} point{'s' if count != 1 else ''}"
    kept = f"{pair.names} {'is' if len(pair.fields) == 1 else 'are'}"
    percent = f"{100 * share:.0f}"
    estimated = f"{'as long' if percent == '100' else f'{percent} % of the time'} by the cost model"
    if pair.refused:
        return f"{kept} stored for {pair.reader.name}: {pair.refused}"
    if share < pair.reader.backend.target.numbers.fusion.worth_again:
        return f"{kept} computed again by {pair.reader.name} at {points}, and not loaded: {estimated}"
    found = f"{kept} stored for {pair.reader.name}: computed again at {points} it would take {estimated}"
    lasting = any(not one.transient for one in pair.fields)  # so that it is stored anyway, read or not
    they = "it" if len(pair.fields) == 1 else "they"
    return f"{found}; made inside the program, or transient, {they} need not be stored at all" if lasting else found
