"""Ranks in one process: a thread for each, of which one runs at a time, until it waits for others. What they say to
each other goes through memory; meshes, fields and programs are made by each for itself, as processes do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from queue import Queue
from typing import Any, TypeVar

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import current
from meshloom.dist import agreement
from meshloom.dist.backend import Ranks
from meshloom.dist.lower import LocalProgram, lowered
from meshloom.dist.world import World
from meshloom.operation.call import functions_of

T = TypeVar("T")
SECONDS = 60.0  # a deadlock fails
_ASKING = ("array", "backend", "exchange", "lower", "overlap", "sums")  # modules that ask for the world


class Meeting:
    """What the threads of some ranks share: who runs, where all meet, and what is under way."""

    def __init__(self, ranks: int):
        self.runs, self.all = threading.Lock(), threading.Barrier(ranks, timeout=SECONDS)
        self.values: list[Any] = [None] * ranks
        self.mail = {(a, b): Queue[np.ndarray]() for a in range(ranks) for b in range(ranks)}

    def waits(self, what: Callable[[], T]) -> T:
        """What others are needed for, who run meanwhile."""
        self.runs.release()
        try:
            return what()
        finally:
            self.runs.acquire()


class Status:
    """Of a message that came: how long it was."""

    bytes = 0

    def Get_count(self, kind: Kind) -> int:
        return self.bytes // kind.size if self.bytes % kind.size == 0 else -1

    def Get_elements(self, kind: Kind) -> int:
        return self.bytes


class Kind:
    """MPI's type of so many bytes."""

    def __init__(self, size: int):
        self.size = size

    def Create_contiguous(self, count: int) -> Kind:
        return Kind(count * self.size)

    def Commit(self) -> Kind:
        return self


class Request:
    """A message that comes, or is sent: how to start it, and to wait for it, which gives its bytes."""

    def __init__(self, start: Callable[[], object] = lambda: None, wait: Callable[[], int] = lambda: 0):
        self._start, self._wait, self.freed = start, wait, False

    @staticmethod
    def Startall(requests: Sequence[Request]) -> None:
        for one in requests:
            assert not one.freed
            one._start()

    def Wait(self, status: Status | None = None) -> None:
        assert not self.freed
        came = self._wait()
        if status is not None:
            status.bytes = came

    @staticmethod
    def Waitall(requests: Sequence[Request]) -> None:
        for one in requests:
            one.Wait()

    def Get_status(self) -> None:
        """A thread that waits for nothing has nothing to do for others."""

    def Free(self) -> None:
        assert not self.freed
        self.freed = True


class Library:
    """As much of mpi4py's own names as a world uses."""

    BYTE, ERR_TRUNCATE, Status, Exception = Kind(1), 15, Status, type("Exception", (RuntimeError,), {})
    Request = Prequest = Request

    @staticmethod
    def Is_finalized() -> bool:
        return False


class Communicator:
    """As much of mpi4py's as a world uses."""

    def __init__(self, rank: int, meeting: Meeting):
        self.rank, self._at = rank, meeting

    def allgather(self, value: Any) -> list[Any]:
        self._at.values[self.rank] = value
        self._at.waits(self._at.all.wait)
        found = list(self._at.values)
        self._at.waits(self._at.all.wait)
        return found

    def bcast(self, value: Any) -> Any:
        return self.allgather(value)[0]

    def Allgather(self, sent: Sequence[Any], found: Sequence[Any]) -> None:
        found[0].view(np.uint8).reshape(-1)[:] = np.concatenate(self.allgather(sent[0].copy()))

    Allgatherv = Allgather

    def alltoall(self, values: Sequence[Any]) -> list[Any]:
        return [one[self.rank] for one in self.allgather(values)]

    def Send_init(self, sent: Sequence[Any], to: int) -> Request:
        return Request(lambda: self._at.mail[self.rank, to].put(sent[0].copy()))

    def Recv_init(self, found: Sequence[Any], source: int) -> Request:
        def wait() -> int:
            come = self._at.waits(lambda: self._at.mail[source, self.rank].get(timeout=SECONDS))
            found[0][: len(come)] = come[: len(found[0])]
            return len(come)

        return Request(wait=wait)


class PerThread:
    """What a module has for its process, of which each thread here has its own."""

    def __init__(self, make: Callable[[], Any]):
        self._make, self._of = make, threading.local()

    @property
    def _own(self) -> Any:
        if not hasattr(self._of, "one"):
            self._of.one = self._make()
        return self._of.one

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    def __repr__(self) -> str:
        return repr(self._own)


class ThreadWorld(World):
    """A rank that is a thread."""

    mpi = Library


class OfThread:
    """The world of whichever thread asks."""

    def __init__(self) -> None:
        self.local = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.local.world, name)


def on_threads(ranks: int, job: Callable[[World], T], backend: str = "numpy") -> list[T]:
    """What each rank finds."""
    meeting, here = Meeting(ranks), OfThread()
    found: list[Any] = [None] * ranks
    errors: list[BaseException] = []

    def rank_runs(rank: int) -> None:
        talk = Communicator(rank, meeting)
        here.local.world = ThreadWorld(rank, ranks, 0, 1, talk, None, talk)
        with meeting.runs:
            try:
                found[rank] = job(here.local.world)
            except BaseException as error:
                errors.append(error)
                meeting.all.abort()

    with pytest.MonkeyPatch.context() as patch:
        for name in _ASKING:
            patch.setattr(import_module(f"meshloom.dist.{name}"), "world", lambda: here)
        patch.setattr(import_module("meshloom.backend"), "_over_ranks", lambda inside: Ranks(inside, here))
        patch.setattr(agreement, "_noted", PerThread(agreement.Noted))
        with ml.using(backend, reproducible=True):
            threads = [threading.Thread(target=rank_runs, args=(one,), daemon=True) for one in range(ranks)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    assert not errors
    return found


def alone(job: Callable[[World], T]) -> T:
    """What a process by itself finds."""
    with ml.using("numpy", reproducible=True):
        return job(World())


# ----- one rank by itself --------------------------------------------------------------------------------------------
def on_rank(step: Callable[[], None], rank: int = 0, ranks: int = 2) -> LocalProgram:
    """A program as a rank has it, by itself: nothing is sent."""
    graph = ml.program(step).dataflow
    return lowered(graph, Ranks(current(), World(rank, ranks))._here(graph.operations))


def functions(found: LocalProgram) -> list[Any]:
    return list(functions_of(found.operations))
