"""What is done to a recorded program before it runs, pass after pass: each takes a data-flow graph and gives one."""

from __future__ import annotations

from collections.abc import Callable

from meshloom.errors import KernelError
from meshloom.mesh.core import Field, Global
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.operation import Operation


def check_defined(graph: Dataflow) -> Dataflow:
    """KernelError where a temporary field is read before it is written: between replays it has no values."""
    for _, one in graph.undefined():
        raise KernelError(
            f"field {one.name} is transient, but a program reads it before it is written; write it first, or make it an"
            " ordinary field"
        )
    return graph


def eliminate_dead_stores(graph: Dataflow) -> Dataflow:
    """Without the fills that nobody sees, because what comes next sets all of the field anew, or nothing comes next;
    where there are no others they stay."""
    last_first: list[Operation] = []
    next_use: dict[Field | Global, Operation] = {}
    for operation in reversed(graph.operations):
        if operation.domain.all_memory and all(_replaced(one, next_use.get(one)) for one in operation.writes):
            continue
        last_first.append(operation)
        next_use |= dict.fromkeys(operation.storages, operation)
    return Dataflow(last_first[::-1]) if last_first else graph


def _replaced(what: Field | Global, by: Operation | None) -> bool:
    """Does an operation set everything that there is of a field or global, without looking at it? Ghosts and copies of
    another rank's elements are set by fills only. What is left of a temporary field in the end nobody sees."""
    if by is None:
        return isinstance(what, Field) and what.transient
    shown = isinstance(what, Field) and what.set.shows_all and not what.set.halo
    return (shown or by.domain.all_memory) and by.defines(what)


#: In this order.
PASSES: tuple[Callable[[Dataflow], Dataflow], ...] = (check_defined, eliminate_dead_stores)


def prepared_graph(graph: Dataflow) -> Dataflow:
    """The graph of what runs, loop by loop."""
    for one in PASSES:
        graph = one(graph)
    return graph
