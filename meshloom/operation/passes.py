"""What is done to a recorded program before it runs, pass after pass: each takes a data-flow graph and gives one."""

from __future__ import annotations

from collections.abc import Callable

from meshloom.errors import KernelError
from meshloom.operation.dataflow import Dataflow


def check_defined(graph: Dataflow) -> Dataflow:
    """KernelError where a temporary field is read before it is written: between replays it has no values."""
    for _, one in graph.undefined():
        raise KernelError(
            f"field {one.name} is temporary, but a program reads it before it is written; write it first, or make it an"
            " ordinary field"
        )
    return graph


def eliminate_dead_stores(graph: Dataflow) -> Dataflow:
    """Without the fills that nobody sees, because what comes next sets all of the field anew, or nothing comes next;
    where there are no others they stay. Ghosts that a set does not show, and copies of another rank's elements, are
    set by fills only, so that another operation does not replace them."""

    def dead(position: int) -> bool:
        fill = graph.operations[position]
        return fill.domain.all_memory and not any(graph.is_live(one, position + 1) for one in fill.writes)

    left = [one for k, one in enumerate(graph.operations) if not dead(k)]
    return Dataflow(left) if left else graph


#: In this order.
PASSES: tuple[Callable[[Dataflow], Dataflow], ...] = (check_defined, eliminate_dead_stores)


def prepared_graph(graph: Dataflow) -> Dataflow:
    """The graph of what runs, loop by loop."""
    for one in PASSES:
        graph = one(graph)
    return graph
