"""What has started this process as a rank: a launcher, or its daemon on this node. Where that is gone nobody can end
this process any more, nor be told how it ended, so it ends, too.

Not by the kernel (PR_SET_PDEATHSIG), which follows the thread that has started a process: daemons have several.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain, pairwise

from meshloom.process.ranks import LAUNCHERS, SLURM, say

LOOKS = 1.0  # seconds from one look to the next
CODE = 1  # of a process that has ended for this: nobody may be there to read it


def started_by() -> tuple[int, ...]:
    """The parent of this process. Where that is a script around its command, which was told the same rank of as many,
    the parent of that as well, and so on, as far as the system (Linux) says. What others were told, as the steps of a
    batch system that start launchers, ends nobody."""
    told, found = _told(os.environ), [os.getppid()]
    with suppress(OSError, ValueError):
        while told and told <= _environment(found[-1]):
            found.append(_parent_of(found[-1]))
    return tuple(found)


def _told(environment: Mapping[str, str]) -> set[bytes]:
    """What made this process a rank: by each launcher that says so which one it is, and of how many."""
    pairs = [one for one in (*LAUNCHERS, SLURM) if all(name in environment for name in one)]
    return {os.fsencode(f"{name}={environment[name]}") for name in chain(*pairs)}


def is_left_by(parents: tuple[int, ...]) -> bool:
    """Is one of these, each the parent of that before, gone? A process without a parent is given another one."""
    with suppress(OSError, ValueError):  # nothing can be read: nobody knows
        return os.getppid() != parents[0] or any(_parent_of(one) != its for one, its in pairwise(parents))
    return False


def _environment(process: int) -> set[bytes]:
    with open(f"/proc/{process}/environ", "rb") as file:
        return set(file.read().split(b"\0"))


def _parent_of(process: int) -> int:
    with open(f"/proc/{process}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def end_with_parent(rank: int) -> None:
    """From now on this process, a rank, ends within seconds where what has started it is gone; rank 0 says so."""
    parents = started_by()

    def look() -> None:
        while not is_left_by(parents):
            ended.wait(LOOKS)
        if rank == 0:
            say("meshloom: the launcher of this run is gone, and so are its ranks")
        os._exit(CODE)

    ended = threading.Event()  # never set: the thread ends with the process
    threading.Thread(target=look, name="parent of rank", daemon=True).start()
