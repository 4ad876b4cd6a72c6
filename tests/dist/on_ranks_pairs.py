"""The design of ``pairs.py``: ``mpirun -n 4 python -m tests.dist.on_ranks_pairs FOLDER [any_bits] NAME...`` writes what
the runs of each world have found to a file in ``FOLDER``, with how long each took, and values to ``FOLDER/RANKS``.

The same processes are one world of 4, then one of 3 beside one that is alone, two of 2, and four that are alone: most
of a run's time goes into importing, tracing and compiling, which a process does once for all of its runs, or for all
of a case. What is left to do on so many ranks is taken by whichever world is free.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from mpi4py import MPI

from meshloom.backend import current
from meshloom.dist import agreement, world
from meshloom.dist.backend import Ranks
from meshloom.dist.backend import enter as enter_world
from meshloom.dist.checks import CALLS, HALOS
from meshloom.run.page import render
from tests.dist.on_ranks_cases import ANY_BITS, ran
from tests.dist.pairs import ITERATIONS, RANKS, Run, design

#: Worlds that run at the same time, by their ranks of all: those who are alone last, as long as there are runs left.
PHASES = (((0, 1, 2, 3),), ((0, 1, 2), (3,)), ((0, 1), (2, 3)), ((0,), (1,), (2,), (3,)))


def taken(runs: Sequence[Run], ranks: int, folder: Path) -> Iterator[Run]:
    """The runs on so many ranks that no other world has taken, one after the other."""
    here = world.world()
    for number, run in enumerate(runs):
        if run.ranks == ranks and here.broadcast(here.rank == 0 and is_first(folder / f"{number}.taken")):
            yield run


def told_in(folder: str, phase: int, members: Sequence[int]) -> Path:
    """Where a world tells what it has found."""
    return Path(folder, f"{phase}-{members[0]}.json")


def is_first(file: Path) -> bool:
    """Has nobody else made it yet?"""
    with suppress(FileExistsError):
        file.touch(exist_ok=False)
        return True
    return False


def enter(members: Sequence[int]) -> None:
    """From now on this process is one of these ranks, or by itself, as one that no launcher has started."""
    everybody, before = MPI.COMM_WORLD, world.world()
    agreement.compare(before, (), "until here")  # what is noted is compared among those who have noted it
    wait_for(members)
    looked_into = len(members) < RANKS[-1]
    os.environ[HALOS] = str(int(looked_into))
    if len(members) > 1:
        os.environ[CALLS] = "120" if looked_into else "0"
        enter_world(world.World.over(everybody.Create_group(everybody.group.Incl(members))))
    else:
        enter_world(world.World())


def wait_for(members: Sequence[int]) -> None:
    """Until they all are here. MPI would keep a core busy meanwhile, which others need."""
    everybody = MPI.COMM_WORLD
    told = [everybody.isend(None, one) for one in members]
    for one in members:
        here = everybody.irecv(source=one)
        while not here.test()[0]:
            time.sleep(0.01)
    MPI.Request.waitall(told)


def main(folder: str, *words: str) -> None:
    gc.freeze()  # one case after the other: modules need not be looked through for each
    gc.set_threshold(100_000, 20, 50)
    render.page = lambda *given: ""  # tells of times, and is compared with nothing
    runs = [*design([word for word in words if word != ANY_BITS], same_bits=ANY_BITS not in words)]
    for phase, worlds in enumerate(PHASES):
        members = next(some for some in worlds if MPI.COMM_WORLD.rank in some)
        enter(members)
        found, seconds = {}, {}
        others = [some for some in worlds if len(some) > len(members)]  # who is alone beside them waits for no other
        for run in taken(runs, len(members), Path(folder)):
            began = time.monotonic()
            found |= ran(run.backend, Path(folder, str(run.ranks)), f"{run.word}:{ITERATIONS}")
            seconds[run.word] = time.monotonic() - began
            assert isinstance(current(), Ranks) == (len(members) > 1), "who is alone runs as without a launcher"
            if any(told_in(folder, phase, some).exists() for some in others):
                break
        assert world.world().broadcast(found) == found, "every rank has the same"
        if world.world().rank == 0:
            told_in(folder, phase, members).write_text(json.dumps([found, seconds, len(members)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
