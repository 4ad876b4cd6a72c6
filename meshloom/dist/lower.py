"""What of a program runs on this rank: operations on what is here of sets and fields, exchanges where their pass has
placed them, and reductions that all ranks finish together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from meshloom.backend.base import Backend
from meshloom.dist.array import DistributedArray
from meshloom.dist.checks import poison, poisons_halos
from meshloom.dist.consistency import compare_given
from meshloom.dist.exchange import Exchange, Exchanges, Halo, place_exchanges
from meshloom.dist.halo import ALL_LAYERS, EXEC, IMPORT
from meshloom.dist.local import Distribution, LocalSet
from meshloom.dist.slabs import grid_of, on_points, slabs
from meshloom.dist.sums import RankReduction, Reductions, reduced_here
from meshloom.dist.usage import reduces, writes_elsewhere
from meshloom.dist.world import world
from meshloom.kernel.access import Read, identity
from meshloom.kernel.count import loads
from meshloom.kernel.expr import Node, load
from meshloom.kernel.model import Output
from meshloom.mesh.box import IndexSpace
from meshloom.mesh.core import Field, Global, Set
from meshloom.operation import in_memory
from meshloom.operation.body import BodyGraph, GivenBody
from meshloom.operation.call import CalledFunction, called, functions_of
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.domain import SetElements
from meshloom.operation.fusion.substitution import substituted
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.operation.passes import Pass, passed
from meshloom.schedule.choice.explain import amount


class Here(NamedTuple):
    """How sets that are no grids are cut, the fields over ranks, and the back end that runs loops on this rank."""

    cut: Distribution | None
    arrays: Mapping[Field, DistributedArray]
    inside: Backend


class LocalProgram:
    """``operations``: of a program, in order, as they run here. ``arrays``: its fields. ``exchanges``: where halos are
    brought up to date. ``totals``: Globals of the program."""

    def __init__(self, operations: tuple[Operation, ...], here: Here, exchanges: Exchanges, totals: Sequence[Global]):
        self.operations, self.arrays, self.exchanges = operations, here.arrays, exchanges
        self._inside, self._cut, self._totals = here.inside, here.cut, totals
        self._written = frozenset(Dataflow(operations).written)

    @property
    def summary(self) -> str:
        """What is exchanged at every replay, in one line."""
        calls = [one for one in self.operations if one.domain.is_call]
        found = [(one.name, made) for one, made in zip(calls, functions_of(calls), strict=True)
                 if isinstance(made, Exchange)]  # fmt: skip
        return "; ".join(f"{name} with {len(done.neighbours)} ranks, {amount(done.bytes)}" for name, done in found)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Before: halos that it asks for as they are, which all ranks bring up to date. Behind: what is known of halos
        now; nothing, where it has not come to its end."""
        compare_given(world(), self._cut, self.arrays.values(), self._totals, self._inside)
        stale = tuple(one for field in self.exchanges.first if (one := self.arrays[field]).valid != ALL_LAYERS)
        if stale:
            Exchange(stale, self._inside)()
            for one in stale:
                one.valid = ALL_LAYERS
        began = {(field, layer) for field, one in self.arrays.items() for layer in one.valid}
        for one in self.arrays.values():
            if one.local in self._written:
                one.valid = frozenset()
        yield
        for (field, layer), since in self.exchanges.valid.items():
            if field in self.arrays and since <= began:  # others are whole on every rank
                self.arrays[field].valid |= {layer}


def lowered(graph: Dataflow, here: Here) -> LocalProgram:
    """A program, or a loop by itself, on this rank."""
    graph = passed(graph, RANK_PASSES)
    exchanges = place_exchanges(graph, lambda field: layers_of(field.set, here.cut))
    found: list[Operation] = []
    for position, one in enumerate(graph.operations):
        if (due := exchanges.before.get(position)) is not None:
            found.append(exchange(due, here))
        found += _local_operations(one, here)
        if poisons_halos() and (poisoned := _poison(exchanges.stale[position], here)):
            found.append(poisoned)
    return LocalProgram(tuple(found), here, exchanges, [one for one in graph.storages if isinstance(one, Global)])


def split_reductions(graph: Dataflow) -> Dataflow:
    """A pass: loops that write through maps and reduce to a Global, too, become two, since ranks visit others' elements
    for the one and their own alone for the other. The first one reduces, and changes no field."""
    return Dataflow([part for one in graph.operations
                     for part in (_halves(one) if reduces(one) and writes_elsewhere(one) else (one,))])  # fmt: skip


#: Of programs on several ranks, before exchanges are placed.
RANK_PASSES: tuple[Pass, ...] = (split_reductions,)


def _halves(of: Operation) -> tuple[Operation, Operation]:
    to_globals, to_fields = ([o for o in of.graph.outputs if of.operands[o.param].is_global is chosen]
                             for chosen in (True, False))  # fmt: skip
    return _with_outputs(of, to_globals), _with_outputs(of, to_fields)


