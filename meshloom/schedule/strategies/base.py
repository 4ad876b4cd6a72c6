"""What every strategy answers: does it apply, what plan it needs, what code it emits, is it deterministic, its cost."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from meshloom.errors import ScheduleError, nearest, shown
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.plan.emitter import AUTOMATIC, Emitter
from meshloom.schedule.plan.plan import Plan, Topology
from meshloom.schedule.plan.schema import check_schema, demand
from meshloom.schedule.spec import LoopSpec
from meshloom.target import CPU, Target

#: What others take a strategy for without naming it: loops whose elements do not meet, points of a grid, loops too
#: small for threads, and maps that are given other indices while loops run; in fused loops, the plans of gathers on a
#: GPU and of chunks of targets on a CPU.
ELEMENTS, POINTS, SERIAL, ASSIGNED, GATHERS, CHUNKS = "elements", "points", "serial", "assigned", "gathers", "chunks"


class Strategy(Emitter):
    """A method that avoids race conditions: elements that update one target must not lose each other's contributions.

    Everything is a function of the loop and its maps.
    """

    deterministic: ClassVar[bool]  # the same bits every run? where that is promised, others are not taken
    in_order: ClassVar[bool] = False  # does a target take its terms in the order of elements, as the reference does?
    summary: ClassVar[str]
    plan_has_blocks: ClassVar[bool] = False  # do the plan's arrays depend on the block size?
    competes: ClassVar[bool] = True  # may it be asked for, for any loop?
    serves: ClassVar[frozenset[str]] = frozenset()  # what it is taken for where nobody asks for it
    at_targets: ClassVar[bool] = False  # are elements evaluated where their targets are, so that loops can go on there?
    evaluates_first: ClassVar[bool] = False  # are elements of any loop evaluated before any is added up?
    variants: ClassVar[tuple[str, ...]] = ("plain",)  # forms of the plan that a schedule may ask for
    plans: ClassVar[type[Plan]]  # the type of its plans, declared beside it
    plans_together: ClassVar[type[Plan] | None] = None  # where threads run together, if another one
    declared: ClassVar[dict[str, tuple[str, Callable[[Any], bool]]]] = {
        "deterministic": ("True or False", lambda it: isinstance(it, bool)),
        "summary": ("a few words", lambda it: isinstance(it, str) and bool(it.strip())),
        "plans": ("a subclass of Plan", lambda it: isinstance(it, type) and issubclass(it, Plan)),
        **dict.fromkeys(("plan", "passes", "cost"), ("a function", callable)),
    }

    def block(self, target: Target, elements: int, spec: LoopSpec | None = None) -> int:
        """The block size where none is asked for, of a loop if it is known; on a CPU smaller where there would be few
        blocks, so that threads share evenly."""
        usual = target.numbers.block(self.name)
        if target.is_simt:
            return usual
        threads = target.cpu.threads
        return max(threads.least_block, min(usual, elements // threads.many_blocks))

    def goes_in_vectors(self, spec: LoopSpec, target: Target) -> bool:
        """Are elements of the loop evaluated before any is added up, and so several at a time on a CPU?"""
        return self.evaluates_first

    def declines(self, spec: LoopSpec) -> str | None:
        """Why this strategy cannot run the loop; None when it can."""
        return None

    def plan_type(self, *, target: Target = CPU, variant: str = "plain") -> type[Plan]:
        """The type of the plan of a variant."""
        return self.plans_together if target.is_simt and self.plans_together else self.plans

    @abstractmethod
    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        """A plan of the declared type, a pure function of the maps and the block size."""

    def varied(self, variant: str, plan: Plan, topology: Topology) -> Plan:
        """The plan of one of ``variants``, made from the plain one; its code may ask for its type."""
        return plan

    def build(self, topology: Topology, block: int, *, target: Target = CPU, variant: str = "plain") -> Plan:
        """The plan of a variant."""
        plan = self.plan(topology, block, target=target)
        if not isinstance(plan, Plan) or not isinstance(plan.block, int | np.integer) or plan.block < 1:
            raise ScheduleError(f"strategy '{self.name}': plan must give a Plan with a block, got {shown(plan)}")
        return self.varied(variant, plan, topology)

    def fitted(self, target: Target, word: str) -> float:
        """A number of its own, from those of the target."""
        return target.numbers.strategies[self.name][word]

    @abstractmethod
    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        """Estimated traffic and arithmetic of one execution."""


def strategy(name: str) -> Strategy:
    """A strategy by name."""
    found = Emitter.registry.get(name)
    if not isinstance(found, Strategy):
        raise ScheduleError(f"unknown strategy '{name}'{nearest(name, (*AUTOMATIC, *names()))}")
    return found


def serving(purpose: str, *, deterministic: bool = True) -> Strategy:
    """The strategy that serves a purpose, giving the same bits every run unless that does not matter."""
    serve = [one for one in Emitter.registry.values() if isinstance(one, Strategy) and purpose in one.serves]
    return next(one for one in serve if one.deterministic == deterministic)


def variants(name: str) -> tuple[str, ...]:
    """The variants of a strategy; an automatic choice has the plain one only."""
    return ("plain",) if name in AUTOMATIC else strategy(name).variants


def check_variant(name: str, variant: str) -> None:
    """Raise ScheduleError unless the strategy has this variant."""
    if variant not in variants(name):
        raise ScheduleError(f"strategy '{name}' has no variant '{variant}'; allowed: {', '.join(variants(name))}")


def verify(plan: Plan, topology: Topology, *, target: Target | None = None, variant: str = "plain") -> None:
    """Raise PlanError unless the plan is right for these maps; where ``target`` is known, for its threads too."""
    if target is not None:
        expected = strategy(plan.strategy).plan_type(target=target, variant=variant)
        demand(type(plan) is expected, plan, f"its type is {type(plan).__name__}, expected {expected.__name__}")
    check_schema(plan, topology)
    plan.check(topology)


def names() -> tuple[str, ...]:
    """Names of the strategies that compete, in the order of the documentation."""
    return tuple(n for n, one in Emitter.registry.items() if isinstance(one, Strategy) and one.competes)
