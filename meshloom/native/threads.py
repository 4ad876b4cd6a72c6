"""How many threads native code uses, also in a process made by fork.

OpenMP's threads stay behind when a process forks, and a parallel loop in the child would wait for them for ever. So a
child of a process that has loaded compiled code computes serially, with the same answers: one thread starts no others.
"""

from __future__ import annotations

import os

import numpy as np

#: (1,) int64, read by compiled code at every call, so that a change needs no new code
in_use = np.ones(1, np.int64)
_may_have_started = False
_left_behind = False


def may_start() -> None:
    """From now on there may be threads that a fork leaves behind."""
    global _may_have_started
    _may_have_started = True


def serial() -> bool:
    """Was this process made by a fork that left threads behind?"""
    return _left_behind


def choose(number: int) -> int:
    """Use so many threads, or one where this process must be serial; how many they are."""
    in_use[0] = 1 if _left_behind else number
    return int(in_use[0])


def _after_fork() -> None:
    global _left_behind
    if _may_have_started:
        _left_behind = True
        in_use[0] = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
