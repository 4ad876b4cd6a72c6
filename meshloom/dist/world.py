"""The ranks of a run: processes that a launcher of MPI started, and what they say to each other.

A process that no launcher started is a world of one, and mpi4py is not even imported.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from itertools import accumulate, pairwise
from math import prod
from typing import Any, TypeVar

import numpy as np

from meshloom.dist import ending
from meshloom.dist.checks import ASK_FOR_CALLS, CollectiveCall, absence, difference, seconds_to_wait
from meshloom.dist.messages import PersistentMessages
from meshloom.errors import RankError, UserError, install, known_name, one_line, shown
from meshloom.mesh.values import as_bytes
from meshloom.process import ranks as of_process
from meshloom.process.tracebacks import running_line

LONGEST_NOTE = 2000  # characters: it must fit into the buffer that a rank holds ready
_PAUSE = 2e-4  # seconds between looks whether a note has come
T = TypeVar("T")


@dataclass(frozen=True)
class World(of_process.OneProcess):
    """``rank`` of ``size`` in all, ``node_rank`` of ``node_size`` on this node."""

    rank: int = 0
    size: int = 1
    node_rank: int = 0
    node_size: int = 1
    _ranks: Any = field(default=None, repr=False, compare=False)  # MPI's communicator, where there are several
    _ends: Any = field(default=None, repr=False, compare=False)  # another one, on which ranks wait at their ends
    _notes: Any = field(default=None, repr=False, compare=False)  # another one, for what ranks are about to do
    _patience: float = field(default=0.0, repr=False, compare=False)  # seconds, where that is checked
    _node: Any = field(default=None, repr=False, compare=False)  # one of the ranks of this node
    _sent: dict[str, of_process.MessageCount] = field(default_factory=dict, repr=False, compare=False)  # so far
    _row_types: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)  # MPI's, by their bytes

    @property
    def checks(self) -> bool:
        """Is checked what ranks do (``MESHLOOM_CHECK_RANKS``)?"""
        return self._patience > 0

    def broadcast(self, value: T) -> T:
        """The value of rank 0, on every rank; all must ask."""
        self.check("takes a value of rank 0")
        return value if self._ranks is None else self._ranks.bcast(value)

    def largest(self, number: int) -> int:
        """The largest of all ranks' numbers; all must ask."""
        return max(self.allgathered(number, "numbers"))

    def arrive(self, said: str, code: int, tell: Callable[[], object] | None = None) -> of_process.Ended:
        return of_process.Ended(said, code) if self._ends is None else ending.arrive(self._ends, said, code, tell)

    def allgathered(self, value: T, what: str = "values") -> list[T]:
        """A small value of every rank, the same on all ranks; all must call it. ``what`` it is: for messages."""
        return self._told_all(self._ranks, value, f"compares {what}")

    def on_node(self, value: T, what: str = "") -> list[T]:
        """A small value of every rank of this node, the same on all of these; all ranks must call it, or those of the
        node behind a call that all have made: where nothing is said of ``what`` it is, calls are not checked."""
        return self._told_all(self._node, value, f"tells its node {what}" if what else "")

    def _told_all(self, ranks: Any, value: T, does: str) -> list[T]:
        """A value of each of some ranks; None: of this one."""
        if ranks is None:
            return [value]
        if does:
            self.check(does)
        found: list[T] = ranks.allgather(value)
        return found

    def gathered(self, rows: np.ndarray, what: str = "rows") -> list[np.ndarray]:
        """Rows (n, ...) of every rank, the same on all ranks; all must call it. ``what`` they are: for messages."""
        if self._ranks is None:
            return [rows]
        mine = CollectiveCall(f"gathers {what} ({rows.dtype}, shape {rows.shape[1:]} each)", running_line())
        self.check(mine.does)
        try:
            counts = self._counts(len(rows), mine)
        except self.mpi.Exception as error:
            raise self.failed(mine.does, error) from None
        return self._put_together(rows, counts, mine.does)

    def _counts(self, count: int, mine: CollectiveCall) -> list[int]:
        """How many rows every rank gathers; RankError where one gathers other ones."""
        everybody = self._ranks.allgather((count, mine))
        self._same(mine, [their for _, their in everybody])
        return [one for one, _ in everybody]

    def _same(self, mine: CollectiveCall, calls: Sequence[CollectiveCall]) -> None:
        """RankError where some rank has told of another call than this one's."""
        for other, their in enumerate(calls):
            if fault := difference(self.rank, mine, other, their):
                raise RankError(fault)

    def stacked(self, row: np.ndarray, what: str = "rows") -> np.ndarray:
        """One row of every rank, as long on all of them, (ranks, ...): one collective, where ``gathered`` first has to
        ask how many there are; all must call it. ``what`` they are: for messages."""
        if self._ranks is None:
            return row[None]
        does = f"gathers {what} ({row.dtype}, shape {row.shape} each)"
        self.check(does)
        length = as_bytes(np.array([row.nbytes]))  # goes ahead of the row: MPI takes shorter ones for right
        sent = np.concatenate((length, as_bytes(row)))
        found = np.empty((self.size, len(sent)), np.uint8)
        try:
            self._ranks.Allgather([sent, self.mpi.BYTE], [found, self.mpi.BYTE])
        except self.mpi.Exception as error:
            raise self.failed(does, error) from None
        lengths, rows = found[:, : len(length)], found[:, len(length) :]
        if (lengths != length).any():
            other = int((lengths != length).any(axis=1).argmax())
            raise RankError(f"rank {self.rank} {does}, and rank {other} gathers more or less: {ASK_FOR_CALLS}")
        return as_bytes(rows).view(row.dtype).reshape(self.size, *row.shape)

    def joined(self, rows: np.ndarray, counts: Sequence[int], what: str) -> list[np.ndarray]:
        """Rows (n, ...) of every rank, of which all know how many these are, ``counts``, the same on all ranks: one
        collective; all must call it. ``what`` they are: for messages."""
        if self._ranks is None:
            return [rows]
        self.check(does := f"gathers {what}")
        return self._put_together(rows, counts, does)

    def _put_together(self, rows: np.ndarray, counts: Sequence[int], does: str) -> list[np.ndarray]:
        """Rows of every rank, ``counts`` of them: one collective."""
        ends = [0, *accumulate(counts)]
        found = np.empty((ends[-1], *rows.shape[1:]), rows.dtype)
        try:
            self._ranks.Allgatherv(self.counted(rows), [as_bytes(found), [*counts], ends[:-1], self.row_type(rows)])
        except self.mpi.Exception as error:
            raise self.failed(does, error) from None
        return [found[a:b] for a, b in pairwise(ends)]

    def all_to_all(self, parts: Sequence[np.ndarray], what: str = "rows") -> list[np.ndarray]:
        """Rows (n, ...) for each rank; what each has for this one, by rank. All must call it. ``what`` they are: for
        messages."""
        if self._ranks is None:
            return [*parts]
        like = parts[self.rank]
        mine = CollectiveCall(f"sends {what} ({like.dtype}, shape {like.shape[1:]} each)", running_line())
        self.check(mine.does)
        try:
            told = self._ranks.alltoall([(len(one), mine) for one in parts])
        except self.mpi.Exception as error:
            raise self.failed(mine.does, error) from None
        self._same(mine, [their for _, their in told])
        found = [np.empty((count, *like.shape[1:]), like.dtype) for count, _ in told]
        found[self.rank] = like
        sent, received = ({rank: one for rank, one in enumerate(side) if rank != self.rank and one.nbytes}
                          for side in (map(np.ascontiguousarray, parts), found))  # fmt: skip
        messages = self.messages(sent, received, dict.fromkeys(range(self.size), what))
        messages.start()
        messages.wait()
        return found

    def messages(self, sent: Mapping[int, np.ndarray], received: Mapping[int, np.ndarray],
                 what: Mapping[int, str]) -> PersistentMessages:  # fmt: skip
        """Rows (n, ...) to other ranks, and from them as many as there is room for, by rank, again and again."""
        return PersistentMessages(self, sent, received, what)

    def compare_exchange(self, what: Mapping[int, str], sent: Mapping[int, int], received: Mapping[int, int]) -> None:
        """Where calls are checked: RankError unless neighbours are about to exchange ``what``, in so many bytes."""
        at = running_line()
        self._compare({one: CollectiveCall(f"exchanges {what.get(one, 'values')}", at, sent.get(one, 0),
                                           received.get(one, 0)) for one in {**sent, **received}})  # fmt: skip

    # ----- MPI's own ------------------------------------------------------------------------------------------------
    def counted(self, rows: np.ndarray) -> list[Any]:
        """Rows in memory as MPI takes them."""
        return [as_bytes(rows), len(rows), self.row_type(rows)]

    def row_type(self, rows: np.ndarray) -> Any:
        """MPI's type of one of these rows (n, ...), which are counted: many libraries count in 32 bits, and so have
        room for fewer bytes than a field may have."""
        size = prod(rows.shape[1:]) * rows.itemsize
        if size not in self._row_types:
            self._row_types[size] = self.mpi.BYTE.Create_contiguous(size).Commit()
        return self._row_types[size]

    def failed(self, does: str, error: Exception) -> RankError:
        """What MPI finds wrong with what this rank does."""
        return RankError(f"rank {self.rank} {does}: MPI says {shown(str(error), 200)}: {ASK_FOR_CALLS}")

    @property
    def communicator(self) -> Any:
        """That of all ranks."""
        return self._ranks

    @cached_property
    def mpi(self) -> Any:
        from mpi4py import MPI

        return MPI

    # ----- what was sent --------------------------------------------------------------------------------------------
    def count(self, what: str, sizes: Sequence[int], since: float) -> None:
        """This rank has sent messages of so many bytes, and waited ``since`` then (``time.perf_counter``)."""
        one = of_process.MessageCount(1, len(sizes), sum(sizes), time.perf_counter() - since)
        self._sent[what] = self._sent.get(what, of_process.MessageCount()).plus(one)

    def sent(self) -> of_process.MessageCounts:
        return dict(self._sent)

    # ----- checks ---------------------------------------------------------------------------------------------------
    def check(self, does: str) -> None:
        """Where calls are checked: RankError unless all other ranks are about to do the same; all must ask."""
        if self.checks:
            self._compare(dict.fromkeys((one for one in range(self.size) if one != self.rank),
                                        CollectiveCall(does, running_line())))  # fmt: skip

    def _compare(self, calls: Mapping[int, CollectiveCall]) -> None:
        """RankError where ranks are about to do something else than this one does with each of them, or do not come."""
        missing = set(calls)
        short = {one: call._replace(does=call.does[:LONGEST_NOTE]) for one, call in calls.items()}
        for other, their in self._told(short):
            missing.remove(other)
            if fault := difference(self.rank, short[other], other, their):
                raise RankError(fault)
        if missing:
            raise RankError(absence(self.rank, short[min(missing)], sorted(missing), self._patience))

    def _told(self, calls: Mapping[int, CollectiveCall]) -> Iterator[tuple[int, CollectiveCall]]:
        """(rank, its call) as they come from the ranks that are told ``calls``. Notes wait for who comes later."""
        waiting = {one: self._notes.irecv(source=one) for one in calls}
        sent = [self._notes.isend(call, one) for one, call in calls.items()]
        end = time.monotonic() + self._patience
        while waiting and time.monotonic() < end:
            for one, request in list(waiting.items()):
                come, call = request.test()
                if come:
                    del waiting[one]
                    yield one, call
            time.sleep(_PAUSE)
        if not waiting:  # who has told something waits for what is told
            for request in sent:
                request.wait()

    def check_given(self, given: Mapping[str, object]) -> None:
        if self.size > 1:
            import_module("meshloom.dist.consistency").compare_named(self, given)

    def check_alone(self, what: str, others: str = "") -> None:
        """UserError where there are several ranks: ``what`` does not run on them yet, and ``others`` do. All must
        ask."""
        if self.size > 1:
            do = others or "cases do, and scripts with loops over sets and grids"
            raise UserError(f"{what} does not run on {self.size} ranks yet: {do}; start it by itself")


