"""atomic: one launch over the elements; the hardware makes every racy update indivisible."""

from __future__ import annotations

from meshloom.schedule.strategies.base import ASSIGNED
from meshloom.schedule.strategies.common.atomics import Atomics


class AtomicStrategy(Atomics):
    name = "atomic"
    summary = "one launch, hardware atomics"
    serves = frozenset({ASSIGNED})
