"""The cost model: bytes, flops, atomics and launches of a strategy, and the seconds a machine needs for them.

It is meant to rank strategies, not to predict times: measured figures stand next to it in ``loop.explain()``. What the
order of a mesh costs enters through ``order.Loads``, the measure by which meshes are arranged, and through the colors
that blocks need. Nothing here jumps: an order that is a little worse costs a little more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields

from meshloom.order import Loads
from meshloom.records import dataclass
from meshloom.target import OrderNumbers, Rates

#: Traffic, arithmetic and requests overlap; atomics, dependent updates, launches, visits and rounds do not.
OVERLAPPING = ("bytes", "flops", "requests")


def reloaded(loads: Loads, row_bytes: float, held: OrderNumbers) -> float:
    """Bytes that come from memory again, as a multiple of those needed, where a row has so many; grows steadily with
    both figures of the loads. The wider the rows, the less of a line is lost. ``held``: blocks that run one after the
    other find so much of what they share in a cache."""
    lost = max(loads.cache_lines - loads.rows - held.held_lines, 0.0) * min(1.0, 8.0 / row_bytes)
    return max(loads.rows - held.held_rows, 0.0) + lost


def greedy_colors(conflicts: float, blocks: int) -> float:
    """About how many colors do blocks need that conflict with so many others each? (Greedy coloring, random graph.)"""
    if blocks <= 1:
        return 1.0
    share = min(conflicts / (blocks - 1), 1.0)
    return min(blocks, 1.0 + blocks * -math.log1p(-min(share, 1.0 - 1e-12)) / math.log(math.e + conflicts))


@dataclass(frozen=True)
class Work:
    """What one execution of a loop has to do, whatever the strategy. Bytes and flops are for the whole loop."""

    elements: int
    targets: int
    touched: int  # of these those that any element leads to
    incidences: int  # racy slots of all elements: how often a target is updated
    components: int  # values added or offered per element, all slots
    flops: float
    compulsory: float  # bytes, each datum once
    staged: float  # bytes of one copy of all increments, shared up to sign
    requested: float = 0.0  # bytes that all elements ask to read, each for itself
    gathered: float = 0.0  # bytes that targets ask to read when each visits its elements and their other ends
    tiles: float = 1.0  # blocks of consecutive targets that an element touches: so often ``tile`` evaluates it
    loads: float = 1.0  # how many times the targets that they need do blocks of consecutive elements load?
    reload_reads: float = 0.0  # bytes that elements read again from memory, as neighbours in number are none in space
    reload_updates: float = 0.0  # the same of what they add to, read and written
    reload_gathers: float = 0.0  # bytes that targets read again when each visits its elements and their other ends
    reload_maps: float = 0.0  # bytes of maps that targets read again when each visits its elements
    reload_stage: float = 0.0  # bytes of increments, one copy, that targets read again
    target_reuse: float = 0.5  # share of the slots whose target the next element has, too
    contention: float = 0.0  # share of updates whose neighbours in a warp hit the same lines: rows that lie together
    colors: float = 4.0  # of blocks of elements
    blocks: int = 1024


@dataclass(frozen=True)
class Cost:
    """What a strategy makes of the work."""

    bytes: float
    flops: float
    atomics: float = 0.0
    contended: float = 0.0  # of these, so many that wait for each other at a line
    updates: float = 0.0  # read-modify-write of targets in memory order of the elements
    launches: int = 1
    rounds: float = 0.0  # groups of blocks that wait for each other
    shared: float = 0.0  # bytes of shared memory that a block of a GPU needs
    visits: float = 0.0  # targets that are looked at, whether anything leads to them or not
    requests: float = 0.0  # bytes that threads ask caches for
    passed: float = 0.0  # bytes of increments that wait in memory, of a block or of all, for their targets
    concurrent_blocks: float = math.inf  # that may run at the same time

    def parts(self, rates: Rates) -> dict[str, float]:
        """Seconds of each piece of work, by its name above; what overlaps is as much slower as blocks leave idle."""
        slower = max(1.0, rates.saturating_blocks / self.concurrent_blocks)
        return {
            "bytes": slower * (self.bytes * rates.per_byte),
            "flops": slower * (self.flops * rates.per_flop),
            "requests": slower * (self.requests * rates.per_request),
            "passed": self.passed * rates.per_passed,
            "atomics": self.atomics * rates.per_atomic,
            "contended": self.contended * rates.per_contended,
            "updates": self.updates * rates.per_update,
            "launches": self.launches * rates.per_launch,
            "visits": self.visits * rates.per_target_visit,
            "rounds": self.rounds * rates.per_round,
        }

    def seconds(self, rates: Rates) -> float:
        """All parts together."""
        return combined(self.parts(rates))

    @property
    def figures(self) -> dict[str, float]:
        """What there is of each, where there is any."""
        return {one.name: value for one in fields(self) if math.isfinite(value := getattr(self, one.name)) and value}


def combined(parts: Mapping[str, float]) -> float:
    """Seconds of all parts: of those that overlap the longest; the others are added."""
    longest = max((parts[name] for name in OVERLAPPING if name in parts), default=0.0)
    return math.fsum([longest, *(seconds for name, seconds in parts.items() if name not in OVERLAPPING)])
