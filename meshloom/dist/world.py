"""The ranks of a run: processes that a launcher of MPI started, and what they say to each other.

A process that no launcher started is a world of one, and mpi4py is not even imported.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np

from meshloom.dist import ending
from meshloom.dist.checks import (
    ASK_FOR_CALLS,
    CollectiveCall,
    absence,
    asked_to_check,
    difference,
    seconds_to_wait,
    wrong_length,
)
from meshloom.errors import RankError, UserError, install, known_name, one_line, shown
from meshloom.process import ranks as of_process
from meshloom.process.tracebacks import running_line

#: What launchers tell a process of how many there are: those of MPICH, Intel and Cray; Open MPI; MVAPICH.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
#: Slurm's srun tells every step its size, also those of processes that have nothing to do with each other: it counts
#: where PMIx is there to join them.
SLURM_SIZE, PMIX_RANK = "SLURM_STEP_NUM_TASKS", "PMIX_RANK"
LONGEST_NOTE = 2000  # characters: it must fit into the buffer that a rank holds ready
_PAUSE = 2e-4  # seconds between looks whether a note has come
T = TypeVar("T")
_pinned: list[object] = []  # requests and memory of exchanges that went wrong: messages may still come into it


@dataclass(frozen=True)
class MessagesInFlight:
    """Messages to and from other ranks. Called, it waits for all of them."""

    requests: list[Any]
    ended: Callable[[], None]

    def __call__(self) -> None:
        self.ended()

    def progress(self) -> None:
        """Have MPI do what can be done by now: most do nothing for large messages while nobody calls them. A request
        that is only asked stays, so that whoever waits for it hears how long its message was."""
        for one in self.requests:
            one.Get_status()


def launched(environment: Mapping[str, str] = os.environ) -> int:
    """How many processes a launcher says that it has started to be ranks of one run; 1 where there is none."""
    if of_process.is_by_itself(environment):
        return 1
    sizes = (*SIZES, SLURM_SIZE) if PMIX_RANK in environment else SIZES
    said = [environment[name] for name in sizes if name in environment]
    return max((int(one) for one in said if one.isdecimal()), default=1)


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
        except self._mpi.Exception as error:
            raise self._failed(mine.does, error) from None
        each = int(np.prod(rows.shape[1:], dtype=np.int64)) * rows.itemsize
        parts = self._put_together(_as_bytes(rows), [one * each for one in counts], mine.does)
        return [part.view(rows.dtype).reshape(count, *rows.shape[1:])
                for part, count in zip(parts, counts, strict=True)]  # fmt: skip

    def _counts(self, count: int, mine: CollectiveCall) -> list[int]:
        """How many rows every rank gathers; RankError where one gathers other ones."""
        everybody = self._ranks.allgather((count, mine))
        for other, (_, their) in enumerate(everybody):
            if fault := difference(self.rank, mine, other, their):
                raise RankError(fault)
        return [one for one, _ in everybody]

    def stacked(self, row: np.ndarray, what: str = "rows") -> np.ndarray:
        """One row of every rank, as long on all of them, (ranks, ...): one collective, where ``gathered`` first has to
        ask how many there are; all must call it. ``what`` they are: for messages."""
        if self._ranks is None:
            return row[None]
        does = f"gathers {what} ({row.dtype}, shape {row.shape} each)"
        self.check(does)
        length = _as_bytes(np.array([row.nbytes]))  # goes ahead of the row: MPI takes shorter ones for right
        sent = np.concatenate((length, _as_bytes(row)))
        found = np.empty((self.size, len(sent)), np.uint8)
        try:
            self._ranks.Allgather([sent, self._mpi.BYTE], [found, self._mpi.BYTE])
        except self._mpi.Exception as error:
            raise self._failed(does, error) from None
        lengths, rows = found[:, : len(length)], found[:, len(length) :]
        if (lengths != length).any():
            other = int((lengths != length).any(axis=1).argmax())
            raise RankError(f"rank {self.rank} {does}, and rank {other} gathers more or less: {ASK_FOR_CALLS}")
        return _as_bytes(rows).view(row.dtype).reshape(self.size, *row.shape)

    def joined(self, sent: np.ndarray, lengths: Sequence[int], what: str) -> list[np.ndarray]:
        """Bytes of every rank, of which all know how many these are, ``lengths``, the same on all ranks: one
        collective; all must call it. ``what`` they are: for messages."""
        if self._ranks is None:
            return [sent]
        self.check(does := f"gathers {what}")
        return self._put_together(sent, lengths, does)

    def _put_together(self, sent: np.ndarray, lengths: Sequence[int], does: str) -> list[np.ndarray]:
        """Bytes of every rank, ``lengths`` of them: one collective."""
        ends, byte = [0, *accumulate(lengths)], self._mpi.BYTE
        found = np.empty(ends[-1], np.uint8)
        try:
            self._ranks.Allgatherv([sent, byte], [found, [*lengths], ends[:-1], byte])
        except self._mpi.Exception as error:
            raise self._failed(does, error) from None
        return [found[a:b] for a, b in pairwise(ends)]

    def begin_exchange(self, sent: Sequence[np.ndarray], received: Sequence[np.ndarray], neighbours: Sequence[int],
                       senders: Sequence[int], what: Mapping[int, str] | None = None
                       ) -> MessagesInFlight:  # fmt: skip
        """Bytes ``sent[k]`` to rank ``neighbours[k]``; from rank ``senders[k]`` as many as ``received[k]`` takes.
        ``what`` they are, by rank: for messages. Messages travel from now on: what it gives waits for them."""
        if self.checks:
            sizes = dict(zip(neighbours, (one.nbytes for one in sent), strict=True))
            expected = dict(zip(senders, (one.nbytes for one in received), strict=True))
            named, at = what or {}, running_line()
            self._compare({one: CollectiveCall(f"exchanges {named.get(one, 'values')}", at, sizes.get(one, 0),
                                               expected.get(one, 0)) for one in sizes | expected})  # fmt: skip
        byte = self._mpi.BYTE
        try:
            coming = [self._ranks.Irecv([one, byte], source) for one, source in zip(received, senders, strict=True)]
            leaving = [self._ranks.Isend([one, byte], to) for one, to in zip(sent, neighbours, strict=True)]
        except self._mpi.Exception as error:
            raise self._failed("begins to exchange values", error) from None

        def ended() -> None:
            try:
                for one, request, source in zip(received, coming, senders, strict=True):
                    self._wait(request, source, one.nbytes, what or {})
                for request in leaving:
                    request.Wait()
            except BaseException:  # of the signal that ends waiting, too
                _pinned.append((received, coming, sent, leaving))
                raise

        return MessagesInFlight([*coming, *leaving], ended)

    def _wait(self, request: Any, source: int, expected: int, what: Mapping[int, str]) -> None:
        """For the message of a rank; RankError where it is not as long as it should be."""
        status, came = self._mpi.Status(), None
        try:
            request.Wait(status)
            came = status.Get_count(self._mpi.BYTE)
        except self._mpi.Exception as error:
            if error.Get_error_class() != self._mpi.ERR_TRUNCATE:
                raise self._failed(f"exchanges {what.get(source, 'values')} with rank {source}", error) from None
        if came != expected:
            does = f"exchanges {what.get(source, 'values')}"
            raise RankError(wrong_length(self.rank, does, source, came, expected))

    def _failed(self, does: str, error: Exception) -> RankError:
        """What MPI finds wrong with what this rank does."""
        return RankError(f"rank {self.rank} {does}: MPI says {shown(str(error), 200)}: {ASK_FOR_CALLS}")

    def count(self, what: str, sizes: Sequence[int], since: float) -> None:
        """This rank has sent messages of so many bytes, and waited ``since`` then (``time.perf_counter``)."""
        one = of_process.MessageCount(1, len(sizes), sum(sizes), time.perf_counter() - since)
        self._sent[what] = self._sent.get(what, of_process.MessageCount()).plus(one)

    def sent(self) -> of_process.MessageCounts:
        return dict(self._sent)

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

    @property
    def _mpi(self) -> Any:
        from mpi4py import MPI

        return MPI


def _as_bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1)


@cache
def world() -> World:
    """That of this process."""
    said = launched()
    if said == 1:
        return World()
    known_name(of_process.COMM, os.environ.get(of_process.COMM, "").strip() or "world", ("world", "self"))
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as problem:  # it is not there, or finds no MPI
        raise UserError(
            f"a launcher has started {said} processes, and mpi4py is not there to join them: {install('mpi')}, or"
            f" [mpich] for [mpi] where there is no MPI ({one_line(str(problem))})"
        ) from None
    if (seen := MPI.COMM_WORLD.size) != said:
        raise UserError(f"a launcher has started {said} processes, and mpi4py sees {seen} of them: it was made"
                        " for another MPI; start them with that one's mpirun")  # fmt: skip
    ranks = MPI.COMM_WORLD.Dup()  # the user's own messages stay apart from ours, whatever their tags
    node = ranks.Split_type(MPI.COMM_TYPE_SHARED)
    patience = max(map(seconds_to_wait, ranks.allgather(asked_to_check())))  # all check, or none
    return World(ranks.rank, ranks.size, node.rank, node.size, ranks, ranks.Dup(), ranks.Dup(), patience, node)


def join() -> None:
    """Where a launcher has started several processes, back ends run over ranks from now on."""
    if launched() > 1:
        of_process.join(world)
        ending.watch(world)
        ranks = world()
        for name in (*SIZES, SLURM_SIZE):  # programs that this one starts are no ranks
            os.environ.pop(name, None)
        import_module("meshloom.dist.consistency").compare_settings(ranks)
        if ranks.checks:  # the end of a script is a call that all ranks must come to
            atexit.register(ending.shown, lambda: ranks.check("is at the end of its script"), world)
        import_module("meshloom.dist.backend").start()
