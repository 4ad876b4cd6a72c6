"""How an operation runs: what is chosen for it, planned, and handed to a back end. It goes with the domain: strategies
run elements and points, methods lines, and memory is filled and copied as it lies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from meshloom.backend.bound_loop import BoundLoop
from meshloom.backend.lowering import Launches
from meshloom.errors import ScheduleError
from meshloom.exclusion import PREPARING
from meshloom.kernel.count import repeated
from meshloom.kernel.recent import Recent
from meshloom.mesh.assigned import assigned_name
from meshloom.mesh.core import Field, Map
from meshloom.mesh.layout import Layout
from meshloom.operation.arguments import check_aliases, check_memory, spec_box
from meshloom.operation.operand import Operand
from meshloom.operation.weak_cache import loops_over, weak_entry
from meshloom.order import USUAL_BLOCK, order_elements
from meshloom.recording import recorder
from meshloom.records import dataclass
from meshloom.schedule.choice.auto import alone, candidates, choose, estimated, ruled
from meshloom.schedule.choice.candidate import Candidate, Candidates
from meshloom.schedule.choice.cost import Cost
from meshloom.schedule.choice.counts import Counts, flops_per_element, instructions_per_element
from meshloom.schedule.choice.explain import explain
from meshloom.schedule.choice.layouts import Vote, ranked_layouts
from meshloom.schedule.choice.per_thread import elements_per_thread
from meshloom.schedule.choice.schedule import Schedule, parse_schedule
from meshloom.schedule.nest.binned import MOST_SUMMANDS
from meshloom.schedule.plan.plan import Plan, topology
from meshloom.schedule.plan.plan_cache import cached_plan, fresh_plan
from meshloom.schedule.plan.verify import check_one_to_one
from meshloom.schedule.spec import LoopSpec, SpecMap, SpecParam
from meshloom.schedule.strategies import AUTOMATIC, SERIAL, strategy, verify
from meshloom.schedule.strategies.common.points import tiles
from meshloom.target.limit import ATOMIC

if TYPE_CHECKING:
    from meshloom.operation.domain import Domain
    from meshloom.operation.operation import Operation

Wish = Schedule | str | Mapping[str, Any] | None


class SharedCache:
    """What operations share that differ in their fields and globals alone: ``values`` by name, and what back ends have
    loaded for them, which stays ``pinned`` as long as it does. ``entry_refs``: see ``weak_entry``."""

    def __init__(self, entry_refs: tuple[Any, ...] = ()) -> None:
        self.values: dict[str, Any] = {}
        self.pinned: dict[Any, Any] = {}
        self.entry_refs = entry_refs

    def invalidate(self) -> None:
        """A map has other indices."""
        self.values.clear()


class ExecutionPolicy(ABC):
    """How an operation runs. ``of`` in its answers is the operation, which it does not hold."""

    wish: Schedule = Schedule()  # what was asked for
    as_one = False  # is it a group of loops of a program, by a plan of their own?

    @abstractmethod
    def spec(self, of: Operation) -> LoopSpec:
        """The operation without its data."""

    @abstractmethod
    def chosen(self, of: Operation) -> tuple[Schedule, str]:
        """The schedule in force, every choice made, and why."""

    @abstractmethod
    def plan(self, of: Operation, schedule: Schedule | None = None) -> Plan:
        """The plan arrays that a schedule needs, or the one in force."""

    @abstractmethod
    def compulsory(self, of: Operation) -> int:
        """Bytes that it has to move, each datum once."""

    @abstractmethod
    def flops(self, of: Operation) -> float:
        """Floating-point operations of one execution."""

    @abstractmethod
    def instructions(self, of: Operation) -> Counter[tuple[str, str]]:
        """What one execution takes of the units of a processor, by kind and type (``target/limit.py``)."""

    @abstractmethod
    def explain(self, of: Operation) -> str:
        """How it runs, why, and the figures."""

    def words(self, of: Operation) -> str:
        """The schedule in force, in words."""
        return str(of.schedule)

    def over_some(self, domain: Domain) -> ExecutionPolicy:
        """The same for a domain that is a part of the one that it was made for, which decides what its bits depend
        on."""
        return self

    def maps(self, of: Operation) -> tuple[Map, ...]:
        """The maps used, each once, in order of appearance among the operands; a plan may need more."""
        return tuple(dict.fromkeys(one.pattern.map for one in of.operands if one.pattern.map is not None))

    def shared_cache(self, of: Operation) -> SharedCache:
        """What it shares with operations that differ in their fields and globals alone; here nothing."""
        return SharedCache()

    def counts(self, of: Operation, block: int) -> Counts:
        """What it costs, for blocks of so many elements."""
        return Counts(of.spec, of.elements, of.storages, of.maps, block, of.box)

    def cost(self, of: Operation) -> Cost:
        """What one execution moves and computes."""
        return Cost(float(self.compulsory(of)), self.flops(of))

    def estimate(self, of: Operation) -> float:
        """Seconds by the cost model."""
        return self.cost(of).seconds(of.backend.rates)

    def candidates(self, of: Operation) -> Candidates:
        """What it was chosen from; here there is one candidate."""
        cost = self.cost(of)
        return Candidates(strategy=(Candidate(of.schedule, cost.parts(of.backend.rates), cost.figures),))

    def vote(self, of: Operation, one: Field, seconds: float) -> Vote:
        """What it asks of the layout of a field that it uses, if it takes so long."""
        return Vote(of.schedule.strategy, seconds, one.dim * one.dtype.itemsize)

    def choose_layouts(self, of: Operation) -> None:
        """For an operation that runs by itself, before it first does: change layouts that are free."""
        return

    def asked(self, name: str, wish: Wish) -> ExecutionPolicy:
        """The same where something else is asked for."""
        raise ScheduleError(f"{name} takes no schedule: it is run in one way")

    def can_run(self, of: Operation, wish: Wish) -> bool:
        """Could the operation be executed by such a schedule?"""
        return False

    def declines(self, of: Operation) -> str | None:
        """Why what was asked for does not apply; None where it does."""
        return None

    def check(self, of: Operation) -> None:
        """An error where the operation cannot be executed so."""
        return

    def launches(self, of: Operation) -> Launches:
        """Made by the back end, where the values are brought to."""
        return of.backend.executable(of)

    def bound(self, of: Operation) -> BoundLoop:
        """With its values, in the layout that was wished for, which are brought to where it runs."""
        of.apply_layout()
        for storage in of.storages:
            of.backend.bring(storage)
        check_memory(f"kernel {of.name}", of.storages, of.written)
        return self.described(of)

    def described(self, of: Operation) -> BoundLoop:
        """The same with its values wherever they are: enough for its text."""
        self.check(of)
        if of.spec.binned and of.elements >= MOST_SUMMANDS:
            raise ScheduleError(f"loop {of.name}: a reproducible sum has fewer than {MOST_SUMMANDS:,} summands, and"
                                f" this would have {of.elements:,}; sum up parts of the set")  # fmt: skip
        return BoundLoop(of.spec, of.elements, of.storages, of.maps, of.schedule, lambda: of.plan, of.box,
                         self.serial(of), of.shared_cache.pinned)  # fmt: skip

    def serial(self, of: Operation) -> bool:
        """Does one thread of a CPU go through its elements in their order?"""
        return False

    def evaluates_first(self, of: Operation) -> bool:
        """Are elements evaluated before any is added up?"""
        return False


@dataclass(frozen=True)
class StrategyPolicy(ExecutionPolicy):
    """Elements or points by a strategy."""

    wish: Schedule

    def spec(self, of: Operation) -> LoopSpec:
        targets = list(dict.fromkeys(m.target for m in of.maps))
        maps = tuple(SpecMap(m.arity, m.index_type, targets.index(m.target), m.formula) for m in of.maps)
        params = tuple(spec_param(one, of.maps, of.layout_of) for one in of.operands)
        box = None if of.box is None else spec_box(of.box, of.operands, self.wish, of.backend.target)
        return LoopSpec(of.name, params, maps, of.graph.outputs, box=box, strict=of.strict,
                        reproducible=of.backend.reproducible)  # fmt: skip

    def shared_cache(self, of: Operation) -> SharedCache:
        layouts = tuple(of.layout_of(s) if isinstance(s, Field) else None for s in of.storages)
        # kernels, given bodies and maps may come and go, and their caches, with plans, with them
        parts = (*of.execution.states, *of.body.given_as, *of.maps_and_offsets)
        through = tuple([one.pattern.as_member for one in of.operands])  # which its parameters do not tell
        serials = [one.serial for one in parts]
        key = (*serials, of.strict, of.backend.key, self.wish, of.params, layouts, through, of.box)
        caches: Recent[Any, SharedCache] = loops_over(of.set).shared
        found = caches.find(key)
        if found is None:
            found = caches.keep(key, SharedCache(weak_entry(caches, key, parts)))
            for one in of.maps:
                one.watch(found)
        return found

    def chosen(self, of: Operation) -> tuple[Schedule, str]:
        return self._choice(of, self.wish)

    def _choice(self, of: Operation, wish: Schedule) -> tuple[Schedule, str]:
        return self._ruled(of, wish) or choose(of.spec, of.elements, of.work, wish, target=of.backend.target)

    def _ruled(self, of: Operation, wish: Schedule) -> tuple[Schedule, str] | None:
        flops, assigned = float(of.uncut.flops * of.elements), assigned_name(of.maps, of.spec.racy_maps)
        return ruled(of.spec, of.elements, flops, wish, target=of.backend.target, assigned=assigned)

    def candidates(self, of: Operation) -> Candidates:
        """Strategies, and what one thread does where it may do otherwise; on a GPU also what a thread takes, and the
        layout that the loop votes for, for its widest rows."""
        spec, target, shown, decided = of.spec, of.backend.target, of.backend.rates, self._ruled(of, self.wish)
        weighed = candidates(spec, of.elements, of.work, self.wish, target=target, rates=shown, decided=decided)
        found = Candidates(strategy=weighed)
        if one_thread := self._alone(of):
            found["one thread"] = one_thread
        if target.is_simt and spec.box is not None:
            found["points per thread"] = tiles(spec)
        elif target.is_simt and not spec.maps:
            found["elements per thread"] = elements_per_thread(spec, of.schedule, of.elements, target)
        if target.is_simt and any(isinstance(one, Field) and one.dim > 1 for one in of.storages):
            fields = [one for one in of.storages if isinstance(one, Field)]
            widest = max(fields, key=lambda one: one.dim * one.dtype.itemsize)
            found["layout"] = ranked_layouts([self.vote(of, widest, self.estimate(of))], target)
        return found

    def vote(self, of: Operation, one: Field, seconds: float) -> Vote:
        asked, own = super().vote(of, one, seconds), (o.storage is one and o.pattern.map is None for o in of.operands)
        visited = bool(of.spec.racy_outputs) and strategy(asked.strategy).at_targets
        return replace(asked, in_parts=visited and any(own))

    def choose_layouts(self, of: Operation) -> None:
        """On a GPU, of fields for which no loop and no program has chosen one before: what several use is not changed
        to and fro."""
        if not of.backend.target.is_simt or self.wish.layout or recorder.get() is not None:
            return
        with PREPARING:
            for one in of.storages:
                if not isinstance(one, Field) or one.dim == 1 or one.layout_is_chosen:
                    continue
                if one.layout_is_free and not one.lent:
                    best, *_, worst = ranked_layouts([self.vote(of, one, 1.0)], of.backend.target)
                    if best.seconds < worst.seconds:  # else it does not matter here, and others may choose
                        one.relayout(best.what, free=True)
                        one.layout_is_chosen = True

    def _alone(self, of: Operation) -> tuple[Candidate[str], ...]:
        """What one thread may do where nothing else was asked for, ranked; see ``alone``."""
        if not of.spec.in_order or self._ruled(of, self.wish) is not None:
            return ()
        return alone(of.spec, of.work, of.schedule, target=of.backend.target)

    def serial(self, of: Operation) -> bool:
        return any(one.what == SERIAL for one in self._alone(of)[:1])

    def evaluates_first(self, of: Operation) -> bool:
        """As it is best for the loop by itself, if its order were free: chunks of fused loops keep it either way."""
        free = replace(of.spec, strict=False, reproducible=False)
        target = of.backend.target
        chosen, _ = self._ruled(of, self.wish) or choose(free, of.elements, of.work, self.wish, target=target)
        return strategy(chosen.strategy).goes_in_vectors(free, target)

    def can_run(self, of: Operation, wish: Wish) -> bool:
        return strategy(self._choice(of, parse_schedule(wish))[0].strategy).declines(of.spec) is None

    def estimate(self, of: Operation) -> float:
        backend = of.backend
        return estimated(of.spec, of.work, of.schedule.strategy, target=backend.target, rates=backend.rates)

    def asked(self, name: str, wish: Wish) -> StrategyPolicy:
        return by_strategy(wish)

    def declines(self, of: Operation) -> str | None:
        return strategy(of.schedule.strategy).declines(of.spec)

    def compulsory(self, of: Operation) -> int:
        return int(of.counts.compulsory)

    def flops(self, of: Operation) -> float:
        return float(of.elements * flops_per_element(of.spec, of.spec.outputs))

    def instructions(self, of: Operation) -> Counter[tuple[str, str]]:
        """Those of its kernel, and the atomics of a strategy that has some."""
        found = repeated(of.elements, instructions_per_element(of.spec, of.spec.outputs))
        chosen = strategy(of.schedule.strategy)
        if not chosen.deterministic and of.spec.racy_outputs:
            racy = of.spec.params[of.spec.racy_outputs[0].param]
            cost = chosen.cost(of.spec, of.work, target=of.backend.target)
            found[ATOMIC, racy.dtype.name] += round(cost.atomics)
        return found

    def plan(self, of: Operation, schedule: Schedule | None = None) -> Plan:
        schedule = schedule or of.schedule
        chosen = strategy(schedule.strategy)
        topo = topology(
            of.spec,
            of.elements,
            {
                k: (partial(getattr, m, "positions"), m.target.total, "" if m.version else m.digest)
                for k, m in enumerate(of.maps)
            },
            _visit_order(of, schedule),
            of.box,
        )
        block, target, variant = schedule.block or 1, of.backend.target, schedule.variant
        build = partial(chosen.build, target=target, variant=variant)
        check = partial(verify, target=target, variant=variant)
        if assigned_name(of.maps):
            return fresh_plan(build, topo, block, check)
        return cached_plan(
            build,
            chosen.plan_type(target=target, variant=variant),
            chosen.name,
            topo,
            block,
            check,
            f"{target.plan_key} {variant}",
            chosen.plan_has_blocks,
        )

    def check(self, of: Operation) -> None:
        if not of.applies:
            raise ScheduleError(f"loop {of.name}: strategy '{of.schedule.strategy}' does not apply: {of.reason}")
        if assigned_name(of.maps):
            check_aliases(of.name, of.domain, of.operands)
        for number in of.spec.one_to_one_maps:
            check_one_to_one(of.name, of.maps[number])

    def explain(self, of: Operation) -> str:
        return explain(of)


def by_strategy(wish: Wish) -> StrategyPolicy:
    """By what a person asks for; a strategy that nobody knows is told at once, not when the loop runs."""
    asked = parse_schedule(wish)
    if asked.strategy not in AUTOMATIC:
        strategy(asked.strategy)
    return StrategyPolicy(asked)


def spec_param(operand: Operand, maps: Sequence[Map], layout_of: Callable[[Field], Layout]) -> SpecParam:
    """An operand without its data."""
    param, storage, reach = operand.param, operand.storage, operand.pattern
    if not isinstance(storage, Field):  # a Global that is set is like a field of the loop's only element
        reduced_or_read = not param.mode.control
        return SpecParam(param.name, param.mode, param.dim, param.dtype, Layout("aos"), None, reduced_or_read)
    number = None if reach.map is None else maps.index(reach.map)
    return SpecParam(param.name, param.mode, param.dim, param.dtype, layout_of(storage), number,
                     offsets=param.offsets, as_member=reach.as_member)  # fmt: skip


def _visit_order(of: Operation, schedule: Schedule) -> np.ndarray | None:
    if schedule.order == "given" or not of.maps:
        return None
    one, on = of.maps[(of.spec.racy_maps or (0,))[0]], of.set
    return order_elements(
        schedule.order,
        one.positions[: on.owned],
        one.target.total,
        points=None if on.points is None else on.by_position(on.points)[: on.owned],
        block=schedule.block or USUAL_BLOCK,
    )
