"""A run next to what a script does with MPI itself, for ``test_beside_mpi.py``: ``python -m tests.dist.on_ranks_beside
NAME`` prints what comes out, in a line of JSON."""

from __future__ import annotations

import json
import sys

import numpy as np
from mpi4py import MPI

import meshloom as ml
from tests.dist.on_ranks import spread
from tests.dist.on_ranks_wrong import loops_of

COMM = MPI.COMM_WORLD  # the script's own: Meshloom must not hear it


def a_field(seed: int) -> ml.Field:
    mesh = ml.generate.box((8, 4), cells="quad")
    u = mesh.cells.field("u", data=np.random.default_rng(seed).standard_normal(len(mesh.cells)))
    loops_of(mesh, u).run(3)
    return u


def own_messages() -> None:
    """To and from every rank, with the tag that everybody takes, while a program runs, and another one of all ranks."""
    sent = [COMM.Isend(np.full(4, 1e6 * (1 + COMM.rank)), other) for other in range(COMM.size)]
    begun = COMM.Iallreduce(MPI.IN_PLACE, total := np.ones(1))
    values = a_field(3).numpy()
    found = [np.empty(4) for _ in sent]
    for other, one in enumerate(found):
        COMM.Recv(one, other)
    MPI.Request.Waitall([*sent, begun])
    assert total == COMM.size
    assert [one.tolist() for one in found] == [[1e6 * (1 + other)] * 4 for other in range(COMM.size)]
    if COMM.rank == 0:
        print(json.dumps(values.tolist()))


def runs_of_their_own() -> None:
    """One for each process, of another seed, some of them longer."""
    u = a_field(COMM.rank)
    mesh, rate = ml.generate.box((5, 5), cells="quad"), None
    for _ in range(COMM.rank):
        rate = mesh.cells.field("rate")
        spread(mesh.faces, mesh.cells.field("v")[mesh.face_cells], rate[mesh.face_cells])
    everybody = COMM.gather((ml.world.rank, ml.world.size, len(u.set.mine), u.numpy().tolist()))
    if COMM.rank == 0:
        print(json.dumps(everybody))


if __name__ == "__main__":
    ml.use("numpy", reproducible=True)
    {"own_messages": own_messages, "runs_of_their_own": runs_of_their_own}[sys.argv[1]]()
