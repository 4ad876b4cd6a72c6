"""The automatic schedule, by rules simple enough to be written down.

1. No two elements meet: ``direct``, on a box of a grid ``box``.
2. The loop is small (few elements and operations, by ``target.cpu.threads``): ``block_color`` in one block, which is a
   serial loop; starting threads costs more.
3. Elements meet through a map that is assigned to while loops run: ``staged``, whose plan is made quickly and which is
   deterministic; under "fastest" ``atomic``, which needs none.
4. Otherwise the deterministic strategy with the least estimated time on this kind of machine (its ``target.Rates``);
   under "fastest" the strategy with the least estimated time, deterministic or not. Strict kernels have the bits of
   NumPy: of the deterministic strategies those that add up in the order of elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from meshloom.errors import ScheduleError, shown
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies import (
    ASSIGNED,
    AUTOMATIC,
    ELEMENTS,
    POINTS,
    SERIAL,
    check_variant,
    names,
    serving,
    strategy,
)
from meshloom.target import CPU, H200, Rates, Target

_SAME = "1.00"  # the printed ratio of two times that are alike


def estimates(spec: LoopSpec, work: Work, target: Target) -> dict[str, float]:
    """Estimated seconds of every strategy that applies and finds room in shared memory, where blocks have that."""
    costs = {n: strategy(n).cost(spec, work, target=target) for n in names() if strategy(n).declines(spec) is None}
    for name, found in costs.items():
        if not isinstance(found, Cost):
            raise ScheduleError(f"strategy '{name}': cost must give a Cost, got {shown(found)}")
    room = target.gpu.shared.most * min(target.shared / H200.shared, 1.0) if target.is_simt else math.inf
    rates = target.rates
    return {n: c.seconds(rates) for n, c in costs.items() if c.shared <= room}


def estimated(spec: LoopSpec, work: Work, name: str, *, target: Target, rates: Rates) -> float:
    """Estimated seconds of one strategy in the layout that it likes best: loops vote with that (``layouts.py``)."""
    return strategy(name).cost(spec, replace(work, crowded=0.0), target=target).seconds(rates)


def choose(
    spec: LoopSpec, elements: int, flops: float, work: Callable[[], Work], wish: Schedule, *, target: Target = CPU,
    assigned: str = "",
) -> tuple[Schedule, str]:  # fmt: skip
    """The schedule in force and the reason for it. A wish that names a strategy is kept.

    ``flops`` are those of the whole loop. ``work`` is asked for only where strategies have to be weighed: it looks at
    the maps, and a direct loop, a small one or one with a wish has no need of that. ``assigned``: a map that elements
    meet through and that is given other indices while loops run, by name.
    """
    if wish.strategy not in AUTOMATIC:
        strategy(wish.strategy)  # a name that nobody knows is an error, needed or not
    if not spec.racy_outputs:
        if spec.box is not None:
            points = serving(POINTS).name
            own = wish.strategy in (*AUTOMATIC, points)
            check_variant(points if own else wish.strategy, wish.variant)
            kept = wish if own else wish.having(variant="plain")
            return _with_block(kept, points, target, elements, spec), "points of a grid: no two elements meet"
        plain, reason = wish.having(variant="plain"), "no two elements meet, so there is nothing to protect"
        return _with_block(plain, serving(ELEMENTS).name, target, elements), reason
    check_variant(wish.strategy, wish.variant)
    if wish.strategy not in AUTOMATIC:
        return _with_block(wish, wish.strategy, target, elements), "asked for"
    if not target.is_simt and _is_small(elements, flops, target):
        reason = f"only {elements:,} elements: a serial loop beats starting threads"
        return wish.having(strategy=serving(SERIAL).name, block=wish.block or max(elements, 1)), reason
    if assigned:
        quick = serving(ASSIGNED, deterministic=wish.strategy != "fastest")
        if quick.declines(spec) is None:
            reason = f"map {assigned} is given other indices while loops run: what is planned quickly"
            return _with_block(wish, quick.name, target, elements), reason
    seconds = estimates(spec, work(), target)
    any_will_do = wish.strategy == "fastest"
    allowed = {n: s for n, s in seconds.items() if any_will_do or _keeps_sums(n, spec)}
    best = min(allowed, key=allowed.__getitem__)
    ranked = sorted(seconds.items(), key=lambda item: item[1])
    others = _beside({n: f"{s / allowed[best]:.2f}" for n, s in ranked if n != best})
    these = "those that add up in the order of elements (strict)" if spec.strict else "deterministic ones"
    which = "" if any_will_do else f" among {these}"
    return _with_block(wish, best, target, elements), f"least estimated time{which}{others}"


def _is_small(elements: int, flops: float, target: Target) -> bool:
    """Does starting threads of a CPU cost more than a serial loop?"""
    few = target.cpu.threads
    return elements <= few.small_elements and flops <= few.small_flops


def _beside(relative: Mapping[str, str]) -> str:
    """What others take over the least time, as printed; those that take as long have no number."""
    longer = ", ".join(f"{name} {ratio}" for name, ratio in relative.items() if ratio != _SAME)
    same = ", ".join(name for name, ratio in relative.items() if ratio == _SAME)
    said = "; ".join([*([f"relative: {longer}"] if longer else []), *([f"as long: {same}"] if same else [])])
    return f" ({said})" if said else ""


def _keeps_sums(name: str, spec: LoopSpec) -> bool:
    """Does a strategy add up in the same order every time, and for strict kernels in that of elements?"""
    return strategy(name).deterministic and (strategy(name).in_order or not spec.strict)


def _with_block(wish: Schedule, name: str, target: Target, elements: int, spec: LoopSpec | None = None) -> Schedule:
    return wish.having(strategy=name, block=wish.block or strategy(name).block(target, elements, spec))
