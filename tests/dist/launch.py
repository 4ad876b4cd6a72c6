"""Processes that a launcher starts as ranks. Every one of them checks what others call, and old halos are poisoned."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from bench.ranks import AS_ROOT, launcher
from meshloom.process.ranks import launched as launched_here

ROOT = Path(__file__).parents[2]
SECONDS = 300  # a deadlock fails
#: What launchers say to the processes that they start, where tests are started by one themselves; elsewhere it is the
#: person, or the machine, who says how ranks are started.
SAID = ("PMI", "OMPI", "MV2", "SLURM") if launched_here().size > 1 else ()


def over_ranks(backends: Iterable[str], numbers: Iterable[int]) -> pytest.MarkDecorator:
    """Rows of ``backend`` and ``ranks``: a ``slow`` one for each back end, each with another number of ranks, the first
    of them; the rest of the product is ``ranks``, which `make test-ranks` runs."""
    backends, numbers = [*backends], [*numbers]
    some = {*zip(backends, numbers, strict=False)}
    return pytest.mark.parametrize(
        ("backend", "ranks"),
        [pytest.param(*row, marks=pytest.mark.slow if row in some else pytest.mark.ranks)
         for row in product(backends, numbers)],
    )  # fmt: skip


def environment_of_ranks(**more: str) -> dict[str, str]:
    """Of ranks that are started from here."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(SAID)}
    checks = {"MESHLOOM_CHECK_RANKS": "120", "MESHLOOM_POISON_HALOS": "1"}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return own | checks | AS_ROOT | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | more


def command_of(ranks: int | None, arguments: list[str]) -> list[str]:
    """A command of Python, on so many ranks; None: without a launcher."""
    command = [sys.executable, *arguments]
    if ranks is None:
        return command
    start = launcher()
    assert start is not None, "the extra dev brings mpich"
    return [*start, "-n", str(ranks), *command]


def launched(
    ranks: int | None, arguments: list[str], seconds: float = SECONDS, cwd: Path = ROOT, **more: str
) -> subprocess.CompletedProcess[str]:
    """What such a command says within some seconds, with more in its environment."""
    return subprocess.run(command_of(ranks, arguments), capture_output=True, text=True, timeout=seconds,
                          env=environment_of_ranks(**more), cwd=cwd)  # fmt: skip
