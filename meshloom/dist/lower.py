"""What of a program runs on this rank: operations on what is here of sets and fields, exchanges where their pass has
placed them, and reductions that all ranks finish together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from meshloom.backend.base import Backend
from meshloom.dist.agreement import NumbersFromPython
from meshloom.dist.array import DistributedArray
from meshloom.dist.checks import poison, poisons_halos
from meshloom.dist.consistency import compare_given
from meshloom.dist.exchange import Exchange, RankMessages, traffic
from meshloom.dist.grid_rows import copied
from meshloom.dist.halo import ALL_LAYERS, EXEC, IMPORT, LAYERS
from meshloom.dist.local import Distribution, LocalSet
from meshloom.dist.overlap import BlockingExchange, ExchangeStart, overlap_exchanges
from meshloom.dist.slabs import Slabs, grid_of, on_lines, on_points, slabs
from meshloom.dist.sums import RankTotal, Reductions, SetByOwner, counting_owned, reduced_here
from meshloom.dist.usage import reduces
from meshloom.dist.validity import Exchanges, Halo, place_exchanges
from meshloom.dist.world import world
from meshloom.mesh.box import IndexSpace
from meshloom.mesh.core import Field, Global, Set
from meshloom.operation import in_memory
from meshloom.operation.body import Body
from meshloom.operation.call import CalledFunction, called, functions_of
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.domain import SetElements
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.operation.passes import Pass, passed


class Here(NamedTuple):
    """How sets that are no grids are cut, the fields over ranks, and the back end that runs loops on this rank."""

    cut: Distribution | None
    arrays: Mapping[Field, DistributedArray]
    inside: Backend


class LocalProgram:
    """``operations``: of a program, in order, as they run here. ``arrays``: its fields. ``exchanges``: where halos are
    brought up to date, ``placed``: by what, by position. ``totals``: Globals of the program. ``numbers``: that its
    loops take from Python."""

    def __init__(self, operations: tuple[Operation, ...], here: Here, exchanges: Exchanges,
                 placed: Mapping[int, Exchange], totals: Sequence[Global], numbers: NumbersFromPython):  # fmt: skip
        self.operations, self.arrays, self.exchanges, self._placed = operations, here.arrays, exchanges, placed
        self._inside, self._cut, self._totals, self._numbers = here.inside, here.cut, totals, numbers
        self._first: dict[tuple[Field, ...], Exchange] = {}  # before runs, by what is stale then

    @property
    def summary(self) -> str:
        """What is exchanged and put together at every replay, in one line."""
        calls = [one for one in self.operations if one.domain.is_call]
        found = Counter(filter(None, map(told, calls, functions_of(calls))))  # in their order
        return "; ".join(one if times == 1 else f"{one} ({times} times)" for one, times in found.items())

    def compare(self, numbers: NumbersFromPython | None = None, often: str = "") -> None:
        """Before it is first made ready, or begins, with ``numbers``: what all ranks must have been given alike."""
        compare_given(world(), self._cut, self.arrays.values(), self._totals, self._inside, numbers, often)

    def begin(self, often: str = "") -> frozenset[Halo]:
        """Before replays, of which there is one at least, as ``often`` as was asked for: halos that it asks for as they
        are all ranks bring up to date. Gives what is valid then. Until they have ended nothing is known of the fields
        that it writes."""
        world().check_with_others(self._numbers.runs)
        self.compare(self._numbers, often)
        if stale := self.exchanges.due_first(self._valid()):
            if stale not in self._first:
                self._first[stale] = Exchange([self.arrays[one] for one in stale], self._inside)
            self._first[stale]()
            for one in stale:
                self.arrays[one].valid = ALL_LAYERS
        began = self._valid()
        for position, valid in self.exchanges.left_out(began).items():
            self._placed[position].left_out = frozenset(self.arrays[one] for one in valid)
        self._know(frozenset())
        return began

    def end(self, began: frozenset[Halo], replays: int) -> None:
        """Behind so many whole replays that have begun so: what is valid now; nothing, where there is none."""
        if replays:
            self._know(self.exchanges.valid_after(began, replays))

    def _valid(self) -> frozenset[Halo]:
        return frozenset((field, layer) for field, one in self.arrays.items() for layer in one.valid)

    def _know(self, valid: frozenset[Halo]) -> None:
        """This is valid of the fields that it writes, on all ranks: also on those that write nothing of them."""
        for field in self.exchanges.written & self.arrays.keys():  # others are whole on every rank
            self.arrays[field].valid = frozenset(layer for layer in LAYERS if (field, layer) in valid)


def lowered(graph: Dataflow, here: Here) -> LocalProgram:
    """A program, or a loop by itself, on this rank."""
    exchanges = place_exchanges(graph, lambda field: layers_of(field, here), slabs_of)
    found: list[Operation] = []
    placed: dict[int, Exchange] = {}
    waiting: list[tuple[int, RankTotal]] = []  # each with the position before which all ranks must know it
    for position, one in enumerate(graph.operations):
        if any(due == position for due, _ in waiting):
            found.append(reduction(each for _, each in waiting))
            waiting = []
        if (due := exchanges.before.get(position)) is not None:
            placed[position] = Exchange([here.arrays[one] for one in due], here.inside)
            found.append(exchange(placed[position]))
        totals: list[RankTotal] = []
        found += _local_operations(one, here, totals)
        waiting += [(_next_look(graph, each.total, position, here), each) for each in totals
                    if graph.is_live(each.total, position + 1)]  # fmt: skip
        if poisons_halos() and (poisoned := _poison(exchanges.stale[position], here)):
            found.append(poisoned)
    found += [reduction(each for _, each in waiting)] if waiting else []
    local = passed(Dataflow(found), RANK_PASSES).operations
    used = [one for one in graph.storages if isinstance(one, Global)]
    return LocalProgram(local, here, exchanges, placed, used, NumbersFromPython(graph, here.inside))


#: Of what runs on a rank, after exchanges are placed.
RANK_PASSES: tuple[Pass, ...] = (overlap_exchanges,)


def _next_look(graph: Dataflow, total: Global, position: int, here: Here) -> int:
    """The next operation behind a position that looks at a Global which ranks reduce there, or sets it. What others
    reduce of it is added to it in turn, whenever that is: all that comes until then goes in one message."""
    found = graph.next_use(total, position + 1)
    while found < len(graph.operations) and _only_reduces(graph.operations[found], total, here):
        found = graph.next_use(total, found + 1)
    return found


def _only_reduces(of: Operation, total: Global, here: Here) -> bool:
    """Does every rank reduce a part of a Global there, and do nothing else with it?"""
    return _is_shared_out(of, here) and all(one.mode.combine for one in of.operands if one.storage is total)


def _is_shared_out(of: Operation, here: Here) -> bool:
    """Has every rank elements of its own, and not all of them the same one?"""
    return grid_of(of) is not None or (of.domain.visits_elements and not local_set(of.set, here.cut).everywhere)


def slabs_of(of: Operation) -> Slabs | None:
    """How the grid is cut whose points or lines an operation visits; None where it visits none."""
    grid = grid_of(of)
    return None if grid is None else slabs(world(), grid)


def reduction(parts: Iterable[RankTotal]) -> Operation:
    """The operation by which all ranks put together what each has reduced: a call of Python's, that all ranks make."""
    each = tuple(parts)
    given, found = tuple(one.here for one in each), tuple(dict.fromkeys(one.total for one in each))
    reductions = Reductions(each)
    return called(RankMessages(reductions, (*given, *found), found), reductions.name)


