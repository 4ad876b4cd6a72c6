"""The automatic schedule for the CPU, by rules simple enough to be written down.

1. No two elements meet: ``direct``.
2. The loop is small (at most ``SMALL`` elements): ``block_color`` in one block, which is a serial loop; starting
   threads costs more.
3. Otherwise the deterministic strategy with the least estimated time on this kind of machine (``cost.Machine``).
"""

from __future__ import annotations

from meshloom.schedule.cost import Machine, Work
from meshloom.schedule.schedule import Schedule
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies import names, strategy

SMALL = 8192


def estimates(spec: LoopSpec, work: Work, machine: Machine) -> dict[str, float]:
    """Estimated seconds of every strategy that applies."""
    return {n: machine.seconds(strategy(n).cost(spec, work)) for n in names() if strategy(n).declines(spec) is None}


def choose(spec: LoopSpec, work: Work, wish: Schedule, machine: Machine | None = None) -> tuple[Schedule, str]:
    """The schedule in force and the reason for it. A wish that names a strategy is kept."""
    if not spec.racy_outputs:
        reason = "no two elements meet, so there is nothing to protect"
        return _with_block(wish.having(strategy="direct")), reason
    if wish.strategy != "auto":
        strategy(wish.strategy)  # unknown names are refused here
        return _with_block(wish), "asked for"
    if work.elements <= SMALL:
        reason = f"only {work.elements:,} elements: a serial loop beats starting threads"
        return wish.having(strategy="block_color", block=wish.block or max(work.elements, 1)), reason
    seconds = estimates(spec, work, machine or Machine())
    allowed = {n: s for n, s in seconds.items() if strategy(n).deterministic}
    best = min(allowed, key=allowed.__getitem__)
    others = ", ".join(
        f"{n} {s / allowed[best]:.2f}" for n, s in sorted(seconds.items(), key=lambda item: item[1]) if n != best
    )
    return _with_block(
        wish.having(strategy=best)
    ), f"least estimated time among deterministic ones (relative: {others})"


def _with_block(schedule: Schedule) -> Schedule:
    return schedule if schedule.block else schedule.having(block=strategy(schedule.strategy).cpu_block)
