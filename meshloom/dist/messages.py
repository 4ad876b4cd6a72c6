"""Messages from rank to rank whose memory stays where it is, so that they can be sent again and again: MPI's persistent
requests. They are made when messages are first started, and freed when nobody has these any more: by each rank for
itself, whenever that is.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from meshloom.dist.checks import wrong_length
from meshloom.errors import RankError

_PAUSE = 2e-4  # seconds between looks whether others have come
_SOON = 50  # looks before the first pause: most who come at all come at once
_pinned: list[object] = []  # requests, with their memory, that went wrong, or nobody waits for: messages may still come


class MpiRanks(Protocol):
    """What messages ask of the ranks of a run: see ``World``."""

    @property
    def rank(self) -> int: ...

    @property
    def checks(self) -> bool: ...

    @property
    def oversubscribed(self) -> bool: ...

    @property
    def mpi(self) -> Any: ...

    @property
    def communicator(self) -> Any: ...

    def row_type(self, rows: np.ndarray) -> Any: ...

    def counted(self, rows: np.ndarray) -> list[Any]: ...

    def failed(self, does: str, error: Exception) -> RankError: ...

    def check_with_others(self, does: str) -> None: ...

    def compare_exchange(
        self, what: Mapping[int, str], sent: Mapping[int, int], received: Mapping[int, int]
    ) -> None: ...


class Requests:
    """MPI's, for messages that come and such that leave. ``travel``: they have been started, and not waited for."""

    def __init__(self) -> None:
        self.coming, self.leaving, self.travel = list[Any](), list[Any](), False

    @property
    def all(self) -> list[Any]:
        return [*self.coming, *self.leaving]

    def pin(self) -> None:
        """Leave them as they are; others are made next time."""
        _pinned.append(self.all)
        self._forget()

    def free(self, mpi: Any) -> None:
        """No other rank is asked. What is made anew behind that, as the process ends, is left to MPI."""
        if mpi.Is_finalized():
            return
        if self.travel:
            self.pin()
        for one in self.all:
            one.Free()
        self._forget()

    def _forget(self) -> None:
        self.coming, self.leaving, self.travel = [], [], False


def wait_until(come: Callable[[], bool]) -> None:
    """Until ranks have come, on a node that has fewer cores than ranks: MPI would keep one busy, which others need."""
    looks = 0
    while not come():
        looks += 1
        if looks > _SOON:
            time.sleep(_PAUSE)
        else:
            os.sched_yield()


class PersistentMessages:
    """Rows (n, ...) in memory: those ``sent`` to other ranks, and room for those ``received``, by rank; ``what`` they
    are, by rank: for errors. They travel from ``start`` on, and have come when ``wait`` is over; then they may be
    started again."""

    def __init__(self, world: MpiRanks, sent: Mapping[int, np.ndarray], received: Mapping[int, np.ndarray],
                 what: Mapping[int, str]):  # fmt: skip
        self._world, self._sent, self._received, self.what = world, sent, received, what
        self._requests, self._mpi, self._status = Requests(), world.mpi, world.mpi.Status()
        self._seen: dict[int, Any] = {}  # statuses of messages that have come, by sender
        self._types = {source: world.row_type(rows) for source, rows in received.items()}
        weakref.finalize(self, self._requests.free, self._mpi)  # before MPI is finalized, if the process ends

    def start(self) -> None:
        """All of them; the neighbours do so, too."""
        requests = self._requests
        self._world.check_with_others("exchanges values")
        if self._world.checks:
            sizes, expected = ({rank: one.nbytes for rank, one in side.items()}
                               for side in (self._sent, self._received))  # fmt: skip
            self._world.compare_exchange(self.what, sizes, expected)
        try:
            if not requests.all:
                self._make()
            requests.travel = True
            self._seen.clear()
            self._mpi.Prequest.Startall(requests.all)
        except self._mpi.Exception as error:
            requests.pin()
            raise self._world.failed("begins to exchange values", error) from None

    def _make(self) -> None:
        ranks = self._world.communicator
        for source, rows in self._received.items():
            self._requests.coming.append(ranks.Recv_init(self._world.counted(rows), source))
        for to, rows in self._sent.items():
            self._requests.leaving.append(ranks.Send_init(self._world.counted(rows), to))

    def progress(self) -> None:
        """Have MPI do what can be done by now: most do nothing for large messages while nobody calls them. How long a
        message was that has come is kept: whoever asks again, or waits for it, may not hear that any more."""
        for source, request in zip(self._received, self._requests.coming, strict=True):
            if source not in self._seen and request.Get_status(status := self._mpi.Status()):
                self._seen[source] = status
        for request in self._requests.leaving:
            request.Get_status()

    def _has_come(self, source: int) -> bool:
        self.progress()
        return source in self._seen

    def wait(self) -> None:
        """For all; one after the other, so that a wrong one is told though others never come."""
        requests = self._requests
        try:
            for request, (source, rows) in zip(requests.coming, self._received.items(), strict=True):
                self._wait(request, source, rows)
            self._mpi.Request.Waitall(requests.leaving)
        except BaseException:  # of the signal that ends waiting, too
            requests.pin()
            raise
        requests.travel = False

    def _wait(self, request: Any, source: int, rows: np.ndarray) -> None:
        """For the message of a rank; RankError where it is not as long as it should be."""
        kind, status, came = self._types[source], self._status, None
        try:
            if self._world.oversubscribed:
                wait_until(lambda: self._has_come(source))
            request.Wait(status)
            status = self._seen.pop(source, status)
            if status.Get_count(kind) == len(rows):
                return
            came = status.Get_elements(kind)  # which are bytes
        except self._mpi.Exception as error:
            if error.Get_error_class() != self._mpi.ERR_TRUNCATE:
                named = f"exchanges {self.what.get(source, 'values')} with rank {source}"
                raise self._world.failed(named, error) from None
        does = f"exchanges {self.what.get(source, 'values')}"
        raise RankError(wrong_length(self._world.rank, does, source, came, rows.nbytes))
