"""Messages from rank to rank, and collectives of rows: what is handed to MPI, how often it is called, and what is left
behind."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from meshloom.dist import messages as of_messages
from meshloom.dist.agreement import DIGEST, gathered_known
from meshloom.dist.messages import PersistentMessages
from meshloom.dist.world import TAG, World
from meshloom.errors import RankError
from tests.dist.simulated import Kind, Library, Status, on_threads
from tests.dist.test_exchange import stepped


@contextmanager
def handed(here: World) -> Iterator[list[tuple[Any, ...]]]:
    """What the communicator is given: counts, displacements where there are any, and the bytes of what is counted."""
    seen: list[tuple[Any, ...]] = []

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*of: Any) -> Any:
            seen.extend((name, *one[1:-1], one[-1].size) for one in of if isinstance(one, list))
            return call(*of)

        return watching

    for name in ("Allgatherv", "Send_init", "Recv_init"):
        setattr(here.communicator, name, watched(name, getattr(here.communicator, name)))
    yield seen
    for name in ("Allgatherv", "Send_init", "Recv_init"):
        delattr(here.communicator, name)


def test_mpi_counts_rows() -> None:
    """Many libraries count in 32 bits, also where a part begins, and a field may have more bytes."""

    def job(here: World) -> None:
        rows = np.full((4 + here.rank, 3), float(here.rank))
        with handed(here) as seen:
            here.gathered(rows)
            gathered_known(here, rows, np.array([4, 5]), "rows")
            here.all_to_all([rows, rows])
        more = -(-DIGEST // 24) - (-TAG // 24)
        assert seen == [
            ("Allgatherv", 4 + here.rank, 24), ("Allgatherv", [4, 5], [0, 4], 24),
            ("Allgatherv", 4 + here.rank + more, 24), ("Allgatherv", [4 + more, 5 + more], [0, 4 + more], 24),
            ("Recv_init", 5 - here.rank, 24), ("Send_init", 4 + here.rank, 24),
        ]  # fmt: skip
        with handed(here) as seen:
            stepped().run(2)
        assert {one for one in seen if one[0] != "Allgatherv"} == {("Send_init", 5, 16), ("Recv_init", 5, 16)}

    on_threads(2, job)


@pytest.mark.parametrize(("dtype", "shape"), [(np.float64, (3,)), (np.int8, ()), (np.int16, (2, 2))])
def test_rows_that_are_gathered_come_as_they_were(dtype: type, shape: tuple[int, ...]) -> None:
    """With a digest, whatever part of a row it is."""
    counts = np.array([2, 0, 5])
    parts = [np.random.default_rng(rank).integers(0, 99, (count, *shape)).astype(dtype)
             for rank, count in enumerate(counts)]  # fmt: skip
    for found in on_threads(3, lambda here: gathered_known(here, parts[here.rank], counts, "rows")):
        assert found.dtype == dtype and np.array_equal(found, np.concatenate(parts))


def test_every_rank_has_rows_for_every_other() -> None:
    """None among them, and such of several fields."""
    kind = np.dtype([("number", np.int64), ("row", np.float32, (3,))])

    def parts(rank: int) -> list[np.ndarray]:
        made = [np.zeros((rank + to) % 3, kind) for to in range(3)]
        for to, one in enumerate(made):
            one["number"], one["row"] = np.arange(len(one)), 10 * rank + to
        return made

    found = on_threads(3, lambda here: here.all_to_all(parts(here.rank)))
    for to, came in enumerate(found):
        assert all(np.array_equal(one, parts(rank)[to]) for rank, one in enumerate(came))


def test_ranks_that_have_other_rows_for_each_other_are_told() -> None:
    def job(here: World) -> str:
        rows = np.zeros((2, 3 - here.rank))
        with pytest.raises(RankError) as caught:
            here.all_to_all([rows, rows], "values")
        return str(caught.value)

    said = on_threads(2, job)
    assert said[0] == said[1]
    assert re.fullmatch(r"rank 0 sends values \(float64, shape \(3,\) each\) at .*, and rank 1 sends values \(float64,"
                        r" shape \(2,\) each\) at .*: all ranks must make .*", said[0])  # fmt: skip


# ----- requests that are started again and again ----------------------------------------------------------------------
class Handle:
    """A request of ``world``."""

    def __init__(self, world: RecordedWorld):
        self.world = world

    def Wait(self, status: Status) -> None:
        self.world.calls.append("Wait")
        if isinstance(self.world.comes, BaseException):
            raise self.world.comes
        status.bytes = self.world.comes

    def Get_status(self, status: Status | None = None) -> bool:
        if status is not None:
            self.world.late, status.bytes = self.world.late - 1, self.world.comes  # type: ignore[assignment]
        return self.world.late < 0

    def Free(self) -> None:
        self.world.calls.append("Free")


class RecordedWorld:
    """A rank of which MPI's ``calls`` are kept: from each rank come so many bytes, or an error."""

    def __init__(self) -> None:
        self.calls, self.comes, self.finalized = list[str](), 8, False
        self.oversubscribed, self.late = False, 0  # looks that find nothing yet
        self.rank, self.checks, self.mpi, self.communicator = 0, False, self, self
        self.Prequest = self.Request = self

    Status, Exception, ERR_TRUNCATE = Status, Library.Exception, Library.ERR_TRUNCATE

    def check_with_others(self, does: str) -> None:
        """None is alone."""

    def row_type(self, rows: np.ndarray) -> Kind:
        return Kind(1)

    def counted(self, rows: np.ndarray) -> list[Any]:
        return [rows]

    def Recv_init(self, *of: Any) -> Handle:
        self.calls.append("Recv_init")
        return Handle(self)

    def Send_init(self, *of: Any) -> Handle:
        self.calls.append("Send_init")
        return Handle(self)

    def Startall(self, requests: list[Handle]) -> None:
        self.calls.append("Startall")

    def Waitall(self, requests: list[Handle]) -> None:
        self.calls.append("Waitall")

    def Is_finalized(self) -> bool:
        return self.finalized


