"""What ranks notice of each other's waiting, though nobody has asked for checks.

A thread of each rank looks once in a while at where the rank is. What has lasted for long is told once, and goes on: a
slow rank may still come. Meanwhile the thread asks one after the other of those who are waited for whether they have
come to the end of their script, where nobody will come any more: who is there says so, and all are ended. The thread
sleeps between two looks, and what it needs to know stands on the stack of whoever waits: a replay does nothing for it.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, NamedTuple, cast

from meshloom.dist.checks import CALLS, CollectiveCall, difference, seconds_till_told
from meshloom.dist.ending import end_all
from meshloom.dist.messages import PersistentMessages
from meshloom.dist.world import World
from meshloom.process.ranks import say
from meshloom.process.tracebacks import line_of

LOOKS = 1.0  # seconds from one look to the next
ASKS_AFTER = 2  # looks that find the same wait
#: Seconds at the end of a script in which questions may be of what has come to an end meanwhile
STILL_UNDER_WAY = 3.0
_SHORTEST, _LONGEST = 1e-3, 0.05  # seconds between looks whether all have come to the end
_STAGGER, _LATEST = 0.2, 1.5  # seconds more for every higher rank, which is to find that all are ended, and at most
_SPEAKERS = 2  # ranks that tell: what the first waits for may be the second
AT_ITS_END = CollectiveCall("is at the end of its script", "")
CODE = 2  # what a run ends with whose ranks make different calls


class Wait(NamedTuple):
    """What a rank waits in, and for which ``others``, of whom nobody has gone on; none where that is not known.
    ``known_by``: what tells it from other waits."""

    call: CollectiveCall
    others: tuple[int, ...]
    known_by: tuple[object, ...]


def wait_of(world: World) -> Wait | None:
    """What some thread of this rank waits in now."""
    for thread, frame in sys._current_frames().items():
        for one in _outwards(frame):
            if one.f_code in _READERS and getattr(on := one.f_locals["self"], "_world", on) is world:
                try:
                    does, others = _READERS[one.f_code](world, one.f_locals)
                except KeyError:  # it has only just been called, and has not said yet what it does
                    return None
                call, ended = CollectiveCall(does, line_of(one)), sum(each.calls for each in world.sent().values())
                return Wait(call, others, (call, thread, world.begun[0], ended))
    return None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


# ----- what stands on the stack -------------------------------------------------------------------------------------
Read = tuple[str, tuple[int, ...]]


def _of_all(world: World, found: Mapping[str, Any]) -> Read:
    """A collective that nobody leaves before all have come."""
    return found["does"], tuple((world.rank + k) % world.size for k in range(1, world.size))


def _of_some(world: World, found: Mapping[str, Any]) -> Read:
    """One of some ranks, or of all."""
    does, others = _of_all(world, found)
    return does, others if found["ranks"] is world.communicator or world.node_size == world.size else ()


def _of_first(world: World, found: Mapping[str, Any]) -> Read:
    """Who has what the first sends may go on, and others wait for whoever hands it on."""
    return found["does"], ()


def _of_message(world: World, found: Mapping[str, Any]) -> Read:
    messages, source = found["self"], found["source"]
    return f"exchanges {messages.what.get(source, 'values')}", (source,)


def _of_messages(world: World, found: Mapping[str, Any]) -> Read:
    """Until others have taken what was sent."""
    return f"exchanges {next(iter(found['self'].what.values()), 'values')}", ()


_READERS: dict[CodeType, Callable[[World, Mapping[str, Any]], Read]] = {
    World._told_all.__code__: _of_some,
    World._of_first.__code__: _of_first,
    World._put_together.__code__: _of_all,
    World.stacked.__code__: _of_all,
    World.all_to_all.__code__: _of_all,
    PersistentMessages.wait.__code__: _of_messages,
    PersistentMessages._wait.__code__: _of_message,
}


# ----- the thread ---------------------------------------------------------------------------------------------------
class Watch:
    """What a rank waits in, as it is looked at from time to time. ``notes``: the communicator for what ranks tell each
    other of it; None where MPI may be called by one thread alone."""

    def __init__(self, world: World, notes: Any, patience: float):
        self._world, self._notes, self._patience = world, notes, patience
        self._before: Wait | None = None
        self._since, self._looks, self._told = 0.0, 0, False
        self._asked: list[Any] = []  # messages that may be under way

    def look(self, now: float) -> None:
        found = wait_of(self._world)
        if found is None or self._before is None or found.known_by != self._before.known_by:
            self._before, self._since, self._looks = found, now, 0
            return
        self._looks += 1
        if not self._told and 0 < self._patience <= now - self._since and self._world.rank < _SPEAKERS:
            self._told = True
            say(f"meshloom: {told(self._world.rank, found.call, self._patience)}")
        if self._looks >= ASKS_AFTER and found.others and self._notes is not None:
            self._asked = [one for one in self._asked if not one.Test()]
            to = found.others[self._looks % len(found.others)]
            self._asked.append(self._notes.isend(found.call, to))


def told(rank: int, call: CollectiveCall, seconds: float) -> str:
    return (f"rank {rank} has waited for {seconds:g} s, and goes on waiting: it {call};"
            f" {CALLS}=1 names who does not come")  # fmt: skip


def watch(world: World) -> None:
    """From now on, until this process ends."""
    mpi = world.mpi
    notes = world.notes if mpi.Query_thread() >= mpi.THREAD_MULTIPLE else None
    one, ended, process = Watch(world, notes, seconds_till_told()), threading.Event(), os.getpid()

    def look() -> None:
        while not ended.wait(LOOKS):
            one.look(time.monotonic())

    thread = threading.Thread(target=look, name="waits of ranks", daemon=True)
    thread.start()

    def end() -> None:
        if os.getpid() == process and not mpi.Is_finalized():  # nor a child, which is no rank
            ended.set()
            thread.join()
            with suppress(KeyboardInterrupt):
                until_all_end(world, world.notes)

    atexit.register(end)


def until_all_end(world: World, notes: Any) -> None:
    """This rank is at the end of its script. It waits for the others, unless one of them waits for it."""
    all_here, since, pause = notes.Ibarrier(), time.monotonic(), _SHORTEST
    while not all_here.Test():
        for other, call in _questions(notes):
            if time.monotonic() - since > STILL_UNDER_WAY:
                time.sleep(min(_STAGGER * world.rank, _LATEST))
                end_all(notes, difference(world.rank, AT_ITS_END, other, call), CODE, None)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)
    for _ in _questions(notes):  # which nobody needs an answer to
        pass


def _questions(notes: Any) -> Iterator[tuple[int, CollectiveCall]]:
    """Those that have come: from which rank, and in what it waits."""
    from mpi4py import MPI

    status = MPI.Status()
    while notes.iprobe(status=status):
        yield status.Get_source(), cast(CollectiveCall, notes.recv(source=status.Get_source()))
