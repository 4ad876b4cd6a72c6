"""The cost model: bytes, flops, atomics and launches of a strategy, and the seconds a machine needs for them.

It is meant to rank strategies, not to predict times: measured figures stand beside it in ``loop.explain()``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """What one execution of a loop has to do, whatever the strategy. Bytes and flops are for the whole loop."""

    elements: int
    targets: int
    incidences: int  # racy slots of all elements: how often a target is updated
    components: int  # values added or offered per element, all slots
    flops: float
    compulsory: float  # bytes, each datum once
    staged: float  # bytes of one copy of all increments, shared up to sign
    requested: float = 0.0  # bytes that all elements ask to read, each for itself
    gathered: float = 0.0  # bytes that targets ask to read when each visits its elements and their other ends
    locality: float = 1.0  # how often a block uses a target per load, as a share of what is possible
    tiles: float = 1.0  # blocks of consecutive targets that an element touches: so often ``tile`` evaluates it


@dataclass(frozen=True)
class Cost:
    """What a strategy makes of the work."""

    bytes: float
    flops: float
    atomics: float = 0.0
    updates: float = 0.0  # read-modify-write of targets in memory order of the elements
    launches: int = 1
    shared: float = 0.0  # bytes of shared memory that a block of a GPU needs
    visits: float = 0.0  # targets that are looked at, whether anything leads to them or not
    requests: float = 0.0  # bytes that threads ask caches for


@dataclass(frozen=True)
class Machine:
    """Seconds per unit on one machine; the defaults are those of one core of a current server CPU."""

    per_byte: float = 1 / 12e9
    per_flop: float = 1 / 8e9
    per_atomic: float = 7e-9
    per_update: float = 0.02e-9
    per_launch: float = 3e-6
    per_visit: float = 0.0
    per_request: float = 0.0

    def seconds(self, cost: Cost) -> float:
        """Traffic, arithmetic and requests overlap; atomics, dependent updates, launches and visits do not."""
        return (
            max(cost.bytes * self.per_byte, cost.flops * self.per_flop, cost.requests * self.per_request)
            + cost.atomics * self.per_atomic
            + cost.updates * self.per_update
            + cost.launches * self.per_launch
            + cost.visits * self.per_visit
        )


CPU_CORE = Machine()
#: A current data-centre GPU as a whole: arithmetic is nearly free, launches and atomics are what costs besides bytes.
GPU = Machine(
    per_byte=1 / 4e12, per_flop=1 / 20e12, per_atomic=2e-12, per_update=5e-12, per_launch=3e-6, per_visit=5e-12,
    per_request=1 / 12e12,
)  # fmt: skip
