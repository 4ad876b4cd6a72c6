"""How many threads native code uses, also in a process made by fork.

OpenMP's threads stay behind when a process forks, and a parallel loop in the child would wait for them for ever. So a
child of a process that has loaded compiled code computes serially, with the same answers: one thread starts no others.
A GPU stays behind as well, with all that lies in its memory; there is nothing to go on with, and one line says so.
"""

from __future__ import annotations

import os

import numpy as np

from meshloom.errors import RunError

#: (1,) int64, read by compiled code at every call, so that a change needs no new code
in_use = np.ones(1, np.int64)
_may_have_started = False
_forked = False
_device_process: int | None = None  # the process that has begun to use a GPU
THREADS_AFTER_FORK = (
    "this process was made by fork, which leaves OpenMP's threads behind: loops run serially here;"
    " start processes by multiprocessing's spawn for more threads"
)
DEVICE_AFTER_FORK = (
    "this process was made by fork from one that uses a GPU, which does not survive that;"
    " start processes by multiprocessing's spawn instead"
)


def threads_begin() -> None:
    """From now on there may be threads that a fork leaves behind."""
    global _may_have_started
    _may_have_started = True


def serial() -> bool:
    """Was this process made by a fork that left threads behind?"""
    return _forked


def choose(number: int) -> int:
    """Use so many threads, or one where this process must be serial; how many they are."""
    in_use[0] = 1 if _forked else number
    return int(in_use[0])


def device_begins() -> None:
    """From now on a GPU is used by this process."""
    global _device_process
    if _device_process is None:
        _device_process = os.getpid()


def invalid_after_fork() -> bool:
    """Was this process made by a fork that left a GPU behind?"""
    return _device_process is not None and _device_process != os.getpid()


def check_device() -> None:
    """RunError where a GPU was left behind: its library would fail in many ways, or hang."""
    if invalid_after_fork():
        raise RunError(DEVICE_AFTER_FORK)


def _after_fork() -> None:
    global _forked
    if _may_have_started:
        _forked = True
        in_use[0] = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
