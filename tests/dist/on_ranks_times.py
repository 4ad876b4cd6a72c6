"""A run of which ``test_times_on_ranks.py`` reads the times: ``python -m tests.dist.on_ranks_times BACKEND FOLDER``
prints its table, as every rank must have it, and what the exchange lists say of messages."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import meshloom as ml
from meshloom.dist.exchange import neighbours, sent_bytes
from tests.dist import on_ranks

STEPS = 9


def main(backend: str, folder: str) -> None:
    ml.use(backend, reproducible=True)
    mesh, u = on_ranks.around_an_airfoil()
    step, _, norm = on_ranks.diffusing(mesh, u)
    done = ml.march(step, steps=STEPS, show=norm, out=Path(folder), progress=False)
    assert done.times is not None and ml.world.broadcast(done.times) == done.times, "every rank has the same"
    sent = ml.world.allgathered((len(neighbours([u.storage])), sent_bytes([u.storage]), len(mesh.cells.mine)))
    if ml.world.rank == 0:
        print(json.dumps({"times": asdict(done.times), "sent": sent}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
