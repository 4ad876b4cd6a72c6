"""Hardware atomics: what every strategy that ends in them shares, and how threads join what goes to one target."""

from __future__ import annotations

from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import COUNT, ElementCode, Pass, Phase
from meshloom.schedule.nest.nodes import BOOL, Expr, Name, Shuffle, Statement, all_of, let
from meshloom.schedule.plan.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.common.visits import VisitPlan, visiting
from meshloom.target import CPU, Target


class Atomics(Strategy):
    """Elements in one launch; the hardware makes every racy update indivisible."""

    deterministic = False  # sums depend on who comes first
    plans = VisitPlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        return VisitPlan(self.name, block, visiting(topology))

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(plan, VisitPlan)
        code = ElementCode(spec, spec.outputs)
        body = code.body(code.atomic, element=plan.element)
        return [Pass("elements", COUNT, (Phase(body),), reductions=spec.reductions)]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        moved = work.compulsory + work.reload_reads + work.reload_updates
        added = work.elements * work.components
        return Cost(moved, work.flops, atomics=added, contended=added * work.contention, requests=work.requested)


@dataclass(frozen=True)
class Taking:
    """One side of two slots of neighbouring threads that may lead to the same target."""

    target: Expr  # where the own slot leads
    theirs: Name  # where the other's does
    joined: Name  # do they meet?
    lane: Expr  # of the other
    there: tuple[Expr, ...]  # conditions: has it an element at all?


def exchanged(takes: Taking, gives: Taking) -> list[Statement]:
    """Statements that find out whether a slot takes what another thread has, and whether one takes what this one has;
    everybody asks, also those who will not use the answer."""
    asked = ((takes, gives), (gives, takes))
    return [
        *(let(one.theirs.name, Shuffle(other.target, one.lane)) for one, other in asked),
        *(let(one.joined.name, all_of([*one.there, one.theirs.equals(one.target)]), BOOL) for one, _ in asked),
    ]