def between_three(world: RecordedWorld) -> PersistentMessages:
    """Eight bytes to each of two others, and from them."""
    sent, received = ({rank: np.zeros(8, np.uint8) for rank in (1, 2)} for _ in range(2))
    return PersistentMessages(cast(World, world), sent, received, {})


def test_messages_are_started_at_once_and_those_that_come_are_looked_at() -> None:
    """MPI is called from Python no more than that: no request is made anew."""
    world = RecordedWorld()
    messages = between_three(world)
    for replay in range(3):
        world.calls.clear()
        messages.start()
        messages.wait()
        made = [] if replay else ["Recv_init"] * 2 + ["Send_init"] * 2
        assert world.calls == [*made, "Startall", "Wait", "Wait", "Waitall"]


def test_requests_are_freed_with_their_messages() -> None:
    """Unless they travel, so that memory stays, or MPI is gone."""
    for begun, waited, finalized, freed in ((False, False, False, 0), (True, True, False, 4), (True, False, False, 0),
                                            (True, True, True, 0)):  # fmt: skip
        world, pinned = RecordedWorld(), len(of_messages._pinned)
        messages = between_three(world)
        if begun:
            messages.start()
        if waited:
            messages.wait()
        world.calls.clear()
        world.finalized = finalized
        del messages
        gc.collect()
        assert world.calls == ["Free"] * freed
        assert len(of_messages._pinned) - pinned == (begun and not waited)


@pytest.mark.parametrize("wrong", [4, 16, KeyboardInterrupt()])
def test_requests_that_went_wrong_are_left_and_others_made(wrong: int | BaseException) -> None:
    """The first is told though the second never comes; what may still come has its memory."""
    world, pinned = RecordedWorld(), len(of_messages._pinned)
    messages = between_three(world)
    messages.start()
    world.comes = wrong
    with pytest.raises(RankError if isinstance(wrong, int) else KeyboardInterrupt):
        messages.wait()
    assert world.calls[-2:] == ["Startall", "Wait"] and len(of_messages._pinned) == pinned + 1
    world.comes = 8
    world.calls.clear()
    messages.start()
    messages.wait()
    assert world.calls.count("Recv_init") == 2 and "Free" not in world.calls


