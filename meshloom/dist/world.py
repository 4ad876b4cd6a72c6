"""The ranks of a run: processes that a launcher of MPI started, and what they say to each other.

A process that no launcher started is a world of one, and mpi4py is not even imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from meshloom.dist import ending
from meshloom.errors import UserError, install, one_line
from meshloom.process import ranks as of_process

#: What launchers tell a process of how many there are: those of MPICH, Intel and Cray; Open MPI; MVAPICH.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
T = TypeVar("T")


def launched(environment: Mapping[str, str] = os.environ) -> int:
    """How many processes a launcher says that it has started; 1 where there is none."""
    said = [environment[name] for name in SIZES if name in environment]
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

    def broadcast(self, value: T) -> T:
        """The value of rank 0, on every rank; all must ask."""
        return value if self._ranks is None else self._ranks.bcast(value)

    def largest(self, number: int) -> int:
        """The largest of all ranks' numbers; all must ask."""
        return number if self._ranks is None else max(self._ranks.allgather(number))

    def arrive(self, said: str, code: int, tell: Callable[[], object] | None = None) -> of_process.Ended:
        return of_process.Ended(said, code) if self._ends is None else ending.arrive(self._ends, said, code, tell)

    def gathered(self, rows: np.ndarray) -> list[np.ndarray]:
        """Rows (n, ...) of every rank, the same on all ranks; all must call it."""
        if self._ranks is None:
            return [rows]
        counts = self._ranks.allgather(len(rows))
        each = int(np.prod(rows.shape[1:], dtype=np.int64)) * rows.itemsize
        found = np.empty((sum(counts), *rows.shape[1:]), rows.dtype)
        sent, offsets = np.ascontiguousarray(rows).view(np.uint8).reshape(-1), np.cumsum([0, *counts])
        places = [counts[k] * each for k in range(self.size)], [int(at) * each for at in offsets[:-1]]
        self._ranks.Allgatherv([sent, self._byte], [found.view(np.uint8).reshape(-1), *places, self._byte])
        return [found[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]

    def exchanged(self, sent: Sequence[np.ndarray], lengths: Sequence[int], neighbours: Sequence[int],
                  senders: Sequence[int]) -> list[np.ndarray]:  # fmt: skip
        """Bytes ``sent[k]`` to rank ``neighbours[k]``; so many bytes as ``lengths`` says from each of the ``senders``."""
        found = [np.empty(length, np.uint8) for length in lengths]
        waiting = [self._ranks.Irecv([one, self._byte], source) for one, source in zip(found, senders, strict=True)]
        waiting += [self._ranks.Isend([one, self._byte], to) for one, to in zip(sent, neighbours, strict=True)]
        for one in waiting:
            one.Wait()
        return found

    def check_alone(self, what: str, others: str = "") -> None:
        """UserError where there are several ranks: ``what`` does not run on them yet, and ``others`` do. All must ask."""
        if self.size > 1:
            do = others or "cases do, and scripts with loops over sets and grids"
            raise UserError(f"{what} does not run on {self.size} ranks yet: {do}; start it by itself")

    @property
    def _byte(self) -> Any:
        from mpi4py import MPI

        return MPI.BYTE


@cache
def world() -> World:
    """That of this process."""
    said = launched()
    if said == 1:
        return World()
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as problem:  # it is not there, or finds no MPI
        raise UserError(f"a launcher has started {said} processes, and mpi4py is not there to join them:"
                        f" {install('mpi')}, or .[mpich] where there is no MPI ({one_line(str(problem))})") from None  # fmt: skip
    ranks = MPI.COMM_WORLD
    if ranks.size != said:
        raise UserError(f"a launcher has started {said} processes, and mpi4py sees {ranks.size} of them: it was made for"
                        " another MPI; start them with that one's mpirun")  # fmt: skip
    node = ranks.Split_type(MPI.COMM_TYPE_SHARED)
    return World(ranks.rank, ranks.size, node.rank, node.size, ranks, ranks.Dup())


def join() -> None:
    """Where a launcher has started several processes, back ends run over ranks from now on."""
    if launched() > 1:
        of_process.join(world)
        ending.watch(world)
        import_module("meshloom.dist.backend").start()