@cache
def world() -> World:
    """That of this process."""
    said = of_process.launched().size
    if said == 1:
        return World()
    known_name(of_process.COMM, os.environ.get(of_process.COMM, "").strip() or "world", ("world", "self"))
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as problem:  # it is not there, or finds no MPI
        raise UserError(
            f"a launcher has started {said} processes, and mpi4py is not there to join them: {install('mpi')}, or"
            f" .[mpich] where there is no MPI ({one_line(str(problem))})"
        ) from None
    if (seen := MPI.COMM_WORLD.size) != said:
        raise UserError(f"a launcher has started {said} processes, and mpi4py sees {seen} of them: it was made"
                        " for another MPI; start them with that one's mpirun")  # fmt: skip
    ranks = MPI.COMM_WORLD.Dup()  # the user's own messages stay apart from ours, whatever their tags
    node = ranks.Split_type(MPI.COMM_TYPE_SHARED)
    patience = max(ranks.allgather(seconds_to_wait()))  # all check, or none
    return World(ranks.rank, ranks.size, node.rank, node.size, ranks, ranks.Dup(), ranks.Dup(), patience, node)


def join() -> None:
    """Where a launcher has started several processes, back ends run over ranks from now on."""
    if of_process.launched().size > 1:
        of_process.join(world)
        ending.watch(world)
        ranks = world()
        of_process.hide_from_programs()
        import_module("meshloom.dist.consistency").compare_settings(ranks)
        if ranks.checks:  # the end of a script is a call that all ranks must come to
            atexit.register(ending.shown, lambda: ranks.check("is at the end of its script"), world)
        import_module("meshloom.dist.backend").start()
