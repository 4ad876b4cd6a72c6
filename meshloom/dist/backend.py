"""A back end over ranks: every loop is chosen for the whole set, and run by the back end inside on what is here of it.

Fields that loops use are cut with their sets (``local.py``), and have arrays over ranks for their storage
(``array.py``). Whoever executes an element that writes to a target of this rank is this rank: nothing partial is sent.
Halos are exchanged before a loop that reads them, where somebody has written since.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce

import numpy as np

from meshloom.backend import ENVIRONMENT_THREADS, cpu_count, distribute
from meshloom.backend.base import Backend
from meshloom.backend.bound_loop import BoundLoop
from meshloom.backend.lowering import Launch, Launches
from meshloom.dist.array import DistributedArray, exchange
from meshloom.dist.local import Distribution, distribution
from meshloom.dist.slabs import Slabs, cut_for, grid_of, local_part, reads_halo, refusal, slabs
from meshloom.dist.sums import RankReduction
from meshloom.dist.usage import maps_of, sets_of
from meshloom.dist.world import World, world
from meshloom.errors import ScheduleError
from meshloom.kernel.access import identity
from meshloom.mesh.box import IndexSpace
from meshloom.mesh.core import Field, Global, Set, on_host
from meshloom.mesh.numbering import OneRank, Rows
from meshloom.mesh.buffer import overwrite
from meshloom.native import threads
from meshloom.operation.domain import SetElements
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.operation.policy import by_strategy
from meshloom.target import Rates, Target


class Ranks(Backend):
    """``inside``: what runs loops on this rank."""

    fuses = False

    def __init__(self, inside: Backend, world: World):
        self.inside, self.world, self.name = inside, world, inside.name

    @property
    def target(self) -> Target:
        return self.inside.target

    @property
    def rates(self) -> Rates:
        return self.inside.rates

    @property
    def key(self) -> tuple[object, ...]:
        return *self.inside.key, self.world.size

    def unavailable(self) -> str | None:
        return self.inside.unavailable()

    def bring(self, one: Field | Global) -> None:
        """A field goes over ranks when its first loop is made ready, which says with which others."""
        if isinstance(one, Global):
            self.inside.bring(one)

    def prepare(self, bound: BoundLoop) -> Launches:
        raise ScheduleError(f"loop {bound.spec.name}: over {self.world.size} ranks operations run, not what is bound")

    def begin_with(self, operation: Operation) -> None:
        """All operations of a program are begun before the first is made ready, so that sets are cut for all of them."""
        self._cut(operation)

    def executable(self, operation: Operation) -> Launches:
        cut, fields = self._cut(operation)
        local, totals = local_operation(operation, cut, fields, self.inside)
        written = tuple(fields[one] for one in operation.written if isinstance(one, Field))
        execute = Launches(()) if local is None else local.prepare()
        work = LocalWork(execute, _due(operation, fields), written, tuple(totals), self.world)
        return Launches((Launch.here(run, work),), (local, cut))

    def _cut(self, of: Operation) -> tuple[Distribution | Slabs, dict[Field, DistributedArray]]:
        """The sets of an operation and its fields, over ranks."""
        refuse(of, self.world)
        of.apply_layout()
        grid = grid_of(of)
        cut: Distribution | Slabs = (distribution(self.world, sets_of([of]), maps_of([of])) if grid is None
                                     else cut_for(self.world, of, grid))  # fmt: skip
        return cut, {one: self._array(one, cut) for one in of.storages if isinstance(one, Field)}

    def _array(self, one: Field, cut: Distribution | Slabs) -> DistributedArray:
        """The values of a field over ranks, as its set is cut."""
        on, storage = cut.local(one.set), one.storage
        if isinstance(storage, DistributedArray):
            if storage.on is on:
                return storage
            made = storage.moved_to(on, one)
        else:
            made = DistributedArray(one, on, self.world)
            made.set(on_host(storage))
        one.move(made)
        return made


@dataclass(frozen=True)
class LocalWork:
    """A loop as it runs here: ``due`` are fields whose halos it reads, ``written`` those of which it leaves old ones
    behind, ``totals`` Globals with what is summed up here, and how that is put together."""

    execute: Callable[[], None]
    due: tuple[DistributedArray, ...]
    written: tuple[DistributedArray, ...]
    totals: tuple[RankReduction, ...]
    world: World


def run(work: LocalWork) -> None:
    stale = [one for one in work.due if not one.valid]
    if stale:
        exchange(stale, work.world)
    for total in work.totals:
        total.begin()
    work.execute()
    for one in work.written:
        one.valid = False
    for total in work.totals:
        total.finish(work.world)


def refuse(of: Operation, world: World) -> None:
    """ScheduleError for what does not run over ranks yet."""
    where = f"loop {of.name}: on {world.size} ranks"
    if problem := refusal(of):
        raise ScheduleError(f"{where} {problem}; run it on one")
    if not of.domain.visits_elements:
        raise ScheduleError(f"{where} loops over sets and grids run, and nothing else yet; run it on one")


def local_operation(
    of: Operation, cut: Distribution | Slabs, fields: dict[Field, DistributedArray], inside: Backend
) -> tuple[Operation | None, list[RankReduction]]:
    """An operation on what is here, by the schedule that was chosen for the whole, None where that is nothing; and its
    Globals that are summed up here, with what stands for them."""
    if isinstance(cut, Slabs):
        return local_part(of, cut, fields, inside)
    on = cut.local(of.set)
    reduces = any(one.is_global and one.mode.combine for one in of.operands)
    part = on.owned_part if reduces and on.visits_others else None
    if part is not None and any(one.pattern.map is not None and one.mode.writes for one in of.operands):
        raise ScheduleError(f"loop {of.name}: it writes through a map and reduces to a Global, which no loop does on"
                            " several ranks; make two of it")  # fmt: skip
    totals: list[RankReduction] = []

    def local(one: Operand) -> Operand:
        if isinstance(one.storage, Field):
            through, member = one.pattern.map, one.pattern.as_member
            local_map = None if through is None else cut.local_map(through)
            if part is not None:
                local_map = part.members if local_map is None else part.restricted(local_map)
            pattern = one.pattern._replace(map=local_map, as_member=member or (part is not None and through is None))
            return one._replace(storage=fields[one.storage].local, pattern=pattern)
        if not one.mode.combine:
            return one
        totals.append(RankReduction.of(one.storage, one.mode))
        return one._replace(storage=totals[-1].here, mode=totals[-1].mode)

    operands = tuple(map(local, of.operands))
    domain = SetElements(on.set if part is None else part)
    return Operation(of.name, domain, operands, of.body, by_strategy(of.schedule), inside), totals


def _due(of: Operation, fields: dict[Field, DistributedArray]) -> tuple[DistributedArray, ...]:
    """The fields of which it reads what other ranks have: through maps, and where it is executed for others' elements,
    at its own element, too."""
    for_others = any(one.mode.writes and one.pattern.map is not None for one in of.operands)
    found: dict[DistributedArray, None] = {}
    for one in of.operands:
        reads = one.mode.reads and isinstance(one.storage, Field)
        if reads and ((one.pattern.map is not None and not one.pattern.as_member) or for_others or reads_halo(one)):
            array = fields[one.storage]  # type: ignore[index]
            if array.on.sends.neighbours or array.on.receives.neighbours:
                found[array] = None
    return tuple(found)



class Placement(OneRank):
    """Which elements this rank owns, and values that every rank has of its own."""

    def mine(self, on: Rows) -> np.ndarray:
        assert isinstance(on, Set)
        cut: Distribution | Slabs
        cut = slabs(world(), on) if isinstance(on, IndexSpace) else distribution(world(), [on], {})
        found = cut.local(on)
        numbers = on.numbers_at(found.here[found.mine])
        return np.sort(numbers[numbers >= 0])

    def collected(self, on: Rows, values: np.ndarray) -> np.ndarray:
        found = np.empty((on.size, *values.shape[1:]), values.dtype)
        for numbers, rows in zip(*map(world().gathered, (self.mine(on), values)), strict=True):
            found[numbers] = rows
        return found

    def check_alone(self, what: str) -> None:
        world().check_alone(what)


@cache
def over_ranks(inside: Backend) -> Backend:
    """A back end, run by all ranks together; ranks of a node that are not bound to cores share them out."""
    ranks = world()
    if ENVIRONMENT_THREADS is None and cpu_count() == os.cpu_count():
        threads.choose(max(1, cpu_count() // ranks.node_size))
    return Ranks(inside, ranks)


def start() -> None:
    """This process is one of several ranks."""
    distribute(over_ranks)
    Rows.placement = Placement()
