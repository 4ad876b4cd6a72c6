"""The ranks of a run: processes that a launcher of MPI started, and what they say to each other.

A process that no launcher started is a world of one, and mpi4py is not even imported.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from importlib import import_module
from itertools import accumulate, pairwise
from math import prod
from typing import Any, TypeVar, cast

import numpy as np

from meshloom.dist import ending
from meshloom.dist.checks import ASK_FOR_CALLS, CollectiveCall, absence, asked_to_check, difference, seconds_to_wait
from meshloom.dist.messages import PersistentMessages, wait_until
from meshloom.errors import RankError, UserError, install, known_name, one_line, shown
from meshloom.mesh.values import as_bytes
from meshloom.native.machine import usable_cores
from meshloom.process import ranks as of_process
from meshloom.process.tracebacks import running_line
from meshloom.records import dataclass

LONGEST_NOTE = 2000  # characters: it must fit into the buffer that a rank holds ready
TAG = 8  # bytes by which ranks see that they make the same call
_PAUSE = 2e-4  # seconds between looks whether others have told something
_under_way: list[object] = []  # requests, with their memory, of notes that nobody waits for any more
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class World(of_process.OneProcess):
    """``rank`` of ``size`` in all, ``node_rank`` of ``node_size`` on this node. Another one is of other processes."""

    rank: int = 0
    size: int = 1
    node_rank: int = 0
    node_size: int = 1
    _ranks: Any = field(default=None, repr=False)  # MPI's communicator, where there are several
    _ends: Any = field(default=None, repr=False)  # another one, on which ranks wait at their ends
    _notes: Any = field(default=None, repr=False)  # another one, for what ranks are about to do
    _patience: float = field(default=0.0, repr=False)  # seconds, where that is checked
    _node: Any = field(default=None, repr=False)  # one of the ranks of this node
    _sent: dict[str, of_process.MessageCount] = field(default_factory=dict, repr=False)  # so far
    _row_types: dict[int, Any] = field(default_factory=dict, repr=False)  # MPI's, by their bytes
    #: How many collectives it has begun, but for those of replays, which are ``sent``
    begun: list[int] = field(default_factory=lambda: [0], repr=False)
    #: Cores of this rank: its share of those that it may use, of which others of its node may use some, too
    cores: int = 1
    #: Has any node fewer cores than ranks?
    oversubscribed: bool = False

    @classmethod
    def over(cls, communicator: Any) -> World:
        """That of the processes of one of MPI's communicators, all of which must ask."""
        from mpi4py import MPI

        ranks = communicator.Dup()  # the user's own messages stay apart from ours, whatever their tags
        node = ranks.Split_type(MPI.COMM_TYPE_SHARED)
        usable = node.allgather(usable_cores())
        own, all_of_node = usable[node.rank], set().union(*usable)
        asked, short = zip(*ranks.allgather((asked_to_check(), node.size > len(all_of_node))), strict=True)
        patience = max(map(seconds_to_wait, asked))  # all check, or none
        return cls(ranks.rank, ranks.size, node.rank, node.size, ranks, ranks.Dup(), ranks.Dup(), patience, node,
                   cores=max(1, len(own) // sum(not own.isdisjoint(one) for one in usable)),
                   oversubscribed=any(short))  # fmt: skip

    @property
    def notes(self) -> Any:
        """Another one, for what ranks tell each other of what they do."""
        return self._notes

    @property
    def checks(self) -> bool:
        """Is checked what ranks do (``MESHLOOM_CHECK_RANKS``)?"""
        return self._patience > 0

    def broadcast(self, value: T, what: str = "a value") -> T:
        """The value of rank 0, on every rank; all must ask. ``what`` it is: for messages."""
        self.check(does := f"takes {what} of rank 0")
        return self._of_first(self._ranks, value, does)

    def largest(self, number: int) -> int:
        """The largest of all ranks' numbers; all must ask."""
        return max(self.allgathered(number, "numbers"))

    def arrive(self, said: str, code: int, tell: Callable[[], object] | None = None) -> of_process.Ended:
        return of_process.Ended(said, code) if self._ends is None else ending.arrive(self._ends, said, code, tell)

    def allgathered(self, value: T, what: str = "values", *, patiently: bool = False) -> list[T]:
        """A small value of every rank, the same on all ranks; all must call it. ``what`` it is: for messages.
        ``patiently``: behind a call that all have made, some of which take long for what they do there."""
        does = f"compares {what}"
        if not patiently:
            self.check(does)
        return self._told_all(self._ranks, value, does)

    # Ranks of a node wait for each other behind a call that all ranks have made, and was checked: what the first one
    # does there may take long.
    def on_node(self, value: T, what: str) -> list[T]:
        """A small value of every rank of this node, the same on all of these, which must call it. ``what`` it is: for
        messages."""
        return self._told_all(self._node, value, f"tells its node {what}")

    def of_first_on_node(self, value: T, what: str) -> T:
        """The value of the first rank of this node, on all of these, which must ask."""
        return self._of_first(self._node, value, f"takes {what} of the first of its node")

    def wait_for_node(self, what: str) -> None:
        """Until all ranks of this node have done something, ``what``; all of these must call it."""
        self._told_all(self._node, None, f"waits until its node has {what}")

    def _told_all(self, ranks: Any, value: T, does: str) -> list[T]:
        """A value of each of some ranks; None: of this one. All of these must be about to do the same."""
        if ranks is None:
            return [value]
        self.begun[0] += 1
        self.check_with_others(does)
        mine = pickle.dumps((self.rank, CollectiveCall(does, running_line()), value), pickle.HIGHEST_PROTOCOL)
        found: list[tuple[int, CollectiveCall, T]] = self._talked(
            does, lambda: [pickle.loads(one) for one in ranks.allgather(mine)], ranks
        )
        first, call, _ = found[0]
        for other, their, _ in found[1:]:
            if fault := difference(first, call, other, their):
                raise RankError(fault)
        return [one for _, _, one in found]

    def _of_first(self, ranks: Any, value: T, does: str) -> T:
        """The value of the first of some ranks, all of which must be about to ask; None: of this one."""
        if ranks is None:
            return value
        self.begun[0] += 1
        self.check_with_others(does)
        call = CollectiveCall(does, running_line())
        mine = pickle.dumps((self.rank, call, value), pickle.HIGHEST_PROTOCOL) if ranks.rank == 0 else b""
        first, their, found = self._talked(does, lambda: pickle.loads(ranks.bcast(mine)), ranks)
        if fault := difference(first, their, self.rank, call):
            raise RankError(fault)
        return cast(T, found)

    def _talked(self, does: str, talk: Callable[[], T], ranks: Any = None) -> T:
        """What came of messages between some ranks; None: all. Where ranks make different calls MPI may find that they
        do not fit, or give bytes of another one, of which nothing can be made."""
        try:
            if self.oversubscribed:
                wait_until((ranks or self._ranks).Ibarrier().Test)
            return talk()
        except Exception as error:
            raise self.failed(does, error) from None

    def gathered(self, rows: np.ndarray, what: str = "rows") -> list[np.ndarray]:
        """Rows (n, ...) of every rank, the same on all ranks; all must call it. ``what`` they are: for messages."""
        if self._ranks is None:
            return [rows]
        self.check(does := f"gathers {what} ({rows.dtype}, shape {rows.shape[1:]} each)")
        return self._put_together(rows, self._told_all(self._ranks, len(rows), does), does)

    def stacked(self, row: np.ndarray, what: str = "rows") -> np.ndarray:
        """One row of every rank, as long on all of them, (ranks, ...): one collective, where ``gathered`` first has to
        ask how many there are; all must call it. ``what`` they are: for messages."""
        if self._ranks is None:
            return row[None]
        self.check(does := f"gathers {what} ({row.dtype}, shape {row.shape} each)")
        sent = np.concatenate((np.frombuffer(_tag(does), np.uint8), as_bytes(row)))
        found, byte = np.empty((self.size, len(sent)), np.uint8), self.mpi.BYTE
        self._talked(does, lambda: self._ranks.Allgather([sent, byte], [found, byte]))
        self._check_tags(found[:, :TAG].tobytes(), does)
        return as_bytes(found[:, TAG:]).view(row.dtype).reshape(self.size, *row.shape)

    def _check_tags(self, tags: bytes, does: str) -> None:
        """RankError where another rank has made another call, by those of all: MPI takes shorter rows for right."""
        if tags != _tag(does) * self.size:
            other = next(one for one in range(self.size) if tags[one * TAG : (one + 1) * TAG] != _tag(does))
            raise RankError(f"rank {self.rank} {does}, and rank {other} gathers something else: {ASK_FOR_CALLS}")

    def joined(self, rows: np.ndarray, counts: Sequence[int], what: str) -> list[np.ndarray]:
        """Rows (n, ...) of every rank, of which all know how many these are, ``counts``, the same on all ranks: one
        collective; all must call it. ``what`` they are: for messages."""
        if self._ranks is None:
            return [rows]
        self.check(does := f"gathers {what}")
        call = np.zeros((-(-TAG // self._bytes(rows)), *rows.shape[1:]), rows.dtype)  # whole rows, as what is counted
        as_bytes(call)[:TAG] = np.frombuffer(_tag(does), np.uint8)
        parts = self._put_together(np.concatenate((call, rows)), [len(call) + one for one in counts], does)
        self._check_tags(b"".join([as_bytes(one)[:TAG].tobytes() for one in parts]), does)
        return [one[len(call):] for one in parts]

    def _put_together(self, rows: np.ndarray, counts: Sequence[int], does: str) -> list[np.ndarray]:
        """Rows of every rank, ``counts`` of them: one collective."""
        self.begun[0] += 1
        ends = [0, *accumulate(counts)]
        found = np.empty((ends[-1], *rows.shape[1:]), rows.dtype)
        into = [as_bytes(found), [*counts], ends[:-1], self.row_type(rows)]
        self._talked(does, lambda: self._ranks.Allgatherv(self.counted(rows), into))
        return [found[a:b] for a, b in pairwise(ends)]

    def all_to_all(self, parts: Sequence[np.ndarray], what: str = "rows") -> list[np.ndarray]:
        """Rows (n, ...) for each rank; what each has for this one, by rank. All must call it. ``what`` they are: for
        messages."""
        if self._ranks is None:
            return [*parts]
        like = parts[self.rank]
        mine = CollectiveCall(f"sends {what} ({like.dtype}, shape {like.shape[1:]} each)", running_line())
        self.check(does := mine.does)
        self.begun[0] += 1
        told = self._talked(does, lambda: self._ranks.alltoall([(len(one), mine) for one in parts]))
        for other, (_, their) in enumerate(told):
            if fault := difference(self.rank, mine, other, their):
                raise RankError(fault)
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
        size = self._bytes(rows)
        if size not in self._row_types:
            self._row_types[size] = self.mpi.BYTE.Create_contiguous(size).Commit()
        return self._row_types[size]

    def _bytes(self, rows: np.ndarray) -> int:
        return prod(rows.shape[1:]) * rows.itemsize

    def failed(self, does: str, error: Exception) -> RankError:
        """What is wrong with what comes of what this rank does."""
        wrong = "MPI says" if isinstance(error, self.mpi.Exception) else "it cannot read what comes:"
        return RankError(f"rank {self.rank} {does}: {wrong} {shown(str(error), 200)}: {ASK_FOR_CALLS}")

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
        """RankError where no other rank is about to do it, too; where calls are checked, unless all are. All must
        ask."""
        self.check_with_others(does)
        if self.checks:
            self._compare(dict.fromkeys((one for one in range(self.size) if one != self.rank),
                                        CollectiveCall(does, running_line())))  # fmt: skip

    def check_with_others(self, does: str) -> None:
        """RankError where this rank is by itself, as the root is in what it does for all: the others wait for that."""
        if self._ranks is not None and of_process.is_alone():
            raise RankError(f"rank {self.rank} {does} in what it does for others, which wait until it is done: do so"
                            " before, or behind it")  # fmt: skip

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
        try:
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
                sent.clear()
        finally:  # others may still read what was sent to them, though this rank knows by now that it goes wrong
            _under_way.extend((*sent, *waiting.values()))

    def check_given(self, given: Mapping[str, object]) -> None:
        if self.size > 1:
            import_module("meshloom.dist.consistency").compare_named(self, given)

    def check_values(self, given: Iterable[Any]) -> None:
        if self.size > 1:
            import_module("meshloom.dist.consistency").compare_values(self, given)

    def check_alone(self, what: str, others: str = "") -> None:
        """UserError where there are several ranks: ``what`` does not run on them yet, and ``others`` do. All must
        ask."""
        if self.size > 1:
            do = others or "cases do, and scripts with loops over sets and grids"
            raise UserError(f"{what} does not run on {self.size} ranks yet: {do}; start it without a launcher")


def _tag(does: str) -> bytes:
    """Goes ahead of bytes, so that those of different calls are told apart."""
    return hashlib.sha256(does.encode()).digest()[:TAG]



_here: World | None = None  # once somebody has asked


def world() -> World:
    """That of this process."""
    global _here
    if _here is None:
        _here = _of_launcher()
    return _here


def stand_in(here: World) -> None:
    """That of this process from now on."""
    global _here
    _here = here


def _of_launcher() -> World:
    """That of all that a launcher has started."""
    said = of_process.launched().size
    if said == 1:
        return World()
    try:
        with warnings.catch_warnings():  # of another MPI's launcher, which is told below where it matters
            warnings.filterwarnings("ignore", "suspicious MPI execution environment", RuntimeWarning)
            from mpi4py import MPI
    except (ImportError, RuntimeError) as problem:  # it is not there, or finds no MPI
        raise UserError(
            f"a launcher has started {said} processes, and mpi4py is not there to join them: {install('mpi')}, or"
            f" [mpich] for [mpi] where there is no MPI ({one_line(str(problem))})"
        ) from None
    if (seen := MPI.COMM_WORLD.size) != said:
        raise UserError(f"a launcher has started {said} processes, and mpi4py sees {seen} of them: it was made"
                        " for another MPI; start them with that one's mpirun")  # fmt: skip
    return World.over(MPI.COMM_WORLD)


def join() -> None:
    """Where a launcher has started several processes, back ends run over ranks from now on."""
    if of_process.launched().size > 1:
        of_process.join(world)
        ending.watch(world)
        ranks = world()  # once there is one an error of one rank alone ends the others, too
        known_name(of_process.COMM, os.environ.get(of_process.COMM, "").strip() or "world", ("world", "self"))
        of_process.hide_from_programs()
        if _in_a_notebook():
            ranks.check_alone("a notebook, which nobody asks on all of them,", "its cells as a script do")
        import_module("meshloom.dist.consistency").compare_settings(ranks)
        if ranks.checks:  # the end of a script is a call that all ranks must come to
            atexit.register(ending.shown, lambda: ranks.check("is at the end of its script"), world)
        else:
            import_module("meshloom.dist.waits").watch(ranks)
        import_module("meshloom.dist.backend").start()


def _in_a_notebook() -> bool:
    """Has a notebook's kernel started this process?"""
    asked = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return asked is not None and hasattr(asked(), "kernel")
