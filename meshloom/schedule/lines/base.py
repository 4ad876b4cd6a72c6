"""What every way to solve along lines answers: does it apply, how are lines cut up, what plan and code it needs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from meshloom.kernel.count import loads
from meshloom.schedule.choice.candidate import Candidate
from meshloom.schedule.lines.spec import LineForm, LineGeometry, LineSpec
from meshloom.schedule.nest.code import Pass
from meshloom.schedule.plan.declare import Part, PlanNumber, holds
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Emitter
from meshloom.target import CPU, Target


@dataclass(frozen=True, eq=False)
class LinePlaces:
    """Where lines are: see ``LineGeometry``."""

    length: int = holds(PlanNumber(), "points of a line")
    step: int = holds(PlanNumber(), "places from point to point")
    lanes: int = holds(PlanNumber(), "lines that lie side by side")
    outer: int = holds(PlanNumber(), "how often they do")
    inner: int = holds(PlanNumber(), "how often before the next outer step")
    outer_step: int = holds(PlanNumber(), "places from one such group to the next")
    inner_step: int = holds(PlanNumber(), "places inside a group")
    offset: int = holds(PlanNumber(), "the place of the first point")


@dataclass(frozen=True, eq=False)
class LinePlan(Plan):
    """What the plans of all line loops have."""

    places: LinePlaces = holds(Part(LinePlaces), "where the lines are")


class LineMethod(Emitter):
    """A way to solve along lines."""

    summary: ClassVar[str] = ""

    def declines(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> str | None:
        """Why this method cannot do it; None when it can."""
        return None

    @abstractmethod
    def form(self, spec: LineSpec, lines: LineGeometry, wish: Mapping[str, int], *, target: Target) -> LineForm:
        """How lines are cut up; ``wish``: entries of the form that somebody asked for."""

    def forms(
        self, spec: LineSpec, lines: LineGeometry, wish: Mapping[str, int], *, target: Target
    ) -> tuple[Candidate[LineForm], ...]:
        """How they may be cut up, ranked: the first is ``form``."""
        return (Candidate(self.form(spec, lines, wish, target=target)),)

    @abstractmethod
    def plan(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> Plan:
        """Tables and sizes for lines of this length."""

    def registers(self, spec: LineSpec) -> int | None:
        """Registers that a thread of a GPU should do with; None: as the compiler likes."""
        return None

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(spec, LineSpec)
        return self.line_passes(spec, plan, target=target)

    @abstractmethod
    def line_passes(self, spec: LineSpec, plan: Plan, *, target: Target) -> list[Pass]:
        """The passes to emit."""


def line_places(lines: LineGeometry) -> LinePlaces:
    """Where lines are, for generated code."""
    return LinePlaces(lines.length, lines.step, lines.lanes, lines.outer, lines.inner, lines.outer_step,
                      lines.inner_step, lines.offset)  # fmt: skip


def in_place(spec: LineSpec) -> bool:
    """Is a field written that the operands are made of?"""
    return bool({p for p, _, _ in loads(spec.operands)} & {o.param for o in spec.results})
