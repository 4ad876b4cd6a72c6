"""What is done to a recorded program before it runs, pass after pass: each takes a data-flow graph and gives one."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from meshloom.errors import KernelError
from meshloom.kernel.state import compared_once
from meshloom.mesh.number import PlainNumber
from meshloom.operation.call import CalledFunction, called
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.contract import contract_edges
from meshloom.operation.fusion.fused_program import FusedProgram
from meshloom.operation.fusion.into_lines import fuse_epilogues, fuse_prologues
from meshloom.operation.fusion.recompute import recompute
from meshloom.operation.fusion.split_boxes import split_boxes
from meshloom.operation.fusion.trials import Trials


def complete_calls(graph: Dataflow) -> Dataflow:
    """Calls that have not said what they read or write have all that the others use as operands, and so depend on
    it."""
    vague = [one for one in dict.fromkeys(graph.operations) if one.domain.everything]
    if not vague:
        return graph
    used = [one for one in graph.storages if not isinstance(one, PlainNumber)]
    made = {one: called(cast(CalledFunction, one.body), one.name, used) for one in vague}
    return graph.with_operations([made.get(one, one) for one in graph.operations])


def check_defined(graph: Dataflow) -> Dataflow:
    """KernelError where a temporary field is read before it is written: between replays it has no values."""
    for _, one in graph.undefined():
        ended = graph.ended_by(one)
        if ended is not None:
            blame = cast(CalledFunction, ended.body).blame
            raise KernelError(f"field {one.name} is temporary, and has no values behind {blame} make the field an"
                              " ordinary one")  # fmt: skip
        raise KernelError(
            f"field {one.name} is temporary, but a program reads it before it is written; write it first, or make it an"
            " ordinary field"
        )
    return graph


def eliminate_dead_stores(graph: Dataflow) -> Dataflow:
    """Without the fills that nobody sees, because what comes next sets all of the field anew, or nothing comes next;
    where there are no others they stay. Ghosts that a set does not show, and copies of another rank's elements, are
    set by fills only, so that another operation does not replace them."""
    left = [one for k, one in enumerate(graph.operations) if not is_dead_fill(graph, k)]
    return graph.with_operations(left) if left else graph


def is_dead_fill(graph: Dataflow, position: int) -> bool:
    """Is the operation there a fill that nobody sees?"""
    fill = graph.operations[position]
    return fill.domain.all_memory and not any(graph.is_live(one, position + 1) for one in fill.writes)


def sink_initialisers(graph: Dataflow) -> Dataflow:
    """The same with every fill right before the first operation that touches what it sets, where it can join it."""

    def place(k: int) -> tuple[int, bool]:
        if not graph.operations[k].domain.all_memory:
            return k, True
        return min(graph.next_use(one, k + 1) for one in graph.operations[k].writes), False

    return graph.with_operations([graph.operations[k] for k in sorted(range(len(graph.operations)), key=place)])


Pass = Callable[[Dataflow], Dataflow]
Contraction = Callable[..., FusedProgram]  # of a graph, as a Pass: what is fused is a graph, too
WeighedPass = Callable[[Dataflow, Trials], Dataflow]  # does something where the fused program then takes less time
#: Of what was recorded: all of it stays, and users see it (``program.dataflow``).
RECORDED_PASSES: tuple[Pass, ...] = (complete_calls,)
#: Of every program before it runs, in this order.
PASSES: tuple[Pass, ...] = (check_defined, eliminate_dead_stores)
#: Before those that follow, which every trial goes through.
WEIGHED_PASSES: tuple[WeighedPass, ...] = (recompute,)
#: Before edges are contracted, in this order.
FUSION_PASSES: tuple[Pass, ...] = (fuse_prologues, fuse_epilogues, sink_initialisers, split_boxes)
#: The last: loops become one. Which operations of its graph may run at the same time is a question to that
#: (``Dataflow.waits``), so that streams need no pass.
CONTRACTION: Contraction = contract_edges


def passed(graph: Dataflow, passes: tuple[Pass, ...]) -> Dataflow:
    """The graph after some passes."""
    with compared_once():
        for one in passes:
            graph = one(graph)
    return graph
