"""Benchmarks that prepare side by side and measure one at a time.

Setting up a mesh of millions of cells, its orders, plans and kernels takes minutes of one core and nothing of the GPU,
so ``bench.everything`` starts some benchmarks together. They agree by a lock on the file that ``VARIABLE`` names on
who may use the GPU, to measure or for anything that takes long; without it there is nobody to wait for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "MESHLOOM_BENCH_TURNS"


_mine = False  # it is this process's turn


@contextmanager
def alone() -> Iterator[None]:
    """Nobody else measures meanwhile; inside of another such block it is one's turn already."""
    global _mine
    file = os.environ.get(VARIABLE)
    if not file or _mine:
        yield
        return
    import fcntl

    with open(file, "a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # given back when the file is closed, also by the end of the process
        _mine = True
        try:
            yield
        finally:
            _mine = False
