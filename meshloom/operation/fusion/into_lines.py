"""Loops at the points of a grid that a line loop next to them does on its way, where it loads and where it stores.

What such a loop makes for line loops only is evaluated where they load it, and never stored; what follows a line loop
at the same points is done where that stores. On a GPU line loops stay as they are: there light passes are faster than
few bytes, by what was measured of the flow cases (``bench/results``, vortex).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshloom.kernel.count import flops_by_kind, loads
from meshloom.kernel.model import Output
from meshloom.mesh.core import Field
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.along_lines import composed_lines
from meshloom.operation.operation import Operation
from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Cost
from meshloom.schedule.choice.counts import flops_per_element
from meshloom.schedule.strategies import AUTOMATIC


def fuse_prologues(graph: Dataflow, *, on_gpu: bool | None = None) -> Dataflow:
    """Every producer that pays evaluated by the line loops that read what it makes. The last first: one may need
    another's results, which then are asked for by the line loop. ``on_gpu``: there line loops stay as they are; unsaid:
    as the back end of the first one says."""
    if _stay(graph, on_gpu):
        return graph
    for position in reversed(range(len(graph.operations))):
        producer = _producer(graph, position)
        if producer is None or not _pays(producer):
            continue
        new = {k: composed_lines(graph.operations[k], dict.fromkeys(fields, producer.loop), (), ())
               for k, fields in producer.consumers.items()}  # fmt: skip
        if all(one.applies for one in new.values()):
            graph = graph.with_operations([new.get(k, one) for k, one in enumerate(graph.operations) if k != position])
    return graph


def fuse_epilogues(graph: Dataflow, *, on_gpu: bool | None = None) -> Dataflow:
    """Every line loop with the loops right behind it that use its results at the same points. ``on_gpu``: as above."""
    if _stay(graph, on_gpu):
        return graph
    found: list[Operation] = []
    position = 0
    while position < len(graph.operations):
        line, taken = graph.operations[position], 0
        if line.domain.along_lines:
            line, taken = _with_epilogue(graph, position)
        found.append(line)
        position += 1 + taken
    return graph.with_operations(found)


def _stay(graph: Dataflow, on_gpu: bool | None) -> bool:
    """Do line loops stay as they are? There may be none."""
    first = next((one for one in graph.operations if one.domain.along_lines), None)
    return first is None or (first.backend.target.is_simt if on_gpu is None else on_gpu)


def at_points(operation: Operation) -> bool:
    """Is it a loop over all elements of a set that knows of its own element only, and writes to fields? One whose
    schedule was asked for stays by itself, as among other loops."""
    if not operation.domain.visits_elements or operation.wish.strategy not in AUTOMATIC:
        return False
    everywhere = operation.box is None or operation.box.covers_inside
    return not operation.maps_and_offsets and everywhere and all(isinstance(w, Field) for w in operation.writes)


def _alike(loop: Operation, line: Operation) -> bool:
    """May both be one piece of code: numbers of one type, both as written or both not?"""
    kinds = {one.dtype for one in Dataflow((loop, line)).storages if isinstance(one, Field)}
    return len(kinds) == 1 and line.strict == loop.strict


# --- before ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Producer:
    """A loop whose results are for line loops only. ``consumers``: at their positions, what of it each reads."""

    loop: Operation
    consumers: dict[int, list[Field]]


def _producer(graph: Dataflow, position: int) -> _Producer | None:
    """The loop there, if line loops can do it instead: all that it writes is temporary and read by these only, and what
    it reads is the same version there."""
    loop = graph.operations[position]
    if not at_points(loop):
        return None
    made = [w for w in loop.writes if isinstance(w, Field)]
    if not all(graph.is_temporary(one) and loop.defines(one) for one in made):
        return None
    consumers: dict[int, list[Field]] = {}
    for one in made:
        uses = graph.uses(one, position)
        for k in graph.consumers(one, position + 1, graph.written_region(one, position, position + 1)):
            consumers.setdefault(k, []).extend([one] if k in uses else [])
    needed = [one for one in loop.reads if loop.needs(one)]
    for k, fields in consumers.items():
        line = graph.operations[k]
        reads_only = all(graph.changed_by(one, k, k + 1) is None for one in made)
        unchanged = all(graph.changed_by(one, position + 1, k) is None for one in (*needed, *fields))
        along = line.domain.along_lines and line.set is loop.set
        if not (along and reads_only and unchanged and _alike(loop, line)):
            return None
    return _Producer(loop, consumers) if consumers else None


def _pays(producer: _Producer) -> bool:
    """Does it take less time at a point, by values moved and operations? A store counts twice: the place is read before
    it is written. Calls of functions such as exp are not left to two consumers: one takes as long as many values."""
    spec, rates = producer.loop.spec, producer.loop.backend.target.rates
    apart = _values_read(producer.loop, None) + 2 * sum(w.dim for w in producer.loop.writes)
    within = calling = 0
    again = 0.0  # operations, each consumer's
    for wanted in producer.consumers.values():
        apart += sum(w.dim for w in wanted)
        within += _values_read(producer.loop, wanted)
        outputs = _outputs(producer.loop, wanted)
        calling += bool(flops_by_kind(o.value for o in outputs).get("special"))
        again += flops_per_element(spec, outputs)
    once, width = flops_per_element(spec, spec.outputs), producer.loop.writes[0].dtype.itemsize
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


def _with_epilogue(graph: Dataflow, position: int) -> tuple[Operation, int]:
    """A line loop with as many of the loops behind it as its method can take along, and their number."""
    line, loops = graph.operations[position], list(_epilogue(graph, position))
    for taken in range(len(loops), 0, -1):
        made = composed_lines(line, {}, loops[:taken], _dead(graph, position, position + 1 + taken))
        if made.applies:
            return made, taken
    return line, 0


def _epilogue(graph: Dataflow, position: int) -> Iterator[Operation]:
    """The loops right behind a line loop that can be done where it stores: each needs what that or one before it has
    made. None may write what the line loop reads: it reads points that others have not come to yet."""
    line = graph.operations[position]
    for k, operation in enumerate(graph.operations[position + 1 :], position + 1):
        if not at_points(operation) or operation.set is not line.set or not _alike(operation, line):
            return
        if operation.elements != line.elements:
            return  # ghosts, too, which no line has
        found = list(graph.into(k, position))
        uses = any(kind == "flow" and operation.needs(mine.storage) for kind, _, mine in found)
        if not uses or any(kind == "anti" and earlier.position == position for kind, earlier, _ in found):
            return
        yield operation


def _dead(graph: Dataflow, position: int, end: int) -> list[Field]:
    """Temporary fields that the operations from a position on write, before ``end``, and nobody reads behind them
    before they are written again."""
    temporary = [one for one in graph.storages if isinstance(one, Field) and graph.is_temporary(one)]
    made = [one for one in temporary if graph.definitions(one, position, end)]
    return [one for one in made if not graph.consumers(one, end, graph.written_region(one, position, end))]
