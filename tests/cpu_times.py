"""A plugin of pytest (``-p tests.cpu_times``): how long each test keeps processors busy, its child processes included.

Lines of JSON, address and seconds, go to the file that CPU_TIMES names, one for each worker.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

TICKS = os.sysconf("SC_CLK_TCK")


def used() -> float:
    """Seconds of processors: of this process, of its children that have ended, and of those that are there."""
    own = sum(sum(resource.getrusage(whose)[:2]) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own + sum(map(_of_process, _children(os.getpid())))


def used_by(process: int) -> float:
    """The same of another process, and of all that it has started."""
    return _of_process(process) + sum(map(used_by, _children(process)))


def _children(process: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):  # it may have gone meanwhile
        for task in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _of_process(process: int) -> float:
    """Its own and that of its children that have ended; 0 for one that has gone meanwhile."""
    with suppress(OSError):
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, words[11:15])) / TICKS
    return 0.0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    before = used()
    try:
        return (yield)
    finally:
        name = f"{os.environ['CPU_TIMES']}.{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
        with open(name, "a", encoding="utf-8") as file:
            file.write(json.dumps([item.nodeid, round(used() - before, 4)]) + "\n")