def _with_outputs(of: Operation, outputs: Sequence[Output]) -> Operation:
    """An operation that gives some outputs of another one, with the operands that it needs for them."""
    given = {o.param for o in outputs}
    used = sorted(given | {param for param, _, _ in loads([o.value for o in outputs])})
    number = {stale: new for new, stale in enumerate(used)}
    renumbered = [replace(o, param=number[o.param]) for o in outputs]

    def value(node: Node) -> Node:
        param, slot, comp = node.value
        return load(number[param], slot, comp, node.dtype)

    found = substituted(renumbered, value)
    body = GivenBody(BodyGraph(found), of.strict, (of,))
    operands = tuple(of.operands[k] if k in given else of.operands[k]._replace(mode=Read) for k in used)
    return Operation(of.name, of.domain, operands, body, of.policy, of.backend)


def local_set(one: Set, cut: Distribution | None) -> LocalSet:
    """What is here of a set; ``cut``: how those are cut that are no grids."""
    if isinstance(one, IndexSpace):
        return slabs(world(), one).local(one)
    assert cut is not None
    return cut.local(one)


def layers_of(one: Set, cut: Distribution | None) -> Collection[str]:
    """The layers of its halo that some rank has."""
    if isinstance(one, IndexSpace):
        return slabs(world(), one).layers
    assert cut is not None
    return cut.halos(one).layers


def exchange(due: tuple[Field, ...], here: Here) -> Operation:
    """The operation that brings the halos of fields up to date: a call of Python's, that all ranks make."""
    local = tuple(here.arrays[one].local for one in due)
    body = CalledFunction(Exchange([here.arrays[one] for one in due], here.inside), local, local)
    return called(body, f"exchange of {', '.join(one.name for one in due)}")


def _poison(stale: tuple[Halo, ...], here: Here) -> Operation | None:
    """The operation that poisons what an operation has left stale of halos; None where this rank has none of it."""
    rows = {field: stale_rows(here.arrays[field].on, [layer for one, layer in stale if one is field])
            for field, _ in stale if field in here.arrays and not field.temporary}  # fmt: skip
    local = {here.arrays[field].local: found for field, found in rows.items() if len(found)}
    if not local:
        return None

    def poisoned() -> None:
        for field, found in local.items():
            poison(field, found)

    return called(CalledFunction(poisoned, tuple(local), tuple(local)), "poison of halos")


def stale_rows(on: LocalSet, layers: Collection[str]) -> np.ndarray:
    """The rows here of layers of a halo: of a grid, whose planes are received, all are of one."""
    rows = np.concatenate([np.zeros(0, np.int64), *on.receives.rows])
    executed = np.zeros(len(rows), bool) if isinstance(on.set, IndexSpace) else rows < on.set.owned
    return rows[np.where(executed, EXEC in layers, IMPORT in layers)]


def _local_operations(of: Operation, here: Here) -> Iterator[Operation]:
    if of.domain.all_memory:
        yield _in_memory(of, here)
        return
    grid, totals = grid_of(of), list[RankReduction]()
    local = (on_elements(of, here, totals) if grid is None
             else on_points(of, slabs(world(), grid), here.arrays, here.inside, totals))  # fmt: skip
    yield from (in_memory.fill(one.here, identity(one.mode.combine, one.here.dtype)) for one in totals
                if not one.mode.open)  # fmt: skip
    if local is not None:
        yield local
    if totals:
        given, found = tuple(one.here for one in totals), tuple(one.total for one in totals)
        body = CalledFunction(Reductions(totals), (*given, *found), found)
        yield called(body, f"{', '.join(one.name for one in found)} of all ranks")


def _in_memory(of: Operation, here: Here) -> Operation:
    """A fill of what is here of a field, halos included, or of a Global, which every rank has."""
    (target,) = of.writes
    if target not in here.arrays:
        return of
    assert isinstance(target, Field)
    return in_memory.fill(here.arrays[target].local, of.graph.outputs[0].value.value)


def on_elements(of: Operation, here: Here, totals: list[RankReduction]) -> Operation:
    """A loop on the elements that are here; where it reduces it visits those alone that this rank owns. ``totals`` get
    its Globals that are summed up here, with what stands for them."""
    cut = here.cut
    assert cut is not None
    on = cut.local(of.set)
    part = on.owned_part if reduces(of) and on.visits_others else None

    def local(one: Operand) -> Operand:
        if isinstance(one.storage, Field):
            through, member = one.pattern.map, one.pattern.as_member
            local_map = None if through is None else cut.local_map(through)
            if part is not None:
                local_map = part.members if local_map is None else part.restricted(local_map)
            pattern = one.pattern._replace(map=local_map, as_member=member or (part is not None and through is None))
            return one._replace(storage=here.arrays[one.storage].local, pattern=pattern)
        return one if on.everywhere else reduced_here(one, totals)  # what lives on every rank counts once

    operands = tuple(map(local, of.operands))
    domain = SetElements(on.set if part is None else part)
    return Operation(of.name, domain, operands, of.body, of.policy, here.inside)
