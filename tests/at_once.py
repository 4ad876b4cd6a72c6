"""Python threads that do the same work at the same time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

THREADS = 3
LIMIT = 300.0  # seconds for all of it


@contextmanager
def _taking_turns_often() -> Iterator[None]:
    """Threads take turns after a tenth of a millisecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def at_once(work: Callable[[int], Any], turns: int = 2) -> list[list[Any]]:
    """What every thread got, turn by turn; the first error that one met is raised."""
    found: list[list[Any]] = [[] for _ in range(THREADS)]
    start, errors = threading.Barrier(THREADS), []

    def one(k: int) -> None:
        try:
            start.wait(LIMIT)
            for _ in range(turns):
                found[k].append(work(k))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(k,), daemon=True) for k in range(THREADS)]
    with _taking_turns_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive(), "it waits for ever"
    if errors:
        raise errors[0]
    return found
