"""Loops at the points of a grid that a line loop next to them does on its way, where it loads and where it stores.

What such a loop makes for line loops only is evaluated where they load it, and never stored; what follows a line loop
at the same points is done where that stores. On a GPU line loops stay as they are: there light passes are faster than
few bytes, by what was measured of the flow cases (``bench/results``, vortex).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshloom.kernel.count import flops_by_kind, loads
from meshloom.kernel.model import Output
from meshloom.mesh.core import Field
from meshloom.operation.dataflow import Dataflow, Region, written_region
from meshloom.operation.domain import EVERYWHERE
from meshloom.operation.fusion.along_lines import composed_lines
from meshloom.operation.operation import Operation
from meshloom.schedule.choice.cost import Cost
from meshloom.schedule.choice.counts import flops_per_element
from meshloom.schedule.strategies import AUTOMATIC


def absorbed(operations: Sequence[Operation], *, together: bool) -> list[Operation]:
    """The operations with loops taken into the line loops next to them. ``together``: is it for a GPU?"""
    if together or not any(o.domain.along_lines for o in operations):
        return list(operations)
    made = _without_makers(list(operations))
    return _without_followers(made)


def at_points(operation: Operation) -> bool:
    """Is it a loop over all elements of a set that knows of its own element only, and writes to fields? One whose
    schedule was asked for stays by itself, as among other loops."""
    if not operation.domain.visits_elements or operation.wish.strategy not in AUTOMATIC:
        return False
    everywhere = operation.box is None or operation.box.covers_inside
    return not operation.ways and everywhere and all(isinstance(w, Field) for w in operation.writes)


def _alike(loop: Operation, line: Operation) -> bool:
    """May both be one piece of code: numbers of one type, both as written or both not?"""
    kinds = {s.dtype for one in (loop, line) for s in one.storages if isinstance(s, Field)}
    return len(kinds) == 1 and line.strict == loop.strict


# --- before ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Maker:
    """A loop whose results are for line loops only: ``readers`` are their positions."""

    loop: Operation
    readers: tuple[int, ...]


def _without_makers(operations: list[Operation]) -> list[Operation]:
    """Every maker that pays evaluated by the line loops that read what it makes. The last first: one may need another's
    results, which then are asked for by the line loop."""
    for position in reversed(range(len(operations))):
        maker = _maker(operations, position)
        if maker is None or not _pays(maker, operations):
            continue
        new = {k: _given(operations[k], maker.loop) for k in maker.readers}
        if all(one.applies for one in new.values()):
            operations = [new.get(k, one) for k, one in enumerate(operations) if k != position]
    return operations


def _given(reader: Operation, loop: Operation) -> Operation:
    made = {one: loop for one in loop.writes if isinstance(one, Field) and reader.needs(one)}
    return composed_lines(reader, made, (), ())


def _maker(operations: Sequence[Operation], position: int) -> _Maker | None:
    """The loop there, if line loops can do it instead: all that it writes is transient and read by these only, and what
    it reads stays as it is until then."""
    loop = operations[position]
    if not at_points(loop):
        return None
    made = [w for w in loop.writes if isinstance(w, Field)]
    if not all(one.transient and loop.defines(one) for one in made):
        return None
    changed, readers = False, list[int]()
    for k, operation in enumerate(operations[position + 1 :], position + 1):
        if any(one in operation.storages for one in made):
            fits = operation.domain.along_lines and operation.set is loop.set
            reads_only = not any(one in operation.writes for one in made)
            if not fits or not reads_only or changed or not _alike(loop, operation):
                ends = bool(readers) and all(operation.defines(one, written_region(loop, one)) for one in made)
                return _Maker(loop, tuple(readers)) if ends else None
            readers.append(k)
        changed = changed or any(loop.needs(w) for w in operation.writes)
    return _Maker(loop, tuple(readers)) if readers else None


def _pays(maker: _Maker, operations: Sequence[Operation]) -> bool:
    """Does it take less time at a point, by values moved and operations? A store counts twice: the place is read before
    it is written. Calls of functions such as exp are not left to two readers: one takes as long as many values."""
    spec, rates = maker.loop.spec, maker.loop.backend.target.rates
    apart = _values_read(maker.loop, None) + 2 * sum(w.dim for w in maker.loop.writes)
    within = calling = 0
    again = 0.0  # operations, each reader's
    for k in maker.readers:
        reader = operations[k]
        wanted = [w for w in maker.loop.writes if isinstance(w, Field) and reader.needs(w)]
        apart += sum(w.dim for w in wanted)
        within += _values_read(maker.loop, wanted)
        outputs = _outputs(maker.loop, wanted)
        calling += bool(flops_by_kind(o.value for o in outputs).get("special"))
        again += flops_per_element(spec, outputs)
    once, width = flops_per_element(spec, spec.outputs), maker.loop.writes[0].dtype.itemsize
    gains = Cost(width * within, again).seconds(rates) <= Cost(width * apart, once).seconds(rates)
    return gains and calling <= 1


def _values_read(loop: Operation, wanted: Sequence[Field] | None) -> int:
    """Values of fields that a loop reads at a point, for some of what it writes, or for all."""
    read = {(loop.storages[p], c) for p, _, c in loads(o.value for o in _outputs(loop, wanted))}
    return sum(isinstance(storage, Field) for storage, _ in read)


def _outputs(loop: Operation, wanted: Sequence[Field] | None) -> list[Output]:
    """What a loop computes for some of what it writes, or for all."""
    return [o for o in loop.spec.outputs if wanted is None or loop.storages[o.param] in wanted]


# --- after ----------------------------------------------------------------------------------------------------------


def _without_followers(operations: list[Operation]) -> list[Operation]:
    """Every line loop with the loops right behind it that use its results at the same points."""
    found: list[Operation] = []
    position = 0
    while position < len(operations):
        line, position = operations[position], position + 1
        if line.domain.along_lines:
            line, taken = _with_followers(line, operations[position:])
            position += taken
        found.append(line)
    return found


def _with_followers(line: Operation, rest: Sequence[Operation]) -> tuple[Operation, int]:
    """A line loop with as many of the loops behind it as its method can take along, and their number."""
    loops = list(_followers(line, rest))
    for taken in range(len(loops), 0, -1):
        made = composed_lines(line, {}, loops[:taken], _idle((line, *loops[:taken]), rest[taken:]))
        if made.applies:
            return made, taken
    return line, 0


def _followers(line: Operation, rest: Sequence[Operation]) -> Iterator[Operation]:
    """The loops right behind a line loop that can be done where it stores. None may write what the line loop reads: it
    reads points that others have not come to yet."""
    made, loaded = set(line.writes), set(line.reads)
    for operation in rest:
        if not at_points(operation) or operation.set is not line.set:
            return
        uses = any(operation.needs(one) for one in made)
        if not uses or loaded & set(operation.writes) or not _alike(operation, line):
            return
        yield operation
        made |= set(operation.writes)


def _idle(parts: Sequence[Operation], rest: Sequence[Operation]) -> list[Field]:
    """Temporary fields that the parts write, and nobody reads before they are written again."""
    written = dict.fromkeys(w for one in parts for w in one.writes if isinstance(w, Field) and w.transient)
    behind = Dataflow(rest)
    return [one for one in written if not behind.is_live(one, 0, _written_by(parts, one))]


def _written_by(parts: Sequence[Operation], one: Field) -> Region:
    regions = {written_region(part, one) for part in parts if one in part.writes}
    return regions.pop() if len(regions) == 1 else EVERYWHERE
