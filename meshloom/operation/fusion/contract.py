"""Loops of a program become one, values get buffers: the last pass, from a graph to one of fewer operations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshloom.mesh.core import Field
from meshloom.operation import in_memory
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.compose import fused
from meshloom.operation.fusion.cost import register_slowdown, seconds_by_count
from meshloom.operation.fusion.fused_program import FusedProgram, ranked
from meshloom.operation.fusion.groups import Group, grouped
from meshloom.operation.fusion.memory import FusionCache, Memory
from meshloom.operation.operation import Operation


def contract_edges(graph: Dataflow, *, gathers: bool = True, rotates: bool = True, cache: FusionCache | None = None
                   ) -> FusedProgram:  # fmt: skip
    """The graph with every edge contracted that can be, and values in buffers by their live ranges. ``gathers``: see
    ``grouped``; ``cache``: what is known of graphs that differ in few operations.

    ``rotates``: operations at its start that write temporary fields only may be done at its end as well, for the next
    replay, where they can join the last group; before the first replay they are then done once by themselves.
    """
    cache = FusionCache() if cache is None else cache
    head = _head(graph, gathers, cache) if rotates else 0
    rotated = _rotated(graph, gathers, head, cache) if 0 < head < len(graph.operations) else None
    straight = _straight(graph, gathers, cache)
    if rotated is None:
        return straight
    (target,) = {one.backend.target for one in graph.operations if not one.domain.all_memory}
    return ranked((straight, rotated), target)[0].what


def _head(graph: Dataflow, gathers: bool, cache: FusionCache) -> int:
    """How many operations at the start of a program may be done at its end instead, for the next replay: those that
    write temporary fields only, as far as they are one group. It may join the last one; the next could not follow."""
    lasting = [one.defined_at for one in graph.versions if one.lasts and one.defined_at is not None]
    longest = min(lasting, default=len(graph.operations))
    first = next((group.end for group in grouped(graph, gathers, joins=cache.joins) if group.on is not None), longest)
    return min(first, longest)


def _rotated(graph: Dataflow, gathers: bool, head: int, cache: FusionCache) -> FusedProgram | None:
    """With the first ``head`` operations at the end; None where a replay would not find what it asks for."""
    first = graph.operations[:head]
    cycle = graph.with_operations([*graph.operations[head:], *first])
    memory = Memory(cycle, cache)
    prologue = tuple(_steps(graph.with_operations(first), memory, len(cycle.operations) - head, gathers))
    start = dict(memory.buffers)
    body = tuple(_steps(cycle, memory, 0, gathers))
    # The next replay must find everything that it asks for where the first one did.
    asked = [f for f in memory.buffers if memory.is_live(f)]
    same = all(memory.buffers[f] is start.get(f, None if graph.is_temporary(f) else f) for f in asked)
    return _done(body, prologue, memory, gathers) if same else None


def _straight(graph: Dataflow, gathers: bool, cache: FusionCache) -> FusedProgram:
    memory = Memory(graph, cache)
    body = list(_steps(graph, memory, 0, gathers))
    for one in [f for f in memory.buffers if not graph.is_temporary(f) and memory.is_live(f)]:
        body += _copy_back(one, (), memory)
    return _done(tuple(body), (), memory, gathers)


def _done(body: tuple[Operation, ...], prologue: tuple[Operation, ...], memory: Memory, gathers: bool) -> FusedProgram:
    return FusedProgram(body, prologue, dict(memory.counted_on), gathers, (), frozenset(memory.register_bound))


def _steps(graph: Dataflow, memory: Memory, start: int, gathers: bool, since: int = 0) -> Iterator[Operation]:
    """The operations of a graph, which begins at position ``start`` of the memory's cycle; those from ``since`` on."""
    for group in grouped(graph, gathers, since, memory.cache.joins):
        end, steps = _as_far_as_it_pays(group, memory, start)
        yield from steps
        if end < group.end:
            yield from _steps(graph, memory, start, gathers, end)
            return


def _as_far_as_it_pays(group: Group, memory: Memory, start: int) -> tuple[int, list[Operation]]:
    """The steps of a group, and where it ends: before the loop with which register pressure would make it take longer
    than without it, and that loop by itself."""
    restore = memory.saved()
    steps = list(_steps_of_group(group, memory, start))
    loops = [k for k, one in enumerate(group.parts) if one.domain.visits_elements]
    if len(loops) < 2 or not any(register_slowdown(step) > 1.0 for step in steps if step.policy.as_one):
        return group.end, steps
    target, kept = group.parts[loops[0]].backend.target, group
    takes = math.inf
    for k in loops:
        tried = group if k == loops[-1] else replace(group, parts=group.parts[: k + 1], end=group.begin + k + 1)
        restore()
        steps = list(_steps_of_group(tried, memory, start))
        new = math.fsum(seconds_by_count(step, target.rates) for step in steps if not step.domain.all_memory)
        apart = takes + seconds_by_count(group.parts[k], target.rates)
        if new > apart:
            memory.register_bound |= {*kept.loops, group.parts[k]}
            restore()
            return kept.end, list(_steps_of_group(kept, memory, start))
        kept, takes = tried, new
    return kept.end, steps


def _steps_of_group(group: Group, memory: Memory, start: int) -> Iterator[Operation]:
    memory.position = start + group.end
    several = len(group.parts) > 1
    if group.part is not None and several:  # other points of what it writes stay in its own buffer
        for operation in group.parts:
            yield from _copied_back(operation, memory)
    if group.on is not None and (several or (not group.part and _gains(group.parts[0], memory))):
        yield from fused(group, memory)
        return
    for operation in group.parts:
        yield from _copied_back(operation, memory)
        yield operation


def _gains(operation: Operation, memory: Memory) -> bool:
    """Is an operation better composed even alone? A field is in another buffer, or one is written that needs no store:
    nobody will ask for it, or it is a copy of another."""
    fields = [f for f in (*operation.reads, *operation.writes) if isinstance(f, Field)]
    away = any(memory.buffers.get(f, f) is not f for f in fields)
    written, temporary = [f for f in operation.writes if isinstance(f, Field)], memory.graph.is_temporary
    return away or any(not memory.is_live(f) or (temporary(f) and _only_copied(operation, f)) for f in written)


def _only_copied(operation: Operation, one: Field) -> bool:
    values = [o.value for o in operation.spec.outputs if operation.storages[o.param] is one]
    return all(value.op == "load" for value in values)


def _copied_back(operation: Operation, memory: Memory) -> Iterator[Operation]:
    """Copies back of everything that an operation by itself uses, or would overwrite."""
    wanted = operation.reads
    for one, where in list(memory.buffers.items()):
        if where is None and not operation.needs(one):
            continue  # a loop over a part of a grid writes it; nobody asks for its other points
        if one in wanted or (where is not one and where in operation.writes and memory.is_live(one)):
            yield from _copy_back(one, wanted, memory)
    for what in operation.writes:
        if isinstance(what, Field):
            memory.stored(what, what)


def _copy_back(one: Field, wanted: Sequence[object], memory: Memory) -> Iterator[Operation]:
    """Copies of a field back to its own buffer; what else is there, and is live, is copied back before."""
    where = memory.buffer(one)
    if where is one:
        return
    for other, lives in list(memory.buffers.items()):
        if other is not one and lives is one and (other in wanted or memory.is_live(other)):
            yield from _copy_back(other, wanted, memory)
    yield in_memory.copy(where, one)
    memory.buffers[one] = one