def told(call: Operation, function: object) -> str:
    """What a call of an exchange or a reduction does; '' of others."""
    if isinstance(function, Reductions):
        return f"{call.name} in one message"
    if not isinstance(function, ExchangeStart | BlockingExchange):
        return ""
    return f"{call.name} {traffic(function.exchange.arrays)}, {function}"


def local_set(one: Set, cut: Distribution | None) -> LocalSet:
    """What is here of a set; ``cut``: how those are cut that are no grids."""
    if isinstance(one, IndexSpace):
        return slabs(world(), one).local(one)
    assert cut is not None
    return cut.local(one)


def layers_of(field: Field, here: Here) -> Collection[str]:
    """The layers of its halo that some rank has; both of what is filled alone, whose set others have cut, or nobody."""
    one, cut = field.set, here.cut
    if field not in here.arrays:
        return LAYERS
    if isinstance(one, IndexSpace):
        return slabs(world(), one).layers
    return cut.halos(one).layers if cut is not None and one in cut.owners else LAYERS


def exchange(made: Exchange) -> Operation:
    """The operation that brings the halos of fields up to date: a call of Python's, that all ranks make."""
    local = tuple(one.local for one in made.arrays)
    return called(RankMessages(made, local, local), made.name)


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


def _local_operations(of: Operation, here: Here, totals: list[RankTotal]) -> Iterator[Operation]:
    """What runs here of an operation. ``totals`` get its Globals that are reduced here, with what stands for them."""
    if of.domain.all_memory:
        yield _in_memory(of, here)
        return
    if of.domain.is_call:
        yield copied(of, here.arrays, here.inside)
        return
    cut = slabs_of(of)
    local = (on_elements(of, here, totals) if cut is None
             else on_lines(of, cut, here.arrays, here.inside) if of.domain.along_lines
             else on_points(of, cut, here.arrays, here.inside, totals))  # fmt: skip
    for one in totals:  # a fill is of memory where it is, so it must be where the loop brings it
        here.inside.bring(one.here)
    for one in totals:
        if one.start is not None:
            yield in_memory.fill(one.here, one.start, f"{one.total.name} begun anew here")
    if local is not None:
        yield local


def _in_memory(of: Operation, here: Here) -> Operation:
    """A fill of what is here of a field, halos included, or of a Global, which every rank has."""
    (target,) = of.writes
    if target not in here.arrays:
        return of
    assert isinstance(target, Field)
    return in_memory.fill(here.arrays[target].local, of.graph.outputs[0].value.value)


def on_elements(of: Operation, here: Here, totals: list[RankTotal]) -> Operation:
    """A loop on the elements that are here; those of others count for nothing where it reduces. ``totals`` get its
    Globals that are summed up here, with what stands for them."""
    cut = here.cut
    assert cut is not None
    on = cut.local(of.set)

    def local(one: Operand) -> Operand:
        if isinstance(one.storage, Field):
            through = one.pattern.map
            pattern = one.pattern if through is None else one.pattern._replace(map=cut.local_map(through))
            return one._replace(storage=here.arrays[one.storage].local, pattern=pattern)
        if on.everywhere:  # what lives there counts once
            return one
        if one.mode.control:
            totals.append(SetByOwner(cast(Global, one.storage), int(cut.owners[of.set][0])))
        return reduced_here(one, totals)

    operands, body = tuple(map(local, of.operands)), cast(Body, of.body)
    if reduces(of) and on.visits_others:
        operands, body = counting_owned(of, operands, on.owned)
    return Operation(of.name, SetElements(on.set), operands, body, of.policy, here.inside)
