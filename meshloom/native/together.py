"""Compiled at the same time: the loops of a program go to as many compilers as there are cores.

A compiler is a process of its own, so threads are enough to wait for them. What is begun inside a block is over when
the block is: where it ends by an error or by Ctrl-C, compilers that still run are ended, and nothing half-made is left.
Back ends say what is to be done by ``start`` and ``finish``; ``begin`` and ``load`` are these for libraries in C++.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from meshloom.native import compiler
from meshloom.native.machine import cpu_count
from meshloom.process.activity import compiling
from meshloom.process.children import stopping

T = TypeVar("T")


class Batch:
    """Jobs that are being done, by their keys: ``begin`` returns at once, ``wait`` when that one is done."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._workers: ThreadPoolExecutor | None = None
        self._begun: dict[Hashable, tuple[str, Future[Any]]] = {}

    def begin(self, key: Hashable, name: str, known: Callable[[], Any], job: Callable[[], Any]) -> None:
        """Begin a job in a thread, once, unless what it would give is ``known`` already: anything but None."""
        if key in self._begun:
            return
        found = known()
        if found is None:
            if self._workers is None:
                self._workers = ThreadPoolExecutor(cpu_count(), thread_name_prefix="meshloom-compiler")
            made = self._workers.submit(self._done, job)
        else:
            made = Future()
            made.set_result(found)
        self._begun[key] = name, made

    def _done(self, job: Callable[[], Any]) -> Any:
        with stopping(self._stop):
            return job()

    def has(self, key: Hashable) -> bool:
        """Was it begun, and has nobody waited for it yet?"""
        return key in self._begun

    def wait(self, key: Hashable) -> Any:
        """What a job that was begun has given, when it is done. Raises what was raised."""
        name, made = self._begun.pop(key)
        if made.done():
            return made.result()
        with compiling(name):
            return made.result()

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
    """A block in which loops are made ready: what ``start`` is told is done at the same time, where there is more than
    one core to do it. One inside another is part of it."""
    if _now.batch is not None or cpu_count() == 1:
        yield
        return
    batch = _now.batch = Batch()
    try:
        yield
    finally:
        _now.batch = None
        batch.close()


def start(key: Hashable, name: str, *, known: Callable[[], T | None], job: Callable[[], T]) -> None:
    """Begin a job, which compiles what is called ``name``, unless its result is known; outside of a block nothing
    happens. Jobs are done in threads: whoever compiles in one starts a process that is no other thread's concern."""
    if _now.batch is not None:
        _now.batch.begin(key, name, known, job)


def finish(key: Hashable, job: Callable[[], T]) -> T:
    """What a job gives: that which was begun, or else this one, here and now."""
    if _now.batch is not None and _now.batch.has(key):
        found: T = _now.batch.wait(key)
        return found
    return job()


def begin(source: str, name: str, *, extra_flags: tuple[str, ...] = ()) -> None:
    """Begin to compile what ``load`` will be asked for."""
    known, build = (partial(made, source, name, extra_flags=extra_flags) for made in (compiler.known, compiler.build))
    start((source, name, extra_flags), name, known=known, job=build)


def begin_apart(source: str, name: str) -> None:
    """The same, where nothing at all is to be done here: not even a compiler has been looked for, which takes long."""
    start((source, name, ()), name, known=lambda: None, job=partial(compiler.build, source, name))


def load(source: str, name: str, *, extra_flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """``compiler.load``, after what was begun of it."""
    finish((source, name, extra_flags), lambda: None)
    return compiler.load(source, name, extra_flags=extra_flags)


def has_spare_cores(jobs: int) -> bool:
    """Do so many jobs leave a core to us?"""
    return cpu_count() > jobs


def _forked() -> None:
    """In a new process: the threads that did the jobs are not there, so whoever waits does them itself."""
    _now.batch = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
