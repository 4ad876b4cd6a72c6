"""The automatic schedule, by rules simple enough to be written down.

1. No two elements meet: ``direct``, on a box of a grid ``box``; in one block where the loop is small.
2. The loop is small (few elements and operations, by ``target.cpu.threads``): ``block_color`` in one block, which is a
   serial loop; starting threads costs more.
3. Elements meet through a map that is assigned to while loops run: ``staged``, whose plan is made quickly and which is
   deterministic; under "fastest" ``atomic``, which needs none.
4. Otherwise the deterministic strategy with the least estimated time on this kind of machine (its ``target.Rates``);
   under "fastest" the strategy with the least estimated time, deterministic or not. Strict kernels have the bits of
   NumPy, and where ``reproducible`` is asked for any number of ranks gives the same bits: of the deterministic
   strategies those that add up in the order of elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from meshloom.errors import ScheduleError, shown
from meshloom.schedule.choice.candidate import Candidate, rank
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.choice.symmetry import rounded_by_side
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies import (
    ASSIGNED,
    AUTOMATIC,
    ELEMENTS,
    POINTS,
    SERIAL,
    Strategy,
    check_variant,
    names,
    serving,
    strategy,
)
from meshloom.target import CPU, H200, Rates, Target

Decision = tuple[Schedule, str]  # and why
ASKED_FOR = "asked for"
_SAME = "1.00"  # the printed ratio of two times that are alike


def candidates(
    spec: LoopSpec, elements: int, work: Work, wish: Schedule, *, target: Target, rates: Rates | None = None,
    decided: Decision | None = None,
) -> tuple[Candidate[Schedule], ...]:  # fmt: skip
    """The strategies of a loop, ranked by their estimated times; ``decided``: what a rule has, and why (``ruled``).

    On a CPU they are ranked by the times of one core, whatever is in use: another choice may round sums otherwise, and
    the bits of a result must not depend on the number of threads. ``rates`` are those in use, for the times shown.
    """
    in_force = [] if decided is None else [decided[0].strategy]
    considered = dict.fromkeys([*in_force, *(names() if spec.racy_outputs else ())])
    rates = rates or target.rates

    def offered(one: Strategy) -> Candidate[Schedule]:
        if decided is not None and one.name == decided[0].strategy:
            what, forbidden = decided[0], None
        else:
            mine = wish if wish.variant in one.variants else wish.having(variant="plain")
            forbidden = _forbidden(one, spec, wish, decided, target)
            what = _with_block(mine, one.name, target, elements)
        if (declined := one.declines(spec)) is not None:
            return Candidate(what, declined=declined, forbidden=forbidden)
        cost = one.cost(spec, work, target=target)
        if not isinstance(cost, Cost):
            raise ScheduleError(f"strategy '{one.name}': cost must give a Cost, got {shown(cost)}")
        ranked_by = None if rates == target.rates else cost.seconds(target.rates)
        return Candidate(what, cost.parts(rates), cost.figures, _no_room(cost, target), forbidden, ranked_by)

    return rank(offered(strategy(name)) for name in considered)


def alone(spec: LoopSpec, work: Work, chosen: Schedule, *, target: Target) -> tuple[Candidate[str], ...]:
    """What one thread of a CPU may do instead of what is chosen for any number, ranked; none where there is no choice.

    One thread needs no protection: it may go through the elements, and add up as it goes (``serial``). Generated code
    has both and asks for the number of threads at every call, so bits must be the same, whoever changes it. They are
    where targets must add up in the order of elements (each value is rounded in one way, in vectors or not), what is
    chosen does, these are visited in that order, and no Global is summed, which is done by blocks.
    """
    same_bits = spec.in_order and strategy(chosen.strategy).in_order and chosen.order == "given" and not spec.reductions
    if target.is_simt or not spec.racy_outputs or not same_bits:
        return ()
    found = {chosen.strategy: strategy(chosen.strategy).cost(spec, work, target=target),
             SERIAL: Cost(work.compulsory + work.reload_reads + work.reload_updates, work.flops,
                          updates=work.elements * work.components)}  # fmt: skip
    rates = target.rates.on_threads(1, target.cpu.threads.bytes_per_second)
    return rank(Candidate(name, cost.parts(rates), cost.figures) for name, cost in found.items())


def _no_room(cost: Cost, target: Target) -> str | None:
    """That a block finds no room in shared memory, where blocks have that."""
    room = target.gpu.shared.most * min(target.shared / H200.shared, 1.0) if target.is_simt else math.inf
    return None if cost.shared <= room else f"a block would fill {cost.shared:,.0f} B of shared memory, not {room:,.0f}"


def _forbidden(one: Strategy, spec: LoopSpec, wish: Schedule, decided: Decision | None, target: Target) -> str | None:
    """Why a strategy must not be taken, though it can: something else was decided, or sums would be rounded otherwise
    from run to run, or, of strict kernels, otherwise than in the order of elements. Where ranks must have the same
    bits, those among which an element is rounded in two ways are not weighed by work, which differs on ranks."""
    if decided is not None:
        return decided[1] if decided[1] != ASKED_FOR else f"{wish.strategy} was {ASKED_FOR}"
    if wish.strategy == "fastest":
        return None
    if not one.deterministic:
        return "sums may differ in the last digits from run to run"
    if spec.in_order and not one.in_order:
        return f"does not add up in the order of elements ({_in_order(spec)})"
    by_side = target.is_simt and spec.reproducible and any(rounded_by_side(spec, m) for m in spec.racy_maps)
    if by_side and not one.at_targets:
        return "elements would be rounded otherwise than from the sides of their targets (reproducible)"
    return None


def _in_order(spec: LoopSpec) -> str:
    """Why targets take their terms in the order of elements."""
    return "strict" if spec.strict else "reproducible"


def estimates(spec: LoopSpec, work: Work, target: Target) -> dict[str, float]:
    """Estimated seconds of every strategy that applies and finds room in shared memory, where blocks have that."""
    found = candidates(spec, int(work.elements), work, Schedule(), target=target)
    return {one.what.strategy: one.seconds for one in found if one.declined is None}


def estimated(spec: LoopSpec, work: Work, name: str, *, target: Target, rates: Rates) -> float:
    """Estimated seconds of one strategy in the layout that it likes best: loops vote with that (``layouts.py``)."""
    return strategy(name).cost(spec, replace(work, contention=0.0), target=target).seconds(rates)


def choose(spec: LoopSpec, elements: int, work: Work, wish: Schedule, *, target: Target = CPU) -> Decision:
    """The schedule in force and the reason for it, where no rule has decided (``ruled``)."""
    best, *others = candidates(spec, elements, work, wish, target=target)
    assert best.allowed, "some strategy serves every loop"
    applicable = sorted((one for one in others if one.declined is None), key=lambda one: one.seconds)
    ratios = _ratios({one.what.strategy: f"{one.seconds / best.seconds:.2f}" for one in applicable})
    these = f"those that add up in the order of elements ({_in_order(spec)})" if spec.in_order else "deterministic ones"
    which = "" if wish.strategy == "fastest" else f" among {these}"
    declined = "".join(f"; {one.what.strategy} declined: {one.declined}" for one in others if one.declined)
    serial = any(one.what == SERIAL for one in alone(spec, work, best.what, target=target)[:1])
    one_thread = "; one thread by itself goes through the elements in their order, with the same bits" if serial else ""
    return best.what, f"least estimated time{which}{ratios}{declined}{one_thread}"


def ruled(
    spec: LoopSpec, elements: int, flops: float, wish: Schedule, *, target: Target = CPU, assigned: str = ""
) -> Decision | None:
    """What a rule decides, and why; a wish that names a strategy is kept. None where strategies have to be weighed by
    their work, which looks at the maps. ``flops`` are those of the whole loop. ``assigned``: a map that elements meet
    through and that is given other indices while loops run, by name."""
    if wish.strategy not in AUTOMATIC:
        strategy(wish.strategy)  # a name that nobody knows is an error, needed or not
    few = not target.is_simt and _is_small(elements, flops, target)
    serial = wish.having(block=wish.block or target.cpu.threads.small_elements) if few else wish  # one for all of them
    serially = f"only {elements:,} elements: a serial loop beats starting threads"
    if not spec.racy_outputs:
        also = f"; {serially}" if serial != wish else ""
        if spec.box is not None:
            points = serving(POINTS).name
            own = wish.strategy in (*AUTOMATIC, points)
            check_variant(points if own else wish.strategy, wish.variant)
            kept = serial if own else serial.having(variant="plain")
            return _with_block(kept, points, target, elements, spec), f"points of a grid: no two elements meet{also}"
        plain, reason = serial.having(variant="plain"), "no two elements meet, so there is nothing to protect"
        return _with_block(plain, serving(ELEMENTS).name, target, elements), f"{reason}{also}"
    check_variant(wish.strategy, wish.variant)
    if wish.strategy not in AUTOMATIC:
        return _with_block(wish, wish.strategy, target, elements), ASKED_FOR
    if few:
        return wish.having(strategy=serving(SERIAL).name, block=wish.block or max(elements, 1)), serially
    quick = serving(ASSIGNED, deterministic=wish.strategy != "fastest")
    if assigned and quick.declines(spec) is None:
        reason = f"map {assigned} is given other indices while loops run: what is planned quickly"
        return _with_block(wish, quick.name, target, elements), reason
    return None


def _is_small(elements: int, flops: float, target: Target) -> bool:
    """Does starting threads of a CPU cost more than a serial loop?"""
    few = target.cpu.threads
    return elements <= few.small_elements and flops <= few.small_flops


def _ratios(relative: Mapping[str, str]) -> str:
    """What others take over the least time, as printed; those that take as long have no number."""
    longer = ", ".join(f"{name} {ratio}" for name, ratio in relative.items() if ratio != _SAME)
    same = ", ".join(name for name, ratio in relative.items() if ratio == _SAME)
    said = "; ".join([*([f"relative: {longer}"] if longer else []), *([f"as long: {same}"] if same else [])])
    return f" ({said})" if said else ""


def _with_block(wish: Schedule, name: str, target: Target, elements: int, spec: LoopSpec | None = None) -> Schedule:
    return wish.having(strategy=name, block=wish.block or strategy(name).block(target, elements, spec))
