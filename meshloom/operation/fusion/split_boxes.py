"""Loops over boxes of one grid that differ by layers, cut so that most of their points can be one loop.

Loops over faces have a layer of points more than loops over cells: they are no group, because not all of their points
meet. What both boxes share can be one, though, if the points that only one of them has are visited by themselves. A
layer is a launch more for hardly any points, so that on a small grid nothing is gained: the cost model decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshloom.mesh.box import Box
from meshloom.mesh.core import Field
from meshloom.operation.body import GivenBody
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.domain import BoxPoints, without
from meshloom.operation.fusion.compose import fused
from meshloom.operation.fusion.cost import seconds_by_count
from meshloom.operation.fusion.groups import Group, grouped
from meshloom.operation.fusion.memory import Memory
from meshloom.operation.operation import Operation
from meshloom.records import dataclass


def split_boxes(graph: Dataflow) -> Dataflow:
    """The operations with two neighbouring groups cut into the points that both visit and layers of others, wherever
    the two then are one group, and take less time."""
    if not any(one.domain.part for one in graph.operations):
        return graph
    groups, k = grouped(graph), 0
    while k + 1 < len(groups):
        cut = _cut(graph, groups[k], groups[k + 1])
        if cut is not None and cut.pays():
            graph, groups = cut.graph, grouped(cut.graph)
        else:
            k += 1
    return graph


@dataclass(frozen=True)
class _Cut:
    """Two groups as they were in ``old``, and in ``graph`` what is left of them: ``common``, one group, and layers."""

    old: Dataflow
    groups: tuple[Group, Group]
    graph: Dataflow
    common: Group
    layers: tuple[Operation, ...]

    def pays(self) -> bool:
        """Does it take less time? As one the two take at least as long as each of them does alone; so much is known
        before anything is composed."""
        apart = [_seconds(one, self.old) for one in self.groups]
        layers = math.fsum(seconds_by_count(one, one.backend.target.rates) for one in self.layers)
        return layers < min(apart) and layers + _seconds(self.common, self.graph) < math.fsum(apart)


def _cut(graph: Dataflow, first: Group, then: Group) -> _Cut | None:
    """Two groups, of which one goes right before the other, cut; None where that cannot be, or most points are not
    common to both."""
    ours, theirs = _visited(graph, first), _visited(graph, then)
    if ours is None or theirs is None or first.on is not then.on or first.end != then.begin:
        return None
    ends = zip(ours.low, ours.high, theirs.low, theirs.high, strict=True)
    both = [(max(a, c), min(b, d)) for a, b, c, d in ends]
    if any(low >= high for low, high in both):
        return None
    common = ours.grid.box(*zip(*both, strict=True))
    before, behind = (_layers(group, box, common) for group, box in ((first, ours), (then, theirs)))
    if before is None or behind is None or not before + behind or _points(before + behind) >= common.size:
        return None
    inner = [_piece(one, common) for one in (*first.parts, *then.parts)]
    made = graph.with_operations(
        [*graph.operations[: first.begin], *before, *inner, *behind, *graph.operations[then.end :]]
    )
    begin = first.begin + len(before)
    one = next((group for group in grouped(made) if group.begin <= begin and begin + len(inner) <= group.end), None)
    return None if one is None else _Cut(graph, (first, then), made, one, (*before, *behind))


def _visited(graph: Dataflow, group: Group) -> Box | None:
    """The box of a group that visits a part of a grid, if it is all of a stretch. One that visits all of a grid may
    write to second buffers, which a part of it could not."""
    contiguous = tuple(group.parts) == graph.operations[group.begin : group.end]
    return group.box if contiguous and group.part is not None else None


def _layers(group: Group, box: Box, common: Box) -> list[Operation] | None:
    """The loops of a group at its points that are not common, layer after layer: no loop of a group over a part looks
    at what another one writes at other points. None where a sum would be taken in another order."""
    layers = [box.grid.box(*ends) for ends in without((box.low, box.high), (common.low, common.high))]
    fields_only = all(isinstance(one, Field) for one in Dataflow(group.parts).written)
    return [_piece(one, layer) for layer in layers for one in group.parts] if fields_only or not layers else None


def _points(pieces: Sequence[Operation]) -> int:
    """How many points are visited, each counted once."""
    return sum(box.size for box in {one.box for one in pieces if one.box is not None})


def _piece(loop: Operation, box: Box) -> Operation:
    """A loop at the points of a box alone; itself where it has no others."""
    if not loop.domain.visits_elements or loop.domain == BoxPoints(box):
        return loop
    body = GivenBody(loop.graph, loop.strict, (loop,))
    return Operation(loop.name, BoxPoints(box), loop.operands, body, loop.policy, loop.backend)


def _seconds(group: Group, graph: Dataflow) -> float:
    """Estimated for a group as one loop, with every field in its own buffer."""
    memory = Memory(graph)
    memory.position = group.end
    used = (one for one in Dataflow(group.parts).storages if isinstance(one, Field))
    memory.buffers |= {one: one for one in used if one.temporary}
    steps = fused(group, memory) if len(group.parts) > 1 else group.parts
    counted = [step for step in steps if not step.domain.all_memory]
    return math.fsum(seconds_by_count(step, step.backend.target.rates) for step in counted)