# ----- ranks that share cores -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("oversubscribed", [True, False])
def test_a_rank_of_more_than_there_are_cores_leaves_its_own_to_others(
    monkeypatch: pytest.MonkeyPatch, oversubscribed: bool
) -> None:
    """Until all are there it looks once in a while; where there are enough cores it lets MPI wait, which is faster."""
    slept: list[float] = []
    monkeypatch.setattr(of_messages.time, "sleep", slept.append)
    come = iter([False] * (of_messages._SOON + 3) + [True])
    talk = SimpleNamespace(rank=0, Ibarrier=lambda: SimpleNamespace(Test=lambda: next(come)),
                           allgather=lambda one: [one, one])  # fmt: skip
    here = World(0, 2, 0, 2, talk, None, talk, oversubscribed=oversubscribed)
    assert here.allgathered("one", "values") == ["one", "one"] and len(slept) == 3 * oversubscribed


@pytest.mark.parametrize("oversubscribed", [True, False])
def test_so_does_one_that_waits_for_a_message(monkeypatch: pytest.MonkeyPatch, oversubscribed: bool) -> None:
    """MPI is asked to wait when the message is there, whose length it may tell once only."""
    slept: list[float] = []
    monkeypatch.setattr(of_messages.time, "sleep", slept.append)
    world = RecordedWorld()
    world.oversubscribed = oversubscribed
    messages = between_three(world)
    messages.start()
    world.late = 2 * of_messages._SOON + 6  # of two messages
    messages.wait()
    assert world.calls.count("Wait") == 2 and len(slept) == 3 * oversubscribed


#: (cores that the ranks of a node may use, cores of each, is one of them crowded out?)
CORES = {
    "all the same": ([{0, 1, 2, 3}] * 2, [2, 2], False),
    "fewer than there are in the machine": ([{4, 5, 6, 7, 8}] * 2, [2, 2], False),
    "bound one by one": ([{0, 1}, {2, 3}, {4}], [2, 2, 1], False),
    "bound by sockets": ([{0, 1, 2, 3}] * 2 + [{4, 5, 6, 7}] * 2, [2, 2, 2, 2], False),
    "more ranks than cores": ([{0, 1}] * 3, [1, 1, 1], True),
    "all bound to one": ([{7}] * 2, [1, 1], True),
}


@pytest.mark.parametrize("name", CORES)
def test_ranks_share_out_the_cores_that_several_may_use(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    usable, each, crowded = CORES[name]
    for rank, own in enumerate(usable):
        node = SimpleNamespace(rank=rank, size=len(usable), allgather=lambda mine: usable)
        talk = SimpleNamespace(rank=rank, size=len(usable), Dup=lambda: None, Split_type=lambda _, node=node: node,
                               allgather=lambda mine: [mine])  # fmt: skip
        monkeypatch.setattr("meshloom.dist.world.usable_cores", lambda own=own: own)
        here = World.over(SimpleNamespace(Dup=lambda talk=talk: talk))
        assert (here.cores, here.oversubscribed) == (each[rank], crowded)


def test_another_node_that_is_crowded_counts_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """All make the same calls, or none."""
    node = SimpleNamespace(rank=0, size=1, allgather=lambda mine: [mine])
    talk = SimpleNamespace(rank=0, size=4, Dup=lambda: None, Split_type=lambda _: node,
                           allgather=lambda mine: [mine, ("", True), ("", True), ("", True)])  # fmt: skip
    monkeypatch.setattr("meshloom.dist.world.usable_cores", lambda: {0, 1})
    here = World.over(SimpleNamespace(Dup=lambda: talk))
    assert here.oversubscribed and here.cores == 2
