"""Libraries compiled at the same time: the loops of a program go to as many compilers as there are cores.

A compiler is a process of its own, so threads are enough to wait for them. What is begun inside a block is over when
the block is: where it ends by an error or by Ctrl-C, compilers that still run are ended, and nothing half-made is left.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from meshloom.native import compiler
from meshloom.process.activity import compiling
from meshloom.process.children import stopping


class Batch:
    """What is being compiled: ``begin`` returns at once, ``wait`` when that one is there."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._workers: ThreadPoolExecutor | None = None
        self._begun: dict[tuple[object, ...], Future[object]] = {}

    def begin(self, source: str, name: str, flags: tuple[str, ...]) -> None:
        """Begin to compile it, unless it is there."""
        key = source, name, flags
        if key in self._begun or compiler.known(source, name, extra_flags=flags) is not None:
            return
        if self._workers is None:
            self._workers = ThreadPoolExecutor(_cores(), thread_name_prefix="meshloom-compiler")
        self._begun[key] = self._workers.submit(self._compiled, source, name, flags)

    def _compiled(self, source: str, name: str, flags: tuple[str, ...]) -> object:
        with stopping(self._stop):
            return compiler.build(source, name, extra_flags=flags)

    def wait(self, source: str, name: str, flags: tuple[str, ...]) -> None:
        """Until it is there; at once where it was never begun. Raises what was raised."""
        job = self._begun.pop((source, name, flags), None)
        if job is not None:
            with compiling(name):
                job.result()

    def close(self) -> None:
        """End what nobody has waited for."""
        if self._workers is not None:
            self._stop.set()
            self._workers.shutdown(cancel_futures=True)


class _OfThread(threading.local):
    """What this thread has begun: others have programs of their own."""

    batch: Batch | None = None


_now = _OfThread()


@contextmanager
def together() -> Iterator[None]:
    """A block in which loops are made ready: what ``begin`` is told is compiled at the same time. One inside another is
    part of it."""
    if _now.batch is not None:
        yield
        return
    batch = _now.batch = Batch()
    try:
        yield
    finally:
        _now.batch = None
        batch.close()


def begin(source: str, name: str, *, extra_flags: tuple[str, ...] = ()) -> None:
    """Begin to compile what ``load`` will be asked for; outside of a block nothing happens."""
    if _now.batch is not None:
        _now.batch.begin(source, name, extra_flags)


def load(source: str, name: str, *, extra_flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """``compiler.load``, after what was begun of it."""
    if _now.batch is not None:
        _now.batch.wait(source, name, extra_flags)
    return compiler.load(source, name, extra_flags=extra_flags)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
